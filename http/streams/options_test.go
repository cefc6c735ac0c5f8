package streams

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/ops/settings"
)

func TestOriginsAreChecked(t *testing.T) {
	for origin, ok := range map[string]bool{
		"*": true, "null": true, "https://app.example.com": true, "http://localhost:3000": true, "https://*.example.com": true,
		"app.example.com": false, "https://": false, "https://app.example.com/": false, "://x": false, "": false,
	} {
		o := settings.Default[Options]()
		o.CORSOrigins = []string{"http://localhost", origin}
		require.Equal(t, ok, o.Validate() == nil, origin)
	}
}
