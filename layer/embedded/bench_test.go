package embedded

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/kv"
)

// runClients has clients call do, b.N times in all, and reports rate and latencies.
func runClients(b *testing.B, clients int, do func(client, i int) error) {
	b.Helper()
	var next atomic.Int64
	latencies := make([][]time.Duration, clients)
	var group sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for client := range clients {
		group.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				begun := time.Now()
				if err := do(client, int(i)); err != nil {
					b.Error(err)
					return
				}
				latencies[client] = append(latencies[client], time.Since(begun))
			}
		})
	}
	group.Wait()
	b.StopTimer()
	all := slices.Concat(latencies...)
	slices.Sort(all)
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "commits/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-µs")
}

var benchmarkValue = make([]byte, 200)

// BenchmarkCommit commits transactions that read one key and write one, each client its own.
func BenchmarkCommit(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("disk/clients=%d", clients), func(b *testing.B) {
			benchmarkCommit(b, clients, openTest(b, b.TempDir(), Options{}))
		})
	}
	for _, clients := range []int{1, 64} {
		b.Run(fmt.Sprintf("memory/clients=%d", clients), func(b *testing.B) {
			benchmarkCommit(b, clients, openTest(b, "", Options{InMemory: true}))
		})
	}
}

func benchmarkCommit(b *testing.B, clients int, db *DB) {
	runClients(b, clients, func(client, i int) error {
		_, err := db.Transact(context.Background(), func(tx kv.Transaction) error {
			key := fmt.Appendf(nil, "client/%d/%d", client, i%100)
			if _, err := tx.Get(key).Get(); err != nil {
				return err
			}
			tx.Set(key, benchmarkValue)
			return nil
		})
		return err
	})
}

// BenchmarkPebbleSyncedWrite is what the disk and Pebble allow: one synced batch per write.
func BenchmarkPebbleSyncedWrite(b *testing.B) {
	for _, clients := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("disk/clients=%d", clients), func(b *testing.B) {
			db, err := pebble.Open(b.TempDir(), &pebble.Options{Logger: pebbleLogger{Options{}.withDefaults().Logger}})
			require.NoError(b, err)
			defer func() { require.NoError(b, db.Close()) }()
			runClients(b, clients, func(client, i int) error {
				return db.Set(fmt.Appendf(nil, "client/%d/%d", client, i%100), benchmarkValue, pebble.Sync)
			})
		})
	}
}

// BenchmarkLargeTransaction commits transactions of 2,000 keys each, read and written.
func BenchmarkLargeTransaction(b *testing.B) {
	db := openTest(b, "", Options{InMemory: true})
	round := 0
	for b.Loop() {
		round++
		_, err := db.Transact(context.Background(), func(tx kv.Transaction) error {
			for i := range 2000 {
				key := fmt.Appendf(nil, "large/%d/%d", round%50, i)
				if _, err := tx.Get(key).Get(); err != nil {
					return err
				}
				tx.Set(key, benchmarkValue)
			}
			return nil
		})
		require.NoError(b, err)
	}
}

// BenchmarkRange reads ranges out of 100,000 rows.
func BenchmarkRange(b *testing.B) {
	db := openTest(b, b.TempDir(), Options{})
	const rows = 100_000
	for from := 0; from < rows; from += 1000 {
		_, err := db.Transact(context.Background(), func(tx kv.Transaction) error {
			for i := from; i < from+1000; i++ {
				tx.Set(fmt.Appendf(nil, "row/%08d", i), benchmarkValue)
			}
			return nil
		})
		require.NoError(b, err)
	}
	for _, limit := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("rows=%d", limit), func(b *testing.B) {
			i := 0
			for b.Loop() {
				i++
				begin := fmt.Appendf(nil, "row/%08d", i*7919%(rows-limit))
				err := db.ReadTransact(context.Background(), func(tx kv.ReadTransaction) error {
					found, err := tx.GetRange(begin, []byte("row0"), kv.RangeOptions{Limit: limit}).Get()
					if err == nil && len(found) != limit {
						return fmt.Errorf("%d rows, want %d", len(found), limit)
					}
					return err
				})
				require.NoError(b, err)
			}
			b.ReportMetric(float64(limit)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// BenchmarkOpen opens and closes an engine in memory, as every test does.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		db, err := Open("", Options{InMemory: true})
		require.NoError(b, err)
		require.NoError(b, db.Close())
	}
}
