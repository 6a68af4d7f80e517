//go:build cgo && linux

package main

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// check reports what this device lets pass and cards may punish; nil without gorun-verbs --check.
var check = newChecker(os.Getenv("GORUN_VERBS_CHECK"))

// A checker says each kind of finding once for an object.
type checker struct {
	abort   bool
	seed    maphash.Seed
	pairs   sync.Map // number of a queue pair -> *pairOf
	regions sync.Map // lkey -> regionOf
	said    sync.Map // finding
}

// A finding is a kind of fault of an object.
type finding struct {
	kind string
	of   any
}

func newChecker(how string) *checker {
	if how == "" {
		return nil
	}
	return &checker{abort: how == "abort", seed: maphash.MakeSeed()}
}

func (c *checker) say(kind string, of any, format string, args ...any) {
	if _, again := c.said.LoadOrStore(finding{kind, of}, true); again {
		return
	}
	fmt.Fprintf(os.Stderr, "gorun-verbs: check: "+format+"\n", args...)
	if c.abort {
		_ = unix.Kill(os.Getpid(), unix.SIGABRT) // a debugger stops in the call
	}
}

// A posted is a request of a send queue whose completion the program has not polled.
type posted struct {
	id       uint64
	opcode   rdma.WROpcode
	signaled bool
	sum      uint64
	from     []unix.RemoteIovec // what sum is of; nil where that is not known
	rkey     uint32
	addr     uint64
	bytes    uint64
}

// posts notes requests before the device may execute them. Called with the queue pair's mu held.
func (c *checker) posts(q *pairOf, wrs []rdma.SendWR) {
	_, init := q.Query()
	for i := range wrs {
		wr := &wrs[i]
		p := posted{id: wr.WRID, opcode: wr.Opcode, signaled: init.SigAll || wr.Flags&rdma.SendSignaled != 0, rkey: wr.RKey, addr: wr.RemoteAddr}
		for _, s := range wr.SGL {
			p.bytes += uint64(s.Length)
		}
		o := wr.Opcode.Operation()
		if wr.Flags&rdma.SendInline == 0 && (o.Moves == rdma.MovesToMemory || o.Moves == rdma.MovesToReceive) {
			var err error
			p.from = c.memory(wr.SGL)
			if p.sum, err = c.sum(p.from); err != nil {
				p.from = nil
			}
			if errors.Is(err, unix.EFAULT) {
				c.say("unmapped", q, "queue pair %#x: request %#x sends memory that is not mapped", q.Num(), p.id)
			}
		}
		q.posted = append(q.posted, p)
	}
}

// took ends a post, of which the device did not take the last requests. Called with the queue pair's mu held.
func (c *checker) took(q *pairOf, refused int, err error) {
	_, init := q.Query()
	q.posted = q.posted[:len(q.posted)-refused]
	silent := 0
	for i := len(q.posted) - 1; i >= 0 && !q.posted[i].signaled; i-- {
		silent++
	}
	if silent >= init.Cap.MaxSendWR {
		c.say("silent", q, "queue pair %#x: its last %d requests ask for no completion (IBV_SEND_SIGNALED), and fill its send queue: a card never frees their places", q.Num(), silent)
	}
	if errors.Is(err, rdma.ErrNoMemory) {
		c.say("full", q, "queue pair %#x: a post beyond its send queue: %d requests have no completion that was polled, max_send_wr is %d", q.Num(), len(q.posted), init.Cap.MaxSendWR)
	}
}

// tookReceives ends a post to a receive queue.
func (c *checker) tookReceives(o *object, err error) {
	if !errors.Is(err, rdma.ErrNoMemory) {
		return
	}
	switch q := o.value.(type) {
	case *pairOf:
		_, init := q.Query()
		c.say("receives", q, "queue pair %#x: a post beyond its receive queue: max_recv_wr is %d", q.Num(), init.Cap.MaxRecvWR)
	case *sharedOf:
		c.say("receives", q, "a post beyond a shared receive queue: max_wr is %d", q.Query().MaxWR)
	}
}

// resets is told of a queue pair that loses what was posted.
func (c *checker) resets(q *pairOf) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.posted = nil
}

