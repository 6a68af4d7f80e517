// Package mail carries letters of two words between ranks that have no connection
// yet: over one unreliable-datagram queue pair a rank, whose number and key are in its
// card.
//
// Letters from one rank to another arrive once and in order, or the receiver is given
// up. One letter to a rank is on its way at a time; it is sent again, after times that
// double, until the receiver acknowledges it. That takes the receiver's process, not its
// calls: an [Office] looks after its letters by itself, every tick, so a rank that
// computes is no rank that has died. What a letter asks for is done when the receiver
// takes it in.
//
//	sender                          receiver
//	letter{number, words}  ------>  number = last+1: kept for Take, last = number
//	    again, if no answer         number <= last: known already
//	next letter            <------  answer{number}, in both cases
package mail

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// Why a rank was given up.
var (
	// ErrGone: nobody listens any more where it did.
	ErrGone = errors.New("its process has ended")
	// ErrSilent: it has acknowledged no letter for as long as a connection would have waited.
	ErrSilent = errors.New("its process has not answered for 10 s")
)

const (
	// patience is a little more than what a connection gives a silent peer.
	patience = 10 * time.Second
	// firstWait is how long a letter's first answer may take, lastWait any.
	firstWait, lastWait = 20 * time.Millisecond, time.Second
	// tick is how often the office looks after its letters while the rank does not.
	tick = 50 * time.Millisecond

	receives = 64
	requests = 64
	slotLen  = 128

	// keptMost is how many letters of one peer wait to be taken: more than anybody has
	// to say in good faith. What comes beyond is not acknowledged.
	keptMost = 32
)

// A datagram, in little-endian numbers:
//
//	0      4      8        16      24
//	kind   from   number   what    id
const (
	datagramLen = 32

	kindLetter = 1
	kindAnswer = 2
)

// An Address is where a rank's letters go, beside its GID. Number 0: it has no office.
type Address struct{ Number, Key uint32 }

// A Letter is what a rank tells another.
type Letter struct{ What, ID uint64 }

// Nothing is a letter that is acknowledged and not kept: who sends it wants to know
// that the receiver lives.
var Nothing = Letter{What: 1 << 63}

// A Port is where a peer is.
type Port struct {
	AV      rdma.AV
	Address Address
}

// An Office sends and receives the letters of a rank. Its methods may be called from
// several goroutines.
type Office struct {
	rank int
	pd   rdma.PD
	key  uint32
	find func(peer int) (Port, error)
	gone func(gid rdma.GID) bool // nil: the device knows nothing of it
	now  func() time.Time

	waiting atomic.Int32 // letters that have come and were not taken
	stop    chan struct{}
	ended   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	cq     rdma.CQ
	qp     rdma.QP
	mr     rdma.MR
	mem    []byte
	boxes  []*box // by peer, nil: nothing has been sent or received
	due    []*box // with a letter on its way
	posted int    // requests that are not complete
	in     []incoming
	closed bool
	wcs    [16]rdma.WC
	out    [datagramLen]byte
}

type incoming struct {
	peer   int
	letter Letter
}

// A box is what there is of one peer.
type box struct {
	peer int
	port Port
	ah   rdma.AH
	err  error

	letters []Letter // the first is on its way
	number  uint64   // of the first
	since   time.Time
	next    time.Time
	wait    time.Duration
	last    uint64 // number of the last letter that came
	kept    int    // letters of the peer in Office.in
}

// Supported tells whether a device can carry mail.
func Supported(ctx rdma.Context) bool {
	return ctx.Supports(rdma.FeatureUD) == nil && ctx.QueryDevice().MaxInlineData >= datagramLen
}

