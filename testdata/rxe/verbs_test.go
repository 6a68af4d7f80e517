package rxe

import (
	"testing"
	"time"
)

// The provider, and what stands on it, on both devices.

func TestVerbs(t *testing.T) {
	runTests(t, "rdma/verbs", 6*time.Minute, "-test.short")
}

// The link goes down, and a device away: the machine is of no use afterwards.
func TestUnplug(t *testing.T) {
	vm := boot(t)
	defer vm.Close()
	runTestsIn(t, vm, []string{"GORUN_TEST_UNPLUG=eth1"}, "rdma/verbs", 2*time.Minute, "-test.run=^(TestPortDown|TestRemovedWhileInUse)$")
}

func TestCollectives(t *testing.T) { runTests(t, "coll", 3*time.Minute, "-test.run=OnVerbs") }

func TestRanks(t *testing.T) { runTests(t, "rank", 5*time.Minute, "-test.run=OnVerbs") }
