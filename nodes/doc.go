// Package nodes is a stream node: its registration and heartbeats, the lease and what its holder does (failover, placement, life
// cycle), the task that opens and closes streams as the metadata says, routing, and the operations of administrators.
//
// Protocols ask a Node for a stream and get an *engine.Stream when this node leads it, else *NotLeader. README.md has the life of a
// node, the loops, the sync table, the options and how a failover reads in the log.
package nodes
