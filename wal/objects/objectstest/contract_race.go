package objectstest

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/wal/objects"
)

// testRace lets writers race for the same key, many times: one wins, and its bytes stay.
func testRace(t *testing.T, store objects.Store) {
	const rounds, writers = 25, 8
	for round := range rounds {
		key := fmt.Sprintf("race/%02d", round)
		bodies := make([][]byte, writers)
		errs := make([]error, writers)
		start := make(chan struct{})
		var group sync.WaitGroup
		for w := range writers {
			bodies[w] = bytes.Repeat([]byte{byte('a' + w)}, 1000+w)
			group.Go(func() {
				<-start
				errs[w] = store.PutIfAbsent(t.Context(), key, bodies[w])
			})
		}
		close(start)
		group.Wait()
		winner := -1
		for w, err := range errs {
			if errors.Is(err, objects.ErrExists) {
				continue
			}
			require.NoError(t, err)
			require.Equal(t, -1, winner, "writers %d and %d both won %s", winner, w, key)
			winner = w
		}
		require.NotEqual(t, -1, winner, "nobody won %s", key)
		require.Equal(t, string(bodies[winner]), read(t, store, key), "what the winner wrote stays")
	}
}

// testNeverInPart reads one object while it is overwritten and deleted: what is read is one of the bodies, whole.
func testNeverInPart(t *testing.T, store objects.Store) {
	ctx := t.Context()
	const key, size, writes = "part/x", 64 << 10, 20
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < writes && err == nil; i++ {
			err = store.Put(ctx, key, bytes.Repeat([]byte{byte(i)}, size+i))
			if err == nil && i%5 == 4 {
				err = store.Delete(ctx, key)
			}
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			require.NoError(t, err)
			return
		default:
		}
		body, err := store.GetAll(ctx, key, 2*size)
		if errors.Is(err, objects.ErrNotFound) {
			continue
		}
		require.NoError(t, err)
		require.NotEmpty(t, body)
		require.Len(t, body, size+int(body[0]))
		require.Equal(t, len(body), bytes.Count(body, body[:1]), "a mixture of two bodies")
	}
}
