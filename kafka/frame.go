package kafka

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// A frame is an int32 size and as many bytes (Kafka protocol guide, "Protocol Primitives").
const (
	frameSizeBytes = 4
	minFrameBytes  = 8 // api key, api version, correlation id
	// firstRead is what is allocated for a frame before any byte of it has come; what has come is then at most doubled.
	firstRead = 128 << 10
)

// errMalformed says that the peer does not speak the protocol. The connection is closed: nothing after it can be trusted.
var errMalformed = errors.New("malformed request")

// frames reads frames off a connection.
type frames struct {
	conn        net.Conn
	r           *bufio.Reader
	idleTimeout time.Duration
	readTimeout time.Duration
	max         func(key int16) int // the largest frame of an API key, bytes
	stopping    func() bool         // asked after each read deadline is set, since stopping works by setting another
}

// awaitNext waits until the next frame begins and gives its size and API key; no byte of it is taken. busy tells whether requests are
// being worked on, in which case being idle is no fault. Errors: those of the connection, errMalformed.
func (f *frames) awaitNext(busy func() bool) (size int, key int16, err error) {
	for {
		if err := f.conn.SetReadDeadline(time.Now().Add(f.idleTimeout)); err != nil {
			return 0, 0, err
		}
		if f.stopping() {
			return 0, 0, errStopping
		}
		_, err := f.r.Peek(1)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() && busy() {
			continue
		}
		if err != nil {
			return 0, 0, err
		}
		break
	}
	if err := f.conn.SetReadDeadline(time.Now().Add(f.readTimeout)); err != nil {
		return 0, 0, err
	}
	head, err := f.r.Peek(frameSizeBytes + 2)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: cut short after %d bytes: %w", errMalformed, len(head), err)
	}
	claimed := int32(binary.BigEndian.Uint32(head))
	key = int16(binary.BigEndian.Uint16(head[frameSizeBytes:]))
	if claimed < minFrameBytes {
		return 0, 0, fmt.Errorf("%w: size %d (first bytes %q)", errMalformed, claimed, head)
	}
	if most := f.max(key); int(claimed) > most {
		if other := otherProtocol(head); other != "" {
			return 0, 0, fmt.Errorf("%w: %s", errMalformed, other)
		}
		return 0, 0, fmt.Errorf("%w: size %d of API key %d, the most is %d (first bytes %q)", errMalformed, claimed, key, most, head)
	}
	return int(claimed), key, nil
}

// otherProtocol says what begins with these bytes, when it is something that is often sent here by mistake; else "".
func otherProtocol(head []byte) string {
	if head[0] == 0x16 && head[1] == 0x03 { // record type handshake, version 3.x
		return "a TLS handshake, and this listener speaks no TLS (security.protocol=PLAINTEXT)"
	}
	for _, method := range []string{"GET ", "PUT ", "POST", "HEAD", "DELE", "OPTI", "PATC"} {
		if bytes.HasPrefix(head, []byte(method)) {
			return "an HTTP request, and HTTP is served on another port"
		}
	}
	return ""
}

// read takes the frame that awaitNext found. Memory is allocated as bytes come, so that a size alone costs little.
func (f *frames) read(size int) ([]byte, error) {
	if _, err := f.r.Discard(frameSizeBytes); err != nil {
		return nil, err
	}
	frame := make([]byte, 0, min(size, firstRead))
	for len(frame) < size {
		if len(frame) == cap(frame) {
			grown := make([]byte, len(frame), min(size, 2*cap(frame)))
			copy(grown, frame)
			frame = grown
		}
		if err := f.conn.SetReadDeadline(time.Now().Add(f.readTimeout)); err != nil {
			return nil, err
		}
		n, err := f.r.Read(frame[len(frame):cap(frame)])
		frame = frame[:len(frame)+n]
		if err != nil && len(frame) < size {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, fmt.Errorf("%w: %d of %d bytes: %w", errMalformed, len(frame), size, err)
		}
	}
	return frame, nil
}
