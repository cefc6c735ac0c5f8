// Package engine is the storage engine of one node epoch: it serves the streams that the node has open.
//
// An append is checked (producer, epoch, sequence), gets its offsets under the stream's lock and goes to the node's write-ahead log; it is
// answered when it is durable. What the log holds is served from memory (the log cache) until the packing loop has moved it into data
// objects, which are read through a block cache. Every read stops at the durable end. README.md has the invariants and the life of a record.
//
// Lock order: Engine.mu, then Stream.mu, then whatever the log locks. Nothing calls a layer, a store or a caller's function with a lock held.
package engine
