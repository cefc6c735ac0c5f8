package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/golang/snappy"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testBound = 1 << 20

// drawBytes draws null, empty and filled byte strings.
func drawBytes(t *rapid.T, label string) []byte {
	if rapid.IntRange(0, 3).Draw(t, label+" null") == 0 {
		return nil
	}
	return append([]byte{}, rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, label)...)
}

func drawRecords(t *rapid.T) []Record {
	n := rapid.IntRange(1, 20).Draw(t, "records")
	records := make([]Record, n)
	for i := range records {
		records[i] = Record{
			Offset:    int64(i),
			Timestamp: rapid.Int64Range(-1, 1<<45).Draw(t, "timestamp"),
			Key:       drawBytes(t, "key"),
			Value:     drawBytes(t, "value"),
		}
		for range rapid.IntRange(0, 3).Draw(t, "headers") {
			records[i].Headers = append(records[i].Headers, RecordHeader{
				Key:   rapid.String().Draw(t, "header key"),
				Value: drawBytes(t, "header value"),
			})
		}
	}
	return records
}

// peerBatch encodes the records by franz-go's kmsg, the independent implementation that ours must agree with.
func peerBatch(t require.TestingT, records []Record, codec kgo.CompressionCodec, change func(*kmsg.RecordBatch)) []byte {
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(records) - 1),
		FirstTimestamp: records[0].Timestamp, MaxTimestamp: records[0].Timestamp,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(records)),
	}
	for i, r := range records {
		k := kmsg.Record{TimestampDelta64: r.Timestamp - b.FirstTimestamp, OffsetDelta: int32(i), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		k.Length = int32(len(k.AppendTo(nil)) - 1) // the length of 0 that was encoded is one byte
		b.Records = k.AppendTo(b.Records)
		b.MaxTimestamp = max(b.MaxTimestamp, r.Timestamp)
	}
	compressor, err := kgo.DefaultCompressor(codec)
	require.NoError(t, err)
	if compressor != nil {
		var buffer bytes.Buffer
		out, kind := compressor.Compress(&buffer, b.Records)
		b.Records, b.Attributes = bytes.Clone(out), int16(kind)
	}
	if change != nil {
		change(&b)
	}
	b.Length = int32(len(b.Records) + HeaderSize - lengthOverhead)
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[posCRC:], crc32.Checksum(raw[posAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func only(t require.TestingT, raw []byte) Batch {
	b, rest, err := Next(raw)
	require.NoError(t, err)
	require.Empty(t, rest)
	return b
}

func TestBuildWritesWhatPeersWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t)
		raw := Build(records, BuildOptions{})
		require.Equal(t, peerBatch(t, records, kgo.NoCompression(), nil), raw)
		b := only(t, raw)
		require.NoError(t, b.Check())
		got, err := b.Records(testBound)
		require.NoError(t, err)
		require.Equal(t, records, got)
	})
}

func TestBuildWithProducer(t *testing.T) {
	b := only(t, Build([]Record{{Timestamp: 5}, {Timestamp: 3}}, BuildOptions{Producer: &Producer{ID: 77, Epoch: 2, BaseSequence: math.MaxInt32}}))
	require.NoError(t, b.Check())
	require.Equal(t, int64(77), b.ProducerID)
	require.Equal(t, int16(2), b.ProducerEpoch)
	require.Equal(t, int32(math.MaxInt32), b.BaseSequence)
	require.Equal(t, int32(0), b.LastSequence(), "sequences wrap to 0")
	require.Equal(t, int64(5), b.MaxTimestamp)
}

func codecs() map[Codec]kgo.CompressionCodec {
	return map[Codec]kgo.CompressionCodec{
		None: kgo.NoCompression(), Gzip: kgo.GzipCompression(), Snappy: kgo.SnappyCompression(),
		LZ4: kgo.Lz4Compression(), Zstd: kgo.ZstdCompression(),
	}
}

