package rdmatest_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// What is here stands between the suite and a device that keeps the rules: an
// object of each kind that the hooks change, around the device's own. What is
// handed to the device is unwrapped, what it hands out is wrapped.

// mutated opens nodes in one segment with hooks between.
func mutated(h hooks) func(testing.TB, int) []rdmatest.Node {
	return func(t testing.TB, n int) []rdmatest.Node {
		segment, err := shm.NewLocal(shm.Geometry{Ranks: n, ArenaSize: 64 << 20})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { segment.Close() })
		var nodes []rdmatest.Node
		for i := range n {
			p, err := soft.New(soft.Config{Segment: segment, Rank: i, Host: "here"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { p.Close() })
			devices, err := p.Devices()
			if err != nil {
				t.Fatal(err)
			}
			device := &mutantDevice{devices[0], h}
			ctx, err := device.Open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { ctx.Close() })
			nodes = append(nodes, rdmatest.Local(ctx))
		}
		return nodes
	}
}

type (
	mutantDevice struct {
		rdma.Device
		h hooks
	}
	mutantContext struct {
		rdma.Context
		d *mutantDevice
		h hooks

		mu    sync.Mutex
		outer map[any]any // the device's objects -> those here
	}
	mutantPD struct {
		rdma.PD
		c *mutantContext
	}
	mutantMR struct {
		rdma.MR
		d *mutantPD
	}
	mutantMW struct {
		rdma.MW
		h hooks
	}
	mutantSVA struct {
		rdma.SVA
		h hooks
	}
	mutantCQ struct {
		rdma.CQ
		h hooks
	}
	mutantChannel struct {
		rdma.CompChannel
		c *mutantContext
	}
	mutantSRQ struct {
		rdma.SRQ
		h hooks
	}
	mutantQP struct {
		rdma.QP
		h hooks
	}
	mutantPeer struct {
		rdma.PeerMemory
		h hooks
	}
)

func (d *mutantDevice) Open() (rdma.Context, error) {
	ctx, err := d.Device.Open()
	if err != nil {
		return nil, err
	}
	return &mutantContext{Context: ctx, d: d, h: d.h, outer: make(map[any]any)}, nil
}

// known notes that the device's inner is known as outer.
func known[T any](c *mutantContext, inner any, outer T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outer[inner] = outer
	return outer
}

// as is what an object of the device is known as.
func as[T any](c *mutantContext, inner T) T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if o, ok := c.outer[inner].(T); ok {
		return o
	}
	return inner
}

func bareCQ(q rdma.CQ) rdma.CQ {
	if m, ok := q.(*mutantCQ); ok {
		return m.CQ
	}
	return q
}

func (c *mutantContext) Device() rdma.Device { return c.d }

func (c *mutantContext) QueryDevice() rdma.DeviceAttr {
	a := c.Context.QueryDevice()
	if c.h.limits != nil {
		c.h.limits(&a)
	}
	return a
}

func (c *mutantContext) Endpoint() []byte { return c.Context.(rdma.Endpointer).Endpoint() }

func (c *mutantContext) AddEndpoint(gid rdma.GID, e []byte) error {
	return c.Context.(rdma.Endpointer).AddEndpoint(gid, e)
}

func (c *mutantContext) Progress() bool {
	if c.h.progress != nil {
		return c.h.progress(c.Context.(rdma.Progresser))
	}
	return c.Context.(rdma.Progresser).Progress()
}

func (c *mutantContext) Prepare()            { c.Context.(rdma.Sleeper).Prepare() }
func (c *mutantContext) Sleep(ns int64) bool { return c.Context.(rdma.Sleeper).Sleep(ns) }
func (c *mutantContext) Cancel()             { c.Context.(rdma.Sleeper).Cancel() }

func (c *mutantContext) Peer(gid rdma.GID) (rdma.PeerMemory, error) {
	p, err := c.Context.(rdma.Mapper).Peer(gid)
	if err != nil {
		return nil, err
	}
	return &mutantPeer{p, c.h}, nil
}

