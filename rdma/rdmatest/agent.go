package rdmatest

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// Serve is the far side of a Proc: it does on ctx what calls from conn ask for,
// until conn ends. Each call runs on a goroutine of its own. The context is the
// caller's; objects that the calls left are not closed.
func Serve(conn io.ReadWriter, ctx rdma.Context) error {
	a := &agent{ctx: ctx, node: Local(ctx), objects: map[handle]any{}, waits: map[uint64]context.CancelFunc{}}
	in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
	var mu sync.Mutex // of out
	var running sync.WaitGroup
	defer running.Wait()
	defer a.endWaits()
	for {
		c := new(call)
		if err := in.Decode(c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("read a call: %w", err)
		}
		running.Go(func() {
			ans := answer{Seq: c.Seq, agent: a}
			ans.fail(a.do(c, &ans))
			mu.Lock()
			defer mu.Unlock()
			_ = out.Encode(&ans) // a closed conn ends the loop above
		})
	}
}

// An agent owns the objects that a Proc made.
type agent struct {
	ctx  rdma.Context
	node Node

	mu      sync.Mutex
	objects map[handle]any
	last    handle
	waits   map[uint64]context.CancelFunc // of calls that wait
	over    bool                          // nobody waits any more
}

// wait gives the context of a call that may be cancelled, and what to do behind it.
func (a *agent) wait(c *call) (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		cancel()
	}
	if _, cancelled := a.waits[c.Seq]; cancelled {
		cancel()
	}
	a.waits[c.Seq] = cancel
	return ctx, func() {
		cancel()
		a.mu.Lock()
		delete(a.waits, c.Seq)
		a.mu.Unlock()
	}
}

// cancel ends the wait of a call, also of one that has yet to begin.
func (a *agent) cancel(seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if end := a.waits[seq]; end != nil {
		end()
		return
	}
	a.waits[seq] = func() {}
}

func (a *agent) endWaits() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.over = true
	for _, end := range a.waits {
		end()
	}
}

// handleOf finds the handle of an object.
func (a *agent) handleOf(o any) handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	for h, have := range a.objects {
		if have == o {
			return h
		}
	}
	return 0
}

func (a *agent) add(o any) handle {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last++
	a.objects[a.last] = o
	return a.last
}

// find sets o to the object that a handle names.
func find[T any](a *agent, h handle, o *T) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ok bool
	if *o, ok = a.objects[h].(T); !ok {
		return fmt.Errorf("handle %d is a %T, want a %T", h, a.objects[h], *o)
	}
	return nil
}

// optional leaves o nil for handle 0.
func optional[T any](a *agent, h handle, o *T) error {
	if h == 0 {
		return nil
	}
	return find(a, h, o)
}

// on does something to the object that a handle names.
func on[T any](a *agent, h handle, do func(o T) error) error {
	var o T
	if err := find(a, h, &o); err != nil {
		return err
	}
	return do(o)
}

func (a *agent) do(c *call, ans *answer) error {
	switch c.Op {
	case opHello, opPort, opGID, opAddEndpoint, opCounters, opSupports, opAllocPD, opCreateCQ, opCloseContext,
		opCreateCQEx, opCreateChannel, opAsyncEvent, opOpenXRCD, opOpenQP:
		return a.onContext(c, ans)
	case opCreateQP, opMemory, opAgain, opAgainAt, opAdvise, opCreateSRQ, opCreateAH, opAllocMW, opShareVA, opCreateMkey:
		return on(a, c.On, func(pd rdma.PD) error { return a.onPD(pd, c, ans) })
	case opState, opModify, opQuery, opPostSend, opPostRecv, opBindMW:
		return on(a, c.On, func(qp rdma.QP) error { return a.onQP(qp, c, ans) })
	case opSRQPost, opSRQModify, opSRQQuery, opSRQOps:
		return on(a, c.On, func(srq rdma.SRQ) error { return onSRQ(srq, c, ans) })
	case opPoll, opPollEx, opReqNotify, opResize:
		return on(a, c.On, func(cq rdma.CQ) error { return onCQ(cq, c, ans) })
	case opChannelGet:
		return on(a, c.On, func(ch rdma.CompChannel) error {
			ctx, done := a.wait(c)
			defer done()
			cq, err := ch.Get(ctx)
			if err == nil {
				ans.Object = a.handleOf(cq)
			}
			return err
		})
	case opProtect:
		return on(a, c.On, func(v rdma.SVA) error { return v.Protect(c.Addr, c.Length, c.Access) })
	case opRKey:
		return on(a, c.On, func(mw rdma.MW) error { ans.Key[1] = mw.RKey(); return nil })
	case opCancel:
		a.cancel(uint64(c.N))
		return nil
	case opLoad, opStore, opLoad64, opPages, opRereg:
		return on(a, c.On, func(m Region) error { return a.onRegion(m, c, ans) })
	case opClose:
		return on(a, c.On, io.Closer.Close)
	case opChurn:
		return a.churn(c)
	case opFlood:
		return a.flood(c, ans)
	case opTagFlood:
		return a.tagFlood(c)
	case opBounce:
		return a.bounce(c, ans)
	}
	return fmt.Errorf("unknown operation %d", c.Op)
}

