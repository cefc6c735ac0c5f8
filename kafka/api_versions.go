package kafka

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// apiVersions answers what is served (KIP-35, KIP-511).
func (s *Server) apiVersions(_ context.Context, _ *request, _ *kmsg.ApiVersionsRequest) kmsg.Response {
	k := kmsg.NewPtrApiVersionsResponse()
	for _, key := range slices.Sorted(maps.Keys(s.apis)) {
		k.ApiKeys = append(k.ApiKeys, apiRange(s.apis[key]))
	}
	return k
}

func apiRange(a api) kmsg.ApiVersionsResponseApiKey {
	r := kmsg.NewApiVersionsResponseApiKey()
	r.ApiKey, r.MinVersion, r.MaxVersion = a.key, a.min, a.max
	return r
}

// otherAPIVersion answers an ApiVersions request of a version that is not known: in version 0, with the range of ApiVersions itself, so
// that the client can ask again.
func (r *request) otherAPIVersion(apis map[int16]api) reply {
	k := kmsg.NewPtrApiVersionsResponse()
	k.ErrorCode = kerr.UnsupportedVersion.Code
	k.ApiKeys = append(k.ApiKeys, apiRange(apis[keyAPIVersions]))
	r.version = 0
	return r.respond(k)
}
