package layer

import "github.com/varvedb/varve/layer/kv/tuple"

// registered tells whether a node epoch was ever given out.
func (c *checkRows) registered(ref NodeRef) bool {
	row, ok := c.nodes[ref.ID]
	return ok && ref.Epoch >= 1 && ref.Epoch <= row.Epoch
}

func (c *checkRows) checkNodes() {
	for id, row := range c.nodes {
		key := tuple.Tuple{spaceNode, id}
		if row.ID != id || row.Epoch < 1 || row.Slots < 0 || row.OwnSlots != nil && *row.OwnSlots < 0 {
			c.problem("node row", key, "%+v", row)
		}
		if beat, ok := c.heartbeats[id]; !ok || beat.Epoch != row.Epoch {
			c.problem("heartbeat", key, "epoch %d, its heartbeat has epoch %d (there: %t)", row.Epoch, beat.Epoch, ok)
		}
		if _, ok := c.wals[row.Ref()]; !ok && !row.Fenced { // those of the dead are forgotten
			c.problem("log missing", key, "epoch %d is alive and has no log", row.Epoch)
		}
	}
	for id := range c.heartbeats {
		if _, ok := c.nodes[id]; !ok {
			c.problem("heartbeat", tuple.Tuple{spaceHeartbeat, id}, "of a node that never registered")
		}
	}
	for id, row := range c.leases {
		if row.Name != id || row.Epoch < 1 || !c.registered(row.Holder) {
			c.problem("lease row", tuple.Tuple{spaceLease, id}, "%+v", row)
		}
	}
}

// checkLogs: write-ahead logs and their inline rows.
func (c *checkRows) checkLogs() {
	for ref, row := range c.wals {
		key := tuple.Tuple{spaceWAL, ref.ID, ref.Epoch}
		if row.Node != ref || row.FirstLive < FirstSegment || !c.registered(ref) {
			c.problem("log row", key, "%+v", row)
		}
		node := c.nodes[ref.ID]
		if row.SealedAt != nil && (*row.SealedAt != row.FirstLive || node.Epoch == ref.Epoch && !node.Fenced) {
			c.problem("seal", key, "sealed at %d, first live %d, node at epoch %d, fenced %t", *row.SealedAt, row.FirstLive, node.Epoch, node.Fenced)
		}
		if row.Done && row.SealedAt == nil {
			c.problem("seal", key, "done and not sealed")
		}
	}
	for id := range c.inline {
		key := tuple.Tuple{spaceInline, id[0], id[1], id[2]}
		switch row, ok := c.wals[NodeRef{id[0], id[1]}]; {
		case !ok:
			c.problem("inline rows", key, "without a log")
		case row.Done:
			c.problem("inline rows", key, "of a log that is done")
		case id[2] < row.FirstLive:
			c.leftover("inline rows", key, "below the first live segment %d", row.FirstLive)
		}
	}
}

func (c *checkRows) checkTables() {
	buckets := map[int64]int{}
	for b := range c.buckets {
		buckets[b.table]++
		if _, ok := c.tables[b.table]; !ok {
			c.problem("bucket", tuple.Tuple{spaceBucket, b.table, b.bucket}, "of a table without a row")
		}
	}
	for id, row := range c.tables {
		key := tuple.Tuple{spaceTable, id}
		active := row.State == TableActive
		if row.ID != id || !active && row.State != TableDeleting || row.Target < row.Buckets {
			c.problem("table row", key, "%+v", row)
		}
		if active != (c.names[row.Name] == id) {
			c.problem("table name", key, "%s, its name %q is of table %d", row.State, row.Name, c.names[row.Name])
		}
		if active == c.deleting[id] {
			c.problem("table state", key, "%s, listed for deletion: %t", row.State, c.deleting[id])
		}
		if n := buckets[id]; active && n != row.Buckets || n > row.Buckets {
			c.problem("buckets", key, "%s with %d buckets, %d are there", row.State, row.Buckets, n)
		}
	}
	for table, id := range c.names {
		if row := c.tables[id]; row.Name != table {
			c.problem("table name", tuple.Tuple{spaceTableName, table}, "of table %d, whose name is %q", id, row.Name)
		}
	}
	for id := range c.deleting {
		if _, ok := c.tables[id]; !ok {
			c.problem("table state", tuple.Tuple{spaceDeleting, id}, "without a table row")
		}
	}
}

