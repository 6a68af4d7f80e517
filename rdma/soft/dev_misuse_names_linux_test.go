package soft

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// What a clumsy program names in its requests: memory that is not there, more
// than there is, nothing at all. Each request ends with the status of its kind,
// the program lives, and the next connection works.

// nowhere are addresses that lead to no memory of a process.
func nowhere(t *testing.T) []uint64 {
	hole, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(hole[pageSize:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(hole) })
	return []uint64{
		0, 1, 8, pageSize - 8, pageSize, // the first pages are nobody's
		addressOf(hole) + pageSize - 4, addressOf(hole) + pageSize, // the second half of it, and all
		1<<47 - 8, 1 << 47, 1<<48 - 8, 1 << 55, highestAddress - 8, highestAddress, highestAddress + 8, 1 << 63, // beyond a process
		math.MaxUint64 - 8, math.MaxUint64 - 7, math.MaxUint64 - 4, math.MaxUint64, // and where a range wraps
	}
}

// reaches are the ways in which b's ordinary memory is reached.
func reaches(t *testing.T, each func(t *testing.T, a, b *node)) {
	for name, how := range map[string]reach{"same process": reachSame, "by the kernel": reachVM} {
		t.Run(name, func(t *testing.T) {
			n := nodes(t, 2, Config{})
			n[0].p.find(n[1].p.gids[0]).reach = how
			each(t, n[0], n[1])
		})
	}
	t.Run("TCP", func(t *testing.T) {
		n := hosts(t, 2)
		each(t, n[0], n[1])
	})
}

// tryOne posts one request on a connection of its own and gives its status, and
// that of the receive that it takes, if one is given.
func tryOne(t *testing.T, a, b *node, wr rdma.SendWR, recv *rdma.RecvWR) (mine, theirs rdma.WCStatus) {
	t.Helper()
	qa, qb := pair(t, a, b, attrs())
	if recv != nil {
		postRecv(t, qb, *recv)
	} else {
		spare := b.alloc(64, all)
		defer spare.Close()
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(spare, 0, 64)}}) // which nobody gets as far as to fill
	}
	wr.Flags |= rdma.SendSignaled
	post(t, qa, wr)
	mine = a.poll(1, b)[0].Status
	if recv != nil {
		theirs = b.poll(1, a)[0].Status
	}
	for _, q := range []*queuePair{qa, qb} {
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	return mine, theirs
}

func TestRequestsOnUnmappedAddresses(t *testing.T) {
	reaches(t, func(t *testing.T, a, b *node) {
		src, dst, big := a.alloc(64, all), b.alloc(64, all), a.alloc(1<<20, all)
		near, far := a.reg(nil, all|rdma.AccessOnDemand), b.reg(nil, all|rdma.AccessOnDemand)
		for _, addr := range nowhere(t) {
			for _, n := range []int{1, 8, 4096, 1 << 20} {
				if n == 1 && addr%pageSize == pageSize-4 {
					continue // it is there
				}
				for _, op := range []rdma.WROpcode{rdma.WRRDMAWrite, rdma.WRRDMARead, rdma.WRAtomicFetchAndAdd, rdma.WRAtomicCmpAndSwp} {
					what := fmt.Sprintf("operation %d on %d bytes at %#x", op, n, addr)
					atomics := op >= rdma.WRAtomicCmpAndSwp
					if atomics && n != 8 {
						continue
					}
					want := rdma.WCRemAccessErr
					if atomics && addr%8 != 0 {
						want = rdma.WCRemInvReqErr
					}
					if got, _ := tryOne(t, a, b, rdma.SendWR{Opcode: op, SGL: []rdma.SGE{sge(big, 0, n)}, RemoteAddr: addr, RKey: far.RKey()}, nil); got != want {
						t.Errorf("%s at the peer: %v, want %v", what, got, want)
					}
					here := rdma.SGE{Addr: addr, Length: uint32(n), LKey: near.LKey()}
					if n > 64 {
						continue
					}
					if got, _ := tryOne(t, a, b, rdma.SendWR{Opcode: op, SGL: []rdma.SGE{here}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}, nil); got != rdma.WCLocProtErr {
						t.Errorf("%s at home: %v, want %v", what, got, rdma.WCLocProtErr)
					}
				}
				if n > 64 {
					continue
				}
				// A message from there, and into there.
				if got, _ := tryOne(t, a, b, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{{Addr: addr, Length: uint32(n), LKey: near.LKey()}}}, nil); got != rdma.WCLocProtErr {
					t.Errorf("a message from %#x: %v, want %v", addr, got, rdma.WCLocProtErr)
				}
				mine, theirs := tryOne(t, a, b, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, n)}},
					&rdma.RecvWR{SGL: []rdma.SGE{{Addr: addr, Length: uint32(n), LKey: far.LKey()}}})
				if mine != rdma.WCRemOpErr || theirs != rdma.WCLocProtErr {
					t.Errorf("a message into %#x: %v and %v, want %v and %v", addr, mine, theirs, rdma.WCRemOpErr, rdma.WCLocProtErr)
				}
			}
		}
		if got, _ := tryOne(t, a, b, rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 64)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}, nil); got != rdma.WCSuccess {
			t.Errorf("a write after all that: %v", got)
		}
	})
}

