package rdmatest

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// The types below stand for an agent's objects.

type procContext struct {
	rdma.UnsupportedContext
	p      *Proc
	name   string
	limits rdma.DeviceAttr
}

// procDevice is the agent's device. Only the agent can open it.
type procDevice string

var (
	_ rdma.Context    = (*procContext)(nil)
	_ rdma.Endpointer = (*procEndpoint)(nil)
	_ Node            = (*Proc)(nil)
)

func (d procDevice) Name() string                { return string(d) }
func (d procDevice) Open() (rdma.Context, error) { return nil, rdma.ErrNotSupported }

func (c *procContext) Device() rdma.Device          { return procDevice(c.name) }
func (c *procContext) QueryDevice() rdma.DeviceAttr { return c.limits }

func (c *procContext) QueryPort(port uint8) (rdma.PortAttr, error) {
	a, err := c.p.call(&call{Op: opPort, Port: port})
	return a.Port, err
}

func (c *procContext) QueryGID(port uint8, index int) (rdma.GID, error) {
	a, err := c.p.call(&call{Op: opGID, Port: port, N: index})
	return a.GID, err
}

func (c *procContext) AllocPD() (rdma.PD, error) {
	return create(c.p, &call{Op: opAllocPD}, func(o procObject, _ *answer) rdma.PD { return &procPD{procObject: o} })
}

func (c *procContext) CreateCQ(cqe int) (rdma.CQ, error) {
	return create(c.p, &call{Op: opCreateCQ, N: cqe}, newProcCQ)
}

func newProcCQ(o procObject, a *answer) rdma.CQ { return &procCQ{procObject: o, size: a.N} }

func (c *procContext) CreateCQEx(attr rdma.CQInitAttr) (rdma.CQ, error) {
	k := &call{Op: opCreateCQEx, Send: handleOf(attr.Channel)}
	attr.Channel = nil
	k.CQInit = attr
	return create(c.p, k, newProcCQ)
}

func (c *procContext) CreateCompChannel() (rdma.CompChannel, error) {
	return create(c.p, &call{Op: opCreateChannel}, func(o procObject, _ *answer) rdma.CompChannel { return &procChannel{o} })
}

func (c *procContext) GetAsyncEvent(ctx context.Context) (rdma.AsyncEvent, error) {
	a, err := c.p.callUntil(ctx, &call{Op: opAsyncEvent})
	e := rdma.AsyncEvent{Type: a.Event.Type, Port: a.Event.Port}
	switch o := c.p.known(a.Event.On).(type) {
	case *procQP:
		e.QP = o
	case *procCQ:
		e.CQ = o
	case *procSRQ:
		e.SRQ = o
	}
	return e, err
}

// OpenXRCD hands the file's name over: the agent opens the same one.
func (c *procContext) OpenXRCD(attr rdma.XRCDInitAttr) (rdma.XRCD, error) {
	k := &call{Op: opOpenXRCD, N: attr.Flags}
	if attr.File != nil {
		k.Data = []byte(attr.File.Name())
	}
	return create(c.p, k, func(o procObject, _ *answer) rdma.XRCD { return &procXRCD{o} })
}

func (c *procContext) OpenQP(num uint32, xrcd rdma.XRCD) (rdma.QP, error) {
	k := &call{Op: opOpenQP, N: int(num), XRCD: handleOf(xrcd)}
	return create(c.p, k, func(o procObject, a *answer) rdma.QP { return &procQP{procObject: o, num: a.Key[0]} })
}

func (c *procContext) Supports(f rdma.Feature) error {
	return c.p.do(&call{Op: opSupports, N: int(f)})
}

func (c *procContext) Counters() rdma.Counters {
	a, _ := c.p.call(&call{Op: opCounters})
	return a.Counters
}

func (c *procContext) Close() error {
	return c.p.do(&call{Op: opCloseContext})
}

// A procEndpoint is a context whose device needs endpoints.
type procEndpoint struct {
	*procContext
	endpoint []byte
}

func (c *procEndpoint) Endpoint() []byte { return c.endpoint }

func (c *procEndpoint) AddEndpoint(gid rdma.GID, endpoint []byte) error {
	return c.p.do(&call{Op: opAddEndpoint, GID: gid, Data: endpoint})
}

type procObject struct {
	p *Proc
	h handle
}

func (o *procObject) handle() handle { return o.h }
func (o *procObject) Close() error   { return o.p.do(&call{Op: opClose, On: o.h}) }

// handleOf is 0 for what an agent does not have.
func handleOf(o any) handle {
	if o, ok := o.(interface{ handle() handle }); ok {
		return o.handle()
	}
	return 0
}

// create has the agent make an object, for which of makes one here. Events may be of it.
func create[T any](p *Proc, c *call, of func(procObject, *answer) T) (o T, err error) {
	a, err := p.call(c)
	if err != nil {
		return o, err
	}
	o = of(procObject{p, a.Object}, a)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects[a.Object] = o
	return o, nil
}

