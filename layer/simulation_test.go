package layer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// chunk is a batch of records: what a simulated node appends, and what must be found again in the index.
type chunk struct {
	stream, base, end int64
	producer          int64
	tag               int // unique
}

func (c chunk) state() ProducerState {
	return producer(c.stream, c.producer, 0, ProducerBatch{FirstSeq: c.base, LastSeq: c.end - 1, Base: c.base, Last: c.end - 1})
}

// world is what lies outside the metadata: the object store, inline bytes as they were written, and what was acknowledged.
type world struct {
	store *Store

	mu      sync.Mutex // guards what follows
	objects map[string][]chunk
	seals   map[string]bool
	inline  map[string][]chunk // by segment key
	acked   map[int64][]chunk
	tags    int
	at      int // time of preparations, in seconds
}

func segmentKey(ref NodeRef, seq int64) string { return fmt.Sprintf("wal/%s/%d", ref, seq) }

// putIfAbsent stores an object unless its key is taken.
func (w *world) putIfAbsent(key string, chunks []chunk, seal bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.objects[key]; ok || w.seals[key] {
		return false
	}
	if seal {
		w.seals[key] = true
	} else {
		w.objects[key] = chunks
	}
	return true
}

func (w *world) object(key string) ([]chunk, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.objects[key]
	return c, ok
}

func (w *world) next() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tags++
	return w.tags
}

func (w *world) time() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at++
	return epochTime.Add(time.Duration(w.at) * time.Second)
}

// opened is a stream as its opener knows it.
type opened struct{ epoch, end, start int64 }

// liveSegment is a segment of a process's log that is not packed.
type liveSegment struct {
	seq    int64
	inline bool
	chunks []chunk
}

// process is one registration of a node. It may be fenced or replaced without knowing.
type process struct {
	ref     NodeRef
	first   int64 // first live
	nextSeq int64
	live    []liveSegment
	streams map[int64]*opened
	pending *Pack
	dead    bool
}

// actor is one proposer of commands: the processes of one node id, the present one and those before, which still try.
type actor struct {
	w         *world
	s         *Store
	id        int64
	random    *rand.Rand
	processes []*process
	lease     LeaseRef
	trace     []string
}

// expected are the refusals that a proposer with a stale picture must live with.
var expected = []error{
	ErrFenced, ErrReplaced, ErrNotHolder, ErrStaleLeader, ErrStreamOpen, ErrStreamNotFound, ErrTableNotFound, ErrTableExists, ErrTargetGone, ErrHeartbeatMoved,
	ErrWALMoved, ErrWALSealed, ErrWALNotSealed, ErrWALNotDone, ErrNotFenced, ErrTransferNotFound, ErrTransferPending, ErrStreamEnded, ErrNodeNotFound,
}

func (a *actor) note(format string, args ...any) {
	a.trace = append(a.trace, fmt.Sprintf("node %d: ", a.id)+fmt.Sprintf(format, args...))
}

// step does one random thing. It gives only errors that should not be.
func (a *actor) step(ctx context.Context) error {
	p := a.processes[len(a.processes)-1]
	if len(a.processes) > 1 && a.random.IntN(8) == 0 {
		p = a.processes[a.random.IntN(len(a.processes))]
	}
	actions := []struct {
		name   string
		weight int
		do     func(context.Context, *process) error
	}{
		{"restart", 1, a.restart}, {"append", 30, a.append}, {"pack", 10, a.pack}, {"open", 20, a.open}, {"close", 3, a.close}, {"trim", 1, a.trim}, {"end", 1, a.end},
		{"merge", 3, a.merge}, {"heartbeat", 2, a.heartbeat}, {"table", 2, a.table}, {"delete table", 1, a.deleteTable}, {"transfer", 2, a.transfer},
		{"lease", 3, a.takeLease}, {"fence", 3, a.fence}, {"lead", 4, a.lead}, {"recover", 10, a.recover}, {"forget log", 2, a.forgetLog}, {"destroy streams", 2, a.destroyStreams},
		{"expire", 1, a.expire}, {"clean", 3, a.clean}, {"trim log", 1, a.trimLog},
	}
	total := 0
	for _, action := range actions {
		total += action.weight
	}
	n := a.random.IntN(total)
	for _, action := range actions {
		if n -= action.weight; n < 0 {
			err := action.do(ctx, p)
			a.note("%s as %s: %v", action.name, p.ref, err)
			for _, ok := range expected {
				if errors.Is(err, ok) {
					p.dead = p.dead || errors.Is(err, ErrFenced) || errors.Is(err, ErrReplaced)
					return nil
				}
			}
			if err != nil {
				return fmt.Errorf("node %d: %s as %s: %w", a.id, action.name, p.ref, err)
			}
			return nil
		}
	}
	return nil
}

