package nodes

import (
	"fmt"
	"strings"

	"github.com/varvedb/varve/layer"
)

// Bounds of table names, bytes.
const (
	MaxTopicName = 249                // Kafka's bound, so that every client and tool copes with it
	MaxTableName = layer.MaxTableName // of a path
)

// ValidateName accepts the names that a table can have: 1 to MaxTableName bytes that a URL path may hold as they are (RFC 3986 pchar and
// "/"), without empty, "." or ".." parts save that one leading "/" is allowed. Every topic name is such a name. The error is ErrInvalidName.
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > MaxTableName:
		return fmt.Errorf("%w: %d bytes, the most is %d", ErrInvalidName, len(name), MaxTableName)
	}
	for i := 0; i < len(name); i++ {
		if !pathByte(name[i]) {
			return fmt.Errorf("%w %.80q: byte 0x%02x at %d is not allowed in a name", ErrInvalidName, name, name[i], i)
		}
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(name, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%w %.80q: a part is %q", ErrInvalidName, name, part)
		}
	}
	return nil
}

// ValidateTopicName accepts the names that a Kafka topic can have: 1 to MaxTopicName bytes of [a-zA-Z0-9._-], not "." or "..". The error is ErrInvalidName.
func ValidateTopicName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrInvalidName)
	case len(name) > MaxTopicName:
		return fmt.Errorf("%w: %d bytes, the most is %d for a topic", ErrInvalidName, len(name), MaxTopicName)
	case name == "." || name == "..":
		return fmt.Errorf("%w: %q", ErrInvalidName, name)
	}
	for i := 0; i < len(name); i++ {
		if !topicByte(name[i]) {
			return fmt.Errorf("%w %.80q: byte 0x%02x at %d is not one of a-z, A-Z, 0-9, '.', '_', '-'", ErrInvalidName, name, name[i], i)
		}
	}
	return nil
}

// IsTopicName tells whether Kafka clients can name the table.
func IsTopicName(name string) bool { return ValidateTopicName(name) == nil }

func topicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

func pathByte(c byte) bool {
	return topicByte(c) || strings.IndexByte("/~!$&'()*+,;=:@%", c) >= 0
}
