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

// Bounds of one read of the tail.
const (
	tailRecords = 64
	loadRows    = 1000
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
		err := v.Sync(ctx)
		if err == nil {
			retry = firstRetry
			err = v.waitForChange(ctx)
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

// waitForChange returns when the log goes beyond the view's position, at the latest after Poll.
func (v *View) waitForChange(ctx context.Context) error {
	v.mu.Lock()
	position := v.position
	v.mu.Unlock()
	var watch kv.Watch
	var head tuple.Versionstamp
	_, err := v.store.db.Transact(ctx, func(tr kv.Transaction) error {
		if watch != nil {
			watch.Cancel()
		}
		var err error
		head, _, err = v.store.readStamp(tr, spaceLogHead).get()
		watch = tr.Watch(v.store.key(spaceLogHead))
		return err
	})
	if watch != nil {
		defer watch.Cancel()
	}
	if err != nil || head != position {
		return err
	}
	poll, cancel := context.WithTimeout(ctx, v.options.Poll)
	defer cancel()
	if err := watch.Wait(poll); err != nil && !errors.Is(err, poll.Err()) {
		return fmt.Errorf("watch the metadata log: %w", err)
	}
	return nil
}

// Sync reads the log forward to where it ends at the time of the call, so that what the caller committed before is in the view. It fills the view
// when nobody has.
func (v *View) Sync(ctx context.Context) error {
	select {
	case <-v.tail:
		defer func() { v.tail <- struct{}{} }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if !v.Loaded() {
		return v.load(ctx)
	}
	for {
		page, err := v.readPage(ctx, v.position) // only the owner of the tail moves it
		if err != nil {
			return err
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
	}
}

// logPage is a part of the log.
type logPage struct {
	records  []LogRecord
	lost     bool // records after the position have been trimmed, or the log ends before it
	complete bool // the log ended here when it was read
}

func (v *View) readPage(ctx context.Context, position tuple.Versionstamp) (page logPage, err error) {
	err = v.store.read(ctx, "follow the metadata log", func(tr kv.ReadTransaction) error {
		headRow, trimmedRow := v.store.readStamp(tr, spaceLogHead), v.store.readStamp(tr, spaceLogTrimmed)
		records, err := v.store.readLog(tr, position, tailRecords)
		if err != nil {
			return err
		}
		head, _, err := headRow.get()
		if err != nil {
			return err
		}
		trimmed, _, err := trimmedRow.get()
		page = logPage{
			records: records, complete: len(records) < tailRecords,
			lost: compareStamps(trimmed, position) > 0 || compareStamps(head, position) < 0,
		}
		return err
	})
	return page, err
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
	for {
		page, err := v.readPage(ctx, position)
		if err != nil {
			return err
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
