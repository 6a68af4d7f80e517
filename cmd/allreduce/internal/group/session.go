package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/soft/softtls"
)

// A Seat is a member's place in a group, by its rank in the world.
type Seat struct {
	Kind   Kind   `msgpack:"kind"`
	Label  string `msgpack:"label"`
	Daemon int    `msgpack:"daemon"` // of an offloaded client: its daemon's rank
}

func (s *Seat) name() string { return string(s.Kind) + " " + s.Label }

// A Session is a member's part in a group that is complete. Its calls come in the order of the run (Barrier, the batches for
// the network, Barrier, the batches, Barrier; a daemon calls Serve instead), belong to one goroutine, and
// block until the other members have done their part, or the group has failed.
type Session struct {
	cfg    *Config
	seats  []Seat
	log    *logrus.Logger
	ctx    context.Context // ends when the group fails
	cancel context.CancelCauseFunc
	group  *group // nil: a launcher has brought the members together, and ends them

	world *rank.World
	self  int
	among *rank.Comm // of the participants; nil: this is none
	house *rank.Comm // a daemon, which is its rank 0, and its clients; nil: this is neither
	rooms []int      // their ranks in the world
	win   *rank.Win[byte]
	apart bool   // Options.apart
	near  bool   // all vectors are in mem: a daemon's clients share it
	mem   []byte // a client's vectors; a daemon's of all its clients, or if they are not near two for each

	op     int // the operation under way
	awaits int // whose message is waited for; -1: none
}

func newSession(ctx context.Context, cfg *Config, seats []Seat, log *logrus.Logger) *Session {
	s := &Session{cfg: cfg, seats: seats, log: log, awaits: -1}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	return s
}

// rankConfig configures the world of a group.
func (s *Session) rankConfig(secure bool) (rank.Config, error) {
	table, err := s.cfg.table()
	cfg := rank.Config{Tuning: table, Waiting: s.slow}
	if secure {
		cfg.Secure = softtls.Handshake
	}
	return cfg, err
}

// slow tells that a member is awaited.
func (s *Session) slow(w rank.Wait) {
	peer := max(w.Peer, s.awaits)
	if peer < 0 {
		s.log.Infof("waiting: %s, in operation %d, for %v", w.What, s.op, w.For.Round(time.Second))
		return
	}
	s.log.Infof("waiting: %s has not come to operation %d for %v", s.seats[peer].name(), s.op, w.For.Round(time.Second))
}

// Launched is the session of a rank of a launcher. Init makes the world.
func Launched(ctx context.Context, init func(rank.Config) (*rank.World, error), seats func(*rank.World) ([]Seat, error), cfg *Config, log *logrus.Logger) (*Session, error) {
	s := newSession(ctx, cfg, nil, log)
	rc, err := s.rankConfig(true)
	if err != nil {
		return nil, err
	}
	if s.world, err = init(rc); err != nil {
		return nil, err
	}
	if s.seats, err = seats(s.world); err == nil {
		err = s.begin(s.world)
	}
	if err != nil {
		s.cancel(err)
		return nil, s.Close()
	}
	return s, nil
}

// begin gives the members their communicators and the memory in which they work.
func (s *Session) begin(w *rank.World) (err error) {
	c := w.Comm()
	s.world, s.self = w, c.Rank()
	among, house, first := rank.Undefined, rank.Undefined, 1+s.self
	switch own := &s.seats[s.self]; own.Kind {
	case Direct:
		among = 0
	case Daemon:
		among, house, first = 0, s.self, 0
	default:
		house = own.Daemon
	}
	if s.among, err = c.Split(s.ctx, among, s.self); err != nil {
		return err
	}
	if s.house, err = c.Split(s.ctx, house, first); err != nil {
		return err
	}
	if s.house == nil {
		s.near, s.mem = true, s.alloc(s.cfg.Batch*s.stride())
		return s.warm()
	}
	s.rooms = []int{house}
	for r, seat := range s.seats {
		if seat.Kind == Offloaded && seat.Daemon == house {
			s.rooms = append(s.rooms, r)
		}
	}
	if err := s.furnish(); err != nil || s.among == nil {
		return err
	}
	return s.warm()
}

// warm has a participant use its memory once: the first use costs page faults, in each member that maps it, and
// connections, and is not what is measured.
func (s *Session) warm() error {
	clear(s.mem)
	for op := range s.cfg.Batch {
		if err := s.allreduce(s.vector(0, op)); err != nil {
			return err
		}
	}
	s.op = 0
	return nil
}

// stride is from one vector in memory to the next.
func (s *Session) stride() int { return (s.cfg.Bytes() + 63) &^ 63 }

