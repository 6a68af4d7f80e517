//go:build cgo

package verbs_test

import (
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// The tests below run against testdata/model.c, which is a libibverbs and a libmlx5
// with a device that works: no machine of this project has a card. It is held to the
// headers and to what libmlx5 and the kernel demand, not to what a card does.

// modelLacks are the features that the device of testdata/model.c does not have.
var modelLacks = []rdma.Feature{
	rdma.FeatureMW1, rdma.FeatureMW2, rdma.FeatureSendWithInv, rdma.FeatureSVA, rdma.FeatureInlineRecv,
	rdma.FeatureStridingRQ, rdma.FeatureDoorbellCounts,
}

// modelDiffers are the rules that it does not keep, with the reasons.
var modelDiffers = map[string]string{
	"dc/empty_SRQ_is_RNR":                                        "retries are counted in sysfs, which has nothing of it",
	"dc/target_that_leaves_answers_nobody/to_ERR":                "mlx5 knows no step to ERR of a target",
	"dc/target_that_leaves_answers_nobody/to_RESET":              "mlx5 knows no step to RESET of a target",
	"mkey/bad_pieces_are_MW_BIND_ERR/*":                          "the regions of pieces are looked at when they are used, and strides have 16 bits",
	"mkey/thousands_of_blocks":                                   "a layout has 31 pieces at most: it is in its request",
	"odp/bad_advice_is_told":                                     "without AdviseFlush the kernel looks at keys alone",
	"tag/only_the_unexpected_wait_for_a_receive":                 "retries are counted in sysfs, which has nothing of it",
	"tag/removal_of_a_taken_entry_is_TM_ERR":                     "libmlx5 has nothing to post for an entry that is over: it is refused",
	"tag/rendezvous_of_a_queue_pair_in_ERR_is_flushed":           "the stand-in reads a rendezvous in the moment when its request comes",
	"tag/rendezvous_of_a_queue_pair_that_is_closed_is_flushed/*": "the stand-in reads a rendezvous in the moment when its request comes",
	"tag/rendezvous_waits_for_a_receive_of_its_FIN":              "retries are counted in sysfs, which has nothing of it",
	"xrc/empty_queue_is_RNR":                                     "retries are counted in sysfs, which has nothing of it",
}

// modelGroups are the groups of rules of what Soft-RoCE lacks.
var modelGroups = []string{"dc", "mkey", "xrc", "iova", "rereg", "odp", "dmabuf", "tag"}

func modelDevice(t testing.TB) rdma.Device {
	t.Helper()
	return deviceOf(t, buildLibrary(t, "model.c"))
}

// deviceOf is the model's device, of which nothing is known yet.
func deviceOf(t testing.TB, library string) rdma.Device {
	t.Helper()
	devices, err := verbs.New(verbs.Config{Library: library}).Devices()
	if err != nil || len(devices) != 1 || devices[0].Name() != "model0" {
		t.Fatalf("Devices: %v, %v", devices, err)
	}
	return devices[0]
}

func TestModelConformance(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	rdmatest.Run(t, rdmatest.Fabric{Open: here([]rdma.Device{modelDevice(t)}), InexactRetries: true, WholePages: true,
		Lacks: modelLacks, Differs: modelDiffers, Groups: modelGroups})
}
