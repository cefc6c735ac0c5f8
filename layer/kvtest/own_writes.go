package kvtest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

func ownWriteChecks() []check {
	return []check{
		{"own writes/over ranges, clears and adds", ownWritesOverRanges},
		{"own writes/against a model", ownWritesAgainstModel},
		{"own writes/versionstamped rows cannot be read", stampedRowsUnreadable},
	}
}

func ownWritesOverRanges(e *env) {
	e.fresh(func(tx kv.Transaction) {
		for _, row := range []string{"a1", "b2", "c3", "d4", "e5"} {
			tx.Set(b(row[:1]), b(row[1:]))
		}
	}, func(tx kv.Transaction) error {
		for i, s := range []struct {
			write   func()
			options kv.RangeOptions
			want    []string
		}{
			{func() { tx.ClearRange(b("b"), b("d")) }, kv.RangeOptions{}, []string{"a=1", "d=4", "e=5"}},
			{func() {}, kv.RangeOptions{Limit: 2}, []string{"a=1", "d=4"}}, // a limit counts rows that are seen
			{func() { tx.Set(b("bb"), b("own")); tx.Clear(b("d")) }, kv.RangeOptions{}, []string{"a=1", "bb=own", "e=5"}},
			{func() {}, kv.RangeOptions{Limit: 2, Reverse: true}, []string{"e=5", "bb=own"}},
			{func() { tx.Add(b("b"), []byte{7}) }, kv.RangeOptions{Limit: 2}, []string{"a=1", "b=\x07"}}, // the stored one was cleared
			{func() { tx.Add(b("a"), []byte{1}); tx.Add(b("f"), []byte{9}) }, kv.RangeOptions{}, []string{"a=2", "b=\x07", "bb=own", "e=5", "f=\x09"}},
			{func() { tx.ClearRange(b("a"), b("z")) }, kv.RangeOptions{}, []string{}},
			{func() { tx.Set(b("c"), b("last")) }, kv.RangeOptions{}, []string{"c=last"}},
		} {
			s.write()
			for _, reads := range []kv.ReadTransaction{tx, tx.Snapshot()} { // snapshot reads see own writes, too
				rows, err := reads.GetRange(b("a"), b("z"), s.options).Get()
				if err != nil {
					return err
				}
				require.Equal(e, s.want, texts(rows), "step %d", i)
			}
		}
		return nil
	})
	require.Equal(e, []string{"c=last"}, texts(e.all()))
}

// ownWritesAgainstModel runs random transactions and compares each of their reads, and what they leave, with a map.
func ownWritesAgainstModel(e *env) {
	seed := uint64(time.Now().UnixNano())
	e.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	committed := map[string]string{}
	for range 15 {
		txSeed := random.Uint64()
		model := map[string]string{}
		e.fresh(func(tx kv.Transaction) {
			for key, value := range committed {
				tx.Set(b(key), b(value))
			}
		}, func(tx kv.Transaction) error {
			model = maps.Clone(committed)
			return modelTransaction(e, tx, rand.New(rand.NewPCG(txSeed, 0)), model)
		})
		committed = model
		require.Equal(e, modelRows(committed, "", "\xff", kv.RangeOptions{}), texts(e.all()))
	}
}

// modelKey draws a key of a few.
func modelKey(random *rand.Rand) string {
	return string(rune('a'+random.IntN(6))) + []string{"", "\x00", "\xff", "m"}[random.IntN(4)]
}

func modelRange(random *rand.Rand) (string, string) {
	begin, end := modelKey(random), modelKey(random)
	return min(begin, end), max(begin, end)
}

