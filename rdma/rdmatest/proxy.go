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
	a, err := c.p.call(&call{Op: opAllocPD})
	if err != nil {
		return nil, err
	}
	return &procPD{procObject: procObject{c.p, a.Object}}, nil
}

func (c *procContext) CreateCQ(cqe int) (rdma.CQ, error) {
	a, err := c.p.call(&call{Op: opCreateCQ, N: cqe})
	if err != nil {
		return nil, err
	}
	return c.cq(a), nil
}

func (c *procContext) cq(a *answer) rdma.CQ {
	cq := &procCQ{procObject: procObject{c.p, a.Object}, size: a.N}
	c.p.know(a.Object, cq)
	return cq
}

func (c *procContext) CreateCQEx(attr rdma.CQInitAttr) (rdma.CQ, error) {
	k := &call{Op: opCreateCQEx}
	if ch, ok := attr.Channel.(*procChannel); ok {
		k.Send = ch.h
	}
	attr.Channel = nil
	k.CQInit = attr
	a, err := c.p.call(k)
	if err != nil {
		return nil, err
	}
	return c.cq(a), nil
}

func (c *procContext) CreateCompChannel() (rdma.CompChannel, error) {
	a, err := c.p.call(&call{Op: opCreateChannel})
	if err != nil {
		return nil, err
	}
	return &procChannel{procObject{c.p, a.Object}}, nil
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
	a, err := c.p.call(k)
	if err != nil {
		return nil, err
	}
	return &procXRCD{procObject{c.p, a.Object}}, nil
}

func (c *procContext) OpenQP(num uint32, xrcd rdma.XRCD) (rdma.QP, error) {
	k := &call{Op: opOpenQP, N: int(num)}
	if x, ok := xrcd.(*procXRCD); ok {
		k.XRCD = x.h
	}
	a, err := c.p.call(k)
	if err != nil {
		return nil, err
	}
	qp := &procQP{procObject: procObject{c.p, a.Object}, num: a.Key[0]}
	c.p.know(a.Object, qp)
	return qp, nil
}

func (c *procContext) Supports(f rdma.Feature) error {
	_, err := c.p.call(&call{Op: opSupports, N: int(f)})
	return err
}

func (c *procContext) Counters() rdma.Counters {
	a, _ := c.p.call(&call{Op: opCounters})
	return a.Counters
}

func (c *procContext) Close() error {
	_, err := c.p.call(&call{Op: opCloseContext})
	return err
}

// A procEndpoint is a context whose device needs endpoints.
type procEndpoint struct {
	*procContext
	endpoint []byte
}

func (c *procEndpoint) Endpoint() []byte { return c.endpoint }

func (c *procEndpoint) AddEndpoint(gid rdma.GID, endpoint []byte) error {
	_, err := c.p.call(&call{Op: opAddEndpoint, GID: gid, Data: endpoint})
	return err
}

type procObject struct {
	p *Proc
	h handle
}

func (o *procObject) Close() error {
	_, err := o.p.call(&call{Op: opClose, On: o.h})
	return err
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
	_, err := d.p.call(&call{Op: opAdvise, On: d.h, Advice: advice, Flush: flags, SGL: sgl})
	return err
}

func (d *procPD) CreateQP(i rdma.QPInitAttr) (rdma.QP, error) {
	c := &call{Op: opCreateQP, On: d.h, Cap: i.Cap, Type: i.Type, SigAll: i.SigAll, DCKey: i.DCAccessKey, Stride: i.Striding}
	if cq, ok := i.SendCQ.(*procCQ); ok {
		c.Send = cq.h
	}
	if cq, ok := i.RecvCQ.(*procCQ); ok {
		c.Recv = cq.h
	}
	if s, ok := i.SRQ.(*procSRQ); ok {
		c.SRQ = s.h
	}
	if x, ok := i.XRCD.(*procXRCD); ok {
		c.XRCD = x.h
	}
	a, err := d.p.call(c)
	if err != nil {
		return nil, err
	}
	qp := &procQP{procObject: procObject{d.p, a.Object}, pd: d, num: a.Key[0], init: i}
	d.p.know(a.Object, qp)
	return qp, nil
}

