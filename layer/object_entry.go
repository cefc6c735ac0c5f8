package layer

// ObjectEntry is ("object", stream, end): the object that holds a stream's records at offsets [Base, End).
type ObjectEntry struct {
	Stream, Base, End  int64
	Object             string // key in the object store
	Pos, Len           int64  // where the stream's blocks lie in the object, bytes
	IndexPos, IndexLen int64  // where the stream's block index lies, bytes
	MaxTimestamp       int64  // ms
	Records            int64
}