// Open makes the office of a rank. It sends nothing, and keeps what comes, before Start.
func Open(pd rdma.PD, rank, size int) (o *Office, err error) {
	// A key with the high bit set stands for the queue pair's own.
	o = &Office{rank: rank, pd: pd, key: rand.Uint32() >> 1, now: time.Now, boxes: make([]*box, size), stop: make(chan struct{})}
	if w, ok := pd.Context().(rdma.Witness); ok {
		o.gone = w.Gone
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("queue pair for datagrams: %w", err), o.Close())
			o = nil
		}
	}()
	if o.cq, err = pd.Context().CreateCQ(requests + receives); err != nil {
		return o, err
	}
	if o.mr, err = pd.AllocMR(receives*slotLen, rdma.AccessLocalWrite); err != nil {
		return o, err
	}
	o.mem = o.mr.Bytes()
	o.qp, err = pd.CreateQP(rdma.QPInitAttr{SendCQ: o.cq, RecvCQ: o.cq, Type: rdma.UD, Cap: rdma.QPCap{
		MaxSendWR: requests, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: datagramLen}})
	if err != nil {
		return o, err
	}
	if err = o.qp.Modify(rdma.QPAttr{State: rdma.StateInit, PortNum: 1, QKey: o.key},
		rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPQKeyMask); err != nil {
		return o, err
	}
	for slot := range receives {
		if err = o.listen(slot); err != nil {
			return o, err
		}
	}
	if err = o.qp.Modify(rdma.QPAttr{State: rdma.StateRTR}, rdma.QPStateMask); err != nil {
		return o, err
	}
	return o, o.qp.Modify(rdma.QPAttr{State: rdma.StateRTS}, rdma.QPStateMask|rdma.QPSQPSNMask)
}

// Address is where others send letters to.
func (o *Office) Address() Address { return Address{Number: o.qp.Num(), Key: o.key} }

// Start begins to look after letters. find, which is asked once for each peer, tells
// where that is; it may be called on any goroutine that calls a method of the office, and
// on the office's own.
func (o *Office) Start(find func(peer int) (Port, error)) {
	o.mu.Lock()
	o.find = find
	o.mu.Unlock()
	o.ended.Go(func() {
		ticks := time.NewTicker(tick)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				o.Look()
			case <-o.stop:
				return
			}
		}
	})
}

// Close ends the office. Letters on their way may arrive or not.
func (o *Office) Close() error {
	o.mu.Lock()
	closed := o.closed
	o.closed = true
	o.mu.Unlock()
	if closed {
		return nil
	}
	close(o.stop)
	o.ended.Wait()
	var errs []error
	if o.qp != nil {
		errs = append(errs, o.qp.Close())
	}
	for _, b := range o.boxes {
		if b != nil && b.ah != nil {
			errs = append(errs, b.ah.Close())
		}
	}
	if o.mr != nil {
		errs = append(errs, o.mr.Close())
	}
	if o.cq != nil {
		errs = append(errs, o.cq.Close())
	}
	return errors.Join(errs...)
}

// Send sends a letter to a peer; it waits for nothing.
func (o *Office) Send(peer int, l Letter) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b := o.box(peer); b.err == nil && !o.closed {
		o.enqueue(b, l)
	}
}

// Probe makes sure of a peer: Failed tells, later, whether it answers.
func (o *Office) Probe(peer int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b := o.box(peer); b.err == nil && len(b.letters) == 0 && !o.closed {
		o.enqueue(b, Nothing)
	}
}

// Failed is why a peer has been given up, nil while it has not.
func (o *Office) Failed(peer int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b := o.boxes[peer]; b != nil {
		return b.err
	}
	return nil
}

// Take gives a letter that has come, in order of arrival; false: there is none.
func (o *Office) Take() (peer int, l Letter, ok bool) {
	if o.waiting.Load() == 0 {
		return 0, Letter{}, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.in) == 0 {
		return 0, Letter{}, false
	}
	first := o.in[0]
	o.in = o.in[1:]
	o.boxes[first.peer].kept--
	o.waiting.Add(-1)
	return first.peer, first.letter, true
}

// Look takes in what has come and sends again what is due. If somebody else does that
// just now it returns at once.
func (o *Office) Look() {
	if !o.mu.TryLock() {
		return
	}
	defer o.mu.Unlock()
	if o.find == nil || o.closed {
		return
	}
	o.poll()
	if len(o.due) == 0 {
		return
	}
	now := o.now()
	kept := o.due[:0]
	for _, b := range o.due {
		if len(b.letters) > 0 && !now.Before(b.next) {
			switch {
			case o.gone != nil && o.gone(b.port.AV.DGID):
				o.giveUp(b, ErrGone)
			case now.Sub(b.since) >= patience:
				o.giveUp(b, ErrSilent)
			default:
				o.ship(b, now)
			}
		}
		if len(b.letters) > 0 {
			kept = append(kept, b)
		}
	}
	clear(o.due[len(kept):])
	o.due = kept
}

