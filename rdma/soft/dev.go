package soft

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// The limits that QueryDevice tells, beside those of the arena.
const (
	maxWR         = 1 << 15
	maxSGE        = 32
	maxCQE        = 1 << 20
	maxInline     = 4096
	maxInlineRecv = 64
	maxRdAtom     = 128
	maxMessage    = 1 << 31
)

// device is one name of a provider.
type device struct {
	p    *Provider
	name string
	node uint64 // GUID
}

func (d *device) Name() string { return d.name }

func (d *device) Open() (rdma.Context, error) {
	d.p.mu.Lock()
	defer d.p.mu.Unlock()
	if d.p.closed {
		return nil, &rdma.OpError{Op: "open_device", Detail: d.name + ": the provider is closed", Err: rdma.ErrNoDevice}
	}
	c := &context{family: family{name: "context"}, p: d.p, device: d}
	d.p.contexts = append(d.p.contexts, c)
	return c, nil
}

// context is an opened device: the parent of its domains and completion queues.
type context struct {
	rdma.UnsupportedContext
	family // of domains and completion queues
	p      *Provider
	device *device

	mu     sync.Mutex // guards what follows
	queues map[*queuePair]struct{}
	past   rdma.Counters // of queue pairs that are closed

	events  eventQueue
	quiet   *completionQueue // of target queue pairs, which complete nothing
	orphans []*queuePair     // closed, and open elsewhere
}

// quietQueue gives the completion queue on which a queue pair without one has
// its owner's attention.
func (c *context) quietQueue() (*completionQueue, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet == nil {
		cq, err := c.newCQ("create_qp", rdma.CQInitAttr{CQE: 1})
		if err != nil {
			return nil, err
		}
		c.quiet = cq
	}
	return c.quiet, nil
}

var (
	_ rdma.Context    = (*context)(nil)
	_ rdma.Endpointer = (*context)(nil)
	_ rdma.Progresser = (*context)(nil)
	_ rdma.Sleeper    = (*context)(nil)
	_ rdma.Witness    = (*context)(nil)
	_ rdma.Mourner    = (*context)(nil)
	_ rdma.QPCloser   = (*context)(nil)
)

func (c *context) Device() rdma.Device { return c.device }

// QueryDevice tells the limits. OneSided is true when every peer that can be
// connected shares the segment, as far as is known: over TCP the peer's process
// executes what is asked of it, by its polling or by its progress goroutine.
func (c *context) QueryDevice() rdma.DeviceAttr {
	l := c.p.layout
	return rdma.DeviceAttr{
		MaxQP: l.queues, MaxQPWR: maxWR, MaxSGE: maxSGE,
		MaxCQ: l.completions, MaxCQE: maxCQE,
		MaxMR: l.regions, MaxMRSize: math.MaxInt64, MaxPD: math.MaxInt32,
		MaxQPRdAtom: maxRdAtom, MaxQPInitRdAtom: maxRdAtom,
		MaxInlineData: maxInline, MaxInlineRecv: maxInlineRecv,
		MaxMW: l.regions, MaxMkeyEntries: maxMkeyEntries,
		MaxSRQ: l.shared, MaxSRQWR: maxWR, MaxSRQSGE: maxSGE,
		MaxTags: maxTags, MaxTagOps: maxTagOps, MaxTagSGE: maxTagSGE, MaxRndvHdr: maxRndvHdr,
		ClockHz: deviceHz, MaxAH: math.MaxInt32, NodeGUID: c.device.node,
		OneSided: c.p.tcp.Load() == nil && c.p.cfg.Adversary == nil,
		ODP:      true,
	}
}

// Supports knows what it can do without trying.
func (c *context) Supports(f rdma.Feature) error {
	switch f {
	case rdma.FeatureRC, rdma.FeatureAtomics, rdma.FeatureInlineSend, rdma.FeatureInlineRecv, rdma.FeatureStridingRQ, rdma.FeatureZeroBased, rdma.FeatureODP, rdma.FeatureImplicitODP,
		rdma.FeatureIOVA, rdma.FeatureReregMR, rdma.FeatureMW1, rdma.FeatureMW2, rdma.FeatureSendWithInv, rdma.FeatureSVA, rdma.FeatureUMR,
		rdma.FeatureSRQ, rdma.FeatureAsyncEvents, rdma.FeatureCompChannel, rdma.FeatureExtendedCQ, rdma.FeatureDoorbellCounts,
		rdma.FeatureUC, rdma.FeatureUD, rdma.FeatureXRC, rdma.FeatureDC, rdma.FeatureTagMatching:
		return nil
	case rdma.FeatureDMABuf:
		if err := supportsDMABuf(); err != nil {
			return &rdma.OpError{Op: "query_device", Detail: f.String(), Err: err}
		}
		return nil
	}
	return &rdma.OpError{Op: "query_device", Detail: f.String() + ": this device does not have it", Err: rdma.ErrNotSupported}
}

