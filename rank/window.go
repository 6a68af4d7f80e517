package rank

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank/internal/rma"
)

// A Win is a window: memory of each rank of a communicator that all of them may read and write
// (MPI_Win). Ranks are those of the communicator. Displacements count elements of type T, unless the
// target has set another unit ([WinInfo]). The methods that end in Typed take datatypes for both sides.
//
// Accesses (Put, Get, Accumulate and similar) need an epoch: between two calls of Fence,
// between Start and Complete towards a rank that has called Post, or under a lock. Put and
// Get return at once, and their memory belongs to them until the end of the epoch or a flush.
// Accumulate and similar calls may wait for accumulates of other ranks, and are complete when
// they return. They fail when a process stands still for 10 s inside of an accumulate. The
// accumulates of all ranks on one element are atomic, whatever their operations.
//
// The methods of a window follow the rules of a communicator: a world serves one call at
// a time, and errors are [*Error], with the window's name in place of the communicator's.
type Win[T Element] struct {
	window
	value, other, result [1]T // of the calls with single elements
	op                   Op   // of the last accumulate, and its arithmetic
	arithmetic           kernel.Reduction
}

// A Flavor says by which call a window was made (MPI_WIN_CREATE_FLAVOR).
type Flavor uint8

// The flavors of windows.
const (
	FlavorCreate   = Flavor(rma.Create)   // WinCreate
	FlavorAllocate = Flavor(rma.Allocate) // WinAllocate
	FlavorShared   = Flavor(rma.Shared)   // WinAllocateShared
	FlavorDynamic  = Flavor(rma.Dynamic)  // WinCreateDynamic
)

// A Model says how the public and the private copy of a window's memory are related (MPI_WIN_MODEL).
type Model uint8

// Unified says that both copies are the same memory (MPI_WIN_UNIFIED). All windows have this model.
const Unified Model = 1

// window is a Win without its type.
type window struct {
	comm   *Comm // of its own, for collectives and as a name
	in     *rma.Window
	kind   rma.Kind
	elem   int
	unit   int // bytes of a displacement in the own memory
	locked int // how many ranks are locked one by one
	locks  []LockType
	epochs
	idle *access // recycled
}

// A WinInfo configures one rank's part of a window. The zero value holds the defaults.
type WinInfo struct {
	// DispUnit is the displacement unit of this rank's memory in bytes, for
	// all ranks that access it (disp_unit); 0 is the size of an element.
	// Ranks may give different units. In a dynamic window it is 1.
	DispUnit int
}

// WinCreate makes a window of the program's memory (MPI_Win_create). The length of mem may
// differ between ranks, and may be 0. The program owns mem, and may use it between epochs.
// Memory of [Alloc] is fastest. All ranks of c call it, each with at most one info.
func WinCreate[T Element](ctx context.Context, c *Comm, mem []T, info ...WinInfo) (*Win[T], error) {
	return newWin[T](ctx, c, "win_create", winPart{rma.Create, bytesOf(mem), 0}, info)
}

// WinAllocate makes a window and allocates n zeroed elements for it (MPI_Win_allocate);
// [Win.Base] returns them. n may differ between ranks. All ranks of c call it.
func WinAllocate[T Element](ctx context.Context, c *Comm, n int, info ...WinInfo) (*Win[T], error) {
	return newWin[T](ctx, c, "win_allocate", winPart{rma.Allocate, nil, n}, info)
}

// WinAllocateShared is WinAllocate for ranks that share memory, which they may also
// load from and store to (MPI_Win_allocate_shared); see [Win.Query]. The memory of
// all ranks is contiguous, in the order of ranks. If some ranks do not share memory,
// the call fails on all; [Comm.SplitType] makes communicators of ranks that do.
func WinAllocateShared[T Element](ctx context.Context, c *Comm, n int, info ...WinInfo) (*Win[T], error) {
	return newWin[T](ctx, c, "win_allocate_shared", winPart{rma.Shared, nil, n}, info)
}

// WinCreateDynamic makes a window without memory, to which each rank
// attaches memory later (MPI_Win_create_dynamic). Displacements are
// addresses at the target in bytes: the results of [Address] there.
func WinCreateDynamic[T Element](ctx context.Context, c *Comm) (*Win[T], error) {
	return newWin[T](ctx, c, "win_create_dynamic", winPart{kind: rma.Dynamic}, nil)
}

// Address is the address of s[0], for displacements in dynamic windows (MPI_Get_address).
func Address[T Element](s []T) int { return int(address(bytesOf(s))) }

// winPart is the memory of one rank in a window that is made: mem of the program, or n elements.
type winPart struct {
	kind rma.Kind
	mem  []byte
	n    int
}

func newWin[T Element](ctx context.Context, c *Comm, op string, own winPart, info []WinInfo) (*Win[T], error) {
	if c != nil && c.world != nil {
		if err := checkElement[T](c, op); err != nil {
			return nil, err
		}
	}
	w := &Win[T]{window: window{kind: own.kind, elem: sizeOf[T](), unit: sizeOf[T]()}}
	if own.kind == rma.Dynamic {
		w.unit = 1
	}
	if err := w.open(ctx, c, op, own.mem, own.n, info); err != nil {
		return nil, err
	}
	return w, nil
}