// box is that of a peer, made if there is none.
func (o *Office) box(peer int) *box {
	b := o.boxes[peer]
	if b == nil {
		b = &box{peer: peer}
		o.boxes[peer] = b
		var err error
		if b.port, err = o.find(peer); err == nil {
			b.ah, err = o.pd.CreateAH(b.port.AV)
		}
		if err != nil {
			b.err = err
		}
	}
	return b
}

func (o *Office) giveUp(b *box, err error) { b.err, b.letters = err, nil }

// enqueue puts a letter into the line of a peer.
func (o *Office) enqueue(b *box, l Letter) {
	if b.letters = append(b.letters, l); len(b.letters) > 1 {
		return
	}
	o.due = append(o.due, b)
	o.begin(b)
}

// begin sends the first letter of a line for the first time.
func (o *Office) begin(b *box) {
	now := o.now()
	b.number++
	b.since, b.wait = now, firstWait
	o.ship(b, now)
}

// ship sends the first letter of a line.
func (o *Office) ship(b *box, now time.Time) {
	b.next = now.Add(b.wait)
	b.wait = min(2*b.wait, lastWait)
	o.post(b, kindLetter, b.number, b.letters[0])
}

// post posts a datagram. One that finds no room is lost, as any other may be.
func (o *Office) post(b *box, kind uint32, number uint64, l Letter) {
	if o.posted == requests {
		return
	}
	d := o.out[:]
	binary.LittleEndian.PutUint32(d[0:], kind)
	binary.LittleEndian.PutUint32(d[4:], uint32(o.rank))
	binary.LittleEndian.PutUint64(d[8:], number)
	binary.LittleEndian.PutUint64(d[16:], l.What)
	binary.LittleEndian.PutUint64(d[24:], l.ID)
	wr := [1]rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendInline | rdma.SendSignaled, Inline: d,
		AH: b.ah, RemoteQPN: b.port.Address.Number, RemoteQKey: b.port.Address.Key, WRID: receives}}
	if _, err := o.qp.PostSend(wr[:]); err != nil {
		o.giveUp(b, fmt.Errorf("post_send of a datagram: %w", err))
		return
	}
	o.posted++
}

// poll takes in what has come.
func (o *Office) poll() {
	for {
		n, err := o.cq.Poll(o.wcs[:])
		if err != nil {
			return // what is on its way is given up when its time is over
		}
		for i := range n {
			wc := &o.wcs[i]
			if wc.WRID >= receives {
				o.posted--
				continue
			}
			slot := int(wc.WRID)
			if wc.Status == rdma.WCSuccess && wc.ByteLen == rdma.GRHLen+datagramLen {
				o.arrived(o.mem[slot*slotLen+rdma.GRHLen:][:datagramLen], wc.SrcQP)
			}
			_ = o.listen(slot) // a queue pair that has failed takes none
		}
		if n < len(o.wcs) {
			return
		}
	}
}

// arrived handles a datagram. Its sender is believed when it has the queue pair of who
// it says it is.
func (o *Office) arrived(d []byte, from uint32) {
	kind, peer := binary.LittleEndian.Uint32(d[0:]), binary.LittleEndian.Uint32(d[4:])
	number := binary.LittleEndian.Uint64(d[8:])
	if int64(peer) >= int64(len(o.boxes)) || int(peer) == o.rank {
		return
	}
	b := o.box(int(peer))
	if b.port.Address.Number != from || b.ah == nil {
		return
	}
	switch {
	case kind == kindAnswer && len(b.letters) > 0 && number == b.number:
		b.letters = b.letters[1:]
		if len(b.letters) > 0 {
			o.begin(b)
		}
	case kind == kindLetter && number <= b.last+1 && b.kept < keptMost:
		if number == b.last+1 {
			b.last = number
			l := Letter{What: binary.LittleEndian.Uint64(d[16:]), ID: binary.LittleEndian.Uint64(d[24:])}
			if l != Nothing {
				o.in = append(o.in, incoming{int(peer), l})
				b.kept++
				o.waiting.Add(1)
			}
		}
		o.post(b, kindAnswer, number, Letter{})
	}
}

func (o *Office) listen(slot int) error {
	sge := [1]rdma.SGE{{Addr: o.mr.Addr() + uint64(slot*slotLen), Length: slotLen, LKey: o.mr.LKey()}}
	wr := [1]rdma.RecvWR{{WRID: uint64(slot), SGL: sge[:]}}
	_, err := o.qp.PostRecv(wr[:])
	return err
}
