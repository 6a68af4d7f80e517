package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Kind says where a window's memory comes from.
type Kind uint8

// The kinds, in MPI's words "create flavors".
const (
	Create   Kind = iota + 1 // memory of the program
	Allocate                 // memory of the window
	Shared                   // memory of the window, in one piece, that all members map
	Dynamic                  // memory that is attached later
)

// A Group is the members of a window, and how they meet to make it.
type Group struct {
	Rank, Size int
	// World is a member's rank in the world.
	World func(member int) int
	// AllGather and AllToAll exchange blocks of some bytes in place.
	AllGather func(ctx context.Context, all []byte, block int) error
	AllToAll  func(ctx context.Context, all []byte, block int) error
}

// A Window is memory of each member that all members reach.
//
// Each member has a control region too, of words that the others work on:
//
//	0    exclusive  the passive-target lock: turn << 32 | holder + 1
//	64   waiting    a member sleeps until the lock is released
//	72   wanting    some reader waits for its turn, or did
//	128  accumulate the lock of accumulates: turn << 32 | holder + 1
//	192  readers    a word for each member: it holds the lock shared, or wants to
//	     posted     a word for each member: exposure epochs it has opened for this one
//	     completed  a word for each member: access epochs to this one it has ended
//	     singles    a line for each member: it is at a single element, see single.go
//	     table      of a dynamic window: see dynamic.go
type Window struct {
	e       *Engine
	g       Group
	at      places
	kind    Kind
	remotes []remote
	mem     []byte // own
	words   []uint64

	memory, control rdma.MR // own; memory only where the window has registered it
	table           table

	started, exposed []int // members of the open access and exposure epochs
	wait             waiting

	allMapped bool                          // all members load and store the memory of all
	own       []*target                     // that no other window uses
	one       struct{ old, result [8]byte } // of a single element
}

// A remote is one member as this rank reaches it.
type remote struct {
	world  int
	target *target         // nil where all is mapped
	peer   rdma.PeerMemory // nil where nothing is
	dead   *uint32         // see Config.Mark
	mem    []byte          // its memory, nil where that is not mapped
	base   uint64          // its memory as requests name it
	key    uint32          //
	size   uint64          //
	words  []uint64        // its control region, nil where that is not mapped
	ctl    uint64          // its control region as requests name it
	ctlKey uint32          //

	unit                     uint64 // bytes of a displacement there
	accumulate               uint64 // the lock word as it was last seen free
	exclusive                uint64
	owned                    bool   // the passive-target lock is held, exclusively
	posted, postedSeen       uint64 // epochs: opened for it, and of those it opened for this member met
	completed, completedSeen uint64
	view                     view
}

const (
	wordExclusive  = 0
	wordWaiting    = 8
	wordWanting    = 9
	wordAccumulate = 16
	wordArrays     = 24
	lineWords      = 8
	holderMask     = 1<<32 - 1
)

// places says where words are in the control region of a window with so many members.
type places int

func (size places) readers() int   { return wordArrays }
func (size places) posted() int    { return wordArrays + int(size) }
func (size places) completed() int { return wordArrays + 2*int(size) }

// single is the word of a member among the singles.
func (size places) single(member int) int {
	return (wordArrays+3*int(size)+lineWords-1)/lineWords*lineWords + lineWords*member
}

func (size places) table() int { return size.single(int(size)) }

// An intro is what a member says of its part of a window.
type intro struct {
	failed          bool
	kind            Kind
	verbs           bool // there are members that it cannot map, or memory of its own that cannot be
	elem, unit      uint64
	base, size, ctl uint64
	key, ctlKey     uint32
}

const introLen = 56

func (c *intro) put(b []byte) {
	flags := uint64(0)
	if c.failed {
		flags |= 1
	}
	if c.verbs {
		flags |= 2
	}
	flags |= uint64(c.kind) << 8
	for i, v := range [7]uint64{flags, c.elem, c.base, c.size, c.ctl, uint64(c.key)<<32 | uint64(c.ctlKey), c.unit} {
		binary.NativeEndian.PutUint64(b[8*i:], v)
	}
}

