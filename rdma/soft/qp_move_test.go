package soft

import (
	"bytes"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

func filled(n int, b byte) []byte { return bytes.Repeat([]byte{b}, n) }

func TestMove(t *testing.T) {
	noLeaks(t)
	n := nodes(t, 2, Config{})
	q, _ := pair(t, n[0], n[1], attrs())
	far := filled(100, 1)
	whole := n[1].reg(nil, all|rdma.AccessOnDemand)
	arena, readable := n[1].alloc(100, all), n[1].reg(far, rdma.AccessRemoteRead)
	before := n[0].ctx.Counters()
	for _, c := range []struct {
		name string
		mr   rdma.MR
		mem  []byte
		addr uint64
	}{{"ordinary", whole, far, addressOf(far)}, {"arena", arena, arena.Bytes(), arena.Addr()}} {
		mem := filled(50, 7)
		if !q.Move(rdma.WRRDMAWrite, mem, c.addr+20, c.mr.RKey()) || !bytes.Equal(c.mem[20:70], mem) || bytes.Count(c.mem, []byte{7}) != 50 {
			t.Errorf("%s: wrote %v", c.name, c.mem)
		}
		copy(c.mem, filled(100, 9))
		if !q.Move(rdma.WRRDMARead, mem, c.addr+50, c.mr.RKey()) || !bytes.Equal(mem, filled(50, 9)) {
			t.Errorf("%s: read %v", c.name, mem)
		}
	}
	after := n[0].ctx.Counters()
	if after.Writes-before.Writes != 2 || after.ReadBytes-before.ReadBytes != 100 {
		t.Errorf("counted %+v, before %+v", after, before)
	}
	mem := filled(50, 3)
	for name, moved := range map[string]bool{
		"no such key":   q.Move(rdma.WRRDMARead, mem, arena.Addr(), arena.RKey()+1),
		"beyond":        q.Move(rdma.WRRDMARead, mem, arena.Addr()+51, arena.RKey()),
		"no right":      q.Move(rdma.WRRDMAWrite, mem, readable.Addr(), readable.RKey()),
		"not mapped":    q.Move(rdma.WRRDMARead, mem, 4096, whole.RKey()),
		"another verb":  q.Move(rdma.WRSend, mem, arena.Addr(), arena.RKey()),
		"deregistered":  n[1].dereg(readable) && q.Move(rdma.WRRDMARead, mem, addressOf(far), readable.RKey()),
		"not connected": n[0].queue().Move(rdma.WRRDMARead, mem, arena.Addr(), arena.RKey()),
	} {
		if moved {
			t.Errorf("%s: moved", name)
		}
	}
	// None of that is a fault: a request still goes, and in its turn.
	post(t, q, rdma.SendWR{Opcode: rdma.WRSend})
	if q.Move(rdma.WRRDMAWrite, mem, arena.Addr(), arena.RKey()) {
		t.Error("moved before what was posted")
	}
}

func (n *node) dereg(mr rdma.MR) bool { return mr.Close() == nil }

// Without the rights, under an adversary and over TCP it has to be posted.
func TestMoveRefused(t *testing.T) {
	noLeaks(t)
	without := attrs()
	without.AccessFlags = rdma.AccessRemoteWrite
	few := attrs()
	few.MaxRdAtomic = 0
	for name, c := range map[string]struct {
		cfg  Config
		attr rdma.QPAttr
	}{"rights": {Config{}, without}, "resources": {Config{}, few}, "adversary": {Config{Adversary: &Adversary{Seed: 1}}, attrs()}} {
		n := nodes(t, 2, c.cfg)
		q, _ := pair(t, n[0], n[1], c.attr)
		mr := n[1].alloc(100, all)
		if q.Move(rdma.WRRDMARead, make([]byte, 10), mr.Addr(), mr.RKey()) {
			t.Errorf("%s: moved", name)
		}
	}
	secret := []byte("0123456789abcdef0123456789abcdef")
	a := open(t, Config{Host: "a", Secret: secret, Listen: "127.0.0.1:0"})
	b := open(t, Config{Host: "b", Secret: secret, Listen: "127.0.0.1:0"})
	introduce(t, a, b)
	q, _ := pair(t, a, b, attrs())
	mr := b.alloc(100, all)
	if q.Move(rdma.WRRDMARead, make([]byte, 10), mr.Addr(), mr.RKey()) {
		t.Error("TCP: moved")
	}
}

func TestMoveAllocatesNothing(t *testing.T) {
	n := nodes(t, 2, Config{})
	q, _ := pair(t, n[0], n[1], attrs())
	mr, mem := n[1].alloc(100, all), make([]byte, 100)
	if got := testing.AllocsPerRun(100, func() { q.Move(rdma.WRRDMARead, mem, mr.Addr(), mr.RKey()) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
