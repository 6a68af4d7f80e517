package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/dpa"
)

// A kernelEngine has device threads run the all-to-all, by the kernel of the original: a rank has a connected queue
// pair to each rank, itself included, and knows its receive buffer; each rank has an event for each, which that one sets
// to the number of the call, behind its block, on the same queue pair. The rank launches the kernel
// and waits for one completion event. It is a request that is used again: start, then wait, and no other start before.
//
// Nothing tells a rank that its peer has read what came with the call before: the exchange
// gives each call between two barriers a slot of its own.
type kernelEngine struct {
	comm   *rank.Comm
	verbs  rdma.Context
	block  int // bytes that each rank gets
	pd     rdma.PD
	device *dpa.Context
	group  *dpa.ThreadGroup
	done   *dpa.SyncEvent
	peers  []peer                   // by rank
	ends   []*dpa.CompletionContext // by thread
	none   rdma.CQ                  // of receives, of which there are none
	send   rdma.MR
	recv   rdma.MR
	kernel dpa.Kernel

	seq     uint64 // of the call
	at      uint64 // of its slot in the buffers, bytes
	started bool   // and not waited for

	writes, writeBytes, signals atomic.Uint64
}

// A peer is a rank as seen from here.
type peer struct {
	qp      rdma.QP
	queue   *dpa.RDMA
	arrived *dpa.SyncEvent  // the peer sets it
	signal  dpa.RemoteEvent // the peer's event that this rank sets
	addr    uint64          // of the peer's receive buffer
	rkey    uint32
}

var errStarted = errors.New("the last call has not been waited for")

const (
	// queueDepth is the depth of a send queue: a call posts two requests, more only for huge blocks.
	queueDepth = 8
	// writeMost is the longest write that every device takes.
	writeMost = 1 << 30
	// ackTimeout and retries give a silent peer up after some 8 s, as rank's queue pairs do.
	ackTimeout, retries = 18, 7
	hops                = 64
)

// newKernelEngine makes what a rank needs, and connects it with all others. What was made when it fails is closed.
func newKernelEngine(ctx context.Context, comm *rank.Comm, p *params) (e *kernelEngine, err error) {
	world := comm.World()
	e = &kernelEngine{comm: comm, verbs: world.DeviceContext(), block: p.perPeer(comm.Size()) * intSize}
	e.kernel = e.allToAll
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set up --engine dpa: %w", err), e.close(ctx, false))
		}
	}()
	if e.pd, err = e.verbs.AllocPD(); err != nil {
		return e, err
	}
	if e.device, err = dpa.New(e.pd, dpa.Config{Threads: p.threads, Place: world.LocalRank(), Processes: world.LocalSize()}); err != nil {
		return e, err
	}
	if e.group, err = e.device.NewThreadGroup(p.threads); err != nil {
		return e, err
	}
	if e.done, err = e.device.NewSyncEvent(dpa.Device, dpa.CPU); err != nil {
		return e, err
	}
	if err = e.makeQueues(); err != nil {
		return e, err
	}
	return e, e.connect(ctx)
}

// makeQueues makes a queue pair and an event for each rank, and a completion context for each thread.
func (e *kernelEngine) makeQueues() (err error) {
	threads, ranks := e.group.NumThreads(), e.comm.Size()
	for t := range threads {
		cc, err := e.device.NewCompletionContext(queueDepth * ((ranks - t + threads - 1) / threads))
		if err != nil {
			return err
		}
		e.ends = append(e.ends, cc)
	}
	if e.none, err = e.verbs.CreateCQ(1); err != nil {
		return err
	}
	e.peers = make([]peer, ranks)
	for i := range e.peers {
		to, end := &e.peers[i], e.ends[i%threads]
		if to.qp, err = e.pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: end.CQ(), RecvCQ: e.none,
			Cap: rdma.QPCap{MaxSendWR: queueDepth, MaxSendSGE: 1, MaxInlineData: 8}}); err != nil {
			return err
		}
		if to.queue, err = e.device.NewRDMA(to.qp, end); err != nil {
			return err
		}
		if to.arrived, err = e.device.NewSyncEvent(dpa.RemoteNet, dpa.Device); err != nil {
			return err
		}
	}
	return nil
}