func modelTransaction(e *env, tx kv.Transaction, random *rand.Rand, model map[string]string) error {
	for i := range 40 {
		key := modelKey(random)
		switch random.IntN(7) {
		case 0, 1:
			value := fmt.Sprint(i, random.IntN(100))
			tx.Set(b(key), b(value))
			model[key] = value
		case 2:
			tx.Clear(b(key))
			delete(model, key)
		case 3:
			begin, end := modelRange(random)
			tx.ClearRange(b(begin), b(end))
			for k := range model {
				if begin <= k && k < end {
					delete(model, k)
				}
			}
		case 4:
			param := make([]byte, random.IntN(5))
			for j := range param {
				param[j] = byte(random.Uint32())
			}
			tx.Add(b(key), param)
			model[key] = modelAdd(model[key], param)
		case 5:
			got, err := reader(tx, random).Get(b(key)).Get()
			if err != nil {
				return err
			}
			want, present := model[key]
			require.Equal(e, present, got != nil, "presence of %q", key)
			require.Equal(e, want, string(got), "value of %q", key)
		case 6:
			begin, end := modelRange(random)
			options := kv.RangeOptions{Limit: random.IntN(5), Reverse: random.IntN(2) == 0}
			rows, err := reader(tx, random).GetRange(b(begin), b(end), options).Get()
			if err != nil {
				return err
			}
			require.Equal(e, modelRows(model, begin, end, options), texts(rows), "%q to %q with %+v", begin, end, options)
		}
	}
	return nil
}

func reader(tx kv.Transaction, random *rand.Rand) kv.ReadTransaction {
	if random.IntN(2) == 0 {
		return tx.Snapshot()
	}
	return tx
}

// modelAdd is atomic ADD byte by byte.
func modelAdd(existing string, param []byte) string {
	sum := make([]byte, len(param))
	carry := 0
	for i := range param {
		carry += int(param[i])
		if i < len(existing) {
			carry += int(existing[i])
		}
		sum[i] = byte(carry)
		carry /= 256
	}
	return string(sum)
}

func modelRows(model map[string]string, begin, end string, options kv.RangeOptions) []string {
	var keys []string
	for key := range model {
		if begin <= key && key < end {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if options.Reverse {
		slices.Reverse(keys)
	}
	out := []string{}
	for _, key := range keys {
		if options.Limit == 0 || len(out) < options.Limit {
			out = append(out, key+"="+model[key])
		}
	}
	return out
}

func stampedRowsUnreadable(e *env) {
	stamped := func(prefix string) []byte {
		key, err := tuple.Tuple{tuple.IncompleteVersionstamp(0)}.PackWithVersionstamp(b(prefix))
		require.NoError(e, err)
		return key
	}
	e.set("l", "before", "n", "after")
	e.fails(kv.ErrInvalid, func(tx kv.Transaction) error {
		tx.SetVersionstampedKey(stamped("m"), b("x"))
		_, err := tx.GetRange(b("a"), b("z"), kv.RangeOptions{}).Get()
		require.Error(e, err)
		return err
	}, "a range over a versionstamped key of its own")
	e.fails(kv.ErrInvalid, func(tx kv.Transaction) error {
		tx.SetVersionstampedValue(b("v"), append(bytes.Repeat([]byte{0xff}, 10), 0, 0, 0, 0))
		_, err := tx.Get(b("v")).Get()
		require.Error(e, err)
		return err
	}, "a versionstamped value of its own")
	e.fails(kv.ErrInvalid, func(tx kv.Transaction) error {
		tx.SetVersionstampedValue(b("v"), append(bytes.Repeat([]byte{0xff}, 10), 0, 0, 0, 0))
		_, err := tx.Get(b("v")).Get()
		require.Error(e, err)
		return nil
	}, "a commit after a read that failed, which the function took no notice of")
	require.Nil(e, e.get("v"))
	e.do(func(tx kv.Transaction) error {
		tx.SetVersionstampedKey(stamped("m"), b("x"))
		for _, c := range []struct {
			begin, end string
			options    kv.RangeOptions
			want       []string
		}{
			{"a", "m", kv.RangeOptions{}, []string{"l=before"}},
			{"n", "z", kv.RangeOptions{}, []string{"n=after"}},
			{"a", "z", kv.RangeOptions{Limit: 1}, []string{"l=before"}},
			{"a", "z", kv.RangeOptions{Limit: 1, Reverse: true}, []string{"n=after"}},
		} {
			rows, err := tx.GetRange(b(c.begin), b(c.end), c.options).Get()
			if err != nil {
				return fmt.Errorf("a range that ends before the versionstamped key, %+v: %w", c, err)
			}
			require.Equal(e, c.want, texts(rows))
		}
		return nil
	})
}
