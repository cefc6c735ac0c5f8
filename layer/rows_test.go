package layer

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/varvedb/varve/layer/kv/tuple"
)

func testStore(t require.TestingT) *Store {
	s, err := New(nil, "rows")
	require.NoError(t, err)
	return s
}

var (
	anyID   = rapid.Int64Range(1, 1<<62)
	anyText = rapid.String()
	anyUUID = rapid.Custom(func(t *rapid.T) uuid.UUID {
		return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
	})
	anyRef  = rapid.Custom(func(t *rapid.T) NodeRef { return NodeRef{ID: anyID.Draw(t, "id"), Epoch: anyID.Draw(t, "epoch")} })
	anyTime = rapid.Custom(func(t *rapid.T) time.Time {
		return stamp(time.Unix(rapid.Int64Range(0, 1<<34).Draw(t, "s"), rapid.Int64Range(0, 999_999_999).Draw(t, "ns")))
	})
	anyOffset = rapid.Int64Range(0, 1<<62)
)

func optional[T any](t *rapid.T, g *rapid.Generator[T]) *T {
	if !rapid.Bool().Draw(t, "there") {
		return nil
	}
	v := g.Draw(t, "value")
	return &v
}

func roundTrip[T any](t *testing.T, draw func(*rapid.T) T) {
	t.Helper()
	var zero T
	t.Run(fmt.Sprintf("%T", zero), func(t *testing.T) {
		s := testStore(t)
		rapid.Check(t, func(t *rapid.T) {
			row := draw(t)
			b, err := encodeRow(row)
			require.NoError(t, err)
			back, err := decodeJSON[T](s, s.key("test", 1), b)
			require.NoError(t, err)
			require.Equal(t, row, back)
		})
	})
}

func TestControlRowsRoundTrip(t *testing.T) {
	roundTrip(t, func(t *rapid.T) NodeRow {
		return NodeRow{ID: anyID.Draw(t, "id"), Epoch: anyID.Draw(t, "epoch"), Fenced: rapid.Bool().Draw(t, "fenced"), Kafka: anyText.Draw(t, "kafka"), HTTP: anyText.Draw(t, "http"),
			Admin: anyText.Draw(t, "admin"), Slots: rapid.Int().Draw(t, "slots"), RegisteredAt: anyTime.Draw(t, "at"), Version: anyText.Draw(t, "version"), Rack: anyText.Draw(t, "rack"),
			OwnSlots: optional(t, rapid.Int()), RequestID: anyUUID.Draw(t, "request")}
	})
	roundTrip(t, func(t *rapid.T) HeartbeatRow {
		return HeartbeatRow{Epoch: anyID.Draw(t, "epoch"), Count: anyID.Draw(t, "count")}
	})
	roundTrip(t, func(t *rapid.T) LeaseRow {
		return LeaseRow{Name: anyText.Draw(t, "name"), Holder: rapid.OneOf(anyRef, rapid.Just(NodeRef{})).Draw(t, "holder"), Epoch: anyID.Draw(t, "epoch"),
			Renewals: anyID.Draw(t, "renewals"), Released: rapid.Bool().Draw(t, "released")}
	})
	roundTrip(t, func(t *rapid.T) TableRow {
		row := TableRow{ID: anyID.Draw(t, "id"), Name: anyText.Draw(t, "name"), UUID: anyUUID.Draw(t, "uuid"), Kind: LogTable, Buckets: rapid.Int().Draw(t, "buckets"), Target: rapid.Int().Draw(t, "target"),
			CreatedAt: anyTime.Draw(t, "at"), RequestID: anyUUID.Draw(t, "request"), State: rapid.SampledFrom([]TableState{TableActive, TableDeleting}).Draw(t, "state")}
		if m := rapid.MapOfN(anyText, anyText, 0, 5).Draw(t, "options"); len(m) > 0 {
			row.Options = m
		}
		if recent := rapid.SliceOfN(anyUUID, 0, maxRecent).Draw(t, "recent"); len(recent) > 0 {
			row.Recent = recent
		}
		return row
	})
	roundTrip(t, func(t *rapid.T) StreamRow {
		return StreamRow{ID: anyID.Draw(t, "id"), Table: anyID.Draw(t, "table"), Bucket: rapid.Int().Draw(t, "bucket"), State: rapid.SampledFrom([]StreamState{StreamClosed, StreamOpen, StreamDeleting}).Draw(t, "state"),
			Leader: anyID.Draw(t, "leader"), LeaderEpoch: anyID.Draw(t, "leader epoch"), Epoch: anyID.Draw(t, "epoch"), OpenBy: rapid.OneOf(anyRef, rapid.Just(NodeRef{})).Draw(t, "open by"),
			Start: anyOffset.Draw(t, "start"), Ended: optional(t, anyOffset)}
	})
	roundTrip(t, func(t *rapid.T) TransferRow {
		return TransferRow{Stream: anyID.Draw(t, "stream"), From: anyID.Draw(t, "from"), To: anyID.Draw(t, "to"), LeaderEpoch: anyID.Draw(t, "epoch"), At: anyTime.Draw(t, "at")}
	})
	roundTrip(t, func(t *rapid.T) WALRow {
		return WALRow{Node: anyRef.Draw(t, "node"), Incarnation: anyUUID.Draw(t, "incarnation"), Mode: rapid.SampledFrom([]FenceMode{FenceBoth, FenceStore, FenceLayer}).Draw(t, "mode"),
			FirstLive: anyID.Draw(t, "first"), SealedAt: optional(t, anyID), Done: rapid.Bool().Draw(t, "done")}
	})
	roundTrip(t, func(t *rapid.T) ObjectMeta {
		return ObjectMeta{Object: anyText.Draw(t, "object"), Size: anyID.Draw(t, "size"), Refs: anyID.Draw(t, "refs"), CreatedAt: anyTime.Draw(t, "at"),
			Kind: rapid.SampledFrom([]ObjectKind{DataObject, AdoptedSegment}).Draw(t, "kind"), Held: rapid.Bool().Draw(t, "held")}
	})
	roundTrip(t, func(t *rapid.T) PreparedRow {
		return PreparedRow{Object: anyText.Draw(t, "object"), Node: anyRef.Draw(t, "node"), At: anyTime.Draw(t, "at")}
	})
	roundTrip(t, func(t *rapid.T) Doomed {
		return Doomed{Object: anyText.Draw(t, "object"), At: anyTime.Draw(t, "at"), Reason: anyText.Draw(t, "reason")}
	})
	roundTrip(t, func(t *rapid.T) LogRecord {
		return LogRecord{Command: anyText.Draw(t, "command"), By: anyText.Draw(t, "by"), Changes: []Change{
			{Keyspace: spaceStream, ID: anyID.Draw(t, "id"), Row: json.RawMessage(`{"id":1,"s":"<&>"}`)}, {Keyspace: spaceLease, Name: anyText.Draw(t, "lease")}}}
	})
	roundTrip(t, func(t *rapid.T) CounterRow { return CounterRow{Next: anyID.Draw(t, "next")} })
	roundTrip(t, func(t *rapid.T) FormatRow { return FormatRow{Version: rapid.Int().Draw(t, "version")} })
}

