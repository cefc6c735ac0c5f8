package layer

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
