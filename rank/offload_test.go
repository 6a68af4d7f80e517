package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// offloadLengths are the calls of program "offload", which lets the daemon have those of offloadFrom bytes and more.
var offloadLengths = []int{8, 4088, 4096, 100 << 10}

const offloadFrom = 4096

func init() {
	programs["offload"] = func() {
		w, err := rank.Init(context.Background(), rank.Config{Offload: true, OffloadFrom: offloadFrom})
		if err == nil {
			err = offload(context.Background(), w.Comm())
		}
		if err == nil {
			err = w.Finalize(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	for name, verbs := range map[string]bool{"offload stays": false, "offload stays on a device": true} {
		programs[name] = func() {
			w, err := rank.Init(context.Background(), rank.Config{OffloadFrom: -1, Verbs: verbs, Verbose: true, Log: func(line string) {
				if reason, is := strings.CutPrefix(line, "a started collective is not offloaded: "); is {
					fmt.Println(reason)
				}
			}})
			if err == nil {
				err = stays(context.Background(), w.Comm())
			}
			if err == nil {
				err = w.Finalize(context.Background())
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	programs["offload kinds"] = func() {
		w, err := rank.Init(context.Background(), rank.Config{Offload: true, OffloadFrom: -1})
		if err == nil {
			err = offloadKinds(context.Background(), w.Comm())
		}
		if err == nil {
			err = w.Finalize(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	programs["offload asks"] = func() {
		_, err := rank.Init(context.Background(), rank.Config{Offload: true})
		fmt.Println(err)
	}
	programs["offload from -2"] = func() {
		_, err := rank.Init(context.Background(), rank.Config{OffloadFrom: -2})
		fmt.Println(err)
	}
}

// offload starts a sum of each length, and prints after each how many calls the daemon has run.
func offload(ctx context.Context, c *rank.Comm) error {
	for _, n := range offloadLengths {
		in, err := rank.Alloc[int64](c, n/8)
		if err != nil {
			return err
		}
		out, err := rank.Alloc[int64](c, n/8)
		if err != nil {
			return err
		}
		in[n/8-1] = int64(c.Rank() + 1)
		q, err := rank.Iallreduce(c, in, out, rank.Sum)
		if err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		if want := int64(c.Size() * (c.Size() + 1) / 2); out[n/8-1] != want {
			return fmt.Errorf("the sum of %d bytes ends with %d, want %d", n, out[n/8-1], want)
		}
		if c.Rank() == 0 {
			fmt.Println(n, c.World().Counters().Collective.Offloaded)
		}
	}
	return nil
}

// stays starts calls that no daemon runs: on ordinary memory, by a function of the program, and of parts that differ.
func stays(ctx context.Context, c *rank.Comm) error {
	ordinary, got := make([]int64, 4), make([]int64, 4)
	in, err := rank.Alloc[int64](c, 4)
	if err != nil {
		return err
	}
	out, err := rank.Alloc[int64](c, 4)
	if err != nil {
		return err
	}
	most := rank.OpFunc("most", true, func(dst, a, b []int64) {
		for i := range dst {
			dst[i] = max(a[i], b[i])
		}
	})
	counts, places := []int{2, 2}, []int{0, 2}
	for _, start := range []func() (rank.Request, error){
		func() (rank.Request, error) { return rank.Iallreduce(c, ordinary, got, rank.Sum) },
		func() (rank.Request, error) { return rank.Iallreduce(c, in, out, most) },
		func() (rank.Request, error) { return rank.Ialltoallv(c, in, counts, places, out, counts, places) },
	} {
		for i := range in {
			in[i], ordinary[i] = int64(c.Rank()), int64(c.Rank())
		}
		q, err := start()
		if err == nil {
			_, err = q.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	if want := []int64{0, 0, 1, 1}; !slices.Equal(out, want) || !slices.Equal(got, []int64{1, 1, 1, 1}) {
		return fmt.Errorf("the sums are %v, and the parts %v, want 1 and %v", got, out, want)
	}
	fmt.Println("by the daemon:", c.World().Counters().Collective.Offloaded)
	return nil
}

// A call that the daemon cannot run stays with its ranks, and gorun -v says why.
func TestOffloadSaysWhyCallsStay(t *testing.T) {
	testenv.NoLeaks(t)
	const counted = "by the daemon: 0\n" + "by the daemon: 0\n"
	for program, want := range map[string]string{
		"offload stays": "its memory is ordinary; rank.Alloc gives memory that the daemon reaches\n" +
			"its reduction is a function of the program\n" +
			"its parts differ in length\n" + counted,
		"offload stays on a device": "its communicator has ranks whose memory is not mapped: they are on several hosts, or a device is named (-d)\n" + counted,
	} {
		j := &job{program: program, hosts: []int{2}, offload: 1}
		j.start(t)
		if got := j.done(t); got != want {
			t.Errorf("%s: the ranks say\n%swant\n%s", program, got, want)
		}
	}
}

// offloadKinds starts each kind of call on the world and on a half of it, all at the same time, waits for the last one
// first, and for one within a context that has ended, which leaves it going. Then it does so again, and counts who has run them.
func offloadKinds(ctx context.Context, c *rank.Comm) error {
	half, err := c.Split(ctx, c.Rank()%2, c.Rank())
	if err != nil {
		return err
	}
	const n = 6 // elements a rank
	for round := range 2 {
		before := c.World().Counters().Collective.Offloaded
		var requests []rank.Request
		var checks []func() error
		for _, on := range []*rank.Comm{c, half} {
			mine, size := on.Rank(), on.Size()
			buffer := func(blocks int, value func(i int) int64) []int64 {
				b, e := rank.Alloc[int64](on, blocks*n)
				err = errors.Join(err, e)
				for i := range b {
					b[i] = value(i)
				}
				return b
			}
			start := func(kind string, q rank.Request, e error, got []int64, want func(i int) int64) {
				err = errors.Join(err, e)
				requests = append(requests, q)
				checks = append(checks, func() error {
					for i, v := range got {
						if v != want(i) {
							return fmt.Errorf("round %d, %s of %d ranks: element %d is %d, want %d", round, kind, size, i, v, want(i))
						}
					}
					return nil
				})
			}
			rankAndElement := func(i int) int64 { return int64(100*mine + i) }
			nothing := func(int) int64 { return -1 }
			sum := func(i int) int64 { return int64(100*size*(size-1)/2 + size*i) }

			in, out := buffer(1, rankAndElement), buffer(1, nothing)
			q, e := rank.Iallreduce(on, in, out, rank.Sum)
			start("iallreduce", q, e, out, sum)
			in, out = buffer(size, rankAndElement), buffer(size, nothing)
			q, e = rank.Ialltoall(on, in, out)
			start("ialltoall", q, e, out, func(i int) int64 { return int64(100*(i/n) + mine*n + i%n) })
			from := buffer(1, func(i int) int64 { return int64(mine + i) })
			q, e = rank.Ibcast(on, from, size-1)
			start("ibcast", q, e, from, func(i int) int64 { return int64(size - 1 + i) })
			in, out = buffer(1, rankAndElement), buffer(size, nothing)
			q, e = rank.Iallgather(on, in, out)
			start("iallgather", q, e, out, func(i int) int64 { return int64(100*(i/n) + i%n) })
			in, out = buffer(size, rankAndElement), buffer(1, nothing)
			q, e = rank.IreduceScatterBlock(on, in, out, rank.Sum)
			start("ireduce_scatter", q, e, out, func(i int) int64 { return sum(mine*n + i) })
			in, out = buffer(1, rankAndElement), buffer(1, nothing)
			q, e = rank.AllreduceInit(on, in, out, rank.Sum)
			if e == nil {
				e = q.Start()
			}
			start("a persistent allreduce", q, e, out, sum)
			if err != nil {
				return err
			}
		}
		over, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := requests[0].Wait(over); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("a wait in a context that has ended: %w", err)
		}
		for i, q := range slices.Backward(requests) {
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
			if err := checks[i](); err != nil {
				return err
			}
		}
		// In the first round calls that need scratch memory stay, behind others that the daemon has: it grows between calls only.
		if got := c.World().Counters().Collective.Offloaded - before; round > 0 && got != uint64(len(requests)) {
			return fmt.Errorf("the daemon has run %d of %d calls", got, len(requests))
		}
	}
	return nil
}

// The daemon runs every kind of call, and its persistent form, on communicators of the world and of a part of it,
// six at a time on each.
func TestOffloadRunsEveryKind(t *testing.T) {
	testenv.NoLeaks(t)
	for threads := 1; threads <= 2; threads++ {
		t.Run(fmt.Sprint("threads=", threads), func(t *testing.T) {
			j := &job{program: "offload kinds", hosts: []int{4}, offload: threads}
			j.start(t)
			if got := j.done(t); got != "" {
				t.Error(got)
			}
		})
	}
}

// Config.OffloadFrom is the length from which the daemon gets calls, and not below.
func TestOffloadFrom(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "offload", hosts: []int{2}, offload: 1}
	j.start(t)
	if got, want := j.done(t), "8 0\n4088 0\n4096 1\n102400 2\n"; got != want {
		t.Errorf("lengths and calls of the daemon:\n%swant\n%s", got, want)
	}
	if !j.segs[0].Used(2) {
		t.Error("the daemon has not said that it was given calls")
	}
	refused := &job{program: "offload from -2", hosts: []int{2}, offload: 1}
	refused.start(t)
	for r := range 2 {
		refused.until(t, r, "Config.OffloadFrom is -2: expected a number of bytes, 0 or -1")
		refused.wait(t, r)
	}
}

// Config.Offload needs gorun: another launcher has no daemon, and Init says so.
func TestOffloadNeedsGorun(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "offload asks", hosts: []int{2}, foreign: true}
	j.start(t)
	for r := range 2 {
		j.until(t, r, "Config.Offload: found another launcher, expected gorun, which starts the daemon")
		j.wait(t, r)
	}
}