// alloc is memory that other members reach directly, if there is so much.
func (s *Session) alloc(n int) []byte {
	mem, err := rank.Alloc[byte](s.world.Comm(), n)
	if err != nil {
		return make([]byte, n) // slower
	}
	return mem
}

// furnish gives a daemon and its clients the memory of the vectors: the daemon's, which they share if
// they are on one host; else the clients' own, where the daemon gets and puts them.
func (s *Session) furnish() error {
	together, err := s.house.SplitType(s.ctx, rank.TypeShared, 0)
	if err != nil {
		return err
	}
	clients, each, daemon := s.house.Size()-1, s.cfg.Batch*s.stride(), s.house.Rank() == 0
	if together.Size() == s.house.Size() && !s.apart {
		n := 0
		if daemon {
			n = clients * each
		}
		if s.win, err = rank.WinAllocateShared[byte](s.ctx, s.house, n); err == nil {
			s.near = true
			s.mem, err = s.win.Query(0)
			if !daemon {
				s.mem = s.mem[(s.house.Rank()-1)*each:][:each]
			}
			return err
		}
		if s.ctx.Err() != nil {
			return err
		}
	}
	if daemon {
		s.mem = s.alloc(2 * clients * s.stride())
		if s.win, err = rank.WinCreate[byte](s.ctx, s.house, nil); err == nil {
			err = s.win.LockAll(s.ctx, 0)
		}
		return err
	}
	s.mem = s.alloc(each)
	s.win, err = rank.WinCreate(s.ctx, s.house, s.mem)
	return err
}

// Vectors are a client's: those of a batch, in memory of the session.
func (s *Session) Vectors() [][]byte {
	all := make([][]byte, s.cfg.Batch)
	for i := range all {
		all[i] = s.mem[i*s.stride():][:s.cfg.Bytes()]
	}
	return all
}

// failed ends the group for an error of a call, and gives the reason that counts.
func (s *Session) failed(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*rank.Error](err); ok {
		if s.group != nil {
			// The connections know more: who has ended, and whether there was a reason.
			select {
			case <-s.ctx.Done():
			case <-time.After(closeMost):
			}
		}
		for _, r := range e.Failed {
			err = fmt.Errorf("%s is gone: %w", s.seats[r].name(), err)
		}
	}
	s.cancel(err)
	return context.Cause(s.ctx)
}

// maxDigest is the length of a digest of results in a barrier, behind its length.
const maxDigest = 32

// errDiffer: members have different results.
var errDiffer = errors.New("the results differ")

// Barrier waits for all members. digest, of at most 32 bytes, is that of a client's results in the last
// barrier, where all must have the same, else nil.
func (s *Session) Barrier(digest []byte) error {
	const block = 1 + maxDigest
	own, all := make([]byte, block), make([]byte, block*len(s.seats))
	own[0] = byte(copy(own[1:], digest))
	err := rank.Allgather(s.ctx, s.world.Comm(), own, all)
	first := -1
	for i := range s.seats {
		switch d := all[i*block:][:block]; {
		case d[0] == 0:
		case first < 0:
			first = i
		case err == nil && !bytes.Equal(d, all[first*block:][:block]):
			err = fmt.Errorf("%w: %s has %x, %s has %x", errDiffer, s.seats[first].name(), all[first*block+1:][:all[first*block]], s.seats[i].name(), d[1:1+d[0]])
		}
	}
	return s.failed(err)
}

// The messages between a client and its daemon, which are empty.
const (
	tagSubmit = iota // the vectors of a batch are in place
	tagDone          // and now the results are
)

// Batch submits the vectors, one operation for each, calls meanwhile, and waits until each vector is
// its operation's result. meanwhile may be nil. A client that is not offloaded runs the algorithm when it has computed.
func (s *Session) Batch(meanwhile func()) error {
	if s.house != nil {
		if err := rank.Send[byte](s.ctx, s.house, nil, 0, tagSubmit); err != nil {
			return s.failed(err)
		}
	}
	if meanwhile != nil {
		meanwhile()
	}
	if s.house != nil {
		s.op += s.cfg.Batch
		return s.failed(s.hear(0, tagDone))
	}
	for i := range s.cfg.Batch {
		if err := s.allreduce(s.vector(0, i)); err != nil {
			return s.failed(err)
		}
	}
	return nil
}

// hear waits for a message of a rank of the house.
func (s *Session) hear(from, tag int) error {
	s.awaits = s.rooms[from]
	_, err := rank.Recv[byte](s.ctx, s.house, nil, from, tag)
	s.awaits = -1
	return err
}

