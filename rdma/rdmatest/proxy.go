package rdmatest

import (
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
	return &procCQ{procObject: procObject{c.p, a.Object}, size: a.N}, nil
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
	c := &call{Op: opCreateQP, On: d.h, Cap: i.Cap, Type: i.Type, SigAll: i.SigAll}
	if cq, ok := i.SendCQ.(*procCQ); ok {
		c.Send = cq.h
	}
	if cq, ok := i.RecvCQ.(*procCQ); ok {
		c.Recv = cq.h
	}
	a, err := d.p.call(c)
	if err != nil {
		return nil, err
	}
	return &procQP{procObject: procObject{d.p, a.Object}, pd: d, num: a.Key[0], init: i}, nil
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
	a, err := q.p.call(&call{Op: opPostSend, On: q.h, Sends: wrs})
	return a.N, err
}

func (q *procQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	a, err := q.p.call(&call{Op: opPostRecv, On: q.h, Recvs: wrs})
	return a.N, err
}
