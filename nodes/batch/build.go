package batch

import "encoding/binary"

// Producer is the idempotent producer of a batch that is built.
type Producer struct {
	ID           int64
	Epoch        int16
	BaseSequence int32
}

// BuildOptions says what Build writes into the header beyond what the records say.
type BuildOptions struct {
	Producer *Producer // nil: not idempotent
}

// Build makes one uncompressed batch of the records, with base offset 0 and offset deltas 0, 1, 2, …; the records' own offsets are
// ignored. There must be at least one record, and the whole must stay below 2 GiB.
func Build(records []Record, opts BuildOptions) []byte {
	size := HeaderSize
	for i := range records {
		size += recordBound(&records[i])
	}
	first, last := records[0].Timestamp, records[0].Timestamp
	raw := make([]byte, HeaderSize, size)
	for i := range records {
		raw = appendRecord(raw, &records[i], first, int64(i))
		last = max(last, records[i].Timestamp)
	}
	producer := Producer{ID: NoProducer, Epoch: NoProducer, BaseSequence: NoProducer}
	if opts.Producer != nil {
		producer = *opts.Producer
	}
	be := binary.BigEndian
	be.PutUint32(raw[posLength:], uint32(len(raw)-lengthOverhead))
	be.PutUint32(raw[posLeaderEpoch:], ^uint32(0)) // -1: unknown until it is appended
	raw[posMagic] = Magic
	be.PutUint32(raw[posLastDelta:], uint32(len(records)-1))
	be.PutUint64(raw[posFirstTime:], uint64(first))
	be.PutUint64(raw[posMaxTime:], uint64(last))
	be.PutUint64(raw[posProducerID:], uint64(producer.ID))
	be.PutUint16(raw[posProducerEpoch:], uint16(producer.Epoch))
	be.PutUint32(raw[posBaseSequence:], uint32(producer.BaseSequence))
	be.PutUint32(raw[posRecords:], uint32(len(records)))
	be.PutUint32(raw[posCRC:], checksum(raw))
	return raw
}

// recordBound is an upper bound of the record's encoded size.
func recordBound(r *Record) int {
	const fixed = 1 + 5 + 10 + 5 + 5 + 5 + 5 // attributes and varints
	size := fixed + len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		size += 10 + len(h.Key) + len(h.Value)
	}
	return size
}

func appendRecord(dst []byte, r *Record, firstTimestamp, delta int64) []byte {
	timestamp := r.Timestamp - firstTimestamp
	size := 1 + varintSize(timestamp) + varintSize(delta) + bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for _, h := range r.Headers {
		size += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timestamp)
	dst = binary.AppendVarint(dst, delta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

func varintSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
