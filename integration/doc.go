// Package integration tests the real binary: processes that are killed, stores that fail, clients of every kind.
package integration
