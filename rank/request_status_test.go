package rank_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// partners are with whom a rank exchanges: its neighbours in a ring, or who has its
// rank in the other group.
func (p *place) partners() (src, dst int) {
	n := len(p.far)
	switch {
	case !p.IsInter():
		return (p.Rank() + n - 1) % n, (p.Rank() + 1) % n
	case p.Rank() < n:
		return p.Rank(), p.Rank()
	}
	return rank.ProcNull, rank.ProcNull
}

// marked are bytes of a rank.
func marked(id, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(id*31 + i*7 + 1)
	}
	return b
}

// eachPlace runs f on communicators of all kinds, of many sizes.
func eachPlace(t *testing.T, f func(ctx context.Context, p *place) error) {
	testenv.NoLeaks(t)
	ranktest.Each(t, manySizes, func(ctx context.Context, c *rank.Comm) error {
		all, err := places(ctx, c, rand.New(rand.NewPCG(uint64(c.Size()), 21)))
		if err != nil {
			return err
		}
		for _, p := range all {
			if err := f(ctx, p); err != nil {
				return fmt.Errorf("%s: %w", p.name(), err)
			}
		}
		return nil
	})
}

// An exchange that was started, in two buffers and in one: its status can be asked for
// before it is waited for, as often as one likes.
func TestIsendrecv(t *testing.T) {
	eachPlace(t, func(ctx context.Context, p *place) error {
		src, dst := p.partners()
		for _, n := range []int{0, 9, 70000} {
			own, want := marked(p.id, n), []byte{}
			st := rank.Status{Source: rank.ProcNull, Tag: rank.AnyTag}
			if src != rank.ProcNull {
				want = marked(p.far[src], n)
				st = rank.Status{Source: src, Tag: 3, Count: n, Bytes: n}
			}
			for _, replace := range []bool{false, true} {
				got := slices.Clone(own)
				var q rank.Request
				var err error
				if replace {
					q, err = rank.IsendrecvReplace(p.Comm, got, dst, 3, src, 3)
				} else {
					got = make([]byte, n)
					q, err = rank.Isendrecv(p.Comm, own, dst, 3, got, src, 3)
				}
				if err != nil {
					return err
				}
				for told := 0; told < 3; {
					asked, done, err := q.GetStatus()
					if err != nil || done && asked != st {
						return fmt.Errorf("get status: %+v, %w, want %+v", asked, err, st)
					}
					if done {
						told++
					}
				}
				if have, err := q.Wait(ctx); err != nil || have != st {
					return fmt.Errorf("wait: %+v, %w, want %+v", have, err, st)
				}
				if _, done, err := q.GetStatus(); !done || err != nil {
					return fmt.Errorf("a request that is done with: %v, %w", done, err)
				}
				if src != rank.ProcNull && !bytes.Equal(got, want) {
					return fmt.Errorf("%d bytes, in one buffer: %v: they are not the partner's", n, replace)
				}
			}
		}
		return nil
	})
}

// What GetStatus has told of a persistent receive, or of one that failed, is told again,
// and the request can be started again.
func TestGetStatus(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		const rounds = 5
		peer, buf := 1-c.Rank(), make([]int32, 2)
		q, err := rank.RecvInit(c, buf, peer, 1)
		if err != nil {
			return err
		}
		for round := range rounds {
			n := 1 + round%3 // 3 do not fit
			if err := q.Start(); err != nil {
				return err
			}
			if _, done, err := q.GetStatus(); c.Rank() == 0 && (done || err != nil) {
				return fmt.Errorf("nobody has sent, and the receive is over: %v, %w", done, err)
			}
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
			if err := rank.Send(ctx, c, slices.Repeat([]int32{int32(round)}, n), peer, 1); err != nil {
				return err
			}
			done, failed := false, error(nil)
			var st rank.Status
			for !done {
				st, done, failed = q.GetStatus()
			}
			again, err := q.Wait(ctx)
			if again != st || (n > 2) != errors.Is(failed, rank.ClassTruncate) || (n > 2) != errors.Is(err, rank.ClassTruncate) {
				return fmt.Errorf("round %d: told %+v, %v, and then %+v, %w", round, st, failed, again, err)
			}
			if n <= 2 && (st.Count != n || buf[0] != int32(round)) {
				return fmt.Errorf("round %d: %+v, %v", round, st, buf)
			}
		}
		if _, done, err := (rank.Request{}).GetStatus(); !done || err != nil {
			return fmt.Errorf("the null request: %v, %w", done, err)
		}
		// Freed while it is told of, and while it is not.
		if err := errors.Join(q.Start(), rank.Send(ctx, c, []int32{1}, peer, 1)); err != nil {
			return err
		}
		for done := false; !done && err == nil; {
			_, done, err = q.GetStatus()
		}
		return errors.Join(err, q.Free())
	})
}

