package batch

import "encoding/binary"

// SetOffset writes the base offset and the leader epoch into raw, a whole batch. Both lie outside the checksum.
func SetOffset(raw []byte, base int64, leaderEpoch int32) {
	binary.BigEndian.PutUint64(raw, uint64(base))
	binary.BigEndian.PutUint32(raw[posLeaderEpoch:], uint32(leaderEpoch))
}

// SetLogAppendTime makes ms the timestamp of every record in raw, a whole batch, and computes the checksum anew.
func SetLogAppendTime(raw []byte, ms int64) {
	attributes := binary.BigEndian.Uint16(raw[posAttributes:])
	binary.BigEndian.PutUint16(raw[posAttributes:], attributes|attrLogAppendTime)
	SetMaxTimestamp(raw, ms)
}

// SetMaxTimestamp writes the largest timestamp of raw's records into its header and computes the checksum anew. Producers exist
// that leave it wrong, and look-ups by time trust it.
func SetMaxTimestamp(raw []byte, ms int64) {
	binary.BigEndian.PutUint64(raw[posMaxTime:], uint64(ms))
	binary.BigEndian.PutUint32(raw[posCRC:], checksum(raw))
}
