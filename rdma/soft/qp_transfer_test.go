package soft

import (
	"bytes"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// The worlds that every transfer is tested in.
func worlds(t *testing.T, f func(t *testing.T, a, b *node)) {
	t.Run("plain", func(t *testing.T) {
		noLeaks(t)
		n := nodes(t, 2, Config{})
		f(t, n[0], n[1])
	})
	t.Run("loopback", func(t *testing.T) {
		noLeaks(t)
		n := open(t, Config{})
		f(t, n, n)
	})
	for seed := range uint64(3) {
		t.Run("adversary", func(t *testing.T) {
			noLeaks(t)
			n := nodes(t, 2, Config{Adversary: &Adversary{Seed: seed}})
			f(t, n[0], n[1])
		})
	}
}

// memories makes a region of each kind.
func memories(n *node, size int) map[string]rdma.MR {
	buf := make([]byte, size+8)
	return map[string]rdma.MR{
		"segment":    n.alloc(size, all),
		"zero-based": n.alloc(size, all|rdma.AccessZeroBased),
		"ordinary":   n.reg(make([]byte, size), all),
		"implicit":   implicit{n.reg(nil, all|rdma.AccessOnDemand), buf[:size]},
	}
}

// implicit lets a piece of the whole address space look like a region.
type implicit struct {
	rdma.MR
	mem []byte
}

func (i implicit) Addr() uint64  { return addressOf(i.mem) }
func (i implicit) Bytes() []byte { return i.mem }
func (i implicit) Len() uint64   { return uint64(len(i.mem)) }

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + byte(i>>8) + seed
	}
}

func TestTransfer(t *testing.T) {
	const size = 70000
	worlds(t, func(t *testing.T, a, b *node) {
		qa, qb := pair(t, a, b, attrs())
		for from, src := range memories(a, size) {
			for to, dst := range memories(b, size) {
				for _, n := range []int{1, 4, 8, 12, 4096, size} {
					t.Run(from+" to "+to, func(t *testing.T) {
						fill(src.Bytes(), byte(n))
						clear(dst.Bytes())
						post(t, qa, rdma.SendWR{WRID: 1, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled,
							SGL: []rdma.SGE{sge(src, 0, n)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
						if wc := a.poll(1)[0]; wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCRDMAWrite || wc.WRID != 1 {
							t.Fatalf("write of %d bytes: %+v", n, wc)
						}
						if !bytes.Equal(dst.Bytes()[:n], src.Bytes()[:n]) || n < size && dst.Bytes()[n] != 0 {
							t.Fatalf("write of %d bytes: other bytes arrived", n)
						}
						fill(dst.Bytes(), byte(n)+1)
						post(t, qa, rdma.SendWR{WRID: 2, Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled,
							SGL: []rdma.SGE{sge(src, 0, n)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
						if wc := a.poll(1)[0]; wc.Status != rdma.WCSuccess || wc.Opcode != rdma.WCRDMARead || wc.ByteLen != uint32(n) {
							t.Fatalf("read of %d bytes: %+v", n, wc)
						}
						if !bytes.Equal(dst.Bytes()[:n], src.Bytes()[:n]) {
							t.Fatalf("read of %d bytes: other bytes arrived", n)
						}
						fill(src.Bytes(), byte(n)+2)
						clear(dst.Bytes())
						postRecv(t, qb, rdma.RecvWR{WRID: 3, SGL: []rdma.SGE{sge(dst, 0, n/2), sge(dst, n/2, n-n/2)}})
						post(t, qa, rdma.SendWR{WRID: 4, Opcode: rdma.WRSendWithImm, Flags: rdma.SendSignaled, ImmData: 99,
							SGL: []rdma.SGE{sge(src, 0, n/3), sge(src, n/3, n-n/3)}})
						var sent, recvd rdma.WC
						if a == b {
							for _, wc := range a.poll(2) {
								if wc.Opcode == rdma.WCRecv {
									recvd = wc
								} else {
									sent = wc
								}
							}
						} else {
							recvd, sent = b.poll(1, a)[0], a.poll(1)[0]
						}
						want := rdma.WC{WRID: 3, Opcode: rdma.WCRecv, ByteLen: uint32(n), ImmData: 99, QPNum: qb.num, SrcQP: qa.num, Flags: rdma.WCFlagWithImm}
						if sent.Status != rdma.WCSuccess || sent.WRID != 4 || recvd != want {
							t.Fatalf("send of %d bytes: %+v and %+v, want %+v", n, sent, recvd, want)
						}
						if !bytes.Equal(dst.Bytes()[:n], src.Bytes()[:n]) {
							t.Fatalf("send of %d bytes: other bytes arrived", n)
						}
						// Atomics, on the first aligned word.
						off := int(-dst.Addr() & 7)
						if n != 12 {
							return
						}
						old := dst.Bytes()[off : off+8]
						was := append([]byte(nil), old...)
						post(t, qa,
							rdma.SendWR{WRID: 5, Opcode: rdma.WRAtomicFetchAndAdd, Flags: rdma.SendSignaled, CompareAdd: 5,
								SGL: []rdma.SGE{sge(src, 16, 8)}, RemoteAddr: dst.Addr() + uint64(off), RKey: dst.RKey()},
							rdma.SendWR{WRID: 6, Opcode: rdma.WRAtomicCmpAndSwp, Flags: rdma.SendSignaled, CompareAdd: *word64(append([]byte(nil), was...)) + 5, Swap: 77,
								SGL: []rdma.SGE{sge(src, 24, 8)}, RemoteAddr: dst.Addr() + uint64(off), RKey: dst.RKey()})
						if got := statuses(a.poll(2)); got[0] != 0 || got[1] != 0 {
							t.Fatalf("atomics: %v", got)
						}
						if !bytes.Equal(src.Bytes()[16:24], was) || *word64(append([]byte(nil), old...)) != 77 {
							t.Fatalf("atomics: fetched %x of %x, and left %x", src.Bytes()[16:24], was, old)
						}
					})
				}
			}
		}
	})
}