type procPD struct {
	rdma.UnsupportedPD
	procObject
}

func (d *procPD) Context() rdma.Context { return d.p.ctx }

// RegMR cannot work: buf is memory of this process. Node.Memory is the way.
func (d *procPD) RegMR([]byte, rdma.Access) (rdma.MR, error) { return nil, rdma.ErrNotSupported }

func (d *procPD) AllocMR(length int, access rdma.Access) (rdma.MR, error) {
	m, err := d.p.Memory(d, Allocated, length, access)
	if err != nil {
		return nil, err
	}
	return m.MR, nil
}

func (d *procPD) AdviseMR(advice rdma.Advice, flags rdma.AdviseFlags, sgl []rdma.SGE) error {
	return d.p.do(&call{Op: opAdvise, On: d.h, Advice: advice, Flush: flags, SGL: sgl})
}

func (d *procPD) CreateQP(i rdma.QPInitAttr) (rdma.QP, error) {
	c := &call{Op: opCreateQP, On: d.h, Cap: i.Cap, Type: i.Type, SigAll: i.SigAll, DCKey: i.DCAccessKey, Stride: i.Striding,
		Send: handleOf(i.SendCQ), Recv: handleOf(i.RecvCQ), SRQ: handleOf(i.SRQ), XRCD: handleOf(i.XRCD)}
	return create(d.p, c, func(o procObject, a *answer) rdma.QP {
		return &procQP{procObject: o, pd: d, num: a.Key[0], init: i}
	})
}

func (d *procPD) CreateSRQ(init rdma.SRQInitAttr) (rdma.SRQ, error) {
	c := &call{Op: opCreateSRQ, On: d.h, Recv: handleOf(init.CQ), XRCD: handleOf(init.XRCD)}
	init.CQ, init.XRCD = nil, nil
	c.SRQInit = init
	return create(d.p, c, func(o procObject, a *answer) rdma.SRQ { return &procSRQ{procObject: o, pd: d, num: a.Key[0]} })
}

func (d *procPD) CreateAH(av rdma.AV) (rdma.AH, error) {
	return create(d.p, &call{Op: opCreateAH, On: d.h, AV: av}, func(o procObject, _ *answer) rdma.AH { return &procAH{o, d} })
}

type procAH struct {
	procObject
	pd *procPD
}

func (h *procAH) PD() rdma.PD { return h.pd }

type procXRCD struct{ procObject }

type procChannel struct{ procObject }

func (c *procChannel) Get(ctx context.Context) (rdma.CQ, error) {
	a, err := c.p.callUntil(ctx, &call{Op: opChannelGet, On: c.h})
	cq, ok := c.p.known(a.Object).(*procCQ)
	if err == nil && !ok {
		err = fmt.Errorf("an event of object %d, which is no completion queue", a.Object)
	}
	if err != nil {
		return nil, err
	}
	return cq, nil
}

type procSRQ struct {
	procObject
	pd  *procPD
	num uint32
}

func (s *procSRQ) PD() rdma.PD { return s.pd }
func (s *procSRQ) Num() uint32 { return s.num }

func (s *procSRQ) PostRecv(wrs []rdma.RecvWR) (int, error) {
	a, err := s.p.call(&call{Op: opSRQPost, On: s.h, Recvs: wrs})
	return a.N, err
}

func (s *procSRQ) PostOps(ops []rdma.OpsWR) (int, error) {
	a, err := s.p.call(&call{Op: opSRQOps, On: s.h, Ops: ops})
	for i, handle := range a.Handles {
		if i < a.N {
			ops[i].Handle = handle
		}
	}
	return a.N, err
}

func (s *procSRQ) Modify(attr rdma.SRQAttr, mask rdma.SRQAttrMask) error {
	return s.p.do(&call{Op: opSRQModify, On: s.h, SRQAttr: attr, SRQMask: mask})
}

func (s *procSRQ) Query() rdma.SRQAttr {
	a, _ := s.p.call(&call{Op: opSRQQuery, On: s.h})
	return a.SRQAttr
}

func (d *procPD) AllocMW(typ rdma.MWType) (rdma.MW, error) {
	return create(d.p, &call{Op: opAllocMW, On: d.h, MWType: typ}, func(o procObject, _ *answer) rdma.MW { return &procMW{o, d, typ} })
}

func (d *procPD) ShareVA() (rdma.SVA, error) {
	return create(d.p, &call{Op: opShareVA, On: d.h}, func(o procObject, a *answer) rdma.SVA { return &procSVA{procKeys{o, d, a.Key}} })
}

func (d *procPD) CreateMkey(entries int) (rdma.Mkey, error) {
	return create(d.p, &call{Op: opCreateMkey, On: d.h, N: entries}, func(o procObject, a *answer) rdma.Mkey { return &procKeys{o, d, a.Key} })
}

