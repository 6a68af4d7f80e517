package soft

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// A port that goes down comes up again, both are told, and no request fails meanwhile.
func TestAdversaryFlapsThePort(t *testing.T) {
	noLeaks(t)
	n := nodes(t, 2, Config{Adversary: &Adversary{Seed: 3, Flaps: true}})
	a, b := n[0], n[1]
	qa, _ := pair(t, a, b, attrs())
	from, to := a.alloc(8, all), b.alloc(8, all)
	for told := []rdma.EventType(nil); !slices.Equal(told, []rdma.EventType{rdma.EventPortErr, rdma.EventPortActive}); {
		post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(from, 0, 8)}, RemoteAddr: to.Addr(), RKey: to.RKey()})
		if wc := a.poll(1)[0]; wc.Status != rdma.WCSuccess {
			t.Fatalf("a request completed with %v", wc.Status)
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
	noLeaks(t)
	n := nodes(t, 2, Config{Adversary: &Adversary{Seed: 3, Losses: true}})
	a, b := n[0], n[1]
	qa, _ := pair(t, a, b, attrs())
	from, to := a.alloc(8, all), b.alloc(8, all)
	for i := 1; ; i++ {
		from.Bytes()[0] = byte(i)
		post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(from, 0, 1)}, RemoteAddr: to.Addr(), RKey: to.RKey()})
		wc := a.poll(1)[0]
		if got := to.Bytes()[0]; wc.Status == rdma.WCRetryExcErr && got == byte(i-1) {
			break
		} else if wc.Status != rdma.WCSuccess || got != byte(i) || i == 20*lostOneIn {
			t.Fatalf("request %d completed with %v, and its peer has %d", i, wc.Status, got)
		}
	}
	if state, _ := qa.Query(); state.State != rdma.StateErr {
		t.Errorf("the queue pair is in %v", state.State)
	}
}
