package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"runtime/debug"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// request is a request whose header is decoded.
type request struct {
	api         api
	version     int16
	correlation int32
	clientID    string
	body        []byte // what follows the header; aliases the frame
	arrived     time.Time
	peer        string
}

// parseRequest decodes a frame's header: API key and version int16, correlation id int32, client id (nullable string), and tags in
// flexible versions. Errors: errMalformed, errUnsupported.
func (s *Server) parseRequest(frame []byte) (*request, error) {
	b := kbin.Reader{Src: frame}
	key := b.Int16()
	r := &request{version: b.Int16(), correlation: b.Int32(), arrived: time.Now()}
	known, ok := s.apis[key]
	if !ok {
		return nil, fmt.Errorf("%w: API key %d version %d", errUnsupported, key, r.version)
	}
	r.api = known
	if r.version < known.min || r.version > known.max {
		if key == keyAPIVersions {
			return r, errOtherVersion
		}
		return nil, fmt.Errorf("%w: %s version %d, served are %d to %d", errUnsupported, known.name, r.version, known.min, known.max)
	}
	if id := b.NullableString(); id != nil {
		r.clientID = *id
	}
	if r.flexible() {
		kmsg.SkipTags(&b)
	}
	if !b.Ok() {
		return nil, fmt.Errorf("%w: header of a %s request cut short", errMalformed, known.name)
	}
	r.body = b.Src
	return r, nil
}

// flexible tells whether the request's version has tagged fields (KIP-482).
func (r *request) flexible() bool {
	k := kmsg.RequestForKey(r.api.key)
	k.SetVersion(r.version)
	return k.IsFlexible()
}

// decode decodes the body into k, which is of the request's kind. Unknown tagged fields are skipped. Error: errMalformed.
func (r *request) decode(k kmsg.Request) (err error) {
	defer func() {
		// The decoder is generated and not ours: should it fail on bytes from outside, that is that peer's trouble alone.
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: decoding a %s request of version %d: %v\n%s", errMalformed, r.api.name, r.version, p, debug.Stack())
		}
	}()
	k.SetVersion(r.version)
	if err := k.ReadFrom(r.body); err != nil {
		return fmt.Errorf("%w: body of a %s request of version %d: %w", errMalformed, r.api.name, r.version, err)
	}
	return nil
}

// reply is what a request is answered with.
type reply struct {
	buffers net.Buffers // the whole frame; empty: nothing is sent
	close   bool        // close the connection after it
}

// size is the bytes that the reply keeps in memory until it is sent.
func (r reply) size() int {
	n := 0
	for _, b := range r.buffers {
		n += len(b)
	}
	return n
}

// newFrame begins a response's frame: room for its size, the correlation id, and the empty tags of flexible versions. ApiVersions never
// has tags in its header, so that a client can read the answer to a version that the server does not know.
func (r *request) newFrame(capacity int) []byte {
	frame := make([]byte, frameSizeBytes, frameSizeBytes+5+capacity)
	frame = kbin.AppendInt32(frame, r.correlation)
	if r.api.key != keyAPIVersions && r.flexible() {
		frame = append(frame, 0)
	}
	return frame
}

// seal writes the size of the frame into its first buffer.
func seal(buffers net.Buffers) reply {
	r := reply{buffers: buffers}
	binary.BigEndian.PutUint32(buffers[0], uint32(r.size()-frameSizeBytes))
	return r
}

// respond encodes a response.
func (r *request) respond(k kmsg.Response) reply {
	k.SetVersion(r.version)
	return seal(net.Buffers{k.AppendTo(r.newFrame(256))})
}

// call is a request on its way through a connection. Whoever works on it answers it once, by reply, answer or abandon.
type call struct {
	request  *request
	inflight *inflight
	charge   *charge // what it holds: the frame, and the reply once there is one
	done     chan struct{}
	finish   func() reply
	written  chan struct{} // closed when the reply has left, or will never leave
}

// reply answers with what is to be sent.
func (c *call) reply(r reply) {
	c.inflight.add(c.charge, r.size())
	c.answer(func() reply { return r })
}

// answer hands over how to make the reply. finish runs on the connection's writer when all earlier requests are answered, so that a
// goroutine that many connections depend on can call answer without being held up.
func (c *call) answer(finish func() reply) {
	c.finish = finish
	close(c.done)
}

// abandon answers by closing the connection.
func (c *call) abandon() {
	c.answer(func() reply { return reply{close: true} })
}

// handler works on a call and answers it, now or later. An error means that it was not and will not be answered: errMalformed, the body
// could not be decoded and nothing was done.
type handler func(ctx context.Context, conn *connection, c *call) error
