package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDefaultOptionsAreValid(t *testing.T) {
	o := DefaultOptions()
	require.NoError(t, o.Validate())
	require.Equal(t, 100<<20, o.MaxRequestBytes)
}

func TestValidateNamesEveryWrongOption(t *testing.T) {
	err := Options{}.Validate()
	require.ErrorContains(t, err, "kafka-max-request-bytes is 0")
	require.ErrorContains(t, err, "kafka-stream-wait is 0")
}
