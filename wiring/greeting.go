package wiring

import (
	"fmt"
	"io"
)

// greet says what runs, where, and one line to try for each protocol.
func (p process) greet(out io.Writer) {
	a := p.Sockets.addresses()
	fmt.Fprintf(out, "varve %s: node %d of cluster %q\n", p.Build.Version, p.Config.Node.NodeID, p.Config.Process.Cluster)
	if a.Kafka != "" {
		fmt.Fprintf(out, "  Kafka  %-24s echo hello | kcat -P -b %s -t greetings && kcat -C -e -b %s -t greetings\n", a.Kafka, a.Kafka, a.Kafka)
	}
	if a.HTTP != "" {
		fmt.Fprintf(out, "  HTTP   %-24s curl -X PUT -H 'Content-Type: text/plain' -d hello http://%s/v1/stream/hello && curl http://%s/v1/stream/hello\n", a.HTTP, a.HTTP, a.HTTP)
	}
	if a.Admin != "" {
		fmt.Fprintf(out, "  admin  %-24s curl http://%s/admin/cluster\n", a.Admin, a.Admin)
	}
	metadata := "embedded, " + MetadataDir(p.Config.Process.DataDir)
	switch {
	case p.Config.Process.MetadataSocket != "":
		metadata = "embedded in another process, " + p.Config.Process.MetadataSocket
	case p.Config.usesFDB():
		metadata = "FoundationDB, " + p.Config.FDB.ClusterFile
	}
	fmt.Fprintf(out, "  metadata: %s; objects: %s\n", metadata, p.Objects)
}