// A mistake starts neither half, and leaves nothing behind.
func TestIsendrecvMistakes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		b := make([]int16, 10)
		for i, tt := range []struct {
			class                      rank.Class
			dst, sendTag, src, recvTag int
		}{
			{rank.ClassRank, c.Size(), 0, 0, 0}, {rank.ClassTag, 0, -1, 0, 0}, {rank.ClassRank, 0, 0, -7, 0}, {rank.ClassTag, 0, 0, 0, -5},
		} {
			_, err := rank.Isendrecv(c, b[:5], tt.dst, tt.sendTag, b[5:], tt.src, tt.recvTag)
			_, replace := rank.IsendrecvReplace(c, b, tt.dst, tt.sendTag, tt.src, tt.recvTag)
			if !errors.Is(err, tt.class) || !errors.Is(replace, tt.class) {
				return fmt.Errorf("case %d: %v and %v, want errors of class %v", i, err, replace, tt.class)
			}
		}
		if _, err := rank.Isendrecv(c, b[:6], 0, 0, b[5:], 0, 0); !errors.Is(err, rank.ClassBuffer) {
			return fmt.Errorf("buffers that overlap: %v", err)
		}
		_, found, err := rank.Iprobe(c, rank.AnySource, rank.AnyTag)
		if found {
			return errors.New("a call that failed has sent something")
		}
		return err
	})
}