// connect brings the queue pairs to RTS, and tells the ranks each other's events.
func (e *kernelEngine) connect(ctx context.Context) error {
	ports, err := e.exchangePorts(ctx)
	if err != nil {
		return err
	}
	const words = 3 // a queue pair's number, an event's address and key
	mine, theirs := make([]uint64, words*len(e.peers)), make([]uint64, words*len(e.peers))
	for i := range e.peers {
		event, err := e.peers[i].arrived.Export()
		if err != nil {
			return err
		}
		copy(mine[words*i:], []uint64{uint64(e.peers[i].qp.Num()), event.Addr, uint64(event.RKey)})
	}
	if err := rank.Alltoall(ctx, e.comm, mine, theirs); err != nil {
		return err
	}
	for i := range e.peers {
		their := theirs[words*i : words*i+words]
		e.peers[i].signal = dpa.RemoteEvent{Addr: their[1], RKey: uint32(their[2])}
		if err := ready(e.peers[i].qp, ports[i], uint32(their[0])); err != nil {
			return fmt.Errorf("connect rank %d: %w", i, err)
		}
	}
	return rank.Barrier(ctx, e.comm)
}

// A port is where a rank's queue pairs are.
type port struct {
	gid rdma.GID
	mtu rdma.MTU // of the path
}

// exchangePorts tells all ranks where the queue pairs of each are, and the device how to get there.
func (e *kernelEngine) exchangePorts(ctx context.Context) ([]port, error) {
	attr, err := e.verbs.QueryPort(1)
	if err != nil {
		return nil, err
	}
	gid, err := e.verbs.QueryGID(1, 0)
	if err != nil {
		return nil, err
	}
	card := append([]byte{byte(attr.ActiveMTU)}, gid[:]...)
	hidden, isHidden := e.verbs.(rdma.Endpointer)
	if isHidden {
		card = append(card, hidden.Endpoint()...)
	}
	cards, err := e.gather(ctx, card)
	if err != nil {
		return nil, err
	}
	ports := make([]port, len(cards))
	for i, c := range cards {
		if len(c) < 1+len(gid) {
			return nil, fmt.Errorf("rank %d sent an address of %d bytes, expected at least %d", i, len(c), 1+len(gid))
		}
		ports[i].mtu = min(rdma.MTU(c[0]), attr.ActiveMTU)
		copy(ports[i].gid[:], c[1:])
		if isHidden {
			if err := hidden.AddEndpoint(ports[i].gid, c[1+len(gid):]); err != nil {
				return nil, fmt.Errorf("reach rank %d: %w", i, err)
			}
		}
	}
	return ports, nil
}

// gather gives each rank the bytes of all, of any lengths.
func (e *kernelEngine) gather(ctx context.Context, mine []byte) ([][]byte, error) {
	lengths := make([]int, e.comm.Size())
	if err := rank.Allgather(ctx, e.comm, []int{len(mine)}, lengths); err != nil {
		return nil, err
	}
	longest := 0
	for _, n := range lengths {
		longest = max(longest, n)
	}
	all := make([]byte, longest*len(lengths))
	if err := rank.Allgather(ctx, e.comm, append(mine, make([]byte, longest-len(mine))...), all); err != nil {
		return nil, err
	}
	parts := make([][]byte, len(lengths))
	for i, n := range lengths {
		parts[i] = all[longest*i : longest*i+n]
	}
	return parts, nil
}

// ready brings a queue pair to RTS.
func ready(qp rdma.QP, to port, number uint32) error {
	attr := rdma.QPAttr{PortNum: 1, AccessFlags: rdma.AccessRemoteWrite, AV: rdma.AV{DGID: to.gid, PortNum: 1, HopLimit: hops},
		PathMTU: to.mtu, DestQPNum: number, Timeout: ackTimeout, RetryCnt: retries, RNRRetry: retries}
	for attr.State = rdma.StateInit; attr.State <= rdma.StateRTS; attr.State++ {
		if err := qp.Modify(attr, rdma.Required(rdma.RC, attr.State-1, attr.State)); err != nil {
			return err
		}
	}
	return nil
}

func (e *kernelEngine) buffers(ctx context.Context, n int) (send, recv []int32, err error) {
	if e.send, err = e.pd.AllocMR(n*intSize, rdma.AccessLocalWrite); err != nil {
		return nil, nil, err
	}
	if e.recv, err = e.pd.AllocMR(n*intSize, rdma.AccessLocalWrite|rdma.AccessRemoteWrite); err != nil {
		return nil, nil, err
	}
	where := make([]uint64, 2*len(e.peers))
	if err := rank.Allgather(ctx, e.comm, []uint64{e.recv.Addr(), uint64(e.recv.RKey())}, where); err != nil {
		return nil, nil, err
	}
	for i := range e.peers {
		e.peers[i].addr, e.peers[i].rkey = where[2*i], uint32(where[2*i+1])
	}
	return integers(e.send.Bytes()), integers(e.recv.Bytes()), nil
}

