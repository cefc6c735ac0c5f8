package streams

import (
	"fmt"
	"strconv"
)

// Sentinel offsets of the protocol, section 8.
const (
	offsetBeginning = "-1"
	offsetNow       = "now"
)

// formatOffset makes the token of an offset: its decimal digits, padded so that tokens sort as offsets do.
func formatOffset(offset int64) string { return fmt.Sprintf("%020d", offset) }

// position is where a read begins.
type position struct {
	offset    int64
	beginning bool // the first offset that is kept, whichever that is
	now       bool // the end at the time of the request
}

// parseOffset reads a token: one of ours, a sentinel, or plain digits as a person would type them.
func parseOffset(token string) (position, error) {
	switch token {
	case offsetBeginning:
		return position{beginning: true}, nil
	case offsetNow:
		return position{now: true}, nil
	}
	for _, c := range []byte(token) {
		if c < '0' || c > '9' {
			return position{}, badRequest("malformed_offset", "offset %.64q: want digits, -1 or now", token)
		}
	}
	n, err := strconv.ParseInt(token, 10, 64)
	if err != nil {
		return position{}, badRequest("malformed_offset", "offset %.64q: want digits, -1 or now", token)
	}
	return position{offset: n}, nil
}