func (c *checkRows) checkStreams() {
	for id, row := range c.streams {
		key := tuple.Tuple{spaceStream, id}
		if row.ID != id || row.LeaderEpoch < 1 || row.Epoch > row.LeaderEpoch || row.Start < 0 || row.Leader < 0 {
			c.problem("stream row", key, "%+v", row)
		}
		if c.buckets[bucketKey{row.Table, row.Bucket}] != id {
			c.problem("bucket", key, "bucket %d of table %d is stream %d", row.Bucket, row.Table, c.buckets[bucketKey{row.Table, row.Bucket}])
		}
		if row.State == StreamDeleting && c.tables[row.Table].State != TableDeleting {
			c.problem("stream state", key, "deleting, its table is %q", c.tables[row.Table].State)
		}
		c.checkOpener(key, row)
	}
	for b, id := range c.buckets {
		if row := c.streams[id]; row.Table != b.table || row.Bucket != b.bucket {
			c.problem("bucket", tuple.Tuple{spaceBucket, b.table, b.bucket}, "names stream %d, which is of table %d, bucket %d", id, row.Table, row.Bucket)
		}
	}
	for id, row := range c.transfers {
		if stream := c.streams[id]; row.Stream != id || stream.Leader != row.From || stream.LeaderEpoch != row.LeaderEpoch {
			c.problem("transfer", tuple.Tuple{spaceTransfer, id}, "%+v, the stream is led by %d at %d", row, stream.Leader, stream.LeaderEpoch)
		}
	}
}

// checkOpener: an open stream has one opener, a registered node epoch whose log has not ended.
func (c *checkRows) checkOpener(key tuple.Tuple, row StreamRow) {
	switch row.State {
	case StreamOpen:
		if log, ok := c.wals[row.OpenBy]; row.Epoch < 1 || !c.registered(row.OpenBy) || !ok || log.Done {
			c.problem("opener", key, "open by %s at epoch %d, whose log is done: %t (row there: %t)", row.OpenBy, row.Epoch, log.Done, ok)
		}
	case StreamClosed:
		if !row.OpenBy.IsZero() {
			c.problem("opener", key, "closed and open by %s", row.OpenBy)
		}
	case StreamDeleting:
	default:
		c.problem("stream state", key, "%q", row.State)
	}
}

// checkIndexes: owned and open are what the stream rows say, load counts owned.
func (c *checkRows) checkIndexes() {
	loads := map[int64]int64{}
	for id, row := range c.streams {
		loads[row.Leader]++
		if !c.owned[[2]int64{row.Leader, id}] {
			c.problem("owned index", tuple.Tuple{spaceStream, id}, "not listed under its leader %d", row.Leader)
		}
		if !row.OpenBy.IsZero() && !c.open[[3]int64{row.OpenBy.ID, row.OpenBy.Epoch, id}] {
			c.problem("open index", tuple.Tuple{spaceStream, id}, "not listed under its opener %s", row.OpenBy)
		}
	}
	for o := range c.owned {
		if row, ok := c.streams[o[1]]; !ok || row.Leader != o[0] {
			c.problem("owned index", tuple.Tuple{spaceOwned, o[0], o[1]}, "the stream is led by %d (there: %t)", row.Leader, ok)
		}
	}
	for o := range c.open {
		if row, ok := c.streams[o[2]]; !ok || row.OpenBy != (NodeRef{o[0], o[1]}) {
			c.problem("open index", tuple.Tuple{spaceOpen, o[0], o[1], o[2]}, "the stream is open by %s (there: %t)", row.OpenBy, ok)
		}
	}
	for node, n := range c.loads {
		if loads[node] != n {
			c.problem("load", tuple.Tuple{spaceLoad, node}, "%d, the node leads %d streams", n, loads[node])
		}
	}
	for node, n := range loads {
		if _, ok := c.loads[node]; !ok {
			c.problem("load", tuple.Tuple{spaceLoad, node}, "missing, the node leads %d streams", n)
		}
	}
}

