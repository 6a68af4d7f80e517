package soft

import (
	"sort"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// sva is the whole address space under one key, with a table of what may be
// touched. The table is in the arena, for peers, and in the owner's heap, for
// itself. It is replaced as a whole: an operation under way goes by the table that
// it has found, and Protect waits for its end.
type sva struct {
	d     *domain
	r     *region
	mu    sync.Mutex // held by the goroutine that changes or closes it, before any other lock
	at    uint64     // the table in the arena, 0 for none
	size  uint64     // that was allocated for it
	ended bool
}

// A grant is a line of the table: what may be done with the addresses from
// start to end. Lines are in order and do not overlap.
type grant struct {
	start, end uint64
	access, _  uint32
}

// A grantHeader comes before the lines in the arena.
type grantHeader struct{ lines uint64 }

const (
	grantSize       = 24
	grantHeaderSize = 8
)

func (d *domain) ShareVA() (rdma.SVA, error) {
	const any = rdma.AccessLocalWrite | remoteAccess // the table says what is granted
	r := &region{kind: kindShared, access: any, length: ^uint64(0), guard: true, grants: new(atomic.Pointer[[]grant])}
	r.grants.Store(new([]grant))
	if err := d.take("share_va", r); err != nil {
		return nil, err
	}
	v := &sva{d: d, r: r}
	r.object = v
	d.p.publish(r)
	return v, nil
}

func (v *sva) PD() rdma.PD  { return v.d }
func (v *sva) LKey() uint32 { return v.r.key }
func (v *sva) RKey() uint32 { return v.r.key }

func (v *sva) Protect(addr, length uint64, access rdma.Access) error {
	bad := func(format string, args ...any) error { return opError("protect", rdma.ErrInvalid, format, args...) }
	if err := rdma.CheckAccess(access); err != nil {
		return err
	}
	if access&^(rdma.AccessLocalWrite|remoteAccess) != 0 {
		return bad("found %v, expected local write and remote rights only", access)
	}
	if length == 0 || addr < lowestAddress || addr > highestAddress || length > highestAddress-addr {
		return bad("found %d bytes at %#x, expected some between %#x and %#x", length, addr, uint64(lowestAddress), uint64(highestAddress))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return bad("the address space is closed")
	}
	list := granted(*v.r.grants.Load(), grant{start: addr, end: addr + length, access: uint32(access)})
	p, at_, size := v.d.p, uint64(0), uint64(0)
	if len(list) > 0 {
		size = grantHeaderSize + uint64(len(list))*grantSize
		var err error
		if at_, _, err = p.allocate(size); err != nil {
			return &rdma.OpError{Op: "protect", Err: err}
		}
		at[grantHeader](p.arena, at_).lines = uint64(len(list))
		copy(tableAt[grant](p.arena, at_+grantHeaderSize, len(list)), list)
	}
	v.r.grants.Store(&list)
	// A process that sees the table sees its lines.
	arch.StoreRelease64(&p.regions[v.r.index].offset, at_)
	was, wasSize := v.at, v.size
	v.at, v.size = at_, size
	if p.drain(uint64(v.r.index) + 1) {
		return &rdma.OpError{Op: "protect", Detail: stuckDetail(), Err: errStuck} // the old table stays where it is
	}
	if was != 0 {
		p.release(was, wasSize)
	}
	return nil
}

func (v *sva) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.ended {
		return nil
	}
	v.ended = true
	p := v.d.p
	p.withdraw(v.r.index)
	if p.drain(uint64(v.r.index) + 1) {
		v.d.disown()
		return &rdma.OpError{Op: "close_va", Detail: stuckDetail(), Err: errStuck}
	}
	if v.at != 0 {
		p.release(v.at, v.size)
	}
	v.d.giveBack(v.r.index)
	return nil
}

// granted is list with g in place of what was granted there.
func granted(list []grant, g grant) []grant {
	next := make([]grant, 0, len(list)+2)
	add := func(g grant) {
		if g.start >= g.end || g.access == 0 {
			return
		}
		if n := len(next); n > 0 && next[n-1].end == g.start && next[n-1].access == g.access {
			next[n-1].end = g.end
			return
		}
		next = append(next, g)
	}
	placed := false
	for _, old := range list {
		before, after := old, old
		before.end, after.start = min(old.end, g.start), max(old.start, g.end)
		add(before)
		if !placed && old.end > g.start {
			add(g)
			placed = true
		}
		add(after)
	}
	if !placed {
		add(g)
	}
	return next
}

// grants tells whether a table grants need for all of n bytes at addr. The table
// may be anybody's: each line that counts brings the search forward.
func grants(list []grant, addr, n uint64, need rdma.Access) bool {
	i := sort.Search(len(list), func(i int) bool { return list[i].end > addr })
	for ; i < len(list); i++ {
		g := list[i]
		if g.start > addr || g.end <= addr || uint32(need)&^g.access != 0 {
			return false
		}
		if n <= g.end-addr {
			return true
		}
		n -= g.end - addr
		addr = g.end
	}
	return false
}

// grants is the same for a peer's table.
func (s *peer) grants(e *regionEntry, addr, n uint64, need rdma.Access) bool {
	at_ := atomic.LoadUint64(&e.offset)
	h := at[grantHeader](s.arena, at_)
	if h == nil || at_ < s.p.layout.heapAt {
		return false
	}
	lines := h.lines
	if lines > uint64(len(s.arena))/grantSize {
		return false
	}
	return grants(tableAt[grant](s.arena, at_+grantHeaderSize, int(lines)), addr, n, need)
}
