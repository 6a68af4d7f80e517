package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// Config is what the windows of a rank stand on. Ranks are those of the world.
type Config struct {
	Rank, Size int
	PD         rdma.PD
	Any        rdma.MR // the whole address space, nil where the device cannot
	// Find gives the region that holds all of mem, nil when none does.
	Find func(mem []byte) rdma.MR
	// Peers is the way to the ranks: their memory where it can be mapped, which is asked
	// for once for each member of a window, else queue pairs.
	Peers *peers.Set
	// Dead says why a rank is not there any more, nil while it is. It is asked
	// by who has waited for a while, and in each flush of mapped memory.
	Dead func(rank int) error
	// Died is the error of a rank that does not answer.
	Died error
	// Wait waits until c is ready, and has Progress called meanwhile.
	Wait func(ctx context.Context, c wait.Condition) error
	// Idle counts the sleeps of the rank's waits.
	Idle *uint32
}

// An Engine carries the one-sided traffic of a rank's windows.
type Engine struct {
	cfg    Config
	links  []*link // that windows share, by rank; nil before the first is needed
	all    []*link // by number, nil for those that are closed
	cq     rdma.CQ
	in     rdma.CQ // cq, and what comes of paths
	most   int     // requests under way at a time, for which cq has room
	depth  int     // of a send queue
	inline int
	// patience is how long a member may be in an accumulate before others give
	// it up: as long as queue pairs wait for a silent peer.
	patience time.Duration

	scratch []byte // for packing, nil before it is needed

	// pool is registered memory for what has none: a word for results, one for
	// stores, and a buffer behind them.
	pool rdma.MR

	flying int // requests without a completion
	wr     [1]rdma.SendWR
	sge    [1]rdma.SGE
	wcs    [16]rdma.WC
	small  [8]byte
	done   reached
}

const (
	queueDepth = 64
	inlineMost = 256
	poolResult = 0
	poolStore  = 8
	poolBuffer = 64
	poolSize   = 64 << 10 // of the buffer
	messageMax = 1 << 30
	patience   = 10 * time.Second
)

// QueueAttr is how queue pairs for windows are made, but for their completion queue.
func QueueAttr(d rdma.DeviceAttr, size int) rdma.QPInitAttr {
	return rdma.QPInitAttr{Type: rdma.RC, Cap: rdma.QPCap{
		MaxSendWR: max(1, min(queueDepth, d.MaxQPWR, d.MaxCQE/size)), MaxSendSGE: 1, MaxInlineData: min(inlineMost, d.MaxInlineData)}}
}

// Queues are the queue pairs of the engine, and its paths.
func (e *Engine) Queues() (qps []rdma.QP) {
	for _, l := range e.all {
		if l != nil && l.qp != nil {
			qps = append(qps, l.qp)
		}
	}
	return qps
}

// NewEngine makes an engine, which holds nothing before a window needs it.
func NewEngine(cfg Config) *Engine { return &Engine{cfg: cfg, patience: patience} }

// memory is that of a rank which can be mapped, nil elsewhere.
func (e *Engine) memory(rank int) rdma.PeerMemory {
	if rank != e.cfg.Rank && !e.cfg.Peers.Maps(rank) {
		return nil
	}
	memory, _ := e.cfg.Peers.Memory(rank) // what is wrong with it shows when it is connected
	return memory
}

// open makes what queue pairs need.
func (e *Engine) open() (err error) {
	if e.links != nil {
		return nil
	}
	attr := QueueAttr(e.cfg.PD.Context().QueryDevice(), e.cfg.Size)
	e.depth, e.inline = attr.Cap.MaxSendWR, attr.Cap.MaxInlineData
	const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead
	if e.pool, err = e.cfg.PD.AllocMR(poolBuffer+poolSize, access); err != nil {
		return fmt.Errorf("buffer of windows: %w", err)
	}
	e.most = e.depth * e.cfg.Size
	if e.cq, err = e.cfg.PD.Context().CreateCQ(e.most); err != nil {
		err = errors.Join(err, e.pool.Close())
		e.pool = nil
		return err
	}
	e.in = e.cfg.Peers.CQ(e.cq)
	e.links = make([]*link, e.cfg.Size)
	return nil
}

