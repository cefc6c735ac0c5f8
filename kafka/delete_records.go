package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvedb/varve/nodes/engine"
)

// deleteToEnd asks to delete everything up to the high watermark.
const deleteToEnd = -1

// deleteRecords moves the starts of partitions forward. An offset at or below the start succeeds and changes nothing.
func (s *Server) deleteRecords(ctx context.Context, r *request, k *kmsg.DeleteRecordsRequest) kmsg.Response {
	response := kmsg.NewPtrDeleteRecordsResponse()
	waiting, cancel := context.WithTimeout(ctx, s.options.StreamWait)
	defer cancel()
	for i := range k.Topics {
		topic := &k.Topics[i]
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = topic.Topic
		for j := range topic.Partitions {
			want := &topic.Partitions[j]
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.LowWatermark = want.Partition, -1
			stream, err := s.stream(waiting, topicRef{name: topic.Topic}, want.Partition)
			if err == nil {
				p.LowWatermark, err = deleteBefore(ctx, stream, want.Offset)
			}
			p.ErrorCode = s.partitionCode(r, err, topic.Topic, want.Partition)
			t.Partitions = append(t.Partitions, p)
		}
		response.Topics = append(response.Topics, t)
	}
	return response
}

// deleteBefore deletes what lies below offset and gives the new start.
func deleteBefore(ctx context.Context, stream *engine.Stream, offset int64) (start int64, err error) {
	start, end := stream.Start(), stream.End()
	if offset == deleteToEnd {
		offset = end
	}
	switch {
	case offset < 0 || offset > end:
		return -1, &engine.OffsetOutOfRange{Stream: stream.ID(), Offset: offset, Start: start, End: end}
	case offset <= start:
		return start, nil
	}
	if start, err = stream.Trim(ctx, offset); err != nil {
		return -1, err
	}
	return start, nil
}