// The whole of both address spaces is under keys, but no more than a message
// goes in one request, however its pieces are cut.
func TestPostOverMaxMessage(t *testing.T) {
	n := nodes(t, 2, Config{})
	a, b := n[0], n[1]
	near, far := a.reg(nil, all|rdma.AccessOnDemand), b.reg(nil, all|rdma.AccessOnDemand)
	qa, qb := pair(t, a, b, attrs())
	piece := func(n uint32) rdma.SGE { return rdma.SGE{Addr: 1 << 46, Length: n, LKey: near.LKey()} }
	for name, sgl := range map[string][]rdma.SGE{
		"one piece":          {piece(1<<31 + 1)},
		"the longest piece":  {piece(math.MaxUint32)},
		"four pieces":        {piece(1 << 31), piece(0), piece(1), piece(0)},
		"a sum that wraps":   {piece(1 << 31), piece(1 << 31)},
		"thousands":          make([]rdma.SGE, 5000),
		"one more than told": make([]rdma.SGE, qa.init.Cap.MaxSendSGE+1),
	} {
		for _, op := range []rdma.WROpcode{rdma.WRRDMAWrite, rdma.WRSend, rdma.WRRDMARead} {
			if k, err := qa.PostSend([]rdma.SendWR{{Opcode: op, SGL: sgl, RemoteAddr: 1 << 46, RKey: far.RKey()}}); k != 0 || !errors.Is(err, rdma.ErrInvalid) {
				t.Errorf("%s, operation %d: %d taken, %v, want EINVAL", name, op, k, err)
			}
		}
	}
	for name, sgl := range map[string][]rdma.SGE{"thousands": make([]rdma.SGE, 5000), "one more than told": make([]rdma.SGE, qb.init.Cap.MaxRecvSGE+1)} {
		if k, err := qb.PostRecv([]rdma.RecvWR{{SGL: sgl}}); k != 0 || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s to receive into: %d taken, %v, want EINVAL", name, k, err)
		}
	}
	// A receive may be longer than any message.
	dst, src := b.alloc(64, all), a.alloc(64, all)
	fill(src.Bytes(), 3)
	postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 64), {Addr: 1 << 46, Length: math.MaxUint32, LKey: far.LKey()}, {Addr: 1 << 46, Length: math.MaxUint32, LKey: far.LKey()}}})
	post(t, qa, rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 64)}})
	if st := a.poll(1)[0].Status; st != rdma.WCSuccess || string(dst.Bytes()) != string(src.Bytes()) {
		t.Errorf("a message into the first piece of a receive of 8 GiB: %v", st)
	}
}

// Every key, queue pair, completion queue and shared queue that there is, and one
// more; then all of them again.
func TestCreateWithEveryIndexInUse(t *testing.T) {
	n := nodes(t, 1, Config{})[0]
	memory := make([]byte, 64)
	limits := n.ctx.QueryDevice()
	for _, c := range []struct {
		name string
		most int
		make func() (closer, error)
	}{
		{"regions", limits.MaxMR, func() (closer, error) { return n.pd.RegMR(memory, all) }},
		{"windows", limits.MaxMW, func() (closer, error) { return n.pd.AllocMW(rdma.MWType2) }},
		{"queue pairs", limits.MaxQP, func() (closer, error) {
			return n.pd.CreateQP(rdma.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: 1}})
		}},
		{"completion queues", limits.MaxCQ - 1, func() (closer, error) { return n.ctx.CreateCQ(1) }},
		{"shared queues", limits.MaxSRQ, func() (closer, error) {
			return n.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1, MaxSGE: 1}})
		}},
		{"XRC domains", xrcDomains, func() (closer, error) { return n.ctx.OpenXRCD(rdma.XRCDInitAttr{}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			rounds := 2
			if arch.RaceEnabled {
				rounds = 1
			}
			for round := range rounds {
				var all []closer
				var err error
				for {
					var o closer
					if o, err = c.make(); err != nil {
						break
					}
					if all = append(all, o); len(all) > c.most {
						break
					}
				}
				if len(all) != c.most || !errors.Is(err, rdma.ErrNoMemory) {
					t.Errorf("round %d: %d were made, then %v, want %d and ENOMEM", round, len(all), err, c.most)
				}
				for _, o := range all {
					if err := o.Close(); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}
