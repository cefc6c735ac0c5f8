package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

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
// DeleteTable; cleared by DestroyStreams. ("bucket", table, bucket) names the stream of a bucket, {"stream": id}, and lives as long.
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

// bucketRow is ("bucket", table, bucket).
type bucketRow struct {
	Stream int64 `json:"stream"`
}

// streamRead is a stream row that is being read.
type streamRead struct {
	id int64
	future[StreamRow]
}

func (s *Store) readStream(tr kv.ReadTransaction, id int64) streamRead {
	return streamRead{id: id, future: readJSON[StreamRow](s, tr, s.key(spaceStream, id))}
}

func (t *tx) stream(id int64) streamRead { return t.s.readStream(t, id) }

// live waits for the row of a stream that is there and not being deleted.
func (r streamRead) live() (StreamRow, error) {
	row, ok, err := r.get()
	if err == nil && (!ok || row.State == StreamDeleting) {
		err = fmt.Errorf("%w: %d", ErrStreamNotFound, r.id)
	}
	return row, err
}

// openBy waits for the row of a stream that node has open at epoch.
func (r streamRead) openBy(node NodeRef, epoch int64) (StreamRow, error) {
	row, err := r.live()
	if err == nil && (row.State != StreamOpen || row.OpenBy != node || row.Epoch != epoch) {
		err = fmt.Errorf("%w: stream %d, node %s, epoch %d: it is %s by %s at epoch %d",
			ErrStaleStream, r.id, node, epoch, row.State, row.OpenBy, row.Epoch)
	}
	return row, err
}

// setStream writes a row, its indexes and its change.
func (t *tx) setStream(old, new StreamRow) {
	t.moveOwned(old, new)
	t.setJSON(t.s.key(spaceStream, new.ID), new)
	t.changed(spaceStream, new.ID, "", new)
}

// clearStream removes a row, its indexes and its bucket.
func (t *tx) clearStream(old StreamRow) {
	t.moveOwned(old, StreamRow{})
	t.Clear(t.s.key(spaceBucket, old.Table, old.Bucket))
	t.Clear(t.s.key(spaceStream, old.ID))
	t.changed(spaceStream, old.ID, "", nil)
}

// Stream reads one row, also of a stream that is being deleted. ErrStreamNotFound.
func (s *Store) Stream(ctx context.Context, id int64) (row StreamRow, err error) {
	err = s.read(ctx, fmt.Sprintf("read stream %d", id), func(tr kv.ReadTransaction) error {
		var ok bool
		row, ok, err = s.readStream(tr, id).get()
		if err == nil && !ok {
			err = fmt.Errorf("%w: %d", ErrStreamNotFound, id)
		}
		return err
	})
	return row, err
}

// StreamOfBucket reads the row of one bucket's stream. ErrStreamNotFound.
func (s *Store) StreamOfBucket(ctx context.Context, table int64, bucket int) (row StreamRow, err error) {
	err = s.read(ctx, fmt.Sprintf("read bucket %d of table %d", bucket, table), func(tr kv.ReadTransaction) error {
		row, err = s.streamOfBucket(tr, table, bucket)
		return err
	})
	return row, err
}

func (s *Store) streamOfBucket(tr kv.ReadTransaction, table int64, bucket int) (StreamRow, error) {
	index, ok, err := readJSON[bucketRow](s, tr, s.key(spaceBucket, table, bucket)).get()
	if err != nil {
		return StreamRow{}, err
	}
	if !ok {
		return StreamRow{}, fmt.Errorf("%w: bucket %d of table %d", ErrStreamNotFound, bucket, table)
	}
	rows, err := waitStreams([]streamRead{s.readStream(tr, index.Stream)})
	if err != nil {
		return StreamRow{}, err
	}
	return rows[0], nil
}

// streamsPerRead bounds the rows of one read-only transaction.
const streamsPerRead = 1000

// Streams reads the rows of a table's streams, by bucket. Those of a large table are read in several transactions.
func (s *Store) Streams(ctx context.Context, table int64) ([]StreamRow, error) {
	var out []StreamRow
	for next := 0; ; next = out[len(out)-1].Bucket + 1 { // a table that is being deleted lacks its first ones
		var page []StreamRow
		err := s.read(ctx, fmt.Sprintf("read streams of table %d", table), func(tr kv.ReadTransaction) error {
			var err error
			page, err = s.bucketPage(tr, table, next, streamsPerRead)
			return err
		})
		if err != nil {
			return nil, err
		}
		out = append(out, page...)
		if len(page) < streamsPerRead {
			return out, nil
		}
	}
}

// bucketPage reads the streams of up to limit buckets from a given one on.
func (s *Store) bucketPage(tr kv.ReadTransaction, table int64, from, limit int) ([]StreamRow, error) {
	_, end := s.span(spaceBucket, table)
	index, err := tr.GetRange(s.key(spaceBucket, table, from), end, kv.RangeOptions{Limit: limit}).Get()
	if err != nil {
		return nil, err
	}
	reads := make([]streamRead, len(index))
	for i, row := range index {
		b, err := decodeJSON[bucketRow](s, row.Key, row.Value)
		if err != nil {
			return nil, err
		}
		reads[i] = s.readStream(tr, b.Stream)
	}
	return waitStreams(reads)
}
