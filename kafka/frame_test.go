package kafka

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// framesOf gives a reader of frames over one end of a pipe, and the other end.
func framesOf(t *testing.T, most int) (*frames, net.Conn) {
	server, client := net.Pipe()
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return &frames{
		conn: server, r: bufio.NewReaderSize(server, 16<<10), idleTimeout: time.Minute, readTimeout: time.Minute,
		max: func(int16) int { return most }, stopping: func() bool { return false },
	}, client
}

func frameOf(size int) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(size))
	return append(f, bytes.Repeat([]byte{0, 18}, (size+1)/2)[:size]...)
}

func never() bool { return false }

func TestFramesOfEverySize(t *testing.T) {
	f, client := framesOf(t, 1<<30)
	sizes := []int{minFrameBytes, 100, firstRead - 1, firstRead, firstRead + 1, 3*firstRead + 5, 5 << 20}
	done := make(chan error, 1)
	go func() {
		for _, size := range sizes {
			if _, err := client.Write(frameOf(size)); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for _, want := range sizes {
		size, key, err := f.awaitNext(never)
		require.NoError(t, err)
		require.Equal(t, want, size)
		require.Equal(t, int16(18), key)
		frame, err := f.read(size)
		require.NoError(t, err)
		require.Equal(t, frameOf(want)[frameSizeBytes:], frame)
	}
	require.NoError(t, <-done)
}

func TestFrameSizesAreCheckedBeforeAnythingIsAllocated(t *testing.T) {
	for _, claim := range []uint32{0, minFrameBytes - 1, 1<<20 + 1, math.MaxInt32, math.MaxUint32, 0x47455420 /* "GET " */} {
		f, client := framesOf(t, 1<<20)
		go func() {
			_, _ = client.Write(binary.BigEndian.AppendUint32(nil, claim))
			_, _ = client.Write([]byte{0, 18, 0, 0})
		}()
		_, _, err := f.awaitNext(never)
		require.ErrorIs(t, err, errMalformed, "size %x", claim)
	}
}

func TestAFrameThatIsOnlyClaimedCostsLittle(t *testing.T) {
	f, client := framesOf(t, math.MaxInt32)
	go func() {
		_, _ = client.Write(binary.BigEndian.AppendUint32(nil, math.MaxInt32))
		_, _ = client.Write(make([]byte, 1000))
		_ = client.Close()
	}()
	size, _, err := f.awaitNext(never)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = f.read(size)
	runtime.ReadMemStats(&after)
	require.Error(t, err)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

func TestIdleConnectionsEndUnlessTheyWaitForAnAnswer(t *testing.T) {
	f, _ := framesOf(t, 1<<20)
	f.idleTimeout = time.Millisecond
	asked := 0
	_, _, err := f.awaitNext(func() bool { asked++; return asked < 3 })
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.Equal(t, 3, asked)
}

func TestCutBuffers(t *testing.T) {
	whole := net.Buffers{[]byte("ab"), []byte("cdefg"), []byte("h")}
	var chunks []string
	for rest := whole; len(rest) > 0; {
		var chunk net.Buffers
		chunk, rest = cutBuffers(rest, 3)
		chunks = append(chunks, string(bytes.Join(chunk, nil)))
	}
	require.Equal(t, []string{"abc", "def", "gh"}, chunks)
	require.Equal(t, "cdefg", string(whole[1]), "what was given is left as it was")
}

// What is no Kafka at all is named in the log, since that is what an operator has to go by.
func TestOtherProtocolsAreNamed(t *testing.T) {
	for first, want := range map[string]string{
		"GET / HTTP/1.1\r\n":               "an HTTP request",
		"POST /v1/stream/x HTTP/1.1\r\n":   "an HTTP request",
		"\x16\x03\x01\x01\x24\x01\x00\x01": "a TLS handshake",
		"\x7f\xff\xff\xff\x00\x00\x00\x00": "size 2147483647",
	} {
		f, client := framesOf(t, 1<<20)
		go client.Write([]byte(first))
		_, _, err := f.awaitNext(never)
		require.ErrorIs(t, err, errMalformed)
		require.ErrorContains(t, err, want)
	}
}
