package kvtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/varvedb/varve/layer/fdb/fdbtest"
)

// Main is the TestMain of packages whose tests take their engine from Open: it fails when goroutines are left. The network thread of FoundationDB's
// client, which lives as long as the process, is none.
func Main(m *testing.M) { goleak.VerifyTestMain(m, fdbtest.IgnoreNetwork()) }
