package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// FormatVersion is the newest format of the keyspaces that this binary reads and writes.
const FormatVersion = 1

// FormatRow is ("format"): which format the keyspaces have. JSON. Written by Open when there is none, and by RaiseFormat. It never dies.
//
// The rule: a change that an older binary would misread gets the next version. A binary reads every version up to its own and writes
// the one in the row; a row above its own makes Open and RegisterNode fail with ErrNewerFormat. An upgrade first replaces all binaries and then
// raises the row, which an operator does once, since there is no way back. New optional fields in JSON rows need no version.
type FormatRow struct {
	Version int `json:"version"`
}

// Format reads the row.
func (s *Store) Format(ctx context.Context) (row FormatRow, err error) {
	err = s.read(ctx, "read format", func(tr kv.ReadTransaction) error {
		row, _, err = readJSON[FormatRow](s, tr, s.key(spaceFormat)).get()
		return err
	})
	return row, err
}

// EnsureFormat writes the format row when there is none. ErrNewerFormat when a newer binary wrote it.
func (s *Store) EnsureFormat(ctx context.Context) error {
	return s.transact(ctx, "open", name("cluster "+s.cluster), func(t *tx) error {
		row, ok, err := readJSON[FormatRow](s, t, s.key(spaceFormat)).get()
		if err != nil {
			return err
		}
		if !ok {
			t.setJSON(s.key(spaceFormat), FormatRow{Version: FormatVersion})
			return nil
		}
		return s.checkFormat(row)
	})
}

func (s *Store) checkFormat(row FormatRow) error {
	if row.Version > FormatVersion {
		return fmt.Errorf("%w: cluster %q has format %d, this binary knows formats up to %d: run the version that wrote it, or a newer one",
			ErrNewerFormat, s.cluster, row.Version, FormatVersion)
	}
	if row.Version < 1 {
		return fmt.Errorf("%w: (\"format\"): version %d", ErrCorruptRow, row.Version)
	}
	return nil
}

// RaiseFormat sets the format to version, which is at most FormatVersion, once every node runs a binary that knows it. It is never lowered.
func (s *Store) RaiseFormat(ctx context.Context, version int) error {
	return s.transact(ctx, "raise format", name("operator"), func(t *tx) error {
		row, _, err := readJSON[FormatRow](s, t, s.key(spaceFormat)).get()
		if err != nil {
			return err
		}
		if err := s.checkFormat(row); err != nil {
			return err
		}
		if version > FormatVersion || version < row.Version {
			return invalid("format %d: the cluster has %d, this binary knows up to %d", version, row.Version, FormatVersion)
		}
		if version > row.Version {
			t.setJSON(s.key(spaceFormat), FormatRow{Version: version})
		}
		return nil
	})
}
