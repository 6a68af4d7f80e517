package rma

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/gorun/internal/sendq"
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
	// by a rank that has waited for a while, and in each flush of mapped memory.
	Dead func(rank int) error
	// Mark is a word that is 0 until a rank dies, nil where only Dead tells. It may be missing.
	Mark func(rank int) *uint32
	// Died is the error of a rank that does not answer.
	Died error
	// Patience is how long a member may be in an accumulate before others give it up: as long as queue pairs wait for a
	// silent peer. 0 is 10 s.
	Patience time.Duration
	// Wait waits until c is ready, and has Progress called meanwhile. Hold does so too, and no other call of
	// the rank begins or goes on before it returns.
	Wait, Hold func(ctx context.Context, c wait.Condition) error
	// Turns are those of the rank's calls, nil where they follow each other.
	Turns wait.Turns
	// Idle counts the sleeps of the rank's waits.
	Idle *uint32
}

// An Engine carries the one-sided traffic of a rank's windows.
type Engine struct {
	cfg      Config
	targets  []*target // that windows share, by rank; nil before the first is needed
	all      []*target // by number, nil for those that are closed
	cq       rdma.CQ
	in       rdma.CQ // cq, and what comes of paths
	most     int     // requests under way at a time, for which cq has room
	depth    int     // of a send queue
	inline   int
	patience time.Duration

	scratch []byte // for packing, nil before it is needed

	// pool is registered memory for what has none: a word for results, one for
	// stores, and a buffer behind them.
	pool rdma.MR

	flying   int    // requests without a completion
	seenIdle uint32 // Config.Idle when the targets were looked after last
	wr       [1]rdma.SendWR
	sge      [1]rdma.SGE
	wcs      [16]rdma.WC
	small    [8]byte
	done     reached
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
	for _, t := range e.all {
		if t != nil && t.QP != nil {
			qps = append(qps, t.QP)
		}
	}
	return qps
}

// NewEngine makes an engine, which holds nothing before a window needs it.
func NewEngine(cfg Config) *Engine {
	return &Engine{cfg: cfg, patience: cmp.Or(cfg.Patience, patience)}
}

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
	if e.targets != nil {
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
	e.targets = make([]*target, e.cfg.Size)
	return nil
}

// Close gives everything back, when all windows are freed.
func (e *Engine) Close() error {
	err := e.closeTargets(slices.DeleteFunc(slices.Clone(e.all), func(t *target) bool { return t == nil }))
	err = errors.Join(err, peers.Close(e.cq), peers.Close(e.pool))
	e.targets, e.all, e.cq, e.pool = nil, nil, nil, nil
	return err
}

// Progress takes completions. It costs a test when nothing is under way.
func (e *Engine) Progress() (advanced bool) {
	if e.flying == 0 {
		return false
	}
	n, err := e.in.Poll(e.wcs[:])
	if err != nil {
		for _, t := range e.all {
			if t != nil {
				t.Fail(fmt.Errorf("poll_cq: %w", err))
				e.flying -= t.Drop()
			}
		}
		return true
	}
	for i := range n {
		wc := &e.wcs[i]
		number, mark := sendq.Split(wc.WRID)
		t := e.all[number]
		if t == nil || t.Completed(mark) == 0 {
			continue // it was given up
		}
		if wc.Status != rdma.WCSuccess {
			e.refused(t, wc.Status)
		}
		t.keep[(t.Done()-1)%uint64(e.depth)] = nil
		e.flying--
	}
	return n > 0
}

// refused takes down why a request failed.
func (e *Engine) refused(t *target, status rdma.WCStatus) {
	if t.Err() != nil {
		return // the others are flushed
	}
	err := e.cfg.Dead(t.rank)
	switch {
	case err != nil:
	case status == rdma.WCRetryExcErr:
		err = fmt.Errorf("%w: %w", e.cfg.Died, status)
	default:
		err = status
	}
	t.Fail(err)
}

// lookAfter ends the requests to ranks of other hosts that have died, as the launcher says, when the rank has slept.
func (e *Engine) lookAfter() {
	if *e.cfg.Idle == e.seenIdle {
		return
	}
	e.seenIdle = *e.cfg.Idle
	for _, t := range e.all {
		if t != nil && t.Flying() > 0 && t.Err() == nil && e.cfg.Peers.Mourn(t.rank) {
			// A failure to say so means that it is in ERR.
			_ = t.QP.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask)
		}
	}
}

// A reached waits until a target has done its first requests. They end with the
// timeout of the queue pair if not before.
type reached struct {
	e   *Engine
	t   *target
	seq uint64
}

func (r *reached) Ready() bool {
	r.e.lookAfter()
	r.e.Progress()
	return r.t.Done() >= r.seq
}

// A room waits until the completion queue has room for one more. Each request ends
// with the timeout of its queue pair if not before.
type room Engine

func (r *room) Ready() bool {
	(*Engine)(r).lookAfter()
	(*Engine)(r).Progress()
	return r.flying < r.most
}