// open makes the window, of a communicator of its own: what the program does on c
// has nothing to do with the window's collectives.
func (w *window) open(ctx context.Context, c *Comm, op string, mem []byte, n int, info []WinInfo) error {
	if c != nil && c.inter {
		return c.fail(op, -1, badClass(ClassComm, "an intercommunicator cannot have windows"))
	}
	var bad error
	if n < 0 || n > math.MaxInt/w.elem {
		bad = badClass(ClassArg, "%d elements: expected 0 or more", n)
	}
	switch {
	case len(info) > 1:
		bad = badClass(ClassInfo, "%d infos: expected at most one", len(info))
	case len(info) == 1 && info[0].DispUnit < 0:
		bad = badClass(ClassDisp, "a displacement unit of %d bytes: expected 0 or more", info[0].DispUnit)
	case len(info) == 1 && info[0].DispUnit > 0:
		w.unit = info[0].DispUnit
	}
	if err := c.enterCollective(); err != nil {
		return c.fail(op, -1, err)
	}
	world := c.world
	if err := world.makings.begin(false); err != nil {
		world.leave()
		return c.fail(op, -1, err)
	}
	// Not Dup: the attributes of c are none of the window's.
	d, err := c.deriveInside(ctx, op, choice{}, bad)
	if err != nil {
		world.makings.end()
		world.leave()
		return err
	}
	d.name = fmt.Sprintf("%s.win%d", c.name, c.children)
	g := rma.Group{Rank: d.rank, Size: d.size, World: d.worldRank,
		AllGather: func(ctx context.Context, all []byte, block int) error {
			return d.team.Run(ctx, &coll.Args{Kind: coll.AllGather, Recv: coll.Buffer{Mem: all}, Bytes: block})
		},
		AllToAll: func(ctx context.Context, all []byte, block int) error {
			return d.team.Run(ctx, &coll.Args{Kind: coll.AllToAll, Recv: coll.Buffer{Mem: all}, Bytes: block})
		},
	}
	w.in, err = rma.New(ctx, world.oneSided(), g, rma.Layout{Kind: w.kind, Elem: w.elem, Unit: w.unit}, mem, n*w.elem)
	if err == nil {
		w.comm, w.locks = d, make([]LockType, d.size)
		w.epochs.targets = make([]bool, d.size)
		world.windows.open = append(world.windows.open, w)
		if mr := w.in.Allocated(); mr != nil {
			world.regions.add(mr, true) // for messages and collectives, as memory of Alloc
		}
	}
	world.makings.end()
	world.leave()
	if err != nil {
		w.comm = d
		if ce, ok := errors.AsType[*coll.Error](err); ok {
			err = d.failCollective(op, ce)
		} else {
			err = w.fail(op, -1, err)
		}
		_ = d.Free(ctx) // all ranks have failed
		return err
	}
	return nil
}

// oneSided gives the engine of the world's windows.
func (w *World) oneSided() *rma.Engine {
	if w.windows.engine != nil {
		return w.windows.engine
	}
	cfg := rma.Config{Rank: w.rank, Size: w.size, PD: w.device.PD, Any: w.device.All, Find: w.regions.find,
		Dead: w.messages.Check, Mark: w.watch.mark, Died: ErrPeerDied, Wait: w.waitFor, Hold: w.waitInside, Idle: &w.watch.sleeps, Peers: w.peers, Patience: w.device.Silence}
	if w.turns != nil {
		cfg.Turns = w.turns
	}
	w.windows.engine = rma.NewEngine(cfg)
	w.traffic.add(w.windows.engine)
	if w.beside != nil {
		w.beside.start()
	}
	return w.windows.engine
}

// windows are those of a world.
type windows struct {
	engine *rma.Engine // nil before the first one
	open   []*window
}

// close gives back what they hold at the world's end.
func (s *windows) close() error {
	var errs []error
	for _, o := range s.open {
		errs = append(errs, o.closeIn())
	}
	s.open = nil
	if s.engine != nil {
		errs = append(errs, s.engine.Close())
	}
	return errors.Join(errs...)
}

// Free frees the window (MPI_Win_free). All ranks call it, outside of epochs, and it waits for all of them.
func (w *window) Free(ctx context.Context) error {
	const op = "win_free"
	if err := w.enter(); err != nil {
		return w.fail(op, -1, err)
	}
	world := w.comm.world
	err := w.closed()
	if err == nil && w.exposed {
		err = errExposed()
	}
	if err != nil {
		world.leave()
		return w.fail(op, -1, err)
	}
	err = w.in.FlushAll(ctx)
	met := w.comm.team.Barrier(ctx)
	if closing := w.closeIn(); err == nil {
		err = closing
	}
	world.windows.open = slices.DeleteFunc(world.windows.open, func(o *window) bool { return o == w })
	world.leave()
	if met != nil {
		err = w.comm.failCollective(op, met)
		_ = w.comm.Free(ctx) // the error is told
		return err
	}
	if err != nil {
		err = w.fail(op, -1, err)
		_ = w.comm.Free(ctx)
		return err
	}
	return w.comm.Free(ctx)
}

