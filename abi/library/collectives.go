//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// Each collective has three forms that bind their operands alike: blocking, started (I...) and persistent (..._init).

// side tells what a call with a root does on this rank.
type side int

const (
	isRoot side = iota
	isLeaf
	isNeither // of the root's group, on an intercommunicator
)

// rooted is the root in package rank's terms, and this rank's side.
func (f *frame) rooted(c *comm, root int) (int, side) {
	if !c.IsInter() {
		if root < 0 || root >= c.Size() {
			f.bad(wrong(c_ERR_ROOT, "the root is %d in a communicator of %d ranks", root, c.Size()))
		}
		if root == c.Rank() {
			return root, isRoot
		}
		return root, isLeaf
	}
	switch {
	case root == c_ROOT:
		return rank.Root, isRoot
	case root == c_PROC_NULL:
		return rank.ProcNull, isNeither
	case root < 0 || root >= c.RemoteSize():
		f.bad(wrong(c_ERR_ROOT, "the root is %d, and the other group has %d ranks", root, c.RemoteSize()))
	}
	return root, isLeaf
}

// others is how many ranks a collective is with.
func (c *comm) others() int {
	if c.IsInter() {
		return c.RemoteSize()
	}
	return c.Size()
}

// input is what is sent: MPI_IN_PLACE is for intracommunicators.
func (f *frame) input(c *comm, at ptr, count int, t *datatype) rank.Buffer {
	if address(at) == inPlace {
		if c.IsInter() {
			f.bad(wrong(c_ERR_BUFFER, "MPI_IN_PLACE is not for intercommunicators"))
		}
		return rank.InPlace
	}
	return f.buffer(at, count, t)
}

// blocks is a buffer with count items for each of n ranks.
func (f *frame) blocks(at ptr, count, n int, t *datatype) rank.Buffer {
	if count < 0 || count > mostBytes/max(n, 1) {
		f.bad(wrong(c_ERR_COUNT, "the count is %d", count))
		return rank.Buffer{}
	}
	return f.buffer(at, count*n, t)
}

// A spread is a buffer of which each rank has a part of its own.
type spread struct {
	rank.Buffer
	counts, displs []int
}

// parts is a buffer with counts and displacements, in items, for n ranks.
func (f *frame) parts(at, counts, displs ptr, n int, t *datatype) spread {
	s := spread{counts: f.wide(counts, n), displs: f.wide(displs, n)}
	if n > 0 && (s.counts == nil || s.displs == nil) {
		f.bad(wrong(c_ERR_ARG, "the counts or the displacements are NULL"))
		return s
	}
	end := 0
	for i, k := range s.counts {
		if k < 0 {
			f.bad(wrong(c_ERR_COUNT, "the count for rank %d is %d", i, k))
			return s
		}
		if k == 0 || t != nil && t.size == 0 {
			end = max(end, k)
			s.displs[i] = 0 // whatever it was: there is no data
			continue
		}
		if s.displs[i] < 0 {
			f.bad(wrong(c_ERR_ARG, "the displacement for rank %d is %d, before the buffer, which gorun does not take", i, s.displs[i]))
			return s
		}
		end = max(end, s.displs[i]+k)
	}
	s.Buffer = f.buffer(at, end, t)
	return s
}

// lists are the lists of a w form, in C's memory.
type lists struct{ counts, displs, types ptr }

// each are the buffers of the w forms: displacements are in bytes. in: MPI_IN_PLACE gives nil.
func (f *frame) each(at ptr, l lists, n int, words, in bool) []rank.Buffer {
	if in && address(at) == inPlace {
		return nil
	}
	list, d := f.wide(l.counts, n), f.wide(l.displs, n)
	if words {
		d = longs(l.displs, n)
	}
	handles := handlesAt(l.types, n)
	if n > 0 && (list == nil || d == nil || handles == nil) {
		f.bad(wrong(c_ERR_ARG, "the counts, the displacements or the types are NULL"))
		return nil
	}
	all := make([]rank.Buffer, n)
	for i := range all {
		all[i] = f.buffer(advance(at, d[i]), list[i], typeOf(handles[i]))
	}
	return all
}

func mpiBarrier(_ *frame, c *comm) error { return c.Barrier(never) }

