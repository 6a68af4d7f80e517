package soft

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A peer that stands still in mid-write holds an invalidation up, but nobody who
// posts or polls. Requests behind it wait, and what it is waited for shows at its
// mark.
func TestInvalidateDuringPeersWrite(t *testing.T) {
	for _, c := range []struct {
		name  string
		typ   rdma.MWType
		leave func(qa *queuePair, n []*node)
	}{
		{"initiator moves on", rdma.MWType2, func(qa *queuePair, _ []*node) { atomic.StoreUint64(&qa.own.mark, 6*markTurn) }},
		{"initiator dies", rdma.MWType2, func(_ *queuePair, n []*node) { n[0].p.segment.SetDead(0) }},
		{"initiator moves on", rdma.MWType1, func(qa *queuePair, _ []*node) { atomic.StoreUint64(&qa.own.mark, 6*markTurn) }},
	} {
		t.Run(c.typ.String()+" "+c.name, func(t *testing.T) {
			n := nodes(t, 2, Config{})
			qa, qb := pair(t, n[0], n[1], attrs())
			mr := n[1].alloc(64, all|rdma.AccessMWBind)
			w := n[1].window(c.typ)
			bind := rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: 64, Access: rdma.AccessRemoteWrite}
			end := rdma.SendWR{WRID: 2, Opcode: rdma.WRLocalInv, Flags: rdma.SendSignaled}
			if c.typ == rdma.MWType1 {
				if err := qb.BindMW(w, 1, rdma.SendSignaled, bind); err != nil {
					t.Fatal(err)
				}
			} else {
				post(t, qb, rdma.SendWR{WRID: 1, Opcode: rdma.WRBindMW, Flags: rdma.SendSignaled, MW: w, RKey: rdma.IncRKey(w.RKey()), Bind: &bind})
			}
			n[1].poll(1)
			atomic.StoreUint64(&qa.own.mark, 5*markTurn|uint64(w.RKey()>>8)+1)
			end.InvalidateRKey = w.RKey()
			if c.typ == rdma.MWType1 {
				if err := qb.BindMW(w, 2, rdma.SendSignaled, rdma.MWBind{}); err != nil {
					t.Fatal(err)
				}
			} else {
				post(t, qb, end)
			}
			postRecv(t, qa, rdma.RecvWR{WRID: 9})
			post(t, qb, rdma.SendWR{WRID: 3, Opcode: rdma.WRSend, Flags: rdma.SendSignaled})
			var wc [4]rdma.WC
			for range 100 {
				if k, _ := n[1].cq.Poll(wc[:]); k != 0 {
					t.Fatalf("%+v while the peer is in the middle of a write", wc[:k])
				}
			}
			if err := mr.Close(); !errors.Is(err, rdma.ErrBusy) {
				t.Errorf("Close of the region: %v, want %v", err, rdma.ErrBusy)
			}
			c.leave(qa, n)
			if got := n[1].poll(2); got[0].WRID != 2 || got[0].Status != rdma.WCSuccess || got[1].WRID != 3 {
				t.Errorf("then %+v, want 2 and 3", got)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			atomic.StoreUint64(&qa.own.mark, 0)
		})
	}
}

// A window that is closed while a peer stands still in it keeps its region.
func TestCloseWindowWithStuckPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodes(t, 2, Config{})
		qa, qb := pair(t, n[0], n[1], attrs())
		mr := n[1].alloc(64, all|rdma.AccessMWBind)
		w := n[1].window(rdma.MWType1).(*window)
		if err := qb.BindMW(w, 1, 0, rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: 64, Access: rdma.AccessRemoteWrite}); err != nil {
			t.Fatal(err)
		}
		atomic.StoreUint64(&qa.own.mark, 5*markTurn|uint64(w.index)+1)
		begin := time.Now()
		if err := w.Close(); !errors.Is(err, errStuck) || time.Since(begin) > drainLimit+time.Second {
			t.Errorf("Close of the window: %v after %v, want %v", err, time.Since(begin), errStuck)
		}
		if err := mr.Close(); !errors.Is(err, rdma.ErrBusy) {
			t.Errorf("Close of the region: %v, want %v", err, rdma.ErrBusy)
		}
		atomic.StoreUint64(&qa.own.mark, 0)
		w.mu.Lock()
		w.free()
		w.mu.Unlock()
	})
}

// A queue pair that is left with an invalidation under way: the window is closed
// and its owner can free it.
func TestResetDuringInvalidate(t *testing.T) {
	n := nodes(t, 2, Config{})
	qa, qb := pair(t, n[0], n[1], attrs())
	mr := n[1].alloc(64, all|rdma.AccessMWBind)
	w := n[1].window(rdma.MWType2)
	key := rdma.IncRKey(w.RKey())
	post(t, qb, rdma.SendWR{Opcode: rdma.WRBindMW, MW: w, RKey: key, Bind: &rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: 64, Access: rdma.AccessRemoteWrite}})
	atomic.StoreUint64(&qa.own.mark, 5*markTurn|uint64(key>>8)+1)
	post(t, qb, rdma.SendWR{Opcode: rdma.WRLocalInv, InvalidateRKey: key})
	go func() {
		for qb.State() != rdma.StateReset {
			runtime.Gosched()
		}
		atomic.StoreUint64(&qa.own.mark, 6*markTurn)
	}()
	if err := qb.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if err := mr.Close(); err != nil {
		t.Error(err)
	}
}
