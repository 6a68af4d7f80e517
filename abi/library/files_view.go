//go:build cgo && linux

package main

import (
	"cmp"
	"math"
	"math/bits"
	"strings"

	"github.com/gorun-mpi/gorun/rank"
)

// A view says which of a file's bytes are the data, in units of etype: those of filetype's items, one after another
// from a displacement on.
//
//	file   |    disp    |##..#...|##..#...|##..#...        filetype: "##..#...", of which # is data
//	data                 ## #     ## #     ## #
type view struct {
	disp            int
	etype, filetype *datatype
	rep             string
}

// wholeFile is the view that files begin with.
func wholeFile() view {
	return view{etype: basicTypes[c_BYTE], filetype: basicTypes[c_BYTE], rep: "native"}
}

// from is which byte of data an offset is; the size bytes of data from there on are to be in a file that can be.
func (v *view) from(offset, size int) (int, error) {
	over, place := uint64(0), uint64(0)
	if offset >= 0 && offset <= mostBytes/max(v.etype.size, 1) && v.filetype.size > 0 {
		_, extent := v.filetype.Extent()
		items := (offset*v.etype.size+size)/v.filetype.size + 1
		over, place = bits.Mul64(uint64(items), uint64(max(extent, 1)))
	}
	if offset < 0 || offset > mostBytes/max(v.etype.size, 1) || over != 0 || place > math.MaxInt64/2 || v.disp > math.MaxInt64/2 {
		return 0, wrong(c_ERR_ARG, "the offset is %d: expected 0 or more, and a place that a file can have", offset)
	}
	return offset * v.etype.size, nil
}

// runs calls do for each run of the file's bytes that has the n bytes of data from byte from on, in their order.
func (v *view) runs(from, n int, do func(off, n int) error) error {
	return v.filetype.Runs(from, n, func(off, n int) error { return do(v.disp+off, n) })
}

// place is where in the file a byte of data is.
func (v *view) place(from int) (place int) {
	place = v.disp
	_ = v.runs(from, 1, func(off, _ int) error { place = off; return nil })
	return place
}

// etypes is how many etypes of data begin in the first n bytes of the file.
func (v *view) etypes(n int) int {
	_, extent := v.filetype.Extent()
	if n -= v.disp; n <= 0 || v.filetype.size == 0 || v.etype.size == 0 {
		return 0
	}
	items := 0
	if extent > 0 {
		items, n = n/extent, n%extent
	}
	bytes := items * v.filetype.size
	_ = v.filetype.Runs(0, v.filetype.size, func(off, k int) error {
		bytes += min(max(n-off, 0), k)
		return nil
	})
	return (bytes + v.etype.size - 1) / v.etype.size
}

// end is the number of etypes of the view that begin before the file's end.
func (o *file) end() (int, error) {
	n, err := o.size()
	return o.view.etypes(n), err
}

// check is an error for what MPI does not let be a view.
func (v *view) check(writes bool) error {
	switch {
	case !v.etype.committed || !v.filetype.committed:
		return wrong(c_ERR_TYPE, "a datatype of the view is not committed: call MPI_Type_commit")
	case v.disp < 0:
		return wrong(c_ERR_ARG, "the displacement is %d: expected 0 or more", v.disp)
	case v.rep == external32 && (v.etype.externalSize() != v.etype.size || v.filetype.externalSize() != v.filetype.size):
		return wrong(c_ERR_UNSUPPORTED_DATAREP, "a datatype of the view has other sizes in external32, as MPI_LONG has")
	case v.filetype.size > 0 && (v.etype.size == 0 || v.filetype.size%v.etype.size != 0):
		return wrong(c_ERR_IO, "the filetype has %d bytes of data, which are no etypes of %d", v.filetype.size, v.etype.size)
	}
	least := 0
	return v.filetype.Runs(0, v.filetype.size, func(off, n int) error {
		if off < least {
			return wrong(c_ERR_IO, "the filetype's displacements are negative, decrease, or overlap in a file that is written")
		}
		if least = off; writes {
			least += n
		}
		return nil
	})
}

func mpiFileSetView(_ *frame, o *file, disp int, etype, filetype *datatype, rep ptr, hints *info) error {
	fresh := view{disp, etype, filetype, text(rep)}
	var err error
	found, has := dataReps[fresh.rep]
	if !has {
		fresh.rep = strings.ToLower(fresh.rep)
		found, has = dataReps[fresh.rep]
	}
	sequential := o.mode&c_MODE_SEQUENTIAL != 0
	switch {
	case !has:
		err = wrong(c_ERR_UNSUPPORTED_DATAREP, "the data representation is %q: there are native, external32, and what MPI_Register_datarep was given", fresh.rep)
	case sequential != (disp == c_DISPLACEMENT_CURRENT):
		err = wrong(c_ERR_ARG, "the displacement is %d: expected MPI_DISPLACEMENT_CURRENT with MPI_MODE_SEQUENTIAL, and only there", disp)
	case o.split != nil:
		err = wrong(c_ERR_OTHER, "%s_begin has no end yet", o.splitBy)
	case sequential:
		var at int
		at, err = o.pointer.fetchAdd(0)
		fresh.disp = o.view.place(at * o.view.etype.size)
	}
	if err == nil {
		err = fresh.check(o.mode&c_MODE_RDONLY == 0)
	}
	if err == nil {
		err = cmp.Or(found.fits(etype), found.fits(filetype))
	}
	if err = agreed(o.comm, err); err != nil {
		return err
	}
	o.view, o.at = fresh, 0
	o.setHints(hints)
	return o.pointer.set(o.comm, 0)
}

