package streams

import (
	"crypto/sha256"
	"encoding/binary"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/varvedb/varve/nodes/engine"
)

// Headers of the protocol.
const (
	headerNextOffset    = "Stream-Next-Offset"
	headerUpToDate      = "Stream-Up-To-Date"
	headerCursor        = "Stream-Cursor"
	headerClosed        = "Stream-Closed"
	headerSeq           = "Stream-Seq"
	headerTTL           = "Stream-TTL"
	headerExpiresAt     = "Stream-Expires-At"
	headerForkedFrom    = "Stream-Forked-From"
	headerForkOffset    = "Stream-Fork-Offset"
	headerForkSubOffset = "Stream-Fork-Sub-Offset"
	headerProducerID    = "Producer-Id"
	headerProducerEpoch = "Producer-Epoch"
	headerProducerSeq   = "Producer-Seq"
	headerExpectedSeq   = "Producer-Expected-Seq"
	headerReceivedSeq   = "Producer-Received-Seq"
	headerSSEEncoding   = "Stream-SSE-Data-Encoding"
	headerLastEventID   = "Last-Event-ID" // of EventSource, not of the protocol
)

const (
	typeJSON   = "application/json"
	typeBinary = "application/octet-stream"
)

// maxHeader bounds the values of the protocol's free-form headers, bytes.
const maxHeader = 1024

// closes tells whether the request ends the stream: only the value true counts.
func closes(h http.Header) bool { return strings.EqualFold(h.Get(headerClosed), "true") }

// contentType gives the media type as it was sent and in the form that types are compared in: lower case, without parameters.
func contentType(h http.Header) (sent, media string, err error) {
	sent = h.Get("Content-Type")
	if sent == "" {
		return "", "", nil
	}
	media, _, err = mime.ParseMediaType(sent)
	if err != nil || len(sent) > maxHeader || !strings.Contains(media, "/") {
		return "", "", badRequest("invalid_content_type", "content type %.64q: want a media type such as application/json", sent)
	}
	return sent, media, nil
}

// mediaOf is the comparable form of a stream's stored content type.
func mediaOf(stored string) string {
	media, _, err := mime.ParseMediaType(stored)
	if err != nil {
		return typeBinary
	}
	return media
}

// expiry is when a stream goes by itself. Zero values mean never.
type expiry struct {
	ttl       string // seconds since the last read or write, as digits
	expiresAt string // RFC 3339
}

// expiryOf reads Stream-TTL and Stream-Expires-At, of which a request may have one.
func expiryOf(h http.Header) (expiry, error) {
	_, hasTTL := h[headerTTLCanonical]
	_, hasAt := h[headerExpiresAtCanonical]
	e := expiry{ttl: h.Get(headerTTL), expiresAt: h.Get(headerExpiresAt)}
	if hasTTL && hasAt {
		return expiry{}, badRequest("invalid_expiry", "%s and %s exclude each other", headerTTL, headerExpiresAt)
	}
	if hasTTL {
		n, err := wholeNumber(e.ttl, int64((1<<62)/time.Second))
		if err != nil {
			return expiry{}, badRequest("invalid_ttl", "%s %.64q: want a whole number of seconds without sign or leading zeros", headerTTL, e.ttl)
		}
		e.ttl = strconv.FormatInt(n, 10)
	}
	if hasAt {
		if _, err := time.Parse(time.RFC3339, e.expiresAt); err != nil {
			return expiry{}, badRequest("invalid_expires_at", "%s %.64q: want an RFC 3339 time such as 2031-05-04T10:00:00Z", headerExpiresAt, e.expiresAt)
		}
	}
	return e, nil
}

var (
	headerTTLCanonical       = http.CanonicalHeaderKey(headerTTL)
	headerExpiresAtCanonical = http.CanonicalHeaderKey(headerExpiresAt)
)

// wholeNumber reads digits without sign or leading zeros, up to most.
func wholeNumber(text string, most int64) (int64, error) {
	if text == "" || (len(text) > 1 && text[0] == '0') || strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n > most {
		return 0, strconv.ErrRange
	}
	return n, nil
}

// maxSafeInteger is the largest epoch and sequence of producers: JavaScript's largest exact integer.
const maxSafeInteger = 1<<53 - 1

// producerOf reads the three producer headers: all or none.
func producerOf(h http.Header) (*engine.Producer, error) {
	id, epoch, seq := h.Values(headerProducerID), h.Values(headerProducerEpoch), h.Values(headerProducerSeq)
	if len(id) == 0 && len(epoch) == 0 && len(seq) == 0 {
		return nil, nil
	}
	if len(id) != 1 || len(epoch) != 1 || len(seq) != 1 {
		return nil, badRequest("invalid_producer", "%s, %s and %s go together, once each", headerProducerID, headerProducerEpoch, headerProducerSeq)
	}
	if id[0] == "" || len(id[0]) > maxHeader {
		return nil, badRequest("invalid_producer", "%s has %d bytes, want 1 to %d", headerProducerID, len(id[0]), maxHeader)
	}
	p := &engine.Producer{ID: producerID(id[0])}
	var err error
	if p.Epoch, err = wholeNumber(epoch[0], maxSafeInteger); err != nil {
		return nil, badRequest("invalid_producer", "%s %.64q: want a whole number from 0 to 2^53-1", headerProducerEpoch, epoch[0])
	}
	if p.Seq, err = wholeNumber(seq[0], maxSafeInteger); err != nil {
		return nil, badRequest("invalid_producer", "%s %.64q: want a whole number from 0 to 2^53-1", headerProducerSeq, seq[0])
	}
	return p, nil
}

// producerID maps a producer's name to the ids that HTTP producers have, from -2 down. 62 bits of hash keep names of one stream apart.
func producerID(name string) int64 {
	sum := sha256.Sum256([]byte(name))
	return -2 - int64(binary.BigEndian.Uint64(sum[:])>>2)
}