func getIntro(b []byte) (c intro) {
	at := func(i int) uint64 { return binary.NativeEndian.Uint64(b[8*i:]) }
	return intro{failed: at(0)&1 != 0, verbs: at(0)&2 != 0, kind: Kind(at(0) >> 8), elem: at(1), base: at(2), size: at(3), ctl: at(4),
		key: uint32(at(5) >> 32), ctlKey: uint32(at(5)), unit: at(6)}
}

// A MemberError is what went wrong with a member of the window.
type MemberError struct {
	Member int
	Err    error
}

func (e *MemberError) Error() string { return fmt.Sprintf("member %d: %v", e.Member, e.Err) }
func (e *MemberError) Unwrap() error { return e.Err }

// Errors that callers branch on.
var (
	// ErrRange: bytes outside a member's window.
	ErrRange = errors.New("outside the window")
	// ErrMismatch: the members want different windows.
	ErrMismatch = errors.New("mismatch")
	// ErrUnshared: the members do not share memory.
	ErrUnshared = errors.New("the ranks do not share memory")

	// ErrStopped: a member keeps a lock that is held for some copies only.
	ErrStopped = errors.New("the process makes no progress")

	errOther = errors.New("it could not create its part of the window")
)

const memoryAccess = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead

// A Layout is what a member says of its memory: the kind of the window and the bytes of an element, which are
// the same for all, and those of a displacement, which need not be.
type Layout struct {
	Kind       Kind
	Elem, Unit int
}

// New makes a window; all members call it. mem is the
// program's memory (Create); n are the bytes wanted (Allocate, Shared). When one
// member fails all do.
func New(ctx context.Context, e *Engine, g Group, layout Layout, mem []byte, n int) (w *Window, err error) {
	kind := layout.Kind
	w = &Window{e: e, g: g, at: places(g.Size), kind: kind, remotes: make([]remote, g.Size)}
	w.wait.w = w
	mine := intro{kind: kind, elem: uint64(layout.Elem), unit: uint64(layout.Unit)}
	all := make([]byte, g.Size*introLen)
	failed := w.prepare(&mine, mem, n)
	defer func() {
		if err != nil {
			_ = w.Close() // of no use to the others
			w = nil
		}
	}()
	intros := make([]intro, g.Size)
	if kind == Shared {
		// The first member makes the memory of all, in one piece.
		if err := w.gather(ctx, mine, failed, all, intros); err != nil {
			return w, err
		}
		failed = w.allocateShared(intros)
		mine.base, mine.key = 0, 0
		if w.memory != nil {
			mine.base, mine.key = w.memory.Addr(), w.memory.RKey()
		}
	}
	if err := w.gather(ctx, mine, failed, all, intros); err != nil {
		return w, err
	}
	if kind == Shared {
		at := intros[0].base
		for i := range intros {
			intros[i].base, intros[i].key = at, intros[0].key
			at += intros[i].size
		}
	}
	failed = w.connect(ctx, mine, intros)
	if err := ctx.Err(); err != nil && failed == nil {
		failed = err
	}
	// Nobody uses the window before all can.
	if err := w.gather(ctx, mine, failed, all, intros); err != nil {
		return w, err
	}
	return w, nil
}

// gather exchanges intros. The error is failed, or that another member has failed.
func (w *Window) gather(ctx context.Context, mine intro, failed error, all []byte, intros []intro) error {
	mine.failed = failed != nil
	mine.put(all[w.g.Rank*introLen:])
	if err := w.g.AllGather(ctx, all, introLen); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	for i := range intros {
		c := getIntro(all[i*introLen:])
		if c.failed {
			return &MemberError{i, errOther}
		}
		if c.kind != mine.kind {
			return &MemberError{i, fmt.Errorf("%w: its window has flavor %d, this rank's has flavor %d", ErrMismatch, c.kind, mine.kind)}
		}
		if c.elem != mine.elem {
			return &MemberError{i, fmt.Errorf("%w: its elements have %d bytes, this rank's have %d", ErrMismatch, c.elem, mine.elem)}
		}
		intros[i] = c
	}
	return nil
}

