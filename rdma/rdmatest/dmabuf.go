package rdmatest

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

func dmabufCases() []testCase {
	return needing([]testCase{
		{name: "dmabuf/memory_of_a_descriptor", nodes: 2, run: pair(dmabufMemory)},
		{name: "dmabuf/bad_descriptors_and_ranges", nodes: 1, run: dmabufRefused},
	}, rdma.FeatureDMABuf)
}

// dmabufMemory: device and program reach the same bytes, though the descriptor
// was closed after registration.
func dmabufMemory(r *rig, a, b *side) {
	const n = 3*pageSize + 100
	src := a.filled(n, 1)
	m := b.region(b.pd, Described, n, everything)
	if m.Bytes() != nil || m.Len() != n {
		r.Errorf("the region has %d bytes and hands %d out, want %d and none", m.Len(), len(m.Bytes()), n)
	}
	if m.Addr() != m.Base {
		r.Errorf("the region begins at %#x, want %#x as it was asked for", m.Addr(), m.Base)
	}
	l := r.link()
	l.recv(receive(9, m.sge(8, 64)))
	l.do(write(1, m, 0, src.sge(0, n)), send(2, src.sge(100, 64)), fetchAdd(3, m, 128, 5, src.sge(0, 8)))
	b.done(b.rcq, 9)
	want := pattern(1, n)
	copy(want[8:], pattern(1, n)[100:164])
	want[128] += 5
	if got := m.Load(0, n); got[128] != want[128] {
		copy(want[128:136], got[128:136]) // a carry: the operation's tests have it
	}
	r.same("written", m.Load(0, n), want)
	m.Store(0, pattern(2, n))
	got := a.memory(n)
	l.do(read(4, m, 0, got.sge(0, n)))
	r.same("read", got.Load(0, n), pattern(2, n))
	r.try("beyond", write(5, m, n-7, src.sge(0, 8)), rdma.WCRemAccessErr)
	near := a.region(a.pd, Described, 64, everything)
	near.Store(0, pattern(3, 64))
	dst := b.memory(64)
	l.do(write(6, dst, 0, near.sge(0, 64)))
	r.same("written from a descriptor", dst.Load(0, 64), pattern(3, 64))
	r.closeRegion(m)
	r.try("stale", write(7, m, 0, src.sge(0, 8)), rdma.WCRemAccessErr)
}

func dmabufRefused(r *rig) {
	pd := r.sides[0].pd
	check := func(what string, want error, offset, length, iova uint64, fd int, access rdma.Access) {
		r.Helper()
		mr, err := pd.RegDMABufMR(offset, length, iova, fd, access)
		if err == nil {
			r.own(mr)
		}
		if !errors.Is(err, want) {
			r.Errorf("%s: error %v, want one wrapping %q", what, err, want)
		}
	}
	pr, pw, err := os.Pipe()
	if err != nil {
		r.Fatal(err)
	}
	defer pr.Close()
	defer pw.Close()
	file := result(os.Create(r.TempDir()+"/file")).must(r, "Create")
	defer file.Close()
	r.must(file.Truncate(4*pageSize), "Truncate")
	dir := result(os.Open(".")).must(r, "Open")
	defer dir.Close()
	for _, f := range []*os.File{pr, file, dir} {
		check(fmt.Sprintf("%s, which is no dma-buf", f.Name()), rdma.ErrInvalid, 0, pageSize, 0, int(f.Fd()), everything)
	}
	check("no descriptor", syscall.EBADF, 0, pageSize, 0, -1, everything)
	fd, _, err := describe(2 * pageSize)
	if err != nil {
		r.Fatal(err)
	}
	for _, c := range []struct {
		name                 string
		offset, length, iova uint64
		access               rdma.Access
	}{
		{"no bytes", 0, 0, 0, everything},
		{"more than there is", 0, 2*pageSize + 1, 0, everything},
		{"beyond its end", 2 * pageSize, 1, 0, everything},
		{"far beyond its end", 1 << 62, pageSize, 0, everything},
		{"a range that wraps", pageSize, ^uint64(0) - 8, 0, everything},
		{"addresses that wrap", 0, 2 * pageSize, ^uint64(pageSize - 1), everything},
		{"an address that lies otherwise in its page", 8, 8, 0x1000, everything},
		{"remote write without local write", 0, pageSize, 0, rdma.AccessRemoteWrite},
		{"zero-based", 0, pageSize, 0, everything | rdma.AccessZeroBased},
	} {
		check(c.name, rdma.ErrInvalid, c.offset, c.length, c.iova, fd, c.access)
	}
	closeFD(fd)
	check("a closed descriptor", syscall.EBADF, 0, pageSize, 0, fd, everything)
}
