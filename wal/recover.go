package wal

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/segment"
)

// RecoverOptions say whose log is ended by whom.
type RecoverOptions struct {
	Layer   Layer
	Store   objects.Store
	Cluster string
	By      layer.NodeRef // the node that recovers
	Dead    layer.NodeRef // the node epoch whose log it is; fenced or replaced before the call
	Logger  *slog.Logger
	Metrics *Metrics // nil: not measured

	// RunBytes: how many bytes of inline segments are packed into one object. Default 8 MiB.
	RunBytes int
	// Ahead: how many segments' indexes are read at once. Default 8.
	Ahead int
	// Timeout of one attempt at the object store. Default 30 s.
	Timeout time.Duration
	// RetryMin and RetryMax bound the pause between attempts; it doubles. Defaults 50 ms and 5 s.
	RetryMin, RetryMax time.Duration
}

func (o RecoverOptions) withDefaults() RecoverOptions {
	setDefault(&o.RunBytes, 8<<20)
	setDefault(&o.Ahead, 8)
	setDefault(&o.Timeout, 30*time.Second)
	setDefault(&o.RetryMin, 50*time.Millisecond)
	setDefault(&o.RetryMax, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(nil)
	}
	return o
}

// Result says what one call of Recover did.
type Result struct {
	Segments int   // taken by this call
	Bytes    int64 // of them
	Entries  int64 // index entries that were offered to the layer for them
	SealedAt int64 // the number at which the log ends
}

// Recover ends the log of a dead node epoch: it finds the segments that may have been acknowledged, hands them to the layer in order, and
// seals the log where they end. The streams are then the caller's to close. Any number of recoverers may run, at once or one after
// another, each of them dead or slow at any point; all end at the same number, and a log that is sealed already is left as it is.
//
// A node epoch that is not fenced is a layer.ErrNotFenced. An object that stands in the way and is not of this log, or is damaged, is a *ForeignError that names it, and
// everything is left as it is, for an operator. While the store or the layer does not answer, Recover tries again until ctx ends.
func Recover(ctx context.Context, o RecoverOptions) (Result, error) {
	o = o.withDefaults()
	r := &recoverer{o: o, log: o.Logger.With("dead", o.Dead, "by", o.By)}
	if err := r.run(ctx); err != nil {
		// Whether that is news is the caller's to judge: a process that stops in the middle is none.
		r.log.Debug("recovery of a write-ahead log ended early", "at", r.at, "segments", r.result.Segments, "error", err)
		return r.result, fmt.Errorf("recover write-ahead log of node %s: %w", o.Dead, err)
	}
	r.log.Debug("write-ahead log is sealed", "at", r.result.SealedAt, "segments", r.result.Segments, "bytes", r.result.Bytes)
	return r.result, nil
}

// recoverer is one call of Recover.
type recoverer struct {
	o      RecoverOptions
	log    *slog.Logger
	result Result

	row    layer.WALRow
	prefix string
	at     int64 // the number that the walk has come to
	inline []layer.InlineSegment
	// inlineFrom: inline holds all inline segments from here up to its last one; when inlineAll is set, there are none after.
	inlineFrom int64
	inlineAll  bool
	// singleBelow: inline segments below are taken one by one, because a run of them met a durable end in its middle.
	singleBelow int64
	tails       tails
}

// seals tells whether the log has seals; the mode was fixed when the node registered.
func (r *recoverer) seals() bool { return r.row.Mode != layer.FenceLayer && !broken("seal") }

// run is rules 1 to 5. Whenever somebody else got on, it begins again from the row.
func (r *recoverer) run(ctx context.Context) error {
	err := r.askLayer(ctx, "confirm the fence", func(ctx context.Context) error { return r.o.Layer.ConfirmFenced(ctx, r.o.Dead) })
	if err != nil {
		return err
	}
	pause := newPause(r.o.RetryMin, r.o.RetryMax)
	ahead := false
	for {
		before := r.row.FirstLive
		if err := r.readRow(ctx); err != nil {
			return err
		}
		if r.row.SealedAt != nil {
			r.result.SealedAt = *r.row.SealedAt
			return nil
		}
		if r.row.FirstLive != before {
			pause.Reset()
		} else if !sleep(ctx, pause.NextBackOff()) {
			return context.Cause(ctx)
		}
		if r.seals() && !ahead {
			if err := r.sealAhead(ctx); err != nil {
				return err
			}
			ahead = true
		}
		if err := r.walk(ctx); !errors.Is(err, layer.ErrWALMoved) && !errors.Is(err, layer.ErrWALSealed) {
			return err
		}
		r.log.Info("somebody else is recovering the same log", "at", r.at)
	}
}

