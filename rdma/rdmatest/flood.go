package rdmatest

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A FloodFabric is one survivor with shared receive queues, and victims without
// end that send into them until they are killed.
type FloodFabric struct {
	// Open gives the survivor's node, in this process, and a way to start the
	// i-th victim, which reaches it. dead, when not nil, is called after its
	// death, as a launcher would tell it.
	Open func(t testing.TB) (survivor Node, start func(i int) (victim Victim, dead func()))
	// Kills is how many are killed; fewer when Budget is spent.
	Kills  int
	Budget time.Duration
	Seed   uint64
}

const (
	floodAlive   = 3 // victims at a time
	floodDepth   = 16
	floodMessage = 512
	floodSlot    = rdma.GRHLen + floodMessage
)

// A flood is messages of equal words, without end, on a connection and by
// datagrams.
type flood struct {
	QP, UD, CQ, Mem, AH handle // at an agent
	QPN                 uint32
	Seed                uint64
}

func (a *agent) flood(c *call) error {
	f := c.Flood
	qp, err := object[rdma.QP](a, f.QP)
	if err != nil {
		return err
	}
	ud, err := object[rdma.QP](a, f.UD)
	if err != nil {
		return err
	}
	cq, err := object[rdma.CQ](a, f.CQ)
	if err != nil {
		return err
	}
	mem, err := object[Region](a, f.Mem)
	if err != nil {
		return err
	}
	ah, err := object[rdma.AH](a, f.AH)
	if err != nil {
		return err
	}
	go f.run(qp, ud, cq, mem, ah)
	return nil
}

// run sends until something fails, or the process is killed.
func (f flood) run(qp, ud rdma.QP, cq rdma.CQ, mem Region, ah rdma.AH) {
	const depth = 4
	rng := rand.New(rand.NewPCG(f.Seed, 2))
	wc := make([]rdma.WC, depth)
	word := make([]byte, floodMessage)
	for n, open := uint64(1), 0; ; n++ {
		for open == depth {
			k, err := cq.Poll(wc)
			if err != nil {
				return
			}
			for _, c := range wc[:k] {
				if c.Status != rdma.WCSuccess {
					return
				}
			}
			open -= k
		}
		at := int(n%(2*depth)) * floodMessage
		for i := 0; i < floodMessage; i += 8 {
			binary.NativeEndian.PutUint64(word[i:], n)
		}
		mem.Store(at, word)
		wr := rdma.SendWR{WRID: n, Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{mem.sge(at, floodMessage)}, AH: ah, RemoteQPN: f.QPN, RemoteQKey: udKey}
		to := qp
		if rng.IntN(3) == 0 {
			to = ud
		}
		if _, err := to.PostSend([]rdma.SendWR{wr}); err != nil {
			return
		}
		open++
	}
}

