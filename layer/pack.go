package layer

import "time"

// Pack is what a node commits when it has packed segments [FirstLive, Next) of its log into data objects, or adopts what a stream that it
// closes has in its segments (then Next may equal FirstLive, which leaves the log as it is).
type Pack struct {
	Node            NodeRef
	FirstLive, Next int64
	// Objects that Entries point into, with their Size and Kind: data objects must be prepared, adopted ones are segments of
	// this log at or after FirstLive.
	Objects   []ObjectMeta
	Entries   []ObjectEntry
	Producers []ProducerState // of streams in Entries, as of the end of the pack; merged into what the rows know
	Segments  []string        // keys of all segments in [FirstLive, Next) that are objects: destroyed unless adopted
	At        time.Time
}

// Adoption is what a recoverer commits for the segments [Seq, Next) of a dead node's log.
type Adoption struct {
	Dead      NodeRef
	Seq, Next int64
	Object    ObjectMeta // Object, Size and Kind; the segment object itself, or a prepared data object made of inline segments
	Entries   []ObjectEntry
	Producers []ProducerState // of the batches in these segments; merged into what the rows know
	At        time.Time
}
