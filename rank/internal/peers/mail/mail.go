// Package mail carries letters of two words between ranks that have no connection
// yet: over one unreliable-datagram queue pair a rank, whose number and key are in its
// card.
//
// Letters from one rank to another arrive once and in order, or the receiver is given
// up. Up to window letters to a rank are on their way at a time; they are sent again,
// after times that double, until the receiver acknowledges them. That takes the
// receiver's process, not its calls: an [Office] looks after its letters by itself, every
// tick, so a rank that computes is no rank that has died. The receiver acts on a letter
// when it takes the letter in.
//
//	sender                                receiver
//	letter{number, known, words}  ----->  number = last+1: kept for Take, last = number
//	    again, if nothing comes           number <= last: known already
//	                                      number > last+1: one is missing, dropped
//	all up to known are through   <-----  letter{..., known = last}, or, if none is sent
//	                                      before the next look, answer{known = last}
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
	// ErrGone: nobody listens any more where it did, or its host has been silent for long.
	ErrGone = errors.New("its process has ended, or its host does not answer")
	// ErrSilent: it has acknowledged no letter for as long as a connection would have waited, and
	// the device cannot tell whether it is there.
	ErrSilent = errors.New("its process has not answered for 10 s")
)

const (
	// patience is a little more than what a connection gives a silent peer.
	patience = 10 * time.Second
	// firstWait is how long a letter's first answer may take, lastWait any.
	firstWait, lastWait = 20 * time.Millisecond, time.Second
	// tick is how often the office looks after its letters while the rank does not. Where none
	// comes or is on its way it looks ever less often, up to tickMost: hundreds of ranks on a few CPUs
	// would have those do little else.
	tick, tickMost = 50 * time.Millisecond, 100 * time.Millisecond

	// window is how many letters to a peer are on their way at a time: more than two
	// ranks have to say to each other at once.
	window = 4

	// queueLeast and queueMost bound how many datagrams a rank receives before it looks,
	// and how many it posts: a few from each peer, in a job that is not large.
	queueLeast, queueMost = 64, 1024
	slotLen               = 128

	// keptMost is how many letters of one peer wait to be taken: more than anybody has
	// to say in good faith. Letters beyond are not acknowledged.
	keptMost = 32
)

// A datagram, in little-endian numbers:
//
//	0      4      8        16      24      32
//	kind   from   number   known   what    id
//
// An answer has no number and no words.
const (
	datagramLen = 40

	kindLetter = 1
	kindAnswer = 2
	kindAgain  = 3 // a letter that has been sent before
)

// An Address is where a rank's letters go, beside its GID. Number 0: it has no office.
type Address struct{ Number, Key uint32 }

// A Letter is what a rank tells another.
type Letter struct{ What, ID uint64 }

// Nothing is a letter that is acknowledged and not kept: its sender wants to know
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
	lost func(peer int) bool     // Open's
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
	due    []*box // with letters that are not through
	owing  []*box // to answer at the next look
	queue  int    // depth of the queue pair's queues
	posted int    // requests that are not complete
	in     []incoming
	closed bool
	wcs    [16]rdma.WC
	out    [datagramLen]byte
	counts Counts
}

// Counts count what an Office did.
type Counts struct {
	Datagrams uint64 // sent: letters, copies and answers
	Late      uint64 // letters of which only a copy came in
}

// Counts reads the counts.
func (o *Office) Counts() Counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.counts
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

	letters []Letter // that are not through; the first of them are on their way
	away    int      // so many
	first   uint64   // number of the first, or of the next there will be
	since   time.Time
	next    time.Time // when those on their way are sent again
	wait    time.Duration
	last    uint64 // number of the last letter that came
	owes    bool   // it is not known there
	kept    int    // letters of the peer in Office.in
}

// Supported tells whether a device can carry mail.
func Supported(ctx rdma.Context) bool {
	return ctx.Supports(rdma.FeatureUD) == nil && ctx.QueryDevice().MaxInlineData >= datagramLen
}

