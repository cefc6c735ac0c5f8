package objectstest

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// HTTPFault is what a FaultProxy does to one request.
type HTTPFault int

const (
	// None: the request is passed on and its answer passed back.
	None HTTPFault = iota
	// SlowDown, InternalError, Conflict, NotImplemented: answered so, without effect: 503, 500, 409, 501.
	SlowDown
	InternalError
	Conflict
	NotImplemented
	// BadRequest: answered 400 InvalidRequest, without effect.
	BadRequest
	// Denied: answered 403 AccessDenied, without effect.
	Denied
	// Stall: held for FaultProxy.StallFor, then passed on, if the client still waits.
	Stall
	// Reset: the connection is closed before the request has an effect.
	Reset
	// ResetAfter: the request has its effect, then the connection is closed without an answer.
	ResetAfter
	// NoAnswer: the request has its effect, then nothing until the client goes away.
	NoAnswer
	// CutBody: the answer's connection is closed in the middle of its body. This and the next do nothing to answers without a body.
	CutBody
	// StallBody: the answer stops in the middle of its body until the client goes away.
	StallBody
	// ShortBody: half of the answer's body, with a Content-Length that agrees.
	ShortBody
	// CorruptBody: one byte of the answer's body is inverted.
	CorruptBody
	// Garbage: 200, with a body that is no answer.
	Garbage
)

// FaultProxy passes S3 requests on and puts faults on them.
type FaultProxy struct {
	Next http.Handler
	// Choose picks the fault of the nth request, n from 0; nil for none. It is called by many goroutines at once.
	Choose func(n int, r *http.Request) HTTPFault
	// StallFor is how long Stall holds a request; 5 s when 0.
	StallFor time.Duration

	requests atomic.Int64
}

// EverySecond is a Choose that puts the fault on every second request of each method and path, the first one included.
func EverySecond(fault HTTPFault) func(int, *http.Request) HTTPFault {
	var mu sync.Mutex
	seen := map[string]int{}
	return func(_ int, r *http.Request) HTTPFault {
		mu.Lock()
		defer mu.Unlock()
		key := r.Method + r.URL.Path
		seen[key]++
		if seen[key]%2 == 1 {
			return fault
		}
		return None
	}
}

// First is a Choose that puts the fault on the first requests.
func First(count int, fault HTTPFault) func(int, *http.Request) HTTPFault {
	return func(n int, _ *http.Request) HTTPFault {
		if n < count {
			return fault
		}
		return None
	}
}

// Always is a Choose that puts the fault on all requests.
func Always(fault HTTPFault) func(int, *http.Request) HTTPFault {
	return func(int, *http.Request) HTTPFault { return fault }
}

// ReverseProxy is a FaultProxy's Next that passes requests to a server elsewhere; signatures stay good, since the host that the client named is
// kept.
func ReverseProxy(t testing.TB, endpoint string) http.Handler {
	target, err := url.Parse(endpoint)
	require.NoError(t, err)
	return httputil.NewSingleHostReverseProxy(target)
}

// Requests counts the requests.
func (p *FaultProxy) Requests() int { return int(p.requests.Load()) }

// ServeHTTP implements http.Handler.
func (p *FaultProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := int(p.requests.Add(1) - 1)
	fault := None
	if p.Choose != nil {
		fault = p.Choose(n, r)
	}
	// Read it all: a server notices that a client has gone only then.
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch fault {
	case None:
		p.Next.ServeHTTP(w, r)
	case SlowDown:
		s3Error(w, http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
	case InternalError:
		s3Error(w, http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	case Conflict:
		s3Error(w, http.StatusConflict, "ConditionalRequestConflict", "The conditional request cannot succeed due to a conflicting operation.")
	case NotImplemented:
		s3Error(w, http.StatusNotImplemented, "NotImplemented", "A header you provided implies functionality that is not implemented.")
	case BadRequest:
		s3Error(w, http.StatusBadRequest, "InvalidRequest", "The request is not valid.")
	case Denied:
		s3Error(w, http.StatusForbidden, "AccessDenied", "Access Denied.")
	case Garbage:
		_, _ = io.WriteString(w, "<html>welcome to the hotel's network")
	case Stall:
		p.stall(w, r)
	case Reset:
		panic(http.ErrAbortHandler)
	default:
		p.afterEffect(w, r, fault)
	}
}

func (p *FaultProxy) stall(w http.ResponseWriter, r *http.Request) {
	stall := p.StallFor
	if stall == 0 {
		stall = 5 * time.Second
	}
	timer := time.NewTimer(stall)
	defer timer.Stop()
	select {
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	case <-timer.C:
		p.Next.ServeHTTP(w, r)
	}
}

// afterEffect lets the server handle the request, and damages its answer.
func (p *FaultProxy) afterEffect(w http.ResponseWriter, r *http.Request, fault HTTPFault) {
	answer := httptest.NewRecorder()
	p.Next.ServeHTTP(answer, r)
	body := answer.Body.Bytes()
	for name, values := range answer.Header() {
		w.Header()[name] = values
	}
	switch fault {
	case ResetAfter:
		panic(http.ErrAbortHandler)
	case NoAnswer:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case ShortBody:
		body = body[:len(body)/2]
		w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	case CorruptBody:
		if len(body) > 0 {
			body[len(body)/2] ^= 0xff
		}
	}
	w.WriteHeader(answer.Code)
	if (fault == CutBody || fault == StallBody) && len(body) > 0 && r.Method != http.MethodHead {
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		if fault == StallBody {
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(body)
}
