package kvtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

func versionstampChecks() []check {
	return []check{
		{"versionstamps/keys and values carry the commit's", stampsAreTheCommits},
		{"versionstamps/offsets", stampOffsets},
		{"versionstamps/order of commits", stampsInOrderOfCommits},
		{"versionstamps/read versions", readVersions},
	}
}

// stampedKey makes a key with the versionstamp between prefix and suffix.
func stampedKey(prefix, suffix string) []byte {
	key := slices.Concat(b(prefix), bytes.Repeat([]byte{0xff}, 10), b(suffix))
	return binary.LittleEndian.AppendUint32(key, uint32(len(prefix)))
}

func stampsAreTheCommits(e *env) {
	packed, err := tuple.Tuple{"log", tuple.IncompleteVersionstamp(7), "x"}.PackWithVersionstamp(nil)
	require.NoError(e, err)
	// A run of which the outcome stayed unknown may have left rows of its own, so only those of the run that counts are looked at.
	commit := e.write(func(tx kv.Transaction) {
		tx.SetVersionstampedKey(packed, b("row"))
		tx.SetVersionstampedKey(stampedKey("raw/", "/end"), b("raw"))
		tx.SetVersionstampedValue(b("value"), stampedKey("in ", " value"))
	})
	stamp := string(commit.Versionstamp[:])
	require.Equal(e, uint64(commit.Version), binary.BigEndian.Uint64(commit.Versionstamp[:8]))
	require.Equal(e, "row", string(e.get(string(tuple.Tuple{"log", tuple.Versionstamp{Transaction: commit.Versionstamp, User: 7}, "x"}.Pack()))))
	require.Equal(e, "raw", string(e.get("raw/"+stamp+"/end")))
	require.Equal(e, "in "+stamp+" value", string(e.get("value")))
	later := e.set("a", "1")
	require.Positive(e, bytes.Compare(later.Versionstamp[:], commit.Versionstamp[:]), "every commit has a versionstamp")
}

func stampOffsets(e *env) {
	for _, c := range []struct{ prefix, suffix string }{{"", ""}, {"", "end"}, {"begin", ""}, {"begin", "end"}} {
		value := stampedKey(c.prefix, c.suffix)
		commit := e.write(func(tx kv.Transaction) { tx.SetVersionstampedValue(b("v"), value) })
		require.Equal(e, c.prefix+string(commit.Versionstamp[:])+c.suffix, string(e.get("v")))
	}
	offset := func(body string, at uint32) []byte { return binary.LittleEndian.AppendUint32(b(body), at) }
	for _, bad := range [][]byte{
		nil, {0}, {0, 0, 0}, // no room for the offset
		offset("", 0), offset("123456789", 0), offset("1234567890", 1), offset("1234567890", 11), offset("1234567890ab", 3),
		offset("1234567890", 1<<31), offset("1234567890", 1<<32-1), offset("1234567890", 1<<32-5),
	} {
		e.fails(kv.ErrInvalid, func(tx kv.Transaction) error {
			tx.SetVersionstampedKey(bad, b("x"))
			return nil
		}, fmt.Sprintf("versionstamped key %q", bad))
		e.fails(kv.ErrInvalid, func(tx kv.Transaction) error {
			tx.SetVersionstampedValue(b("k"), bad)
			return nil
		}, fmt.Sprintf("versionstamped value %q", bad))
	}
}

// stampsInOrderOfCommits appends to a log from many clients: the order of its keys is the order of the commits, in real time too.
func stampsInOrderOfCommits(e *env) {
	const clients, rounds = 8, 10
	var mu sync.Mutex
	var answered []kv.Commit
	var group errgroup.Group
	for client := range clients {
		group.Go(func() error {
			for round := range rounds {
				mu.Lock()
				before := slices.Clone(answered)
				mu.Unlock()
				commit, err := e.db.Transact(e.ctx, func(tx kv.Transaction) error {
					tx.SetVersionstampedKey(stampedKey("log/", ""), fmt.Append(nil, client, "-", round))
					return nil
				})
				if err != nil {
					return err
				}
				for _, earlier := range before {
					if bytes.Compare(earlier.Versionstamp[:], commit.Versionstamp[:]) >= 0 {
						return fmt.Errorf("a commit at %x was answered before one at %x began", earlier.Versionstamp, commit.Versionstamp)
					}
				}
				mu.Lock()
				answered = append(answered, commit)
				mu.Unlock()
			}
			return nil
		})
	}
	require.NoError(e, group.Wait())
	slices.SortFunc(answered, func(x, y kv.Commit) int { return bytes.Compare(x.Versionstamp[:], y.Versionstamp[:]) })
	logged := map[string]bool{}
	for _, row := range e.all() {
		logged[string(row.Key)] = true
	}
	for i, commit := range answered {
		require.True(e, logged["log/"+string(commit.Versionstamp[:])], "the row of the commit at %x", commit.Versionstamp)
		if i > 0 {
			require.NotEqual(e, answered[i-1].Versionstamp, commit.Versionstamp)
			require.LessOrEqual(e, answered[i-1].Version, commit.Version)
		}
	}
}

func readVersions(e *env) {
	var last int64
	for i := range 5 {
		commit := e.set("a", fmt.Sprint(i))
		e.read(func(tx kv.ReadTransaction) error {
			version, err := tx.ReadVersion()
			if err != nil {
				return err
			}
			require.GreaterOrEqual(e, version, commit.Version, "reads see what was answered before")
			require.GreaterOrEqual(e, version, last, "read versions do not go back")
			again, err := tx.Snapshot().ReadVersion()
			if err == nil {
				require.Equal(e, version, again)
			}
			last = version
			return err
		})
	}
}
