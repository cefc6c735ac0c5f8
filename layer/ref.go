package layer

import (
	"fmt"
	"strconv"
	"strings"
)

// NodeRef names one registration of a node: its stable id and the epoch that the registration got. Its text form, in rows and
// messages, is "id@epoch".
type NodeRef struct{ ID, Epoch int64 }

// IsZero tells whether n names nobody.
func (n NodeRef) IsZero() bool { return n == NodeRef{} }

// String is "id@epoch".
func (n NodeRef) String() string { return fmt.Sprintf("%d@%d", n.ID, n.Epoch) }

// MarshalText is String, and empty for nobody.
func (n NodeRef) MarshalText() ([]byte, error) {
	if n.IsZero() {
		return nil, nil
	}
	return []byte(n.String()), nil
}

// UnmarshalText is the inverse of MarshalText.
func (n *NodeRef) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*n = NodeRef{}
		return nil
	}
	id, epoch, ok := strings.Cut(string(text), "@")
	if !ok {
		return fmt.Errorf("node reference %q is not id@epoch", text)
	}
	var err error
	if n.ID, err = strconv.ParseInt(id, 10, 64); err != nil {
		return fmt.Errorf("node reference %q: %w", text, err)
	}
	if n.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
		return fmt.Errorf("node reference %q: %w", text, err)
	}
	return nil
}

// LeaseRef names one tenure of a lease. A coordinator command carries it and is refused once the lease has moved on.
type LeaseRef struct {
	Name   string
	Holder NodeRef
	Epoch  int64
}

// String is "name by id@epoch, lease epoch n".
func (l LeaseRef) String() string {
	return fmt.Sprintf("%s by %s, lease epoch %d", l.Name, l.Holder, l.Epoch)
}

// CoordinatorLease is the lease whose holder runs the cluster's loops.
const CoordinatorLease = "coordinator"
