//go:build cgo

package verbs_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// devicesVar names the devices to be tested, separated by commas: the virtual
// machine of make test-rxe has rxe0 and rxe1, which reach each other.
const devicesVar = "GORUN_TEST_VERBS"

// testDevices are the devices to be tested, none on a machine that was not made
// for it.
func testDevices(t testing.TB) []rdma.Device {
	t.Helper()
	asked := os.Getenv(devicesVar)
	if asked == "" {
		return nil
	}
	have, err := verbs.New(verbs.Config{}).Devices()
	if err != nil {
		t.Fatalf("Devices: %v", err)
	}
	var devices []rdma.Device
	for _, name := range strings.Split(asked, ",") {
		for _, d := range have {
			if d.Name() == name {
				devices = append(devices, d)
			}
		}
	}
	if n := strings.Count(asked, ",") + 1; len(devices) != n {
		t.Fatalf("%s names %s; found %d of them", devicesVar, asked, len(devices))
	}
	return devices
}

func openDevice(t testing.TB, d rdma.Device) rdma.Context {
	t.Helper()
	ctx, err := d.Open()
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Errorf("close the context: %v", err)
		}
	})
	return ctx
}

// here opens n nodes in this process, on the devices in turn.
func here(devices []rdma.Device) func(testing.TB, int) []rdmatest.Node {
	return func(t testing.TB, n int) []rdmatest.Node {
		t.Helper()
		nodes := make([]rdmatest.Node, n)
		for i := range nodes {
			nodes[i] = rdmatest.Local(openDevice(t, devices[i%len(devices)]))
		}
		return nodes
	}
}

// rxeDiffers are the rules that Soft-RoCE (Linux 6.1) breaks, with what it does.
var rxeDiffers = map[string]string{
	"device/port_and_gid_tables":                                       "a message has 8 MiB at most",
	"access/local_violations_are_LOC_PROT_ERR/*_read_*":                "a read is executed before its local memory is checked, and the responder sees a broken exchange",
	"access/local_violations_are_LOC_PROT_ERR/*_fetch_add_*":           "an atomic is executed before its local memory is checked",
	"access/local_violations_are_LOC_PROT_ERR/*_cmp_swap_*":            "an atomic is executed before its local memory is checked",
	"access/local_check_comes_first/*":                                 "the local memory of reads and atomics is checked when the answer comes",
	"status/misaligned_atomic_is_REM_INV_REQ/*":                        "librxe refuses it at the post",
	"post/SQD_holds_requests_back":                                     "RTS after SQD does not start the send queue again: the next post does",
	"mw/nothing_is_touched_after_unbinding":                            "an access under way goes on behind the completion of the unbinding",
	"mw/bad_binds_of_type_?_are_MW_BIND_ERR/it_wraps":                  "the sum is not checked",
	"mw/bad_binds_of_type_2_are_MW_BIND_ERR/another_domain's_region":   "the region's domain is not checked",
	"mw/bad_binds_of_type_2_are_MW_BIND_ERR/the_key_of_another_window": "only the low 8 bits of the new key are looked at",
	"mw/zero_based_window":                                             "librxe refuses to bind one",
	"mw/type_2_must_be_free":                                           "a window's bounds are not enforced",
	"mw/local_inv_of_what_it_cannot_is_refused":                        "windows of other queue pairs are invalidated too, and one that is free panics the kernel",
	"mw/nothing_is_touched_after_local_inv":                            "an access under way goes on behind the completion of the invalidation",
	"mw/send_with_inv_of_what_it_cannot_is_REM_ACCESS_ERR":             "it is a success to the sender, and windows of other queue pairs are invalidated too",
	"mw/type_?_shows_its_part_and_not_a_byte_more":                     "a window's bounds are not enforced",
	"srq/last_WQE_reached":                                             "the event does not come",
	"srq/full_until_polled":                                            "a receive's place is free when its message has come, polled or not",
	"event/SQ_drained_when_asked":                                      "RTS after SQD does not start the send queue again: the next post does",
	"random/any_program_against_a_model/late_receives":                 "a fenced request that has met no receive is not tried again when there is one",
	"ud/QKey_with_the_high_bit_is_the_queue_pairs":                     "the request's Q_Key is sent as it is",
	"ack/stranger_reaches_nothing":                                     "a packet's source is checked by its address alone, which several queue pairs share",
}

// rxeLacks are the features that Soft-RoCE, or this provider, does not have.
var rxeLacks = []rdma.Feature{
	rdma.FeatureXRC, rdma.FeatureDC, rdma.FeatureInlineRecv, rdma.FeatureReregMR, rdma.FeatureODP, rdma.FeatureImplicitODP,
	rdma.FeatureSVA, rdma.FeatureDMABuf, rdma.FeatureUMR, rdma.FeatureTagMatching, rdma.FeatureStridingRQ, rdma.FeatureDoorbellCounts,
}

func TestConformance(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	devices := testDevices(t)
	if devices == nil {
		return
	}
	rdmatest.Run(t, rdmatest.Fabric{Open: here(devices), Inexact: true, InexactRetries: true, WholePages: true, TornWords: true,
		Lacks: rxeLacks, Differs: rxeDiffers, Brief: testing.Short()})
}