func (p *mutantPeer) Map(addr uint64, rkey uint32, length int, access rdma.Access) ([]byte, error) {
	if p.h.mapAccess != nil {
		access = p.h.mapAccess(access)
	}
	return p.PeerMemory.Map(addr, rkey, length, access)
}

func (c *mutantContext) AllocPD() (rdma.PD, error) {
	pd, err := c.Context.AllocPD()
	if err != nil {
		return nil, err
	}
	return &mutantPD{pd, c}, nil
}

func (c *mutantContext) cq(cq rdma.CQ, err error) (rdma.CQ, error) {
	if err != nil {
		return nil, err
	}
	return known(c, cq, rdma.CQ(&mutantCQ{cq, c.h})), nil
}

func (c *mutantContext) CreateCQ(n int) (rdma.CQ, error) { return c.cq(c.Context.CreateCQ(n)) }

func (c *mutantContext) CreateCQEx(attr rdma.CQInitAttr) (rdma.CQ, error) {
	if ch, ok := attr.Channel.(*mutantChannel); ok {
		attr.Channel = ch.CompChannel
	}
	return c.cq(c.Context.CreateCQEx(attr))
}

func (c *mutantContext) CreateCompChannel() (rdma.CompChannel, error) {
	ch, err := c.Context.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	return &mutantChannel{ch, c}, nil
}

func (ch *mutantChannel) Get(ctx context.Context) (rdma.CQ, error) {
	cq, err := ch.CompChannel.Get(ctx)
	if err != nil {
		return nil, err
	}
	return as(ch.c, cq), nil
}

func (c *mutantContext) OpenXRCD(attr rdma.XRCDInitAttr) (rdma.XRCD, error) {
	if c.h.domain != nil {
		c.h.domain(&attr)
	}
	return c.Context.OpenXRCD(attr)
}

func (c *mutantContext) OpenQP(num uint32, x rdma.XRCD) (rdma.QP, error) {
	return c.qp(c.Context.OpenQP(num, x))
}

func (c *mutantContext) qp(qp rdma.QP, err error) (rdma.QP, error) {
	if err != nil {
		return nil, err
	}
	return known(c, qp, rdma.QP(&mutantQP{qp, c.h})), nil
}

func (c *mutantContext) GetAsyncEvent(ctx context.Context) (rdma.AsyncEvent, error) {
	for {
		e, err := c.Context.GetAsyncEvent(ctx)
		if err != nil {
			return e, err
		}
		if slices.Contains(c.h.untold, e.Type) {
			continue
		}
		if e.CQ != nil {
			e.CQ = as(c, e.CQ)
		}
		if e.QP != nil {
			e.QP = as(c, e.QP)
		}
		if e.SRQ != nil {
			e.SRQ = as(c, e.SRQ)
		}
		return e, nil
	}
}

func (c *mutantContext) Counters() rdma.Counters {
	n := c.Context.Counters()
	if c.h.counters != nil {
		c.h.counters(&n)
	}
	return n
}

func (d *mutantPD) Context() rdma.Context { return d.c }

func (d *mutantPD) region(m rdma.MR, err error) (rdma.MR, error) {
	if err != nil {
		return nil, err
	}
	if d.c.h.register != nil {
		d.c.h.register(m)
	}
	return &mutantMR{m, d}, nil
}

func (d *mutantPD) AllocMR(n int, a rdma.Access) (rdma.MR, error) {
	return d.region(d.PD.AllocMR(n, a))
}

func (d *mutantPD) RegMR(b []byte, a rdma.Access) (rdma.MR, error) {
	if d.c.h.pin != nil {
		d.c.h.pin(b, &a)
	}
	return d.region(d.PD.RegMR(b, a))
}

