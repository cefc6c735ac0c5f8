package layer

// HeartbeatRow is ("heartbeat", id): how often a node epoch has heartbeated. JSON. Written by RegisterNode (count 0) and Heartbeat, and by nobody
// else; it lives apart from the node row so that heartbeats conflict with nothing. It never dies.
type HeartbeatRow struct {
	Epoch int64 `json:"epoch"`
	Count int64 `json:"count"`
}