func TestRecordsOfEveryCodec(t *testing.T) {
	for codec, peer := range codecs() {
		t.Run(codec.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				records := drawRecords(t)
				// Enough of the same that compressing pays, so that no encoder falls back to none.
				records[0].Value = bytes.Repeat([]byte("varve "), 2000)
				b := only(t, peerBatch(t, records, peer, nil))
				require.Equal(t, codec, b.Codec())
				require.NoError(t, b.Check())
				summary, err := b.CheckRecords(testBound)
				require.NoError(t, err)
				require.Equal(t, b.MaxTimestamp, summary.MaxTimestamp)
				require.Equal(t, b.MaxTimestamp, records[summary.MaxDelta].Timestamp)
				got, err := b.Records(testBound)
				require.NoError(t, err)
				require.Equal(t, records, got)
				var iterated []Record
				for r, err := range b.All(testBound) {
					require.NoError(t, err)
					iterated = append(iterated, r)
				}
				require.Equal(t, records, iterated)
			})
		})
	}
}

func TestDecompressionIsBounded(t *testing.T) {
	for codec, peer := range codecs() {
		b := only(t, peerBatch(t, []Record{{Value: make([]byte, 3<<20)}}, peer, nil))
		_, err := b.Records(testBound)
		require.ErrorIs(t, err, ErrTooLarge, codec)
		_, err = b.Records(4 << 20)
		require.NoError(t, err, codec)
		if codec != None { // uncompressed records are bounded by the request that carries them
			_, err = b.CheckRecords(testBound)
			require.ErrorIs(t, err, ErrTooLarge, codec)
		}
	}
}

func TestSnappyXerialFraming(t *testing.T) {
	want := bytes.Repeat([]byte("layer"), 20000)
	framed := append(slices.Clone(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for chunk := range slices.Chunk(want, 32<<10) {
		block := snappy.Encode(nil, chunk)
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(block)))
		framed = append(framed, block...)
	}
	got, err := decompress(nil, Snappy, framed, len(want))
	require.NoError(t, err)
	require.Equal(t, want, got)

	_, err = decompress(nil, Snappy, framed, len(want)-1)
	require.ErrorIs(t, err, ErrTooLarge)
	for _, cut := range []int{9, xerialHeader + 2, len(framed) - 1} {
		_, err = decompress(nil, Snappy, framed[:cut], len(want))
		require.ErrorIs(t, err, ErrCorrupt, cut)
	}
	got, err = decompress(nil, Snappy, snappy.Encode(nil, want), len(want))
	require.NoError(t, err, "one raw block")
	require.Equal(t, want, got)
}

func TestSnappyBlockThatClaimsALot(t *testing.T) {
	_, err := decompress(nil, Snappy, binary.AppendUvarint(nil, 1<<30), 1<<31-1)
	require.ErrorIs(t, err, ErrCorrupt)
}

func TestNextTakesBatchesOneByOne(t *testing.T) {
	first, second := Build([]Record{{Value: []byte("a")}}, BuildOptions{}), Build([]Record{{}, {}}, BuildOptions{})
	b, rest, err := Next(slices.Concat(first, second))
	require.NoError(t, err)
	require.Equal(t, first, b.Raw)
	require.Equal(t, len(b.Raw), cap(b.Raw), "appending to a batch must not reach the next one")
	require.Equal(t, second, only(t, rest).Raw)
}

func TestNextRefuses(t *testing.T) {
	good := Build([]Record{{Value: []byte("a")}}, BuildOptions{})
	length := func(v uint32) []byte {
		raw := slices.Clone(good)
		binary.BigEndian.PutUint32(raw[posLength:], v)
		return raw
	}
	magic := func(v byte) []byte {
		raw := slices.Clone(good)
		raw[posMagic] = v
		return raw
	}
	cases := []struct {
		name string
		raw  []byte
		want error
	}{
		{"nothing", nil, ErrTruncated},
		{"cut in the header", good[:30], ErrTruncated},
		{"cut in the records", good[:len(good)-1], ErrTruncated},
		{"length of 2 GiB", length(math.MaxInt32), ErrCorrupt},
		{"negative length", length(math.MaxUint32), ErrCorrupt},
		{"length shorter than a header", length(HeaderSize - lengthOverhead - 1), ErrCorrupt},
		{"magic 0", magic(0), ErrMagic},
		{"magic 1", magic(1), ErrMagic},
		{"magic 3", magic(3), ErrMagic},
	}
	for _, c := range cases {
		_, _, err := Next(c.raw)
		require.ErrorIs(t, err, c.want, c.name)
	}
}

