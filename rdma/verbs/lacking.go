package verbs

import "github.com/gorun-mpi/gorun/rdma"

// Lacking returns the features that this provider supports on no device, with the
// reasons. For all other features it depends on the device: see [rdma.Context].Supports.
func Lacking() map[rdma.Feature]string {
	return map[rdma.Feature]string{
		rdma.FeatureStridingRQ:     "only mlx5 devices have it, and mlx5dv_create_wq makes striding queues for raw packets alone: no RC or UC queue pair, and no SRQ, takes one",
		rdma.FeatureInlineRecv:     "only mlx5 devices have it, and libmlx5 copies what came in a completion to the receive's addresses without a look at its keys: a stale one would spoil the program's memory, so it is switched off",
		rdma.FeatureSVA:            "no verb of libibverbs shares the address space; implicit on-demand paging comes nearest",
		rdma.FeatureDoorbellCounts: "a device's doorbells and DMA reads are its driver's, and not counted",
	}
}