// prepare makes the member's own part.
func (w *Window) prepare(mine *intro, mem []byte, n int) (err error) {
	words := w.at.table()
	if w.kind == Dynamic {
		words += tableWords
	}
	pd := w.e.cfg.PD
	if w.control, err = pd.AllocMR(8*words, memoryAccess|rdma.AccessRemoteAtomic); err != nil {
		return fmt.Errorf("control words of a window: %w", err)
	}
	w.words = wordsOf(w.control.Bytes())
	mine.ctl, mine.ctlKey = w.control.Addr(), w.control.RKey()

	mr := rdma.MR(nil)
	switch w.kind {
	case Create:
		w.mem = mem
		if len(mem) == 0 {
			break
		}
		if mr = w.e.cfg.Find(mem); mr == nil {
			if w.memory, err = pd.RegMR(mem, memoryAccess); err != nil {
				return fmt.Errorf("register %d bytes: %w", len(mem), err)
			}
			mr = w.memory
		}
		mine.base = address(mem) - address(mr.Bytes()) + mr.Addr()
	case Allocate:
		if w.memory, err = pd.AllocMR(max(n, 64), memoryAccess); err != nil {
			return fmt.Errorf("%d bytes: %w", n, err)
		}
		mr = w.memory
		w.mem, mine.base = mr.Bytes()[:n], mr.Addr()
	case Shared:
		mine.size = uint64(n)
	}
	if mr != nil {
		mine.key, mine.size = mr.RKey(), uint64(len(w.mem))
	}
	for i := range w.remotes {
		l := &w.remotes[i]
		l.world = w.g.World(i)
		if l.peer = w.e.memory(l.world); l.peer == nil {
			mine.verbs = true
		} else if mark := w.e.cfg.Mark; mark != nil {
			l.dead = mark(l.world)
		}
	}
	if own := w.remotes[w.g.Rank].peer; w.kind == Dynamic {
		mine.verbs = true // what will be attached is not known
	} else if mr != nil && own != nil {
		if _, err := own.Map(mine.base, mine.key, len(w.mem), rdma.AccessRemoteRead); err != nil {
			mine.verbs = true
		}
	}
	if w.kind == Shared && mine.verbs {
		return ErrUnshared
	}
	if mine.verbs {
		return w.e.open()
	}
	return nil
}

// allocateShared allocates the memory of a shared window at its first member.
func (w *Window) allocateShared(intros []intro) (err error) {
	if w.g.Rank != 0 {
		return nil
	}
	total := uint64(0)
	for i := range intros {
		if total += intros[i].size; total < intros[i].size || total > 1<<62 {
			return fmt.Errorf("%d bytes and more: %w", intros[i].size, rdma.ErrNoMemory)
		}
	}
	if w.memory, err = w.e.cfg.PD.AllocMR(int(max(total, 64)), memoryAccess); err != nil {
		return fmt.Errorf("%d bytes: %w", total, err)
	}
	return nil
}

