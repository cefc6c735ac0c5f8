package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// initProducerID gives an idempotent producer an id that nobody has had, at epoch 0. A producer that asks to raise the epoch of the id it
// has (KIP-360) gets a new id too, which serves the same and can never run out of epochs.
func (s *Server) initProducerID(ctx context.Context, r *request, k *kmsg.InitProducerIDRequest) kmsg.Response {
	response := kmsg.NewPtrInitProducerIDResponse()
	response.ProducerID, response.ProducerEpoch = -1, -1
	var id int64
	err := errTransactions
	if k.TransactionalID == nil {
		id, err = s.broker.ProducerID(ctx)
	}
	if err != nil {
		response.ErrorCode = s.failed(r, initProducerError(err), err)
		return response
	}
	response.ProducerID, response.ProducerEpoch = id, 0
	return response
}
