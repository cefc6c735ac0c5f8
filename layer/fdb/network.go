//go:build fdb

package fdb

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	apple "github.com/apple/foundationdb/bindings/go/src/fdb"

	"github.com/varvedb/varve/layer/fdb/client"
)

// Supported tells whether this binary was built with the tag fdb.
const Supported = true

// process is the one client network of this process. The client library allows one, so its state is the process's as
// well, whoever opens databases; it is the only package-level state here.
var process network

// network guards what the binding leaves unguarded: its map of open databases, and the order of library, options,
// network thread and databases.
type network struct {
	mu        sync.Mutex
	options   networkOptions     // as set before the network started
	started   bool               // options are set, and the network thread runs from the first database on
	stopped   bool               // for good
	databases map[string]*shared // by absolute path of the cluster file
}

// shared is a database handle that several Databases use.
type shared struct {
	handle apple.Database
	users  int
}

// networkOptions are the options that belong to the network.
type networkOptions struct {
	library, tlsCertificate, tlsKey, tlsCA, tlsVerifyPeers, traceDir, externalClientDirectory string
}

func networkOptionsOf(o Options) networkOptions {
	return networkOptions{
		library:                 o.Library,
		tlsCertificate:          o.TLSCertificate,
		tlsKey:                  o.TLSKey,
		tlsCA:                   o.TLSCA,
		tlsVerifyPeers:          o.TLSVerifyPeers,
		traceDir:                o.TraceDir,
		externalClientDirectory: o.ExternalClientDirectory,
	}
}

// open gives the handle of a cluster file, starting the network if need be, and counts its user. Every open is paired
// with a release of the same path, which it returns.
func (n *network) open(options Options) (string, apple.Database, error) {
	path, err := filepath.Abs(options.ClusterFile)
	if err != nil {
		return "", apple.Database{}, fmt.Errorf("%w: %w", ErrClusterFile, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.start(networkOptionsOf(options)); err != nil {
		return "", apple.Database{}, err
	}
	if open, found := n.databases[path]; found {
		open.users++
		return path, open.handle, nil
	}
	handle, err := apple.OpenDatabase(path)
	if err != nil {
		return "", apple.Database{}, libraryError("open database", err)
	}
	if options.DatacenterID != "" {
		if err := handle.Options().SetDatacenterId(options.DatacenterID); err != nil {
			handle.Close()
			return "", apple.Database{}, libraryError("set datacenter id", err)
		}
	}
	if n.databases == nil {
		n.databases = map[string]*shared{}
	}
	n.databases[path] = &shared{handle: handle, users: 1}
	return path, handle, nil
}

// release destroys the handle of path with its last user. Nothing may create transactions on it any more; those that
// exist keep what they need of it.
func (n *network) release(path string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	open := n.databases[path]
	if open.users--; open.users == 0 {
		open.handle.Close()
		delete(n.databases, path)
	}
}

// start loads the library and sets the network's options, once. A failure before the options are set leaves everything as it was.
func (n *network) start(options networkOptions) error {
	if n.stopped {
		return ErrNetworkStopped
	}
	if n.started {
		if options != n.options {
			return fmt.Errorf("%w: library, TLS, trace directory and external clients are one choice for a process", ErrNetworkOptions)
		}
		return nil
	}
	if err := client.Load(options.library); err != nil {
		return err
	}
	if err := apple.APIVersion(client.APIVersion); err != nil {
		return libraryError("select API version", err)
	}
	if err := setNetworkOptions(options); err != nil {
		return err
	}
	n.options, n.started = options, true
	return nil
}

func setNetworkOptions(options networkOptions) error {
	network := apple.Options()
	settings := []struct {
		what, value string
		set         func(string) error
	}{
		{"set TLS certificate", options.tlsCertificate, network.SetTLSCertPath},
		{"set TLS key", options.tlsKey, network.SetTLSKeyPath},
		{"set TLS CA", options.tlsCA, network.SetTLSCaPath},
		{"set TLS verify peers", options.tlsVerifyPeers, func(s string) error { return network.SetTLSVerifyPeers([]byte(s)) }},
		{"set trace directory", options.traceDir, network.SetTraceEnable},
		{"set external client directory", options.externalClientDirectory, network.SetExternalClientDirectory},
	}
	for _, setting := range settings {
		if setting.value == "" {
			continue
		}
		if err := setting.set(setting.value); err != nil {
			return fmt.Errorf("%s %q: %w", setting.what, setting.value, libraryError("network option", err))
		}
	}
	if options.traceDir != "" {
		if err := network.SetTraceFormat("json"); err != nil {
			return libraryError("set trace format", err)
		}
	}
	return nil
}

func stopNetwork() error { return process.stop() }

func (n *network) stop() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.databases) > 0 {
		return fmt.Errorf("stopping the FoundationDB network: %d databases are open", len(n.databases))
	}
	if n.stopped || !n.started {
		return nil
	}
	n.stopped = true
	if err := apple.StopNetwork(); err != nil && !errors.Is(err, apple.ErrNetworkNotStarted) {
		return libraryError("stop network", err)
	}
	return nil
}

// libraryError is an error of the binding outside of transactions.
func libraryError(op string, err error) error {
	var e apple.Error
	if errors.As(err, &e) {
		return codeError(op, e.Code, nil)
	}
	return fmt.Errorf("foundationdb: %s: %w", op, err)
}
