package rdmatest

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// Serve is the far side of a Proc: it does on ctx what calls from conn ask for,
// until conn ends. Each call runs on a goroutine of its own. The context is the
// caller's; objects that the calls left are not closed.
func Serve(conn io.ReadWriter, ctx rdma.Context) error {
	a := &agent{ctx: ctx, node: Local(ctx), objects: map[handle]any{}}
	in, out := gob.NewDecoder(conn), gob.NewEncoder(conn)
	var mu sync.Mutex // of out
	var running sync.WaitGroup
	defer running.Wait()
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
func optional(a *agent, h handle) (rdma.CQ, error) {
	if h == 0 {
		return nil, nil
	}
	return object[rdma.CQ](a, h)
}

func (a *agent) do(c *call, ans *answer) error {
	switch c.Op {
	case opHello, opPort, opGID, opAddEndpoint, opCounters, opSupports, opAllocPD, opCreateCQ, opCloseContext:
		return a.onContext(c, ans)
	case opCreateQP, opMemory, opAgain, opAgainAt, opAdvise:
		pd, err := object[rdma.PD](a, c.On)
		if err != nil {
			return err
		}
		return a.onPD(pd, c, ans)
	case opState, opModify, opQuery, opPostSend, opPostRecv:
		qp, err := object[rdma.QP](a, c.On)
		if err != nil {
			return err
		}
		return onQP(qp, c, ans)
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
	}
	return err
}

func (a *agent) onPD(pd rdma.PD, c *call, ans *answer) error {
	var m Region
	switch c.Op {
	case opCreateQP:
		scq, err := optional(a, c.Send)
		if err != nil {
			return err
		}
		rcq, err := optional(a, c.Recv)
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(rdma.QPInitAttr{SendCQ: scq, RecvCQ: rcq, Cap: c.Cap, Type: c.Type, SigAll: c.SigAll})
		if err != nil {
			return err
		}
		ans.Object, ans.Key[0] = a.add(qp), qp.Num()
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
func (ans *answer) describe(m Region) {
	ans.Addr, ans.Base, ans.Value = m.Addr(), m.Base, m.Len()
	ans.Key = [2]uint32{m.LKey(), m.RKey()}
}

func onQP(qp rdma.QP, c *call, ans *answer) (err error) {
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
		ans.N, err = qp.PostSend(c.Sends)
	case opPostRecv:
		ans.N, err = qp.PostRecv(c.Recvs)
	}
	return err
}
