package remote

import (
	"context"
	"errors"

	"github.com/varvedb/varve/layer/kv"
)

// kinds are the errors that a caller may branch on; the status of a reply is a place in this list and one more, 0 for none, and otherStatus
// for any other error.
func kinds() []error {
	return []error{
		kv.ErrConflict, kv.ErrTooOld, kv.ErrCommitUnknown, kv.ErrUnavailable, kv.ErrTransactionTooLarge, kv.ErrKeyTooLarge, kv.ErrValueTooLarge,
		kv.ErrInvalid, kv.ErrLocked,
	}
}

const otherStatus = 0xff

// appendStatus begins a reply.
func appendStatus(to []byte, err error) []byte {
	if err == nil {
		return append(to, 0)
	}
	status := byte(otherStatus)
	for i, kind := range kinds() {
		if errors.Is(err, kind) {
			status = byte(i + 1)
			break
		}
	}
	if status == otherStatus && (errors.Is(err, kv.ErrClosed) || errors.Is(err, context.Canceled)) {
		// It is the server that stops, not the client.
		return appendStatus(to, &statusError{err.Error(), kv.ErrUnavailable})
	}
	return appendBytes(append(to, status), []byte(err.Error()))
}

// statusError is an error that came over the wire.
type statusError struct {
	text string
	kind error
}

func (e *statusError) Error() string { return e.text }
func (e *statusError) Unwrap() error { return e.kind }

// status reads the beginning of a reply.
func (d *decoder) status() error {
	status := d.byte()
	if d.err != nil || status == 0 {
		return d.err
	}
	text := string(d.bytes())
	all := kinds()
	switch {
	case d.err != nil:
		return d.err
	case int(status) <= len(all):
		return &statusError{text, all[status-1]}
	}
	return errors.New(text)
}
