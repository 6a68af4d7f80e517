package rdma_test

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// show tries to write 4 bytes at addr with the key and tells what came of it, on
// queue pairs of its own: a refused request takes them to ERR.
func (l *lab) show(what string, addr uint64, rkey uint32) {
	a, _ := l.pair(rdma.RC)
	l.showOn(a, what, addr, rkey)
}

func (l *lab) showOn(qp rdma.QP, what string, addr uint64, rkey uint32) {
	post(qp, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: signaled | rdma.SendInline, Inline: []byte("here"), RemoteAddr: addr, RKey: rkey})
	fmt.Printf("%s: %v\n", what, next(l.cq).Status)
}

// A window of type 1 opens a part of a region, and is moved without registering
// anything. The old key is stale then.
func Example_mwType1() {
	l := open()
	defer l.close()
	a, _ := l.pair(rdma.RC)
	mr := own(l, must(l.pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessMWBind)))
	mw := own(l, must(l.pd.AllocMW(rdma.MWType1)))
	bind := func(offset uint64) {
		check(a.BindMW(mw, 1, signaled, rdma.MWBind{MR: mr, Addr: mr.Addr() + offset, Length: 16, Access: rdma.AccessRemoteWrite}))
		finish(l.cq, 1)
	}
	bind(0)
	first := mw.RKey()
	l.show("inside", mr.Addr()+12, mw.RKey())
	l.show("a byte beyond", mr.Addr()+13, mw.RKey())
	bind(1024)
	l.show("moved", mr.Addr()+1024, mw.RKey())
	l.show("the old key", mr.Addr(), first)
	// Output:
	// inside: success
	// a byte beyond: remote access error
	// moved: success
	// the old key: remote access error
}

// A window of type 2 is bound by a request, under a key that the program chooses,
// and is good through one queue pair only.
func Example_mwType2() {
	l := open()
	defer l.close()
	a, b := l.pair(rdma.RC)
	mr := own(l, must(l.pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessMWBind)))
	mw := own(l, must(l.pd.AllocMW(rdma.MWType2)))
	key := rdma.IncRKey(mw.RKey())
	post(b, rdma.SendWR{Opcode: rdma.WRBindMW, Flags: signaled, MW: mw, RKey: key,
		Bind: &rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: 16, Access: rdma.AccessRemoteWrite}})
	finish(l.cq, 1)
	l.showOn(a, "through its queue pair", mr.Addr(), key)
	l.show("through another", mr.Addr(), key)
	post(b, rdma.SendWR{Opcode: rdma.WRLocalInv, Flags: signaled, InvalidateRKey: key})
	finish(l.cq, 1)
	l.showOn(a, "invalidated", mr.Addr(), key)
	// Output:
	// through its queue pair: success
	// through another: remote access error
	// invalidated: remote access error
}

// A send can take the receiver's window away: by the receive's completion its key
// is stale, and which it was stands there.
func Example_sendWithInv() {
	l := open()
	defer l.close()
	a, b := l.pair(rdma.RC)
	mr := own(l, must(l.pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessMWBind)))
	mw := own(l, must(l.pd.AllocMW(rdma.MWType2)))
	key := rdma.IncRKey(mw.RKey())
	post(b, rdma.SendWR{Opcode: rdma.WRBindMW, Flags: signaled, MW: mw, RKey: key,
		Bind: &rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: 16, Access: rdma.AccessRemoteWrite}})
	finish(l.cq, 1)
	receive(b, rdma.RecvWR{})
	l.showOn(a, "written", mr.Addr(), key)
	post(a, rdma.SendWR{Opcode: rdma.WRSendWithInv, InvalidateRKey: key})
	wc := next(l.cq)
	fmt.Println("invalidated:", wc.Flags&rdma.WCFlagWithInv != 0, wc.ImmData == key)
	l.showOn(a, "written", mr.Addr(), key)
	// Output:
	// written: success
	// invalidated: true true
	// written: remote access error
}

