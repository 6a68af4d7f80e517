// Package dpa is a data-path accelerator in software: device threads that run kernels, post
// RDMA requests and poll completions, while the program computes. It has the objects of DOCA's DPA.
//
//	Context            a device's threads, and the objects below      doca_dpa
//	ThreadGroup        threads that run kernels together              doca_dpa_tg, num_threads
//	Kernel             a function that the threads of a group run     __dpa_global__
//	Launch             a kernel, when it begins, what tells its end   doca_dpa_kernel_launch_update_set, _add
//	ThreadGroup.RPC    a launch that returns a value                  doca_dpa_rpc
//	SyncEvent          a counter of 64 bits to set, add to, wait for  doca_sync_event
//	RemoteEvent        a peer's SyncEvent                             doca_sync_event_remote_net
//	RDMA               a queue pair in the hands of the device        doca_dpa_dev_rdma_t
//	CompletionContext  a completion queue that can wake a thread      doca_dpa_completion
//	Thread             what a kernel calls the device by              doca_dpa_dev_*
//	Stepper, Steps     work in pieces, and the kernel that runs it    (none: package rank's started collectives)
//
// Read group.go first: it has the life of a launch. A program makes a Context on a protection domain, and
// launches:
//
//	device, err := dpa.New(pd, dpa.Config{Threads: 2})
//	group, err := device.NewThreadGroup(2)
//	done, err := device.NewSyncEvent(dpa.Device, dpa.CPU)
//	err = group.Launch(dpa.Launch{Kernel: kernel, Complete: done, Value: 1})
//	... // the program computes
//	err = done.WaitGt(ctx, 0)
//
// # Differences from DOCA
//
// A kernel is a Go function of this process, so it needs no compiler and no copies between host and
// device, and it may use whatever the function closes over. A kernel returns an error, and so do device-side calls.
// An event holds to what was declared: an update from elsewhere than its publisher, or
// a wait elsewhere than at its subscriber, is a [*LocationError]; in DOCA these are hints.
//
// # Ownership
//
// The program owns the protection domain, the queue pairs and the memory that kernels use, and closes them after the
// Context. A queue pair that [Context.NewRDMA] was given belongs to the device from then on:
// the program neither posts to it nor polls its completion queue. The Context owns its threads and the memory of events.
// A kernel owns what it closes over until its launch is over.
//
// # Threads
//
// A device thread is an OS thread of its own, which runs no other goroutine. A Context raises GOMAXPROCS by
// its threads, because each keeps a processor of the Go scheduler while it is awake, and Close lowers it again. Where this process may
// use enough CPUs, each thread is pinned to one that no process of [Config].Processes, no other
// device thread and no progress thread of a job of gorun's has. Else the threads are not pinned, share the CPUs, and yield while they wait. A thread without work
// polls for some time (1 ms, or 100 us where CPUs are shared), and then sleeps until the next launch.
//
// # Blocking
//
// Launch never waits. [ThreadGroup.RPC], [SyncEvent.WaitGt] and Close do, until what they wait for
// has come or their context has ended. On the device, [Thread.WaitGt], [Thread.Post] on a full queue and
// [Thread.Synchronize] wait; they return an error when the launch is over. A waiting thread gives the device of package rdma a chance to
// progress ([rdma.Progresser]). A wait for an event that this process publishes ends by a wake-up, one for a
// peer's by polls: after a millisecond the thread naps for an eighth of the time waited, 10 ms at most.
//
// A kernel closes neither its group nor its Context: both wait for it.
//
// Calls of the program may come from several goroutines. A Thread belongs to its kernel's
// goroutine, an RDMA and a CompletionContext to one thread at a time.
//
// # Failures
//
// A kernel that returns an error, panics or runs into its deadline fails its launch, not the
// process: the completion event keeps the [*KernelError], and every later operation on the event returns it. The other threads of
// the launch are told (their waits end), and the group goes on with the next launch. A completion event that has failed stays so.
//
// At its deadline a launch is over: waits end, and a thread that does not return within [Config].Grace is
// given up. The KernelError names it and has the stack that it had at the deadline. Another thread takes its place. Nothing can stop
// a goroutine from outside, so the given-up thread goes on until its function returns, and with it the
// memory that it uses must stay. Errors that Go cannot recover from end the process: a fatal error of the
// runtime (concurrent writes to a map, no memory), a panic of a goroutine that a kernel started.
//
// # States
//
//	launch:   QUEUED --the launches before it are over--> WAITING --Wait > Threshold--> RUNNING --> over
//	             |                                          |                            |
//	             +---------- Close: ErrClosed --------------+------ deadline, panic -----+--> over, failed
//
//	Context:  New --> open --Close--> closed
//
// Launches of a group run one after the other, in the order of Launch; groups are independent of each other. Close tells running
// kernels that they are over, fails the queued launches with [ErrClosed], and waits for the threads. It returns a
// [*StuckError] when threads were given up; then the memory of events is not freed either, since these threads
// may still write to it. All ends with the process.
package dpa