func mpiIbarrier(f *frame, c *comm, request ptr) error {
	if request == nil {
		return errNull
	}
	return f.to(request, c).started(c.Ibarrier())
}

func mpiBarrierInit(f *frame, c *comm, _ *info, request ptr) error {
	if request == nil {
		return errNull
	}
	return f.to(request, c).kept(c.BarrierInit())
}

func mpiBcast(f *frame, buf ptr, count int, t *datatype, root int, c *comm) error {
	b := f.buffer(buf, count, t)
	to, _ := f.rooted(c, root)
	if f.err != nil {
		return f.err
	}
	return c.Bcast(never, b, to)
}

func mpiIbcast(f *frame, buf ptr, count int, t *datatype, root int, c *comm, request ptr) error {
	b := f.buffer(buf, count, t)
	to, _ := f.rooted(c, root)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Ibcast(b, to))
}

func mpiBcastInit(f *frame, buf ptr, count int, t *datatype, root int, c *comm, _ *info, request ptr) error {
	b := f.buffer(buf, count, t)
	to, _ := f.rooted(c, root)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.BcastInit(b, to))
}

func mpiGather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.input(c, sbuf, scount, stype)
	}
	if side == isRoot {
		r = f.blocks(rbuf, rcount, c.others(), rtype)
	}
	if f.err != nil {
		return f.err
	}
	return c.Gather(never, s, r, to)
}

func mpiIgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm, request ptr) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.input(c, sbuf, scount, stype)
	}
	if side == isRoot {
		r = f.blocks(rbuf, rcount, c.others(), rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Igather(s, r, to))
}

func mpiGatherInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm, _ *info, request ptr) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.input(c, sbuf, scount, stype)
	}
	if side == isRoot {
		r = f.blocks(rbuf, rcount, c.others(), rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.GatherInit(s, r, to))
}

func mpiGatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, root int, c *comm) error {
	to, side := f.rooted(c, root)
	var s rank.Buffer
	var r spread
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.input(c, sbuf, scount, stype)
	}
	if side == isRoot {
		r = f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	}
	if f.err != nil {
		return f.err
	}
	return c.Gatherv(never, s, r.Buffer, r.counts, r.displs, to)
}

func mpiIgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, root int, c *comm, request ptr) error {
	to, side := f.rooted(c, root)
	var s rank.Buffer
	var r spread
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.input(c, sbuf, scount, stype)
	}
	if side == isRoot {
		r = f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Igatherv(s, r.Buffer, r.counts, r.displs, to))
}

func mpiGathervInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, root int, c *comm, _ *info, request ptr) error {
	to, side := f.rooted(c, root)
	var s rank.Buffer
	var r spread
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.input(c, sbuf, scount, stype)
	}
	if side == isRoot {
		r = f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.GathervInit(s, r.Buffer, r.counts, r.displs, to))
}

func mpiScatter(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isRoot {
		s = f.blocks(sbuf, scount, c.others(), stype)
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		r = f.input(c, rbuf, rcount, rtype)
	}
	if f.err != nil {
		return f.err
	}
	return c.Scatter(never, s, r, to)
}

func mpiIscatter(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm, request ptr) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isRoot {
		s = f.blocks(sbuf, scount, c.others(), stype)
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		r = f.input(c, rbuf, rcount, rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iscatter(s, r, to))
}

func mpiScatterInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm, _ *info, request ptr) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isRoot {
		s = f.blocks(sbuf, scount, c.others(), stype)
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		r = f.input(c, rbuf, rcount, rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ScatterInit(s, r, to))
}

func mpiScatterv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm) error {
	to, side := f.rooted(c, root)
	var s spread
	var r rank.Buffer
	if side == isRoot {
		s = f.parts(sbuf, scounts, sdispls, c.others(), stype)
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		r = f.input(c, rbuf, rcount, rtype)
	}
	if f.err != nil {
		return f.err
	}
	return c.Scatterv(never, s.Buffer, s.counts, s.displs, r, to)
}