// completes compares what was posted with what is there now.
func (c *checker) completes(w *rdma.WC) {
	v, ok := c.pairs.Load(w.QPNum)
	if !ok || w.Opcode&rdma.WCRecv != 0 {
		return
	}
	q := v.(*pairOf)
	q.mu.Lock()
	defer q.mu.Unlock()
	at := -1
	for i := range q.posted {
		if p := &q.posted[i]; p.id == w.WRID && (p.signaled || w.Status != rdma.WCSuccess) {
			at = i
			break
		}
	}
	for i := range q.posted[:at+1] {
		p := &q.posted[i]
		if p.from == nil || w.Status != rdma.WCSuccess && i == at {
			continue
		}
		switch sum, err := c.sum(p.from); {
		case errors.Is(err, unix.EFAULT):
			c.say("unmapped", q, "queue pair %#x: the memory that request %#x sends was unmapped before its completion was polled", q.Num(), p.id)
		case err == nil && sum != p.sum:
			c.say("touched", q, "queue pair %#x: the memory that request %#x sends changed before its completion was polled: a card sends the old bytes, the new ones, or some of each", q.Num(), p.id)
		}
	}
	if at >= 0 && w.Status == rdma.WCRemAccessErr {
		c.refused(q, &q.posted[at])
	}
	q.posted = append(q.posted[:0], q.posted[at+1:]...)
}

// refused says why a peer refuses its memory.
func (c *checker) refused(q *pairOf, p *posted) {
	why := "its peer has gone"
	if steps := soft.WalkPeer(q.QP, p.opcode, p.rkey, p.addr, p.bytes); len(steps) > 0 {
		last := steps[len(steps)-1]
		switch {
		case last.Status == rdma.WCSuccess:
			why = "the peer has changed the region since"
		case last.Name == "tag" || last.Name == "index":
			why = "the peer has deregistered the region of this key, or never had one"
		default:
			why = last.Name + ": " + last.Found
		}
	}
	c.say("refused", q, "queue pair %#x: request %#x: rkey %#x, address %#x, %d bytes: %s", q.Num(), p.id, p.rkey, p.addr, p.bytes, why)
}

// destroyed is told of an object that the program has destroyed.
func (c *checker) destroyed(o *object) {
	switch v := o.value.(type) {
	case *pairOf:
		c.pairs.CompareAndDelete(v.Num(), v)
	case regionOf:
		if mem := v.Bytes(); !mapped(mem) {
			c.say("freed", o.handle, "the memory of the region with lkey %#x, %d bytes at %#x, was unmapped before ibv_dereg_mr: a card writes on to pages that nobody sees", v.LKey(), v.Len(), place(mem))
		}
		c.regions.CompareAndDelete(v.LKey(), v)
	}
}

// memory is where scatter entries lie in this process; nil if one of them is in no region of the program's memory.
func (c *checker) memory(list []rdma.SGE) (at []unix.RemoteIovec) {
	for _, s := range list {
		r, _ := c.regions.Load(s.LKey)
		mr, ok := r.(regionOf)
		if !ok || mr.Bytes() == nil {
			return nil
		}
		at = append(at, unix.RemoteIovec{Base: place(mr.Bytes()) + uintptr(s.Addr-mr.Addr()), Len: int(s.Length)})
	}
	return at
}

// sum is that of memory. EFAULT: it is not all mapped; another error: that cannot be told, as where the call is refused.
func (c *checker) sum(list []unix.RemoteIovec) (uint64, error) {
	var h maphash.Hash
	h.SetSeed(c.seed)
	var b [64 << 10]byte
	for _, s := range list {
		for s.Len > 0 {
			n := min(s.Len, len(b))
			got, err := unix.ProcessVMReadv(os.Getpid(), []unix.Iovec{{Base: &b[0], Len: uint64(n)}}, []unix.RemoteIovec{{Base: s.Base, Len: n}}, 0)
			if err == nil && got != n {
				err = unix.EFAULT
			}
			if err != nil {
				return 0, err
			}
			_, _ = h.Write(b[:n])
			s.Base, s.Len = s.Base+uintptr(n), s.Len-n
		}
	}
	return h.Sum64(), nil
}