// allreduce combines the vectors of all participants in place.
func (s *Session) allreduce(v []byte) error {
	s.op++
	if s.ctx.Err() != nil { // a call that need not wait does not look
		return context.Cause(s.ctx)
	}
	return s.among.Allreduce(s.ctx, rank.InPlace, rank.Typed(v, s.cfg.Size, s.cfg.element().typ), s.cfg.operation().op)
}

// Serve is a daemon's work: all operations, for its clients. It returns how many there were.
func (s *Session) Serve() (operations int, err error) {
	for _, batches := range []int{NetworkBatches, s.cfg.Batches} {
		if err := s.Barrier(nil); err != nil {
			return s.op, err
		}
		for range batches {
			if err := s.serve(); err != nil {
				return s.op, s.failed(err)
			}
		}
	}
	if !s.near {
		err = s.win.UnlockAll(s.ctx)
	}
	return s.op, errors.Join(s.failed(err), s.Barrier(nil))
}

// serve does a batch.
func (s *Session) serve() error {
	clients := s.house.Size() - 1
	for c := 1; c <= clients; c++ {
		if err := s.hear(c, tagSubmit); err != nil {
			return err
		}
	}
	r := s.cfg.Reduction()
	err := s.fetch(0)
	for op := 0; op < s.cfg.Batch && err == nil; op++ {
		// While vectors are combined those of the next operation come, and the last results go.
		if err = s.settle(); err == nil {
			err = s.fetch(op + 1)
		}
		sum := s.vector(0, op)
		for c := 1; c < clients; c++ {
			r.Func(sum, sum, s.vector(c, op))
		}
		if err == nil {
			err = s.allreduce(sum)
		}
		if err == nil {
			err = s.give(op)
		}
	}
	if err == nil {
		err = s.settle()
	}
	if err != nil {
		return err
	}
	for c := 1; c <= clients; c++ {
		if err := rank.Send[byte](s.ctx, s.house, nil, c, tagDone); err != nil {
			return err
		}
	}
	return nil
}

// vector is where a participant has a client's vector of an operation; a far one's until the operation after the next.
func (s *Session) vector(client, op int) []byte {
	at := 2*client + op%2
	if s.near {
		at = client*s.cfg.Batch + op
	}
	return s.mem[at*s.stride():][:s.cfg.Bytes()]
}

// fetch starts to get the clients' vectors of an operation.
func (s *Session) fetch(op int) error {
	if s.near || op == s.cfg.Batch {
		return nil
	}
	for c := range s.house.Size() - 1 {
		if err := s.win.Get(s.vector(c, op), 1+c, op*s.stride()); err != nil {
			return err
		}
	}
	return nil
}

// give starts to give each client the result, which is the first one's vector.
func (s *Session) give(op int) error {
	for c := range s.house.Size() - 1 {
		if s.near {
			if c > 0 {
				copy(s.vector(c, op), s.vector(0, op))
			}
		} else if err := s.win.Put(s.vector(0, op), 1+c, op*s.stride()); err != nil {
			return err
		}
	}
	return nil
}

// settle waits until what was started is done.
func (s *Session) settle() error {
	if s.near {
		return nil
	}
	return s.win.FlushAll(s.ctx)
}

// Context ends when the group fails.
func (s *Session) Context() context.Context { return s.ctx }

// Members is the number of participants.
func (s *Session) Members() int { return s.count(Kind.participant) }

// Contributions is that of the vectors that an operation combines.
func (s *Session) Contributions() int { return s.count(func(k Kind) bool { return k != Daemon }) }

func (s *Session) count(is func(Kind) bool) (n int) {
	for _, seat := range s.seats {
		if is(seat.Kind) {
			n++
		}
	}
	return n
}

// Algorithm is the one that was chosen.
func (s *Session) Algorithm() string { return s.cfg.choose(s.Members()) }

// Fail ends the group for a reason of this member's own, which Close tells the others.
func (s *Session) Fail(err error) { s.cancel(err) }

// Close ends this member's part, and returns why the group has failed, if it has.
func (s *Session) Close() error {
	err := context.Cause(s.ctx)
	if err == nil {
		err = s.failed(s.world.Finalize(s.ctx))
	}
	s.cancel(errDone)
	if s.group != nil {
		if err != nil {
			s.group.fail(err)
		}
		err = s.group.close() // the others hear why, before they find the world left
	}
	if err != nil {
		s.abandon()
	}
	return err
}

// abandon gives back what the world of a group has that has failed, without the others.
func (s *Session) abandon() {
	_ = s.world.Comm().Revoke() // which keeps Finalize from a collective
	_ = s.world.Finalize(s.ctx)
}
