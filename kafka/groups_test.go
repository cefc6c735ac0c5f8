package kafka

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A consumer that only assigns partitions asks for its coordinator and for what is committed, and is told of no error. One that joins or commits is refused for good.
func TestGroupsAreRefusedWhereTheyBegin(t *testing.T) {
	n := oneNode(t)
	w := n.wire(t)
	for version := range int16(7) {
		k := kmsg.NewPtrFindCoordinatorRequest()
		k.CoordinatorKey, k.CoordinatorKeys = "g", []string{"g", "h"}
		response := ask[*kmsg.FindCoordinatorResponse](w, version, k)
		if version < findCoordinatorBatch {
			require.Zero(t, response.ErrorCode)
			require.EqualValues(t, 1, response.NodeID)
			continue
		}
		require.Len(t, response.Coordinators, 2)
		require.Zero(t, response.Coordinators[1].ErrorCode)
		require.Equal(t, "h", response.Coordinators[1].Key)
		require.EqualValues(t, 1, response.Coordinators[1].NodeID)
		require.NotZero(t, response.Coordinators[1].Port)
	}
	for version := range int16(10) {
		k := kmsg.NewPtrJoinGroupRequest()
		k.Group, k.ProtocolType = "g", "consumer"
		require.Equal(t, "UNSUPPORTED_VERSION", errorName(ask[*kmsg.JoinGroupResponse](w, version, k).ErrorCode))
	}
	for version := int16(2); version < 10; version++ {
		k := kmsg.NewPtrOffsetCommitRequest()
		topic := kmsg.NewOffsetCommitRequestTopic()
		topic.Topic, topic.Partitions = "t", []kmsg.OffsetCommitRequestTopicPartition{kmsg.NewOffsetCommitRequestTopicPartition()}
		k.Group, k.Topics = "g", append(k.Topics, topic)
		response := ask[*kmsg.OffsetCommitResponse](w, version, k)
		require.Equal(t, "t", response.Topics[0].Topic)
		require.Equal(t, "UNSUPPORTED_VERSION", errorName(response.Topics[0].Partitions[0].ErrorCode))
	}
}

func TestNoOffsetIsCommitted(t *testing.T) {
	w := oneNode(t).wire(t)
	for version := int16(1); version < 10; version++ {
		k := kmsg.NewPtrOffsetFetchRequest()
		if version < offsetFetchBatch {
			topic := kmsg.NewOffsetFetchRequestTopic()
			topic.Topic, topic.Partitions = "t", []int32{3}
			k.Group, k.Topics = "g", append(k.Topics, topic)
			response := ask[*kmsg.OffsetFetchResponse](w, version, k)
			require.Zero(t, response.ErrorCode)
			require.Equal(t, "t", response.Topics[0].Topic)
			require.EqualValues(t, 3, response.Topics[0].Partitions[0].Partition)
			require.EqualValues(t, -1, response.Topics[0].Partitions[0].Offset)
			continue
		}
		for _, name := range []string{"g", "h"} {
			group := kmsg.NewOffsetFetchRequestGroup()
			topic := kmsg.NewOffsetFetchRequestGroupTopic()
			topic.Topic, topic.Partitions = "t", []int32{3}
			group.Group, group.Topics = name, append(group.Topics, topic)
			k.Groups = append(k.Groups, group)
		}
		response := ask[*kmsg.OffsetFetchResponse](w, version, k)
		require.Len(t, response.Groups, 2)
		require.Equal(t, "h", response.Groups[1].Group)
		require.Zero(t, response.Groups[1].ErrorCode)
		require.EqualValues(t, 3, response.Groups[1].Topics[0].Partitions[0].Partition)
		require.EqualValues(t, -1, response.Groups[1].Topics[0].Partitions[0].Offset)
	}
}
