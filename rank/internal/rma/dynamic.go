package rma

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A dynamic window has a table in the control region of each member: what is
// attached there. Its owner writes it, others read it before each access:
//
//	version  odd while the table changes
//	count
//	entries  address, length, key
const (
	tableMost  = 256 // regions that may be attached at a time
	tableEntry = 3
	tableWords = 2 + tableEntry*tableMost
)

// ErrAttach says that memory cannot be attached, or is not.
var ErrAttach = errors.New("attach")

// A table is what the own member has attached.
type table struct {
	version uint64
	list    []attachment
}

type attachment struct {
	mem   []byte
	mr    rdma.MR
	owned bool // registered for this
	addr  uint64
}

// A view is another member's table as it was last read by requests.
type view struct {
	version uint64
	entries []uint64
}

// Attach makes memory accessible in a dynamic window (MPI_Win_attach).
func (w *Window) Attach(mem []byte) error {
	addr := address(mem)
	for i := range w.table.list {
		a := &w.table.list[i]
		if addr < a.addr+uint64(len(a.mem)) && a.addr < addr+uint64(len(mem)) {
			return fmt.Errorf("%w: %d bytes overlap %d attached bytes", ErrAttach, len(mem), len(a.mem))
		}
	}
	if len(w.table.list) == tableMost {
		return fmt.Errorf("%w: the limit of %d attached regions is reached", ErrAttach, tableMost)
	}
	a := attachment{mem: mem, mr: w.e.cfg.Find(mem), addr: addr}
	if a.mr == nil {
		mr, err := w.e.cfg.PD.RegMR(mem, memoryAccess)
		if err != nil {
			return fmt.Errorf("register %d bytes: %w", len(mem), err)
		}
		a.mr, a.owned = mr, true
	}
	w.table.list = append(w.table.list, a)
	w.publish()
	return nil
}

// Detach takes memory back that begins where mem does (MPI_Win_detach).
func (w *Window) Detach(mem []byte) error {
	for i := range w.table.list {
		a := w.table.list[i]
		if a.addr != address(mem) {
			continue
		}
		w.table.list = append(w.table.list[:i], w.table.list[i+1:]...)
		w.publish()
		if a.owned {
			return a.mr.Close()
		}
		return nil
	}
	return fmt.Errorf("%w: this memory is not attached", ErrAttach)
}

// publish writes the table. Entries of it that a member reads meanwhile belong
// to a version that has passed.
func (w *Window) publish() {
	t := w.words[w.at.table():]
	w.table.version += 2
	atomic.StoreUint64(&t[0], w.table.version-1)
	atomic.StoreUint64(&t[1], uint64(len(w.table.list)))
	for i := range w.table.list {
		a := &w.table.list[i]
		e := t[2+tableEntry*i:]
		atomic.StoreUint64(&e[0], a.addr)
		atomic.StoreUint64(&e[1], uint64(len(a.mem)))
		atomic.StoreUint64(&e[2], uint64(a.mr.RKey()))
	}
	atomic.StoreUint64(&t[0], w.table.version)
}

// attached finds n bytes at an address of a member.
func (w *Window) attached(member int, addr, n uint64) (location, error) {
	if member == w.g.Rank {
		for i := range w.table.list {
			a := &w.table.list[i]
			if off := addr - a.addr; addr >= a.addr && off <= uint64(len(a.mem)) && n <= uint64(len(a.mem))-off {
				return location{mem: a.mem[off : off+n]}, nil
			}
		}
		return unattached(member, addr, n)
	}
	key, ok, err := w.lookUp(member, addr, n)
	if err != nil {
		return location{}, err
	}
	if !ok {
		return unattached(member, addr, n)
	}
	l := &w.remotes[member]
	if l.peer != nil {
		mem, err := l.peer.Map(addr, key, int(n), rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
		if err == nil {
			return location{mem: mem}, nil
		}
		if !errors.Is(err, rdma.ErrNotSupported) {
			return location{}, err
		}
	}
	return location{addr: addr, key: key}, nil
}

func unattached(member int, addr, n uint64) (location, error) {
	return location{}, fmt.Errorf("%w: %d bytes at address %#x, which rank %d has not attached", ErrRange, n, addr, member)
}

// lookUp finds the key of attached memory in a member's table.
func (w *Window) lookUp(member int, addr, n uint64) (key uint32, ok bool, err error) {
	l := &w.remotes[member]
	if l.words == nil {
		if err := w.refresh(l, member); err != nil {
			return 0, false, err
		}
		key, ok = search(l.view.entries, addr, n)
		return key, ok, nil
	}
	t := l.words[w.at.table():]
	for c := (changing{w: w, member: member}); ; {
		version := atomic.LoadUint64(&t[0])
		key, ok = search(t[1:], addr, n)
		if version%2 == 0 && atomic.LoadUint64(&t[0]) == version {
			return key, ok, nil
		}
		if err := c.look(); err != nil {
			return 0, false, err
		}
	}
}

// A changing bounds the wait for a table that its owner is writing, which takes the
// time of some stores, unless the owner has died or was stopped meanwhile.
type changing struct {
	w      *Window
	member int
	looks  int
	since  time.Time
}

// look is called for each look at the table that was in vain.
func (c *changing) look() error {
	if c.w.dead(c.member) {
		return c.w.e.cfg.Dead(c.w.remotes[c.member].world)
	}
	if c.looks++; c.looks%changingLooks != 0 {
		return nil
	}
	if runtime.Gosched(); c.since.IsZero() {
		c.since = time.Now()
	}
	if most := c.w.e.patience; time.Since(c.since) > most {
		return &MemberError{c.member, fmt.Errorf("%w: it has been in an attach or detach for %v", ErrStopped, most)}
	}
	return nil
}

// changingLooks is how many looks there are for each one at the clock.
const changingLooks = 64

// search looks through a count and as many entries.
func search(t []uint64, addr, n uint64) (key uint32, ok bool) {
	for i := range min(atomic.LoadUint64(&t[0]), tableMost) {
		e := t[1+tableEntry*i:]
		at, size := atomic.LoadUint64(&e[0]), atomic.LoadUint64(&e[1])
		if off := addr - at; addr >= at && off <= size && n <= size-off {
			return uint32(atomic.LoadUint64(&e[2])), true
		}
	}
	return 0, false
}

// refresh reads a member's table by requests, unless it is as it was.
func (w *Window) refresh(l *remote, member int) error {
	at := l.ctl + 8*uint64(w.at.table())
	for c := (changing{w: w, member: member}); ; {
		version, err := w.e.load(l.target, at, l.ctlKey)
		if err != nil || version == l.view.version && l.view.entries != nil {
			return err
		}
		if l.view.entries == nil {
			l.view.entries = make([]uint64, tableWords-1)
		}
		if err := w.e.pooled(l.target, rdma.WRRDMARead, poolBuffer, 8*tableWords-8, at+8, l.ctlKey); err != nil {
			return err
		}
		copy(l.view.entries, wordsOf(w.e.buffer(8*tableWords-8)))
		again, err := w.e.load(l.target, at, l.ctlKey)
		if err != nil {
			return err
		}
		if version == again && version%2 == 0 {
			l.view.version = version
			return nil
		}
		if err := c.look(); err != nil {
			return err
		}
	}
}

func (t *table) close() error {
	var errs []error
	for i := range t.list {
		if t.list[i].owned {
			errs = append(errs, t.list[i].mr.Close())
		}
	}
	t.list = nil
	return errors.Join(errs...)
}
