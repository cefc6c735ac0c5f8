package layer

import (
	"context"
	"fmt"

	"github.com/varvedb/varve/layer/kv"
)

// LeaseRow is ("lease", name): who holds a lease. JSON. A lease that nobody ever held has the zero row (with its name).
//
// Written by AcquireLease (next epoch), RenewLease and ReleaseLease. It never dies: the next holder must get a higher epoch.
type LeaseRow struct {
	Name     string  `json:"name"`
	Holder   NodeRef `json:"holder,omitzero"`
	Epoch    int64   `json:"epoch"`
	Renewals int64   `json:"renewals"`
	Released bool    `json:"released,omitempty"`
}

// Ref is the tenure that the row is about.
func (r LeaseRow) Ref() LeaseRef { return LeaseRef{Name: r.Name, Holder: r.Holder, Epoch: r.Epoch} }

// Free tells whether nobody holds the lease, so that it may be taken at once.
func (r LeaseRow) Free() bool { return r.Epoch == 0 || r.Released }

// leaseRead is a lease row, and its holder's node row, that are being read to check a tenure.
type leaseRead struct {
	ref    LeaseRef
	holder nodeRead
	row    future[LeaseRow]
}

func (t *tx) lease(ref LeaseRef) leaseRead {
	return leaseRead{ref: ref, holder: t.node(ref.Holder), row: readJSON[LeaseRow](t.s, t, t.s.key(spaceLease, ref.Name))}
}

// get waits for the row, and checks that the tenure goes on and its holder is alive.
func (r leaseRead) get() (LeaseRow, error) {
	if err := r.holder.alive(); err != nil {
		return LeaseRow{}, err
	}
	row, _, err := r.row.get()
	if err != nil {
		return row, err
	}
	if row.Epoch != r.ref.Epoch || row.Holder != r.ref.Holder || row.Released {
		return row, fmt.Errorf("%w: wanted %s, found %s, released %t", ErrNotHolder, r.ref, row.Ref(), row.Released)
	}
	return row, nil
}

func (r leaseRead) held() error {
	_, err := r.get()
	return err
}

func (t *tx) setLease(row LeaseRow) { t.setJSON(t.s.key(spaceLease, row.Name), row) }

// Lease reads one row.
func (s *Store) Lease(ctx context.Context, lease string) (row LeaseRow, err error) {
	err = s.read(ctx, "read lease "+lease, func(tr kv.ReadTransaction) error {
		row, _, err = readJSON[LeaseRow](s, tr, s.key(spaceLease, lease)).get()
		row.Name = lease
		return err
	})
	return row, err
}

// AcquireLease takes a lease at its next epoch. seen is the row as the caller saw it: free, or not renewed for the TTL by the caller's own clock.
// ErrNotHolder when it is not so any more.
func (s *Store) AcquireLease(ctx context.Context, by NodeRef, lease string, seen LeaseRow) (row LeaseRow, err error) {
	if lease == "" || len(lease) > 100 {
		return row, invalid("lease name %q", lease)
	}
	err = s.transact(ctx, "acquire lease "+lease, by, func(t *tx) error {
		self, current := t.node(by), readJSON[LeaseRow](s, t, s.key(spaceLease, lease))
		if err := self.alive(); err != nil {
			return err
		}
		if row, _, err = current.get(); err != nil {
			return err
		}
		if row.Holder == by && row.Epoch == seen.Epoch+1 && !row.Released {
			return nil // an earlier run
		}
		row.Name, seen.Name = lease, lease
		if row != seen {
			return fmt.Errorf("%w: seen %s with %d renewals, found %s with %d", ErrNotHolder, seen.Ref(), seen.Renewals, row.Ref(), row.Renewals)
		}
		row = LeaseRow{Name: lease, Holder: by, Epoch: seen.Epoch + 1}
		t.setLease(row)
		t.changed(spaceLease, 0, lease, row)
		return nil
	})
	return row, err
}

// RenewLease adds one renewal. It is not logged.
func (s *Store) RenewLease(ctx context.Context, lease LeaseRef) (row LeaseRow, err error) {
	want := int64(-1)
	err = s.transact(ctx, "renew lease", lease, func(t *tx) error {
		if row, err = t.lease(lease).get(); err != nil {
			return err
		}
		if want < 0 {
			want = row.Renewals + 1
		}
		if row.Renewals < want {
			row.Renewals = want
			t.setLease(row)
		}
		return nil
	})
	return row, err
}

// ReleaseLease frees a lease so that another node need not wait. A lease that has moved on is left as it is.
// Alone among coordinator commands it does not look at the fence: a holder that is stopping frees the lease and harms nobody.
func (s *Store) ReleaseLease(ctx context.Context, lease LeaseRef) error {
	return s.transact(ctx, "release lease", lease, func(t *tx) error {
		row, _, err := readJSON[LeaseRow](s, t, s.key(spaceLease, lease.Name)).get()
		if err != nil || row.Epoch != lease.Epoch || row.Holder != lease.Holder || row.Released {
			return err
		}
		row.Released = true
		t.setLease(row)
		t.changed(spaceLease, 0, lease.Name, row)
		return nil
	})
}
