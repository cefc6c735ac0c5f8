// Package fdb is the metadata engine over FoundationDB: kv.Database on Apple's Go binding at API version 730.
//
// It is built with the tag fdb and a C compiler (see Makefile.inc), and it opens the client library libfdb_c at run time
// (see client), so that the binary needs no FoundationDB to start. Without the tag Open says so and nothing else works;
// options, cluster files and the error table are the same in both.
//
// The binding blocks and knows no context. The engine bounds every transaction by its context, by
// Options.TransactionTimeout for each attempt, and by Close: whichever ends first cancels the C transaction, which makes
// every read that waits on it return. See README.md for what is bounded how and for the table of error codes.
package fdb
