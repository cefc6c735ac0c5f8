package kvtest

import (
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func conflictChecks() []check {
	return []check{
		{"conflicts/keys that were read", conflictsOfKeys},
		{"conflicts/blind writes", blindWritesDoNotConflict},
		{"conflicts/snapshot reads", snapshotReadsDoNotConflict},
		{"conflicts/explicit ranges", explicitConflictRanges},
		{"conflicts/keys that are watched", conflictsOfWatchedKeys},
		{"conflicts/read-only transactions", readOnlyDoesNotConflict},
		{"conflicts/the second run sees what it lost to", secondRunSeesTheOther},
	}
}

func conflictsOfKeys(e *env) {
	e.set("a", "1", "c", "3")
	clearing := func(begin, end string) func(tx kv.Transaction) error {
		return func(tx kv.Transaction) error {
			tx.ClearRange(b(begin), b(end))
			return nil
		}
	}
	e.mustConflict(readKey("a"), setKey("a", "2"), "a key that it read was set")
	e.mustConflict(readKey("a"), setKey("a", "2"), "a key that it read was set to the same value")
	e.mustConflict(readKey("absent"), setKey("absent", "1"), "a key that it missed was set")
	e.mustConflict(readKey("c"), func(tx kv.Transaction) error { tx.Clear(b("c")); return nil }, "a key that it read was cleared")
	e.mustConflict(readKey("c"), clearing("b", "d"), "a key that it read was in a cleared range")
	e.mustConflict(readKey("x"), clearing("w", "y"), "a key that it missed was in a cleared range, even an empty one")
	e.mustNotConflict(readKey("c"), clearing("a", "c"), "the cleared range ends before the key")
	e.mustNotConflict(readKey("c"), clearing("c\x00", "d"), "the cleared range begins after the key")
	e.mustNotConflict(readKey("a"), setKey("a\x00", "2"), "the key that was set comes right after the one it read")
	e.mustNotConflict(readKey("b"), setKey("a\xff", "2"), "the key that was set comes before the one it read")
}

func blindWritesDoNotConflict(e *env) {
	e.mustNotConflict(setKey("a", "1"), setKey("a", "2"), "it read nothing")
	e.mustNotConflict(func(tx kv.Transaction) error {
		tx.ClearRange(b("a"), b("z"))
		return nil
	}, setKey("a", "2"), "it read nothing and cleared a range")
}

func snapshotReadsDoNotConflict(e *env) {
	e.mustNotConflict(reading(func(tx kv.Transaction) error {
		if _, err := tx.Snapshot().Get(b("a")).Get(); err != nil {
			return err
		}
		if _, err := tx.Snapshot().GetRange(b("a"), b("z"), kv.RangeOptions{}).Get(); err != nil {
			return err
		}
		_, err := tx.Snapshot().Snapshot().Get(b("b")).Get()
		return err
	}), setKey("a", "2"), "all of its reads are snapshot reads")
	e.mustConflict(reading(func(tx kv.Transaction) error {
		if _, err := tx.Snapshot().Get(b("a")).Get(); err != nil {
			return err
		}
		_, err := tx.Get(b("a")).Get()
		return err
	}), setKey("a", "2"), "it read the key without a snapshot too")
}

func explicitConflictRanges(e *env) {
	withRange := func(begin, end string) func(tx kv.Transaction) error {
		return reading(func(tx kv.Transaction) error {
			if _, err := tx.ReadVersion(); err != nil {
				return err
			}
			tx.AddReadConflictRange(b(begin), b(end))
			return nil
		})
	}
	e.mustConflict(withRange("b", "d"), setKey("c", "1"), "its read conflict range was written")
	e.mustConflict(withRange("b", "d"), setKey("b", "1"), "the begin of its read conflict range was written")
	e.mustNotConflict(withRange("b", "d"), setKey("d", "1"), "only the end of its read conflict range was written")
	declare := func(tx kv.Transaction) error {
		tx.AddWriteConflictRange(b("b"), b("d"))
		return nil
	}
	e.mustConflict(readKey("c"), declare, "a write conflict range holds what it read")
	e.mustConflict(readRange("a", "z", kv.RangeOptions{}), declare, "a write conflict range is in the range that it read")
	e.mustNotConflict(readKey("d"), declare, "the write conflict range ends before what it read")
	require.Nil(e, e.get("bb"), "a write conflict range writes nothing")
	require.Equal(e, b("1"), e.get("c"), "a write conflict range clears nothing")
}

// A watch reads its key, with all that this means.
func conflictsOfWatchedKeys(e *env) {
	var watches []kv.Watch
	watching := func(own bool) func(tx kv.Transaction) error {
		return reading(func(tx kv.Transaction) error {
			if _, err := tx.ReadVersion(); err != nil {
				return err
			}
			if own {
				tx.Set(b("a"), b("own"))
			}
			watches = append(watches, tx.Watch(b("a")))
			return nil
		})
	}
	e.mustConflict(watching(false), setKey("a", "2"), "a key that it watches was set")
	e.mustNotConflict(watching(false), setKey("b", "2"), "a key that it does not watch was set")
	e.mustNotConflict(watching(true), setKey("a", "3"), "it had set the key that it watches itself")
	for _, w := range watches {
		w.Cancel()
	}
}

func readOnlyDoesNotConflict(e *env) {
	e.set("a", "1")
	e.mustNotConflict(func(tx kv.Transaction) error {
		_, err := tx.GetRange(b("a"), b("z"), kv.RangeOptions{}).Get()
		return err
	}, setKey("a", "2"), "it writes nothing")
	require.Zero(e, e.do(func(tx kv.Transaction) error {
		_, err := tx.Get(b("a")).Get()
		return err
	}), "a transaction that wrote nothing has no commit")
	require.NotZero(e, e.set("a", "3"))
}

func secondRunSeesTheOther(e *env) {
	e.set("a", "1")
	var seen []string
	runs := e.interleaved(func(tx kv.Transaction) error {
		value, err := tx.Get(b("a")).Get()
		if err != nil {
			return err
		}
		seen = append(seen, string(value))
		tx.Set(b("copy"), value)
		return nil
	}, setKey("a", "2"))
	require.Greater(e, runs, 1)
	require.Equal(e, "1", seen[0])
	require.Equal(e, "2", seen[len(seen)-1])
	require.Equal(e, b("2"), e.get("copy"))
}