func mpiIscatterv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm, request ptr) error {
	to, side := f.rooted(c, root)
	var s spread
	var r rank.Buffer
	if side == isRoot {
		s = f.parts(sbuf, scounts, sdispls, c.others(), stype)
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		r = f.input(c, rbuf, rcount, rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iscatterv(s.Buffer, s.counts, s.displs, r, to))
}

func mpiScattervInit(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm, _ *info, request ptr) error {
	to, side := f.rooted(c, root)
	var s spread
	var r rank.Buffer
	if side == isRoot {
		s = f.parts(sbuf, scounts, sdispls, c.others(), stype)
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		r = f.input(c, rbuf, rcount, rtype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ScattervInit(s.Buffer, s.counts, s.displs, r, to))
}

func mpiAllgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	s, r := f.input(c, sbuf, scount, stype), f.blocks(rbuf, rcount, c.others(), rtype)
	if f.err != nil {
		return f.err
	}
	return c.Allgather(never, s, r)
}

func mpiIallgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, request ptr) error {
	s, r := f.input(c, sbuf, scount, stype), f.blocks(rbuf, rcount, c.others(), rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iallgather(s, r))
}

func mpiAllgatherInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, _ *info, request ptr) error {
	s, r := f.input(c, sbuf, scount, stype), f.blocks(rbuf, rcount, c.others(), rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.AllgatherInit(s, r))
}

func mpiAllgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	s, r := f.input(c, sbuf, scount, stype), f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	if f.err != nil {
		return f.err
	}
	return c.Allgatherv(never, s, r.Buffer, r.counts, r.displs)
}

func mpiIallgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, request ptr) error {
	s, r := f.input(c, sbuf, scount, stype), f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iallgatherv(s, r.Buffer, r.counts, r.displs))
}

func mpiAllgathervInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, _ *info, request ptr) error {
	s, r := f.input(c, sbuf, scount, stype), f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.AllgathervInit(s, r.Buffer, r.counts, r.displs))
}

func mpiAlltoall(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	s, r := rank.InPlace, f.blocks(rbuf, rcount, c.others(), rtype)
	if address(sbuf) != inPlace || c.IsInter() {
		s = f.blocks(sbuf, scount, c.others(), stype)
	}
	if f.err != nil {
		return f.err
	}
	return c.Alltoall(never, s, r)
}

func mpiIalltoall(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, request ptr) error {
	s, r := rank.InPlace, f.blocks(rbuf, rcount, c.others(), rtype)
	if address(sbuf) != inPlace || c.IsInter() {
		s = f.blocks(sbuf, scount, c.others(), stype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Ialltoall(s, r))
}

func mpiAlltoallInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, _ *info, request ptr) error {
	s, r := rank.InPlace, f.blocks(rbuf, rcount, c.others(), rtype)
	if address(sbuf) != inPlace || c.IsInter() {
		s = f.blocks(sbuf, scount, c.others(), stype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.AlltoallInit(s, r))
}

func mpiAlltoallv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	s, r := spread{Buffer: rank.InPlace}, f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	if address(sbuf) != inPlace || c.IsInter() {
		s = f.parts(sbuf, scounts, sdispls, c.others(), stype)
	}
	if f.err != nil {
		return f.err
	}
	return c.Alltoallv(never, s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
}

func mpiIalltoallv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, request ptr) error {
	s, r := spread{Buffer: rank.InPlace}, f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	if address(sbuf) != inPlace || c.IsInter() {
		s = f.parts(sbuf, scounts, sdispls, c.others(), stype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Ialltoallv(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs))
}

func mpiAlltoallvInit(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, _ *info, request ptr) error {
	s, r := spread{Buffer: rank.InPlace}, f.parts(rbuf, rcounts, rdispls, c.others(), rtype)
	if address(sbuf) != inPlace || c.IsInter() {
		s = f.parts(sbuf, scounts, sdispls, c.others(), stype)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.AlltoallvInit(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs))
}

func mpiAlltoallw(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm) error {
	s, r := f.each(sbuf, lists{scounts, sdispls, stypes}, c.others(), false, true), f.each(rbuf, lists{rcounts, rdispls, rtypes}, c.others(), false, false)
	if f.err != nil {
		return f.err
	}
	return c.Alltoallw(never, s, r)
}

func mpiIalltoallw(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm, request ptr) error {
	s, r := f.each(sbuf, lists{scounts, sdispls, stypes}, c.others(), false, true), f.each(rbuf, lists{rcounts, rdispls, rtypes}, c.others(), false, false)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Ialltoallw(s, r))
}

