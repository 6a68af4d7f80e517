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
//	network, link TCP: one connection for each pair of processes, which the owner's polls read
//	landing       a long payload that is read from it into the memory where it belongs
//	guard         reads them when the owner does not poll
//
// Files. The beginning of a file's name says which part it is of. Read arena.go
// first: all parts work on what it draws. Then, each in the order of the files named:
//
//	arena_  what a rank shows to others: the arena, its allocator, typed views of bytes
//	dev_    provider, contexts, peers, events: dev_provider.go, dev_peer.go, dev_progress.go
//	mem_    what keys open, and copying to it: mem_region.go, mem_span.go, mem_layout.go
//	qp_     queue pairs, and what a transport adds: qp.go, qp_modify.go, qp_post.go,
//	        qp_gather.go, qp_execute.go, qp_respond.go, qp_backlog.go, qp_close.go
//	rq_     a queue pair's receives: rq.go, rq_post.go, and rq_ticket.go for their takers
//	srq_    shared receive queues: srq_queue.go, srq.go as programs have them
//	cq_     completion queues and channels: cq.go
//	tag_    matching of tags: tag.go for the sender, tag_list.go and tag_arrive.go for the owner
//	tcp_    other hosts: tcp_frame.go, tcp_link.go, tcp_requester.go, tcp_serve.go, tcp_express.go,
//	        tcp_network_linux.go, tcp_connect_linux.go, tcp_guard_linux.go, tcp_secure.go, tcp_landing.go
//
// Memory. The arena's contents belong to its rank, with the exceptions noted at each field. The
// bookkeeping (allocator, free keys, what a key means to the rank itself) is in the owner's Go heap,
// where no other process can change it. AllocMR memory is reached by plain stores. Memory registered
// with RegMR stays the program's: a region keeps it alive and on the heap. Peers in the same process copy
// directly; others use process_vm_readv and process_vm_writev, which the device tries when an endpoint is
// added. Where the kernel refuses these, all requests to that peer go over TCP; without a secret
// the two sides first agree on one through the segment (tcp_rescue.go). Registration checks that memory
// is mapped and writable, as pinning would (EFAULT), and does not access it. With AccessOnDemand,
// also for a nil region (the whole address space), it checks nothing: a request that accesses unmapped
// memory fails, not the process. Re-registration closes the old key and opens another. A shared address
// space (ShareVA) has a table of permitted ranges in its owner's arena, which is replaced as a whole. A
// dma-buf is mapped; a memfd that cannot shrink is accepted as one. If the kernel keeps an exporter's
// memory from process_vm_readv, only this process and peers over TCP reach it.
//
// A bound memory window has its own entry in the protection table, so it costs what a region
// costs. Requests that bind and invalidate are executed when all requests before them are complete. They
// complete when no peer is in the middle of an operation on the key's memory (qp_keys.go). A
// layout (Mkey) lies in its owner's arena and names regions by their keys, which are looked up at every
// access; the executor of a request walks its blocks. A layout cannot name another layout, and a send
// cannot invalidate it. A program may also load and store memory in an arena itself (rdma.Mapper).
//
// Order. Writes of one queue pair become visible in the order of their posting. Each aligned
// 4 or 8 bytes are written by one store, so a program may poll memory for a flag that
// was written after its payload. Under an Adversary this holds too, and over TCP in writes of less than
// 4 KiB: the words of longer ones the kernel places as it likes.
//
// States. A queue pair's state is one word in its context. Its owner changes the word,
// and its peer may move it to ERR, both by compare-and-swap. The states of receive slots
// and the hand-over of completions are drawn at recvSlot and completionQueue.
//
// Batches. The device tells a receiver of the messages of one PostSend together, after 8
// of them or 4 KiB at the latest, and they complete then: see qp_batch.go.
//
// Shared queues. Many initiators take receives from one shared queue. Each claims the next receive by one
// compare-and-swap, which records the initiator's rank (sharedHeader). The owner's polls move completed
// receives into the completion queues and put returned receives back. They look for the claims of dead
// ranks when an initiator needs a receive and finds none. Each queue pair's messages complete in order. If
// one XRC target puts messages into several shared queues, only those of the same queue complete in order.
//
// Sending over TCP. The requests of a post leave by one system call, their payload straight from where
// it lies, and so does a read's data. A short inline one with nothing before it is written first and kept
// for its answer behind that (tcp_express.go). Acknowledgements wait for some looks of the owner, for its next request, or for
// the guard, and one stands for all before it. The link keeps the bytes that its socket does not take, and sends no
// request until they are gone.
//
// Unreliable transports. A UC message and a datagram are executed once. The responder's error
// is not reported; the send completes successfully. A message to a peer that has died is lost.
// Over TCP a message to a stopped peer waits in the socket. An Adversary loses one in eight.
//
// XRC. All processes of the segment that open the same file share one domain. The executor of a request
// works on the arena of the process whose queue the request names, which may be a third process; it
// must know that process (AddEndpoint). A target queue pair lives in the process that made it. OpenQP in
// another process shares it, and it ends with the context that made it. Over TCP, a message of more
// than 64 KiB keeps its claim until its last piece has arrived.
//
// Events. While a goroutine waits for an asynchronous event or on a completion channel, a goroutine of the
// provider takes in what initiators have done, and sleeps on the owner's alarm in between. A poll, a query
// of a queue pair's state, or a wait for events detects that a completion queue was overrun.
//
// Strides. In a striding receive queue each slot is a stride, and the first stride of a
// message has the record of it: see rq_striding.go, and srq_striding.go for shared queues.
//
// Tags. The executor of a message to a queue with tags matches it in the owner's arena, without a lock:
// each decision is one compare-and-swap of the next word of a log (tag.go). The owner reads the data of a
// rendezvous with requests of the device's own in the queue pair's send queue (tag_rendezvous.go).
//
// Dynamic connections. An initiator looks up its target's access key as it looks up a region's key,
// and takes receives from the target's shared queue. A responder stands for the connection while requests
// are under way: see qp_dc.go and Config.DCResponders. One initiator can have targets in
// the segment and over TCP, and its requests are executed in order.
//
// Closing. Deregistering a region and destroying a queue pair first remove what initiators look up, and
// then wait for the mark of each initiator that may have looked before, and for claims in shared queues:
// see memoryRegion.Close. They do not wait for an initiator that has died. If one is stopped for 5 s,
// Close fails, and the key, the queue pair and the memory are never used again. A lock word serialises
// software atomics; it names its holder, and others take it from a dead one: see peer.lock.
//
// Death. A peer is dead when the launcher has set its flag in the segment or when its pidfd
// reports the exit; the device checks both at every 64th request and while requests wait. Requests
// to a dead peer end with RETRY_EXC_ERR. Over TCP a peer is dead when the connection ends. With an
// ack timeout, it is also dead when its host's kernel has acknowledged nothing for the timeout, half
// a second at least, in the first try and in every retry, and for Config.Silence (queuePair.overdue).
// The device waits for a slow peer and for a stopped one, as an adapter acknowledges for both.
//
// Trust. The ranks of a segment are one trust domain: a rank that writes at random can spoil data.
// The device checks every index, offset and address that it reads from an arena, and finds
// its own memory without the arena. Over TCP both sides prove that they know the job's secret
// before either reads anything else. They check what follows, and encrypt it if Config.Secure is set
// (package softtls): frames are sealed right before the socket, and opened right behind it.
//
// Counters. The device counts what it did, and what a device on a bus would have
// done: doorbells, fetches of work queue entries and of payload, and entries that
// come with the doorbell. The rule is in qp_doorbell.go.
//
// # Blocking and goroutines
//
// Posting and polling do not block on peers. MR.Close, QP.Close and QP.Modify to RESET wait for a
// peer that is copying, for 5 s at most. Goroutines belong to the Provider, and Close ends them:
//
//	progress.run    while there is a backlog; acts when there was no poll for 1 ms
//	watch.run       while a goroutine waits in GetAsyncEvent or CompChannel.Get,
//	                and while there is a shared queue with tags
//	network.accept  with a Secret; one short handshake for each new connection
//	network.stand   with a Secret, from the first link on; see tcp_guard_linux.go
//
// # Limits
//
// One port, two GIDs, one P_Key; 32 scatter entries; 4 KiB inline; 64 bytes received inline, but
// none with an SRQ; 4096 tags in a list with 4 pieces each; messages of up to 2 GiB. Atomics on memory
// outside the arena are atomic for requests of this device, not for the processor (IBV_ATOMIC_HCA).
// A TCP address is an IP literal.
package soft
