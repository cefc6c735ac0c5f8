package kafka

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
			stored := n.wire(t).fetch(12, fetchOf(topic, 0, 0)).RecordBatches
			bits := map[string]byte{"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
			require.Equal(t, bits[codec], stored[22]&7, "the codec of what is stored")
		})
	}
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
