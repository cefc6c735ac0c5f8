package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/varvedb/varve/layer"
)

func TestProducersOfAnOpenedStreamAreNotIdleForTheTimeWithoutALeader(t *testing.T) {
	now := time.Now()
	batches := []layer.ProducerBatch{{FirstSeq: 0, LastSeq: 0, Base: 7, Last: 7}}
	table := loadProducers([]layer.ProducerState{
		{Producer: 1, LastTimestamp: now.Add(-time.Hour).UnixMilli(), Batches: batches},
		{Producer: 2, LastTimestamp: now.Add(time.Hour).UnixMilli(), Batches: batches},
		{Producer: 3},
	}, now)
	require.Len(t, table, 2, "one without batches says nothing")
	require.Equal(t, now.UnixMilli(), table[1].lastTimestamp)
	require.Equal(t, now.Add(time.Hour).UnixMilli(), table[2].lastTimestamp)
}
