package rxe

import (
	"testing"
	"time"
)

// The provider, and what stands on it, on both devices.

func TestVerbs(t *testing.T) {
	runTests(t, "rdma/verbs", 6*time.Minute, "-test.short")
}

func TestCollectives(t *testing.T) { runTests(t, "coll", 3*time.Minute, "-test.run=OnVerbs") }

func TestRanks(t *testing.T) { runTests(t, "rank", 5*time.Minute, "-test.run=OnVerbs") }