func (a *agent) onContext(c *call, ans *answer) (err error) {
	switch c.Op {
	case opHello:
		ans.Device, ans.Limits = a.ctx.Device().Name(), a.ctx.QueryDevice()
		if ep, ok := a.ctx.(rdma.Endpointer); ok {
			ans.Reachable, ans.Data = true, ep.Endpoint()
		}
	case opPort:
		ans.Port, err = a.ctx.QueryPort(c.Port)
	case opGID:
		ans.GID, err = a.ctx.QueryGID(c.Port, c.N)
	case opAddEndpoint:
		ep, ok := a.ctx.(rdma.Endpointer)
		if !ok {
			return rdma.ErrNotSupported
		}
		return ep.AddEndpoint(c.GID, c.Data)
	case opCounters:
		ans.Counters = a.ctx.Counters()
	case opSupports:
		return a.ctx.Supports(rdma.Feature(c.N))
	case opAllocPD:
		return ans.made(a.ctx.AllocPD())
	case opCreateCQ:
		return ans.made(a.ctx.CreateCQ(c.N))
	case opCloseContext:
		return a.ctx.Close()
	case opCreateCQEx:
		attr := c.CQInit
		if err := optional(a, c.Send, &attr.Channel); err != nil {
			return err
		}
		return ans.made(a.ctx.CreateCQEx(attr))
	case opCreateChannel:
		return ans.made(a.ctx.CreateCompChannel())
	case opAsyncEvent:
		ctx, done := a.wait(c)
		defer done()
		e, err := a.ctx.GetAsyncEvent(ctx)
		if err != nil {
			return err
		}
		ans.Event = event{Type: e.Type, Port: e.Port}
		switch {
		case e.QP != nil:
			ans.Event.On = a.handleOf(e.QP)
		case e.CQ != nil:
			ans.Event.On = a.handleOf(e.CQ)
		case e.SRQ != nil:
			ans.Event.On = a.handleOf(e.SRQ)
		}
	case opOpenXRCD:
		attr := rdma.XRCDInitAttr{Flags: c.N}
		if len(c.Data) > 0 {
			if attr.File, err = os.Open(string(c.Data)); err != nil {
				return err
			}
			defer attr.File.Close()
		}
		return ans.made(a.ctx.OpenXRCD(attr))
	case opOpenQP:
		return on(a, c.XRCD, func(x rdma.XRCD) error { return ans.made(a.ctx.OpenQP(uint32(c.N), x)) })
	}
	return err
}

func (a *agent) onPD(pd rdma.PD, c *call, ans *answer) error {
	switch c.Op {
	case opCreateQP:
		init := rdma.QPInitAttr{Cap: c.Cap, Type: c.Type, SigAll: c.SigAll, DCAccessKey: c.DCKey, Striding: c.Stride}
		if err := errors.Join(optional(a, c.Send, &init.SendCQ), optional(a, c.Recv, &init.RecvCQ),
			optional(a, c.SRQ, &init.SRQ), optional(a, c.XRCD, &init.XRCD)); err != nil {
			return err
		}
		return ans.made(pd.CreateQP(init))
	case opCreateSRQ:
		init := c.SRQInit
		if err := errors.Join(optional(a, c.Recv, &init.CQ), optional(a, c.XRCD, &init.XRCD)); err != nil {
			return err
		}
		return ans.made(pd.CreateSRQ(init))
	case opCreateAH:
		return ans.made(pd.CreateAH(c.AV))
	case opMemory:
		return ans.made(a.node.Memory(pd, c.Kind, c.N, c.Access))
	case opAgain:
		return on(a, c.Send, func(old Region) error { return ans.made(a.node.Again(pd, old, c.Off, c.N, c.Access)) })
	case opAgainAt:
		return on(a, c.Send, func(old Region) error { return ans.made(a.node.AgainAt(pd, old, c.Off, c.N, c.IOVA, c.Access)) })
	case opCreateMkey:
		return ans.made(pd.CreateMkey(c.N))
	case opShareVA:
		return ans.made(pd.ShareVA())
	case opAllocMW:
		return ans.made(pd.AllocMW(c.MWType))
	}
	return pd.AdviseMR(c.Advice, c.Flush, c.SGL)
}

