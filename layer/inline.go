package layer

// MaxChunk bounds one row of an inline segment, bytes.
const MaxChunk = 90_000

// MaxInlineSegment bounds an inline segment, bytes, so that its transaction stays under kv.TargetTransactionSize.
const MaxInlineSegment = 900_000

// InlineSegment is one segment that was stored in the database.
type InlineSegment struct {
	Seq  int64
	Data []byte
}
