package wal

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/varvedb/varve/layer"
)

// LogPrefix begins the keys of all segments and seals of one log: four hex digits of a hash, so that the store spreads logs over its
// partitions, then cluster, node and epoch, then the incarnation.
func LogPrefix(cluster string, node layer.NodeRef, incarnation uuid.UUID) string {
	path := fmt.Sprintf("%s/wal/%d/%d/%s/", cluster, node.ID, node.Epoch, incarnation)
	return spread(path) + "/" + path
}

// SegmentKey is the key of segment seq, or of the seal at that number. Keys of one log sort by number.
func SegmentKey(cluster string, node layer.NodeRef, incarnation uuid.UUID, seq int64) string {
	return segmentKey(LogPrefix(cluster, node, incarnation), seq)
}

func segmentKey(prefix string, seq int64) string { return prefix + fmt.Sprintf("%020d", seq) }

// DataKey is the key of a data object; id is random.
func DataKey(cluster string, id uuid.UUID) string {
	path := fmt.Sprintf("%s/data/%s", cluster, id)
	return spread(path) + "/" + path
}

// IsSegmentKey tells whether a key is that of a segment of a cluster's logs, or of a seal; otherwise it is that of a data object.
func IsSegmentKey(cluster, key string) bool {
	_, path, _ := strings.Cut(key, "/")
	return strings.HasPrefix(path, cluster+"/wal/")
}

// parseSeq gives the number in a segment key of the log with that prefix.
func parseSeq(prefix, key string) (int64, bool) {
	digits, ok := strings.CutPrefix(key, prefix)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	seq, err := strconv.ParseInt(digits, 10, 64)
	return seq, err == nil && seq >= 0
}

func spread(path string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(path)) // a hash.Hash does not fail
	sum := h.Sum32()
	return fmt.Sprintf("%04x", uint16(sum^sum>>16))
}