// Close gives everything back, when all windows are freed.
func (e *Engine) Close() error {
	errs := []error{e.closeLinks(slices.DeleteFunc(slices.Clone(e.all), func(l *link) bool { return l == nil }))}
	e.links, e.all = nil, nil
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
		e.cq = nil
	}
	if e.pool != nil {
		errs = append(errs, e.pool.Close())
		e.pool = nil
	}
	return errors.Join(errs...)
}

// Progress takes completions. It costs a test when nothing is under way.
func (e *Engine) Progress() (advanced bool) {
	if e.flying == 0 {
		return false
	}
	n, err := e.in.Poll(e.wcs[:])
	if err != nil {
		for _, l := range e.all {
			if l != nil {
				e.fail(l, fmt.Errorf("poll_cq: %w", err))
				l.done = l.posted
			}
		}
		e.flying = 0
		return true
	}
	for i := range n {
		wc := &e.wcs[i]
		l := e.all[wc.WRID]
		if l == nil || l.done == l.posted {
			continue // it was given up
		}
		if wc.Status != rdma.WCSuccess {
			e.refused(l, wc.Status)
		}
		l.keep[l.done%uint64(e.depth)] = nil
		l.done++
		e.flying--
	}
	return n > 0
}

// refused takes down why a request failed.
func (e *Engine) refused(l *link, status rdma.WCStatus) {
	if l.err != nil {
		return // the others are flushed
	}
	err := e.cfg.Dead(l.rank)
	switch {
	case err != nil:
	case status == rdma.WCRetryExcErr:
		err = fmt.Errorf("%w: %w", e.cfg.Died, status)
	default:
		err = status
	}
	e.fail(l, err)
}

func (e *Engine) fail(l *link, err error) {
	if l.err == nil {
		l.err = err
	}
}

// A reached waits until a link has done its first requests. They end with the
// timeout of the queue pair if not before.
type reached struct {
	e   *Engine
	l   *link
	seq uint64
}

func (r *reached) Ready() bool {
	r.e.Progress()
	return r.l.done >= r.seq
}

// A room waits until the completion queue has room for one more. Each request ends
// with the timeout of its queue pair if not before.
type room Engine

func (r *room) Ready() bool {
	(*Engine)(r).Progress()
	return r.flying < r.most
}

// await waits until the link has done the request with number seq and all
// before it.
func (e *Engine) await(ctx context.Context, l *link, seq uint64) error {
	e.done = reached{e, l, seq}
	if !e.done.Ready() {
		if err := e.cfg.Wait(ctx, &e.done); err != nil {
			return err
		}
	}
	return l.err
}

// post posts e.wr[0], when there is room for it. mem is kept alive until it is
// complete.
func (e *Engine) post(l *link, mem []byte) error {
	if l.err == nil && (l.posted-l.done >= uint64(e.depth) || e.flying >= e.most) {
		wr := e.wr[0] // progress may post
		if l.posted-l.done >= uint64(e.depth) {
			if err := e.await(context.Background(), l, l.posted-uint64(e.depth)+1); err != nil {
				return err
			}
		}
		if r := (*room)(e); !r.Ready() {
			if err := e.cfg.Wait(context.Background(), r); err != nil {
				return err
			}
		}
		e.wr[0] = wr
	}
	if l.err != nil {
		return l.err
	}
	wr := &e.wr[0]
	wr.WRID = uint64(l.number)
	wr.Flags |= rdma.SendSignaled
	if _, err := l.qp.PostSend(e.wr[:]); err != nil {
		e.fail(l, fmt.Errorf("post_send: %w", err))
		return l.err
	}
	l.keep[l.posted%uint64(e.depth)] = mem
	l.posted++
	e.flying++
	return nil
}

