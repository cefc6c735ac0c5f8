package layer

// MaxProducerBatches is how many batches of a producer are remembered: clients have at most five in flight.
const MaxProducerBatches = 5

// ProducerState is ("producer", stream, producer): what an idempotent producer did last, as of the stream's durable end.
type ProducerState struct {
	Stream, Producer int64
	Epoch            int64
	LastTimestamp    int64           // ms, of the last batch
	Batches          []ProducerBatch // up to MaxProducerBatches, oldest first
}

// ProducerBatch is one batch: its sequence numbers and its offsets, all inclusive.
type ProducerBatch struct{ FirstSeq, LastSeq, Base, Last int64 }