func (a *actor) restart(ctx context.Context, _ *process) error {
	// Mostly after the one before knows that it is dead.
	if last := a.processes; len(last) > 0 && !last[len(last)-1].dead && a.random.IntN(6) > 0 {
		return nil
	}
	row, wal, err := a.s.RegisterNode(ctx, NodeInfo{ID: a.id, Slots: 1}, FenceBoth, uuid.New(), uuid.New(), epochTime)
	if err != nil {
		return err
	}
	a.processes = append(a.processes, &process{ref: row.Ref(), first: wal.FirstLive, nextSeq: wal.FirstLive, streams: map[int64]*opened{}})
	return nil
}

// append writes one segment, inline or as an object, and notes what may be acknowledged.
func (a *actor) append(ctx context.Context, p *process) error {
	if len(p.streams) == 0 || len(p.live) > 6 {
		a.note("append: %d streams are open, %d segments are live", len(p.streams), len(p.live))
		return nil
	}
	var chunks []chunk
	for _, id := range slices.Sorted(maps.Keys(p.streams)) {
		if s := p.streams[id]; a.random.IntN(2) == 0 {
			n := 1 + a.random.Int64N(5)
			chunks = append(chunks, chunk{stream: id, base: s.end, end: s.end + n, producer: 1 + a.random.Int64N(2), tag: a.w.next()})
		}
	}
	if len(chunks) == 0 {
		return nil
	}
	segment := liveSegment{seq: p.nextSeq, inline: a.random.IntN(2) == 0, chunks: chunks}
	key := segmentKey(p.ref, segment.seq)
	if segment.inline {
		a.w.mu.Lock()
		a.w.inline[key] = chunks
		a.w.mu.Unlock()
		if err := a.s.PutInline(ctx, p.ref, segment.seq, []byte(key)); err != nil {
			return err
		}
	} else {
		if !a.w.putIfAbsent(key, chunks, false) {
			p.dead = true // sealed
			return nil
		}
		if err := a.s.VerifyNode(ctx, p.ref); err != nil {
			return err
		}
	}
	p.nextSeq++
	p.live = append(p.live, segment)
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for _, c := range chunks {
		p.streams[c.stream].end = c.end
		a.w.acked[c.stream] = append(a.w.acked[c.stream], c)
	}
	return nil
}

// write prepares and stores a data object of chunks, and gives its entries, one per stream.
func (a *actor) write(ctx context.Context, by NodeRef, chunks []chunk) (ObjectMeta, []ObjectEntry, error) {
	object := fmt.Sprintf("data/%d", a.w.next())
	if err := a.s.Prepare(ctx, by, []string{object}, a.w.time()); err != nil {
		return ObjectMeta{}, nil, err
	}
	a.w.putIfAbsent(object, chunks, false)
	return ObjectMeta{Object: object, Size: 1, Kind: DataObject}, entriesOf(object, chunks), nil
}

// entriesOf gives one entry per stream.
func entriesOf(object string, chunks []chunk) []ObjectEntry {
	spans := map[int64][2]int64{}
	for _, c := range chunks {
		span, ok := spans[c.stream]
		if !ok {
			span[0] = c.base
		}
		spans[c.stream] = [2]int64{min(span[0], c.base), max(span[1], c.end)}
	}
	var entries []ObjectEntry
	for _, id := range slices.Sorted(maps.Keys(spans)) {
		entries = append(entries, entry(id, spans[id][0], spans[id][1], object))
	}
	return entries
}

func statesOf(chunks []chunk) []ProducerState {
	states := map[[2]int64]ProducerState{}
	for _, c := range chunks {
		key := [2]int64{c.stream, c.producer}
		if s, ok := states[key]; ok {
			states[key] = s.merge(c.state())
		} else {
			states[key] = c.state()
		}
	}
	return slices.SortedFunc(maps.Values(states), func(x, y ProducerState) int {
		return cmp.Or(cmp.Compare(x.Stream, y.Stream), cmp.Compare(x.Producer, y.Producer))
	})
}