func (d *mutantPD) RegMRIOVA(b []byte, iova uint64, a rdma.Access) (rdma.MR, error) {
	if d.c.h.iova != nil {
		iova = d.c.h.iova(iova)
	}
	return d.region(d.PD.RegMRIOVA(b, iova, a))
}

func (d *mutantPD) RegDMABufMR(offset, length, iova uint64, fd int, a rdma.Access) (rdma.MR, error) {
	if d.c.h.iova != nil {
		iova = d.c.h.iova(iova)
	}
	return d.region(d.PD.RegDMABufMR(offset, length, iova, fd, a))
}

func (d *mutantPD) AdviseMR(a rdma.Advice, f rdma.AdviseFlags, sgl []rdma.SGE) error {
	if d.c.h.advise != nil {
		return d.c.h.advise()
	}
	return d.PD.AdviseMR(a, f, sgl)
}

func (d *mutantPD) ShareVA() (rdma.SVA, error) {
	v, err := d.PD.ShareVA()
	if err != nil {
		return nil, err
	}
	return &mutantSVA{v, d.c.h}, nil
}

func (v *mutantSVA) Protect(addr, length uint64, a rdma.Access) error {
	if v.h.protect != nil {
		v.h.protect(&length, &a)
	}
	return v.SVA.Protect(addr, length, a)
}

func (d *mutantPD) AllocMW(typ rdma.MWType) (rdma.MW, error) {
	w, err := d.PD.AllocMW(typ)
	if err != nil {
		return nil, err
	}
	return &mutantMW{w, d.c.h}, nil
}

func (w *mutantMW) Close() error {
	if w.h.closeMW != nil {
		return w.h.closeMW(w.MW)
	}
	return w.MW.Close()
}

func (d *mutantPD) CreateSRQ(attr rdma.SRQInitAttr) (rdma.SRQ, error) {
	if attr.CQ != nil {
		attr.CQ = bareCQ(attr.CQ)
	}
	s, err := d.PD.CreateSRQ(attr)
	if err != nil {
		return nil, err
	}
	return known(d.c, s, rdma.SRQ(&mutantSRQ{s, d.c.h})), nil
}

func (s *mutantSRQ) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if s.h.recv == nil {
		return s.SRQ.PostRecv(wrs)
	}
	if n, err := s.SRQ.PostRecv(s.h.recv(wrs)); err != nil {
		return min(n, len(wrs)), err
	}
	return len(wrs), nil
}

func (s *mutantSRQ) PostOps(wrs []rdma.OpsWR) (int, error) {
	if s.h.ops != nil {
		s.h.ops(wrs)
	}
	return s.SRQ.PostOps(wrs)
}

func (s *mutantSRQ) Modify(a rdma.SRQAttr, m rdma.SRQAttrMask) error {
	if s.h.modifySRQ != nil {
		s.h.modifySRQ(&a)
	}
	return s.SRQ.Modify(a, m)
}

func (d *mutantPD) CreateQP(i rdma.QPInitAttr) (rdma.QP, error) {
	if i.SendCQ != nil {
		i.SendCQ = bareCQ(i.SendCQ)
	}
	if i.RecvCQ != nil {
		i.RecvCQ = bareCQ(i.RecvCQ)
	}
	if s, ok := i.SRQ.(*mutantSRQ); ok {
		i.SRQ = s.SRQ
	}
	if d.c.h.create != nil {
		d.c.h.create(&i)
	}
	return d.c.qp(d.PD.CreateQP(i))
}

func (d *mutantPD) Close() error {
	if d.c.h.closePD != nil {
		return d.c.h.closePD(d.PD)
	}
	return d.PD.Close()
}

func (m *mutantMR) PD() rdma.PD { return m.d }

func (m *mutantMR) Rereg(flags rdma.ReregFlags, pd rdma.PD, buf []byte, a rdma.Access) error {
	d, ok := pd.(*mutantPD)
	if ok {
		pd = d.PD
	}
	if m.d.c.h.rereg != nil {
		m.d.c.h.rereg(m.MR, &pd, &a)
	}
	err := m.MR.Rereg(flags, pd, buf, a)
	if err == nil && flags&rdma.ReregPD != 0 && ok {
		m.d = d
	}
	return err
}