func (r *recoverer) readRow(ctx context.Context) error {
	return r.askLayer(ctx, "read the log's row", func(ctx context.Context) (err error) {
		r.row, err = r.o.Layer.WAL(ctx, r.o.Dead)
		r.prefix = LogPrefix(r.o.Cluster, r.o.Dead, r.row.Incarnation)
		return err
	})
}

// sealAhead is rule 2: a seal at some free number keeps the writer from going on for ever in front of the walk. Where the number that is
// tried is taken, by whatever it may be, it jumps ahead, farther each time.
func (r *recoverer) sealAhead(ctx context.Context) error {
	k := r.row.FirstLive
	for jump := int64(1); ; jump = min(jump*8, maxJump) {
		for {
			s, err := r.inlineAt(ctx, k)
			if err != nil {
				return err
			}
			if s == nil {
				break
			}
			k++
		}
		err := r.putSeal(ctx, k)
		if !errors.Is(err, objects.ErrExists) {
			return err
		}
		k += jump
	}
}

// maxJump bounds how far beyond the log's end a seal is put.
const maxJump = 4096

func (r *recoverer) putSeal(ctx context.Context, k int64) error {
	seal := segment.EncodeSeal(r.header(segment.KindSeal, k))
	return r.askStore(ctx, "put a seal", func(ctx context.Context) error { return r.o.Store.PutIfAbsent(ctx, segmentKey(r.prefix, k), seal) })
}

// walk is rules 3 to 5 from the first live number on.
func (r *recoverer) walk(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	r.tails = tails{r: r, ctx: ctx, ahead: r.o.Ahead}
	defer r.tails.wait()
	defer cancel()
	for r.at = r.row.FirstLive; ; {
		run, err := r.inlineRun(ctx)
		if err != nil {
			return err
		}
		if len(run) > 0 {
			if err := r.takeInline(ctx, run); err != nil {
				return err
			}
			continue
		}
		found, err := r.find(ctx)
		switch {
		case err != nil:
			return err
		case found.end:
			return r.seal(ctx)
		case found.object == nil:
			// Refused, and yet absent: the segment was taken and freed by somebody else. It does not end the log.
			return fmt.Errorf("segment %d was there and is gone: %w", r.at, layer.ErrWALMoved)
		}
		if err := r.takeObjects(ctx, found.object); err != nil {
			return err
		}
	}
}

// found is what stands at a number: an object, the end of the log, or neither.
type found struct {
	object *segment.Object
	end    bool
}

// find is rule 3 for a number that is not inline.
func (r *recoverer) find(ctx context.Context) (found, error) {
	f, err := r.tails.get(r.at)
	if err != nil || f.object != nil || f.end {
		return f, err
	}
	// What was read ahead may be out of date. A put of the writer can still be on its way; only a seal, or in mode layer a read made after
	// the fence, says that it has lost.
	if r.seals() {
		return r.sealOrRead(ctx, r.at)
	}
	f, err = r.readObject(ctx, r.at)
	f.end = f.object == nil
	return f, err
}

// sealOrRead puts a seal at number k, or reads what is there.
func (r *recoverer) sealOrRead(ctx context.Context, k int64) (found, error) {
	err := r.putSeal(ctx, k)
	if errors.Is(err, objects.ErrExists) {
		return r.readObject(ctx, k)
	}
	return found{end: err == nil}, err
}

// readObject reads what stands at number k: a segment, a seal, which is an end, or nothing.
func (r *recoverer) readObject(ctx context.Context, k int64) (found, error) {
	key := segmentKey(r.prefix, k)
	var object *segment.Object
	err := r.askStore(ctx, "read a segment's index", func(ctx context.Context) (err error) {
		for range 3 { // it may have been damaged on its way
			object, err = ReadTail(ctx, r.o.Store, key)
			if !errors.Is(err, segment.ErrCorrupt) {
				return err
			}
		}
		return err
	})
	switch {
	case errors.Is(err, objects.ErrNotFound):
		return found{}, nil
	case errors.Is(err, segment.ErrCorrupt):
		return found{}, &ForeignError{Key: key, Seq: k, Err: err}
	case err != nil:
		return found{}, err
	case object.Header == r.header(segment.KindSeal, k) && r.seals():
		return found{end: true}, nil
	case object.Header == r.header(segment.KindSegment, k):
		return found{object: object}, nil
	}
	return found{}, &ForeignError{Key: key, Seq: k, Err: fmt.Errorf("it is %s", object.Header)}
}