// pack packs some of the live segments; a pack that failed is repeated before another. It may die in the middle.
func (a *actor) pack(ctx context.Context, p *process) error {
	if p.pending == nil {
		if len(p.live) == 0 {
			return nil
		}
		if err := a.newPack(ctx, p, p.live[:1+a.random.IntN(len(p.live))]); err != nil {
			return err
		}
	}
	pack := *p.pending
	if a.random.IntN(3) == 0 {
		return a.somePart(ctx, pack)
	}
	err := a.s.CommitPack(ctx, pack)
	if errors.Is(err, ErrNotPrepared) {
		segments := slices.DeleteFunc(slices.Clone(p.live), func(s liveSegment) bool { return s.seq >= pack.Next })
		p.pending = nil
		return a.newPack(ctx, p, segments) // the same boundaries in new objects
	}
	if err != nil {
		return err
	}
	p.pending = nil
	p.first = pack.Next
	p.live = slices.DeleteFunc(p.live, func(s liveSegment) bool { return s.seq < pack.Next })
	return nil
}

// newPack packs segments into two objects, by stream.
func (a *actor) newPack(ctx context.Context, p *process, segments []liveSegment) error {
	pack := Pack{Node: p.ref, FirstLive: p.first, Next: segments[len(segments)-1].seq + 1, At: epochTime}
	var halves [2][]chunk
	var all []chunk
	for _, s := range segments {
		for _, c := range s.chunks {
			halves[c.stream%2] = append(halves[c.stream%2], c)
			all = append(all, c)
		}
		if !s.inline {
			pack.Segments = append(pack.Segments, segmentKey(p.ref, s.seq))
		}
	}
	for _, half := range halves {
		meta, entries, err := a.write(ctx, p.ref, half)
		if err != nil {
			return err
		}
		pack.Objects, pack.Entries = append(pack.Objects, meta), append(pack.Entries, entries...)
	}
	pack.Producers = statesOf(all)
	p.pending = &pack
	return nil
}

// somePart commits the first parts of a pack and leaves it there.
func (a *actor) somePart(ctx context.Context, p Pack) error {
	err := (&fixture{Store: a.s, ctx: ctx}).commitParts(p, 1+a.random.IntN(3))
	if errors.Is(err, errAlreadyDone) || errors.Is(err, ErrNotPrepared) {
		return nil
	}
	return err
}

func (a *actor) open(ctx context.Context, p *process) error {
	rows, err := a.s.Owned(ctx, p.ref.ID, a.random.Int64N(20), 3)
	if err != nil || len(rows) == 0 {
		return err
	}
	row := rows[a.random.IntN(len(rows))]
	if row.State != StreamClosed {
		return nil
	}
	if row.Epoch == row.LeaderEpoch {
		if row, err = a.s.LeadAgain(ctx, p.ref, row.ID, row.LeaderEpoch); err != nil {
			return err
		}
	}
	if row, err = a.s.OpenStream(ctx, p.ref, row.ID, row.LeaderEpoch); err != nil {
		return err
	}
	end, err := a.s.DurableEnd(ctx, row.ID)
	if err != nil {
		return err
	}
	if row.Ended == nil {
		p.streams[row.ID] = &opened{epoch: row.Epoch, end: end, start: row.Start}
	}
	return nil
}

// pick chooses one of the process's open streams.
func (a *actor) pick(p *process) (int64, *opened) {
	ids := slices.Sorted(maps.Keys(p.streams))
	if len(ids) == 0 {
		return 0, nil
	}
	id := ids[a.random.IntN(len(ids))]
	return id, p.streams[id]
}

