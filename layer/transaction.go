package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// tx is one run of a command's decision: reads and writes of one transaction, and the changes to be logged with it.
type tx struct {
	kv.Transaction
	s       *Store
	changes []Change
	doomed  uint16 // rows appended to the destroy queue, their order within the transaction
	err     error  // first row that could not be encoded
}

// transact runs a command. decide may run several times and must be safe to run after an earlier run was committed.
func (s *Store) transact(ctx context.Context, command string, by fmt.Stringer, decide func(*tx) error) error {
	_, err := s.db.Transact(ctx, func(tr kv.Transaction) error {
		t := &tx{Transaction: tr, s: s}
		if err := decide(t); err != nil {
			return err
		}
		if t.err != nil {
			return t.err
		}
		return t.writeLog(command, by.String())
	})
	if err != nil {
		return fmt.Errorf("layer: %s by %s: %w", command, by, err)
	}
	return nil
}

// read runs a read-only transaction.
func (s *Store) read(ctx context.Context, what string, fn func(kv.ReadTransaction) error) error {
	if err := s.db.ReadTransact(ctx, fn); err != nil {
		return fmt.Errorf("layer: %s: %w", what, err)
	}
	return nil
}

// setJSON writes a control row.
func (t *tx) setJSON(key []byte, row any) {
	b, err := encodeRow(row)
	if err != nil {
		t.fail(fmt.Errorf("%s: %w", t.s.describe(key), err))
		return
	}
	t.Set(key, b)
}

func (t *tx) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}

// name is a proposer that is not a node or lease.
type name string

func (n name) String() string { return string(n) }
