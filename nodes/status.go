package nodes

import "time"

// NodeStatus is one node as this node sees it.
type NodeStatus struct {
	ID           int64     `json:"id"`
	Epoch        int64     `json:"epoch"`
	Live         bool      `json:"live"` // not fenced
	Heartbeats   int64     `json:"heartbeats"`
	Kafka        string    `json:"kafka,omitempty"`
	HTTP         string    `json:"http,omitempty"`
	Admin        string    `json:"admin,omitempty"`
	Slots        int       `json:"slots"`
	OwnSlots     *int      `json:"own_slots,omitempty"` // what the node registered with, while slots are an operator's
	Rack         string    `json:"rack,omitempty"`
	Version      string    `json:"version,omitempty"`
	Streams      int64     `json:"streams"` // led
	Controller   bool      `json:"controller"`
	RegisteredAt time.Time `json:"registered_at"`
}

// ClusterStatus is the cluster as this node sees it, and this node's own part.
type ClusterStatus struct {
	Cluster    string       `json:"cluster"`
	Node       int64        `json:"node"`
	Epoch      int64        `json:"epoch"`
	State      string       `json:"state"`
	Reason     string       `json:"reason,omitempty"` // why it is not ready
	Controller int64        `json:"controller"`       // 0: none
	LeaseEpoch int64        `json:"lease_epoch"`
	Tables     int          `json:"tables"`
	Serving    int          `json:"serving"`             // streams open here
	Opening    int          `json:"opening"`             // streams being opened or closed here
	Heartbeat  float64      `json:"heartbeat_age"`       // seconds since this node's last heartbeat was committed
	Fence      string       `json:"wal_fence,omitempty"` // how its write-ahead log is fenced
	Nodes      []NodeStatus `json:"nodes"`
}

// BucketStatus is one stream.
type BucketStatus struct {
	Stream      int64  `json:"stream"`
	Table       string `json:"table"`
	Bucket      int    `json:"bucket"`
	State       string `json:"state"`
	Leader      int64  `json:"leader"`
	LeaderEpoch int64  `json:"leader_epoch"`
	Epoch       int64  `json:"epoch"`
	OpenBy      string `json:"open_by,omitempty"` // node epoch, such as 1@3
	Start       int64  `json:"start"`
	PackedEnd   int64  `json:"packed_end"`            // end of what the index has
	End         *int64 `json:"end,omitempty"`         // durable end, told by the leader only
	Ended       *int64 `json:"ended,omitempty"`       // offset at which the stream was ended for ever
	TransferTo  int64  `json:"transfer_to,omitempty"` // target of a pending transfer
}

// TransferStatus is one pending transfer.
type TransferStatus struct {
	Stream      int64     `json:"stream"`
	Table       string    `json:"table,omitempty"`
	Bucket      int       `json:"bucket"`
	From        int64     `json:"from"`
	To          int64     `json:"to"`
	LeaderEpoch int64     `json:"leader_epoch"`
	At          time.Time `json:"at"` // when it was asked for
}