func (c *context) QueryPort(port uint8) (rdma.PortAttr, error) {
	if port != 1 {
		return rdma.PortAttr{}, &rdma.OpError{Op: "query_port", Detail: fmt.Sprintf("found port %d, expected port 1, the only one of %s", port, c.device.name), Err: rdma.ErrInvalid}
	}
	return rdma.PortAttr{
		State: c.p.work.chaos.portState(), MaxMTU: rdma.MTU4096, ActiveMTU: rdma.MTU4096,
		GIDTblLen: gidTable, MaxMsgSz: maxMessage,
	}, nil
}

func (c *context) QueryGID(port uint8, index int) (rdma.GID, error) {
	if port != 1 || index < 0 || index >= gidTable {
		return rdma.GID{}, &rdma.OpError{Op: "query_gid", Detail: fmt.Sprintf("found port %d and index %d, expected port 1 of %s and an index below %d", port, index, c.device.name, gidTable), Err: rdma.ErrInvalid}
	}
	return c.p.gids[index], nil
}

func (c *context) AllocPD() (rdma.PD, error) {
	if err := c.adopt("alloc_pd"); err != nil {
		return nil, err
	}
	c.p.mu.Lock()
	c.p.nextPD++
	id := c.p.nextPD
	c.p.mu.Unlock()
	return &domain{family: family{name: "protection domain"}, ctx: c, p: c.p, id: id}, nil
}

func (c *context) Counters() rdma.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	sum := c.past
	for q := range c.queues {
		add(&sum, q.snapshot())
	}
	return sum
}

func add(sum *rdma.Counters, n rdma.Counters) {
	sum.Writes += n.Writes
	sum.WriteBytes += n.WriteBytes
	sum.Reads += n.Reads
	sum.ReadBytes += n.ReadBytes
	sum.Sends += n.Sends
	sum.SendBytes += n.SendBytes
	sum.Atomics += n.Atomics
	sum.Inline += n.Inline
	sum.Batches += n.Batches
	sum.Errors += n.Errors
	sum.RNRRetries += n.RNRRetries
	sum.AckRetries += n.AckRetries
	sum.DCConnects += n.DCConnects
	sum.DCCNAKs += n.DCCNAKs
	sum.Doorbells += n.Doorbells
	sum.WQEFetches += n.WQEFetches
	sum.DirectWQEs += n.DirectWQEs
	sum.DMAReads += n.DMAReads
}

func (c *context) Close() error {
	if err := c.reap(true); err != nil {
		return err
	}
	if before, err := c.end("close_device", "of its objects are open"); before || err != nil {
		return err
	}
	c.mu.Lock()
	if c.quiet != nil {
		c.quiet.retire()
	}
	c.mu.Unlock()
	c.events.close()
	c.p.mu.Lock()
	c.p.contexts = slices.DeleteFunc(c.p.contexts, func(o *context) bool { return o == c })
	c.p.mu.Unlock()
	return nil
}

func (c *context) Endpoint() []byte { return c.p.self.ep.append(nil) }

// Gone tells whether the peer's process has ended, no process listens any more where it did, or
// its host has acknowledged nothing for Config.Silence. A process that is stopped is not gone.
func (c *context) Gone(gid rdma.GID) bool {
	s := c.p.find(gid)
	if s == nil {
		return false
	}
	if s.gone.Load() || s.checkDead() {
		return true
	}
	s.mu.Lock()
	l := s.link
	s.mu.Unlock()
	return l != nil && l.state.Load() == linkUp && l.unheard(c.p.cfg.silence(), goneTries)
}

func (c *context) Mourn(gid rdma.GID) {
	if s := c.p.find(gid); s != nil && !s.own {
		s.mourn()
	}
}

// goneAfter is the default of Config.Silence: about as long as a queue pair's usual timeout and retries. TCP
// has sent at least five times again by then, see tune.
const (
	goneAfter = 8 * time.Second
	goneTries = 5
)

func (c *context) AddEndpoint(gid rdma.GID, endpoint []byte) error {
	return c.p.addEndpoint(gid, endpoint)
}

func (c *context) Progress() bool { return c.p.work.poll() }

func (c *context) Prepare() { c.p.segment.Bell(c.p.cfg.Rank).Prepare() }
func (c *context) Sleep(ns int64) (woken bool) {
	if n := c.p.tcp.Load(); n != nil {
		n.rest()
	}
	return c.p.segment.Bell(c.p.cfg.Rank).Sleep(ns)
}
func (c *context) Cancel() { c.p.segment.Bell(c.p.cfg.Rank).Cancel() }

// Ring ends a Sleep, as an operation of a peer does.
func (c *context) Ring() { c.p.segment.Bell(c.p.cfg.Rank).Ring() }

// opError is the error of a verb.
func opError(op string, err error, format string, args ...any) error {
	return &rdma.OpError{Op: op, Detail: fmt.Sprintf(format, args...), Err: err}
}
