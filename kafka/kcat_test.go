package kafka

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/nodes/batch"
)

// kcat runs kcat (librdkafka) against the node.
func (n *siteNode) kcat(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("kcat")
	if err != nil {
		t.Skip("kcat is not installed: apt-get install kcat")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	command := exec.CommandContext(ctx, path, append([]string{"-b", n.addr}, args...)...)
	command.Stdin = strings.NewReader(stdin)
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	require.NoError(t, err, "kcat %v: %s", args, stderr.String())
	return string(out)
}

func TestKcatWithEveryCodec(t *testing.T) { // case 2
	n := oneNode(t)
	var lines strings.Builder
	for i := range 100_000 {
		fmt.Fprintln(&lines, i+1)
	}
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			topic := "seq-" + codec
			n.create(t, topic, 1, nil)
			n.kcat(t, lines.String(), "-P", "-t", topic, "-z", codec)
			got := n.kcat(t, "", "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-X", "check.crcs=true")
			require.True(t, lines.String() == got, "%d bytes were sent, %d came back", lines.Len(), len(got))
			require.Contains(t, n.storedCodecs(t, topic), codec)
		})
	}
}

// storedCodecs are the codecs of the batches of a topic. librdkafka leaves a batch as it is when compressing does not make it smaller.
func (n *siteNode) storedCodecs(t *testing.T, topic string) map[string]int {
	codecs := map[string]int{}
	w := n.wire(t)
	end := w.list(5, topic, offsetLatest, -1).Offset
	for next := int64(0); next < end; {
		rest := w.fetch(12, fetchOf(topic, 0, next)).RecordBatches
		for len(rest) > 0 {
			b, after, err := batch.Next(rest)
			require.NoError(t, err)
			codecs[b.Codec().String()]++
			next, rest = b.LastOffset()+1, after
		}
	}
	return codecs
}

func TestKcatKeysHeadersAndTombstones(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 1, nil)
	n.kcat(t, "k1:v1\nk2:\nk3:v3\n", "-P", "-t", "t", "-K", ":", "-Z", "-H", "a=1", "-H", "b=2", "-X", "enable.idempotence=true")
	got := n.kcat(t, "", "-C", "-t", "t", "-o", "beginning", "-e", "-q", "-f", "%o|%k|%S|%s|%h\\n")
	require.Equal(t, "0|k1|2|v1|a=1,b=2\n1|k2|-1||a=1,b=2\n2|k3|2|v3|a=1,b=2\n", got)
}

func TestKcatMetadataAndOffsetsByTime(t *testing.T) {
	n := oneNode(t)
	n.create(t, "t", 2, nil)
	require.Contains(t, n.kcat(t, "", "-L", "-t", "t"), `topic "t" with 2 partitions`)
	w := n.wire(t)
	require.Zero(t, w.produce(9, produceOf("t", 0, one("at 1000"))).ErrorCode)
	require.Equal(t, "t [0] offset 0\n", n.kcat(t, "", "-Q", "-t", "t:0:500"))
	require.Equal(t, "t [0] offset 1\n", n.kcat(t, "", "-Q", "-t", "t:0:-1"))
}
