package layer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/varvedb/varve/layer/kv"
	"github.com/varvedb/varve/layer/kv/tuple"
)

// stampVersion is the commit version in a versionstamp.
func stampVersion(v tuple.Versionstamp) int64 {
	return int64(binary.BigEndian.Uint64(v.Transaction[:8]))
}

// Bounds of one read of the tail: records at first, and at most when they turned out to be small, which is about a megabyte.
const (
	tailRecords    = 64
	maxTailRecords = 2048
	tailBytes      = 1 << 20
	loadRows       = 1000
)

// Backoff after a read of the log that failed.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// Run fills the view and follows the log until ctx ends, which is no error: on every change of ("log_head"), and every Poll in case that a watch
// is late. While the database is away the view stays as it is, and Run tries on.
func (v *View) Run(ctx context.Context) error {
	retry := firstRetry
	for ctx.Err() == nil {
		err := v.follow(ctx)
		if err == nil {
			retry = firstRetry
		}
		if err == nil || ctx.Err() != nil {
			continue
		}
		v.log.Warn("the metadata log could not be followed; trying again", "error", err, "after", retry)
		select {
		case <-ctx.Done():
		case <-time.After(retry):
		}
		retry = min(2*retry, lastRetry)
	}
	return nil
}

// follow reads the log forward, and returns when it has got longer, at the latest after Poll. The read and the watch are of one transaction, so that no change
// is missed between them, and the next one costs as few exchanges as can be.
func (v *View) follow(ctx context.Context) error {
	var watch kv.Watch
	cancel := func() {
		if watch != nil {
			watch.Cancel()
		}
	}
	err := v.forward(ctx, func(position tuple.Versionstamp, limit int) (page logPage, err error) {
		_, err = v.store.db.Transact(ctx, func(tr kv.Transaction) error {
			cancel()
			watch = tr.Watch(v.store.key(spaceLogHead))
			page, err = v.store.readPage(tr, position, limit)
			return err
		})
		return page, err
	})
	defer cancel()
	if err != nil || watch == nil { // rows were read, and nothing of the log yet
		return err
	}
	poll, stop := context.WithTimeout(ctx, v.options.Poll)
	defer stop()
	if err := watch.Wait(poll); err != nil && !errors.Is(err, poll.Err()) {
		return fmt.Errorf("watch the metadata log: %w", err)
	}
	return nil
}

// Sync reads the log forward to where it ends at the time of the call, so that what the caller committed before is in the view. It fills the view
// when nobody has.
func (v *View) Sync(ctx context.Context) error {
	return v.forward(ctx, func(position tuple.Versionstamp, limit int) (logPage, error) { return v.readPage(ctx, position, limit) })
}

