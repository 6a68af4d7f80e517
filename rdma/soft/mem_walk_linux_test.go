package soft

import (
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// Random requests on keys of every kind, right and wrong in every way: what Walk finds
// is the completion that the request gets.
func TestWalkEndsAsTheRequestDoes(t *testing.T) {
	n := open(t, Config{})
	pages, err := unix.Mmap(-1, 0, 4*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(pages) })
	if err := unix.Mprotect(pages[2*pageSize:3*pageSize], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(pages[3*pageSize:], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	va := addressOf(pages)
	type target struct {
		name        string
		key         uint32
		addr, bytes uint64
	}
	var targets []target
	region := func(name string, mr rdma.MR) {
		targets = append(targets, target{name, mr.RKey(), mr.Addr(), mr.Len()})
	}
	region("arena", n.alloc(256, all|rdma.AccessMWBind))
	region("no atomics", n.alloc(64, all&^rdma.AccessRemoteAtomic))
	region("read only", n.alloc(64, rdma.AccessRemoteRead))
	region("ordinary", n.reg(make([]byte, 128), all))
	region("zero-based", n.alloc(64, all|rdma.AccessZeroBased))
	region("crooked", n.reg(make([]byte, 129)[1:], all|rdma.AccessZeroBased))
	region("on demand", n.reg(pages, all|rdma.AccessOnDemand))
	implicit := must[rdma.MR](t)(n.pd.RegMR(nil, all|rdma.AccessOnDemand))
	targets = append(targets, target{"implicit", implicit.RKey(), va, 4 * pageSize})
	other := must[rdma.PD](t)(n.ctx.AllocPD())
	apart := must[rdma.MR](t)(other.AllocMR(64, all))
	n.owned = append(n.owned, apart, other)
	region("other domain", apart)
	gone := n.alloc(64, all)
	region("closed", gone)
	if err := gone.Close(); err != nil {
		t.Fatal(err)
	}
	shared := must[rdma.SVA](t)(n.pd.ShareVA())
	if err := shared.Protect(va+100, pageSize, rdma.AccessRemoteRead); err != nil {
		t.Fatal(err)
	}
	if err := shared.Protect(va+100+pageSize, 64, all); err != nil {
		t.Fatal(err)
	}
	targets = append(targets, target{"shared", shared.RKey(), va + 100, pageSize + 64})

	qa, qb := pair(t, n, n, attrs())
	own := n.alloc(256, all|rdma.AccessMWBind)
	w1, w2 := n.window(rdma.MWType1), n.window(rdma.MWType2)
	key := must[rdma.Mkey](t)(n.pd.CreateMkey(4))
	n.owned = append(n.owned, w1, w2, key)
	bind := rdma.MWBind{MR: own, Addr: own.Addr() + 64, Length: 64, Access: rdma.AccessRemoteWrite}
	if err := qb.BindMW(w1, 1, rdma.SendSignaled, bind); err != nil {
		t.Fatal(err)
	}
	post(t, qb, rdma.SendWR{Opcode: rdma.WRBindMW, Flags: rdma.SendSignaled, MW: w2, RKey: rdma.IncRKey(w2.RKey()), Bind: &bind},
		rdma.SendWR{Opcode: rdma.WRRegMkey, Flags: rdma.SendSignaled, Mkey: key, Layout: &rdma.MkeyLayout{Access: all, Repeat: 3,
			Interleaved: []rdma.MkeyPiece{{Addr: own.Addr(), Count: 8, Skip: 8, LKey: own.LKey()}, {Addr: own.Addr() + 128, Count: 4, LKey: own.LKey()}}}})
	n.poll(3)
	targets = append(targets, target{"window 1", w1.RKey(), bind.Addr, 64}, target{"window 2", w2.RKey(), bind.Addr, 64}, target{"layout", key.RKey(), 0, 36})

	local := n.alloc(2*pageSize, all)
	random := rand.New(rand.NewPCG(11, 12))
	stops := map[string]int{}
	for i := range 3000 {
		at := targets[random.IntN(len(targets))]
		rkey, addr, length := at.key, at.addr+random.Uint64N(at.bytes+1), 1+random.Uint64N(min(at.bytes, 2*pageSize))
		op := []rdma.WROpcode{rdma.WRRDMAWrite, rdma.WRRDMARead, rdma.WRAtomicFetchAndAdd}[random.IntN(3)]
		if random.IntN(2) == 0 {
			addr = at.addr
		}
		if op == rdma.WRAtomicFetchAndAdd {
			length = 8
			if random.IntN(4) > 0 {
				addr &^= 7
			}
		}
		switch random.IntN(16) {
		case 0:
			rkey++
		case 1:
			rkey = random.Uint32()
		case 2:
			addr = at.addr - 1
		}
		if arch.RaceEnabled && (length == 4 || length == 8) {
			continue // one atomic load each: the race detector does not survive its fault
		}
		a := attrs()
		if random.IntN(8) == 0 {
			a.AccessFlags = rdma.AccessRemoteRead
		}
		from, to := pair(t, n, n, a)
		if i == 0 { // the queue pair that the window is bound for
			from, to, rkey, addr, length, op = qa, qb, w2.RKey(), bind.Addr, 64, rdma.WRRDMAWrite
		}
		steps := Walk(to, op, rkey, addr, length)
		last := steps[len(steps)-1]
		post(t, from, rdma.SendWR{Opcode: op, Flags: rdma.SendSignaled, RKey: rkey, RemoteAddr: addr,
			SGL: []rdma.SGE{{Addr: local.Addr(), Length: uint32(length), LKey: local.LKey()}}})
		if got := n.poll(1)[0].Status; got != last.Status {
			t.Fatalf("%d: %v of %d bytes at %#x, key %#x (%s): completion %v, the walk says %+v", i, op, length, addr, rkey, at.name, got, steps)
		}
		stops[last.Name+" "+last.Status.String()]++
		if i > 0 && (from.Close() != nil || to.Close() != nil) {
			t.Fatal("the queue pairs cannot be closed")
		}
		if i == 0 && (last.Status != rdma.WCSuccess || steps[len(steps)-3].Name != "binding") {
			t.Errorf("through the window's queue pair: %+v", steps)
		}
	}
	for _, want := range []string{"request", "index", "tag", "domain", "range", "rights", "binding", "entry", "page"} {
		failed := want + " " + rdma.WCRemAccessErr.String()
		if want == "request" {
			failed = want + " " + rdma.WCRemInvReqErr.String()
		}
		if stops[failed] == 0 {
			t.Errorf("no request ended at the step %s; they ended so: %v", want, stops)
		}
	}
	if stops["page "+rdma.WCSuccess.String()] == 0 {
		t.Errorf("no request was right: %v", stops)
	}
}
