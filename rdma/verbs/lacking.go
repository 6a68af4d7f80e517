package verbs

import "github.com/gorun-mpi/gorun/rdma"

// Lacking are the features that this provider has on no device, with the reasons.
// Of all others the device decides: rdma.Context.Supports.
func Lacking() map[rdma.Feature]string {
	const direct = "needs mlx5dv, which this provider does not call"
	return map[rdma.Feature]string{
		rdma.FeatureDC:             direct,
		rdma.FeatureUMR:            direct,
		rdma.FeatureStridingRQ:     direct,
		rdma.FeatureInlineRecv:     direct,
		rdma.FeatureTagMatching:    "this provider does not make tag-matching SRQs",
		rdma.FeatureSVA:            "no verb of libibverbs shares the address space; implicit on-demand paging comes nearest",
		rdma.FeatureDoorbellCounts: "a device's doorbells and DMA reads are its driver's, and not counted",
	}
}
