// Package wiring makes a process of the parts: configuration, listeners, the graph of components, and the order in which they start and
// stop.
package wiring

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/varvedb/varve/http/streams"
	"github.com/varvedb/varve/kafka"
	"github.com/varvedb/varve/layer/fdb"
	"github.com/varvedb/varve/nodes"
	"github.com/varvedb/varve/ops"
	"github.com/varvedb/varve/ops/settings"
	"github.com/varvedb/varve/wal/objects/open"
)

// Config is everything that `varve serve` can be told.
type Config struct {
	Process Process
	Node    nodes.Options
	Kafka   kafka.Options
	HTTP    streams.Options
	FDB     fdb.Options
	Log     ops.LogOptions
}

// Process is what the process itself is told; the rest of Config belongs to its parts.
type Process struct {
	Cluster  string `flag:"cluster" default:"varve" usage:"name of the cluster: letters, digits, '.', '_' and '-'"`
	Subspace string `flag:"subspace" default:"" usage:"string below which all keys lie, as the first element of their tuples, in a database that other applications use; empty for none; the same on every node, for ever"`
	DataDir  string `flag:"data-dir" default:"./varve-data" usage:"directory of the embedded metadata, of objects when there is no --storage, and of listeners.json"`
	Storage  string `flag:"storage" default:"" usage:"object store: s3://bucket/prefix?region=…&endpoint=…&pathStyle=true, or file:///directory; empty for a directory in the data directory"`

	MetadataSocket string `flag:"metadata-socket" default:"" usage:"unix socket on which another process of this machine serves the embedded metadata, as varve dev does; for development and tests only"`

	KafkaListen    string `flag:"kafka-listen" default:"127.0.0.1:9092" usage:"host:port that Kafka is served on; port 0 chooses one, empty serves none"`
	HTTPListen     string `flag:"http-listen" default:"127.0.0.1:4437" usage:"host:port that streams are served on over HTTP; port 0 chooses one, empty serves none"`
	AdminListen    string `flag:"admin-listen" default:"127.0.0.1:9090" usage:"host:port of health, metrics and the admin API; port 0 chooses one, empty serves none"`
	KafkaAdvertise string `flag:"kafka-advertise" default:"" usage:"host:port that Kafka clients are told to connect to; empty for the one listened on"`
	HTTPAdvertise  string `flag:"http-advertise" default:"" usage:"host:port that HTTP clients are redirected to; empty for the one listened on"`
	AdminAdvertise string `flag:"admin-advertise" default:"" usage:"host:port of the admin API for the other nodes; empty for the one listened on"`

	ShutdownTimeout time.Duration `flag:"shutdown-timeout" default:"10s" usage:"how long requests in flight, and then the closing of streams, may take when the process stops"`
}

// DefaultConfig is the configuration of `varve serve` without a flag.
func DefaultConfig() Config { return settings.Default[Config]() }

var clusterName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// maxSubspace bounds the subspace, bytes: every key has it.
const maxSubspace = 100

// Validate names everything in the configuration that cannot work.
func (c Config) Validate() error {
	errs := []error{c.Log.Validate(), c.Node.Validate(), c.Kafka.Validate(), c.HTTP.Validate()}
	p := c.Process
	if !clusterName.MatchString(p.Cluster) {
		errs = append(errs, fmt.Errorf("cluster %q: want 1 to 64 letters, digits, '.', '_' and '-'", p.Cluster))
	}
	if len(p.Subspace) > maxSubspace || !utf8.ValidString(p.Subspace) {
		errs = append(errs, fmt.Errorf("subspace %.120q: want UTF-8 text of %d bytes at most", p.Subspace, maxSubspace))
	}
	if p.DataDir == "" {
		errs = append(errs, errors.New("data-dir is empty"))
	}
	for _, address := range []struct{ flag, value string }{
		{"kafka-listen", p.KafkaListen}, {"http-listen", p.HTTPListen}, {"admin-listen", p.AdminListen},
		{"kafka-advertise", p.KafkaAdvertise}, {"http-advertise", p.HTTPAdvertise}, {"admin-advertise", p.AdminAdvertise},
	} {
		if address.value == "" {
			continue
		}
		_, port, err := net.SplitHostPort(address.value)
		if err == nil {
			_, err = net.LookupPort("tcp", port) // a number, or a service's name
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s is %q, want host:port with a port from 0 to 65535", address.flag, address.value))
		}
	}
	if p.Storage != "" {
		if err := open.Check(p.Storage); err != nil {
			errs = append(errs, fmt.Errorf("storage: %w", err))
		}
	}
	if c.usesFDB() {
		errs = append(errs, c.FDB.Validate())
	}
	if p.MetadataSocket != "" {
		if c.usesFDB() {
			errs = append(errs, errors.New("metadata-socket and cluster-file are both set: the metadata lies in one place"))
		}
		if p.Storage == "" {
			errs = append(errs, errors.New("metadata-socket without storage: nodes that share their metadata share an object store, too"))
		}
	}
	return errors.Join(errs...)
}

// usesFDB tells whether the metadata lies in FoundationDB.
func (c Config) usesFDB() bool { return c.FDB.ClusterFile != "" }

// storage is the URL of the object store.
func (p Process) storage() (string, error) {
	if p.Storage != "" {
		return p.Storage, nil
	}
	path, err := filepath.Abs(filepath.Join(p.DataDir, "objects"))
	if err != nil {
		return "", fmt.Errorf("data directory %s: %w", p.DataDir, err)
	}
	return "file://" + filepath.ToSlash(path), nil
}

// advertised is the address that clients are told: the one that was set, else the one listened on, with this host's name for "any".
func advertised(set string, l net.Listener) string {
	if set != "" || l == nil {
		return set
	}
	host, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return l.Addr().String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if name, err := os.Hostname(); err == nil && !strings.Contains(name, " ") {
			host = name
		}
	}
	return net.JoinHostPort(host, port)
}
