// Package model explores the WAL protocol exhaustively on a small model: one writer, recoverers, an object store, the rows in the database, and
// requests that are delayed, repeated or lost. Its tests hold in every reachable state, and find the violation when a rule is left out.
//
// The state is one uint64, so that millions of states fit; protocol_test.go is the protocol, one function per actor.
package model