// checkEntries: a stream's index goes from at or below its start to its durable end without gap or overlap.
func (c *checkRows) checkEntries() {
	for id, entries := range c.entries {
		row, ok := c.streams[id]
		if !ok {
			c.problem("entries", tuple.Tuple{spaceObject, id}, "%d entries of a stream without a row", len(entries))
			continue
		}
		if first := entries[0]; first.Base > row.Start && row.State != StreamDeleting {
			c.problem("entries", tuple.Tuple{spaceObject, id, first.End}, "begins at %d, the stream starts at %d", first.Base, row.Start)
		}
		for i, e := range entries[1:] {
			if e.Base != entries[i].End {
				c.problem("entries", tuple.Tuple{spaceObject, id, e.End}, "begins at %d, the one before ends at %d", e.Base, entries[i].End)
			}
		}
		last := entries[len(entries)-1]
		if last.End < row.Start {
			c.problem("entries", tuple.Tuple{spaceObject, id, last.End}, "the last one ends below the start %d of the stream", row.Start)
		}
		if row.Ended != nil && last.End > *row.Ended {
			c.problem("entries", tuple.Tuple{spaceObject, id, last.End}, "beyond the end %d of the stream", *row.Ended)
		}
	}
}

// checkObjects: references are counted right, and something keeps every object that is known.
func (c *checkRows) checkObjects() {
	refs := map[string]int64{}
	for _, entries := range c.entries {
		for _, e := range entries {
			refs[e.Object]++
		}
	}
	for object, n := range refs {
		key := tuple.Tuple{spaceMeta, object}
		meta, ok := c.metas[object]
		if !ok || meta.Refs != n {
			c.problem("references", key, "%d entries point into it, %d are counted (row there: %t)", n, meta.Refs, ok)
		}
	}
	for object, meta := range c.metas {
		key := tuple.Tuple{spaceMeta, object}
		if meta.Refs != refs[object] && refs[object] == 0 {
			c.problem("references", key, "%d counted, no entry points into it", meta.Refs)
		}
		if meta.Refs == 0 && !meta.Held {
			c.problem("references", key, "nothing keeps it and it is not in the destroy queue")
		}
		if c.doomed[object] {
			c.problem("destroy queue", key, "referenced %d times and queued for destruction", meta.Refs)
		}
		if meta.Object != object || meta.Kind != DataObject && meta.Kind != AdoptedSegment || meta.Held && meta.Kind != AdoptedSegment {
			c.problem("object row", key, "%+v", meta)
		}
	}
	for object, row := range c.prepared {
		if row.Object != object || !c.registered(row.Node) {
			c.problem("prepared row", tuple.Tuple{spacePrepared, object}, "%+v", row)
		}
	}
}

// checkProducers: the batches of a closed stream's producers are in its index. While a stream is open a commit in parts may be under way, whose
// first part writes states and whose later ones bring the index up to them.
func (c *checkRows) checkProducers() {
	for _, p := range c.producers {
		key := tuple.Tuple{spaceProducer, p.Stream, p.Producer}
		row, ok := c.streams[p.Stream]
		if !ok {
			c.problem("producer", key, "of a stream without a row")
			continue
		}
		durable := row.Start
		if entries := c.entries[p.Stream]; len(entries) > 0 {
			durable = max(durable, entries[len(entries)-1].End)
		}
		if n := len(p.Batches); n > 0 && row.State == StreamClosed && p.Batches[n-1].Last >= durable {
			c.problem("producer", key, "its last batch ends at %d, the durable end is %d", p.Batches[n-1].Last, durable)
		}
	}
}

func (c *checkRows) checkRest() {
	if !c.format {
		c.problem("format", tuple.Tuple{spaceFormat}, "missing")
	}
	for id := range c.tables {
		if id >= c.counters["table"] {
			c.problem("counter", tuple.Tuple{spaceCounter, "table"}, "is %d, table %d exists", c.counters["table"], id)
		}
	}
	for id := range c.streams {
		if id >= c.counters["stream"] {
			c.problem("counter", tuple.Tuple{spaceCounter, "stream"}, "is %d, stream %d exists", c.counters["stream"], id)
		}
	}
	if compareStamps(c.lastLog, c.head) > 0 {
		c.problem("log head", tuple.Tuple{spaceLogHead}, "is %v, the last record is %v", c.head, c.lastLog)
	}
	if compareStamps(c.trimmed, c.head) > 0 {
		c.problem("log trim", tuple.Tuple{spaceLogTrimmed}, "is %v, the head is %v", c.trimmed, c.head)
	}
}