// connect makes the remotes. Whatever fails here, all exchanges are made.
func (w *Window) connect(ctx context.Context, mine intro, intros []intro) error {
	e := w.e
	var failed error
	fail := func(member int, err error) {
		if failed == nil && err != nil {
			failed = &MemberError{member, err}
		}
	}
	verbs := false
	for i := range intros {
		verbs = verbs || intros[i].verbs
	}
	w.allMapped = !verbs
	if verbs {
		// Who has a member that it cannot map, or memory that cannot be mapped,
		// is connected with all: so both sides of a pair agree.
		numbers := make([]byte, 4*w.g.Size)
		for i := range w.remotes {
			l := &w.remotes[i]
			if !intros[i].verbs && !mine.verbs || i == w.g.Rank && l.peer != nil {
				continue
			}
			var err error
			if w.kind == Dynamic {
				if l.target, err = e.newTarget(l.world); err == nil {
					w.own = append(w.own, l.target)
				}
			} else {
				l.target, err = e.prepare(l.world)
			}
			if err != nil {
				l.target = nil
				fail(i, err)
				continue
			}
			number := l.target.QP.Num()
			if l.target.connected {
				number |= connected
			}
			binary.NativeEndian.PutUint32(numbers[4*i:], number)
		}
		if err := w.g.AllToAll(ctx, numbers, 4); err != nil {
			return err
		}
		for i := range w.remotes {
			l := &w.remotes[i]
			if l.target == nil {
				continue
			}
			switch number := binary.NativeEndian.Uint32(numbers[4*i:]); {
			case number == 0:
				fail(i, errors.New("it has no queue pair for this rank"))
			case !l.target.connected || number&connected == 0:
				var err error
				l.target, err = e.connect(l.target, number&^connected)
				fail(i, err)
			}
		}
	}
	for i := range w.remotes {
		fail(i, w.open(i, &intros[i]))
	}
	return failed
}

// connected is beside the number of a queue pair, which has 24 bits, when an
// earlier window has connected it. Where one side says so and the other not, that
// window was given up in between, and both connect again.
const connected = 1 << 31

// open takes in what a member's intro says.
func (w *Window) open(member int, c *intro) error {
	l := &w.remotes[member]
	l.base, l.key, l.size, l.ctl, l.ctlKey, l.unit = c.base, c.key, c.size, c.ctl, c.ctlKey, c.unit
	if l.peer != nil {
		b, err := l.peer.Map(c.ctl, c.ctlKey, len(w.words)*8, memoryAccess&^rdma.AccessLocalWrite)
		if err != nil {
			return err
		}
		l.words = wordsOf(b)
		if c.size > 0 {
			owner := l.peer
			if w.kind == Shared {
				owner = w.remotes[0].peer
			}
			b, err := owner.Map(c.base, c.key, int(c.size), memoryAccess&^rdma.AccessLocalWrite)
			switch {
			case err == nil:
				l.mem = b
			case !errors.Is(err, rdma.ErrNotSupported):
				return err
			}
		}
	}
	if member == w.g.Rank {
		// The own memory is at hand whatever the device can.
		if w.kind == Shared {
			w.mem = l.mem
		}
		l.mem = w.mem
	}
	if l.mem == nil && l.target == nil && (l.size > 0 || w.kind == Dynamic && member != w.g.Rank) {
		return errors.New("its memory is neither mapped nor connected")
	}
	return nil
}

// Mem is the member's own memory.
func (w *Window) Mem() []byte { return w.mem }

// Size is how many bytes a member's memory has.
func (w *Window) Size(member int) int { return int(w.remotes[member].size) }

// Unit is how many bytes a displacement counts in a member's memory.
func (w *Window) Unit(member int) uint64 { return w.remotes[member].unit }

// Mapped is a member's memory where it can be loaded and stored, else nil.
func (w *Window) Mapped(member int) []byte { return w.remotes[member].mem }

// Allocated is the memory that the window has allocated here; nil: none, or the program's.
func (w *Window) Allocated() rdma.MR {
	if w.kind == Create {
		return nil
	}
	return w.memory
}

// Close gives the member's part back. No member uses the window any more.
func (w *Window) Close() error {
	err := errors.Join(w.table.close(), w.e.closeTargets(w.own), peers.Close(w.memory), peers.Close(w.control))
	w.own, w.memory, w.control, w.words, w.mem = nil, nil, nil, nil, nil
	return err
}
