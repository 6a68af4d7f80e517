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
			ans := answer{Seq: c.Seq}
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

func object[T any](a *agent, h handle) (T, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.objects[h].(T)
	if !ok {
		return o, fmt.Errorf("handle %d is a %T, want a %T", h, a.objects[h], o)
	}
	return o, nil
}

// optional is nil for handle 0.
func optional[T any](a *agent, h handle) (o T, err error) {
	if h == 0 {
		return o, nil
	}
	return object[T](a, h)
}

func (a *agent) do(c *call, ans *answer) error {
	switch c.Op {
	case opHello, opPort, opGID, opAddEndpoint, opCounters, opSupports, opAllocPD, opCreateCQ, opCloseContext,
		opCreateCQEx, opCreateChannel, opAsyncEvent, opOpenXRCD, opOpenQP:
		return a.onContext(c, ans)
	case opCreateQP, opMemory, opAgain, opAgainAt, opAdvise, opCreateSRQ, opCreateAH, opAllocMW, opShareVA, opCreateMkey:
		pd, err := object[rdma.PD](a, c.On)
		if err != nil {
			return err
		}
		return a.onPD(pd, c, ans)
	case opState, opModify, opQuery, opPostSend, opPostRecv, opBindMW:
		qp, err := object[rdma.QP](a, c.On)
		if err != nil {
			return err
		}
		return a.onQP(qp, c, ans)
	case opSRQPost, opSRQModify, opSRQQuery, opSRQOps:
		srq, err := object[rdma.SRQ](a, c.On)
		if err != nil {
			return err
		}
		return onSRQ(srq, c, ans)
	case opPollEx, opReqNotify, opResize:
		cq, err := object[rdma.CQ](a, c.On)
		if err != nil {
			return err
		}
		return onCQ(cq, c, ans)
	case opChannelGet:
		ch, err := object[rdma.CompChannel](a, c.On)
		if err != nil {
			return err
		}
		ctx, done := a.wait(c)
		defer done()
		cq, err := ch.Get(ctx)
		if err == nil {
			ans.Object = a.handleOf(cq)
		}
		return err
	case opProtect:
		v, err := object[rdma.SVA](a, c.On)
		if err != nil {
			return err
		}
		return v.Protect(c.Addr, c.Length, c.Access)
	case opRKey:
		k, err := object[interface{ RKey() uint32 }](a, c.On)
		if err == nil {
			ans.Key[1] = k.RKey()
		}
		return err
	case opCancel:
		a.cancel(uint64(c.N))
		return nil
	case opPoll:
		cq, err := object[rdma.CQ](a, c.On)
		if err != nil {
			return err
		}
		var wc []rdma.WC
		if c.N > 0 {
			wc = make([]rdma.WC, c.N)
		}
		ans.N, err = cq.Poll(wc)
		ans.WCs = wc[:max(0, min(ans.N, len(wc)))]
		return err
	case opLoad, opStore, opLoad64, opPages, opRereg:
		m, err := object[Region](a, c.On)
		if err != nil {
			return err
		}
		switch c.Op {
		case opPages:
			ans.N, err = a.node.Pages(m, c.Off, c.N, c.Page)
			return err
		case opRereg:
			return a.rereg(m, c, ans)
		case opLoad:
			ans.Data = m.Load(c.Off, c.N)
		case opStore:
			m.Store(c.Off, c.Data)
		default:
			ans.Value = m.Load64(c.Off)
		}
		return nil
	case opClose:
		o, err := object[io.Closer](a, c.On)
		if err != nil {
			return err
		}
		return o.Close()
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
		pd, err := a.ctx.AllocPD()
		if err != nil {
			return err
		}
		ans.Object = a.add(pd)
	case opCreateCQ:
		cq, err := a.ctx.CreateCQ(c.N)
		if err != nil {
			return err
		}
		ans.Object, ans.N = a.add(cq), cq.Cap()
	case opCloseContext:
		return a.ctx.Close()
	case opCreateCQEx:
		attr := c.CQInit
		if attr.Channel, err = optional[rdma.CompChannel](a, c.Send); err != nil {
			return err
		}
		cq, err := a.ctx.CreateCQEx(attr)
		if err != nil {
			return err
		}
		ans.Object, ans.N = a.add(cq), cq.Cap()
	case opCreateChannel:
		ch, err := a.ctx.CreateCompChannel()
		if err != nil {
			return err
		}
		ans.Object = a.add(ch)
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
		x, err := a.ctx.OpenXRCD(attr)
		if err != nil {
			return err
		}
		ans.Object = a.add(x)
	case opOpenQP:
		x, err := object[rdma.XRCD](a, c.XRCD)
		if err != nil {
			return err
		}
		qp, err := a.ctx.OpenQP(uint32(c.N), x)
		if err != nil {
			return err
		}
		ans.Object, ans.Key[0] = a.add(qp), qp.Num()
	}
	return err
}

