//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// side tells what a call with a root does on this rank.
type side int

const (
	isRoot side = iota
	isLeaf
	isNeither // of the root's group, on an intercommunicator
)

// rooted is the root in package rank's terms, and this rank's side.
func (c *comm) rooted(f *frame, root int) (int, side) {
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

// rootOf is rooted where both sides do the same.
func (c *comm) rootOf(f *frame, root int) int {
	to, _ := c.rooted(f, root)
	return to
}

// others is how many ranks a collective is with.
func (c *comm) others() int {
	if c.IsInter() {
		return c.RemoteSize()
	}
	return c.Size()
}

// input is what is sent: MPI_IN_PLACE is for intracommunicators.
func (c *comm) input(f *frame, o flat) rank.Buffer {
	if address(o.at) == inPlace {
		if c.IsInter() {
			f.bad(wrong(c_ERR_BUFFER, "MPI_IN_PLACE is not for intercommunicators"))
		}
		return rank.InPlace
	}
	return f.buffer(o.at, o.count, o.t)
}

// blocks is a buffer with count items for each of n ranks.
func (f *frame) blocks(o flat, n int) rank.Buffer {
	if o.count < 0 || o.count > mostBytes/max(n, 1) {
		f.bad(wrong(c_ERR_COUNT, "the count is %d", o.count))
		return rank.Buffer{}
	}
	return f.buffer(o.at, o.count*n, o.t)
}

// A spread is a buffer of which each rank has a part of its own.
type spread struct {
	rank.Buffer
	counts, displs []int
}

// parts is a buffer with counts and displacements, in items, for n ranks.
func (f *frame) parts(o ragged, n int) spread {
	s := spread{counts: f.wide(o.counts, n), displs: f.wide(o.displs, n)}
	if n > 0 && (s.counts == nil || s.displs == nil) {
		f.bad(wrong(c_ERR_ARG, "the counts or the displacements are NULL"))
		return s
	}
	end := 0
	for i, k := range s.counts {
		if k < 0 || k > mostBytes {
			f.bad(wrong(c_ERR_COUNT, "the count for rank %d is %d", i, k))
			return s
		}
		if k == 0 || o.t != nil && o.t.size == 0 {
			end = max(end, k)
			s.displs[i] = 0 // whatever it was: there is no data
			continue
		}
		if s.displs[i] < 0 || s.displs[i] > mostBytes {
			f.bad(wrong(c_ERR_ARG, "the displacement for rank %d is %d, before the buffer or beyond all memory, which gorun does not take", i, s.displs[i]))
			return s
		}
		end = max(end, s.displs[i]+k)
	}
	s.Buffer = f.buffer(o.at, end, o.t)
	return s
}

// each are the buffers of the w forms: displacements are in bytes. in: MPI_IN_PLACE gives nil.
func (f *frame) each(o each, n int, words, in bool) []rank.Buffer {
	if in && address(o.at) == inPlace {
		return nil
	}
	list, d := f.wide(o.counts, n), f.wide(o.displs, n)
	if words {
		d = longs(o.displs, n)
	}
	handles := handlesAt(o.types, n)
	if n > 0 && (list == nil || d == nil || handles == nil) {
		f.bad(wrong(c_ERR_ARG, "the counts, the displacements or the types are NULL"))
		return nil
	}
	all := make([]rank.Buffer, n)
	for i := range all {
		all[i] = f.buffer(advance(o.at, d[i]), list[i], typeOf(handles[i]))
	}
	return all
}

// forms makes a call as one that waits, that starts or that keeps a request. Its functions stay on the stack, but
// take 4 to 10 ns of a call of 150 to 200: the most frequent calls do without.
func (c *comm) forms(f *frame, wait func() error, start, keep func() (rank.Request, error)) error {
	switch c.ready(f) {
	case waits:
		return wait()
	case starts:
		return f.started(start())
	case keeps:
		return f.kept(keep())
	}
	return f.orNull()
}

func mpiBarrier(f *frame, c *comm) error {
	switch c.ready(f) {
	case waits:
		return c.Barrier(never)
	case starts:
		return f.started(c.Ibarrier())
	case keeps:
		return f.kept(c.BarrierInit())
	}
	return f.orNull()
}

// What C has of operands: equal blocks, blocks of their own lengths, blocks of their own types, vectors.
type (
	flat struct {
		at    ptr
		count int
		t     *datatype
	}
	ragged struct {
		at, counts, displs ptr
		t                  *datatype
	}
	each    struct{ at, counts, displs, types ptr }
	vectors struct {
		in, out ptr
		count   int
		t       *datatype
		o       *operation
	}
)

func (c *comm) gather(f *frame, s, r flat, root int) (in, out rank.Buffer, to int) {
	to, side := c.rooted(f, root)
	if side == isLeaf || side == isRoot && !c.IsInter() {
		in = c.input(f, s)
	}
	if side == isRoot {
		out = f.blocks(r, c.others())
	}
	return in, out, to
}

func (c *comm) gatherv(f *frame, s flat, r ragged, root int) (in rank.Buffer, out spread, to int) {
	to, side := c.rooted(f, root)
	if side == isLeaf || side == isRoot && !c.IsInter() {
		in = c.input(f, s)
	}
	if side == isRoot {
		out = f.parts(r, c.others())
	}
	return in, out, to
}

func (c *comm) scatter(f *frame, s, r flat, root int) (in, out rank.Buffer, to int) {
	to, side := c.rooted(f, root)
	if side == isRoot {
		in = f.blocks(s, c.others())
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		out = c.input(f, r)
	}
	return in, out, to
}

func (c *comm) scatterv(f *frame, s ragged, r flat, root int) (in spread, out rank.Buffer, to int) {
	to, side := c.rooted(f, root)
	if side == isRoot {
		in = f.parts(s, c.others())
	}
	if side == isLeaf || side == isRoot && !c.IsInter() {
		out = c.input(f, r)
	}
	return in, out, to
}

func (c *comm) alltoall(f *frame, s, r flat) (in, out rank.Buffer) {
	out = f.blocks(r, c.others())
	if address(s.at) == inPlace && !c.IsInter() {
		return rank.InPlace, out
	}
	return f.blocks(s, c.others()), out
}

func (c *comm) alltoallv(f *frame, s, r ragged) (in, out spread) {
	out = f.parts(r, c.others())
	if address(s.at) == inPlace && !c.IsInter() {
		return spread{Buffer: rank.InPlace}, out
	}
	return f.parts(s, c.others()), out
}

func (c *comm) reduce(f *frame, v vectors, root int) (in, out rank.Buffer, op rank.Op, to int) {
	to, side := c.rooted(f, root)
	if side == isLeaf || side == isRoot && !c.IsInter() {
		in = f.vector(v.o, v.in, v.count, v.t, side == isRoot)
	}
	if side == isRoot {
		out = f.vector(v.o, v.out, v.count, v.t, false)
	}
	if side != isLeaf && side != isRoot {
		return in, out, v.o.op, to // the type is not looked at
	}
	return in, out, f.opOn(v.o, v.t), to
}

// combine are the operands of reductions that all ranks receive from.
func (c *comm) combine(f *frame, v vectors) (in, out rank.Buffer, op rank.Op) {
	return f.vector(v.o, v.in, v.count, v.t, !c.IsInter()), f.vector(v.o, v.out, v.count, v.t, false), f.opOn(v.o, v.t)
}

// reduceScatter are the operands where v.count items are combined, of which this rank receives some.
func (c *comm) reduceScatter(f *frame, v vectors, own int) (in, out rank.Buffer, op rank.Op) {
	if address(v.in) == inPlace && !c.IsInter() {
		return rank.InPlace, f.vector(v.o, v.out, v.count, v.t, false), f.opOn(v.o, v.t)
	}
	return f.vector(v.o, v.in, v.count, v.t, false), f.vector(v.o, v.out, own, v.t, false), f.opOn(v.o, v.t)
}

// reduceScatterv is reduceScatter with a count for each rank.
func (c *comm) reduceScatterv(f *frame, v vectors, at ptr) (in, out rank.Buffer, counts []int, op rank.Op) {
	counts = f.wide(at, c.Size())
	total, err := sum(counts, c.Size())
	if err != nil {
		f.bad(err)
		return in, out, nil, op
	}
	v.count = total
	in, out, op = c.reduceScatter(f, v, counts[c.Rank()])
	return in, out, counts, op
}

func mpiBcast(f *frame, buf ptr, count int, t *datatype, root int, c *comm) error {
	b, to := f.buffer(buf, count, t), c.rootOf(f, root)
	switch c.ready(f) {
	case waits:
		return c.Bcast(never, b, to)
	case starts:
		return f.started(c.Ibcast(b, to))
	case keeps:
		return f.kept(c.BcastInit(b, to))
	}
	return f.orNull()
}

func mpiGather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm) error {
	s, r, to := c.gather(f, flat{sbuf, scount, stype}, flat{rbuf, rcount, rtype}, root)
	return c.forms(f,
		func() error { return c.Gather(never, s, r, to) },
		func() (rank.Request, error) { return c.Igather(s, r, to) },
		func() (rank.Request, error) { return c.GatherInit(s, r, to) })
}

func mpiGatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, root int, c *comm) error {
	s, r, to := c.gatherv(f, flat{sbuf, scount, stype}, ragged{rbuf, rcounts, rdispls, rtype}, root)
	return c.forms(f,
		func() error { return c.Gatherv(never, s, r.Buffer, r.counts, r.displs, to) },
		func() (rank.Request, error) { return c.Igatherv(s, r.Buffer, r.counts, r.displs, to) },
		func() (rank.Request, error) { return c.GathervInit(s, r.Buffer, r.counts, r.displs, to) })
}

func mpiScatter(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm) error {
	s, r, to := c.scatter(f, flat{sbuf, scount, stype}, flat{rbuf, rcount, rtype}, root)
	return c.forms(f,
		func() error { return c.Scatter(never, s, r, to) },
		func() (rank.Request, error) { return c.Iscatter(s, r, to) },
		func() (rank.Request, error) { return c.ScatterInit(s, r, to) })
}

func mpiScatterv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf ptr, rcount int, rtype *datatype, root int, c *comm) error {
	s, r, to := c.scatterv(f, ragged{sbuf, scounts, sdispls, stype}, flat{rbuf, rcount, rtype}, root)
	return c.forms(f,
		func() error { return c.Scatterv(never, s.Buffer, s.counts, s.displs, r, to) },
		func() (rank.Request, error) { return c.Iscatterv(s.Buffer, s.counts, s.displs, r, to) },
		func() (rank.Request, error) { return c.ScattervInit(s.Buffer, s.counts, s.displs, r, to) })
}

func mpiAllgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	s, r := c.input(f, flat{sbuf, scount, stype}), f.blocks(flat{rbuf, rcount, rtype}, c.others())
	switch c.ready(f) {
	case waits:
		return c.Allgather(never, s, r)
	case starts:
		return f.started(c.Iallgather(s, r))
	case keeps:
		return f.kept(c.AllgatherInit(s, r))
	}
	return f.orNull()
}

func mpiAllgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	s, r := c.input(f, flat{sbuf, scount, stype}), f.parts(ragged{rbuf, rcounts, rdispls, rtype}, c.others())
	return c.forms(f,
		func() error { return c.Allgatherv(never, s, r.Buffer, r.counts, r.displs) },
		func() (rank.Request, error) { return c.Iallgatherv(s, r.Buffer, r.counts, r.displs) },
		func() (rank.Request, error) { return c.AllgathervInit(s, r.Buffer, r.counts, r.displs) })
}

func mpiAlltoall(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	s, r := c.alltoall(f, flat{sbuf, scount, stype}, flat{rbuf, rcount, rtype})
	switch c.ready(f) {
	case waits:
		return c.Alltoall(never, s, r)
	case starts:
		return f.started(c.Ialltoall(s, r))
	case keeps:
		return f.kept(c.AlltoallInit(s, r))
	}
	return f.orNull()
}

