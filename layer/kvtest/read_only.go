package kvtest

import (
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func readOnlyChecks() []check {
	return []check{
		{"read-only/one version", readsAtOneVersion},
		{"read-only/sees what was answered", readsSeeWhatWasAnswered},
		{"read-only/own reads are repeatable in writers too", repeatableReads},
	}
}

func readsAtOneVersion(e *env) {
	e.set("a", "1", "b", "1")
	first := true
	e.read(func(tx kv.ReadTransaction) error {
		a, err := tx.Get(b("a")).Get()
		if err != nil {
			return err
		}
		if first {
			first = false
			e.set("a", "2", "b", "2", "c", "2")
		}
		rows, err := tx.Snapshot().GetRange(b("a"), b("z"), kv.RangeOptions{}).Get()
		if err != nil {
			return err
		}
		if string(a) == "1" {
			require.Equal(e, []string{"a=1", "b=1"}, texts(rows))
		} else {
			require.Equal(e, []string{"a=2", "b=2", "c=2"}, texts(rows))
		}
		return nil
	})
}

func readsSeeWhatWasAnswered(e *env) {
	for i := range 50 {
		value := string(rune('0' + i))
		e.set("a", value)
		require.Equal(e, value, string(e.get("a")))
	}
}

func repeatableReads(e *env) {
	e.set("a", "1", "b", "1")
	first := true
	e.do(func(tx kv.Transaction) error {
		before, err := tx.GetRange(b("a"), b("z"), kv.RangeOptions{}).Get()
		if err != nil {
			return err
		}
		if first {
			first = false
			e.write(func(tx kv.Transaction) { tx.Set(b("a"), b("2")); tx.Clear(b("b")); tx.Set(b("c"), b("2")) })
		}
		after, err := tx.GetRange(b("a"), b("z"), kv.RangeOptions{}).Get()
		if err != nil {
			return err
		}
		require.Equal(e, texts(before), texts(after))
		return nil
	})
}
