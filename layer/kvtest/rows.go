package kvtest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
)

func rowChecks() []check {
	return []check{
		{"rows/set, get and clear", setGetClear},
		{"rows/empty keys and values", emptyKeysAndValues},
		{"rows/any bytes", anyBytes},
		{"rows/slices belong to the caller", slicesBelongToCaller},
		{"rows/reads in parallel", parallelReads},
		{"rows/an error commits nothing", errorCommitsNothing},
	}
}

func setGetClear(e *env) {
	require.Nil(e, e.get("a"))
	e.set("a", "1", "b", "2", "a", "3")
	require.Equal(e, b("3"), e.get("a"))
	e.write(func(tx kv.Transaction) { tx.Clear(b("a")); tx.Clear(b("absent")) })
	require.Nil(e, e.get("a"))
	require.Equal(e, b("2"), e.get("b"))
	e.set("c", "4", "d", "5", "e", "6")
	e.write(func(tx kv.Transaction) { tx.ClearRange(b("c"), b("e")); tx.ClearRange(b("x"), b("x")) })
	require.Equal(e, []string{"b=2", "e=6"}, texts(e.all()), "the end of a cleared range is not in it")
}

func emptyKeysAndValues(e *env) {
	e.set("", "empty key", "k", "")
	require.Equal(e, b("empty key"), e.get(""))
	value := e.get("k")
	require.NotNil(e, value, "an empty value is not an absent one")
	require.Empty(e, value)
	rows := e.all()
	require.Equal(e, []string{"=empty key", "k="}, texts(rows))
	require.NotNil(e, rows[1].Value)
	e.do(func(tx kv.Transaction) error {
		tx.Set(b("own"), nil)
		value, err := tx.Get(b("own")).Get()
		if err == nil {
			require.NotNil(e, value, "an empty value of its own")
		}
		return err
	})
}

func anyBytes(e *env) {
	keys := []string{"", "\x00", "\x00\x00", "\x00\x01", "\x00\xff", "\x01", "a", "a\x00", "a\x00\x00", "a\x00b", "a\x01", "a\xff", "a\xff\x00", "a\xff\xff", "b", "\xfe", "\xfe\xff\xff"}
	var want []string
	e.write(func(tx kv.Transaction) {
		for _, key := range keys {
			tx.Set(b(key), b("\x00"+key+"\xff"))
		}
	})
	for _, key := range keys {
		require.Equal(e, "\x00"+key+"\xff", string(e.get(key)), "%q", key)
		want = append(want, key+"=\x00"+key+"\xff")
	}
	require.Equal(e, want, texts(e.all()), "in the order of bytes")
	for i, begin := range keys {
		for j, end := range keys[i:] {
			e.read(func(tx kv.ReadTransaction) error {
				rows, err := tx.GetRange(b(begin), b(end), kv.RangeOptions{}).Get()
				if err == nil {
					require.Equal(e, append([]string{}, want[i:i+j]...), texts(rows), "%q to %q", begin, end)
				}
				return err
			})
		}
	}
}

func slicesBelongToCaller(e *env) {
	e.write(func(tx kv.Transaction) {
		key, value := b("key"), b("value")
		tx.Set(key, value)
		key[0], value[0] = 'X', 'X'
	})
	require.Equal(e, []string{"key=value"}, texts(e.all()))
	e.do(func(tx kv.Transaction) error {
		tx.Set(b("own"), b("value"))
		for range 2 {
			got, err := tx.Get(b("own")).Get()
			if err != nil {
				return err
			}
			require.Equal(e, "value", string(got))
			got[0] = 'X'
			rows, err := tx.GetRange(b("key"), b("z"), kv.RangeOptions{}).Get()
			if err != nil {
				return err
			}
			require.Equal(e, []string{"key=value", "own=value"}, texts(rows))
			rows[0].Key[0], rows[0].Value[0], rows[1].Key[0], rows[1].Value[0] = 'X', 'X', 'X', 'X'
		}
		return nil
	})
	require.Equal(e, []string{"key=value", "own=value"}, texts(e.all()))
}

func parallelReads(e *env) {
	const n = 100
	e.write(func(tx kv.Transaction) {
		for i := range n {
			tx.Set(fmt.Appendf(nil, "%03d", i), fmt.Append(nil, i))
		}
	})
	e.do(func(tx kv.Transaction) error {
		var started []kv.Value
		for i := range n {
			started = append(started, tx.Get(fmt.Appendf(nil, "%03d", i)))
		}
		for i, value := range started {
			got, err := value.Get()
			if err != nil {
				return err
			}
			require.Equal(e, fmt.Sprint(i), string(got))
		}
		var readers errgroup.Group
		var mu sync.Mutex
		got := map[int]string{}
		for i := range n {
			readers.Go(func() error {
				value, err := tx.Get(fmt.Appendf(nil, "%03d", i)).Get()
				mu.Lock()
				defer mu.Unlock()
				got[i] = string(value)
				return err
			})
		}
		if err := readers.Wait(); err != nil {
			return err
		}
		for i := range n {
			require.Equal(e, fmt.Sprint(i), got[i])
		}
		return nil
	})
}

func errorCommitsNothing(e *env) {
	e.set("a", "1")
	mine := fmt.Errorf("mine: %s", strings.Repeat("x", 3))
	commit, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
		tx.Set(b("a"), b("2"))
		tx.ClearRange(nil, b("\xff"))
		return mine
	})
	require.Same(e, mine, err, "an error of the function comes back as it is")
	require.Zero(e, commit)
	require.Equal(e, b("1"), e.get("a"))
	err = e.db.ReadTransact(e.ctx, func(kv.ReadTransaction) error { return mine })
	require.Same(e, mine, err)
}
