package kvtest

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

func rangeChecks() []check {
	return []check{
		{"ranges/limits and directions", rangeLimitsAndDirections},
		{"ranges/many large rows", manyLargeRows},
	}
}

func rangeLimitsAndDirections(e *env) {
	keys := []string{"a", "b", "c", "d", "e", "f", "g"}
	e.write(func(tx kv.Transaction) {
		for _, key := range keys {
			tx.Set(b(key), b(key))
		}
	})
	e.read(func(tx kv.ReadTransaction) error {
		for _, bounds := range [][2]string{{"", "\xff"}, {"b", "f"}, {"bb", "ff"}, {"a", "a"}, {"a", "a\x00"}, {"x", "z"}, {"", "a"}} {
			for _, limit := range []int{0, 1, 2, 3, 7, 100} {
				for _, reverse := range []bool{false, true} {
					var want []string
					for _, key := range keys {
						if key >= bounds[0] && key < bounds[1] {
							want = append(want, key+"="+key)
						}
					}
					if reverse {
						slices.Reverse(want)
					}
					if limit > 0 && len(want) > limit {
						want = want[:limit]
					}
					rows, err := tx.GetRange(b(bounds[0]), b(bounds[1]), kv.RangeOptions{Limit: limit, Reverse: reverse}).Get()
					if err != nil {
						return err
					}
					require.Equal(e, append([]string{}, want...), texts(rows), "%q, limit %d, reverse %t", bounds, limit, reverse)
				}
			}
		}
		return nil
	})
}

// manyLargeRows reads more than FoundationDB gives in one reply.
func manyLargeRows(e *env) {
	const n = 1500
	value := bytes.Repeat([]byte("v"), 1000)
	e.write(func(tx kv.Transaction) {
		for i := range n {
			tx.Set(fmt.Appendf(nil, "%05d", i), value)
		}
	})
	for _, reverse := range []bool{false, true} {
		for _, limit := range []int{0, n - 1, n + 1} {
			e.read(func(tx kv.ReadTransaction) error {
				rows, err := tx.GetRange(b("0"), b("1"), kv.RangeOptions{Reverse: reverse, Limit: limit}).Get()
				if err != nil {
					return err
				}
				want := n
				if limit > 0 {
					want = min(n, limit)
				}
				require.Len(e, rows, want)
				for i, row := range rows {
					at := i
					if reverse {
						at = n - 1 - i
					}
					require.Equal(e, fmt.Sprintf("%05d", at), string(row.Key))
					require.Len(e, row.Value, len(value))
				}
				return nil
			})
		}
	}
}
