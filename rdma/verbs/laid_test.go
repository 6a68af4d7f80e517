//go:build cgo

package verbs_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// mix and sumOf are what testdata/fake.c makes of a request.
func mix(sum uint32, v uint64) uint32 { return (sum ^ uint32(v) ^ uint32(v>>32)) * 16777619 }

func sumOf(wr *rdma.SendWR) uint32 {
	sum := mix(mix(2166136261, uint64(wr.Opcode)), uint64(wr.Flags))
	for _, b := range wr.Inline {
		sum = mix(sum, uint64(b))
	}
	for _, s := range wr.SGL {
		sum = mix(mix(mix(sum, s.Addr), uint64(s.Length)), uint64(s.LKey))
	}
	switch wr.Opcode {
	case rdma.WRRDMAWriteWithImm:
		return mix(mix(mix(sum, uint64(wr.ImmData)), wr.RemoteAddr), uint64(wr.RKey))
	case rdma.WRRDMAWrite, rdma.WRRDMARead:
		return mix(mix(sum, wr.RemoteAddr), uint64(wr.RKey))
	case rdma.WRSendWithImm:
		return mix(sum, uint64(wr.ImmData))
	case rdma.WRAtomicCmpAndSwp, rdma.WRAtomicFetchAndAdd:
		return mix(mix(mix(mix(sum, wr.RemoteAddr), wr.CompareAdd), wr.Swap), uint64(wr.RKey))
	}
	return sum
}

// anyRequest is a request of any kind that a connected queue pair takes.
func anyRequest(r *rand.Rand) rdma.SendWR {
	wr := rdma.SendWR{WRID: r.Uint64(), Opcode: rdma.WROpcode(r.IntN(7)), Flags: rdma.SendSignaled, ImmData: r.Uint32(), RemoteAddr: r.Uint64(),
		RKey: r.Uint32(), CompareAdd: r.Uint64(), Swap: r.Uint64(), SRQNum: r.Uint32(), InvalidateRKey: r.Uint32()}
	if r.IntN(3) == 0 {
		wr.Flags |= rdma.SendFence
	}
	if wr.Opcode < rdma.WRRDMARead && r.IntN(3) == 0 {
		wr.Flags |= rdma.SendInline
		wr.Inline = make([]byte, r.IntN(65))
		for i := range wr.Inline {
			wr.Inline[i] = byte(r.Uint32())
		}
		return wr
	}
	for range r.IntN(3) {
		wr.SGL = append(wr.SGL, rdma.SGE{Addr: r.Uint64(), Length: r.Uint32N(1 << 20), LKey: r.Uint32()})
	}
	return wr
}

// What the library gets is what was posted, whatever stood in the places of the
// requests before, and the completions of two queue pairs in one CQ are known.
func TestRequestsAsPosted(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	other := b.queue(t)
	t.Setenv("FAKE_SUM", "1")
	const seed = 5
	r := rand.New(rand.NewPCG(seed, 0))
	var want rdma.Counters
	wc := make([]rdma.WC, 128)
	for round := range 500 {
		var posted [2][]rdma.SendWR
		for i, qp := range []rdma.QP{b.qp, other, b.qp} {
			list := make([]rdma.SendWR, 1+r.IntN(20))
			for k := range list {
				list[k] = anyRequest(r)
			}
			if n, err := qp.PostSend(list); n != len(list) || err != nil {
				t.Fatalf("seed %d, round %d: took %d of %d, %v", seed, round, n, len(list), err)
			}
			want.Batches++
			posted[i%2] = append(posted[i%2], list...)
		}
		left := len(posted[0]) + len(posted[1])
		for left > 0 {
			n, err := b.cq.Poll(wc[:1+r.IntN(left)])
			if n == 0 || err != nil {
				t.Fatalf("seed %d, round %d: %d left, Poll gave %d, %v", seed, round, left, n, err)
			}
			for _, got := range wc[:n] {
				of := &posted[0]
				if got.QPNum == other.Num() {
					of = &posted[1]
				}
				wr := &(*of)[0]
				if got.WRID != wr.WRID || got.Status != rdma.WCSuccess || got.ByteLen != sumOf(wr) {
					t.Fatalf("seed %d, round %d: %+v of %+v, whose sum is %d", seed, round, got, *wr, sumOf(wr))
				}
				if got.ImmData|got.SrcQP|uint32(got.Flags) != 0 {
					t.Fatalf("seed %d, round %d: a request's completion says what only a receive's does: %+v", seed, round, got)
				}
				count(&want, wr)
				*of = (*of)[1:]
				left--
			}
		}
	}
	got := b.ctx.Counters()
	got.RNRRetries, got.AckRetries = 0, 0
	if got != want {
		t.Errorf("seed %d: counted\n%+v, want\n%+v", seed, got, want)
	}
}

// count adds a request that was executed.
func count(c *rdma.Counters, wr *rdma.SendWR) {
	bytes := uint64(len(wr.Inline))
	for _, s := range wr.SGL {
		bytes += uint64(s.Length)
	}
	if wr.Flags&rdma.SendInline != 0 {
		c.Inline++
	}
	switch wr.Opcode {
	case rdma.WRRDMAWrite, rdma.WRRDMAWriteWithImm:
		c.Writes++
		c.WriteBytes += bytes
	case rdma.WRSend, rdma.WRSendWithImm:
		c.Sends++
		c.SendBytes += bytes
	case rdma.WRRDMARead:
		c.Reads++
		c.ReadBytes += bytes
	default:
		c.Atomics++
	}
}

// An operation that there is none of, also one whose number looks like another's
// in its low bits, is refused, and those before it are posted.
func TestUnknownOperation(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	var wc [4]rdma.WC
	for _, op := range []rdma.WROpcode{11, 15, 32, 64, 128, 255} {
		list := []rdma.SendWR{b.write(1), b.write(2), b.write(3)}
		list[1].Opcode = op
		if n, err := b.qp.PostSend(list); n != 1 || err == nil {
			t.Errorf("opcode %d: took %d, %v", op, n, err)
		}
		if n, err := b.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].WRID != 1 {
			t.Errorf("opcode %d: Poll gave %d, %v: %+v", op, n, err, wc[0])
		}
	}
}