// Probes of all kinds, on communicators of all kinds.
func TestProbesEverywhere(t *testing.T) {
	eachPlace(t, func(ctx context.Context, p *place) error {
		src, dst := p.partners()
		if src == rank.ProcNull {
			return nil
		}
		for n, tag := range []int{5, 6} {
			q, err := rank.Isend(p.Comm, marked(p.id, n+3), dst, tag)
			if err != nil {
				return err
			}
			want := rank.Status{Source: src, Tag: tag, Count: n + 3, Bytes: n + 3}
			if st, err := rank.Probe(ctx, p.Comm, rank.AnySource, tag); err != nil || st != want {
				return fmt.Errorf("probe: %+v, %w, want %+v", st, err, want)
			}
			if st, found, err := rank.Iprobe(p.Comm, src, rank.AnyTag); err != nil || !found || st != want {
				return fmt.Errorf("iprobe: %+v, %v, %w, want %+v", st, found, err, want)
			}
			m, st, err := rank.Mprobe(ctx, p.Comm, src, tag)
			if err != nil || st != want {
				return fmt.Errorf("mprobe: %+v, %w, want %+v", st, err, want)
			}
			if _, _, found, err := rank.Improbe(p.Comm, src, tag); err != nil || found {
				return fmt.Errorf("a message that was taken is found: %v, %w", found, err)
			}
			got := make([]byte, n+3)
			if st, err := rank.Mrecv(ctx, m, got); err != nil || st != want || !bytes.Equal(got, marked(p.far[src], n+3)) {
				return fmt.Errorf("mrecv: %+v, %w", st, err)
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// Buffered messages have left when the buffer is flushed.
func TestFlushBuffer(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		w, n := c.World(), 200000
		if err := w.AttachBuffer(n); err != nil {
			return err
		}
		to := (c.Rank() + 1) % c.Size()
		for round := range 3 { // each fills the buffer
			q, err := rank.Irecv(c, make([]byte, n), rank.AnySource, round)
			if err != nil {
				return err
			}
			if err := errors.Join(rank.Bsend(ctx, c, make([]byte, n), to, round), w.FlushBuffer(ctx)); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
		}
		_, err := w.DetachBuffer(ctx)
		return err
	})
}

// A communicator takes room in the nearest buffer that is attached: its own, that beyond, the world's.
func TestSendBuffers(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		w, to := c.World(), (c.Rank()+1)%c.Size()
		send := func(n int) error { return rank.Bsend(ctx, c, make([]byte, n), to, 7) }
		shared := w.NewSendBuffer(nil)
		own := w.NewSendBuffer(shared)
		c.SetSendBuffer(own)
		if err := send(1); !errors.Is(err, rank.ErrBuffer) {
			return fmt.Errorf("nothing is attached: %v", err)
		}
		rooms := []struct {
			b *rank.SendBuffer
			n int
		}{{w.SendBuffer(), 200000}, {shared, 210000}, {own, 220000}, {own, rank.BufferAutomatic}}
		for i, room := range rooms {
			if i == 3 {
				if _, err := own.Detach(ctx); err != nil {
					return err
				}
			}
			if err := room.b.Attach(room.n); err != nil {
				return err
			}
			n := room.n
			if n == rank.BufferAutomatic {
				n = 300000
			} else if err := send(n + 1); !errors.Is(err, rank.ErrBuffer) {
				return fmt.Errorf("a byte more than %d: %v", n, err)
			}
			if err := send(n); err != nil {
				return err
			}
			left, err := room.b.Iflush()
			if err != nil {
				return err
			}
			if err := send(0); err != nil { // after the flush
				return err
			}
			// A message of such a length leaves with its receive.
			if _, done, err := left.GetStatus(); done || err != nil {
				return fmt.Errorf("a flush before the receive: %v, %v", done, err)
			}
			if err := rank.Barrier(ctx, c); err != nil { // no rank has received before
				return err
			}
			for _, n := range []int{n, 0} {
				if st, err := rank.Recv(ctx, c, make([]byte, n), rank.AnySource, 7); err != nil || st.Bytes != n {
					return fmt.Errorf("%+v, %w", st, err)
				}
			}
			if _, err := left.Wait(ctx); err != nil {
				return err
			}
			for _, other := range rooms[:i] {
				if err := other.b.Flush(ctx); err != nil {
					return err
				}
			}
		}
		for _, want := range []struct {
			b *rank.SendBuffer
			n int
		}{{own, rank.BufferAutomatic}, {shared, 210000}, {w.SendBuffer(), 200000}} {
			if n, err := want.b.Detach(ctx); n != want.n || err != nil {
				return fmt.Errorf("%d bytes were detached, want %d: %w", n, want.n, err)
			}
		}
		if err := send(1); !errors.Is(err, rank.ErrBuffer) {
			return fmt.Errorf("all is detached: %v", err)
		}
		return nil
	})
}

// Operations of the program are waited for beside messages.
func TestGeneralRequests(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		broken := errors.New("the disk is full")
		freed, cancelled := 0, 0
		var g [3]*rank.General
		reqs := make([]rank.Request, 4)
		for i := range g {
			var err error
			g[i], reqs[i], err = c.StartGeneral(rank.GeneralCalls{
				Query: func() (rank.Status, error) {
					if i == 1 {
						return rank.Status{}, broken
					}
					return rank.Status{Tag: i, Cancelled: cancelled > 0 && i == 2}, nil
				},
				Free:   func() error { freed++; return nil },
				Cancel: func() { cancelled++ },
			})
			if err != nil {
				return err
			}
		}
		var err error
		if reqs[3], err = rank.Irecv(c, make([]byte, 1), c.Rank(), 0); err != nil {
			return err
		}
		if _, done, err := reqs[0].Test(); done || err != nil {
			return fmt.Errorf("it is over before it was completed: %v, %w", done, err)
		}
		if err := reqs[2].Cancel(); err != nil || cancelled != 1 {
			return fmt.Errorf("cancel: %v, %d calls", err, cancelled)
		}
		var group sync.WaitGroup
		for i := range g {
			group.Go(g[i].Complete)
		}
		defer group.Wait()
		if err := rank.Send(ctx, c, []byte{1}, c.Rank(), 0); err != nil {
			return err
		}
		statuses := make([]rank.Status, 4)
		one, failed := errors.AsType[*rank.RequestError](rank.WaitAll(ctx, reqs[1:2], nil))
		if !failed || !errors.Is(one, broken) {
			return fmt.Errorf("an operation that failed: %v", one)
		}
		if err := rank.WaitAll(ctx, reqs, statuses); err != nil || statuses[0].Tag != 0 || !statuses[2].Cancelled || statuses[3].Bytes != 1 || freed != 3 {
			return fmt.Errorf("%v, %+v, freed %d", err, statuses, freed)
		}
		return nil
	})
}

