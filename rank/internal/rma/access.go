package rma

import (
	"context"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A location is where an access goes: mapped memory, else what a request names.
type location struct {
	mem  []byte
	addr uint64
	key  uint32
}

// part is n bytes of the location from off.
func (p location) part(off, n int) location {
	if p.mem != nil {
		return location{mem: p.mem[off : off+n]}
	}
	return location{addr: p.addr + uint64(off), key: p.key}
}

// find gives the location of n bytes at off of a member's memory, which is an
// address in a dynamic window.
func (w *Window) find(member int, off uint64, n int) (location, error) {
	l := &w.remotes[member]
	if w.kind == Dynamic {
		return w.attached(member, off, uint64(n))
	}
	if off > l.size || uint64(n) > l.size-off {
		return location{}, fmt.Errorf("%w: %s at %s, rank %d has %s", ErrRange, l.span(uint64(n)), l.span(off), member, l.span(l.size))
	}
	if l.mem != nil {
		return location{mem: l.mem[off : off+uint64(n)]}, nil
	}
	return location{addr: l.base + off, key: l.key}, nil
}

// At is n bytes at a displacement of a member's memory, nil where that is not mapped, or too short.
func (w *Window) At(member, disp, n int) []byte {
	l := &w.remotes[member]
	over, off := bits.Mul64(uint64(disp), l.unit)
	if over != 0 || off > uint64(len(l.mem)) || uint64(n) > uint64(len(l.mem))-off {
		return nil // also for negative ones
	}
	return l.mem[off : off+uint64(n)]
}

// span is a number of bytes, with the elements that they are in the member's memory.
func (l *remote) span(bytes uint64) string {
	if l.unit < 2 || bytes%l.unit != 0 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%d bytes (%d elements of %d)", bytes, bytes/l.unit, l.unit)
}

// Put stores src at off of a member's memory. src belongs to it until Flush of
// the member.
func (w *Window) Put(member int, off uint64, src []byte) error {
	p, err := w.find(member, off, len(src))
	if err != nil || len(src) == 0 {
		return err
	}
	if p.mem != nil {
		arch.Copy(p.mem, src)
		return nil
	}
	return w.e.move(w.remotes[member].target, rdma.WRRDMAWrite, src, p.addr, p.key)
}

// Get fills dst from off of a member's memory. dst belongs to it until Flush.
func (w *Window) Get(member int, off uint64, dst []byte) error {
	p, err := w.find(member, off, len(dst))
	if err != nil || len(dst) == 0 {
		return err
	}
	if p.mem != nil {
		arch.Copy(dst, p.mem)
		return nil
	}
	return w.e.move(w.remotes[member].target, rdma.WRRDMARead, dst, p.addr, p.key)
}

// Settled tells that Flush of a member has nothing to wait for and no death to tell, as far as
// two loads show.
func (w *Window) Settled(member int) bool {
	l := &w.remotes[member]
	return (l.target == nil || l.target.Flying() == 0 && l.target.Err() == nil) && l.lives()
}

// lives tells that a member is alive, where a load shows that.
func (l *remote) lives() bool {
	return l.peer == nil || l.dead != nil && atomic.LoadUint32(l.dead) == 0
}

// Flush returns when all accesses to a member are complete, there and here.
// Stores into mapped memory are: the processor orders them before all that
// this process stores later, which is how others learn of it. The memory of a dead
// member is there still; that it has died is an error all the same.
func (w *Window) Flush(ctx context.Context, member int) error {
	if t := w.remotes[member].target; t != nil && (t.Flying() > 0 || t.Err() != nil) {
		return w.e.awaitAll(ctx, t)
	}
	return w.missed(&w.remotes[member])
}

// missed says that a member has died whose memory is mapped: no request tells. It
// costs a load where the launcher watches the ranks.
func (w *Window) missed(l *remote) error {
	if l.lives() {
		return nil
	}
	return w.e.cfg.Dead(l.world)
}

// FlushAll is Flush of all members. It flushes all even if one fails.
func (w *Window) FlushAll(ctx context.Context) (err error) {
	for i := range w.remotes {
		if failed := w.Flush(ctx, i); failed != nil && err == nil {
			err = &MemberError{i, failed}
		}
	}
	return err
}

// Ticket is the number of what has been started towards a member so far; Reached
// tells whether that is complete, with the error of the way there.
func (w *Window) Ticket(member int) uint64 {
	if t := w.remotes[member].target; t != nil {
		return t.Posted()
	}
	return 0
}

// Reached tells whether what a Ticket counts is complete.
func (w *Window) Reached(member int, ticket uint64) (bool, error) {
	t := w.remotes[member].target
	if t == nil {
		return true, nil
	}
	return t.Done() >= ticket, t.Err()
}
