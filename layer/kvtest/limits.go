package kvtest

import (
	"bytes"
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func limitChecks() []check {
	return []check{
		{"limits/keys", keyLimits},
		{"limits/values", valueLimits},
		{"limits/transactions", transactionLimits},
		{"limits/key space", keySpaceLimits},
		{"limits/inverted ranges", invertedRanges},
	}
}

func keyLimits(e *env) {
	longest := bytes.Repeat([]byte("k"), kv.MaxKeySizeOf(e.db))
	e.write(func(tx kv.Transaction) { tx.Set(longest, b("longest")) })
	require.Equal(e, b("longest"), e.get(string(longest)))
	e.write(func(tx kv.Transaction) { tx.Add(longest, []byte{1}) })
	e.write(func(tx kv.Transaction) { tx.ClearRange(longest, append(bytes.Clone(longest), 0)) })
	require.Empty(e, e.all())
	tooLong := append(bytes.Clone(longest), 'k')
	e.fails(kv.ErrKeyTooLarge, setKey(string(tooLong), "x"), "set of a key that is too long")
	e.fails(kv.ErrKeyTooLarge, func(tx kv.Transaction) error { tx.Add(tooLong, []byte{1}); return nil }, "add to a key that is too long")
	require.Empty(e, e.all())

	// The offset of a versionstamp counts as a part of the key.
	stamped := func(size int) func(tx kv.Transaction) error {
		key := stampedKey(string(bytes.Repeat([]byte("k"), size-14)), "")
		return func(tx kv.Transaction) error { tx.SetVersionstampedKey(key, b("x")); return nil }
	}
	e.do(stamped(len(longest)))
	rows := e.all()
	require.NotEmpty(e, rows) // one for each run that was committed
	e.fails(kv.ErrKeyTooLarge, stamped(len(longest)+1), "a versionstamped key that is too long with its offset")
	require.Equal(e, rows, e.all())
}

func valueLimits(e *env) {
	longest := bytes.Repeat([]byte("v"), kv.MaxValueSize)
	e.set("k", string(longest))
	require.Equal(e, longest, e.get("k"))
	e.fails(kv.ErrValueTooLarge, setKey("k", string(longest)+"v"), "a value that is too long")
	require.Equal(e, longest, e.get("k"))

	// The offset of a versionstamp counts as a part of the value.
	stamped := func(size int) func(tx kv.Transaction) error {
		value := stampedKey(string(longest[:size-14]), "")
		return func(tx kv.Transaction) error { tx.SetVersionstampedValue(b("k"), value); return nil }
	}
	e.do(stamped(kv.MaxValueSize))
	require.Len(e, e.get("k"), kv.MaxValueSize-4)
	e.fails(kv.ErrValueTooLarge, stamped(kv.MaxValueSize+1), "a versionstamped value that is too long with its offset")
}

func transactionLimits(e *env) {
	value := bytes.Repeat([]byte("v"), kv.MaxValueSize)
	fill := func(size int) func(tx kv.Transaction) error {
		return func(tx kv.Transaction) error {
			for i := range size / len(value) {
				tx.Set(fmt.Append(nil, i), value)
			}
			return nil
		}
	}
	e.fails(kv.ErrTransactionTooLarge, fill(kv.MaxTransactionSize+1_000_000), "a transaction that is too large")
	require.Empty(e, e.all())
	e.do(func(tx kv.Transaction) error {
		before, err := tx.ApproximateSize()
		require.NoError(e, err)
		if err := fill(kv.MaxTransactionSize - 1_000_000)(tx); err != nil {
			return err
		}
		after, err := tx.ApproximateSize()
		require.NoError(e, err)
		require.GreaterOrEqual(e, after-before, int64(kv.MaxTransactionSize-1_000_000))
		require.LessOrEqual(e, after, int64(kv.MaxTransactionSize))
		return nil
	})
	require.Equal(e, value, e.get("0"))
}

func keySpaceLimits(e *env) {
	e.set("\xfe\xff", "last", "a", "first")
	require.Equal(e, []string{"a=first", "\xfe\xff=last"}, texts(e.all()), "the end of the key space may end a range")
	for name, fn := range map[string]func(tx kv.Transaction) error{
		"get":                  func(tx kv.Transaction) error { _, err := tx.Get(b("\xff")).Get(); return err },
		"set":                  func(tx kv.Transaction) error { tx.Set(b("\xff"), b("x")); return nil },
		"set of a longer key":  func(tx kv.Transaction) error { tx.Set(b("\xff/a"), b("x")); return nil },
		"clear":                func(tx kv.Transaction) error { tx.Clear(b("\xff/a")); return nil },
		"add":                  func(tx kv.Transaction) error { tx.Add(b("\xff"), []byte{1}); return nil },
		"versionstamped value": func(tx kv.Transaction) error { tx.SetVersionstampedValue(b("\xffa"), stampedKey("", "")); return nil },
		"clear range":          func(tx kv.Transaction) error { tx.ClearRange(b("a"), b("\xff\x00")); return nil },
		"range": func(tx kv.Transaction) error {
			_, err := tx.GetRange(b("a"), b("\xff\xff"), kv.RangeOptions{}).Get()
			return err
		},
	} {
		e.fails(kv.ErrInvalid, fn, name+" in the system key space")
	}
	require.Len(e, e.all(), 2)
	e.write(func(tx kv.Transaction) { tx.ClearRange(nil, b("\xff")) })
	require.Empty(e, e.all())
}

func invertedRanges(e *env) {
	e.set("b", "1")
	e.fails(kv.ErrInvalid, func(tx kv.Transaction) error { tx.ClearRange(b("c"), b("a")); return nil }, "clear of an inverted range")
	e.fails(kv.ErrInvalid, func(tx kv.Transaction) error { tx.AddReadConflictRange(b("c"), b("a")); return nil }, "inverted read conflict range")
	e.fails(kv.ErrInvalid, func(tx kv.Transaction) error { tx.AddWriteConflictRange(b("c"), b("a")); return nil }, "inverted write conflict range")
	require.Equal(e, b("1"), e.get("b"))
	e.write(func(tx kv.Transaction) {
		tx.ClearRange(b("b"), b("b"))
		tx.AddReadConflictRange(b("b"), b("b"))
		tx.AddWriteConflictRange(b("b"), b("b"))
	})
	require.Equal(e, b("1"), e.get("b"), "empty ranges are ranges")
}