// procKeys names memory of a domain: a layout as it is, and part of an address space and
// of a region.
type procKeys struct {
	procObject
	pd  *procPD
	key [2]uint32
}

func (k *procKeys) PD() rdma.PD  { return k.pd }
func (k *procKeys) LKey() uint32 { return k.key[0] }
func (k *procKeys) RKey() uint32 { return k.key[1] }

type procSVA struct{ procKeys }

func (v *procSVA) Protect(addr, length uint64, access rdma.Access) error {
	return v.p.do(&call{Op: opProtect, On: v.h, Addr: addr, Length: length, Access: access})
}

type procMW struct {
	procObject
	pd  *procPD
	typ rdma.MWType
}

func (w *procMW) PD() rdma.PD       { return w.pd }
func (w *procMW) Type() rdma.MWType { return w.typ }

func (w *procMW) RKey() uint32 {
	a, _ := w.p.call(&call{Op: opRKey, On: w.h})
	return a.Key[1]
}

type procMR struct {
	rdma.UnsupportedMR
	procKeys
	addr, len uint64
	access    rdma.Access
}

func (m *procMR) Addr() uint64        { return m.addr }
func (m *procMR) Len() uint64         { return m.len }
func (m *procMR) Access() rdma.Access { return m.access }
func (m *procMR) Bytes() []byte       { return nil } // not in this process

// procMemory is a region's memory at the agent. When the agent has gone, what
// is loaded is zero.
type procMemory procObject

func (m *procMemory) Load(off, n int) []byte {
	a, err := m.p.call(&call{Op: opLoad, On: m.h, Off: off, N: n})
	if err != nil || len(a.Data) != n {
		return make([]byte, n)
	}
	return a.Data
}

func (m *procMemory) Store(off int, b []byte) {
	_, _ = m.p.call(&call{Op: opStore, On: m.h, Off: off, Data: b})
}

func (m *procMemory) Load64(off int) uint64 {
	a, _ := m.p.call(&call{Op: opLoad64, On: m.h, Off: off})
	return a.Value
}

type procCQ struct {
	rdma.UnsupportedCQ
	procObject
	size int
}

func (q *procCQ) Cap() int { return q.size }

func (q *procCQ) Poll(wc []rdma.WC) (int, error) {
	a, err := q.p.call(&call{Op: opPoll, On: q.h, N: len(wc)})
	copy(wc, a.WCs)
	return a.N, err
}

func (q *procCQ) PollEx(wc []rdma.WCEx) (int, error) {
	a, err := q.p.call(&call{Op: opPollEx, On: q.h, N: len(wc)})
	copy(wc, a.WCExs)
	return a.N, err
}

func (q *procCQ) ReqNotify(solicitedOnly bool) error {
	c := &call{Op: opReqNotify, On: q.h}
	if solicitedOnly {
		c.N = 1
	}
	return q.p.do(c)
}

func (q *procCQ) Resize(cqe int) error {
	a, err := q.p.call(&call{Op: opResize, On: q.h, N: cqe})
	if err == nil {
		q.size = a.N
	}
	return err
}

type procQP struct {
	rdma.UnsupportedQP
	procObject
	pd   *procPD
	num  uint32
	init rdma.QPInitAttr
}

func (q *procQP) PD() rdma.PD { return q.pd }
func (q *procQP) Num() uint32 { return q.num }

func (q *procQP) State() rdma.QPState {
	a, err := q.p.call(&call{Op: opState, On: q.h})
	if err != nil {
		return rdma.StateErr
	}
	return a.State
}

func (q *procQP) Modify(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	return q.p.do(&call{Op: opModify, On: q.h, Attr: attr, Mask: mask})
}

func (q *procQP) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	a, _ := q.p.call(&call{Op: opQuery, On: q.h})
	init := q.init
	init.Cap, init.SigAll = a.Cap, a.SigAll
	return a.Attr, init
}

func (q *procQP) PostSend(wrs []rdma.SendWR) (int, error) {
	c := &call{Op: opPostSend, On: q.h}
	for _, wr := range wrs {
		c.Sends = append(c.Sends, callOfSend(wr))
	}
	a, err := q.p.call(c)
	return a.N, err
}

func (q *procQP) BindMW(mw rdma.MW, wrid uint64, flags rdma.SendFlags, bind rdma.MWBind) error {
	wr := callOfSend(rdma.SendWR{WRID: wrid, Flags: flags, MW: mw, Bind: &bind})
	return q.p.do(&call{Op: opBindMW, On: q.h, Sends: []sendCall{wr}})
}

func (q *procQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	a, err := q.p.call(&call{Op: opPostRecv, On: q.h, Recvs: wrs})
	return a.N, err
}
