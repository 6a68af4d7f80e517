package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// numbers of ranks for what depends on them.
var manySizes = []int{1, 2, 3, 5, 8, 16}

// starts are the non-blocking sends.
var starts = []struct {
	name string
	f    func(c *rank.Comm, buf []byte, dst, tag int) (rank.Request, error)
}{
	{"isend", rank.Isend[byte]}, {"issend", rank.Issend[byte]}, {"irsend", rank.Irsend[byte]}, {"ibsend", rank.Ibsend[byte]},
}

// Each rank sends to every rank, itself too, in all modes and lengths at once, and
// waits in different ways.
func TestEveryMessageInEveryMode(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, manySizes, func(ctx context.Context, c *rank.Comm) error {
		if err := c.World().AttachBuffer(1 << 24); err != nil {
			return err
		}
		for round, n := range []int{0, 7, 500, 5000, 70000} {
			if err := everyMode(ctx, c, round, n); err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
		}
		n, err := c.World().DetachBuffer(ctx)
		if err == nil && n != 1<<24 {
			err = fmt.Errorf("a buffer of %d bytes was detached", n)
		}
		return err
	})
}

func everyMode(ctx context.Context, c *rank.Comm, round, n int) error {
	var reqs []rank.Request
	var in [][]byte
	for src := range c.Size() {
		for tag := range starts {
			b, err := make1[byte](c, n+1, round+tag)
			if err != nil {
				return err
			}
			q, err := rank.Irecv(c, b, src, tag)
			if err != nil {
				return err
			}
			in, reqs = append(in, b), append(reqs, q)
		}
	}
	receives := len(reqs)
	if err := rank.Barrier(ctx, c); err != nil { // a ready send may rely on it
		return err
	}
	for dst := range c.Size() {
		for tag, s := range starts {
			b, err := make1[byte](c, n, round+tag+1)
			if err != nil {
				return err
			}
			q, err := s.f(c, letter(b, c.Rank(), tag, dst), dst, tag)
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
	}
	statuses := make([]rank.Status, len(reqs))
	if err := waitSomehow(ctx, c.Rank()+round, reqs, statuses); err != nil {
		return err
	}
	for i, b := range in {
		src, tag := i/len(starts), i%len(starts)
		if want := (rank.Status{Source: src, Tag: tag, Count: n, Bytes: n}); statuses[i] != want {
			return fmt.Errorf("status %+v, want %+v", statuses[i], want)
		}
		if err := checkLetter(b[:n], src, tag, c.Rank()); err != nil {
			return err
		}
	}
	for i := receives; i < len(reqs); i++ {
		if reqs[i] != (rank.Request{}) {
			return fmt.Errorf("request %d is not null after its end", i)
		}
	}
	return nil
}

// waitSomehow waits for all requests in one of the ways there are.
func waitSomehow(ctx context.Context, way int, reqs []rank.Request, statuses []rank.Status) error {
	indices, some := make([]int, len(reqs)), make([]rank.Status, len(reqs))
	switch way % 6 {
	case 0:
		return rank.WaitAll(ctx, reqs, statuses)
	case 1:
		for i := len(reqs) - 1; i >= 0; i-- { // backwards
			st, err := reqs[i].Wait(ctx)
			if err != nil {
				return err
			}
			statuses[i], reqs[i] = st, rank.Request{}
		}
	case 2:
		for range reqs {
			i, st, err := rank.WaitAny(ctx, reqs)
			if err != nil {
				return err
			}
			statuses[i] = st
		}
		if i, _, err := rank.WaitAny(ctx, reqs); i != rank.Undefined || err != nil {
			return fmt.Errorf("waitany of null requests: %d, %v", i, err)
		}
	case 3, 4:
		for left := len(reqs); left > 0; {
			call := rank.TestSome
			if way%6 == 3 {
				call = func(reqs []rank.Request, indices []int, some []rank.Status) (int, error) {
					return rank.WaitSome(ctx, reqs, indices, some)
				}
			}
			n, err := call(reqs, indices, some)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return err
			}
			for k, i := range indices[:n] {
				statuses[i] = some[k]
			}
			left -= n
		}
	case 5:
		for {
			done, err := rank.TestAll(reqs, statuses)
			if done || err != nil {
				return err
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestBlockingModes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 5}, func(ctx context.Context, c *rank.Comm) error {
		if err := c.World().AttachBuffer(1 << 20); err != nil {
			return err
		}
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for round, n := range lengths {
			in := make([]byte, n)
			q, err := rank.Irecv(c, in, before, rank.AnyTag)
			if err != nil {
				return err
			}
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
			send := []func(context.Context, *rank.Comm, []byte, int, int) error{rank.Send[byte], rank.Ssend[byte], rank.Rsend[byte], rank.Bsend[byte]}[round%4]
			if err := send(ctx, c, letter(make([]byte, n), c.Rank(), round, n), next, round); err != nil {
				return err
			}
			st, err := q.Wait(ctx)
			if err != nil {
				return err
			}
			if want := (rank.Status{Source: before, Tag: round, Count: n, Bytes: n}); st != want {
				return fmt.Errorf("status %+v, want %+v", st, want)
			}
			if err := checkLetter(in, before, round, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// A synchronous send ends after its receive has begun, and not before.
func TestSynchronousWaitsForTheReceive(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		for _, n := range []int{1, 100000} {
			if c.Rank() == 0 {
				q, err := rank.Issend(c, make([]byte, n), 1, 1)
				if err != nil {
					return err
				}
				for range 100 {
					if _, done, err := q.Test(); done || err != nil {
						return fmt.Errorf("a synchronous send was done before its receive: %v, %v", done, err)
					}
				}
				if err := rank.Send(ctx, c, []byte{1}, 1, 2); err != nil { // now it may
					return err
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				continue
			}
			b := make([]byte, n)
			if _, err := rank.Recv(ctx, c, b[:1], 0, 2); err != nil {
				return err
			}
			if _, err := rank.Recv(ctx, c, b, 0, 1); err != nil {
				return err
			}
		}
		return nil
	})
}

// A ring of persistent requests, started many times, with other data each time.
func TestPersistentRing(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, manySizes, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		if err := c.World().AttachBuffer(1 << 20); err != nil {
			return err
		}
		inits := []func(*rank.Comm, []byte, int, int) (rank.Request, error){rank.SendInit[byte], rank.SsendInit[byte], rank.RsendInit[byte], rank.BsendInit[byte]}
		for _, n := range []int{10, 30000} {
			var reqs []rank.Request
			var out, in [4][]byte
			for i, f := range inits {
				out[i], in[i] = make([]byte, n), make([]byte, n)
				r, err := rank.RecvInit(c, in[i], before, i)
				if err != nil {
					return err
				}
				s, err := f(c, out[i], next, i)
				if err != nil {
					return err
				}
				reqs = append(reqs, r, s)
			}
			for round := range 10 {
				for i := range out {
					letter(out[i], c.Rank(), i, round)
				}
				if err := rank.StartAll(reqs); err != nil {
					return err
				}
				if err := rank.WaitAll(ctx, reqs, nil); err != nil {
					return err
				}
				for i := range in {
					if err := checkLetter(in[i], before, i, round); err != nil {
						return err
					}
				}
			}
			for _, q := range reqs {
				if err := q.Free(); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestCancel(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		in := make([]byte, 10)
		q, err := rank.Irecv(c, in, rank.AnySource, 9)
		if err != nil {
			return err
		}
		if err := q.Cancel(); err != nil {
			return err
		}
		if st, err := q.Wait(ctx); err != nil || !st.Cancelled {
			return fmt.Errorf("wait for a cancelled receive: %+v, %v", st, err)
		}
		// The message that comes now is another receive's.
		if err := rank.Send(ctx, c, letter(make([]byte, 10), c.Rank(), 9, 0), c.Rank(), 9); err != nil {
			return err
		}
		other, err := rank.Irecv(c, in, rank.AnySource, 9)
		if err != nil {
			return err
		}
		if err := other.Cancel(); err != nil { // too late
			return err
		}
		if st, err := other.Wait(ctx); err != nil || st.Cancelled || st.Bytes != 10 {
			return fmt.Errorf("wait for a receive that was cancelled too late: %+v, %v", st, err)
		}
		// So is a send.
		s, err := rank.Isend(c, in, c.Rank(), 3)
		if err != nil {
			return err
		}
		if err := s.Cancel(); err != nil {
			return err
		}
		if _, err := rank.Recv(ctx, c, in, c.Rank(), 3); err != nil {
			return err
		}
		st, err := s.Wait(ctx)
		if err == nil && st.Cancelled {
			err = errors.New("a send was cancelled")
		}
		return err
	})
}

// A request that its context ended can be waited for again.
func TestWaitAgain(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		b := make([]byte, 100000)
		var q rank.Request
		var err error
		if c.Rank() == 0 {
			q, err = rank.Isend(c, letter(b, 0, 1, 1), 1, 1)
		} else {
			q, err = rank.Irecv(c, b, 0, 1)
		}
		if err != nil {
			return err
		}
		if _, err := q.Wait(ended); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		return checkLetter(b, 0, 1, 1)
	})
}

// Requests whose outcome nobody asks for end by themselves, at the latest in Finalize.
func TestFreedRequests(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 4}, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for i, n := range lengths {
			q, err := rank.Isend(c, letter(make([]byte, n), c.Rank(), i, 0), next, i)
			if err != nil {
				return err
			}
			if err := q.Free(); err != nil {
				return err
			}
			if _, err := q.Wait(ctx); err != nil { // null
				return err
			}
			if q, err = rank.Irecv(c, make([]byte, 1), before, 1000); err != nil { // nobody sends that
				return err
			}
			if err := q.Free(); err != nil {
				return err
			}
		}
		for i, n := range lengths {
			b := make([]byte, n)
			if _, err := rank.Recv(ctx, c, b, before, i); err != nil {
				return err
			}
			if err := checkLetter(b, before, i, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestProcNull(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2}, func(ctx context.Context, c *rank.Comm) error {
		b := []int32{1, 2, 3}
		want := rank.Status{Source: rank.ProcNull, Tag: rank.AnyTag}
		var got [7]rank.Status
		var errs [9]error
		errs[0] = rank.Send(ctx, c, b, rank.ProcNull, 0)
		got[0], errs[1] = rank.Recv(ctx, c, b, rank.ProcNull, 0)
		got[1], errs[2] = rank.Sendrecv(ctx, c, b, rank.ProcNull, 0, make([]int32, 3), rank.ProcNull, 0)
		q, err := rank.Irecv(c, b, rank.ProcNull, rank.AnyTag)
		errs[3] = err
		got[2], errs[4] = q.Wait(ctx)
		got[3], errs[5] = rank.Probe(ctx, c, rank.ProcNull, 0)
		m, st, err := rank.Mprobe(ctx, c, rank.ProcNull, 0)
		got[4], errs[6] = st, err
		got[5], errs[7] = rank.Mrecv(ctx, m, b)
		// One side of a shift at the edge.
		left, right := c.Rank()-1, c.Rank()+1
		if left < 0 {
			left = rank.ProcNull
		}
		if right == c.Size() {
			right = rank.ProcNull
		}
		in := []int32{-1}
		got[6], errs[8] = rank.Sendrecv(ctx, c, []int32{int32(c.Rank())}, right, 0, in, left, 0)
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
		if c.Rank() > 0 {
			if in[0] != int32(left) || got[6] != (rank.Status{Source: left, Count: 1, Bytes: 4}) {
				return fmt.Errorf("shift: %v, %+v", in, got[6])
			}
			got[6] = want
		}
		for i := range got {
			if got[i] != want {
				return fmt.Errorf("status %d: %+v, want %+v", i, got[i], want)
			}
		}
		if b[0] != 1 || b[2] != 3 {
			return fmt.Errorf("ProcNull has written %v", b)
		}
		return nil
	})
}

func TestSendrecvReplace(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, manySizes, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for round, n := range lengths {
			b, err := make1[byte](c, n, round)
			if err != nil {
				return err
			}
			letter(b, c.Rank(), round, n)
			st, err := rank.SendrecvReplace(ctx, c, b, next, round, before, rank.AnyTag)
			if err != nil {
				return err
			}
			if want := (rank.Status{Source: before, Tag: round, Count: n, Bytes: n}); st != want {
				return fmt.Errorf("status %+v, want %+v", st, want)
			}
			if err := checkLetter(b, before, round, n); err != nil {
				return err
			}
		}
		return nil
	})
}

// Probes find what a receive would take, and a matched one keeps it from others.
func TestProbes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 4}, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() > 0 {
			for i, n := range lengths {
				q, err := rank.Isend(c, letter(make([]byte, n), c.Rank(), 5, i), 0, 5)
				if err != nil {
					return err
				}
				if err := q.Free(); err != nil {
					return err
				}
			}
			return nil
		}
		rnd := rand.New(rand.NewPCG(1, uint64(c.Size())))
		got := make([]int, c.Size())
		type held struct {
			m           rank.Message
			src, number int
		}
		var later []held
		for range len(lengths) * (c.Size() - 1) {
			way := rnd.IntN(4)
			st, err := rank.Probe(ctx, c, rank.AnySource, 5)
			if err != nil {
				return err
			}
			if other, found, err := rank.Iprobe(c, st.Source, st.Tag); err != nil || !found || other != st {
				return fmt.Errorf("iprobe after probe: %+v, %v, %v; want %+v", other, found, err, st)
			}
			number := got[st.Source]
			got[st.Source]++
			if want := lengths[number]; st.Tag != 5 || st.Bytes != want || st.Count != want {
				return fmt.Errorf("probe: %+v, want message %d of %d bytes", st, number, want)
			}
			b := make([]byte, st.Count)
			switch way {
			case 0:
				if _, err := rank.Recv(ctx, c, b, st.Source, st.Tag); err != nil {
					return err
				}
				if err := checkLetter(b, st.Source, 5, number); err != nil {
					return err
				}
				continue
			case 1:
				m, other, found, err := rank.Improbe(c, st.Source, 5)
				if err != nil || !found || other != st {
					return fmt.Errorf("improbe after probe: %+v, %v, %v", other, found, err)
				}
				later = append(later, held{m, st.Source, number})
				continue
			}
			m, other, err := rank.Mprobe(ctx, c, st.Source, 5)
			if err != nil || other != st {
				return fmt.Errorf("mprobe after probe: %+v, %v", other, err)
			}
			later = append(later, held{m, st.Source, number})
		}
		if _, found, err := rank.Iprobe(c, rank.AnySource, rank.AnyTag); found || err != nil {
			return fmt.Errorf("iprobe of nothing: %v, %v", found, err)
		}
		rnd.Shuffle(len(later), func(i, j int) { later[i], later[j] = later[j], later[i] })
		for i, h := range later {
			b := make([]byte, lengths[h.number])
			var st rank.Status
			var err error
			if i%2 == 0 {
				st, err = rank.Mrecv(ctx, h.m, b)
			} else {
				var q rank.Request
				if q, err = rank.Imrecv(h.m, b); err == nil {
					st, err = q.Wait(ctx)
				}
			}
			if err != nil {
				return err
			}
			if want := (rank.Status{Source: h.src, Tag: 5, Count: len(b), Bytes: len(b)}); st != want {
				return fmt.Errorf("mrecv: %+v, want %+v", st, want)
			}
			if err := checkLetter(b, h.src, 5, h.number); err != nil {
				return err
			}
			if _, err := rank.Mrecv(ctx, h.m, b); !errors.Is(err, rank.ClassRequest) {
				return fmt.Errorf("the same message again: %v", err)
			}
		}
		if _, err := rank.Mrecv(ctx, rank.Message{}, []byte{}); !errors.Is(err, rank.ClassRequest) {
			return fmt.Errorf("the zero message: %v", err)
		}
		return nil
	})
}

