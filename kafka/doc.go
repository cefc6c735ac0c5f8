// Package kafka is the Kafka listener of a node: it speaks Kafka's protocol and turns requests into calls of a Broker.
//
// One file per request, named for it; versions.go lists what is served and in which versions, errors.go maps failures to Kafka's error
// codes. A connection has a reader, which decodes requests in order, and a writer, which answers in that same order; between them
// requests run at the same time, but for the parts whose order matters (connection.go). README.md has the table of API keys and the
// deviations from Apache Kafka.
package kafka