// Open makes the office of a rank. It sends nothing, and keeps what comes, before Start. lost tells, on any goroutine,
// whether a peer is known to have died; nil: none is.
func Open(pd rdma.PD, rank, size int, lost func(peer int) bool) (o *Office, err error) {
	// A key with the high bit set stands for the queue pair's own.
	o = &Office{rank: rank, pd: pd, lost: lost, key: rand.Uint32() >> 1, now: time.Now, boxes: make([]*box, size), stop: make(chan struct{})}
	device := pd.Context().QueryDevice()
	o.queue = min(max(window*size, queueLeast), queueMost, device.MaxQPWR, device.MaxCQE/2)
	if w, ok := pd.Context().(rdma.Witness); ok {
		o.gone = w.Gone
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("queue pair for datagrams: %w", err), o.Close())
			o = nil
		}
	}()
	if o.cq, err = pd.Context().CreateCQ(2 * o.queue); err != nil {
		return o, err
	}
	if o.mr, err = pd.AllocMR(o.queue*slotLen, rdma.AccessLocalWrite); err != nil {
		return o, err
	}
	o.mem = o.mr.Bytes()
	o.qp, err = pd.CreateQP(rdma.QPInitAttr{SendCQ: o.cq, RecvCQ: o.cq, Type: rdma.UD, Cap: rdma.QPCap{
		MaxSendWR: o.queue, MaxRecvWR: o.queue, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: datagramLen}})
	if err != nil {
		return o, err
	}
	if err = o.qp.Modify(rdma.QPAttr{State: rdma.StateInit, PortNum: 1, QKey: o.key},
		rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPQKeyMask); err != nil {
		return o, err
	}
	for slot := range o.queue {
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
		every := tick
		ticks := time.NewTimer(every)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				every = after(every, o.look())
				ticks.Reset(every)
			case <-o.stop:
				return
			}
		}
	})
}

// after is how long the office waits after a look that came so long after the one before.
func after(every time.Duration, busy bool) time.Duration {
	if busy {
		return tick
	}
	return min(2*every, tickMost)
}

