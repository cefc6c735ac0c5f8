package layer

import "time"

// TransferRow is ("transfer", stream): a planned move of a stream. JSON.
//
// Written by BeginTransfer; cleared by CompleteTransfer, CancelTransfer, LeadBucket (which overrides it) and DestroyStreams.
type TransferRow struct {
	Stream      int64     `json:"stream"`
	From        int64     `json:"from"`         // node id
	To          int64     `json:"to"`           // node id
	LeaderEpoch int64     `json:"leader_epoch"` // at which From leads
	At          time.Time `json:"at"`
}