// ReduceLocal is what a reduction does to two ranks' operands.
func TestReduceLocal(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		v := []float64{1, 2, 3}
		if err := rank.ReduceLocal(c, []float64{10, 20, 30}, v, rank.Sum); err != nil || !slices.Equal(v, []float64{11, 22, 33}) {
			return fmt.Errorf("sum: %v, %w", v, err)
		}
		pairs := []rank.Pair[float64]{{Value: 1, Index: 7}, {Value: 5, Index: 1}}
		if err := rank.ReduceLocal(c, []rank.Pair[float64]{{Value: 1, Index: 3}, {Value: 9, Index: 9}}, pairs, rank.MinLoc); err != nil ||
			pairs[0].Index != 3 || pairs[1].Value != 5 {
			return fmt.Errorf("minloc: %v, %w", pairs, err)
		}
		first := rank.OpFunc("first", false, func(dst, a, _ []int16) { copy(dst, a) })
		w := []int16{1, 2}
		if err := rank.ReduceLocal(c, []int16{8, 9}, w, first); err != nil || !slices.Equal(w, []int16{8, 9}) {
			return fmt.Errorf("first of two: %v, %w", w, err)
		}
		number, _ := rank.TypeFor[int32]()
		every, err := rank.Vector(2, 1, 2, number)
		if err != nil {
			return err
		}
		gaps := []int32{1, 2, 3}
		if err := c.ReduceLocal(rank.Of([]int32{4, 1}), rank.Typed(gaps, 1, every), rank.Max); err != nil || !slices.Equal(gaps, []int32{4, 2, 3}) {
			return fmt.Errorf("max with gaps: %v, %w", gaps, err)
		}
		nothing, err := rank.Contiguous(0, number)
		if err != nil {
			return err
		}
		for _, op := range []rank.Op{rank.Sum, rank.Max, rank.BAnd, rank.MinLoc} {
			if err := c.ReduceLocal(rank.Typed(gaps, 3, nothing), rank.Typed(w, 3, nothing), op); err != nil {
				return fmt.Errorf("%v of a type of size zero: %w", op, err)
			}
			if err := c.Allreduce(ctx, rank.Typed(gaps, 3, nothing), rank.Typed(w, 3, nothing), op); err != nil {
				return fmt.Errorf("all-reduce, %v of a type of size zero: %w", op, err)
			}
		}
		for i, tt := range []struct {
			class rank.Class
			err   error
		}{
			{rank.ClassType, rank.ReduceLocal(c, []int32{1}, []int32{1, 2}, rank.Sum)},
			{rank.ClassType, c.ReduceLocal(rank.Of([]int32{1}), rank.Of([]float32{1}), rank.Sum)},
			{rank.ClassOp, rank.ReduceLocal(c, []float32{1}, []float32{1}, rank.BAnd)},
			{rank.ClassBuffer, rank.ReduceLocal(c, gaps[:2], gaps[1:], rank.Sum)},
			{rank.ClassOp, rank.ReduceLocal(c, gaps[:1], gaps[1:2], first)},
		} {
			if !errors.Is(tt.err, tt.class) {
				return fmt.Errorf("case %d: %w, want an error of class %v", i, tt.err, tt.class)
			}
		}
		if !rank.Sum.Commutative() || rank.Replace.Commutative() || first.Commutative() {
			return errors.New("commutative: sum yes, replace and first no")
		}
		return nil
	})
}
