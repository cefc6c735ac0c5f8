package kvtest

import (
	"encoding/binary"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func addChecks() []check {
	return []check{
		{"add/lengths and carries", addLengthsAndCarries},
		{"add/does not conflict", addDoesNotConflict},
		{"add/by many clients", addByManyClients},
	}
}

func addLengthsAndCarries(e *env) {
	for _, c := range []struct {
		name        string
		existing    []byte // nil: absent
		param, want []byte
	}{
		{name: "absent", param: []byte{5, 1}, want: []byte{5, 1}},
		{name: "carry", existing: []byte{0xff, 0}, param: []byte{1, 0}, want: []byte{0, 1}},
		{name: "wraps", existing: []byte{0xff, 0xff}, param: []byte{2, 0}, want: []byte{1, 0}},
		{name: "minus one", existing: []byte{0, 1}, param: []byte{0xff, 0xff}, want: []byte{0xff, 0}},
		{name: "short value is extended", existing: []byte{0xff}, param: []byte{1, 0, 0, 0}, want: []byte{0, 1, 0, 0}},
		{name: "long value is cut", existing: []byte{0xff, 7, 7, 7}, param: []byte{1, 0}, want: []byte{0, 8}},
		{name: "empty value", existing: []byte{}, param: []byte{3}, want: []byte{3}},
		{name: "empty param", existing: []byte{1, 2}, param: []byte{}, want: []byte{}},
	} {
		set := func(tx kv.Transaction, key string) {
			if c.existing != nil {
				tx.Set(b(key), c.existing)
			}
		}
		e.fresh(func(tx kv.Transaction) { set(tx, "stored"); set(tx, "unread") }, func(tx kv.Transaction) error {
			set(tx, "own")
			tx.Add(b("stored"), c.param)
			tx.Add(b("unread"), c.param)
			tx.Add(b("own"), c.param)
			for _, key := range []string{"stored", "own"} {
				got, err := tx.Get(b(key)).Get()
				if err != nil {
					return err
				}
				require.Equal(e, c.want, got, "%s, %s, in the transaction", c.name, key)
			}
			return nil
		})
		for _, key := range []string{"stored", "own", "unread"} {
			require.Equal(e, c.want, e.get(key), "%s, %s", c.name, key)
		}
	}
}

func addDoesNotConflict(e *env) {
	increment := func(tx kv.Transaction) error {
		tx.Add(b("n"), []byte{1})
		return nil
	}
	e.mustNotConflict(increment, increment, "both add to the same key")
	e.mustNotConflict(increment, setKey("n", "\x07"), "it only adds to what the other sets")
	e.mustConflict(readKey("n"), increment, "the other added to what it read")
}

func addByManyClients(e *env) {
	const clients, rounds = 8, 10
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for round := range rounds {
				_, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
					done, err := once(tx, string(rune('a'+client))+string(rune('a'+round)))
					if err != nil || done {
						return err
					}
					tx.Add(b("n"), binary.LittleEndian.AppendUint64(nil, 3))
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(e, group.Wait())
	require.Equal(e, uint64(3*clients*rounds), binary.LittleEndian.Uint64(e.get("n")))
}
