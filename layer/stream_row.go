package layer

// StreamState is what a stream's row says of it.
type StreamState string

const (
	// StreamClosed: nobody may write to it or move its index.
	StreamClosed StreamState = "closed"
	// StreamOpen: OpenBy alone may.
	StreamOpen StreamState = "open"
	// StreamDeleting: its table is being deleted; every command refuses it.
	StreamDeleting StreamState = "deleting"
)

// StreamRow is ("stream", id). JSON.
//
// Written by CreateTable and AddBuckets, LeadBucket, LeadAgain, OpenStream, CloseStream, CloseStreamsOf, EndStream, TrimStream, CompleteTransfer and
// DeleteTable; cleared by DestroyStreams.
//
// The durable end is not in it: it is max(Start, end of the last index entry), so that packing never writes stream rows.
type StreamRow struct {
	ID          int64       `json:"id"`
	Table       int64       `json:"table"`
	Bucket      int         `json:"bucket"`
	State       StreamState `json:"state"`
	Leader      int64       `json:"leader"`           // node id, 0 = none
	LeaderEpoch int64       `json:"leader_epoch"`     // rises with every LeadBucket, LeadAgain and CompleteTransfer
	Epoch       int64       `json:"epoch"`            // leader epoch at which it was last opened, 0 = never
	OpenBy      NodeRef     `json:"open_by,omitzero"` // zero unless open (or deleting while it was open)
	Start       int64       `json:"start"`            // first offset that readers may ask for
	Ended       *int64      `json:"ended,omitempty"`  // offset at which it was ended for ever: no record follows
}
