package segment

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testHeader = Header{Kind: KindSegment, Cluster: "example", Node: 3, NodeEpoch: 7, Seq: 41, Incarnation: uuid.UUID{0: 0xc0, 6: 0x40, 8: 0x80, 15: 1}}

// sampleEntries has what the format treats differently: streams out of order, a gap, another stream epoch, a batch without producer, an HTTP
// producer, a Kafka producer whose sequence numbers wrap, and a time before 1970.
func sampleEntries() []Entry {
	none := Producer{ID: NoProducer}
	return []Entry{
		{Stream: 70, Epoch: 3, Base: 100, Last: 101, MaxTimestamp: 1_700_000_000_000, Producer: none, Data: []byte("seventy: 100 and 101")},
		{Stream: 5, Epoch: 1, Base: 0, Last: 0, MaxTimestamp: -5, Producer: Producer{ID: -9, Epoch: 2, FirstSeq: 4, LastSeq: 4}, Data: []byte("five: 0")},
		{Stream: 70, Epoch: 3, Base: 102, Last: 110, MaxTimestamp: 1_700_000_000_050, Producer: Producer{ID: 12, Epoch: 1, FirstSeq: math.MaxInt32 - 3, LastSeq: 4}, Data: []byte("seventy: 102 to 110")},
		{Stream: 70, Epoch: 3, Base: 112, Last: 112, MaxTimestamp: 1_700_000_000_040, Producer: none, Data: []byte("seventy: after a gap")},
		{Stream: 70, Epoch: 4, Base: 113, Last: 113, MaxTimestamp: 1_700_000_000_060, Producer: none, Data: []byte("seventy: reopened")},
	}
}

// randomEntries makes n batches of consecutive offsets in a few streams.
func randomEntries(random *rand.Rand, n, size int) []Entry {
	next := map[int64]int64{}
	entries := make([]Entry, n)
	for i := range entries {
		stream := random.Int64N(8) - 2
		records := random.Int64N(50)
		data := make([]byte, 1+random.IntN(size))
		for j := range data {
			data[j] = byte(random.Uint32())
		}
		e := Entry{Stream: stream, Epoch: 1, Base: next[stream], Last: next[stream] + records, MaxTimestamp: int64(random.Uint64()), Producer: Producer{ID: NoProducer}, Data: data}
		if random.IntN(2) == 0 {
			e.Producer = Producer{ID: random.Int64N(5), Epoch: random.Int64N(3), FirstSeq: int64(random.Int32()), LastSeq: int64(random.Int32())}
		}
		if random.IntN(20) == 0 {
			e.Producer = Producer{ID: math.MinInt64 + random.Int64N(2), Epoch: math.MaxInt64, FirstSeq: math.MinInt64, LastSeq: math.MaxInt64}
		}
		next[stream] = e.Last + 1 + random.Int64N(20)/19
		entries[i] = e
	}
	return entries
}

