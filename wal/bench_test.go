package wal

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/layer/kvtest"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/dir"
	"github.com/varvedb/varve/wal/objects/objectstest"
	"github.com/varvedb/varve/wal/segment"
)

// nullStore takes everything in and keeps nothing: what is left is the log itself.
type nullStore struct{ *objectstest.Fake }

func (nullStore) PutIfAbsent(context.Context, string, []byte) error { return nil }

// BenchmarkLog appends batches of 16 KiB from several streams, as fast as Reserve lets it.
func BenchmarkLog(b *testing.B) {
	stores := map[string]func(b *testing.B) objects.Store{
		"null": func(*testing.B) objects.Store { return nullStore{objectstest.NewFake()} },
		"dir": func(b *testing.B) objects.Store {
			store, err := dir.Open(b.TempDir())
			require.NoError(b, err)
			b.Cleanup(func() { _ = store.Close() })
			return store
		},
	}
	for _, name := range []string{"null", "dir"} {
		b.Run(name, func(b *testing.B) {
			fake := newFakeLayer()
			row := fake.register(1, layer.FenceBoth)
			log := NewLog(Options{Layer: fake, Store: stores[name](b), Cluster: testCluster, Node: row.Node, Row: row, BacklogBytes: 64 << 20})
			log.Start(b.Context())
			packed := make(chan struct{})
			go func() {
				defer close(packed)
				for {
					select {
					case <-b.Context().Done():
						return
					case <-time.After(time.Millisecond):
						if s := log.Acknowledged(); len(s) > 0 {
							log.Packed(s[len(s)-1].Seq + 1)
						}
					}
				}
			}()
			const size = 16 << 10
			data := make([]byte, size)
			var done sync.WaitGroup
			next := int64(0)
			b.SetBytes(size)
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				if err := log.Reserve(b.Context(), size); err != nil {
					b.Fatal(err)
				}
				done.Add(1)
				e := segment.Entry{Stream: next % 16, Epoch: 1, Base: next / 16, Last: next / 16, Producer: segment.Producer{ID: segment.NoProducer}, Data: data}
				next++
				log.Append([]segment.Entry{e}, func(err error) {
					if err != nil {
						b.Error(err)
					}
					done.Done()
				})
			}
			done.Wait()
			b.StopTimer()
			require.NoError(b, log.Close(b.Context()))
		})
	}
}

// BenchmarkInlineAppend is the latency of one small append at a time beside that of the engine's own commit of the same bytes, taken in turn in one
// run: the ratio of their medians is what the log adds.
func BenchmarkInlineAppend(b *testing.B) {
	store, err := layer.Open(b.Context(), kvtest.OpenOnDisk(b), testCluster)
	require.NoError(b, err)
	register := func(id int64) layer.WALRow {
		_, row, err := store.RegisterNode(b.Context(), layer.NodeInfo{ID: id, Slots: 1}, layer.FenceBoth, uuid.New(), uuid.New(), time.Now())
		require.NoError(b, err)
		return row
	}
	entries := []segment.Entry{batch(11, 0, 0, 200)}
	direct := register(1)
	body, _ := segment.Encode(logHeader(segment.KindSegment, testCluster, direct, direct.Node, 1), entries, segment.Options{})
	row := register(2)
	log := NewLog(Options{Layer: store, Store: objectstest.NewFake(), Cluster: testCluster, Node: row.Node, Row: row})
	log.Start(b.Context())
	answer := make(chan error)

	var commits, appends []time.Duration
	for seq := int64(1); b.Loop(); seq++ {
		began := time.Now()
		require.NoError(b, store.PutInline(b.Context(), direct.Node, seq, body))
		committed := time.Now()
		log.Append(entries, func(err error) { answer <- err })
		require.NoError(b, <-answer)
		appends = append(appends, time.Since(committed))
		commits = append(commits, committed.Sub(began))
		log.Packed(seq + 1)
	}
	require.NoError(b, log.Close(b.Context()))
	slices.Sort(commits)
	slices.Sort(appends)
	commit, appended := commits[len(commits)/2], appends[len(appends)/2]
	b.ReportMetric(float64(commit.Microseconds()), "commit-p50-us")
	b.ReportMetric(float64(appended.Microseconds()), "append-p50-us")
	b.ReportMetric(float64(appended)/float64(commit), "append/commit")
}
