//go:build cgo && linux

package conformance_test

import (
	"os"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// differs are the rules that are not kept through libibverbs' interface, with the reason.
var differs = map[string]string{
	"device/port_and_gid_tables":               "all contexts of a process have its GID",
	"cq/resize":                                "package verbs counts a request when its completion is polled, and the rule waits for the count before it polls",
	"event/of_closed_objects_are_gone":         "package verbs reads events ahead of its program, so one of an object that is closed meanwhile may be among them",
	"life/bad_creations":                       "libibverbs has no limit of inline data to ask for, and package verbs promises less than the device takes",
	"rnr/count_7_waits_for_ever":               retries,
	"rnr/retries_start_anew_with_each_message": retries,
	"rnr/write_imm_needs_a_receive_too":        retries,
	"rnr/nothing_overtakes_a_waiting_send":     retries,
	"dereg/waiting_requests_do_not_hold_it_up": retries,
	"counters/queued_work_is_not_counted":      retries,
	"ability/work_is_done_without_any_call":    retries,
	"close/with_work_queued":                   retries,
	"srq/empty_is_RNR":                         retries,
	"xrc/empty_queue_is_RNR":                   retries,
}

// retries is why rules are left out that wait for a count of retries.
const retries = "programs of libibverbs read counts of retries in /sys, where there are none of a software device"

// lacks are the features that package verbs has no way to through libibverbs, or only through libmlx5.
var lacks = []rdma.Feature{
	rdma.FeatureDC, rdma.FeatureInlineRecv, rdma.FeatureSVA, rdma.FeatureUMR, rdma.FeatureTagMatching, rdma.FeatureStridingRQ, rdma.FeatureDoorbellCounts,
}

// TestConformance is for the process that TestConformance of package dropin starts, with the library's path.
func TestConformance(t *testing.T) {
	library := os.Getenv("GORUN_TEST_DROPIN")
	if library == "" {
		return
	}
	devices, err := verbs.New(verbs.Config{Library: library}).Devices()
	if err != nil {
		t.Fatal(err)
	}
	// What the library opens once and keeps is no leak of a rule.
	ctx, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, feature := range rdma.Features() {
		_ = ctx.Supports(feature)
	}
	if err := ctx.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(t testing.TB, n int) []rdmatest.Node {
		t.Helper()
		nodes := make([]rdmatest.Node, n)
		for i := range nodes {
			ctx, err := devices[i%len(devices)].Open()
			if err != nil {
				t.Fatalf("Open: %v", err)
			}
			t.Cleanup(func() {
				if err := ctx.Close(); err != nil {
					t.Errorf("close the context: %v", err)
				}
			})
			nodes[i] = rdmatest.Local(ctx)
		}
		return nodes
	}
	rdmatest.Run(t, rdmatest.Fabric{Open: open, InexactRetries: true, WholePages: true, Lacks: lacks, Differs: differs, Brief: testing.Short()})
}