// grouped is the order in which Decode gives entries.
func grouped(entries []Entry) []Entry {
	var out []Entry
	order, _ := byStream(entries)
	for i := range entries {
		if order != nil {
			i = int(order[i])
		}
		out = append(out, entries[i])
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range 300 {
		in := randomEntries(random, random.IntN(40), 1+random.IntN(300))
		h := testHeader
		h.Node, h.NodeEpoch, h.Seq = int64(random.Uint64()), int64(random.Uint64()), int64(random.Uint64())
		h.Cluster = string(bytes.Repeat([]byte("x"), random.IntN(MaxCluster+1)))
		blockSize := 1 + random.IntN(500)
		b, parts := Encode(h, in, Options{BlockSize: blockSize})
		again, _ := Encode(h, in, Options{BlockSize: blockSize})
		require.Equal(t, b, again, "the same arguments give the same bytes")
		o, entries, err := Decode(b)
		require.NoError(t, err)
		require.Equal(t, h, o.Header)
		require.EqualValues(t, len(b), o.Size)
		require.Equal(t, parts, o.Parts)
		require.Equal(t, grouped(in), entries)
		requireParts(t, b, o, in, blockSize)
		if i%10 == 0 {
			h.Kind = KindData
			b, dataParts := Encode(h, in, Options{BlockSize: blockSize})
			o, entries, err := Decode(b)
			require.NoError(t, err)
			require.Empty(t, entries)
			require.Equal(t, dataParts, o.Parts)
			requireParts(t, b, o, in, blockSize)
		}
	}
}

// requireParts reads every part as a reader of a stream does, by its index entry alone.
func requireParts(t *testing.T, b []byte, o *Object, in []Entry, blockSize int) {
	t.Helper()
	var got, want []byte
	for _, e := range grouped(in) {
		want = append(want, e.Data...)
	}
	for _, p := range o.Parts {
		require.Equal(t, p.End-p.Base, p.Records)
		index, err := ParseIndex(b[p.IndexPos:p.IndexPos+p.IndexLen], p)
		require.NoError(t, err)
		newest := int64(math.MinInt64)
		for _, block := range index.Blocks {
			data := b[block.Pos : block.Pos+block.Len]
			require.NoError(t, CheckBlock(block, data))
			require.True(t, block.Len <= int64(blockSize) || block.Batches == 1, "a block of %d bytes with %d batches", block.Len, block.Batches)
			got = append(got, data...)
			newest = max(newest, block.MaxTimestamp)
		}
		require.Equal(t, p.MaxTimestamp, newest)
	}
	require.Equal(t, want, got)
}

func TestPartsFollowStreamEpochAndGaps(t *testing.T) {
	_, parts := Encode(testHeader, sampleEntries(), Options{})
	var got [][4]int64
	for _, p := range parts {
		got = append(got, [4]int64{p.Stream, p.Epoch, p.Base, p.End})
	}
	require.Equal(t, [][4]int64{{5, 1, 0, 1}, {70, 3, 100, 111}, {70, 3, 112, 113}, {70, 4, 113, 114}}, got)
}

func TestUnfitEntriesAreRefused(t *testing.T) {
	good := sampleEntries()[0]
	for name, edit := range map[string]func(*Entry){
		"empty": func(e *Entry) { e.Data = nil }, "negative offset": func(e *Entry) { e.Base = -1 },
		"last before base": func(e *Entry) { e.Last = e.Base - 1 }, "no offset follows": func(e *Entry) { e.Last = math.MaxInt64 },
	} {
		bad := good
		edit(&bad)
		require.Error(t, bad.Check(), name)
		require.Panics(t, func() { Encode(testHeader, []Entry{bad}, Options{}) }, name)
	}
	require.NoError(t, good.Check())
}

func samples() map[string][]byte {
	out := map[string][]byte{"seal": EncodeSeal(testHeader)}
	out["segment"], _ = Encode(testHeader, sampleEntries(), Options{BlockSize: 25})
	h := testHeader
	h.Kind, h.Seq = KindData, 0
	out["data"], _ = Encode(h, sampleEntries(), Options{BlockSize: 25})
	return out
}

// readAll reads an object in the ways in which it is read: whole, and by tail, indexes and blocks.
func readAll(b []byte, tailLen int) error {
	if _, _, err := Decode(b); err != nil {
		return err
	}
	size := int64(len(b))
	o, need, err := ParseTail(b[max(0, len(b)-tailLen):], size)
	if err == nil && o == nil {
		o, _, err = ParseTail(b[size-need:], size)
	}
	if err != nil {
		return err
	}
	for i, p := range o.Parts {
		index, err := o.Index(i)
		if err != nil {
			return err
		}
		for _, block := range index.Blocks {
			if err := CheckBlock(block, b[block.Pos:block.Pos+block.Len]); err != nil {
				return err
			}
		}
		if _, err := ParseIndex(b[p.IndexPos:p.IndexPos+p.IndexLen], p); err != nil {
			return err
		}
	}
	return nil
}

func requireCorrupt(t *testing.T, err error, what string, args ...any) {
	t.Helper()
	require.ErrorIs(t, err, ErrCorrupt, append([]any{what}, args...)...)
	named := Named(err, "some/key")
	require.ErrorContains(t, named, "some/key")
	var corrupt *CorruptError
	require.ErrorAs(t, named, &corrupt)
	require.NotEmpty(t, corrupt.Reason)
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	for name, good := range samples() {
		require.NoError(t, readAll(good, TailRead))
		for at := range good {
			for bit := range 8 {
				bad := bytes.Clone(good)
				bad[at] ^= 1 << bit
				requireCorrupt(t, readAll(bad, TailRead), "%s: byte %d bit %d", name, at, bit)
				_, entries, err := Decode(bad)
				requireCorrupt(t, err, "%s: byte %d bit %d", name, at, bit)
				require.Empty(t, entries)
			}
		}
	}
}

func TestTruncatedAndExtendedIsFound(t *testing.T) {
	for name, good := range samples() {
		for size := range good {
			requireCorrupt(t, readAll(good[:size], TailRead), "%s cut to %d", name, size)
			requireCorrupt(t, readAll(good[size+1:], TailRead), "%s without its first %d", name, size+1)
		}
		requireCorrupt(t, readAll(append(bytes.Clone(good), 0), TailRead), "%s with a byte more", name)
		requireCorrupt(t, readAll(append(bytes.Clone(good), good...), TailRead), "%s twice", name)
		requireCorrupt(t, readAll(append([]byte{0}, good...), TailRead), "%s after a byte", name)
	}
}

func TestTailMayBeReadInTwo(t *testing.T) {
	for name, good := range samples() {
		size := int64(len(good))
		whole, _, err := ParseTail(good, size)
		require.NoError(t, err)
		for n := 0; n <= len(good); n++ {
			o, need, err := ParseTail(good[len(good)-n:], size)
			require.NoError(t, err, name)
			if o == nil {
				require.Greater(t, need, int64(n))
				o, _, err = ParseTail(good[size-need:], size)
				require.NoError(t, err, name)
			}
			require.Equal(t, whole.Parts, o.Parts)
			require.Equal(t, whole.Header, o.Header)
			require.NoError(t, readAll(good, n))
		}
	}
}

func TestIndexOfAnotherPartIsFound(t *testing.T) {
	b, parts := Encode(testHeader, sampleEntries(), Options{})
	for i, p := range parts {
		for j, other := range parts {
			if i == j {
				continue
			}
			wrong := p
			wrong.IndexPos, wrong.IndexLen = other.IndexPos, other.IndexLen
			_, err := ParseIndex(b[wrong.IndexPos:wrong.IndexPos+wrong.IndexLen], wrong)
			requireCorrupt(t, err, "index of part %d for part %d", j, i)
		}
		wrong := p
		wrong.End++
		_, err := ParseIndex(b[p.IndexPos:p.IndexPos+p.IndexLen], wrong)
		requireCorrupt(t, err, "another end")
		_, err = ParseIndex(nil, p)
		requireCorrupt(t, err, "no bytes")
	}
}

// reseal makes the checksums of directory and footer good again, so that what lies behind them is parsed.
func reseal(b []byte) []byte {
	if len(b) < len(head)+footerLen {
		return b
	}
	f := b[len(b)-footerLen:]
	copy(f[footerLen-len(footMagic):], footMagic)
	copy(b, head)
	binary.LittleEndian.PutUint64(f[8:], uint64(len(b)))
	if dirLen := int(binary.LittleEndian.Uint32(f[4:])); dirLen <= len(b)-footerLen {
		binary.LittleEndian.PutUint32(f[16:], crc32.Checksum(b[len(b)-footerLen-dirLen:len(b)-footerLen], castagnoli))
	}
	binary.LittleEndian.PutUint32(f[24:], crc32.Checksum(f[:24], castagnoli))
	return b
}

func FuzzDecode(f *testing.F) {
	for _, b := range samples() {
		f.Add(b)
	}
	f.Add([]byte(head + footMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, reseal(bytes.Clone(b))} {
			o, entries, err := Decode(b)
			if err != nil {
				require.ErrorIs(t, err, ErrCorrupt)
				continue
			}
			for i := range entries {
				require.NoError(t, entries[i].Check())
			}
			for _, p := range o.Parts {
				require.True(t, p.Pos >= int64(len(head)) && p.Pos+p.Len <= o.TailPos && p.IndexPos+p.IndexLen <= o.Size)
			}
			require.NoError(t, readAll(b, 100))
		}
	})
}

