package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/varvedb/varve/layer/kv"
)

// errAborted ends a run that the client gave up.
var errAborted = errors.New("aborted by the client")

// session is the server's side of a connection: one transaction after the other, and then perhaps watches.
type session struct {
	net.Conn
	in      *bufio.Reader
	out     *bufio.Writer // replies to requests that came together go together
	watches []kv.Watch    // of the transaction under way
}

func newSession(c net.Conn) *session {
	return &session{Conn: c, in: bufio.NewReader(c), out: bufio.NewWriter(c)}
}

func (s *session) greet() error {
	s.SetDeadline(time.Now().Add(helloTimeout))
	defer s.SetDeadline(time.Time{})
	got := make([]byte, len(hello))
	if _, err := io.ReadFull(s.in, got); err != nil {
		return err
	}
	// Whatever was said, the client learns what is spoken here.
	if _, err := io.WriteString(s, hello); err != nil {
		return err
	}
	if string(got) != hello {
		return fmt.Errorf("it greets with %q, want %q", got, hello)
	}
	return nil
}

// transaction runs one transaction of the client. An error ends the connection.
func (s *session) transaction(ctx context.Context, engine Engine) error {
	s.watches = nil
	asked := false // whether the client waits for the outcome of a commit
	var broken error
	commit, err := engine.Attempt(ctx, func(tx kv.Transaction) error {
		asked, broken = s.drive(tx)
		switch {
		case broken != nil:
			return broken
		case !asked:
			return errAborted
		}
		return nil
	})
	if broken != nil {
		return broken
	}
	if !asked {
		if err != nil && !errors.Is(err, errAborted) {
			return err
		}
		return nil
	}
	reply := appendStatus(nil, err)
	if err == nil {
		reply = appendBytes(binary.AppendUvarint(reply, uint64(commit.Version)), commit.Versionstamp[:])
	}
	if err := errors.Join(writeFrame(s.out, reply), s.out.Flush()); err != nil {
		return err
	}
	if err == nil && len(s.watches) > 0 {
		return s.watch(ctx)
	}
	return nil
}

// drive does what the client asks until it commits (true) or gives up (false). A client may ask for much before it reads the first reply: what is
// written waits for it, and holds up what it asked for next.
func (s *session) drive(tx kv.Transaction) (commit bool, err error) {
	defer s.SetDeadline(time.Time{})
	for first := true; ; first = false {
		if !first {
			s.SetDeadline(time.Now().Add(patience))
		}
		if s.in.Buffered() == 0 {
			if err := s.out.Flush(); err != nil {
				return false, err
			}
		}
		frame, err := readFrame(s.in)
		if err != nil {
			return false, err
		}
		d := &decoder{rest: frame}
		for range d.number() {
			if applyWrite(tx, d); d.err != nil {
				return false, d.err
			}
		}
		op := d.byte()
		if op == opCommit || op == opAbort {
			return op == opCommit, d.end()
		}
		reply, err := s.answer(tx, op, d)
		if err != nil {
			return false, err
		}
		if err := writeFrame(s.out, reply); err != nil {
			return false, err
		}
	}
}

func applyWrite(tx kv.Transaction, d *decoder) {
	kind, first, second := d.byte(), d.bytes(), d.bytes()
	if d.err != nil {
		return
	}
	switch kind {
	case writeSet:
		tx.Set(first, second)
	case writeClear:
		tx.Clear(first)
	case writeClearRange:
		tx.ClearRange(first, second)
	case writeAdd:
		tx.Add(first, second)
	case writeStampedKey:
		tx.SetVersionstampedKey(first, second)
	case writeStampedValue:
		tx.SetVersionstampedValue(first, second)
	case writeReadConflict:
		tx.AddReadConflictRange(first, second)
	case writeWriteConflict:
		tx.AddWriteConflictRange(first, second)
	default:
		d.fail()
	}
}

// answer does one read. Its error is that of a malformed request.
func (s *session) answer(tx kv.Transaction, op byte, d *decoder) ([]byte, error) {
	switch op {
	case opGet:
		return answerGet(tx, d)
	case opGetRange:
		return answerRange(tx, d)
	case opVersion:
		return answerNumber(d, tx.ReadVersion)
	case opSize:
		return answerNumber(d, tx.ApproximateSize)
	case opFlush:
		return appendStatus(nil, nil), d.end()
	case opWatch:
		key := d.bytes()
		if err := d.end(); err != nil {
			return nil, err
		}
		s.watches = append(s.watches, tx.Watch(key))
		return appendStatus(nil, nil), nil
	}
	return nil, fmt.Errorf("operation %d: %w", op, errFrame)
}

// reader is the transaction for a read with flags.
func reader(tx kv.Transaction, flags uint64) kv.ReadTransaction {
	if flags&flagSnapshot != 0 {
		return tx.Snapshot()
	}
	return tx
}

func answerGet(tx kv.Transaction, d *decoder) ([]byte, error) {
	flags, key := d.number(), d.bytes()
	if err := d.end(); err != nil {
		return nil, err
	}
	value, err := reader(tx, flags).Get(key).Get()
	reply := appendStatus(nil, err)
	if err != nil {
		return reply, nil
	}
	present := byte(0)
	if value != nil {
		present = 1
	}
	return appendBytes(append(reply, present), value), nil
}

func answerRange(tx kv.Transaction, d *decoder) ([]byte, error) {
	flags, limit := d.number(), d.number()
	begin, end := d.bytes(), d.bytes()
	if err := d.end(); err != nil {
		return nil, err
	}
	options := kv.RangeOptions{Limit: int(limit), Reverse: flags&flagReverse != 0}
	rows, err := reader(tx, flags).GetRange(begin, end, options).Get()
	if err != nil {
		return appendStatus(nil, err), nil
	}
	reply := binary.AppendUvarint(appendStatus(nil, nil), uint64(len(rows)))
	for _, row := range rows {
		reply = appendBytes(appendBytes(reply, row.Key), row.Value)
	}
	if len(reply) > maxFrame {
		return appendStatus(nil, fmt.Errorf("range %x to %x has %d bytes, at most %d are sent at once: %w", begin, end, len(reply), maxFrame, kv.ErrInvalid)), nil
	}
	return reply, nil
}

func answerNumber(d *decoder, read func() (int64, error)) ([]byte, error) {
	if err := d.end(); err != nil {
		return nil, err
	}
	n, err := read()
	reply := appendStatus(nil, err)
	if err == nil {
		reply = binary.AppendUvarint(reply, uint64(n))
	}
	return reply, nil
}

// watch tells the client of each watch that ends, until the client leaves.
func (s *session) watch(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	var writing sync.Mutex
	for i, w := range s.watches {
		waiting.Go(func() {
			defer w.Cancel()
			err := w.Wait(ctx)
			if ctx.Err() != nil {
				return
			}
			writing.Lock()
			defer writing.Unlock()
			_ = writeFrame(s, appendStatus(binary.AppendUvarint(nil, uint64(i)), err)) // a client that left is seen below
		})
	}
	_, err := s.in.ReadByte()
	cancel()
	waiting.Wait()
	if err == nil {
		err = fmt.Errorf("the client sent something while it watches: %w", errFrame)
	}
	return err
}
