package fdb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// Defaults of Options.
const (
	DefaultClusterFile        = "/etc/foundationdb/fdb.cluster"
	DefaultTransactionTimeout = 10 * time.Second
)

// Options says how to reach a cluster. The zero value is the local cluster with the defaults below.
//
// Library, the TLS fields, TraceDir and ExternalClientDirectory belong to the client's network, which a process starts
// once: every Open of a process must give the same ones.
type Options struct {
	// ClusterFile is the path of the cluster file, DefaultClusterFile when empty. The client rewrites it when the
	// coordinators change, so it should be writable, and so should its directory.
	ClusterFile string
	// Library is the path of libfdb_c (7.3 or newer); empty means libfdb_c.so by the dynamic linker's search.
	Library string

	// TransactionTimeout bounds one attempt of a transaction, not its retries; DefaultTransactionTimeout when zero. It need
	// not be over FoundationDB's own five seconds by much. An attempt that it ends is retried, unless its commit was in flight: that is
	// kv.ErrCommitUnknown, not retried, because the commit could still land after the retry.
	TransactionTimeout time.Duration
	// RetryLimit bounds the retries of one Transact or ReadTransact; zero means that only the context does.
	RetryLimit int

	// TLSCertificate, TLSKey and TLSCA are paths of PEM files. The password of an encrypted key comes from the environment,
	// FDB_TLS_PASSWORD, which the client library reads itself.
	TLSCertificate string
	TLSKey         string
	TLSCA          string
	// TLSVerifyPeers is FoundationDB's peer verification string, "Check.Valid=1,O=Example" say.
	TLSVerifyPeers string

	// TraceDir is the directory for the client library's JSON trace files; empty means none.
	TraceDir string
	// DatacenterID is the data center that this client is in, for load balancing; empty means unknown.
	DatacenterID string
	// ExternalClientDirectory holds further libfdb_c files, for clusters of other versions (the multi-version client).
	ExternalClientDirectory string

	// Logger gets what an operator should know: which library and cluster, and an unreachable cluster. Nil discards it.
	Logger *slog.Logger
}

// withDefaults fills in what the zero value leaves open.
func (o Options) withDefaults() Options {
	if o.ClusterFile == "" {
		o.ClusterFile = DefaultClusterFile
	}
	if o.TransactionTimeout == 0 {
		o.TransactionTimeout = DefaultTransactionTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// Validate finds what is wrong with the options themselves: limits, TLS fields that go together, and files that are
// not there. The cluster file is read by Open.
func (o Options) Validate() error {
	var errs []error
	if o.TransactionTimeout < 0 {
		errs = append(errs, fmt.Errorf("transaction timeout %v is negative", o.TransactionTimeout))
	}
	if o.RetryLimit < 0 {
		errs = append(errs, fmt.Errorf("retry limit %d is negative", o.RetryLimit))
	}
	if (o.TLSCertificate == "") != (o.TLSKey == "") {
		errs = append(errs, fmt.Errorf("TLS certificate %q and TLS key %q go together", o.TLSCertificate, o.TLSKey))
	}
	errs = append(errs,
		fileExists("TLS certificate", o.TLSCertificate),
		fileExists("TLS key", o.TLSKey),
		fileExists("TLS CA", o.TLSCA),
		directoryExists("trace directory", o.TraceDir),
		directoryExists("external client directory", o.ExternalClientDirectory),
	)
	return errors.Join(errs...)
}

func fileExists(what, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if info.IsDir() {
		return fmt.Errorf("%s: %s is a directory", what, path)
	}
	return nil
}

func directoryExists(what, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: %s is not a directory", what, path)
	}
	return nil
}
