package soft

import (
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// AdviseMR brings pages in before it returns, whether or not it is asked to
// wait. With rdma.AdviseFlush it tells (EFAULT) of memory that is not there or
// may not be written; without, a request will. A key that is not good for the
// advice is always told, as libibverbs does it: EFAULT, and EINVAL for a region
// that is not on demand.
func (d *domain) AdviseMR(advice rdma.Advice, flags rdma.AdviseFlags, sgl []rdma.SGE) error {
	fail := func(err error, format string, args ...any) error { return opError("advise_mr", err, format, args...) }
	if advice > rdma.AdvisePrefetchNoFault || flags&^rdma.AdviseFlush != 0 {
		return fail(rdma.ErrInvalid, "found advice %d with flags %#x, expected a prefetch and at most AdviseFlush", advice, uint8(flags))
	}
	write := advice == rdma.AdvisePrefetchWrite
	need := rdma.Access(0)
	if write {
		need = rdma.AccessLocalWrite
	}
	for i := range sgl {
		g := &sgl[i]
		r := d.p.byKey.get(g.LKey >> 8)
		switch {
		case r == nil || r.key != g.LKey || r.pd != d:
			return fail(syscall.EFAULT, "the protection domain has no region of key %#x", g.LKey)
		case r.access&rdma.AccessOnDemand == 0:
			return fail(rdma.ErrInvalid, "the region of key %#x was registered without AccessOnDemand", g.LKey)
		case need&^r.access != 0:
			return fail(syscall.EFAULT, "the region of key %#x grants only %v", g.LKey, r.access)
		case !r.holds(g.Addr, uint64(g.Length)):
			return fail(syscall.EFAULT, "found %d bytes at %#x, expected them within the region's %d at %#x", g.Length, g.Addr, r.length, r.addr)
		}
	}
	if advice == rdma.AdvisePrefetchNoFault {
		return nil // what is in memory is within reach
	}
	for i := range sgl {
		g := &sgl[i]
		// The region may have been closed meanwhile; its memory is not touched.
		if r := d.p.byKey.get(g.LKey >> 8); r != nil && g.Length > 0 {
			if err := populate(g.Addr-r.addr+r.va, uint64(g.Length), write); err != nil && flags&rdma.AdviseFlush != 0 {
				return fail(err, "%d bytes at %#x", g.Length, g.Addr)
			}
		}
	}
	return nil
}

// holds tells whether n bytes at addr lie in the region.
func (r *region) holds(addr, n uint64) bool {
	if r.kind == kindImplicit || r.kind == kindShared {
		return addr >= lowestAddress && addr <= highestAddress && n <= highestAddress-addr
	}
	off := addr - r.addr
	return addr >= r.addr && off <= r.length && n <= r.length-off
}
