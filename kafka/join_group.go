package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinGroup refuses to form a group.
func (s *Server) joinGroup(_ context.Context, r *request, k *kmsg.JoinGroupRequest) kmsg.Response {
	response := kmsg.NewPtrJoinGroupResponse()
	response.Generation, response.MemberID = -1, k.MemberID
	response.ErrorCode, _ = s.adminCode(r, errGroups, k.Group)
	return response
}