func TestCheckRefusesWhatAProducerMayNotSay(t *testing.T) {
	cases := []struct {
		name   string
		change func(*kmsg.RecordBatch)
		want   error
	}{
		{"base offset", func(b *kmsg.RecordBatch) { b.FirstOffset = 3 }, ErrInvalid},
		{"no records", func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta, b.Records = 0, -1, nil }, ErrInvalid},
		{"last offset delta", func(b *kmsg.RecordBatch) { b.LastOffsetDelta++ }, ErrInvalid},
		{"codec 5", func(b *kmsg.RecordBatch) { b.Attributes |= 5 }, ErrInvalid},
		{"control", func(b *kmsg.RecordBatch) { b.Attributes |= attrControl }, ErrInvalid},
		{"log append time", func(b *kmsg.RecordBatch) { b.Attributes |= attrLogAppendTime }, ErrTimestamp},
		{"producer without epoch", func(b *kmsg.RecordBatch) { b.ProducerID = 4 }, ErrInvalid},
		{"transaction without producer", func(b *kmsg.RecordBatch) { b.Attributes |= attrTransactional }, ErrInvalid},
	}
	for _, c := range cases {
		b := only(t, peerBatch(t, []Record{{}, {}}, kgo.NoCompression(), c.change))
		require.ErrorIs(t, b.Check(), c.want, c.name)
	}
}

func TestCheckFindsEveryFlippedByte(t *testing.T) {
	good := Build([]Record{{Key: []byte("k"), Value: []byte("v")}}, BuildOptions{})
	for i := posCRC; i < len(good); i++ {
		raw := slices.Clone(good)
		raw[i] ^= 0x10
		require.ErrorIs(t, only(t, raw).Check(), ErrCorrupt, "byte %d", i)
	}
}

func TestCheckAcceptsAnyLeaderEpoch(t *testing.T) {
	for _, epoch := range []int32{-1, 0, 9} {
		raw := Build([]Record{{}}, BuildOptions{})
		SetOffset(raw, 0, epoch)
		require.NoError(t, only(t, raw).Check())
	}
}

func TestCheckRecordsRefuses(t *testing.T) {
	record := func(delta int32) []byte {
		r := kmsg.Record{Length: 6, OffsetDelta: delta}
		return r.AppendTo(nil)
	}
	cases := []struct {
		name   string
		change func(*kmsg.RecordBatch)
		want   error
	}{
		{"more records than bytes", func(b *kmsg.RecordBatch) { b.NumRecords, b.LastOffsetDelta = math.MaxInt32, math.MaxInt32-1 }, ErrCorrupt},
		{"fewer records than said", func(b *kmsg.RecordBatch) { b.Records = record(0) }, ErrCorrupt},
		{"more records than said", func(b *kmsg.RecordBatch) { b.Records = slices.Concat(record(0), record(1), record(1)) }, ErrCorrupt},
		{"a delta twice", func(b *kmsg.RecordBatch) { b.Records = slices.Concat(record(0), record(0)) }, ErrInvalid},
		{"a gap", func(b *kmsg.RecordBatch) { b.Records = slices.Concat(record(0), record(2)) }, ErrCorrupt},
		{"not compressed as said", func(b *kmsg.RecordBatch) { b.Attributes = int16(Gzip) }, ErrCorrupt},
		{"not snappy", func(b *kmsg.RecordBatch) { b.Attributes = int16(Snappy) }, ErrCorrupt},
		{"not lz4", func(b *kmsg.RecordBatch) { b.Attributes = int16(LZ4) }, ErrCorrupt},
		{"not zstd", func(b *kmsg.RecordBatch) { b.Attributes = int16(Zstd) }, ErrCorrupt},
	}
	for _, c := range cases {
		b := only(t, peerBatch(t, []Record{{}, {}}, kgo.NoCompression(), c.change))
		require.NoError(t, b.Check(), c.name)
		_, err := b.CheckRecords(testBound)
		require.ErrorIs(t, err, c.want, c.name)
	}
}

func TestSetOffsetKeepsTheChecksum(t *testing.T) {
	raw := Build([]Record{{}, {}}, BuildOptions{})
	SetOffset(raw, 1<<40, 12)
	b := only(t, raw)
	require.NoError(t, b.CheckCRC())
	require.Equal(t, int64(1<<40), b.BaseOffset)
	require.Equal(t, int64(1<<40+1), b.LastOffset())
	require.Equal(t, int32(12), b.PartitionLeaderEpoch)
	records, err := b.Records(testBound)
	require.NoError(t, err)
	require.Equal(t, int64(1<<40+1), records[1].Offset)
}

