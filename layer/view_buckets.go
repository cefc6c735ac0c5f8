package layer

import "context"

// Buckets gives the streams of a table by bucket: what the view has, and the rest by a few range reads, which it then keeps as Stream does. Buckets that are
// not made yet are missing.
func (v *View) Buckets(ctx context.Context, table TableRow) ([]StreamRow, error) {
	out := make([]StreamRow, 0, table.Buckets)
	for len(out) < table.Buckets {
		out = v.knownBuckets(table, out)
		if len(out) == table.Buckets {
			break
		}
		page, err := v.fetchBuckets(ctx, table.ID, len(out))
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			break
		}
		out = append(out, page...)
	}
	return out, nil
}

// knownBuckets adds the buckets after those in out until one is not known.
func (v *View) knownBuckets(table TableRow, out []StreamRow) []StreamRow {
	v.mu.Lock()
	defer v.mu.Unlock()
	for len(out) < table.Buckets {
		row, ok := v.rows.bucket(table.ID, len(out))
		if !ok {
			break
		}
		out = append(out, row)
	}
	return out
}

// fetchBuckets reads the buckets from a given one on, as many as one read may give, and keeps them unless the log has moved on (see fetch).
func (v *View) fetchBuckets(ctx context.Context, table int64, from int) ([]StreamRow, error) {
	var page []StreamRow
	asOf, err := v.store.readAt(ctx, "read streams of a table", func(r viewReader) (err error) {
		page, err = r.s.bucketPage(r.tr, table, from, streamsPerRead)
		return err
	})
	if err != nil {
		return nil, err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if asOf >= stampVersion(v.position) {
		for _, row := range page {
			v.rows.putStream(row, asOf)
		}
	}
	return page, nil
}