// await waits until the target has done the request with number seq and all
// before it.
func (e *Engine) await(ctx context.Context, t *target, seq uint64) error {
	e.done = reached{e, t, seq}
	if !e.done.Ready() {
		if err := e.cfg.Hold(ctx, &e.done); err != nil {
			return err
		}
	}
	return t.Err()
}

// awaitAll is await of all that was posted to the target, in which other calls may begin.
func (e *Engine) awaitAll(ctx context.Context, t *target) error {
	if e.cfg.Turns == nil {
		return e.await(ctx, t, t.Posted())
	}
	if c := (&reached{e, t, t.Posted()}); !c.Ready() {
		if err := e.cfg.Wait(ctx, c); err != nil {
			return err
		}
	}
	return t.Err()
}

// post posts e.wr[0], when there is room for it. mem is kept alive until it is
// complete.
func (e *Engine) post(t *target, mem []byte) error {
	if t.Err() == nil && (t.Room() <= 0 || e.flying >= e.most) {
		wr := e.wr[0] // progress may post
		if t.Room() <= 0 {
			if err := e.await(context.Background(), t, t.Done()+1); err != nil {
				return err
			}
		}
		if r := (*room)(e); !r.Ready() {
			if err := e.cfg.Hold(context.Background(), r); err != nil {
				return err
			}
		}
		e.wr[0] = wr
	}
	if err := t.Err(); err != nil {
		return err
	}
	if err := t.Post(e.wr[:], uint64(t.number), true); err != nil {
		t.Fail(err)
		return err
	}
	t.keep[(t.Posted()-1)%uint64(e.depth)] = mem
	e.flying++
	return nil
}

// move posts writes of mem, or reads into it. Where mem has no region it goes by
// way of the pool, and is done when move returns.
func (e *Engine) move(t *target, op rdma.WROpcode, mem []byte, addr uint64, key uint32) error {
	if op == rdma.WRRDMAWrite && len(mem) <= e.inline {
		e.wr[0] = rdma.SendWR{Opcode: op, Flags: rdma.SendInline, Inline: mem, RemoteAddr: addr, RKey: key}
		return e.post(t, nil)
	}
	mr := e.cfg.Find(mem)
	if mr == nil {
		mr = e.cfg.Any
	}
	if mr == nil {
		return e.staged(t, op, mem, addr, key)
	}
	for len(mem) > 0 {
		piece := mem[:min(len(mem), messageMax)]
		e.sge[0] = rdma.SGE{Addr: address(piece), Length: uint32(len(piece)), LKey: mr.LKey()}
		e.wr[0] = rdma.SendWR{Opcode: op, SGL: e.sge[:], RemoteAddr: addr, RKey: key}
		if err := e.post(t, piece); err != nil {
			return err
		}
		mem, addr = mem[len(piece):], addr+uint64(len(piece))
	}
	return nil
}

// staged moves memory by way of the pool, and waits for it.
func (e *Engine) staged(t *target, op rdma.WROpcode, mem []byte, addr uint64, key uint32) error {
	for len(mem) > 0 {
		b := e.buffer(min(len(mem), poolSize))
		if op == rdma.WRRDMAWrite {
			copy(b, mem)
		}
		if err := e.pooled(t, op, poolBuffer, len(b), addr, key); err != nil {
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
func (e *Engine) pooled(t *target, op rdma.WROpcode, off, n int, addr uint64, key uint32) error {
	e.sge[0] = rdma.SGE{Addr: e.pool.Addr() + uint64(off), Length: uint32(n), LKey: e.pool.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: op, SGL: e.sge[:], RemoteAddr: addr, RKey: key}
	return e.finish(t)
}

// finish posts e.wr[0] and waits for it.
func (e *Engine) finish(t *target) error {
	if err := e.post(t, nil); err != nil {
		return err
	}
	return e.await(context.Background(), t, t.Posted())
}

// atomic does an atomic and gives the word's old value.
func (e *Engine) atomic(t *target, op rdma.WROpcode, addr uint64, key uint32, compareAdd, swap uint64) (old uint64, err error) {
	e.sge[0] = rdma.SGE{Addr: e.pool.Addr() + poolResult, Length: 8, LKey: e.pool.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: op, SGL: e.sge[:], RemoteAddr: addr, RKey: key, CompareAdd: compareAdd, Swap: swap}
	if err := e.finish(t); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(e.pool.Bytes()[poolResult:]), nil
}

// load reads a word.
func (e *Engine) load(t *target, addr uint64, key uint32) (uint64, error) {
	if err := e.pooled(t, rdma.WRRDMARead, poolResult, 8, addr, key); err != nil {
		return 0, err
	}
	return binary.NativeEndian.Uint64(e.pool.Bytes()[poolResult:]), nil
}

// store posts the write of a word, behind all that was posted before.
func (e *Engine) store(t *target, addr uint64, key uint32, v uint64) error {
	if e.inline < 8 {
		binary.NativeEndian.PutUint64(e.pool.Bytes()[poolStore:], v)
		return e.pooled(t, rdma.WRRDMAWrite, poolStore, 8, addr, key)
	}
	binary.NativeEndian.PutUint64(e.small[:], v)
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: e.small[:], RemoteAddr: addr, RKey: key}
	return e.post(t, nil)
}