func mpiAlltoallv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	s, r := c.alltoallv(f, ragged{sbuf, scounts, sdispls, stype}, ragged{rbuf, rcounts, rdispls, rtype})
	return c.forms(f,
		func() error { return c.Alltoallv(never, s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs) },
		func() (rank.Request, error) {
			return c.Ialltoallv(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
		},
		func() (rank.Request, error) {
			return c.AlltoallvInit(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
		})
}

func mpiAlltoallw(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm) error {
	s, r := f.each(each{sbuf, scounts, sdispls, stypes}, c.others(), false, true), f.each(each{rbuf, rcounts, rdispls, rtypes}, c.others(), false, false)
	return c.forms(f,
		func() error { return c.Alltoallw(never, s, r) },
		func() (rank.Request, error) { return c.Ialltoallw(s, r) },
		func() (rank.Request, error) { return c.AlltoallwInit(s, r) })
}

func mpiReduce(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, root int, c *comm) error {
	s, r, op, to := c.reduce(f, vectors{sbuf, rbuf, count, t, o}, root)
	switch c.ready(f) {
	case waits:
		return c.Reduce(never, s, r, op, to)
	case starts:
		return f.started(c.Ireduce(s, r, op, to))
	case keeps:
		return f.kept(c.ReduceInit(s, r, op, to))
	}
	return f.orNull()
}

func mpiAllreduce(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, op := c.combine(f, vectors{sbuf, rbuf, count, t, o})
	switch c.ready(f) {
	case waits:
		return c.Allreduce(never, s, r, op)
	case starts:
		return f.started(c.Iallreduce(s, r, op))
	case keeps:
		return f.kept(c.AllreduceInit(s, r, op))
	}
	return f.orNull()
}

func mpiScan(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, op := c.combine(f, vectors{sbuf, rbuf, count, t, o})
	return c.forms(f,
		func() error { return c.Scan(never, s, r, op) },
		func() (rank.Request, error) { return c.Iscan(s, r, op) },
		func() (rank.Request, error) { return c.ScanInit(s, r, op) })
}

func mpiExscan(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, op := c.combine(f, vectors{sbuf, rbuf, count, t, o})
	return c.forms(f,
		func() error { return c.Exscan(never, s, r, op) },
		func() (rank.Request, error) { return c.Iexscan(s, r, op) },
		func() (rank.Request, error) { return c.ExscanInit(s, r, op) })
}

func mpiReduceScatterBlock(f *frame, sbuf, rbuf ptr, count int, t *datatype, o *operation, c *comm) error {
	s, r, op := c.reduceScatter(f, vectors{sbuf, rbuf, all(count, c.Size()), t, o}, count)
	return c.forms(f,
		func() error { return c.ReduceScatterBlock(never, s, r, op) },
		func() (rank.Request, error) { return c.IreduceScatterBlock(s, r, op) },
		func() (rank.Request, error) { return c.ReduceScatterBlockInit(s, r, op) })
}

func mpiReduceScatter(f *frame, sbuf, rbuf, rcounts ptr, t *datatype, o *operation, c *comm) error {
	s, r, counts, op := c.reduceScatterv(f, vectors{sbuf, rbuf, 0, t, o}, rcounts)
	return c.forms(f,
		func() error { return c.ReduceScatter(never, s, r, counts, op) },
		func() (rank.Request, error) { return c.IreduceScatter(s, r, counts, op) },
		func() (rank.Request, error) { return c.ReduceScatterInit(s, r, counts, op) })
}

func mpiNeighborAllgather(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	s, r := f.buffer(sbuf, scount, stype), f.blocks(flat{rbuf, rcount, rtype}, c.sources(f))
	return c.forms(f,
		func() error { return c.NeighborAllgather(never, s, r) },
		func() (rank.Request, error) { return c.IneighborAllgather(s, r) },
		func() (rank.Request, error) { return c.NeighborAllgatherInit(s, r) })
}

func mpiNeighborAllgatherv(f *frame, sbuf ptr, scount int, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	s, r := f.buffer(sbuf, scount, stype), f.parts(ragged{rbuf, rcounts, rdispls, rtype}, c.sources(f))
	return c.forms(f,
		func() error { return c.NeighborAllgatherv(never, s, r.Buffer, r.counts, r.displs) },
		func() (rank.Request, error) { return c.IneighborAllgatherv(s, r.Buffer, r.counts, r.displs) },
		func() (rank.Request, error) { return c.NeighborAllgathervInit(s, r.Buffer, r.counts, r.displs) })
}

func mpiNeighborAlltoall(f *frame, sbuf ptr, scount int, stype *datatype, rbuf ptr, rcount int, rtype *datatype, c *comm) error {
	s, r := f.blocks(flat{sbuf, scount, stype}, c.destinations(f)), f.blocks(flat{rbuf, rcount, rtype}, c.sources(f))
	return c.forms(f,
		func() error { return c.NeighborAlltoall(never, s, r) },
		func() (rank.Request, error) { return c.IneighborAlltoall(s, r) },
		func() (rank.Request, error) { return c.NeighborAlltoallInit(s, r) })
}

func mpiNeighborAlltoallv(f *frame, sbuf, scounts, sdispls ptr, stype *datatype, rbuf, rcounts, rdispls ptr, rtype *datatype, c *comm) error {
	s, r := f.parts(ragged{sbuf, scounts, sdispls, stype}, c.destinations(f)), f.parts(ragged{rbuf, rcounts, rdispls, rtype}, c.sources(f))
	return c.forms(f,
		func() error {
			return c.NeighborAlltoallv(never, s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
		},
		func() (rank.Request, error) {
			return c.IneighborAlltoallv(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
		},
		func() (rank.Request, error) {
			return c.NeighborAlltoallvInit(s.Buffer, s.counts, s.displs, r.Buffer, r.counts, r.displs)
		})
}

func mpiNeighborAlltoallw(f *frame, sbuf, scounts, sdispls, stypes ptr, rbuf, rcounts, rdispls, rtypes ptr, c *comm) error {
	s, r := f.each(each{sbuf, scounts, sdispls, stypes}, c.destinations(f), true, false), f.each(each{rbuf, rcounts, rdispls, rtypes}, c.sources(f), true, false)
	return c.forms(f,
		func() error { return c.NeighborAlltoallw(never, s, r) },
		func() (rank.Request, error) { return c.IneighborAlltoallw(s, r) },
		func() (rank.Request, error) { return c.NeighborAlltoallwInit(s, r) })
}

// all is a count for n ranks; a negative one stays so.
func all(count, n int) int {
	if count > mostBytes/n {
		return mostBytes
	}
	return count * n
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
	return root.ReduceLocal(a, b, of)
}
