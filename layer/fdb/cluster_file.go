package fdb

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// maxClusterFileSize bounds what is read of a cluster file, bytes.
const maxClusterFileSize = 64 << 10

// ErrClusterFile: the cluster file is missing or malformed.
var ErrClusterFile = errors.New("cluster file")

// ClusterFile is what a cluster file says: one line `description:id@host:port[:tls],...` among comments and empty lines.
type ClusterFile struct {
	Description  string        // letters, digits and underscores
	ID           string        // letters and digits
	Coordinators []Coordinator // one at least
}

// Coordinator is the address of one coordination server.
type Coordinator struct {
	Host string // an IP address, without brackets, or a host name
	Port uint16
	TLS  bool
}

func (c Coordinator) String() string {
	host := c.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	text := host + ":" + strconv.Itoa(int(c.Port))
	if c.TLS {
		text += ":tls"
	}
	return text
}

// String is the connection string.
func (f ClusterFile) String() string {
	addresses := make([]string, len(f.Coordinators))
	for i, c := range f.Coordinators {
		addresses[i] = c.String()
	}
	return f.Description + ":" + f.ID + "@" + strings.Join(addresses, ",")
}

// ReadClusterFile reads and checks the cluster file at path. Every error is an ErrClusterFile that names the path.
func ReadClusterFile(path string) (ClusterFile, error) {
	if path == "" {
		return ClusterFile{}, fmt.Errorf("%w: none is given", ErrClusterFile)
	}
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return ClusterFile{}, fmt.Errorf("%w %s does not exist: copy it from a machine of the cluster", ErrClusterFile, path)
	}
	if err != nil {
		return ClusterFile{}, fmt.Errorf("%w: %w", ErrClusterFile, err)
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxClusterFileSize+1))
	if err != nil {
		return ClusterFile{}, fmt.Errorf("%w: %w", ErrClusterFile, err)
	}
	if len(content) > maxClusterFileSize {
		return ClusterFile{}, fmt.Errorf("%w %s is over %d bytes", ErrClusterFile, path, maxClusterFileSize)
	}
	parsed, err := ParseClusterFile(string(content))
	if err != nil {
		return ClusterFile{}, fmt.Errorf("%w %s: %w", ErrClusterFile, path, err)
	}
	return parsed, nil
}

// ParseClusterFile parses the content of a cluster file. Comments go from # to the end of the line. A connection
// string may be broken over several lines, as FoundationDB allows.
func ParseClusterFile(content string) (ClusterFile, error) {
	var connection strings.Builder
	lines := bufio.NewScanner(strings.NewReader(content))
	lines.Buffer(nil, maxClusterFileSize+1)
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		connection.WriteString(strings.Join(strings.Fields(line), ""))
	}
	if err := lines.Err(); err != nil {
		return ClusterFile{}, err
	}
	return parseConnectionString(connection.String())
}

func parseConnectionString(connection string) (ClusterFile, error) {
	if connection == "" {
		return ClusterFile{}, errors.New("no connection string, want description:id@ip:port")
	}
	key, addresses, found := strings.Cut(connection, "@")
	if !found {
		return ClusterFile{}, fmt.Errorf("no @ in %q, want description:id@ip:port", connection)
	}
	description, id, found := strings.Cut(key, ":")
	if !found {
		return ClusterFile{}, fmt.Errorf("no : in %q, want description:id", key)
	}
	if !allOf(description, isWordOrUnderscore) {
		return ClusterFile{}, fmt.Errorf("description %q: want letters, digits and underscores", description)
	}
	if !allOf(id, isWord) {
		return ClusterFile{}, fmt.Errorf("id %q: want letters and digits", id)
	}
	parsed := ClusterFile{Description: description, ID: id}
	seen := map[Coordinator]bool{}
	for address := range strings.SplitSeq(addresses, ",") {
		coordinator, err := parseCoordinator(address)
		if err != nil {
			return ClusterFile{}, err
		}
		if seen[coordinator] {
			return ClusterFile{}, fmt.Errorf("coordinator %q appears twice", address)
		}
		seen[coordinator] = true
		parsed.Coordinators = append(parsed.Coordinators, coordinator)
	}
	return parsed, nil
}

func parseCoordinator(address string) (Coordinator, error) {
	rest, tls := strings.CutSuffix(address, ":tls")
	colon := strings.LastIndexByte(rest, ':')
	if colon < 0 {
		return Coordinator{}, fmt.Errorf("coordinator %q: no port, want ip:port", address)
	}
	host, portText := rest[:colon], rest[colon+1:]
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || portText[0] == '+' {
		return Coordinator{}, fmt.Errorf("coordinator %q: port %q, want 1 to 65535", address, portText)
	}
	if err := checkHost(host); err != nil {
		return Coordinator{}, fmt.Errorf("coordinator %q: %w", address, err)
	}
	return Coordinator{Host: strings.Trim(host, "[]"), Port: uint16(port), TLS: tls}, nil
}

// checkHost accepts an IPv4 address, an IPv6 address in brackets, and a host name.
func checkHost(host string) error {
	if inner, found := strings.CutPrefix(host, "["); found {
		inner, found = strings.CutSuffix(inner, "]")
		address, err := netip.ParseAddr(inner)
		if !found || err != nil || !address.Is6() || address.Zone() != "" {
			return fmt.Errorf("%q is not an IPv6 address in brackets", host)
		}
		return nil
	}
	if address, err := netip.ParseAddr(host); err == nil {
		if !address.Is4() {
			return fmt.Errorf("IPv6 address %q wants brackets", host)
		}
		return nil
	}
	if strings.Trim(host, "0123456789.") == "" {
		return fmt.Errorf("%q is not an IPv4 address", host)
	}
	if !allOf(host, isHostName) {
		return fmt.Errorf("%q is neither an IP address nor a host name", host)
	}
	return nil
}

// allOf tells whether text is not empty and every byte of it satisfies is.
func allOf(text string, is func(byte) bool) bool {
	for i := range len(text) {
		if !is(text[i]) {
			return false
		}
	}
	return text != ""
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func isWordOrUnderscore(c byte) bool { return isWord(c) || c == '_' }

func isHostName(c byte) bool { return isWord(c) || c == '-' || c == '.' || c == '_' }
