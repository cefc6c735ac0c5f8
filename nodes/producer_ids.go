package nodes

import (
	"context"
	"fmt"
	"sync"

	"github.com/varvedb/varve/layer"
)

const (
	producerCounter = "producer"
	producerBlock   = 1000
)

// producerIDs gives out ids of idempotent Kafka producers from blocks, so that most need no transaction.
type producerIDs struct {
	once sync.Once
	ids  *layer.IDs
}

// ProducerID gives an id that no producer of the cluster ever had. Errors: ErrUnavailable.
func (n *Node) ProducerID(ctx context.Context) (int64, error) {
	if err := n.mayServe(); err != nil {
		return 0, err
	}
	n.ids.once.Do(func() { n.ids.ids = layer.NewIDs(n.layer, producerCounter, producerBlock) })
	id, err := n.ids.ids.Next(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: allocate producer id: %w", ErrUnavailable, err)
	}
	return id, nil
}