func (r *recoverer) header(kind segment.Kind, k int64) segment.Header {
	return logHeader(kind, r.o.Cluster, r.row, r.o.Dead, k)
}

// ReadTail reads the directory and indexes of an object: one read for most objects, two for the rest. A damaged one is a
// *segment.CorruptError that names it.
func ReadTail(ctx context.Context, store objects.Store, key string) (*segment.Object, error) {
	length := int64(segment.TailRead)
	for {
		tail, size, err := store.GetTail(ctx, key, length)
		if err != nil {
			return nil, err
		}
		object, need, err := segment.ParseTail(tail, size)
		if err != nil {
			return nil, segment.Named(err, key)
		}
		if object != nil {
			return object, nil
		}
		if need <= length {
			return nil, &segment.CorruptError{Object: key, Offset: -1, Reason: fmt.Sprintf("a tail of %d bytes is not enough and should be", length)}
		}
		length = need
	}
}

// seal is rule 5.
func (r *recoverer) seal(ctx context.Context) error {
	err := r.askLayer(ctx, "seal the log", func(ctx context.Context) error { return r.o.Layer.SealWAL(ctx, r.o.By, r.o.Dead, r.at) })
	if err == nil {
		r.result.SealedAt = r.at
	}
	return err
}

// Bounds of a run of objects that are taken in one transaction: it stays small, and it is done over when somebody else got on.
const (
	maxObjectRun = 64  // segments
	maxRunWork   = 500 // index entries and producer states
)

// takeObjects is rule 4 for segments that are objects: metadata alone. With the one at the walk's number go those after it whose indexes have been
// read; each is taken whole, so that a run ends where any other could.
func (r *recoverer) takeObjects(ctx context.Context, object *segment.Object) error {
	var metas []layer.ObjectMeta
	var entries []layer.ObjectEntry
	producers := producers{}
	size, next := int64(0), r.at
	for object != nil {
		key := segmentKey(r.prefix, next)
		if err := producers.addObject(object); err != nil {
			if next > r.at {
				break // what comes before it is taken first
			}
			return &ForeignError{Key: key, Seq: next, Err: segment.Named(err, key)}
		}
		metas = append(metas, layer.ObjectMeta{Object: key, Size: object.Size, Kind: layer.AdoptedSegment})
		entries = append(entries, ObjectEntries(key, object.Parts)...)
		size += object.Size
		next++
		if len(metas) >= maxObjectRun || len(entries)+len(producers) >= maxRunWork || r.isKnownInline(next) {
			break
		}
		object = r.tails.ready(next)
	}
	return r.adopt(ctx, metas, next, entries, producers, size, "object")
}

// takeInline is rule 4 for a run of inline segments, which become one data object.
func (r *recoverer) takeInline(ctx context.Context, run []layer.InlineSegment) error {
	var entries []segment.Entry
	producers := producers{}
	size := int64(0)
	for _, s := range run {
		object, decoded, err := segment.Decode(s.Data)
		if err == nil && object.Header != r.header(segment.KindSegment, s.Seq) {
			err = fmt.Errorf("it is %s", object.Header)
		}
		if err != nil {
			name := fmt.Sprintf("inline segment %d of node %s", s.Seq, r.o.Dead)
			return &ForeignError{Key: name, Seq: s.Seq, Err: segment.Named(err, name)}
		}
		for _, e := range decoded {
			producers.add(e.Stream, e.Producer, e.Base, e.Last, e.MaxTimestamp)
		}
		entries = append(entries, decoded...)
		size += int64(len(s.Data))
	}
	next := run[len(run)-1].Seq + 1
	if len(entries) == 0 {
		return r.adopt(ctx, nil, next, nil, producers, size, "inline")
	}
	for {
		meta, index, err := r.writeRun(ctx, entries)
		if err != nil {
			return err
		}
		err = r.adopt(ctx, []layer.ObjectMeta{meta}, next, index, producers, size, "inline")
		switch {
		case errors.Is(err, layer.ErrNotPrepared):
			r.log.Warn("an object was written too slowly and is written again", "object", meta.Object)
			continue
		case errors.Is(err, layer.ErrStraddles) && len(run) > 1:
			// Somebody packed these segments in other groups. One by one they end where any group can end.
			r.singleBelow = next
			return nil
		}
		return err
	}
}

