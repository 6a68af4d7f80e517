// Package verbs is the RDMA devices that libibverbs knows: HCAs, RoCE cards, Linux's
// Soft-RoCE. It has the types of package rdma and adds none of its own:
//
//	provider := verbs.New(verbs.Config{})
//	devices, err := provider.Devices() // or why there are none
//	ctx, err := devices[0].Open()
//
// # Needs
//
// To build: cgo and a 64-bit machine. No header of libibverbs is needed: abi.h declares
// what is used of it and of libmlx5, and a test compares that with the real headers
// where these are installed. There are no build tags, and without cgo the same program
// builds and Devices says so. To run: libibverbs.so.1 with the driver of the
// device (ibverbs-providers), found by dlopen, so a program runs without it too;
// the kernel's ib_uverbs; and memory that may be locked (ulimit -l).
//
// # Guarantees
//
// The suite of package rdmatest passes on Soft-RoCE in a virtual machine (make
// test-rxe), except for the rules that Soft-RoCE breaks: rxeDiffers in
// conformance_test.go lists them.
//
//	abi.h         what is used of libibverbs and libmlx5, as it is in memory
//	shim.c        the verbs as flat C functions; all but post and poll go by
//	              pointers that dlsym found
//	mlx5.c        the same of libmlx5, for dc.go and mkey.go
//	tag.c         and of tag matching
//	wire_unsafe   requests and completions as they lie in C memory
//	workqueue     which request a completion is of
//	queuePair, sharedQueue, completionQueue, region, window, ...
//	watcher       the goroutine that reads a context's asynchronous events
//
// PostSend, PostRecv and Poll cross into C once for up to 64 requests or
// completions, and allocate nothing. C gets integers only. Lists of requests are
// laid out in C memory, which is linked once. Registered Go memory is pinned as
// long as its region lives, and AllocMR memory is mapped outside the Go heap.
//
// Every request carries an identity of the package (see workQueue). So a failed completion
// names its request whatever the driver leaves out, Counters counts what was executed,
// and Poll drops completions that a closed or reset queue pair left behind.
// An unsignaled request counts, and its slot is free again, when a
// completion behind it has been polled.
//
// Errors are *rdma.OpError with the verb's name and the errno. Supports distinguishes
// what a device cannot do from what it could not find out. The device cannot do it if the
// kernel answers EOPNOTSUPP or EINVAL to a trial whose arguments are otherwise right.
// After any other answer (EPERM, ENOMEM), the next call tries again.
//
// A device that fails or is removed ends every wait: Poll of all its CQs fails with
// ENODEV, after the requests that had still completed. Poll of an overrun CQ fails
// too, and its queue pairs go to ERR. When a port goes down, GetAsyncEvent gives an event and
// QueryPort the state; requests over the port end by their own retry count. Soft-RoCE's driver keeps
// a removed device in use: it works on until the last process closes it.
//
// # Limits
//
// Only RoCE: an address vector has no LID, so InfiniBand's own link layer cannot be
// addressed. Striding and inline receive are not supported; the error of Supports says why.
// Dynamic connections, layouts, tag matching, on-demand paging, dma-buf regions,
// re-registration and XRC were run against testdata/model.c, which stands
// in for libibverbs and libmlx5, and never on a card. The kernel wants a region's address
// and its memory at the same offset of a page. So RegMRIOVA takes only such addresses, and
// AccessZeroBased only memory that begins at a page, as AllocMR's does. Counters' retries are
// the device's own counts for all its users (sysfs, where rxe and mlx5 have them). Soft-RoCE
// reads retry_cnt 7 as "for ever", so it gets 6. On Soft-RoCE a type 2 window is also freed, and gets
// another key, when the queue pair that last bound it is closed.
//
// Fork: the package does not call ibv_fork_init. It would take registered pages away from a
// child that runs on without exec, which no Go program has: os/exec shares the
// pages with the child until it execs, and copies none. A program whose C code
// forks sets RDMAV_FORK_SAFE=1, which libibverbs reads by itself.
//
// # Settings
//
// Config.Library names another library. libibverbs reads its own environment
// (RDMAV_FORK_SAFE, IBV_FORK_SAFE, RDMAV_HUGEPAGES_SAFE).
package verbs
