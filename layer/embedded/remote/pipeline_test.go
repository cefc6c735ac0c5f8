package remote

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer/embedded"
	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kvtest"
)

// scripted is a server that does to each connection what a test says, after the greeting.
func scripted(t *testing.T, script func(c net.Conn, in *bufio.Reader)) *Database {
	t.Helper()
	path := socket(t)
	l, err := Listen(path)
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				s := newSession(c)
				if s.greet() == nil {
					script(c, s.in)
				}
			})
		}
	})
	db := Open(path)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.NoError(t, l.Close())
		all.Wait()
	})
	return db
}

func present(value string) []byte { return appendBytes([]byte{0, 1}, []byte(value)) }

// start starts n reads.
func start(tx kv.ReadTransaction, n int) []kv.Value {
	values := make([]kv.Value, n)
	for i := range values {
		values[i] = tx.Get(fmt.Append(nil, "key", i))
	}
	return values
}

// Reads that are started before one is waited for are all under way: a server may see every request before it answers the first.
func TestReadsAreUnderWayTogether(t *testing.T) {
	const n = 300
	db := scripted(t, func(c net.Conn, in *bufio.Reader) {
		for range n {
			if _, err := readFrame(in); err != nil {
				return
			}
		}
		for i := range n {
			writeFrame(c, present(fmt.Sprint("value", i)))
		}
		io.Copy(io.Discard, in)
	})
	require.NoError(t, db.ReadTransact(t.Context(), func(tx kv.ReadTransaction) error {
		values := start(tx, n)
		for i := n - 1; i >= 0; i-- { // in any order
			for range 2 { // again and again
				value, err := values[i].Get()
				require.NoError(t, err)
				require.Equal(t, fmt.Sprint("value", i), string(value))
			}
		}
		return nil
	}))
}

func TestMoreReadsThanMayBeOutstanding(t *testing.T) {
	path := socket(t)
	serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	db := openAt(t, path)
	set(t, db, "key4000", "1")
	require.NoError(t, db.ReadTransact(t.Context(), func(tx kv.ReadTransaction) error {
		values := start(tx, 3*maxOutstanding+1000)
		value, err := values[4000].Get()
		require.NoError(t, err)
		require.Equal(t, "1", string(value))
		return nil
	}))
}

// Both sides have much more to send than a socket holds.
func TestLargeRequestsForLargeReplies(t *testing.T) {
	path := socket(t)
	serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	db := openAt(t, path)
	key, large := make([]byte, 9000), make([]byte, 90_000)
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		tx.Set(key, large)
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, db.ReadTransact(t.Context(), func(tx kv.ReadTransaction) error {
		var ranges []kv.Range
		for range 500 {
			ranges = append(ranges, tx.GetRange(key, append(key, 0), kv.RangeOptions{}))
		}
		for _, r := range ranges {
			found, err := r.Get()
			require.NoError(t, err)
			require.Len(t, found, 1)
			require.Len(t, found[0].Value, len(large))
		}
		return nil
	}))
}

func TestReadsSeeTheWritesBeforeThemAndNoneAfter(t *testing.T) {
	path := socket(t)
	serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	db := openAt(t, path)
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		var values []kv.Value
		for i := range 100 {
			tx.Set([]byte("k"), fmt.Append(nil, i))
			values = append(values, tx.Get([]byte("k")))
		}
		tx.Clear([]byte("k"))
		gone := tx.Get([]byte("k"))
		for i, v := range values {
			value, err := v.Get()
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(i), string(value))
		}
		value, err := gone.Get()
		require.NoError(t, err)
		require.Nil(t, value)
		return nil
	})
	require.NoError(t, err)
}

// What a transaction did not wait for does not get in the way of the next one on the same connection, and may be waited for still.
func TestReadsThatWereLeftBehind(t *testing.T) {
	path := socket(t)
	serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	db := openAt(t, path)
	set(t, db, "key7", "seven")
	mine := errors.New("mine")
	var left []kv.Value
	for range 20 {
		_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
			tx.Set([]byte("key7"), []byte("never"))
			left = start(tx, 100)
			return mine
		})
		require.ErrorIs(t, err, mine)
		value, err := get(t.Context(), db, "key7")
		require.NoError(t, err)
		require.Equal(t, "seven", string(value))
	}
	value, err := left[7].Get()
	require.NoError(t, err)
	require.Equal(t, "never", string(value))
	db.mu.Lock()
	defer db.mu.Unlock()
	require.Len(t, db.open, 1)
	require.Len(t, db.idle, 1)
}

