// Package rank is MPI for programs written in Go: a program calls [Init], or
// wraps its body in [Main], and talks to the other ranks of its job through a
// communicator.
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
// The words and the rules are MPI's. Operations on typed data are functions with
// type parameters ([Send], [Recv], [Alltoall], [Allreduce], ...), as methods
// cannot have any. [Run] runs ranks as goroutines of one process, so that a
// program is tested by "go test" without a launcher.
//
// MPI.md, beside this file, is the table of MPI's functions and of what they are here.
//
// # Starting
//
// A rank learns its place from the environment: PMI_FD, PMI_RANK and PMI_SIZE,
// which gorun, MPICH's mpiexec and Slurm's srun set, and GORUN_*, which gorun
// adds. Without them the program is a world of one. [Init] joins the job: ranks
// exchange cards (host, device, where they take mail) in one all-gather. Connections are made
// when they are first needed: to a peer whose memory is not mapped a queue pair for messages,
// one for collectives and one for windows. When those of a host could come to take more than
// [Config.QPMemory], all go over dynamic connections instead, of which a rank has few.
//
// # Memory
//
// A slice given to a call belongs to the call until it returns, and one given to a
// call that was only started until its request has reported the end. Any slice will
// do; memory from [Alloc] is registered with the device, so that peers reach it
// directly. Operands of one call must not overlap, save for the in-place forms:
// a nil send operand, or the same slice as the receive operand. In steady state
// no call allocates.
//
// # Short forms
//
// [AllreduceOne], [BcastOne] and their like are collectives of one value. [RecvSlice]
// receives a message of any length, [SendAny] and [RecvAny] values that are no numbers.
// [Swap] is a Sendrecv whose arguments have names, [NewGrid] a grid with the neighbours
// of this rank, and [Pool] has ranks work on tasks. They allocate.
//
// # Datatypes
//
// Functions with a type parameter take slices of numbers, and of structs and arrays
// of them. The methods of [Comm] with the same names take a [Buffer]: memory with a
// [Datatype] that says where in it the data lies, [Of] a slice or [Typed]. The
// data alone travels, without gaps and padding, in the order of the type, so
// that the two sides of a message may lay it out differently. Data without gaps goes
// straight from memory to memory; other data is packed into recycled memory and
// unpacked at the other end.
//
// # Requests
//
// Calls that begin with I start an operation and give a [Request]; those that end
// in Init prepare one that [Request.Start] starts any number of times. [WaitAll] and
// its kind take several. A Request is a value: when the end of its call was
// reported, all copies of it are null requests, never somebody else's.
// Nothing runs in the background: what was started moves on while the rank is in
// some call of this package, whichever it is.
//
// # Blocking and errors
//
// Every call of a communicator may block until the other side has called too. It
// ends early when its context ends, when a peer it needs has died, or when the
// communicator is broken; the error is an [*Error]. A collective that ends early
// revokes its communicator: what the other ranks hold of it is unknown, so every
// later collective on it fails with the same cause. [Send] and [Recv] fail alone,
// with one exception: a long Send that its context ends before the peer has
// received it ends all messages between the two ranks, for the peer may hold the
// address of memory that is its owner's again.
//
// Errors have MPI's classes: errors.Is(err, rank.ClassTruncate), or [ClassOf]. A
// communicator's error handler ([Comm.SetErrhandler]) is called with each.
//
// # Collectives
//
// All ranks of a communicator call a collective, in the same order, with the same
// root and operation, and with lengths that fit. A nil send operand ([InPlace] of
// the methods) means that the data is in the receive operand already, where the call
// allows that. An error in the caller's own operands fails there, before
// anything moves. A mismatch between ranks (lengths, types, roots,
// operations, the calls themselves) ends the call of some of them with an error that
// tells both sides, and revokes the communicator: nothing is cut short in silence.
// Of ranks whose own part was done already the next collective, or Finalize, tells.
//
// Several may be started on one communicator: they run in the order of their
// starts, which is the same on all ranks, and may be waited for in any. A blocking
// one ends those that were started before it. Reductions combine in the same order
// in every run, so that floating-point results have the same bits on all ranks.
// [OpFunc] makes an operation of a function. gorun -v, or [Config].Verbose, tells
// which algorithms and protocols were chosen, and why.
//
// # Communicators
//
// [Comm.Split], [Comm.SplitType], [Comm.Create] and [Comm.Dup] are calls of all ranks
// of a communicator, [Comm.CreateGroup] of the members of a [Group] only, and
// [CreateIntercomm] of two groups, whose messages then go from one to the other.
// [Comm.CartCreate] and [Comm.DistGraphCreate] give ranks neighbours. A message is
// received on the communicator on which it was sent, and on no other, whenever
// that was made or freed. Arguments that are wrong on one rank, or not the same on
// all, are an error on every rank that calls.
//
// # One-sided communication
//
// A [Win] is memory of each rank that the others read and write by themselves:
// [WinCreate], [WinAllocate], [WinAllocateShared] and [WinCreateDynamic] make one.
// Accesses stand between two calls of Fence, between Start and Complete, or under a
// lock; the target's program does nothing for those under a lock. Between ranks
// that share memory they are loads and stores, elsewhere RDMA requests.
//
// # Goroutines
//
// A world serves one call at a time (MPI_THREAD_SERIALIZED): calls from several
// goroutines are fine as long as they do not overlap, and one that does fails
// with [ErrConcurrent] instead of corrupting the other.
//
// # What dies when
//
// A [World] owns the device context, the queue pairs and the memory of [Alloc]
// until [World.Finalize]; a [Comm] made by Dup or Split shares the queue pairs and
// owns the memory of its collectives until [Comm.Free] or Finalize. The package starts no goroutine of its own but
// for the ranks of [Run]; nothing outlives the process.
package rank
