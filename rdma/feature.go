package rdma

import "strconv"

// A Feature is a feature that a device may have: see [Context].Supports.
type Feature uint8

// The features. The method that needs one describes it.
const (
	FeatureRC             Feature = iota // reliable connected queue pairs
	FeatureUC                            // unreliable connected queue pairs
	FeatureUD                            // unreliable datagrams
	FeatureXRC                           // extended reliable connections: XRCD, XRC SRQs
	FeatureDC                            // dynamically connected transport
	FeatureSRQ                           // shared receive queues, with a limit
	FeatureAtomics                       // compare and swap, fetch and add
	FeatureInlineSend                    // payload is copied at the post
	FeatureInlineRecv                    // small payload arrives in the completion
	FeatureMW1                           // memory windows of type 1
	FeatureMW2                           // memory windows of type 2
	FeatureSendWithInv                   // SEND_WITH_INV and LOCAL_INV
	FeatureIOVA                          // regions with chosen start addresses
	FeatureZeroBased                     // regions whose addresses begin at 0
	FeatureReregMR                       // changing a region with MR.Rereg
	FeatureODP                           // on-demand paging
	FeatureImplicitODP                   // one region for the whole address space
	FeatureSVA                           // shared virtual addressing
	FeatureDMABuf                        // regions of dma-buf file descriptors
	FeatureUMR                           // memory keys with a layout: lists, strides, interleaving
	FeatureTagMatching                   // tag-matching SRQs, with rendezvous
	FeatureStridingRQ                    // one receive buffer for many messages
	FeatureCompChannel                   // completion notification
	FeatureAsyncEvents                   // asynchronous events
	FeatureExtendedCQ                    // completions with extended fields
	FeatureDoorbellCounts                // Counters has doorbells, fetches and DMA reads
	numFeatures
)

var featureNames = [numFeatures]string{
	"rc", "uc", "ud", "xrc", "dc", "srq", "atomics", "inline-send", "inline-recv", "mw-type1", "mw-type2",
	"send-with-inv", "iova", "zero-based", "rereg-mr", "odp", "implicit-odp", "sva", "dma-buf", "umr",
	"tag-matching", "striding-rq", "comp-channel", "async-events", "extended-cq", "doorbell-counts",
}

// String is the feature's name, as in tables and JSON.
func (f Feature) String() string {
	if f < numFeatures {
		return featureNames[f]
	}
	return "feature " + strconv.Itoa(int(f))
}

// Features returns all features, in the order of their tables.
func Features() []Feature {
	all := make([]Feature, numFeatures)
	for i := range all {
		all[i] = Feature(i)
	}
	return all
}