func TestSetLogAppendTime(t *testing.T) {
	raw := Build([]Record{{Timestamp: 10}, {Timestamp: 20}}, BuildOptions{})
	SetLogAppendTime(raw, 1234)
	b := only(t, raw)
	require.NoError(t, b.CheckCRC())
	require.True(t, b.IsLogAppendTime())
	records, err := b.Records(testBound)
	require.NoError(t, err)
	for _, r := range records {
		require.Equal(t, int64(1234), r.Timestamp)
	}
}

func TestSetMaxTimestamp(t *testing.T) {
	raw := peerBatch(t, []Record{{Timestamp: 7}}, kgo.NoCompression(), func(b *kmsg.RecordBatch) { b.MaxTimestamp = -1 })
	summary, err := only(t, raw).CheckRecords(testBound)
	require.NoError(t, err)
	SetMaxTimestamp(raw, summary.MaxTimestamp)
	b := only(t, raw)
	require.NoError(t, b.Check())
	require.Equal(t, int64(7), b.MaxTimestamp)
}

func TestControlBatchIsRecognised(t *testing.T) {
	b := only(t, peerBatch(t, []Record{{Key: []byte{0, 0, 0, 1}}}, kgo.NoCompression(), func(b *kmsg.RecordBatch) {
		b.Attributes, b.ProducerID, b.ProducerEpoch = attrControl|attrTransactional, 3, 0
	}))
	require.True(t, b.IsControl())
	require.True(t, b.IsTransactional())
	require.True(t, b.HasProducer())
}

func TestNullKeysAreCounted(t *testing.T) {
	b := only(t, Build([]Record{{Key: []byte{}}, {}, {}}, BuildOptions{}))
	summary, err := b.CheckRecords(testBound)
	require.NoError(t, err)
	require.Equal(t, 2, summary.NullKeys)
	require.Equal(t, int32(1), summary.FirstNullKeys)
}

func FuzzNext(f *testing.F) {
	f.Add(Build([]Record{{Key: []byte("k")}, {Value: []byte("v"), Headers: []RecordHeader{{Key: "h"}}}}, BuildOptions{}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for rest := raw; len(rest) > 0; {
			b, after, err := Next(rest)
			if err != nil {
				known := errors.Is(err, ErrCorrupt) || errors.Is(err, ErrMagic)
				require.True(t, known, "%v", err)
				return
			}
			require.Len(t, rest, len(b.Raw)+len(after))
			_ = b.Check()
			rest = after
		}
	})
}

func FuzzRecords(f *testing.F) {
	records := []Record{{Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 300)}, {Headers: []RecordHeader{{Key: "h", Value: []byte("x")}}}}
	for codec, peer := range codecs() {
		raw := peerBatch(f, records, peer, nil)
		f.Add(int8(codec), int32(len(records)), raw[HeaderSize:])
	}
	f.Fuzz(func(t *testing.T, codec int8, count int32, payload []byte) {
		const bound = 1 << 16
		b := Batch{Header: Header{Attributes: int16(codec) & attrCodec, Records: count, LastOffsetDelta: count - 1}}
		b.Raw = append(make([]byte, HeaderSize), payload...)
		got, err := b.Records(bound)
		if err != nil {
			known := errors.Is(err, ErrCorrupt) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrTooLarge)
			require.True(t, known, "%v", err)
			return
		}
		require.Len(t, got, int(count))
		if _, err := b.CheckRecords(bound); err == nil && count > 0 {
			again, err := only(t, Build(got, BuildOptions{})).Records(1 << 20)
			require.NoError(t, err)
			require.Equal(t, got, again)
		}
	})
}

func BenchmarkCheckRecords(b *testing.B) {
	records := make([]Record, 1000)
	for i := range records {
		records[i].Value = bytes.Repeat([]byte{byte(i)}, 100)
	}
	for codec, peer := range codecs() {
		batch := only(b, peerBatch(b, records, peer, nil))
		b.Run(codec.String(), func(b *testing.B) {
			b.SetBytes(100_000)
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.CheckCRC(); err != nil {
					b.Fatal(err)
				}
				if _, err := batch.CheckRecords(1 << 20); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