func TestConnectionLostWithReadsUnderWay(t *testing.T) {
	served := 0
	db := scripted(t, func(c net.Conn, in *bufio.Reader) {
		served++
		for i := range 10 {
			if _, err := readFrame(in); err != nil {
				return
			}
			if i < 5 {
				writeFrame(c, present("value"))
			}
		}
	})
	mine := errors.New("mine")
	runs := 0
	_, err := db.Transact(t.Context(), func(tx kv.Transaction) error {
		if runs++; runs > 3 {
			return mine
		}
		values := start(tx, 10)
		for i, v := range values {
			value, err := v.Get()
			if i < 5 {
				require.NoError(t, err)
				require.Equal(t, "value", string(value))
			} else {
				require.ErrorIs(t, err, kv.ErrUnavailable)
			}
		}
		_, err := tx.Get([]byte("key")).Get()
		require.ErrorIs(t, err, kv.ErrUnavailable)
		require.NotErrorIs(t, err, kv.ErrCommitUnknown)
		return nil // the commit fails, as it was never sent
	})
	require.Same(t, mine, err)
	require.Equal(t, 3, served)
}

func TestConnectionLostBeforeTheAnswerToACommit(t *testing.T) {
	asked := make(chan struct{})
	var once sync.Once
	db := scripted(t, func(_ net.Conn, in *bufio.Reader) {
		readFrame(in)
		once.Do(func() { close(asked) })
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	_, err := db.Transact(ctx, func(tx kv.Transaction) error {
		tx.Set([]byte("k"), nil)
		return nil
	})
	require.ErrorIs(t, err, kv.ErrCommitUnknown)
}

// A context that ends frees who waits for a server that does not answer, or does not even read.
func TestContextEndsWithReadsUnderWay(t *testing.T) {
	done := make(chan struct{})
	for name, script := range map[string]func(net.Conn, *bufio.Reader){
		"silent": func(_ net.Conn, in *bufio.Reader) { io.Copy(io.Discard, in) },
		"deaf":   func(net.Conn, *bufio.Reader) { <-done },
	} {
		t.Run(name, func(t *testing.T) {
			db := scripted(t, script)
			if name == "deaf" {
				t.Cleanup(func() { close(done) })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			err := db.ReadTransact(ctx, func(tx kv.ReadTransaction) error {
				var last kv.Value
				for range 100 { // more bytes than a socket holds
					last = tx.Get(make([]byte, 9000))
				}
				_, err := last.Get()
				return err
			})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Eventually(t, func() bool {
				db.mu.Lock()
				defer db.mu.Unlock()
				return len(db.open)+len(db.idle) == 0
			}, 5*time.Second, time.Millisecond, "the connection is of no more use")
		})
	}
}

// An idle connection whose server went away is not kept for the next transaction.
func TestIdleConnectionEnds(t *testing.T) {
	path := socket(t)
	stop := serveOn(t, path, kvtest.OpenEmbedded(t, embedded.Options{}))
	db := openAt(t, path)
	set(t, db, "a", "1")
	stop()
	require.Eventually(t, func() bool {
		db.mu.Lock()
		defer db.mu.Unlock()
		return len(db.open)+len(db.idle) == 0
	}, 5*time.Second, time.Millisecond)
}

// Whatever a server sends, the client gets on or learns of an error.
func FuzzReplies(f *testing.F) {
	frame := func(body ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
	}
	f.Add(frame(present("v")...))
	f.Add(append(append(frame(0, 0, 0), frame(0, 1, 1, 'k', 1, 'v')...), frame(0, 5)...))
	f.Add(append(append(append(append(frame(0, 0, 0), frame(0, 0)...), frame(0, 5)...), frame(0)...), frame(0, 5, 0)...))
	f.Add(frame(1, 2, 'n', 'o'))
	f.Fuzz(func(t *testing.T, sent []byte) {
		client, server := net.Pipe()
		c := newConn(client)
		db := &Database{idle: []*conn{c}, open: map[*conn]struct{}{c: {}}}
		db.goroutines.Go(func() { c.read(); db.forget(c) })
		var serving sync.WaitGroup
		serving.Go(func() { io.Copy(io.Discard, server) })
		serving.Go(func() {
			server.Write(sent)
			server.Close()
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var watch kv.Watch
		_, err := db.attempt(ctx, func(tx kv.Transaction) error {
			value, rows := tx.Get([]byte("a")), tx.GetRange([]byte("a"), []byte("b"), kv.RangeOptions{})
			watch = tx.Watch([]byte("a"))
			_, err := value.Get()
			_, err2 := rows.Get()
			_, err3 := tx.ReadVersion()
			return errors.Join(err, err2, err3)
		})
		if err != nil {
			require.Error(t, watch.Wait(ctx))
		}
		require.NoError(t, db.Close())
		_ = watch.Wait(ctx)
		serving.Wait()
	})
}
