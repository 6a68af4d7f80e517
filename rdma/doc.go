// Package rdma is the verbs object model in Go: devices, contexts, protection
// domains, memory regions, completion queues and queue pairs, under the names
// and the rules of libibverbs.
//
// A program opens a [Device] of some [Provider], allocates a [PD], registers
// memory ([MR]), creates a [CQ] and [QP]s, brings each QP from RESET over INIT
// and RTR to RTS, posts work in batches and polls completions:
//
//	ctx, err := dev.Open()
//	pd, err := ctx.AllocPD()
//	mr, err := pd.AllocMR(1<<20, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
//	cq, err := ctx.CreateCQ(64)
//	qp, err := pd.CreateQP(rdma.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: rdma.RC, Cap: ...})
//
// Package soft is a provider in software; every provider passes the suite of
// package rdmatest.
//
// # Ownership
//
// The creator of an object closes it, in the reverse order; closing an object
// that others still use is an error wrapping [ErrBusy] and changes nothing.
// Memory named in a scatter/gather entry belongs to the device from the post to
// the completion (an inline send's is free again when the post returns).
//
// # Blocking
//
// Nothing here blocks on a peer. PostSend, PostRecv and Poll return at once;
// [MR.Close] waits, in bounded time, for operations of peers that are already
// moving bytes of the region.
//
// # Concurrency
//
// All methods may be called from several goroutines at once.
package rdma