// close adopts what a stream has in live segments, inline ones packed into one object, and closes it.
func (a *actor) close(ctx context.Context, p *process) error {
	id, s := a.pick(p)
	if s == nil {
		return nil
	}
	pack := Pack{Node: p.ref, FirstLive: p.first, Next: p.first, At: epochTime}
	var all, inline []chunk
	flush := func() error {
		if len(inline) == 0 {
			return nil
		}
		meta, entries, err := a.write(ctx, p.ref, inline)
		pack.Objects, pack.Entries = append(pack.Objects, meta), append(pack.Entries, entries...)
		inline = nil
		return err
	}
	for _, segment := range p.live {
		for _, c := range segment.chunks {
			if c.stream != id {
				continue
			}
			all = append(all, c)
			if segment.inline {
				inline = append(inline, c)
				if p.pending != nil { // whose boundaries are unknown to the index: stay on those of segments
					if err := flush(); err != nil {
						return err
					}
				}
				continue
			}
			if err := flush(); err != nil {
				return err
			}
			key := segmentKey(p.ref, segment.seq)
			pack.Objects = append(pack.Objects, ObjectMeta{Object: key, Size: 1, Kind: AdoptedSegment})
			pack.Entries = append(pack.Entries, entry(id, c.base, c.end, key))
		}
	}
	if err := flush(); err != nil {
		return err
	}
	pack.Producers = statesOf(all)
	if err := a.s.CommitPack(ctx, pack); err != nil && !errors.Is(err, ErrNotPrepared) {
		return err
	} else if err != nil {
		return nil
	}
	err := a.s.CloseStream(ctx, p.ref, id, s.epoch)
	if err == nil || errors.Is(err, ErrStreamNotFound) {
		delete(p.streams, id)
		for i := range p.live {
			p.live[i].chunks = slices.DeleteFunc(slices.Clone(p.live[i].chunks), func(c chunk) bool { return c.stream == id })
		}
	}
	return err
}

func (a *actor) trim(ctx context.Context, p *process) error {
	id, s := a.pick(p)
	if s == nil {
		return nil
	}
	row, _, err := a.s.TrimStream(ctx, p.ref, id, s.epoch, s.start+a.random.Int64N(s.end-s.start+2)/2)
	if err == nil {
		s.start = row.Start
	}
	return a.forget(p, id, err)
}

// forget drops a stream that turned out to be deleted.
func (a *actor) forget(p *process, id int64, err error) error {
	if errors.Is(err, ErrStreamNotFound) {
		delete(p.streams, id)
	}
	return err
}

func (a *actor) end(ctx context.Context, p *process) error {
	id, s := a.pick(p)
	if s == nil || a.random.IntN(8) > 0 {
		return nil
	}
	err := a.s.EndStream(ctx, p.ref, id, s.epoch, s.end)
	if err == nil {
		delete(p.streams, id) // it stays open, and is not appended to any more
	}
	return a.forget(p, id, err)
}

func (a *actor) merge(ctx context.Context, p *process) error {
	id, s := a.pick(p)
	if s == nil {
		return nil
	}
	entries, err := a.s.ObjectEntries(ctx, id, 0, 4)
	if err != nil || len(entries) < 2 {
		return err
	}
	first := a.random.IntN(len(entries) - 1)
	old := entries[first:]
	var chunks []chunk
	for _, e := range old {
		chunks = append(chunks, a.w.read(e)...)
	}
	meta, merged, err := a.write(ctx, p.ref, chunks)
	if err != nil || len(merged) != 1 {
		return err
	}
	err = a.s.MergeEntries(ctx, p.ref, id, s.epoch, old, entry(id, old[0].Base, old[len(old)-1].End, meta.Object), meta, epochTime)
	if errors.Is(err, ErrEntriesChanged) || errors.Is(err, ErrNotPrepared) {
		return nil
	}
	return a.forget(p, id, err)
}

// read gives the chunks that an index entry names.
func (w *world) read(e ObjectEntry) []chunk {
	chunks, _ := w.object(e.Object)
	var out []chunk
	for _, c := range chunks {
		if c.stream == e.Stream && c.base >= e.Base && c.end <= e.End {
			out = append(out, c)
		}
	}
	return out
}

func (a *actor) heartbeat(ctx context.Context, p *process) error {
	_, err := a.s.Heartbeat(ctx, p.ref)
	return err
}

func (a *actor) table(ctx context.Context, p *process) error {
	name := fmt.Sprintf("t%d", a.random.IntN(4))
	leaders := make([]int64, 1+a.random.IntN(5))
	for i := range leaders {
		leaders[i] = a.random.Int64N(4)
	}
	row, err := a.s.TableByName(ctx, name)
	if errors.Is(err, ErrTableNotFound) {
		_, _, err = a.s.CreateTable(ctx, p.ref, CreateTable{Name: name, UUID: uuid.New(), Kind: LogTable, Buckets: len(leaders), Leaders: leaders, RequestID: uuid.New(), At: epochTime})
		return err
	}
	if err != nil || row.Target > 12 {
		return err
	}
	if a.random.IntN(2) == 0 {
		_, err = a.s.AlterTable(ctx, p.ref, row.ID, map[string]string{"k": fmt.Sprint(a.random.IntN(3))}, nil, uuid.New())
		return err
	}
	_, _, err = a.s.AddBuckets(ctx, p.ref, row.ID, row.Target+1, leaders[:1], uuid.New())
	if errors.Is(err, ErrInvalid) {
		return nil // others added more
	}
	return err
}