func (a *agent) onPD(pd rdma.PD, c *call, ans *answer) error {
	var m Region
	switch c.Op {
	case opCreateQP:
		init := rdma.QPInitAttr{Cap: c.Cap, Type: c.Type, SigAll: c.SigAll, DCAccessKey: c.DCKey, Striding: c.Stride}
		var err error
		if init.SendCQ, err = optional[rdma.CQ](a, c.Send); err != nil {
			return err
		}
		if init.RecvCQ, err = optional[rdma.CQ](a, c.Recv); err != nil {
			return err
		}
		if init.SRQ, err = optional[rdma.SRQ](a, c.SRQ); err != nil {
			return err
		}
		if init.XRCD, err = optional[rdma.XRCD](a, c.XRCD); err != nil {
			return err
		}
		qp, err := pd.CreateQP(init)
		if err != nil {
			return err
		}
		ans.Object, ans.Key[0] = a.add(qp), qp.Num()
		return nil
	case opCreateSRQ:
		init := c.SRQInit
		var err error
		if init.CQ, err = optional[rdma.CQ](a, c.Recv); err != nil {
			return err
		}
		if init.XRCD, err = optional[rdma.XRCD](a, c.XRCD); err != nil {
			return err
		}
		srq, err := pd.CreateSRQ(init)
		if err != nil {
			return err
		}
		ans.Object, ans.Key[0] = a.add(srq), srq.Num()
		return nil
	case opCreateAH:
		ah, err := pd.CreateAH(c.AV)
		if err != nil {
			return err
		}
		ans.Object = a.add(ah)
		return nil
	case opMemory:
		var err error
		if m, err = a.node.Memory(pd, c.Kind, c.N, c.Access); err != nil {
			return err
		}
	case opAgain, opAgainAt:
		old, err := object[Region](a, c.Send)
		if err != nil {
			return err
		}
		if c.Op == opAgain {
			m, err = a.node.Again(pd, old, c.Off, c.N, c.Access)
		} else {
			m, err = a.node.AgainAt(pd, old, c.Off, c.N, c.IOVA, c.Access)
		}
		if err != nil {
			return err
		}
	case opCreateMkey:
		k, err := pd.CreateMkey(c.N)
		if err != nil {
			return err
		}
		ans.Object, ans.Key = a.add(k), [2]uint32{k.LKey(), k.RKey()}
		return nil
	case opShareVA:
		v, err := pd.ShareVA()
		if err != nil {
			return err
		}
		ans.Object, ans.Key = a.add(v), [2]uint32{v.LKey(), v.RKey()}
		return nil
	case opAllocMW:
		mw, err := pd.AllocMW(c.MWType)
		if err != nil {
			return err
		}
		ans.Object = a.add(mw)
		return nil
	case opAdvise:
		return pd.AdviseMR(c.Advice, c.Flush, c.SGL)
	}
	ans.Object = a.add(m)
	ans.describe(m)
	return nil
}

// rereg changes a region. Its handle still names its old memory.
func (a *agent) rereg(m Region, c *call, ans *answer) (err error) {
	var pd rdma.PD
	if c.Rereg&rdma.ReregPD != 0 {
		if pd, err = object[rdma.PD](a, c.Send); err != nil {
			return err
		}
	}
	var to Region
	if c.Rereg&rdma.ReregTranslation != 0 {
		if to, err = object[Region](a, c.Recv); err != nil {
			return err
		}
	}
	if m, err = a.node.Rereg(m, c.Rereg, pd, to, c.Off, c.N, c.Access); err != nil {
		return err
	}
	ans.Object = a.add(m)
	ans.describe(m)
	return nil
}

// describe puts what a region is into the answer.
func (a *answer) describe(m Region) {
	a.Addr, a.Base, a.Value = m.Addr(), m.Base, m.Len()
	a.Key = [2]uint32{m.LKey(), m.RKey()}
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