// move posts writes of mem, or reads into it. Where mem has no region it goes by
// way of the pool, and is done when move returns.
func (e *Engine) move(l *link, op rdma.WROpcode, mem []byte, addr uint64, key uint32) error {
	if op == rdma.WRRDMAWrite && len(mem) <= e.inline {
		e.wr[0] = rdma.SendWR{Opcode: op, Flags: rdma.SendInline, Inline: mem, RemoteAddr: addr, RKey: key}
		return e.post(l, nil)
	}
	mr := e.cfg.Find(mem)
	if mr == nil {
		mr = e.cfg.Any
	}
	if mr == nil {
		return e.staged(l, op, mem, addr, key)
	}
	for len(mem) > 0 {
		piece := mem[:min(len(mem), messageMax)]
		e.sge[0] = rdma.SGE{Addr: address(piece), Length: uint32(len(piece)), LKey: mr.LKey()}
		e.wr[0] = rdma.SendWR{Opcode: op, SGL: e.sge[:], RemoteAddr: addr, RKey: key}
		if err := e.post(l, piece); err != nil {
			return err
		}
		mem, addr = mem[len(piece):], addr+uint64(len(piece))
	}
	return nil
}

// staged moves memory by way of the pool, and waits for it.
func (e *Engine) staged(l *link, op rdma.WROpcode, mem []byte, addr uint64, key uint32) error {
	for len(mem) > 0 {
		b := e.buffer(min(len(mem), poolSize))
		if op == rdma.WRRDMAWrite {
			copy(b, mem)
		}
		if err := e.pooled(l, op, poolBuffer, len(b), addr, key); err != nil {
			return err
		}
		if op == rdma.WRRDMARead {
			copy(mem, b)
		}
		mem, addr = mem[len(b):], addr+uint64(len(b))
	}
	return nil
}

// buffer is the first n bytes of the pool's buffer.
func (e *Engine) buffer(n int) []byte { return e.pool.Bytes()[poolBuffer : poolBuffer+n] }

// pooled does a request on n bytes of the pool and waits for it.
func (e *Engine) pooled(l *link, op rdma.WROpcode, off, n int, addr uint64, key uint32) error {
	e.sge[0] = rdma.SGE{Addr: e.pool.Addr() + uint64(off), Length: uint32(n), LKey: e.pool.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: op, SGL: e.sge[:], RemoteAddr: addr, RKey: key}
	return e.finish(l)
}

// finish posts e.wr[0] and waits for it.
func (e *Engine) finish(l *link) error {
	if err := e.post(l, nil); err != nil {
		return err
	}
	return e.await(context.Background(), l, l.posted)
}

// atomic does an atomic and gives the word's old value.
func (e *Engine) atomic(l *link, op rdma.WROpcode, addr uint64, key uint32, compareAdd, swap uint64) (old uint64, err error) {
	e.sge[0] = rdma.SGE{Addr: e.pool.Addr() + poolResult, Length: 8, LKey: e.pool.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: op, SGL: e.sge[:], RemoteAddr: addr, RKey: key, CompareAdd: compareAdd, Swap: swap}
	if err := e.finish(l); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(e.pool.Bytes()[poolResult:]), nil
}

// load reads a word.
func (e *Engine) load(l *link, addr uint64, key uint32) (uint64, error) {
	if err := e.pooled(l, rdma.WRRDMARead, poolResult, 8, addr, key); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(e.pool.Bytes()[poolResult:]), nil
}

// store posts the write of a word, behind all that was posted before.
func (e *Engine) store(l *link, addr uint64, key uint32, v uint64) error {
	if e.inline < 8 {
		binary.NativeEndian.PutUint64(e.pool.Bytes()[poolStore:], v)
		return e.pooled(l, rdma.WRRDMAWrite, poolStore, 8, addr, key)
	}
	binary.NativeEndian.PutUint64(e.small[:], v)
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: e.small[:], RemoteAddr: addr, RKey: key}
	return e.post(l, nil)
}
