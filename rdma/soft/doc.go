// Package soft is an RDMA device in software: RC, UC, UD, XRC and DC between the ranks of a host by
// shared memory, and between hosts over TCP, by the rules of libibverbs and with its completion statuses.
//
// # Design
//
// The device is data first. Every rank owns an arena of a segment that all ranks of the host map (package
// shm). The arena holds what others may know of the rank: its protection table, its queue pairs'
// contexts, its receive queues, and the memory that AllocMR hands out. PostSend executes a request at
// once, on the caller's goroutine: it looks the remote key up in the target's table, checks it, copies,
// fills in the target's receive slot and raises its completion queue. The target does not run for it.
//
//	Provider      one rank's arena and everything in it; the HCA
//	context       an opened device of the provider: a count of its objects
//	memoryRegion  a memory region
//	window        a memory window
//	sva           a shared address space
//	mkey          a memory key with a layout, which is an mkeyLayout
//	region        what a key opens, to its owner; regionEntry is its line in the protection table
//	queuePair     a queue pair; queueContext is what its peer works on
//	completionQueue
//	sharedQueue   a receive queue that many take from: an SRQ, or the own one of a
//	              datagram queue pair; srq is the former as programs have it
//	xrcDomain     an XRC domain; addressHandle, compChannel
//	watch         a goroutine that looks for events while a program waits for them
//	peer          another provider, as seen from here: views of its arena, how its
//	              ordinary memory is reached, whether it is alive, the TCP link
//	backlog       requests that could not be executed at the post
//	progress      executes them: at every poll, else in a goroutine
//	network, link TCP: one epoll set, one connection for each direction of a pair
//
// Files. The beginning of a file's name says which part it is of. Read arena.go
// first: all parts work on what it draws. Then, each in the order of the files named:
//
//	arena_  what a rank shows to others: the arena, its allocator, typed views of bytes
//	dev_    provider, contexts, peers, events: dev_provider.go, dev_peer.go, dev_progress.go
//	mem_    what keys open, and copying to it: mem_region.go, mem_span.go, mem_layout.go
//	qp_     queue pairs, and what a transport adds: qp.go, qp_modify.go, qp_post.go,
//	        qp_gather.go, qp_execute.go, qp_respond.go, qp_backlog.go
//	rq_     a queue pair's receives: rq.go, rq_post.go, and rq_ticket.go for their takers
//	srq_    shared receive queues: srq.go
//	cq_     completion queues and channels: cq.go
//	tag_    matching of tags: tag.go for the sender, tag_list.go for the owner
//	tcp_    other hosts: tcp_frame.go, tcp_link.go, tcp_requester.go, tcp_serve.go
//
// Memory. The arena's contents belong to the rank whose arena it is, with the exceptions noted at each
// field; the bookkeeping (allocator, free keys, what a key means to the rank itself) is in the owner's
// Go heap, where no other process can change it. AllocMR memory is reached by plain stores. Memory
// registered with RegMR stays the program's: a region keeps it alive and on the heap; peers in the same
// process copy directly, others use process_vm_readv and process_vm_writev, tried when the endpoint is
// added. Where the kernel refuses those, all requests to that peer go over TCP. Where no secret was
// given, the two sides arrange for that through the segment (tcp_rescue.go). Registration checks that
// the memory is mapped and writable, as pinning would (EFAULT), and does not access it. With
// AccessOnDemand, also for a nil region (the whole address space), it does not check: a request that
// accesses unmapped memory fails, not the process. Re-registration closes the old key and opens another.
// A shared address space (ShareVA) has a table of what may be touched in its owner's arena, replaced as
// a whole. A dma-buf is mapped; a memfd that cannot shrink passes for one. Memory of an exporter that
// the kernel keeps from process_vm_readv is within reach of this process and over TCP alone.
//
// A memory window that is bound has an entry of its own in the protection table, so it costs what a
// region costs. Requests that bind and invalidate are executed when all before them is complete, and
// complete when no peer is in the middle of an operation on the memory of the key (qp_keys.go). A
// layout (Mkey) lies in its owner's arena and names regions by their keys, which are looked up at every
// access; the executor of a request walks its blocks. A layout names no other layout, and a send
// cannot invalidate it. A program may also load and store memory in an arena itself (rdma.Mapper).
//
// Order. Writes of one queue pair become visible in the order of their posting, and
// 4 or 8 aligned bytes are one store, so a program may poll memory for a flag that
// was written after its payload. Over TCP and under an Adversary this holds too.
//
// States. A queue pair's state is one word in its context; its owner changes
// it and its peer may move it to ERR, both by compare-and-swap. Receive slots
// and the hand-over of completions are drawn at recvSlot and completionQueue.
//
// Batches. The messages of one PostSend are told to their receiver together,
// and complete then, after 8 of them or 4 KiB at the latest: see qp_batch.go.
//
// Shared queues. A receive queue that many initiators take from has no turn to wait for: each claims the
// next receive by one compare-and-swap that records its rank (sharedHeader). The owner's polls move what
// was completed into the completion queues, put back what was given back, and find the claims of dead
// ranks when an initiator needs a receive and has none. Each queue pair's messages complete in order; of
// messages that one XRC target has put into different shared queues, only those of one queue do.
//
// Unreliable transports. A message of UC and a datagram is executed once. The responder's error
// is not reported; the send completes successfully. A message to a peer that has died is lost.
// Over TCP a message to a stopped peer waits in the socket. An Adversary loses one in eight.
//
// XRC. A domain that was opened by a file is one for all processes of the segment that open it.
// The executor of a request works on the arena of the third process, whose queue the request
// names; it must have been told of that process (AddEndpoint). A target queue pair lives in the
// process of its maker: OpenQP elsewhere shares it, and it ends with its maker's context. A
// message over TCP of more than 64 KiB keeps its claim until its last piece has come.
//
// Events. Asynchronous events and completion channels are served while a goroutine waits for them, by a
// goroutine that takes in what initiators have done and sleeps on the owner's alarm in between. An overrun
// of a completion queue is detected by a poll, a query of a queue pair's state, or a wait for events.
//
// Strides. In a striding receive queue slots are strides, and a message is recorded in
// the first that it takes: see rq_striding.go, and srq_striding.go for shared queues.
//
// Tags. The executor of a message to a queue with tags matches it, in the owner's arena, without a lock:
// each decision is one compare-and-swap of the next word of a log (tag.go). The owner reads what a
// rendezvous announces by requests of the device's own in the queue pair's send queue (tag_rendezvous.go).
//
// Dynamic connections. An initiator looks its target's access key up as it looks a region's key up,
// and takes its receives from the target's shared queue. Of what a device holds for a connection
// there is a responder, while requests are under way: see qp_dc.go and Config.DCResponders. One
// queue pair has targets in the segment and over TCP, and its requests are executed in their order.
//
// Leaving. Deregistration and the destruction of a queue pair first take back what initiators look at,
// then wait for the mark of each that may have looked before, and for the claims of shared queues: see
// memoryRegion.Close. An initiator that has died does not count; one that is stopped for 5 s makes
// Close fail, and the key, the queue pair and the memory are then never used again. Software atomics
// are serialised by a lock word that names its holder and can be taken from the dead: see peer.lock.
//
// Death. A peer is dead when the launcher has set its flag in the segment or when its pidfd
// reports the exit, which is checked at every 64th request and while requests wait. Requests
// to it then end with RETRY_EXC_ERR. Over TCP the connection's end says it, and so does the
// ack timer of a queue pair that has one: when a link has shown no sign of life for the
// timeout, half a second at least, in the first try and in every retry (queuePair.overdue).
// A peer that is slow is waited for, and with timeout 0 so is one that is stopped.
//
// Trust. The ranks of a segment are one trust domain: one that scribbles can spoil data,
// but no index, offset or address read from an arena is used unchecked; a rank's own
// memory it finds without the arena. Over TCP both sides prove that they know the job's
// secret before anything else is read; what is then said is checked, but not encrypted.
//
// Counters. Beside what was done the device counts what a device on a bus would
// have done for it: doorbells, fetches of work queue entries and of payload,
// and entries that come with the doorbell. The rule stands in qp_doorbell.go.
//
// # Blocking and goroutines
//
// Posting and polling do not block on peers. MR.Close, QP.Close and QP.Modify to RESET wait
// for a peer in mid-copy, for 5 s at most. Goroutines belong to the Provider, and Close ends
// them: progress.run lives while there is a backlog and acts when there was no poll for 1 ms;
// watch.run lives while a goroutine waits in GetAsyncEvent or CompChannel.Get, and while there
// is a shared queue with tags; with a Secret network.accept, one short handshake for each new
// connection, and network.serve, which acts without polls and sleeps in the netpoller.
//
// # Limits
//
// Port 1, two GIDs, one P_Key; 32 scatter entries; 4 KiB inline, 64 bytes received
// inline and none of them with an SRQ; 4096 tags in a list and 4 pieces to each; 2 GiB a
// message. Atomics on memory outside the arena are atomic against other requests of this
// device, not against the processor (IBV_ATOMIC_HCA). A TCP address is an IP literal.
package soft