// forward applies the pages that read gives until the log ends.
func (v *View) forward(ctx context.Context, read func(position tuple.Versionstamp, limit int) (logPage, error)) error {
	select {
	case <-v.tail:
		defer func() { v.tail <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !v.Loaded() {
		return v.load(ctx)
	}
	for limit := tailRecords; ; {
		page, err := read(v.position, limit) // only the owner of the tail moves it
		if err != nil {
			return fmt.Errorf("follow the metadata log: %w", err)
		}
		if page.lost {
			v.log.Info("the view fell behind the metadata log, or the database was restored; reading rows anew", "position", v.position.String())
			return v.load(ctx)
		}
		if err := v.applyPage(page); err != nil {
			return err
		}
		if page.complete {
			return nil
		}
		limit = page.next()
	}
}

// logPage is a part of the log.
type logPage struct {
	records  []LogRecord
	lost     bool // records after the position have been trimmed, or the log ends before it
	complete bool // the log ended here when it was read
}

// next is how many records to read after a full page, which tells how large they are.
func (p logPage) next() int {
	size := 1
	for _, record := range p.records {
		for _, c := range record.Changes {
			size += len(c.Row)
		}
	}
	return min(max(tailRecords, tailBytes*len(p.records)/size), maxTailRecords)
}

func (v *View) readPage(ctx context.Context, position tuple.Versionstamp, limit int) (page logPage, err error) {
	err = v.store.db.ReadTransact(ctx, func(tr kv.ReadTransaction) error {
		page, err = v.store.readPage(tr, position, limit)
		return err
	})
	return page, err
}

func (s *Store) readPage(tr kv.ReadTransaction, position tuple.Versionstamp, limit int) (logPage, error) {
	headRow, trimmedRow := s.readStamp(tr, spaceLogHead), s.readStamp(tr, spaceLogTrimmed)
	records, err := s.readLog(tr, position, limit)
	if err != nil {
		return logPage{}, err
	}
	head, _, err := headRow.get()
	if err != nil {
		return logPage{}, err
	}
	trimmed, _, err := trimmedRow.get()
	return logPage{
		records: records, complete: len(records) < limit,
		lost: compareStamps(trimmed, position) > 0 || compareStamps(head, position) < 0,
	}, err
}

func (v *View) applyPage(page logPage) error {
	if len(page.records) == 0 {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := applyRecords(v.rows, page.records); err != nil {
		return err
	}
	v.position = page.records[len(page.records)-1].Versionstamp
	v.notify()
	return nil
}

func applyRecords(rows *viewRows, records []LogRecord) error {
	for _, record := range records {
		for _, c := range record.Changes {
			if err := rows.apply(c, stampVersion(record.Versionstamp)); err != nil {
				return fmt.Errorf("log record %v: %w", record.Versionstamp, err)
			}
		}
	}
	return nil
}

// load reads rows from scratch, in as many transactions as it takes, and then the log from where it was before the first of them to where it is after the last:
// all rows are then as of one moment. The caller owns the tail.
func (v *View) load(ctx context.Context) error {
	position, err := v.store.LogHead(ctx)
	if err != nil {
		return err
	}
	rows := newViewRows(v.options.Node, v.options.MaxStreams)
	for _, step := range []func(context.Context, *viewRows) error{v.loadSmall, v.loadTables, v.loadOwn} {
		if err := step(ctx, rows); err != nil {
			return err
		}
	}
	for limit := tailRecords; ; {
		page, err := v.readPage(ctx, position, limit)
		if err != nil {
			return fmt.Errorf("follow the metadata log: %w", err)
		}
		if page.lost {
			return fmt.Errorf("layer: the metadata log was trimmed beyond %v while rows were read", position)
		}
		if err := applyRecords(rows, page.records); err != nil {
			return err
		}
		if len(page.records) > 0 {
			position = page.records[len(page.records)-1].Versionstamp
		}
		if page.complete {
			break
		}
		limit = page.next()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.rows, v.position, v.loaded = rows, position, true
	v.notify()
	return nil
}

// loadSmall reads nodes, leases and transfers.
func (v *View) loadSmall(ctx context.Context, rows *viewRows) error {
	s := v.store
	var nodes []NodeRow
	var leases []LeaseRow
	var transfers []TransferRow
	asOf, err := s.readAt(ctx, "load nodes, leases and transfers", func(r viewReader) error {
		var reads [3]kv.Range
		for i, space := range []string{spaceNode, spaceLease, spaceTransfer} {
			begin, end := s.span(space)
			reads[i] = r.tr.GetRange(begin, end, kv.RangeOptions{})
		}
		var err error
		if nodes, err = rangeJSON[NodeRow](s, reads[0]); err != nil {
			return err
		}
		if leases, err = rangeJSON[LeaseRow](s, reads[1]); err != nil {
			return err
		}
		transfers, err = rangeJSON[TransferRow](s, reads[2])
		return err
	})
	for _, row := range nodes {
		rows.nodes[row.ID] = dated[NodeRow]{row, asOf}
	}
	for _, row := range leases {
		rows.leases[row.Name] = dated[LeaseRow]{row, asOf}
	}
	for _, row := range transfers {
		rows.transfers[row.Stream] = dated[TransferRow]{row, asOf}
	}
	return err
}

func (v *View) loadTables(ctx context.Context, rows *viewRows) error {
	begin, end := v.store.span(spaceTable)
	for {
		var page []TableRow
		asOf, err := v.store.readAt(ctx, "load tables", func(r viewReader) (err error) {
			page, err = rangeJSON[TableRow](v.store, r.tr.GetRange(begin, end, kv.RangeOptions{Limit: loadRows}))
			return err
		})
		if err != nil {
			return err
		}
		for _, row := range page {
			rows.putTable(row, asOf)
		}
		if len(page) < loadRows {
			return nil
		}
		begin = after(v.store.key(spaceTable, page[len(page)-1].ID))
	}
}

// loadOwn reads the streams that the node leads, and those that any of its epochs has open.
func (v *View) loadOwn(ctx context.Context, rows *viewRows) error {
	if v.options.Node == 0 {
		return nil
	}
	for space, ids := range map[string]int{spaceOwned: 2, spaceOpen: 3} {
		begin, end := v.store.span(space, v.options.Node)
		for {
			var page []StreamRow
			var next []byte
			asOf, err := v.store.readAt(ctx, "load streams", func(r viewReader) (err error) {
				page, next, err = v.store.indexedPage(r.tr, begin, end, loadRows, ids)
				return err
			})
			if err != nil {
				return err
			}
			for _, row := range page {
				rows.putStream(row, asOf)
			}
			if len(page) < loadRows {
				break
			}
			begin = next
		}
	}
	return nil
}

// viewReader reads rows at one version.
type viewReader struct {
	s  *Store
	tr kv.ReadTransaction
}

// readAt is read, and tells as of which version.
func (s *Store) readAt(ctx context.Context, what string, fn func(viewReader) error) (asOf int64, err error) {
	err = s.read(ctx, what, func(tr kv.ReadTransaction) error {
		if err := fn(viewReader{s: s, tr: tr}); err != nil {
			return err
		}
		asOf, err = tr.ReadVersion()
		return err
	})
	return asOf, err
}

func (r viewReader) stream(id int64) (StreamRow, error) {
	row, ok, err := r.s.readStream(r.tr, id).get()
	if err == nil && !ok {
		err = fmt.Errorf("%w: %d", ErrStreamNotFound, id)
	}
	return row, err
}

func (r viewReader) bucket(table int64, bucket int) (StreamRow, error) {
	return r.s.streamOfBucket(r.tr, table, bucket)
}