func mpiAlltoallwInit(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm, _ *info, request ptr) error {
	s, r := f.each(sbuf, lists{scounts, sdispls, stypes}, c.others(), false, true), f.each(rbuf, lists{rcounts, rdispls, rtypes}, c.others(), false, false)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.AlltoallwInit(s, r))
}

func mpiReduce(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, root int, c *comm) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.vector(o, sbuf, count, t, side == isRoot)
	}
	if side == isRoot {
		r = f.vector(o, rbuf, count, t, false)
	}
	of := f.opOn(o, t)
	if f.err != nil {
		return f.err
	}
	return c.Reduce(never, s, r, of, to)
}

func mpiIreduce(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, root int, c *comm, request ptr) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.vector(o, sbuf, count, t, side == isRoot)
	}
	if side == isRoot {
		r = f.vector(o, rbuf, count, t, false)
	}
	of := f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Ireduce(s, r, of, to))
}

func mpiReduceInit(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, root int, c *comm, _ *info, request ptr) error {
	to, side := f.rooted(c, root)
	var s, r rank.Buffer
	if side == isLeaf || side == isRoot && !c.IsInter() {
		s = f.vector(o, sbuf, count, t, side == isRoot)
	}
	if side == isRoot {
		r = f.vector(o, rbuf, count, t, false)
	}
	of := f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ReduceInit(s, r, of, to))
}

func mpiAllreduce(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, of := f.vector(o, sbuf, count, t, !c.IsInter()), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil {
		return f.err
	}
	return c.Allreduce(never, s, r, of)
}

func mpiIallreduce(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, request ptr) error {
	s, r, of := f.vector(o, sbuf, count, t, !c.IsInter()), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iallreduce(s, r, of))
}

func mpiAllreduceInit(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, _ *info, request ptr) error {
	s, r, of := f.vector(o, sbuf, count, t, !c.IsInter()), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.AllreduceInit(s, r, of))
}

func mpiScan(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, of := f.vector(o, sbuf, count, t, true), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil {
		return f.err
	}
	return c.Scan(never, s, r, of)
}

func mpiIscan(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, request ptr) error {
	s, r, of := f.vector(o, sbuf, count, t, true), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iscan(s, r, of))
}

func mpiScanInit(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, _ *info, request ptr) error {
	s, r, of := f.vector(o, sbuf, count, t, true), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ScanInit(s, r, of))
}

func mpiExscan(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, of := f.vector(o, sbuf, count, t, true), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil {
		return f.err
	}
	return c.Exscan(never, s, r, of)
}

func mpiIexscan(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, request ptr) error {
	s, r, of := f.vector(o, sbuf, count, t, true), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.Iexscan(s, r, of))
}

func mpiExscanInit(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, _ *info, request ptr) error {
	s, r, of := f.vector(o, sbuf, count, t, true), f.vector(o, rbuf, count, t, false), f.opOn(o, t)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ExscanInit(s, r, of))
}

func mpiReduceScatterBlock(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	n := c.Size()
	in := address(sbuf) == inPlace && !c.IsInter()
	if count < 0 || count > mostBytes/n {
		return wrong(c_ERR_COUNT, "the count is %d", count)
	}
	s, r, of := rank.InPlace, rank.Buffer{}, f.opOn(o, t)
	if in {
		r = f.vector(o, rbuf, count*n, t, false)
	} else {
		s, r = f.vector(o, sbuf, count*n, t, false), f.vector(o, rbuf, count, t, false)
	}
	if f.err != nil {
		return f.err
	}
	return c.ReduceScatterBlock(never, s, r, of)
}

func mpiIreduceScatterBlock(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, request ptr) error {
	n := c.Size()
	in := address(sbuf) == inPlace && !c.IsInter()
	if count < 0 || count > mostBytes/n {
		return wrong(c_ERR_COUNT, "the count is %d", count)
	}
	s, r, of := rank.InPlace, rank.Buffer{}, f.opOn(o, t)
	if in {
		r = f.vector(o, rbuf, count*n, t, false)
	} else {
		s, r = f.vector(o, sbuf, count*n, t, false), f.vector(o, rbuf, count, t, false)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IreduceScatterBlock(s, r, of))
}

