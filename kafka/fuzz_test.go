package kafka

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzConnection gives a node any bytes as one frame and as bare bytes: the node answers or closes that connection, and goes on.
func FuzzConnection(f *testing.F) {
	s := newSite(f)
	n := s.start(func(o *Options) { o.StreamWait, o.MaxRequestBytes = 10*time.Millisecond, 1<<20 })
	n.create(f, "t", 1, nil)
	s.logs.mute()
	for key := range n.server.apis {
		for version := n.server.apis[key].min; version <= n.server.apis[key].max; version++ {
			k := kmsg.RequestForKey(key)
			k.SetVersion(version)
			f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, k, 1)[4:], true)
		}
	}
	f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, versioned(9, produceOf("t", 0, one("x"))), 1)[4:], true)
	f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, versioned(12, fetchOf("t", 0, 0)), 1)[4:], true)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, input []byte, framed bool) {
		if framed {
			input = append(binary.BigEndian.AppendUint32(nil, uint32(len(input))), input...)
		}
		server, client := net.Pipe()
		n.server.accept(context.Background(), server)
		drained := make(chan struct{})
		go func() {
			defer close(drained)
			_, _ = io.Copy(io.Discard, client)
		}()
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(patience)))
		_, _ = client.Write(input)
		require.NoError(t, client.Close())
		<-drained
	})
}