func (a *actor) deleteTable(ctx context.Context, p *process) error {
	rows, err := a.s.Tables(ctx, "", 10)
	if err != nil || len(rows) < 3 || a.random.IntN(3) > 0 {
		return err
	}
	return a.s.DeleteTable(ctx, p.ref, rows[a.random.IntN(len(rows))].ID, uuid.New())
}

// transfer plans a move of an own stream, or finishes or cancels one that is planned.
func (a *actor) transfer(ctx context.Context, p *process) error {
	pending, err := a.s.Transfers(ctx)
	if err != nil {
		return err
	}
	if len(pending) > 0 && a.random.IntN(3) > 0 {
		t := pending[a.random.IntN(len(pending))]
		if a.random.IntN(3) == 0 {
			return a.s.CancelTransfer(ctx, p.ref, t)
		}
		_, err := a.s.CompleteTransfer(ctx, p.ref, t.Stream, t.LeaderEpoch)
		return err
	}
	id, s := a.pick(p)
	to := 1 + a.random.Int64N(3)
	if s == nil {
		return nil
	}
	_, err = a.s.BeginTransfer(ctx, p.ref, id, to, s.epoch, epochTime)
	if errors.Is(err, ErrInvalid) {
		return nil // to itself
	}
	return a.forget(p, id, err)
}

func (a *actor) takeLease(ctx context.Context, p *process) error {
	seen, err := a.s.Lease(ctx, CoordinatorLease)
	if err != nil {
		return err
	}
	if seen.Holder == p.ref {
		if a.random.IntN(4) == 0 {
			return a.s.ReleaseLease(ctx, a.lease)
		}
		_, err := a.s.RenewLease(ctx, a.lease)
		return err
	}
	if seen.Epoch > 0 && a.random.IntN(3) > 0 {
		return nil
	}
	row, err := a.s.AcquireLease(ctx, p.ref, CoordinatorLease, seen)
	if err == nil {
		a.lease = row.Ref()
	}
	return err
}

func (a *actor) fence(ctx context.Context, p *process) error {
	if a.random.IntN(5) == 0 {
		return a.s.FenceSelf(ctx, p.ref)
	}
	beats, err := a.s.Heartbeats(ctx)
	if err != nil {
		return err
	}
	id := 1 + a.random.Int64N(3)
	return a.s.FenceNode(ctx, a.lease, NodeRef{ID: id, Epoch: beats[id].Epoch}, beats[id].Count)
}

func (a *actor) lead(ctx context.Context, _ *process) error {
	rows, err := a.s.Owned(ctx, a.random.Int64N(4), a.random.Int64N(20), 2)
	if err != nil || len(rows) == 0 {
		return err
	}
	_, err = a.s.LeadBucket(ctx, a.lease, rows[0].ID, 1+a.random.Int64N(3), rows[0].LeaderEpoch)
	return err
}

// recover does a few steps of the takeover of some dead node epoch.
func (a *actor) recover(ctx context.Context, p *process) error {
	wals, err := a.s.WALs(ctx, 1+a.random.Int64N(3))
	if err != nil {
		return err
	}
	wals = slices.DeleteFunc(wals, func(w WALRow) bool { return w.Done })
	if len(wals) == 0 {
		return nil
	}
	dead := wals[0].Node // the oldest
	if a.random.IntN(4) == 0 {
		dead = wals[a.random.IntN(len(wals))].Node
	}
	for range 1 + a.random.IntN(4) {
		done, err := a.recoverStep(ctx, p.ref, dead, a.random.IntN(2) == 0)
		if errors.Is(err, ErrWALNotFound) {
			return nil // somebody else got on, to the end
		}
		if err != nil || done {
			return err
		}
	}
	return nil
}