func (m *mutantMR) Close() error {
	if m.d.c.h.closeMR != nil {
		return m.d.c.h.closeMR(m.MR)
	}
	return m.MR.Close()
}

func (q *mutantCQ) Poll(wc []rdma.WC) (int, error) {
	n, err := q.CQ.Poll(wc)
	if err == nil && n > 0 && q.h.poll != nil {
		n = len(q.h.poll(wc[:n:n]))
	}
	return n, err
}

func (q *mutantCQ) PollEx(wc []rdma.WCEx) (int, error) {
	n, err := q.CQ.PollEx(wc)
	if err == nil && q.h.pollEx != nil {
		for i := range wc[:n] {
			q.h.pollEx(&wc[i])
		}
	}
	return n, err
}

func (q *mutantCQ) ReqNotify(solicitedOnly bool) error {
	if q.h.notify != nil {
		return q.h.notify(q.CQ, solicitedOnly)
	}
	return q.CQ.ReqNotify(solicitedOnly)
}

func (q *mutantCQ) Resize(n int) error {
	if q.h.resize != nil {
		return q.h.resize(q.CQ, n)
	}
	return q.CQ.Resize(n)
}

func (q *mutantCQ) Close() error {
	if q.h.closeCQ != nil {
		return q.h.closeCQ(q.CQ)
	}
	return q.CQ.Close()
}

// bare unwraps what requests name.
func bare(wrs []rdma.SendWR) []rdma.SendWR {
	out := slices.Clone(wrs)
	for i := range out {
		w := &out[i]
		if m, ok := w.MW.(*mutantMW); ok {
			w.MW = m.MW
		}
		if w.Bind != nil {
			b := bareBind(*w.Bind)
			w.Bind = &b
		}
	}
	return out
}

func bareBind(b rdma.MWBind) rdma.MWBind {
	if m, ok := b.MR.(*mutantMR); ok {
		b.MR = m.MR
	}
	return b
}

func (q *mutantQP) PostSend(wrs []rdma.SendWR) (int, error) {
	wrs = bare(wrs)
	if q.h.post == nil {
		n, err := q.QP.PostSend(wrs)
		if err != nil && q.h.refused != nil && n < len(wrs) {
			q.h.refused(q.QP, wrs[n+1:])
		}
		return n, err
	}
	if n, err := q.QP.PostSend(q.h.post(wrs)); err != nil {
		return min(n, len(wrs)), fmt.Errorf("mutated: %w", err)
	}
	return len(wrs), nil
}

func (q *mutantQP) BindMW(mw rdma.MW, id uint64, flags rdma.SendFlags, b rdma.MWBind) error {
	if m, ok := mw.(*mutantMW); ok {
		mw = m.MW
	}
	b = bareBind(b)
	if q.h.bind != nil {
		q.h.bind(&b)
	}
	return q.QP.BindMW(mw, id, flags, b)
}

func (q *mutantQP) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.h.recv != nil {
		wrs = q.h.recv(wrs)
	}
	return q.QP.PostRecv(wrs)
}

func (q *mutantQP) Modify(a rdma.QPAttr, m rdma.QPAttrMask) error {
	if q.h.modify != nil {
		q.h.modify(&a, &m)
	}
	return q.QP.Modify(a, m)
}

func (q *mutantQP) State() rdma.QPState {
	s := q.QP.State()
	if q.h.state != nil {
		s = q.h.state(s)
	}
	return s
}

func (q *mutantQP) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	a, i := q.QP.Query()
	if q.h.query != nil {
		q.h.query(&a)
	}
	if q.h.queryInit != nil {
		q.h.queryInit(&i)
	}
	return a, i
}