func (e *kernelEngine) call(ctx context.Context, s slot) error {
	if err := e.start(s); err != nil {
		return err
	}
	return e.wait(ctx)
}

// start launches the all-to-all of a slot and returns at once. Until wait has returned, the slot is the device's.
func (e *kernelEngine) start(s slot) error {
	if e.started {
		return errStarted
	}
	e.seq++
	e.at = uint64(s.at * intSize)
	e.started = true
	return e.group.Launch(dpa.Launch{Name: "all-to-all", Kernel: e.kernel, Complete: e.done, Value: e.seq})
}

// wait waits for the all-to-all that was started.
func (e *kernelEngine) wait(ctx context.Context) error {
	err := e.done.WaitGt(ctx, e.seq-1)
	e.started = err != nil
	return err
}

// allToAll is the kernel: a thread serves the ranks t, t+T, ... of T threads.
func (e *kernelEngine) allToAll(t *dpa.Thread) error {
	mine := uint64(e.comm.Rank() * e.block)
	for i := t.Rank(); i < len(e.peers); i += t.NumThreads() {
		to := &e.peers[i]
		if err := e.put(t, to, e.at+uint64(i*e.block), e.at+mine); err != nil {
			return fmt.Errorf("write to rank %d: %w", i, err)
		}
		if err := t.SignalSet(to.queue, to.signal, e.seq); err != nil {
			return fmt.Errorf("signal rank %d: %w", i, err)
		}
		e.signals.Add(1)
	}
	for i := t.Rank(); i < len(e.peers); i += t.NumThreads() {
		if err := t.Synchronize(e.peers[i].queue); err != nil {
			return fmt.Errorf("write to rank %d: %w", i, err)
		}
	}
	for i := t.Rank(); i < len(e.peers); i += t.NumThreads() {
		if err := t.WaitGt(e.peers[i].arrived, e.seq-1); err != nil {
			return fmt.Errorf("wait for rank %d: %w", i, err)
		}
	}
	return nil
}

// put writes the block at from, of the send buffer, to a place in a peer's receive buffer.
func (e *kernelEngine) put(t *dpa.Thread, to *peer, from, place uint64) error {
	for done := 0; done < e.block; done += writeMost {
		n := min(e.block-done, writeMost)
		piece := rdma.SGE{Addr: e.send.Addr() + from + uint64(done), Length: uint32(n), LKey: e.send.LKey()}
		if err := t.Write(to.queue, piece, to.addr+place+uint64(done), to.rkey); err != nil {
			return err
		}
		e.writes.Add(1)
		e.writeBytes.Add(uint64(n))
	}
	return nil
}

func (e *kernelEngine) ran(int) error { return nil } // no other runs the kernel

func (e *kernelEngine) counts() engineCounts {
	c := e.device.Counters()
	return engineCounts{writes: e.writes.Load(), writeBytes: e.writeBytes.Load(), signals: e.signals.Load(), kernels: c.Runs, posted: c.Posted}
}

func (e *kernelEngine) pinned() bool { return e.device.Pinned() != nil }

// close closes everything in the reverse order. A peer's queue pairs may need those here until the ranks have met.
func (e *kernelEngine) close(ctx context.Context, meet bool) error {
	var errs []error
	if meet {
		errs = append(errs, rank.Barrier(ctx, e.comm))
	}
	if e.device != nil {
		err := e.device.Close()
		if stuck := (*dpa.StuckError)(nil); errors.As(err, &stuck) {
			return errors.Join(append(errs, err)...) // the kernel still uses what is below
		}
		errs = append(errs, err)
	}
	qps := make([]rdma.QP, len(e.peers))
	for i := range e.peers {
		qps[i] = e.peers[i].qp
	}
	errs = append(errs, rdma.CloseQPs(qps))
	for _, cc := range e.ends {
		errs = append(errs, cc.Close())
	}
	for _, c := range []io.Closer{e.none, e.send, e.recv, e.pd} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}