// forgetLog clears the row of some log, which is refused until it is done.
func (a *actor) forgetLog(ctx context.Context, _ *process) error {
	wals, err := a.s.WALs(ctx, 1+a.random.Int64N(3))
	if err != nil || len(wals) == 0 || a.lease.Epoch == 0 {
		return err
	}
	if done := slices.IndexFunc(wals, func(w WALRow) bool { return w.Done }); done >= 0 {
		return a.s.ForgetWAL(ctx, a.lease, wals[done].Node)
	}
	return a.s.ForgetWAL(ctx, a.lease, wals[a.random.IntN(len(wals))].Node)
}

// recoverStep follows wal-protocol.md, "Recoverer".
func (a *actor) recoverStep(ctx context.Context, by, dead NodeRef, group bool) (done bool, err error) {
	if err := a.s.ConfirmFenced(ctx, dead); err != nil {
		return false, err
	}
	wal, err := a.s.WAL(ctx, dead)
	if err != nil {
		return false, err
	}
	if wal.SealedAt != nil {
		if _, more, err := a.s.CloseStreamsOf(ctx, by, dead, 2); err != nil || more {
			return false, err
		}
		return true, a.s.FinishWAL(ctx, by, dead)
	}
	limit := 1
	if group {
		limit = 1000
	}
	inline, err := a.s.InlineSegments(ctx, dead, wal.FirstLive, limit)
	if err != nil {
		return false, err
	}
	if len(inline) > 0 && inline[0].Seq == wal.FirstLive {
		return false, a.adoptInline(ctx, by, dead, inline)
	}
	key := segmentKey(dead, wal.FirstLive)
	if a.w.putIfAbsent(key, nil, true) || a.sealed(key) {
		return false, a.s.SealWAL(ctx, by, dead, wal.FirstLive)
	}
	chunks, ok := a.w.object(key)
	if !ok {
		return false, nil // destroyed meanwhile: somebody else got on
	}
	return false, a.s.Adopt(ctx, by, Adoption{
		Dead: dead, Seq: wal.FirstLive, Next: wal.FirstLive + 1, Objects: []ObjectMeta{{Object: key, Size: 1, Kind: AdoptedSegment}},
		Entries: entriesOf(key, chunks), Producers: statesOf(chunks), At: epochTime,
	})
}

func (a *actor) sealed(key string) bool {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	return a.w.seals[key]
}

// adoptInline packs a run of inline segments into one object and adopts that.
func (a *actor) adoptInline(ctx context.Context, by, dead NodeRef, inline []InlineSegment) error {
	var chunks []chunk
	next := inline[0].Seq
	for _, s := range inline {
		if s.Seq != next {
			break
		}
		a.w.mu.Lock()
		chunks = append(chunks, a.w.inline[string(s.Data)]...)
		a.w.mu.Unlock()
		next++
	}
	meta, entries, err := a.write(ctx, by, chunks)
	if err != nil {
		return err
	}
	work := Adoption{Dead: dead, Seq: inline[0].Seq, Next: next, Objects: []ObjectMeta{meta}, Entries: entries, Producers: statesOf(chunks), At: epochTime}
	err = a.s.Adopt(ctx, by, work)
	if errors.Is(err, ErrStraddles) && next > inline[0].Seq+1 {
		return a.adoptInline(ctx, by, dead, inline[:1])
	}
	if errors.Is(err, ErrNotPrepared) {
		return nil
	}
	return err
}

func (a *actor) destroyStreams(ctx context.Context, _ *process) error {
	if a.lease.Epoch == 0 {
		return nil
	}
	_, _, err := a.s.DestroyStreams(ctx, a.lease, 3)
	return err
}

func (a *actor) expire(ctx context.Context, _ *process) error {
	a.w.mu.Lock()
	before := epochTime.Add(time.Duration(a.w.at-10) * time.Second)
	a.w.mu.Unlock()
	_, err := a.s.ExpirePrepared(ctx, a.lease, before, 5)
	return err
}

// clean deletes the bytes first and the rows second.
func (a *actor) clean(ctx context.Context, _ *process) error {
	queue, err := a.s.DestroyQueue(ctx, 5, epochTime.Add(time.Hour))
	if err != nil {
		return err
	}
	a.w.mu.Lock()
	for _, d := range queue {
		delete(a.w.objects, d.Object)
	}
	a.w.mu.Unlock()
	return a.s.Destroyed(ctx, a.lease, queue)
}

