package wiring

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// listeners are the sockets of a process. One that is not served is nil.
type listeners struct {
	kafka, http, admin net.Listener
}

// newListeners binds the addresses before anything else starts, so that a port in use is said at once and nodes register the ports they
// really have.
func newListeners(c Config) (*listeners, error) {
	l := &listeners{}
	for _, want := range []struct {
		flag, address string
		to            *net.Listener
	}{
		{"kafka-listen", c.Process.KafkaListen, &l.kafka}, {"http-listen", c.Process.HTTPListen, &l.http}, {"admin-listen", c.Process.AdminListen, &l.admin},
	} {
		if want.address == "" {
			continue
		}
		bound, err := net.Listen("tcp", want.address)
		if err != nil {
			l.close()
			return nil, listenError(want.flag, want.address, err)
		}
		*want.to = bound
	}
	return l, nil
}

func listenError(flag, address string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--%s %s: another process listens on this port; stop it or choose another port (0 for any)", flag, address)
	}
	return fmt.Errorf("--%s %s: %w", flag, address, err)
}

func (l *listeners) close() {
	for _, bound := range []net.Listener{l.kafka, l.http, l.admin} {
		if bound != nil {
			bound.Close()
		}
	}
}

// Addresses are what clients of a running process connect to, as <data-dir>/listeners.json has them.
type Addresses struct {
	PID   int    `json:"pid"`
	Kafka string `json:"kafka,omitempty"`
	HTTP  string `json:"http,omitempty"`
	Admin string `json:"admin,omitempty"`
}

func (l *listeners) addresses() Addresses {
	address := func(bound net.Listener) string {
		if bound == nil {
			return ""
		}
		return bound.Addr().String()
	}
	return Addresses{PID: os.Getpid(), Kafka: address(l.kafka), HTTP: address(l.http), Admin: address(l.admin)}
}

// listenersFile is where a process says what it listens on.
func listenersFile(dataDir string) string { return filepath.Join(dataDir, "listeners.json") }

// write puts the addresses where tools look for them. The file is whole at any time.
func (a Addresses) write(dataDir string) error {
	body, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return err
	}
	temp := listenersFile(dataDir) + ".tmp"
	if err := os.WriteFile(temp, append(body, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the addresses listened on: %w", err)
	}
	return os.Rename(temp, listenersFile(dataDir))
}

// ReadAddresses tells what the process that serves a data directory listens on.
func ReadAddresses(dataDir string) (Addresses, error) {
	var a Addresses
	body, err := os.ReadFile(listenersFile(dataDir))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("%s: %w", listenersFile(dataDir), err)
	}
	return a, nil
}