// A buffered send needs a buffer, and no more than what it has.
func TestBufferQuota(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		w := c.World()
		long := make([]byte, 100000)
		if c.Rank() == 1 {
			for range 3 {
				if _, err := rank.Recv(ctx, c, long, 0, 1); err != nil {
					return err
				}
			}
			return checkLetter(long, 0, 1, 2)
		}
		if err := rank.Bsend(ctx, c, long, 1, 1); !errors.Is(err, rank.ErrBuffer) || !errors.Is(err, rank.ClassBuffer) {
			return fmt.Errorf("without a buffer: %v", err)
		}
		if _, err := w.DetachBuffer(ctx); !errors.Is(err, rank.ClassBuffer) {
			return fmt.Errorf("detach nothing: %v", err)
		}
		if err := w.AttachBuffer(200000); err != nil {
			return err
		}
		if err := w.AttachBuffer(1); !errors.Is(err, rank.ClassBuffer) {
			return fmt.Errorf("attach a second buffer: %v", err)
		}
		if _, err := rank.Ibsend(c, make([]byte, 200001), 1, 1); !errors.Is(err, rank.ErrBuffer) {
			return fmt.Errorf("more than the buffer: %v", err)
		}
		for i := range 3 {
			for {
				// The memory is the program's at once.
				err := rank.Bsend(ctx, c, letter(long, 0, 1, i), 1, 1)
				if err == nil {
					break
				}
				if !errors.Is(err, rank.ErrBuffer) {
					return err
				}
				if _, _, err := rank.Iprobe(c, 1, 7); err != nil { // moves things on
					return err
				}
			}
			clear(long)
		}
		_, err := w.DetachBuffer(ctx)
		return err
	})
}

