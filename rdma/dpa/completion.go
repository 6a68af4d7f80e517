package dpa

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
)

// A CompletionContext is a completion queue of the device (doca_dpa_completion). Send queues of
// [RDMA]s complete in it, or receives of any queue pairs. A kernel polls it, or a launch with On
// has it wake the thread: the thread polls for some time, then sleeps until the next completion.
type CompletionContext struct {
	ctx     *Context
	cq      rdma.CQ
	channel rdma.CompChannel
	waiter  *wait.Waiter
	launch  *launch // that waits for completions
	buf     [16]rdma.WC
	ready   []rdma.WC                        // for Poll, in order
	handles atomic.Pointer[map[uint32]*RDMA] // by number; replaced as a whole
	room    int                              // of cq that no RDMA has; guarded by ctx.mu
	broken  error                            // of cq, for good
}

// NewCompletionContext makes a completion queue with at least cqe entries. The program closes
// it after the Context and the queue pairs that use it.
func (c *Context) NewCompletionContext(cqe int) (*CompletionContext, error) {
	if err := c.open("completion context"); err != nil {
		return nil, err
	}
	cc := &CompletionContext{ctx: c}
	var err error
	if cc.channel, err = c.device.CreateCompChannel(); err != nil {
		return nil, err
	}
	if cc.cq, err = c.device.CreateCQEx(rdma.CQInitAttr{CQE: cqe, Channel: cc.channel}); err != nil {
		return nil, errors.Join(err, cc.channel.Close())
	}
	cc.room = cc.cq.Cap()
	cc.handles.Store(&map[uint32]*RDMA{})
	cfg := wait.Config{Oversubscribed: c.cpus == nil, CPU: c.cfg.Place, Sleeper: (*notice)(cc)}
	if c.cpus == nil {
		cfg.IdleAfter = crowdedIdle
	}
	cc.waiter = wait.New(cfg)
	return cc, nil
}

// CQ is the completion queue, to create queue pairs with. Only the device polls it.
func (cc *CompletionContext) CQ() rdma.CQ { return cc.cq }

// Close destroys the completion queue. It fails with [rdma.ErrBusy] while queue pairs use it.
func (cc *CompletionContext) Close() error {
	if err := cc.cq.Close(); err != nil {
		return err
	}
	return cc.channel.Close()
}

// adopt has the completions of a queue pair accounted for, which takes n requests.
func (cc *CompletionContext) adopt(h *RDMA, n int) error {
	cc.ctx.mu.Lock()
	defer cc.ctx.mu.Unlock()
	if n > cc.room {
		return bad("rdma", "the completion context has room for %d more requests, the queue pair takes %d", cc.room, n)
	}
	cc.room -= n
	handles := maps.Clone(*cc.handles.Load())
	handles[h.num] = h
	cc.handles.Store(&handles)
	return nil
}

// pump takes in what has completed.
func (cc *CompletionContext) pump() error {
	for cc.broken == nil {
		n, err := cc.cq.Poll(cc.buf[:])
		cc.broken = err
		handles := *cc.handles.Load()
		for i := range cc.buf[:n] {
			cc.take(handles[cc.buf[i].QPNum], &cc.buf[i])
		}
		if n < len(cc.buf) {
			break
		}
	}
	return cc.broken
}

// take takes in one completion. Those that a program asked for, and failures, are for Poll.
func (cc *CompletionContext) take(h *RDMA, wc *rdma.WC) {
	if h != nil {
		id, mark := sendq.Split(wc.WRID)
		h.queue.Completed(mark)
		wc.WRID = id & MaxID
		if wc.Status != rdma.WCSuccess {
			h.queue.Fail(&WCError{ID: wc.WRID, QPNum: wc.QPNum, Status: wc.Status})
		} else if id&told == 0 {
			return
		}
	}
	cc.ready = append(cc.ready, *wc)
}

// Poll stores up to len(wc) completions and returns their number (doca_dpa_dev_get_completion). It does not wait. It has
// the requests of Post that asked for it, with their ids, all that failed, and receives, with their own ids.
func (t *Thread) Poll(cc *CompletionContext, wc []rdma.WC) (int, error) {
	if len(cc.ready) == 0 {
		if err := cc.pump(); err != nil && len(cc.ready) == 0 {
			return 0, err
		}
	}
	n := copy(wc, cc.ready)
	cc.ready = append(cc.ready[:0], cc.ready[n:]...)
	return n, nil
}

// await waits until there are completions for a launch.
func (cc *CompletionContext) await(l *launch) error {
	cc.launch = l
	_ = cc.waiter.Wait(context.Background(), (*arrival)(cc)) // this context does not end
	if err := l.reason(); err != nil {
		return err
	}
	return cc.broken
}

// An arrival is the condition that there are completions, or that the launch is over.
type arrival CompletionContext

func (a *arrival) Ready() bool {
	cc := (*CompletionContext)(a)
	return cc.pump() != nil || len(cc.ready) > 0 || cc.launch.over.Load() != nil
}

// A notice is the sleep until the queue's next event.
type notice CompletionContext

func (n *notice) Prepare() {
	if err := n.cq.ReqNotify(false); err != nil {
		n.broken = err
	}
}

func (n *notice) Sleep(nanoseconds int64) (woken bool) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(nanoseconds))
	defer cancel()
	_, err := n.channel.Get(ctx)
	return err == nil
}

// Cancel leaves the request: its event ends a later sleep early.
func (n *notice) Cancel() {}
