package layer

import (
	"context"
	"maps"

	"github.com/google/uuid"
)

// AlterTable sets and removes options. ErrTableNotFound. A repeated request changes nothing, whatever others changed meanwhile.
func (s *Store) AlterTable(ctx context.Context, by NodeRef, table int64, set map[string]string, remove []string, requestID uuid.UUID) (row TableRow, err error) {
	err = s.transact(ctx, "alter table", by, func(t *tx) error {
		self, read := t.node(by), t.table(table)
		if err := self.alive(); err != nil {
			return err
		}
		if row, err = read.active(); err != nil {
			return err
		}
		options := maps.Clone(row.Options)
		if options == nil {
			options = map[string]string{}
		}
		maps.Copy(options, set)
		for _, key := range remove {
			delete(options, key)
		}
		if err := validateOptions(row.Name, options); err != nil {
			return err
		}
		if !row.remember(requestID) {
			return nil
		}
		row.Options = options
		if len(options) == 0 {
			row.Options = nil
		}
		t.setTable(row)
		return nil
	})
	return row, err
}