func drawEntry(t *rapid.T) ObjectEntry {
	base := rapid.Int64Range(0, 1<<60).Draw(t, "base")
	return ObjectEntry{
		Stream: anyID.Draw(t, "stream"), Base: base, End: base + rapid.Int64Range(1, 1<<60).Draw(t, "length"),
		Object: rapid.StringN(1, 100, MaxObjectKey).Draw(t, "object"), Pos: anyOffset.Draw(t, "pos"), Len: anyOffset.Draw(t, "len"),
		IndexPos: anyOffset.Draw(t, "index pos"), IndexLen: anyOffset.Draw(t, "index len"), MaxTimestamp: rapid.Int64().Draw(t, "ts"), Records: anyOffset.Draw(t, "records"),
	}
}

func TestObjectEntryRoundTrip(t *testing.T) {
	s := testStore(t)
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		key, value := s.key(spaceObject, e.Stream, e.End), encodeEntry(e)
		back, err := s.decodeEntry(key, value)
		require.NoError(t, err)
		require.Equal(t, e, back)
		_, err = s.decodeEntry(key, value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")])
		require.ErrorIs(t, err, ErrCorruptRow, "cut off")
		_, err = s.decodeEntry(key, append(value, 0))
		require.ErrorIs(t, err, ErrCorruptRow, "extended")
	})
}

func drawProducer(t *rapid.T) ProducerState {
	p := ProducerState{Stream: anyID.Draw(t, "stream"), Producer: rapid.Int64().Draw(t, "producer"), Epoch: rapid.Int64().Draw(t, "epoch"), LastTimestamp: rapid.Int64().Draw(t, "ts")}
	next := int64(0)
	for range rapid.IntRange(0, MaxProducerBatches).Draw(t, "batches") {
		base := next + rapid.Int64Range(0, 1<<40).Draw(t, "gap")
		next = base + 1 + rapid.Int64Range(0, 1<<20).Draw(t, "records")
		p.Batches = append(p.Batches, ProducerBatch{FirstSeq: rapid.Int64().Draw(t, "first"), LastSeq: rapid.Int64().Draw(t, "last"), Base: base, Last: next - 1})
	}
	return p
}