// closeIn gives the window's memory back.
func (w *window) closeIn() error {
	if mr := w.in.Allocated(); mr != nil {
		w.comm.world.regions.remove(mr.Addr(), true)
	}
	in := w.in
	w.in = nil
	return in.Close()
}

// enter begins a call on the window.
func (w *window) enter() error {
	if w.comm == nil {
		return badClass(ClassWin, "the window was not made by one of the Win functions")
	}
	if err := w.comm.enter(); err != nil {
		if errors.Is(err, ErrFreed) {
			return badClass(ClassWin, "the window is freed")
		}
		return err
	}
	if w.in == nil {
		w.comm.world.leave()
		return badClass(ClassWin, "the window is freed")
	}
	return nil
}

// fail makes an *Error of what went wrong.
func (w *window) fail(op string, peer int, err error) error {
	if e, ok := errors.AsType[*rma.MemberError](err); ok {
		peer, err = e.Member, e.Err
	}
	switch {
	case errors.Is(err, rma.ErrMismatch):
		err = badClass(ClassArg, "%v", err)
	case errors.Is(err, rma.ErrRange):
		err = badClass(ClassRMARange, "%v", err)
	case errors.Is(err, rma.ErrUnshared), errors.Is(err, rma.ErrAttach):
		err = badClass(ClassWin, "%v", err)
	}
	return w.comm.fail(op, peer, err)
}

// Name is the window's name in errors (MPI_Win_get_name).
func (w *window) Name() string { return w.comm.name }

// SetName changes the name on this rank (MPI_Win_set_name).
func (w *window) SetName(name string) { w.comm.name = name }

// Group is the group of the window's ranks (MPI_Win_get_group).
func (w *window) Group() Group { return w.comm.Group() }

// Size is the length of this rank's memory in bytes (MPI_WIN_SIZE), and 0 for a freed window.
func (w *window) Size() int {
	if w.in == nil {
		return 0
	}
	return w.in.Size(w.comm.rank)
}

// DispUnit is the displacement unit of this rank's memory in bytes (MPI_WIN_DISP_UNIT).
func (w *window) DispUnit() int { return w.unit }

// Flavor says by which call the window was made (MPI_WIN_CREATE_FLAVOR).
func (w *window) Flavor() Flavor { return Flavor(w.kind) }

// Model is Unified (MPI_WIN_MODEL).
func (w *window) Model() Model { return Unified }

// Base is this rank's memory (MPI_WIN_BASE), nil for dynamic and for
// freed windows. If the window allocated it, it is not valid after Free.
func (w *Win[T]) Base() []T {
	if w.in == nil {
		return nil
	}
	return elementsOf[T](w.in.Mem())
}

// Query returns the memory of a rank in a shared window, for loads and stores
// (MPI_Win_shared_query). ProcNull stands for the first rank with memory. The program orders the
// accesses of several ranks: between calls of Fence, or under locks, with Sync before and after.
func (w *Win[T]) Query(rank int) ([]T, error) {
	const op = "win_shared_query"
	err := w.enter()
	if err != nil {
		return nil, w.fail(op, -1, err)
	}
	defer w.comm.world.leave()
	if w.kind != rma.Shared {
		return nil, w.fail(op, -1, badClass(ClassWin, "the window was not made by WinAllocateShared"))
	}
	if rank == ProcNull {
		for rank = 0; rank < w.comm.size-1 && w.in.Size(rank) == 0; rank++ {
		}
	}
	if rank < 0 || rank >= w.comm.size {
		return nil, w.fail(op, -1, noRank(&w.window, rank))
	}
	return elementsOf[T](w.in.Mapped(rank)), nil
}

func noRank(w *window, rank int) error {
	return badClass(ClassRank, "rank %d in a window of %d ranks", rank, w.comm.size)
}

// Attach adds memory of this rank to a dynamic window (MPI_Win_attach). It
// must not be empty and must not overlap attached memory. The program owns it.
func (w *Win[T]) Attach(mem []T) error { return w.attach("win_attach", bytesOf(mem), true) }

// Detach removes memory that was attached from a dynamic window
// (MPI_Win_detach). No rank may be accessing it.
func (w *Win[T]) Detach(mem []T) error { return w.attach("win_detach", bytesOf(mem), false) }

func (w *window) attach(op string, mem []byte, add bool) error {
	err := w.enter()
	if err != nil {
		return w.fail(op, -1, err)
	}
	switch {
	case w.kind != rma.Dynamic:
		err = badClass(ClassWin, "the window was not made by WinCreateDynamic")
	case len(mem) == 0:
		err = badClass(ClassArg, "the slice is empty")
	case add:
		err = w.in.Attach(mem)
	default:
		err = w.in.Detach(mem)
	}
	if err != nil {
		err = w.fail(op, -1, err)
	}
	w.comm.world.leave()
	return err
}