// RunFlood kills processes in the middle of messages into queues that several of
// them share with each other, and holds the survivor to this: messages that arrive
// are whole, no receive is lost or used twice, and no queue is stuck.
func RunFlood(t *testing.T, f FloodFabric) {
	t.Helper()
	testenv.NoLeaks(t)
	survivor, start := f.Open(t)
	r := newRig(t, Fabric{Patience: 20 * time.Second, Open: func(testing.TB, int) []Node { return []Node{survivor} }}, "flood", 1)
	s := r.sides[0]
	rng := rand.New(rand.NewPCG(f.Seed, 3))
	srq, inbox := s.newSRQ(floodDepth), s.memory(floodDepth*floodMessage)
	port := s.port()
	cq := s.newCQ(256)
	for i := range floodDepth {
		postSRQ(r, srq, receive(uint64(i), inbox.sge(i*floodMessage, floodMessage)))
	}
	for n := range 8 {
		port.listen(n)
	}
	messages := 0
	whole := func(what string, b []byte, size uint32, want int) {
		first := binary.NativeEndian.Uint64(b)
		for i := 0; i < len(b); i += 8 {
			if v := binary.NativeEndian.Uint64(b[i:]); v != first || first == 0 || int(size) != want {
				r.Fatalf("%s of %d bytes, want %d: word %d is %d, the first %d", what, size, want, i/8, v, first)
			}
		}
		messages++
	}
	look := func() {
		for wc, ok := s.poll(cq); ok; wc, ok = s.poll(cq) {
			if wc.Status != rdma.WCSuccess {
				continue // of a request of the survivor's own
			}
			at := int(wc.WRID) * floodMessage
			whole("a message", inbox.Load(at, floodMessage), wc.ByteLen, floodMessage)
			inbox.Store(at, make([]byte, floodMessage))
			postSRQ(r, srq, receive(wc.WRID, inbox.sge(at, floodMessage)))
		}
		for wc, ok := s.poll(s.rcq); ok; wc, ok = s.poll(s.rcq) {
			whole("a datagram", port.payload(int(wc.WRID), floodMessage), wc.ByteLen, floodSlot)
			port.listen(int(wc.WRID))
		}
	}
	// leave closes the queue pair of a peer that has died, in the middle of a
	// message perhaps, by the book: what it took from the shared queue is there
	// when it takes no more.
	leave := func(qp rdma.QP) {
		r.move(qp, rdma.StateErr)
		if e := s.event(rdma.EventQPLastWQEReached); e.QP != qp {
			r.Fatalf("the event is of another queue pair")
		}
		look()
		r.close(qp)
	}
	// A living victim has a queue pair at the survivor.
	type life struct {
		victim Victim
		dead   func()
		qp     rdma.QP
	}
	begin := func(i int) life {
		v, dead := start(i)
		kid := &side{r: r, index: i + 1, node: v, ctx: v.Context()}
		kid.pd, kid.scq = kid.newPD(), kid.newCQ(64)
		kid.rcq = kid.scq
		introduce(t, kid.ctx, s.ctx)
		introduce(t, s.ctx, kid.ctx)
		l := r.connect(kid, s, ownCQs(1, nil, cq), from(1, srq))
		out := kid.port()
		mem := kid.memory(8 * floodMessage)
		p := v.(interface {
			call(*call) (*answer, error)
		})
		fl := flood{QP: l.qa.(*procQP).h, UD: out.qp.(*procQP).h, CQ: kid.scq.(*procCQ).h, Mem: mem.MR.(*procMR).h,
			AH: out.to(s).(*procAH).h, QPN: port.qp.Num(), Seed: rng.Uint64()}
		if _, err := p.call(&call{Op: opFlood, Flood: fl}); err != nil {
			r.Fatalf("start victim %d: %v", i, err)
		}
		return life{v, dead, l.qb}
	}
	end := time.Now().Add(f.Budget)
	var alive []life
	kills := 0
	for ; kills < f.Kills && (kills == 0 || time.Now().Before(end)); kills++ {
		for len(alive) < floodAlive {
			alive = append(alive, begin(kills+len(alive)))
		}
		for moment := time.Now().Add(time.Duration(rng.IntN(1500)) * time.Microsecond); time.Now().Before(moment); {
			look()
			runtime.Gosched()
		}
		k := rng.IntN(len(alive))
		gone := alive[k]
		alive[k] = alive[len(alive)-1]
		alive = alive[:len(alive)-1]
		if err := gone.victim.Kill(); err != nil {
			r.Fatalf("kill %d: %v", kills, err)
		}
		if gone.dead != nil && rng.IntN(2) == 0 {
			gone.dead()
		}
		leave(gone.qp)
		gone.victim.(interface{ Reap() }).Reap()
		before := messages
		r.until("a message of those who live", func() bool {
			look()
			return messages > before || len(alive) == 0
		})
	}
	for _, v := range alive {
		if err := v.victim.Kill(); err != nil {
			r.Fatal(err)
		}
	}
	for _, v := range alive {
		leave(v.qp)
	}
	r.forget()
	// Nothing comes any more. Every receive of both queues is there, once.
	look()
	own := r.connect(s, s, ownCQs(1, nil, cq), from(1, srq))
	src := s.memory(floodMessage)
	seen := map[uint64]bool{}
	for i := range uint64(floodDepth) {
		own.send(send(i, src.sge(0, 8)))
		s.want(s.scq, i, rdma.WCSuccess)
		wc := s.next(cq)
		if wc.Status != rdma.WCSuccess || seen[wc.WRID] {
			r.Fatalf("message %d of the survivor's own: %+v %q, seen %v", i, wc, wc.Status, seen)
		}
		seen[wc.WRID] = true
	}
	clear(seen)
	home := port.to(s)
	r.until("every receive of the datagram queue pair", func() bool {
		post(r, port.qp, datagram(1, home, port, src.sge(0, 8)))
		s.want(s.scq, 1, rdma.WCSuccess)
		for wc, ok := s.poll(s.rcq); ok; wc, ok = s.poll(s.rcq) {
			if wc.Status != rdma.WCSuccess || seen[wc.WRID] {
				r.Fatalf("a datagram of the survivor's own: %+v %q, seen %v", wc, wc.Status, seen)
			}
			seen[wc.WRID] = true
		}
		return len(seen) == 8
	})
	t.Logf("%d kills, %d messages", kills, messages)
}