func (d *procPD) CreateSRQ(init rdma.SRQInitAttr) (rdma.SRQ, error) {
	c := &call{Op: opCreateSRQ, On: d.h}
	if cq, ok := init.CQ.(*procCQ); ok {
		c.Recv = cq.h
	}
	if x, ok := init.XRCD.(*procXRCD); ok {
		c.XRCD = x.h
	}
	init.CQ, init.XRCD = nil, nil
	c.SRQInit = init
	a, err := d.p.call(c)
	if err != nil {
		return nil, err
	}
	srq := &procSRQ{procObject: procObject{d.p, a.Object}, pd: d, num: a.Key[0]}
	d.p.know(a.Object, srq)
	return srq, nil
}

func (d *procPD) CreateAH(av rdma.AV) (rdma.AH, error) {
	a, err := d.p.call(&call{Op: opCreateAH, On: d.h, AV: av})
	if err != nil {
		return nil, err
	}
	return &procAH{procObject{d.p, a.Object}, d}, nil
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
	_, err := s.p.call(&call{Op: opSRQModify, On: s.h, SRQAttr: attr, SRQMask: mask})
	return err
}

func (s *procSRQ) Query() rdma.SRQAttr {
	a, _ := s.p.call(&call{Op: opSRQQuery, On: s.h})
	return a.SRQAttr
}

func (d *procPD) AllocMW(typ rdma.MWType) (rdma.MW, error) {
	a, err := d.p.call(&call{Op: opAllocMW, On: d.h, MWType: typ})
	if err != nil {
		return nil, err
	}
	return &procMW{procObject{d.p, a.Object}, d, typ}, nil
}

func (d *procPD) ShareVA() (rdma.SVA, error) {
	a, err := d.p.call(&call{Op: opShareVA, On: d.h})
	if err != nil {
		return nil, err
	}
	return &procSVA{procObject{d.p, a.Object}, d, a.Key}, nil
}

func (d *procPD) CreateMkey(entries int) (rdma.Mkey, error) {
	a, err := d.p.call(&call{Op: opCreateMkey, On: d.h, N: entries})
	if err != nil {
		return nil, err
	}
	return &procMkey{procObject{d.p, a.Object}, d, a.Key}, nil
}

type procMkey struct {
	procObject
	pd  *procPD
	key [2]uint32
}

func (k *procMkey) PD() rdma.PD  { return k.pd }
func (k *procMkey) LKey() uint32 { return k.key[0] }
func (k *procMkey) RKey() uint32 { return k.key[1] }

type procSVA struct {
	procObject
	pd  *procPD
	key [2]uint32
}

func (v *procSVA) PD() rdma.PD  { return v.pd }
func (v *procSVA) LKey() uint32 { return v.key[0] }
func (v *procSVA) RKey() uint32 { return v.key[1] }

func (v *procSVA) Protect(addr, length uint64, access rdma.Access) error {
	_, err := v.p.call(&call{Op: opProtect, On: v.h, Addr: addr, Length: length, Access: access})
	return err
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
	procObject
	pd        *procPD
	addr, len uint64
	key       [2]uint32
	access    rdma.Access
}

func (m *procMR) PD() rdma.PD         { return m.pd }
func (m *procMR) Addr() uint64        { return m.addr }
func (m *procMR) Len() uint64         { return m.len }
func (m *procMR) LKey() uint32        { return m.key[0] }
func (m *procMR) RKey() uint32        { return m.key[1] }
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
	_, err := q.p.call(c)
	return err
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
	_, err := q.p.call(&call{Op: opModify, On: q.h, Attr: attr, Mask: mask})
	return err
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
	_, err := q.p.call(&call{Op: opBindMW, On: q.h, Sends: []sendCall{wr}})
	return err
}

func (q *procQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	a, err := q.p.call(&call{Op: opPostRecv, On: q.h, Recvs: wrs})
	return a.N, err
}
