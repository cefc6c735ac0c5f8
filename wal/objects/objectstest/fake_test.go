package objectstest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/varvedb/varve/wal/objects"
	"github.com/varvedb/varve/wal/objects/objectstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFakeKeepsTheContract(t *testing.T) {
	objectstest.Run(t, func(*testing.T) objects.Store { return objectstest.NewFake() },
		objectstest.Options{AtomicPutIfAbsent: true, Folders: true})
}
