package fdbtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Where the shared store of the fake library has its lines, one number of 16 bits each: see client/testdata/shared_log.h.
const (
	linesOffset = 64
	linesEnd    = 4096
	silent      = math.MaxUint16
)

// memory is a directory of files that no disk is written for, where there is one.
const memory = "/dev/shm"

// SharedClusterFile is ClusterFile of a store that processes share, which is in memory and goes when the test ends.
func SharedClusterFile(tb testing.TB) string {
	tb.Helper()
	directory, err := os.MkdirTemp(memory, "varve-fdb-")
	if err != nil {
		directory = tb.TempDir()
	}
	tb.Cleanup(func() { _ = os.RemoveAll(directory) })
	return clusterFile(tb, directory, "shared")
}

// Line is what lies between a process and the shared store of the fake library. Tests cut it as they cut a network.
type Line struct {
	tb     testing.TB
	store  string // path
	number int

	mu      sync.Mutex // guards what follows
	silent  bool
	latency time.Duration
	delay   time.Duration
}

// NewLine gives a line to the store of a cluster file, or nil when that names no shared store of the fake library. It is healed when the test ends.
func NewLine(tb testing.TB, clusterFile string) *Line {
	tb.Helper()
	text, err := os.ReadFile(clusterFile)
	if err != nil {
		tb.Fatal(err)
	}
	if !bytes.HasPrefix(text, []byte("shared:")) && !bytes.Contains(text, []byte("\nshared:")) {
		return nil
	}
	// There are some two thousand lines: those of a few tests at once are hardly ever the same.
	l := &Line{tb: tb, store: clusterFile + ".store", number: 1 + rand.IntN((linesEnd-linesOffset)/2-1)}
	tb.Cleanup(func() {
		l.Latency(0)
		l.Heal()
	})
	return l
}

// Environment makes a process use the line.
func (l *Line) Environment() string { return "FAKE_FDB_LINE=" + strconv.Itoa(l.number) }

// Cut leaves the process without answers, which is what a client of FoundationDB makes of a lost connection.
func (l *Line) Cut() { l.Freeze() }

// Freeze leaves the process without answers until Heal.
func (l *Line) Freeze() { l.change(func() { l.silent = true }) }

// Latency is that of each answer, in each direction, until it is set again.
func (l *Line) Latency(by time.Duration) { l.change(func() { l.latency = by }) }

// Slow adds to the latency until Heal.
func (l *Line) Slow(by time.Duration) { l.change(func() { l.delay = by }) }

// Heal ends what Cut, Freeze and Slow do.
func (l *Line) Heal() { l.change(func() { l.silent, l.delay = false, 0 }) }

func (l *Line) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	value := uint16(min(2*(l.latency+l.delay)/time.Millisecond, silent-1))
	if l.silent {
		value = silent
	}
	if err := l.write(value); err != nil {
		l.tb.Errorf("line %d of the fake FoundationDB: %v", l.number, err)
	}
}

func (l *Line) write(value uint16) error {
	file, err := os.OpenFile(l.store, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(binary.NativeEndian.AppendUint16(nil, value), int64(linesOffset+2*l.number))
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", l.store, err)
	}
	return nil
}