// A region's addresses may be counted from anywhere, as long as they and the memory
// lie alike in their pages.
func Example_iova() {
	l := open()
	defer l.close()
	memory := must(unix.Mmap(-1, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	defer unix.Munmap(memory)
	mr := must(l.pd.RegMRIOVA(memory, 0x7000_0000, everything))
	defer mr.Close()
	l.show("at the first byte", 0x7000_0000, mr.RKey())
	fmt.Println(cstring(memory))
	l.show("behind the last", 0x7000_0000+8192, mr.RKey())
	_, err := l.pd.RegMRIOVA(memory, 0x7000_0001, everything)
	fmt.Println("not alike:", err != nil)
	// Output:
	// at the first byte: success
	// here
	// behind the last: remote access error
	// not alike: true
}

// The addresses of a zero-based region are offsets.
func Example_zeroBased() {
	l := open()
	defer l.close()
	mr := own(l, must(l.pd.AllocMR(4096, everything|rdma.AccessZeroBased)))
	fmt.Println("begins at", mr.Addr())
	l.show("offset 4092", 4092, mr.RKey())
	l.show("offset 4093", 4093, mr.RKey())
	// Output:
	// begins at 0
	// offset 4092: success
	// offset 4093: remote access error
}

// A region can change its rights, its memory and its domain without being made
// anew; afterwards its key is another.
func Example_reregMR() {
	l := open()
	defer l.close()
	memory := make([]byte, 4096)
	mr := own(l, must(l.pd.RegMR(memory, rdma.AccessLocalWrite)))
	l.show("no right", mr.Addr(), mr.RKey())
	check(mr.Rereg(rdma.ReregAccess, nil, nil, rdma.AccessLocalWrite|rdma.AccessRemoteWrite))
	l.show("now with it", mr.Addr(), mr.RKey())
	// Output:
	// no right: remote access error
	// now with it: success
}

// On demand, registration touches no page: the first access brings it in, also
// after the program has given it back to the kernel. Advice brings pages before.
func Example_odp() {
	l := open()
	defer l.close()
	memory := must(unix.Mmap(-1, 0, 4<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	defer unix.Munmap(memory)
	mr := must(l.pd.RegMR(memory, everything|rdma.AccessOnDemand))
	defer mr.Close()
	l.show("the first page", mr.Addr(), mr.RKey())
	check(unix.Madvise(memory, unix.MADV_DONTNEED))
	fmt.Printf("given back: %q\n", cstring(memory))
	l.show("once more", mr.Addr(), mr.RKey())
	check(l.pd.AdviseMR(rdma.AdvisePrefetchWrite, rdma.AdviseFlush, []rdma.SGE{piece(mr, 0, 4<<20)}))
	// Output:
	// the first page: success
	// given back: ""
	// once more: success
}

// One region on demand is the whole address space; memory that is not mapped fails
// the request.
func Example_implicitODP() {
	l := open()
	defer l.close()
	memory := must(unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON))
	all := own(l, must(l.pd.RegMR(nil, everything|rdma.AccessOnDemand)))
	address := l.addressOf(memory)
	l.show("mapped", address, all.RKey())
	check(unix.Munmap(memory))
	l.show("not any more", address, all.RKey())
	// Output:
	// mapped: success
	// not any more: remote access error
}

// addressOf is where memory lies, which its registration tells.
func (l *lab) addressOf(memory []byte) uint64 {
	mr := must(l.pd.RegMR(memory, 0))
	defer mr.Close()
	return mr.Addr()
}

// With a shared address space nothing is registered: what may be touched is only
// noted, byte by byte.
func Example_sva() {
	l := open()
	defer l.close()
	memory := make([]byte, 4096)
	address := l.addressOf(memory)
	space := own(l, must(l.pd.ShareVA()))
	l.show("nothing is allowed", address, space.RKey())
	check(space.Protect(address, 100, rdma.AccessLocalWrite|rdma.AccessRemoteWrite))
	l.show("the first 100 bytes are", address+96, space.RKey())
	l.show("not the next", address+97, space.RKey())
	fmt.Println(string(memory[96:100]))
	// Output:
	// nothing is allowed: remote access error
	// the first 100 bytes are: success
	// not the next: remote access error
	// here
}

// A region of a file descriptor, as an accelerator's driver hands its memory out.
// Here it is a memfd that cannot shrink, as /dev/udmabuf takes it.
func Example_dmaBuf() {
	l := open()
	defer l.close()
	fd := must(unix.MemfdCreate("example", unix.MFD_ALLOW_SEALING))
	file := os.NewFile(uintptr(fd), "example")
	defer file.Close()
	check(file.Truncate(8192))
	must(unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))
	mr := own(l, must(l.pd.RegDMABufMR(4096, 4096, 0, fd, everything)))
	l.show("offset 4100 of the file", 4, mr.RKey())
	got := make([]byte, 4)
	must(file.ReadAt(got, 4100))
	fmt.Println(string(got))
	// Output:
	// offset 4100 of the file: success
	// here
}

// A key with a layout: a column of a matrix, whose elements lie a row apart, has
// addresses from 0 on without a gap. One request writes all of it.
func Example_umr() {
	l := open()
	defer l.close()
	a, b := l.pair(rdma.RC)
	mine, matrix := l.memory(64, "ABC"), l.memory(64, "......\n......\n......\n")
	const row = 7
	key := own(l, must(l.pd.CreateMkey(4)))
	column := rdma.MkeyLayout{Access: everything, Repeat: 3,
		Interleaved: []rdma.MkeyPiece{{Addr: matrix.Addr() + 2, Count: 1, Skip: row - 1, LKey: matrix.LKey()}}}
	post(b, rdma.SendWR{Opcode: rdma.WRRegMkey, Flags: signaled, Mkey: key, Layout: &column})
	finish(l.cq, 1)
	post(a, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: signaled, SGL: []rdma.SGE{piece(mine, 0, 3)}, RemoteAddr: 0, RKey: key.RKey()})
	finish(l.cq, 1)
	fmt.Print(text(matrix))

	// The same key, with a list of two pieces; read, it gathers them.
	list := rdma.MkeyLayout{Access: everything, List: []rdma.SGE{piece(matrix, 2*row, 3), piece(matrix, 0, 3)}}
	post(b, rdma.SendWR{Opcode: rdma.WRRegMkey, Flags: signaled, Mkey: key, Layout: &list})
	finish(l.cq, 1)
	post(a, rdma.SendWR{Opcode: rdma.WRRDMARead, Flags: signaled, SGL: []rdma.SGE{piece(mine, 0, 6)}, RemoteAddr: 0, RKey: key.RKey()})
	finish(l.cq, 1)
	fmt.Println(text(mine))
	// Output:
	// ..A...
	// ..B...
	// ..C...
	// ..C..A
}
