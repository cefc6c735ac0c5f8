package streams

import (
	"fmt"
	"strings"
	"time"

	"github.com/varvedb/varve/nodes"
)

// Options of the HTTP listener.
type Options struct {
	MaxBody         int64         `flag:"http-max-body" default:"8MiB" unit:"bytes" usage:"largest body of an append over HTTP"`
	MaxChunk        int64         `flag:"http-max-chunk" default:"1MiB" unit:"bytes" usage:"how much of a stream one read answers with; at least one append is whole"`
	LongPollTimeout time.Duration `flag:"http-long-poll-timeout" default:"20s" usage:"how long a long poll waits for data"`
	SSELifetime     time.Duration `flag:"http-sse-lifetime" default:"60s" usage:"how long a stream of server-sent events lasts before the client is asked to connect again"`
	AppendTimeout   time.Duration `flag:"http-append-timeout" default:"30s" usage:"how long an append waits to become durable before it is answered 503"`
	Routing         Routing       `flag:"routing" default:"redirect" usage:"what is done with an HTTP request for a stream that another node leads: local (answer 503), redirect (answer 307) or proxy (ask the leader)"`
	CORSOrigins     []string      `flag:"http-cors-origins" default:"*" usage:"origins whose pages may use streams, separated by commas; empty for none"`
}

// Validate names every option that cannot work.
func (o Options) Validate() error {
	switch {
	case o.MaxBody < 1 || o.MaxBody > nodes.MaxMessageBytes/2:
		return fmt.Errorf("http-max-body is %d, want 1 to %d bytes", o.MaxBody, nodes.MaxMessageBytes/2)
	case o.MaxChunk < 1 || o.MaxChunk > 1<<30:
		return fmt.Errorf("http-max-chunk is %d, want 1 to 1 GiB", o.MaxChunk)
	case o.LongPollTimeout <= 0 || o.SSELifetime <= 0 || o.AppendTimeout <= 0:
		return fmt.Errorf("http-long-poll-timeout, http-sse-lifetime and http-append-timeout must be greater than 0")
	}
	for _, origin := range o.CORSOrigins {
		scheme, host, ok := strings.Cut(origin, "://")
		if origin != "*" && origin != "null" && (!ok || scheme == "" || host == "" || strings.Contains(host, "/")) {
			return fmt.Errorf("http-cors-origins has %.100q, want * or origins such as https://app.example.com, without a path", origin)
		}
	}
	switch o.Routing {
	case RoutingLocal, RoutingRedirect, RoutingProxy:
		return nil
	}
	return fmt.Errorf("routing is %q, want %s, %s or %s", o.Routing, RoutingLocal, RoutingRedirect, RoutingProxy)
}
