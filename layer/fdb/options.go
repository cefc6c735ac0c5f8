package fdb

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// DefaultTransactionTimeout is Options.TransactionTimeout when it is zero.
const DefaultTransactionTimeout = 10 * time.Second

// Options says how to reach a cluster. Only ClusterFile has to be given.
//
// Library, the TLS fields, TraceDir and ExternalClientDirectory belong to the client's network, which a process starts
// once: every Open of a process must give the same ones. The password of an encrypted TLS key comes from the environment alone, as
// FDB_TLS_PASSWORD, which the client library reads itself.
type Options struct {
	// ClusterFile is the path of the cluster file. The client rewrites it when the coordinators change, so it and its
	// directory should be writable.
	ClusterFile string `flag:"cluster-file" default:"" usage:"FoundationDB cluster file; empty for the embedded engine"`
	// Library is the path of libfdb_c, 7.3 or newer; empty means the dynamic linker's search.
	Library string `flag:"fdb-library" default:"" usage:"path of FoundationDB's client library libfdb_c, 7.3 or newer; empty for the system's"`

	// TransactionTimeout bounds one attempt of a transaction up to its commit, not its retries; zero means DefaultTransactionTimeout. An
	// attempt that it ends is retried. A commit takes as long as its caller waits: given up earlier it would have an unknown outcome, and could not be
	// retried, since it could land after the retry.
	TransactionTimeout time.Duration `flag:"fdb-transaction-timeout" default:"10s" usage:"how long one attempt of a FoundationDB transaction may take before it commits"`
	// RetryLimit bounds the retries of one transaction; zero means that only its context does.
	RetryLimit int `flag:"fdb-retry-limit" default:"0" usage:"how often a FoundationDB transaction is retried; 0 for as long as its caller waits"`

	TLSCertificate string `flag:"fdb-tls-certificate" default:"" usage:"PEM file of the client certificate for FoundationDB"`
	TLSKey         string `flag:"fdb-tls-key" default:"" usage:"PEM file of the key of the client certificate; its password comes from FDB_TLS_PASSWORD"`
	TLSCA          string `flag:"fdb-tls-ca" default:"" usage:"PEM file of the certificate authorities that FoundationDB's servers are checked against"`
	TLSVerifyPeers string `flag:"fdb-tls-verify-peers" default:"" usage:"FoundationDB's peer verification string, Check.Valid=1,O=Example say"`

	// TraceDir is the directory for the client library's JSON trace files; empty means none.
	TraceDir string `flag:"fdb-trace-dir" default:"" usage:"directory for trace files of FoundationDB's client library; empty for none"`
	// DatacenterID is the data center that this client is in, for load balancing; empty means unknown. Where several Databases use one
	// cluster file, that of the first one counts.
	DatacenterID string `flag:"fdb-datacenter-id" default:"" usage:"data center of this client, by which FoundationDB chooses servers to read from"`
	// ExternalClientDirectory holds further libfdb_c files, for clusters of other versions (the multi-version client).
	ExternalClientDirectory string `flag:"fdb-external-client-directory" default:"" usage:"directory of further libfdb_c files, to follow a FoundationDB cluster through an upgrade"`

	// Logger gets what an operator should know: which library and cluster, and an unreachable cluster. Nil discards it.
	Logger *slog.Logger
}

// withDefaults fills in what the zero value leaves open.
func (o Options) withDefaults() Options {
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