func mpiFileGetView(f *frame, o *file, disp, etype, filetype, rep ptr) error {
	if disp == nil || etype == nil || filetype == nil || rep == nil {
		return errNull
	}
	f.putLong(disp, o.view.disp)
	f.putHandle(etype, o.view.etype.again())
	f.putHandle(filetype, o.view.filetype.again())
	f.putText(rep, nil, c_MAX_DATAREP_STRING, o.view.rep)
	return nil
}

// mpiFileGetTypeExtent: numbers have other sizes in external32; types that are made of those that have are in no view.
func mpiFileGetTypeExtent(f *frame, o *file, t *datatype, to ptr) error {
	extent, err := dataReps[o.view.rep].extentOf(t)
	if o.view.rep == external32 && t.parts != nil {
		extent = t.externalSize()
	}
	f.putLong(to, extent)
	return err
}

func mpiFileGetByteOffset(f *frame, o *file, offset int, to ptr) error {
	if o.mode&c_MODE_SEQUENTIAL != 0 {
		return errSequential
	}
	from, err := o.view.from(offset, 0)
	if err == nil {
		f.putLong(to, o.view.place(from))
	}
	return err
}

// sought is where a pointer goes.
func (o *file) sought(offset, whence, at int) (int, error) {
	var err error
	switch whence {
	case c_SEEK_SET:
	case c_SEEK_CUR:
		offset += at
	case c_SEEK_END:
		at, err = o.end()
		offset += at
	default:
		return 0, wrong(c_ERR_ARG, "whence is %d: expected MPI_SEEK_SET, MPI_SEEK_CUR or MPI_SEEK_END", whence)
	}
	if err == nil && offset < 0 {
		err = wrong(c_ERR_ARG, "the pointer would be at %d, before the view", offset)
	}
	return offset, err
}

func mpiFileSeek(_ *frame, o *file, offset, whence int) error {
	if o.mode&c_MODE_SEQUENTIAL != 0 {
		return errSequential
	}
	to, err := o.sought(offset, whence, o.at)
	if err == nil {
		o.at = to
	}
	return err
}

func mpiFileGetPosition(f *frame, o *file, to ptr) error {
	if o.mode&c_MODE_SEQUENTIAL != 0 {
		return errSequential
	}
	f.putLong(to, o.at)
	return nil
}

// A sharedPointer is the pointer that all ranks of a file share, in etypes. It lies in a window at rank 0, where others
// reach it without its doing anything; the only rank of a file has it in its own memory.
type sharedPointer struct {
	there *rank.Win[int64]
	mine  int
}

func (p *sharedPointer) open(c *rank.Comm, at int) (err error) {
	if p.mine = at; c.Size() == 1 {
		return nil
	}
	n := 0
	if c.Rank() == 0 {
		n = 1
	}
	if p.there, err = rank.WinAllocate[int64](never, c, n); err != nil {
		return err
	}
	if err := p.there.LockAll(never, 0); err != nil {
		return err
	}
	return p.set(c, at)
}

func (p *sharedPointer) close() error {
	if p.there == nil {
		return nil
	}
	if err := p.there.UnlockAll(never); err != nil {
		return err
	}
	return p.there.Free(never)
}

// fetchAdd moves the pointer on by n and tells where it was.
func (p *sharedPointer) fetchAdd(n int) (int, error) {
	if p.there == nil {
		was := p.mine
		p.mine += n
		return was, nil
	}
	was, err := p.there.FetchAndOp(int64(n), 0, 0, rank.Sum)
	return int(was), err
}

// set puts the pointer somewhere, when all ranks have come, and lets none go on before it is there.
func (p *sharedPointer) set(c *rank.Comm, at int) error {
	if p.there == nil {
		p.mine = at
		return nil
	}
	err := c.Barrier(never)
	if err == nil && c.Rank() == 0 {
		_, err = p.there.FetchAndOp(int64(at), 0, 0, rank.Replace)
	}
	return agreed(c, err)
}

// ordered moves the pointer on by the sum of all ranks' n, and gives each its part in the ranks' order.
func (p *sharedPointer) ordered(c *rank.Comm, n int) (int, error) {
	if p.there == nil {
		return p.fetchAdd(n)
	}
	all, err := rank.AllgatherOne(never, c, int64(n))
	if err != nil {
		return 0, err
	}
	before, sum := 0, 0
	for i, k := range all {
		if i < c.Rank() {
			before += int(k)
		}
		sum += int(k)
	}
	at := 0
	if c.Rank() == 0 {
		at, err = p.fetchAdd(sum)
	}
	if err = agreed(c, err); err != nil {
		return 0, err
	}
	first, err := rank.BcastOne(never, c, int64(at), 0)
	return int(first) + before, err
}

func mpiFileSeekShared(_ *frame, o *file, offset, whence int) error {
	if o.mode&c_MODE_SEQUENTIAL != 0 {
		return errSequential
	}
	if err := same(o.comm, "the offset", offset); err != nil {
		return err
	}
	if err := same(o.comm, "whence", whence); err != nil {
		return err
	}
	at, err := o.pointer.fetchAdd(0)
	if err == nil {
		at, err = o.sought(offset, whence, at)
	}
	if err = agreed(o.comm, err); err != nil {
		return err
	}
	return o.pointer.set(o.comm, at)
}

func mpiFileGetPositionShared(f *frame, o *file, to ptr) error {
	if o.mode&c_MODE_SEQUENTIAL != 0 {
		return errSequential
	}
	at, err := o.pointer.fetchAdd(0)
	if err == nil {
		f.putLong(to, at)
	}
	return err
}