// writeRun writes a data object of entries, which the layer knows before it exists.
func (r *recoverer) writeRun(ctx context.Context, entries []segment.Entry) (layer.ObjectMeta, []layer.ObjectEntry, error) {
	id := uuid.New()
	key := DataKey(r.o.Cluster, id)
	h := segment.Header{Kind: segment.KindData, Cluster: r.o.Cluster, Node: r.o.By.ID, NodeEpoch: r.o.By.Epoch, Incarnation: id}
	body, parts := segment.Encode(h, entries, segment.Options{})
	err := r.askLayer(ctx, "prepare an object", func(ctx context.Context) error {
		return r.o.Layer.Prepare(ctx, r.o.By, []string{key}, time.Now())
	})
	if err == nil {
		err = r.askStore(ctx, "write packed inline segments", func(ctx context.Context) error { return r.o.Store.Put(ctx, key, body) })
	}
	return layer.ObjectMeta{Object: key, Size: int64(len(body)), Kind: layer.DataObject}, ObjectEntries(key, parts), err
}

// adopt commits the segments [at, next) and goes on to next.
func (r *recoverer) adopt(ctx context.Context, objects []layer.ObjectMeta, next int64, entries []layer.ObjectEntry, p producers, size int64, placement string) error {
	now := time.Now()
	for i := range objects {
		objects[i].CreatedAt = now
	}
	a := layer.Adoption{Dead: r.o.Dead, Seq: r.at, Next: next, Objects: objects, Entries: entries, Producers: p.states(), At: now}
	err := r.askLayer(ctx, "adopt segments", func(ctx context.Context) error { return r.o.Layer.Adopt(ctx, r.o.By, a) })
	if err != nil {
		return err
	}
	r.result.Segments += int(next - r.at)
	r.result.Bytes += size
	r.result.Entries += int64(len(entries))
	r.o.Metrics.recovered.WithLabelValues(placement).Add(float64(next - r.at))
	r.at = next
	return nil
}

// tails reads the indexes of the segments that the walk will come to, several at once, so that its time is not that of one read after another.
type tails struct {
	r     *recoverer
	ctx   context.Context
	ahead int
	wg    sync.WaitGroup
	reads map[int64]chan tail
	upTo  int64 // reads were begun below
}

type tail struct {
	found found
	err   error
}

// get gives what stands at k, and reads ahead once k is a segment. It is called by one goroutine, for rising k.
func (t *tails) get(k int64) (found, error) {
	if t.reads == nil {
		t.reads = make(map[int64]chan tail)
	}
	read, begun := t.reads[k]
	if !begun {
		t.upTo = max(t.upTo, k+1)
		f, err := t.r.readObject(t.ctx, k)
		if err == nil && f.object != nil {
			t.begin(k)
		}
		return f, err
	}
	delete(t.reads, k)
	got := <-read
	if got.err == nil && got.found.object != nil {
		t.begin(k)
	}
	return got.found, got.err
}

// ready gives the segment at k, when a read of it was begun and finds one; nil otherwise, and then get reads anew what stands there.
func (t *tails) ready(k int64) *segment.Object {
	read, begun := t.reads[k]
	if !begun {
		return nil
	}
	delete(t.reads, k)
	got := <-read
	if got.err != nil || got.found.object == nil {
		return nil
	}
	t.begin(k)
	return got.found.object
}

// begin starts the reads of the numbers after k, but for those that are known to be inline.
func (t *tails) begin(k int64) {
	for t.upTo = max(t.upTo, k+1); t.upTo <= k+int64(t.ahead); t.upTo++ {
		n := t.upTo
		if t.r.isKnownInline(n) {
			continue
		}
		read := make(chan tail, 1)
		t.reads[n] = read
		t.wg.Go(func() {
			f, err := t.r.readObject(t.ctx, n)
			read <- tail{f, err}
		})
	}
}

func (t *tails) wait() { t.wg.Wait() }