// Several calls at a time fail, and started ones may be many.
func TestTruncationNamesTheRequest(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		const n = 40000
		peer := 1 - c.Rank()
		var reqs []rank.Request
		var in [4][]byte
		for i := range in {
			in[i] = make([]byte, n)
			if i == 2 {
				in[i] = in[i][:n/2]
			}
			q, err := rank.Irecv(c, in[i], peer, i)
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
		for i := range in {
			q, err := rank.Isend(c, letter(make([]byte, n), c.Rank(), i, 0), peer, i)
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
		err := rank.WaitAll(ctx, reqs, nil)
		failed, ok := errors.AsType[*rank.RequestError](err)
		if !ok || len(failed.Index) != 1 || failed.Index[0] != 2 || failed.Pending != 0 || !errors.Is(err, rank.ClassInStatus) {
			return fmt.Errorf("error %#v", err)
		}
		te, ok := errors.AsType[*rank.TruncateError](err)
		if e, named := errors.AsType[*rank.Error](err); !ok || !named || te.Message != n || te.Buffer != n/2 || e.Peer != peer || e.Op != "irecv" {
			return fmt.Errorf("error %v", err)
		}
		for i, b := range in {
			if err := checkLetter(b, peer, i, 0); err != nil {
				return err
			}
		}
		return nil
	})
}
