// Package rank is MPI for programs written in Go. A program calls [Init], or wraps
// its body in [Main], and talks to the other ranks of its job through a communicator.
//
//	func main() {
//		rank.Main(func(ctx context.Context, c *rank.Comm) error {
//			sum := make([]float64, 1)
//			if err := rank.Allreduce(ctx, c, []float64{float64(c.Rank())}, sum, rank.Sum); err != nil {
//				return err
//			}
//			if c.Rank() == 0 {
//				fmt.Println(sum[0])
//			}
//			return nil
//		})
//	}
//
// The words and the rules are those of MPI 4.1. Operations on typed data are functions with type
// parameters ([Send], [Recv], [Alltoall], [Allreduce], ...), because Go's methods cannot have any.
// [Run] runs ranks as goroutines of one process, so that "go test" tests a program without a launcher.
//
// The file MPI.md of this package lists the functions of MPI and their names here.
//
// # Starting
//
// A rank reads its place in the job from the environment: PMI_FD, PMI_RANK and PMI_SIZE, which gorun,
// MPICH's mpiexec and Slurm's srun set, and GORUN_*, which only gorun sets. Without them the program is
// a world of one rank. [Init] joins the job: the ranks exchange their addresses (host, device, address
// for connection requests) in one all-gather. A rank connects to a peer when it first needs to. If it
// does not map the peer's memory, it connects one queue pair for messages, one for collectives and one
// for windows. If the queue pairs of a host could take more memory than [Config.QPMemory], all data
// goes over dynamically connected queue pairs instead, of which a rank needs only a few.
//
// [Join] forms a world of processes that no launcher has started, by their addresses.
//
// # Memory
//
// A slice given to a blocking call belongs to the call until it returns. A slice given
// to a nonblocking call belongs to it until its request has reported completion. Any
// slice will do. Memory from [Alloc] is registered with the device, so that peers access
// it directly. The operands of one call must not overlap, except in place: a nil send
// operand, or the same slice as the receive operand. In steady state no call allocates.
//
// # Short forms
//
// [AllreduceOne], [BcastOne] and their like are collectives of one value. [RecvSlice]
// receives a message of any length. [SendAny] and [RecvAny] transfer values of other types
// than numbers. [Swap] is [Sendrecv] with named arguments. [NewGrid] makes a grid with the
// neighbours of this rank. [Pool] distributes tasks to ranks. These forms allocate memory.
//
// # Datatypes
//
// Functions with a type parameter take slices of numbers, and of structs and arrays of numbers. The
// methods of [Comm] with the same names take a [Buffer]: memory with a [Datatype] that says where the
// data lies in it. [Of] and [Typed] make one. A message carries only the data, in the order of the type,
// without gaps and padding, so the two sides may lay it out differently. Data without gaps is moved
// directly from memory to memory. Other data is packed into recycled memory and unpacked by the receiver.
//
// # Requests
//
// A call whose name begins with I starts an operation and returns a [Request]. A call
// whose name ends in Init prepares an operation that [Request.Start] starts any number
// of times. [WaitAll] and similar calls take several requests. A Request is a value:
// after completion was reported, all copies of it are null requests. Started operations
// progress while the rank is in any call of this package.
//
// With [Config].Progress a thread of the rank moves them also while the program computes
// or sleeps, which is worth it where there is a CPU for the thread. It calls no function of
// the program: a started reduction by an [OpFunc] still needs the rank's calls. If the thread
// panics, the rank's next call returns the [*PanicError]. If the OpFunc does, the reduction itself
// does, on whatever call it was stepped; a blocking reduction hands the panic on.
//
// # Blocking and errors
//
// Every call on a communicator may block until the other side has called too. It returns early
// when its context ends, when a peer that it needs has died, or when the communicator is
// revoked; the error is an [*Error]. A collective that returns early revokes its communicator:
// the state of the other ranks is unknown, so every later collective on it fails with the same
// cause. A failed [Send] or [Recv] does not affect other calls, with one exception: when the
// context of a long Send ends before the peer has received it, all messages between the two
// ranks end, because the peer may still read from the memory that Send returned to its caller.
//
// Under gorun --continuous, a rank that dies does not end the job (MPI's User Level Failure Mitigation). Calls that
// need it fail with [ErrProcFailed], and the others go on. Receives from [AnySource] fail until [Comm.AckFailed]. A
// program that goes on without the dead calls [Comm.Revoke], so that ranks that wait for each other stop, and then, in
// all survivors, [Comm.Shrink]. [Comm.Agree] gives all survivors the same flag, whatever dies meanwhile.
//
// Errors have MPI's classes: use errors.Is(err, rank.ClassTruncate), or [ClassOf]. Each
// error is also passed to the error handler of the communicator ([Comm.SetErrhandler]).
//
// # Collectives
//
// All ranks of a communicator call the same collectives in the same order, with the same root
// and operation, and with matching lengths. A nil send operand ([InPlace] for the methods)
// means that the data is already in the receive operand, for calls that permit it. A call with
// invalid operands fails on this rank before any data moves. A mismatch between ranks (lengths,
// types, roots, operations, or the calls themselves) ends the call on some ranks with an error
// that names both sides, and revokes the communicator: data is never truncated silently. A rank
// that had already finished its part gets the error from its next collective or from Finalize.
//
// Several collectives may be under way on one communicator: they run in the order in which they were
// started, which is the same on all ranks, and may be waited for in any order. A blocking collective
// completes those that were started before it. Reductions combine in the same order in every run, so
// that floating-point results have the same bits on all ranks. [OpFunc] makes an operation of a Go
// function. gorun -v, or [Config].Verbose, reports which algorithms and protocols were chosen, and why.
//
// # Communicators
//
// All ranks of a communicator call [Comm.Split], [Comm.SplitType], [Comm.Create] and [Comm.Dup]. Only
// the members of the [Group] call [Comm.CreateGroup]. Two groups call [CreateIntercomm]; messages on
// the intercommunicator go from one group to the other. [Comm.CartCreate] and [Comm.DistGraphCreate]
// give ranks neighbours. A message is received only on the communicator on which it was sent. Arguments
// that are invalid on one rank, or that differ between ranks, are an error on every rank that calls.
//
// # One-sided communication
//
// A [Win] is memory of each rank that the other ranks read and write. [WinCreate], [WinAllocate],
// [WinAllocateShared] and [WinCreateDynamic] make one. An access needs an epoch: between two calls
// of Fence, between Start and Complete, or under a lock. Under a lock the target makes no call.
// Accesses are loads and stores between ranks that share memory, and RDMA requests between others.
//
// # Goroutines
//
// A world serves one call at a time (MPI_THREAD_SERIALIZED). Several goroutines may call as long
// as their calls do not overlap; a call that overlaps another one fails with [ErrConcurrent].
//
// With [Config].Concurrent calls may overlap (MPI_THREAD_MULTIPLE). They take turns: a call that
// waits lets others in, and the progress that they make is its own too. These limits hold:
//
//   - A communicator has one collective at a time, as MPI says, and so one call that makes another communicator or a
//     window of it; a second one fails with ErrConcurrent. Those of other communicators may overlap, but for a Shrink.
//     The program has those of one communicator follow each other in the same order on all ranks.
//   - A request is waited for by one goroutine.
//   - The epochs of a window are those of all goroutines. Waits for a lock, for calls of other ranks and for
//     flushes let other calls in; what else waits for ranks of other hosts (an Accumulate, say) does not.
//   - Functions of the program that a call runs (an [OpFunc], say) make no calls. They run while
//     the rank is inside, on the goroutine of any of its calls.
//   - While several goroutines wait, one that waits for more than a millisecond naps, for a millisecond at most,
//     instead of sleeping until a peer wakes the rank, and gorun is not told what such a rank waits for.
//
// A program whose goroutines share more than the rank gives [Config].Turn: one lock for both.
//
// # Ownership
//
// A [World] owns the device context, the queue pairs and the memory of [Alloc]
// until [World.Finalize]. A [Comm] made by Dup or Split shares the queue pairs, and
// owns the memory of its collectives until [Comm.Free] or Finalize. The package
// starts no goroutines except the ranks of [Run] and progress threads, which end in
// Finalize, and nothing outlives the process.
package rank
