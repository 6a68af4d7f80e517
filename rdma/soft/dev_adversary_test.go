package soft

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// troubled gives a node whose device an Adversary has, the queue pair of its writes, and write, which writes a byte into a peer's
// memory and tells how that completed and what is there.
func troubled(t *testing.T, adversary Adversary) (a *node, qa *queuePair, write func(byte) (rdma.WCStatus, byte)) {
	noLeaks(t)
	n := nodes(t, 2, Config{Adversary: &adversary})
	a = n[0]
	qa, _ = pair(t, a, n[1], attrs())
	from, to := a.alloc(8, all), n[1].alloc(8, all)
	return a, qa, func(b byte) (rdma.WCStatus, byte) {
		from.Bytes()[0] = b
		post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(from, 0, 1)}, RemoteAddr: to.Addr(), RKey: to.RKey()})
		return a.poll(1)[0].Status, to.Bytes()[0]
	}
}

// A port that goes down comes up again, both are told, and no request fails meanwhile.
func TestAdversaryFlapsThePort(t *testing.T) {
	a, _, write := troubled(t, Adversary{Seed: 3, Flaps: true})
	for told := []rdma.EventType(nil); !slices.Equal(told, []rdma.EventType{rdma.EventPortErr, rdma.EventPortActive}); {
		if status, _ := write(1); status != rdma.WCSuccess {
			t.Fatalf("a request completed with %v", status)
		}
		if e, ok := a.ctx.NextAsync(); ok {
			told = append(told, e.Type)
			if e.Port != 1 || len(told) > 2 {
				t.Fatalf("told of %v, the last of port %d", told, e.Port)
			}
		}
	}
}

// A lost request is not executed, and its queue pair is in error; one in about a hundred is.
func TestAdversaryLosesRequests(t *testing.T) {
	_, qa, write := troubled(t, Adversary{Seed: 3, Losses: true})
	for i := 1; ; i++ {
		status, got := write(byte(i))
		if status == rdma.WCRetryExcErr && got == byte(i-1) {
			break
		} else if status != rdma.WCSuccess || got != byte(i) || i == 20*lostOneIn {
			t.Fatalf("request %d completed with %v, and its peer has %d", i, status, got)
		}
	}
	if state, _ := qa.Query(); state.State != rdma.StateErr {
		t.Errorf("the queue pair is in %v", state.State)
	}
}