func (a *actor) trimLog(ctx context.Context, _ *process) error {
	head, err := a.s.LogHead(ctx)
	if err != nil || a.random.IntN(2) == 0 {
		return err
	}
	return a.s.TrimLog(ctx, a.lease, head)
}

func newWorld(t testing.TB, s *Store) *world {
	// Small bounds, so that everything takes several transactions.
	s.bounds = bounds{buckets: 3, parts: 700, trimEntries: 2, destroyStreams: 2, destroyEntries: 2}
	w := &world{store: s, objects: map[string][]chunk{}, seals: map[string]bool{}, inline: map[string][]chunk{}, acked: map[int64][]chunk{}}
	return w
}

func newActor(t testing.TB, ctx context.Context, w *world, id int64, random *rand.Rand) *actor {
	a := &actor{w: w, s: w.store, id: id, random: random}
	require.NoError(t, a.restart(ctx, nil))
	return a
}

// drain takes every node over and cleans up, until nothing is left to do.
func (w *world) drain(t testing.TB, ctx context.Context, random *rand.Rand) {
	last := newActor(t, ctx, w, 9, random)
	p := last.processes[0]
	seen, err := w.store.Lease(ctx, CoordinatorLease)
	require.NoError(t, err)
	lease, err := w.store.AcquireLease(ctx, p.ref, CoordinatorLease, seen)
	require.NoError(t, err)
	last.lease = lease.Ref()
	nodes, err := w.store.Nodes(ctx)
	require.NoError(t, err)
	for _, n := range nodes {
		if n.ID != 9 {
			require.NoError(t, w.store.FenceSelf(ctx, n.Ref()))
		}
	}
	wals, err := w.store.WALs(ctx, 0)
	require.NoError(t, err)
	for _, wal := range wals {
		for done := wal.Done || wal.Node.ID == 9; !done; {
			done, err = last.recoverStep(ctx, p.ref, wal.Node, false)
			require.NoError(t, err)
		}
	}
	for more := true; more; {
		_, more, err = w.store.DestroyStreams(ctx, last.lease, 10)
		require.NoError(t, err)
	}
}

// verify reads every stream's records through the index: they are those acknowledged, in place, and producers are one with them.
func (w *world) verify(t testing.TB, ctx context.Context) {
	checked, acked := 0, 0
	for _, id := range slices.Sorted(maps.Keys(w.acked)) {
		acked += len(w.acked[id])
		row, err := w.store.Stream(ctx, id)
		if errors.Is(err, ErrStreamNotFound) {
			continue
		}
		require.NoError(t, err)
		entries, err := w.store.ObjectEntries(ctx, id, 0, 100000)
		require.NoError(t, err)
		found, batches := map[int64]chunk{}, map[int64][]ProducerBatch{}
		for _, e := range entries {
			next := e.Base
			for _, c := range w.read(e) {
				require.Equal(t, next, c.base, "stream %d, entry %+v", id, e)
				next = c.end
				found[c.base] = c
				batches[c.producer] = append(batches[c.producer], c.state().Batches...)
			}
			require.Equal(t, e.End, next, "stream %d: object %s of entry %+v is gone or too short", id, e.Object, e)
		}
		for _, c := range w.acked[id] {
			if c.base >= row.Start {
				require.Equal(t, c, found[c.base], "stream %d: an acknowledged batch", id)
				checked++
			}
		}
		states, err := w.store.Producers(ctx, id)
		require.NoError(t, err)
		for _, s := range states {
			// Of a stream that was trimmed, the index knows no more than the last ones.
			known := batches[s.Producer]
			n := min(len(known), MaxProducerBatches)
			require.GreaterOrEqual(t, len(s.Batches), n, "stream %d, producer %d", id, s.Producer)
			require.Truef(t, slices.Equal(known[len(known)-n:], s.Batches[len(s.Batches)-n:]), "stream %d: %+v, want %+v", id, s, known)
			delete(batches, s.Producer)
		}
		require.Empty(t, batches, "stream %d: producers without state", id)
	}
	t.Logf("%d batches were acknowledged, %d found: the others were trimmed or deleted", acked, checked)
}

// problems is what Check finds, but for leftovers.
func (s *Store) problems(ctx context.Context) ([]string, error) {
	var out []string
	err := s.Check(ctx, func(p Problem) {
		if !p.Leftover() {
			out = append(out, p.String())
		}
	})
	return out, err
}