func FuzzParseTail(f *testing.F) {
	for _, b := range samples() {
		f.Add(b[len(b)-60:], int64(len(b)))
		f.Add(b, int64(len(b)))
	}
	f.Fuzz(func(t *testing.T, tail []byte, size int64) {
		o, need, err := ParseTail(tail, size)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		require.True(t, (o == nil) == (need > 0) && need <= size && need <= max(MaxTail, TailRead))
		require.True(t, o != nil || need > int64(len(tail)))
	})
}

func FuzzParseIndex(f *testing.F) {
	for name, b := range samples() {
		if name == "seal" {
			continue
		}
		o, _, _ := Decode(b)
		for _, p := range o.Parts {
			f.Add(b[p.IndexPos:p.IndexPos+p.IndexLen-crcLen], p.Stream, p.Base, p.End, p.Pos, p.Len)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, stream, base, end, pos, length int64) {
		p := Part{Stream: stream, Base: base, End: end, Pos: pos, Len: length, IndexLen: int64(len(body) + crcLen)}
		if base < 0 || end <= base || pos < 0 || length < 1 || pos > MaxObject || length > MaxObject {
			return // ParseTail gives no such part
		}
		b := binary.LittleEndian.AppendUint32(bytes.Clone(body), crc32.Checksum(body, castagnoli))
		x, err := ParseIndex(b, p)
		if err != nil {
			require.ErrorIs(t, err, ErrCorrupt)
			return
		}
		at, offset := p.Pos, p.Base
		for _, block := range x.Blocks {
			require.Equal(t, [2]int64{at, offset}, [2]int64{block.Pos, block.Base})
			require.True(t, block.Len > 0 && block.End > block.Base)
			at, offset = at+block.Len, block.End
		}
		require.Equal(t, [2]int64{p.Pos + p.Len, p.End}, [2]int64{at, offset})
	})
}

func TestErrorsOfOthersKeepTheirNames(t *testing.T) {
	other := errors.New("other")
	require.Equal(t, other, Named(other, "key"))
	named := &CorruptError{Object: "first", Reason: "x"}
	require.Equal(t, error(named), Named(named, "second"))
}
