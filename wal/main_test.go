package wal

import (
	"testing"

	"github.com/varvedb/varve/layer/kvtest"
)

func TestMain(m *testing.M) { kvtest.Main(m) }