func TestProducerStateRoundTrip(t *testing.T) {
	s := testStore(t)
	rapid.Check(t, func(t *rapid.T) {
		p := drawProducer(t)
		key, value := s.key(spaceProducer, p.Stream, p.Producer), encodeProducer(p)
		back, err := s.decodeProducer(key, value)
		require.NoError(t, err)
		require.Equal(t, p, back)
		_, err = s.decodeProducer(key, value[:rapid.IntRange(0, len(value)-1).Draw(t, "cut")])
		require.ErrorIs(t, err, ErrCorruptRow, "cut off")
	})
}

// The bytes of both binary rows are part of the format.
func TestBinaryRowsKnownBytes(t *testing.T) {
	e := ObjectEntry{Stream: 1, Base: 1, End: 300, Object: "ab", Pos: 2, Len: 3, IndexPos: 4, IndexLen: 5, MaxTimestamp: -1, Records: 299}
	require.Equal(t, []byte{1, 1, 2, 3, 4, 5, 1, 0xab, 2, 2, 'a', 'b'}, encodeEntry(e))
	p := ProducerState{Epoch: 1, LastTimestamp: 2, Batches: []ProducerBatch{{FirstSeq: 3, LastSeq: 4, Base: 5, Last: 6}}}
	require.Equal(t, []byte{1, 2, 4, 1, 6, 8, 5, 6}, encodeProducer(p))
}

func FuzzDecodeObjectEntry(f *testing.F) {
	s := testStore(f)
	f.Add(int64(1), int64(10), encodeEntry(ObjectEntry{End: 10, Object: "o"}))
	f.Fuzz(func(t *testing.T, stream, end int64, value []byte) {
		e, err := s.decodeEntry(s.key(spaceObject, stream, end), value)
		if err != nil {
			require.ErrorIs(t, err, ErrCorruptRow)
			require.ErrorContains(t, err, tuple.Tuple{spaceObject, stream, end}.String())
			return
		}
		back, err := s.decodeEntry(s.key(spaceObject, e.Stream, e.End), encodeEntry(e))
		require.NoError(t, err)
		require.Equal(t, e, back)
	})
}

func FuzzDecodeProducer(f *testing.F) {
	s := testStore(f)
	f.Add(int64(1), int64(10), encodeProducer(ProducerState{Batches: []ProducerBatch{{Base: 1, Last: 2}}}))
	f.Fuzz(func(t *testing.T, stream, producer int64, value []byte) {
		p, err := s.decodeProducer(s.key(spaceProducer, stream, producer), value)
		if err != nil {
			require.ErrorIs(t, err, ErrCorruptRow)
			require.ErrorContains(t, err, tuple.Tuple{spaceProducer, stream, producer}.String())
			return
		}
		back, err := s.decodeProducer(s.key(spaceProducer, p.Stream, p.Producer), encodeProducer(p))
		require.NoError(t, err)
		require.Equal(t, p, back)
	})
}

// Merging states is the same whatever the pieces, as long as they come in order, and repeats change nothing.
func TestProducerMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var batches []ProducerBatch
		for i := range rapid.IntRange(1, 12).Draw(t, "batches") {
			batches = append(batches, ProducerBatch{FirstSeq: int64(i), LastSeq: int64(i), Base: int64(i), Last: int64(i)})
		}
		state := func(from, to int) ProducerState {
			return ProducerState{Stream: 1, Producer: 1, LastTimestamp: int64(to), Batches: batches[max(from, to-MaxProducerBatches):to]}
		}
		cut := rapid.IntRange(0, len(batches)).Draw(t, "cut")
		want := state(0, len(batches))
		got := state(0, cut).merge(state(rapid.IntRange(0, cut).Draw(t, "overlap"), len(batches)))
		require.Equal(t, want, got)
		require.Equal(t, want, got.merge(want))
	})
	old, newer := producer(1, 1, 3, ProducerBatch{Base: 1, Last: 1}), producer(1, 1, 4, ProducerBatch{Base: 2, Last: 2})
	require.Equal(t, newer, old.merge(newer))
	require.Equal(t, newer, newer.merge(old))
}

func TestRowsAreBounded(t *testing.T) {
	_, err := encodeRow(TableRow{Name: string(make([]byte, maxJSONRow))})
	require.ErrorIs(t, err, ErrInvalid)
}