func (a *agent) onRegion(m Region, c *call, ans *answer) (err error) {
	switch c.Op {
	case opPages:
		ans.N, err = a.node.Pages(m, c.Off, c.N, c.Page)
	case opRereg:
		return a.rereg(m, c, ans)
	case opLoad:
		ans.Data = m.Load(c.Off, c.N)
	case opStore:
		m.Store(c.Off, c.Data)
	case opLoad64:
		ans.Value = m.Load64(c.Off)
	}
	return err
}

// rereg changes a region. Its handle still names its old memory.
func (a *agent) rereg(m Region, c *call, ans *answer) error {
	var pd rdma.PD
	if c.Rereg&rdma.ReregPD != 0 {
		if err := find(a, c.Send, &pd); err != nil {
			return err
		}
	}
	var to Region
	if c.Rereg&rdma.ReregTranslation != 0 {
		if err := find(a, c.Recv, &to); err != nil {
			return err
		}
	}
	return ans.made(a.node.Rereg(m, c.Rereg, pd, piece{to, c.Off, c.N}, c.Access))
}

// made takes a new object in, and tells the caller what it has to know of it.
func (a *answer) made(o any, err error) error {
	if err != nil {
		return err
	}
	a.Object = a.agent.add(o)
	if q, ok := o.(interface{ Num() uint32 }); ok {
		a.Key[0] = q.Num()
	}
	if k, ok := o.(interface{ LKey() uint32 }); ok {
		a.Key[0] = k.LKey()
	}
	if k, ok := o.(interface{ RKey() uint32 }); ok {
		a.Key[1] = k.RKey()
	}
	switch o := o.(type) {
	case rdma.CQ:
		a.N = o.Cap()
	case Region:
		a.Addr, a.Base, a.Value = o.Addr(), o.Base, o.Len()
	}
	return nil
}

func (a *agent) onQP(qp rdma.QP, c *call, ans *answer) (err error) {
	switch c.Op {
	case opState:
		ans.State = qp.State()
	case opModify:
		err = qp.Modify(c.Attr, c.Mask)
	case opQuery:
		var init rdma.QPInitAttr
		ans.Attr, init = qp.Query()
		ans.Cap, ans.SigAll = init.Cap, init.SigAll
	case opPostSend:
		wrs := make([]rdma.SendWR, len(c.Sends))
		for i := range c.Sends {
			if wrs[i], err = c.Sends[i].request(a); err != nil {
				return err
			}
		}
		ans.N, err = qp.PostSend(wrs)
	case opBindMW:
		wr, err := c.Sends[0].request(a)
		if err != nil {
			return err
		}
		return qp.BindMW(wr.MW, wr.WRID, wr.Flags, *wr.Bind)
	case opPostRecv:
		ans.N, err = qp.PostRecv(c.Recvs)
	}
	return err
}

func onSRQ(srq rdma.SRQ, c *call, ans *answer) (err error) {
	switch c.Op {
	case opSRQPost:
		ans.N, err = srq.PostRecv(c.Recvs)
	case opSRQModify:
		err = srq.Modify(c.SRQAttr, c.SRQMask)
	case opSRQQuery:
		ans.SRQAttr = srq.Query()
	case opSRQOps:
		ans.N, err = srq.PostOps(c.Ops)
		for _, wr := range c.Ops {
			ans.Handles = append(ans.Handles, wr.Handle)
		}
	}
	return err
}

func onCQ(cq rdma.CQ, c *call, ans *answer) (err error) {
	switch c.Op {
	case opPoll:
		var wc []rdma.WC // nil for none
		if c.N > 0 {
			wc = make([]rdma.WC, c.N)
		}
		ans.N, err = cq.Poll(wc)
		ans.WCs = wc[:max(0, min(ans.N, len(wc)))]
	case opPollEx:
		wc := make([]rdma.WCEx, c.N)
		ans.N, err = cq.PollEx(wc)
		ans.WCExs = wc[:max(0, min(ans.N, len(wc)))]
	case opReqNotify:
		err = cq.ReqNotify(c.N != 0)
	case opResize:
		err = cq.Resize(c.N)
		ans.N = cq.Cap()
	}
	return err
}