// Close ends the office. Letters on their way may arrive or not.
func (o *Office) Close() error {
	o.mu.Lock()
	if !o.closed && o.qp != nil {
		o.answer() // a peer that learns nothing would look for this rank
	}
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

// Look takes in what has come and sends what is due. A rank may sleep when it has looked
// and Take gives nothing.
func (o *Office) Look() { o.look() }

// look is Look, and tells whether anything came or letters are on their way.
func (o *Office) look() (busy bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.find == nil || o.closed {
		return false
	}
	o.answer()
	came := o.poll()
	if len(o.due) == 0 {
		return came
	}
	now := o.now()
	kept := o.due[:0]
	for _, b := range o.due {
		if o.lost != nil && o.lost(b.peer) {
			o.giveUp(b, ErrGone)
			if m, ok := o.pd.Context().(rdma.Mourner); ok {
				m.Mourn(b.port.AV.DGID) // or its letters hold up those of others
			}
		} else if b.away == 0 {
			o.ship(b, now) // those that found no room
		} else if !now.Before(b.next) {
			switch {
			case o.gone != nil && o.gone(b.port.AV.DGID):
				o.giveUp(b, ErrGone)
			case o.gone == nil && now.Sub(b.since) >= patience: // a stopped process is waited for
				o.giveUp(b, ErrSilent)
			default:
				o.repeat(b, now)
			}
		}
		if len(b.letters) > 0 {
			kept = append(kept, b)
		}
	}
	clear(o.due[len(kept):])
	o.due = kept
	return true
}

// box is that of a peer, made if there is none.
func (o *Office) box(peer int) *box {
	b := o.boxes[peer]
	if b == nil {
		b = &box{peer: peer, first: 1}
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

func (o *Office) giveUp(b *box, err error) { b.err, b.letters, b.away = err, nil, 0 }

// enqueue puts a letter into the line of a peer.
func (o *Office) enqueue(b *box, l Letter) {
	now := o.now()
	if b.letters = append(b.letters, l); len(b.letters) == 1 {
		o.due = append(o.due, b)
		b.since = now
	}
	o.ship(b, now)
}

// ship sends what the window has room for, for the first time.
func (o *Office) ship(b *box, now time.Time) {
	for b.away < min(len(b.letters), window) {
		if !o.post(b, kindLetter, b.first+uint64(b.away), b.letters[b.away]) {
			return
		}
		if b.away++; b.away == 1 {
			b.wait = firstWait
			b.next = now.Add(b.wait)
		}
	}
}

// repeat sends what is on its way again.
func (o *Office) repeat(b *box, now time.Time) {
	b.wait = min(2*b.wait, lastWait)
	b.next = now.Add(b.wait)
	for i := range b.away {
		if !o.post(b, kindAgain, b.first+uint64(i), b.letters[i]) {
			return
		}
	}
}

// through takes the letters up to a number out of the line of a peer, which knows them.
func (o *Office) through(b *box, known uint64) {
	if known < b.first || known-b.first >= uint64(b.away) {
		return
	}
	n := int(known-b.first) + 1
	b.letters, b.away, b.first = b.letters[n:], b.away-n, known+1
	now := o.now()
	b.since, b.wait = now, firstWait
	b.next = now.Add(b.wait)
	o.ship(b, now)
}

// answer tells the peers what has come of their letters, where no letter to them has.
func (o *Office) answer() {
	kept := o.owing[:0]
	for _, b := range o.owing {
		if b.owes && !o.post(b, kindAnswer, 0, Letter{}) && b.err == nil {
			kept = append(kept, b)
		}
	}
	o.owing = kept
}

// owe has a peer answered.
func (o *Office) owe(b *box) {
	if !b.owes {
		b.owes = true
		o.owing = append(o.owing, b)
	}
}

// post posts a datagram; false: there is no room, and nothing was done.
func (o *Office) post(b *box, kind uint32, number uint64, l Letter) bool {
	if o.posted == o.queue {
		return false
	}
	d := o.out[:]
	binary.LittleEndian.PutUint32(d[0:], kind)
	binary.LittleEndian.PutUint32(d[4:], uint32(o.rank))
	binary.LittleEndian.PutUint64(d[8:], number)
	binary.LittleEndian.PutUint64(d[16:], b.last)
	binary.LittleEndian.PutUint64(d[24:], l.What)
	binary.LittleEndian.PutUint64(d[32:], l.ID)
	wr := [1]rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendInline | rdma.SendSignaled, Inline: d,
		AH: b.ah, RemoteQPN: b.port.Address.Number, RemoteQKey: b.port.Address.Key, WRID: uint64(o.queue)}}
	if _, err := o.qp.PostSend(wr[:]); err != nil {
		o.giveUp(b, fmt.Errorf("post_send of a datagram: %w", err))
		return false
	}
	b.owes = false
	o.posted++
	o.counts.Datagrams++
	return true
}

// poll takes in what has come, and tells whether anything has.
func (o *Office) poll() (came bool) {
	for {
		n, err := o.cq.Poll(o.wcs[:])
		if err != nil {
			return came // what is on its way is given up when its time is over
		}
		came = came || n > 0
		for i := range n {
			wc := &o.wcs[i]
			if wc.WRID >= uint64(o.queue) {
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
			return came
		}
	}
}

// arrived handles a datagram. Its sender is believed when it has the queue pair of the rank that
// it says it is.
func (o *Office) arrived(d []byte, from uint32) {
	kind, peer := binary.LittleEndian.Uint32(d[0:]), binary.LittleEndian.Uint32(d[4:])
	if int64(peer) >= int64(len(o.boxes)) || int(peer) == o.rank || kind < kindLetter || kind > kindAgain {
		return
	}
	b := o.box(int(peer))
	if b.port.Address.Number != from || b.ah == nil {
		return
	}
	o.through(b, binary.LittleEndian.Uint64(d[16:]))
	if kind == kindAnswer {
		return
	}
	switch number := binary.LittleEndian.Uint64(d[8:]); {
	case number == b.last+1 && b.kept < keptMost:
		b.last = number
		if kind == kindAgain {
			o.counts.Late++
		}
		l := Letter{What: binary.LittleEndian.Uint64(d[24:]), ID: binary.LittleEndian.Uint64(d[32:])}
		if l != Nothing {
			o.in = append(o.in, incoming{int(peer), l})
			b.kept++
			o.waiting.Add(1)
		}
		o.owe(b)
	case number <= b.last:
		o.owe(b)
	}
}

func (o *Office) listen(slot int) error {
	sge := [1]rdma.SGE{{Addr: o.mr.Addr() + uint64(slot*slotLen), Length: slotLen, LKey: o.mr.LKey()}}
	wr := [1]rdma.RecvWR{{WRID: uint64(slot), SGL: sge[:]}}
	_, err := o.qp.PostRecv(wr[:])
	return err
}
