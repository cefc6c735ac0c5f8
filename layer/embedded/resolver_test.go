package embedded

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestResolverAgainstList compares the resolver with a plain list of writes.
func TestResolverAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 0, 2)
		drawRange := func() keyRange {
			if rapid.Bool().Draw(t, "point") {
				return pointRange(key.Draw(t, "key"))
			}
			begin, end := key.Draw(t, "begin"), key.Draw(t, "end")
			if bytes.Compare(begin, end) > 0 {
				begin, end = end, begin
			}
			return keyRange{begin, end}
		}
		r := newResolver(0)
		var writes []write
		now := time.Unix(0, 0)
		for version := int64(1); version <= int64(rapid.IntRange(1, 60).Draw(t, "steps")); version++ {
			now = now.Add(time.Second)
			w := write{keyRange: drawRange(), version: version, at: now}
			r.wrote(w.keyRange, version, now)
			writes = append(writes, w)
			if rapid.IntRange(0, 3).Draw(t, "forget") == 0 {
				r.forget(now.Add(-time.Duration(rapid.IntRange(0, 20).Draw(t, "age"))*time.Second), rapid.IntRange(0, 30).Draw(t, "limit"))
			}
			rng := drawRange()
			since := rapid.Int64Range(r.floor, version).Draw(t, "since")
			want := false
			for _, w := range writes {
				overlap := bytes.Compare(w.begin, rng.end) < 0 && bytes.Compare(rng.begin, w.end) < 0 &&
					bytes.Compare(w.begin, w.end) < 0 && bytes.Compare(rng.begin, rng.end) < 0
				want = want || overlap && w.version > since
			}
			require.Equal(t, want, r.changed(rng, since), "%q since %d after %v", rng, since, writes)
			require.Equal(t, size(r.root), r.count)
			requireTreap(t, r.root, nil, nil)
		}
		r.forget(now.Add(time.Hour), 0)
		require.Nil(t, r.root, "nothing is left when all is forgotten")
		require.Zero(t, r.count)
	})
}

// requireTreap checks order, priorities and the greatest versions.
func requireTreap(t require.TestingT, n *boundary, after, before []byte) {
	if n == nil {
		return
	}
	require.True(t, after == nil || bytes.Compare(after, n.key) < 0)
	require.True(t, before == nil || bytes.Compare(n.key, before) < 0)
	newest := n.version
	for _, child := range []*boundary{n.left, n.right} {
		if child != nil {
			require.LessOrEqual(t, child.priority, n.priority)
			newest = max(newest, child.newest)
		}
	}
	require.Equal(t, newest, n.newest)
	requireTreap(t, n.left, after, n.key)
	requireTreap(t, n.right, n.key, before)
}

func TestResolverForgetsWithinItsLimit(t *testing.T) {
	r := newResolver(0)
	now := time.Now()
	for version := int64(1); version <= 10_000; version++ {
		r.wrote(pointRange(fmt.Append(nil, rand.IntN(100_000))), version, now)
		r.forget(now.Add(-maxAge), 100)
		require.LessOrEqual(t, r.writes.len(), 100)
		require.LessOrEqual(t, r.count, 200)
		require.Equal(t, max(0, version-100), r.floor)
	}
}

func BenchmarkResolver(b *testing.B) {
	for _, keys := range []int{1_000, 1_000_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			r := newResolver(0)
			now := time.Now()
			var version int64
			for b.Loop() {
				version++
				key := pointRange(fmt.Appendf(nil, "some/longer/prefix/%d", rand.IntN(keys)))
				if !r.changed(key, max(r.floor, version-50)) {
					r.wrote(key, version, now)
				}
				r.forget(now.Add(-maxAge), 500_000)
			}
		})
	}
}
