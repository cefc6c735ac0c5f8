package layer

import (
	"context"
	"slices"
	"sync"

	"github.com/varvedb/varve/layer/kv"
)

// distant is a database that measures what transactions would cost far away: how many exchanges come one after the other. A read that is started at a moment
// is answered one exchange later, and who waits for it goes on then; so reads that were started before the first of them is waited for cost one exchange together.
type distant struct {
	kv.Database

	mu   sync.Mutex
	runs []cost
}

// cost is that of one run of a transaction.
type cost struct {
	depth int   // exchanges of reads that come one after the other
	reads int   // keys and ranges
	rows  int   // that ranges gave
	size  int64 // of the commit with its conflict ranges, bytes, about as FoundationDB counts them
}

// measured gives the largest of each cost of the runs since the last call, and their number.
func (d *distant) measured() (runs int, most cost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.runs {
		most = cost{max(most.depth, c.depth), max(most.reads, c.reads), max(most.rows, c.rows), max(most.size, c.size)}
	}
	runs = len(d.runs)
	d.runs = nil
	return runs, most
}

func (d *distant) done(f *far) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cost.depth = f.now
	d.runs = append(d.runs, f.cost)
}

func (d *distant) Transact(ctx context.Context, fn func(kv.Transaction) error) (kv.Commit, error) {
	return d.Database.Transact(ctx, func(tr kv.Transaction) error {
		f := &far{}
		defer d.done(f)
		return fn(farTransaction{farReads{tr, f, false}, tr})
	})
}

func (d *distant) ReadTransact(ctx context.Context, fn func(kv.ReadTransaction) error) error {
	return d.Database.ReadTransact(ctx, func(tr kv.ReadTransaction) error {
		f := &far{}
		defer d.done(f)
		return fn(farReads{tr, f, true})
	})
}

// far is the time of one run.
type far struct {
	mu   sync.Mutex // guards what follows
	now  int        // exchanges since it began
	cost cost
}

// sizes of a mutation and a conflict range beside their keys and values, bytes.
const (
	mutationSize = 40
	rangeSize    = 32
)

// started notes a read and gives when it is answered.
func (f *far) started(conflict bool, begin, end []byte) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cost.reads++
	if conflict {
		f.cost.size += int64(len(begin) + len(end) + rangeSize)
	}
	return f.now + 1
}

func (f *far) waited(until, rows int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = max(f.now, until)
	f.cost.rows += rows
}

func (f *far) wrote(begin, end, value []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cost.size += int64(mutationSize + len(begin) + len(value) + rangeSize + len(begin) + len(end))
}

type farReads struct {
	tr       kv.ReadTransaction
	f        *far
	snapshot bool
}

func (r farReads) Get(key []byte) kv.Value {
	return farValue{r.tr.Get(key), r.f, r.f.started(!r.snapshot, key, after(key))}
}

func (r farReads) GetRange(begin, end []byte, o kv.RangeOptions) kv.Range {
	return farRange{r.tr.GetRange(begin, end, o), r.f, r.f.started(!r.snapshot, begin, end)}
}

func (r farReads) Snapshot() kv.ReadTransaction { return farReads{r.tr.Snapshot(), r.f, true} }

func (r farReads) ReadVersion() (int64, error) { return r.tr.ReadVersion() } // is known once anything was read

type farValue struct {
	kv.Value
	f     *far
	until int
}

func (v farValue) Get() ([]byte, error) {
	v.f.waited(v.until, 0)
	return v.Value.Get()
}

type farRange struct {
	kv.Range
	f     *far
	until int
}

func (r farRange) Get() ([]kv.KeyValue, error) {
	rows, err := r.Range.Get()
	r.f.waited(r.until, len(rows))
	return rows, err
}

type farTransaction struct {
	farReads
	kv.Transaction
}

func (t farTransaction) Get(key []byte) kv.Value { return t.farReads.Get(key) }
func (t farTransaction) GetRange(begin, end []byte, o kv.RangeOptions) kv.Range {
	return t.farReads.GetRange(begin, end, o)
}
func (t farTransaction) Snapshot() kv.ReadTransaction { return t.farReads.Snapshot() }
func (t farTransaction) ReadVersion() (int64, error)  { return t.farReads.ReadVersion() }

func (t farTransaction) Set(key, value []byte) {
	t.f.wrote(key, after(key), value)
	t.Transaction.Set(key, value)
}

func (t farTransaction) Clear(key []byte) {
	t.f.wrote(key, after(key), nil)
	t.Transaction.Clear(key)
}

func (t farTransaction) ClearRange(begin, end []byte) {
	t.f.wrote(begin, end, slices.Concat(end))
	t.Transaction.ClearRange(begin, end)
}

func (t farTransaction) Add(key, param []byte) {
	t.f.wrote(key, after(key), param)
	t.Transaction.Add(key, param)
}

func (t farTransaction) SetVersionstampedKey(key, value []byte) {
	t.f.wrote(key, after(key), value)
	t.Transaction.SetVersionstampedKey(key, value)
}

func (t farTransaction) SetVersionstampedValue(key, value []byte) {
	t.f.wrote(key, after(key), value)
	t.Transaction.SetVersionstampedValue(key, value)
}