func mpiReduceScatterBlockInit(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm, _ *info, request ptr) error {
	n := c.Size()
	in := address(sbuf) == inPlace && !c.IsInter()
	if count < 0 || count > mostBytes/n {
		return wrong(c_ERR_COUNT, "the count is %d", count)
	}
	s, r, of := rank.InPlace, rank.Buffer{}, f.opOn(o, t)
	if in {
		r = f.vector(o, rbuf, count*n, t, false)
	} else {
		s, r = f.vector(o, sbuf, count*n, t, false), f.vector(o, rbuf, count, t, false)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ReduceScatterBlockInit(s, r, of))
}

func mpiReduceScatter(f *frame, sbuf, rbuf, rcounts ptr, t *datatype, o *operation, c *comm) error {
	counts := ints(rcounts, c.Size())
	if f.large {
		counts = longs(rcounts, c.Size())
	}
	total, err := sum(counts, c.Size())
	if err != nil {
		return err
	}
	s, r, of := rank.InPlace, rank.Buffer{}, f.opOn(o, t)
	if address(sbuf) == inPlace && !c.IsInter() {
		r = f.vector(o, rbuf, total, t, false)
	} else {
		s, r = f.vector(o, sbuf, total, t, false), f.vector(o, rbuf, counts[c.Rank()], t, false)
	}
	if f.err != nil {
		return f.err
	}
	return c.ReduceScatter(never, s, r, counts, of)
}

func mpiIreduceScatter(f *frame, sbuf, rbuf, rcounts ptr, t *datatype, o *operation, c *comm, request ptr) error {
	counts := ints(rcounts, c.Size())
	if f.large {
		counts = longs(rcounts, c.Size())
	}
	total, err := sum(counts, c.Size())
	if err != nil {
		return err
	}
	s, r, of := rank.InPlace, rank.Buffer{}, f.opOn(o, t)
	if address(sbuf) == inPlace && !c.IsInter() {
		r = f.vector(o, rbuf, total, t, false)
	} else {
		s, r = f.vector(o, sbuf, total, t, false), f.vector(o, rbuf, counts[c.Rank()], t, false)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IreduceScatter(s, r, counts, of))
}

func mpiReduceScatterInit(f *frame, sbuf, rbuf, rcounts ptr, t *datatype, o *operation, c *comm, _ *info, request ptr) error {
	counts := ints(rcounts, c.Size())
	if f.large {
		counts = longs(rcounts, c.Size())
	}
	total, err := sum(counts, c.Size())
	if err != nil {
		return err
	}
	s, r, of := rank.InPlace, rank.Buffer{}, f.opOn(o, t)
	if address(sbuf) == inPlace && !c.IsInter() {
		r = f.vector(o, rbuf, total, t, false)
	} else {
		s, r = f.vector(o, sbuf, total, t, false), f.vector(o, rbuf, counts[c.Rank()], t, false)
	}
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.ReduceScatterInit(s, r, counts, of))
}

func mpiNeighborAllgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	in, _ := f.neighbours(c)
	s, r := f.buffer(sbuf, scount, stype), f.blocks(rbuf, rcount, in, rtype)
	if f.err != nil {
		return f.err
	}
	return c.NeighborAllgather(never, s, r)
}

func mpiIneighborAllgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, request ptr) error {
	in, _ := f.neighbours(c)
	s, r := f.buffer(sbuf, scount, stype), f.blocks(rbuf, rcount, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IneighborAllgather(s, r))
}

func mpiNeighborAllgatherInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, _ *info, request ptr) error {
	in, _ := f.neighbours(c)
	s, r := f.buffer(sbuf, scount, stype), f.blocks(rbuf, rcount, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.NeighborAllgatherInit(s, r))
}

func mpiNeighborAllgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	in, _ := f.neighbours(c)
	s, r := f.buffer(sbuf, scount, stype), f.parts(rbuf, rcounts, rdispls, in, rtype)
	if f.err != nil {
		return f.err
	}
	return c.NeighborAllgatherv(never, s, r.Buffer, r.counts, r.displs)
}

func mpiIneighborAllgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, request ptr) error {
	in, _ := f.neighbours(c)
	s, r := f.buffer(sbuf, scount, stype), f.parts(rbuf, rcounts, rdispls, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IneighborAllgatherv(s, r.Buffer, r.counts, r.displs))
}

func mpiNeighborAllgathervInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, _ *info, request ptr) error {
	in, _ := f.neighbours(c)
	s, r := f.buffer(sbuf, scount, stype), f.parts(rbuf, rcounts, rdispls, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.NeighborAllgathervInit(s, r.Buffer, r.counts, r.displs))
}

func mpiNeighborAlltoall(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	in, out := f.neighbours(c)
	s, r := f.blocks(sbuf, scount, out, stype), f.blocks(rbuf, rcount, in, rtype)
	if f.err != nil {
		return f.err
	}
	return c.NeighborAlltoall(never, s, r)
}

func mpiIneighborAlltoall(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, request ptr) error {
	in, out := f.neighbours(c)
	s, r := f.blocks(sbuf, scount, out, stype), f.blocks(rbuf, rcount, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IneighborAlltoall(s, r))
}

func mpiNeighborAlltoallInit(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm, _ *info, request ptr) error {
	in, out := f.neighbours(c)
	s, r := f.blocks(sbuf, scount, out, stype), f.blocks(rbuf, rcount, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.NeighborAlltoallInit(s, r))
}

func mpiNeighborAlltoallv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	in, out := f.neighbours(c)
	s, r := f.parts(sbuf, scounts, sdispls, out, stype), f.parts(rbuf, rcounts, rdispls, in, rtype)
	if f.err != nil {
		return f.err
	}
	return c.NeighborAlltoallv(never, s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
}

func mpiIneighborAlltoallv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, request ptr) error {
	in, out := f.neighbours(c)
	s, r := f.parts(sbuf, scounts, sdispls, out, stype), f.parts(rbuf, rcounts, rdispls, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IneighborAlltoallv(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs))
}

func mpiNeighborAlltoallvInit(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm, _ *info, request ptr) error {
	in, out := f.neighbours(c)
	s, r := f.parts(sbuf, scounts, sdispls, out, stype), f.parts(rbuf, rcounts, rdispls, in, rtype)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.NeighborAlltoallvInit(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs))
}

func mpiNeighborAlltoallw(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm) error {
	in, out := f.neighbours(c)
	s, r := f.each(sbuf, lists{scounts, sdispls, stypes}, out, true, false), f.each(rbuf, lists{rcounts, rdispls, rtypes}, in, true, false)
	if f.err != nil {
		return f.err
	}
	return c.NeighborAlltoallw(never, s, r)
}

func mpiIneighborAlltoallw(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm, request ptr) error {
	in, out := f.neighbours(c)
	s, r := f.each(sbuf, lists{scounts, sdispls, stypes}, out, true, false), f.each(rbuf, lists{rcounts, rdispls, rtypes}, in, true, false)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).started(c.IneighborAlltoallw(s, r))
}

func mpiNeighborAlltoallwInit(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm, _ *info, request ptr) error {
	in, out := f.neighbours(c)
	s, r := f.each(sbuf, lists{scounts, sdispls, stypes}, out, true, false), f.each(rbuf, lists{rcounts, rdispls, rtypes}, in, true, false)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.to(request, c).kept(c.NeighborAlltoallwInit(s, r))
}

// sum is the sum of counts for n ranks.
func sum(counts []int, n int) (total int, err error) {
	if len(counts) != n {
		return 0, wrong(c_ERR_ARG, "the counts are NULL")
	}
	for i, k := range counts {
		if k < 0 || k > mostBytes {
			return 0, wrong(c_ERR_COUNT, "the count for rank %d is %d", i, k)
		}
		total += k
	}
	return total, nil
}

func mpiReduceLocal(f *frame, in, inout ptr, count int, t *datatype, o *operation) error {
	a, b, of := f.vector(o, in, count, t, false), f.vector(o, inout, count, t, false), f.opOn(o, t)
	if f.err != nil {
		return f.err
	}
	return world.ReduceLocal(a, b, of)
}
