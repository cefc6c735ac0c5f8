package segment

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundTripSmall(t *testing.T) {
	in := []Entry{
		{Stream: 7, Epoch: 3, Base: 10, Last: 11, MaxTimestamp: 5, Producer: Producer{ID: NoProducer}, Data: []byte("seven-a")},
		{Stream: 2, Epoch: 1, Base: 0, Last: 0, MaxTimestamp: -5, Producer: Producer{ID: -9, Epoch: 2, FirstSeq: 4, LastSeq: 3}, Data: []byte("two")},
		{Stream: 7, Epoch: 3, Base: 12, Last: 20, MaxTimestamp: 4, Producer: Producer{ID: 0, Epoch: 2, FirstSeq: 4, LastSeq: 12}, Data: []byte("seven-b")},
	}
	b, parts := Encode(Header{Kind: KindSegment, Cluster: "c", Node: 1, NodeEpoch: 2, Seq: 3}, in, Options{})
	o, entries, err := Decode(b)
	require.NoError(t, err)
	require.Equal(t, parts, o.Parts)
	require.Equal(t, []Entry{in[1], in[0], in[2]}, entries)
	require.Equal(t, Header{Kind: KindSegment, Cluster: "c", Node: 1, NodeEpoch: 2, Seq: 3}, o.Header)
}
