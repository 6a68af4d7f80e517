package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// odd are parameters whose sums tell which of them are in it.
var odd = Params{
	Memory:  Link{Latency: 1_000_003, Overhead: 50_021, Gap: 7, PerByte: 51},
	Network: Link{Latency: 30_000_017, Overhead: 200_003, Gap: 11, PerByte: 43},
	Copy:    13, Reduce: 29,
}

func call(kind coll.Kind, a coll.Algorithm, bytes int) coll.Call {
	c := coll.Call{Kind: kind, Algorithm: a, Bytes: bytes, Elem: 1}
	switch kind {
	case coll.AllReduce, coll.Reduce, coll.ReduceScatter, coll.Scan, coll.ExScan:
		c.Elem = 8
	}
	return c
}

func mustRun(t *testing.T, cfg Config, c coll.Call) Result {
	t.Helper()
	r, err := Run(cfg, c)
	if err != nil {
		t.Fatalf("%+v on %d hosts of %d ranks: %v", c, cfg.Hosts, cfg.PerHost, err)
	}
	return r
}

// Plans whose time LogGP has a formula for, one rank a host and many on one.
func TestTimesAreThoseOfTheFormulas(t *testing.T) {
	const bytes = 96
	log2 := func(n int) (k Time) {
		for 1<<k < n {
			k++
		}
		return k
	}
	// hop is a message from the sender's CPU to the end of the receiver's; of ranks on one host
	// the CPU is the port.
	hop := func(l Link, n int) Time { return 2*l.Overhead + l.Latency + Time(n+coll.HeaderBytes)*l.PerByte }
	for _, one := range []bool{false, true} {
		l := odd.Network
		if one {
			l = odd.Memory
		}
		for _, c := range []struct {
			name  string
			call  coll.Call
			ranks []int
			want  func(n int) Time
		}{
			{"dissemination", call(coll.Barrier, coll.Dissemination, 0), []int{2, 3, 8, 13, 64}, func(n int) Time { return log2(n) * hop(l, 0) }},
			{"recursive doubling", call(coll.AllReduce, coll.RecursiveDoubling, bytes), []int{2, 4, 16, 64}, func(n int) Time {
				return log2(n) * (hop(l, bytes) + bytes*odd.Reduce)
			}},
			// Portions go around twice: combined on the first way, copied on the second.
			{"ring", call(coll.AllReduce, coll.Ring, bytes), []int{2, 3, 4}, func(n int) Time {
				part := bytes / n
				return Time(n-1) * (2*hop(l, part) + Time(part)*(odd.Reduce+odd.Copy))
			}},
			// A CPU sends its blocks one after the other and takes them in so. It waits for the
			// first, or for the last, or for none.
			{"direct all-to-all", call(coll.AllToAll, coll.Direct, bytes), []int{2, 3, 7, 16}, func(n int) Time {
				way := Time(bytes+coll.HeaderBytes) * l.PerByte
				sends, first, takes := l.Overhead, l.Overhead+way+l.Latency, l.Overhead+bytes*odd.Copy
				if one {
					sends += way
				}
				others := Time(n - 1)
				return max(first+others*takes, first+(others-1)*sends+takes, others*sends+bytes*odd.Copy+others*takes)
			}},
		} {
			for _, n := range c.ranks {
				cfg := Config{Hosts: n, PerHost: 1, Params: odd}
				if one {
					cfg.Hosts, cfg.PerHost = 1, n
				}
				if got, want := mustRun(t, cfg, c.call).Time, c.want(n); got != want {
					t.Errorf("%s, %d ranks, on one host %v: %d ps, the formula gives %d", c.name, n, one, got, want)
				}
			}
		}
	}
}

// Two ranks share their host's port, and messages of one host to another wait for it at both ends.
func TestRanksOfAHostShareItsPort(t *testing.T) {
	p := odd
	p.Network.PerByte = 100_000 // the port takes longest
	const bytes = 64
	c := call(coll.AllToAll, coll.Direct, bytes)
	slow := mustRun(t, Config{Hosts: 2, PerHost: 4, Params: p}, c).Time
	each := (bytes + coll.HeaderBytes) * p.Network.PerByte
	if least := 16 * each; slow < least {
		t.Errorf("16 messages leave a host in %d ps, its port takes %d for them", slow, least)
	}
}

// One host's members that stand for all have their times, to the picosecond, and the messages
// of all are theirs times the hosts.
func TestOneHostStandsForAll(t *testing.T) {
	for _, c := range []coll.Call{
		call(coll.Barrier, coll.Dissemination, 0),
		call(coll.Barrier, coll.Direct, 0),
		call(coll.AllToAll, coll.Direct, 64),
		call(coll.AllToAll, coll.Direct, 20000),
		call(coll.AllToAll, coll.Bruck, 64),
		call(coll.AllToAll, coll.Pull, 20000),
		call(coll.AllGather, coll.Ring, 3000),
		call(coll.AllReduce, coll.TwoLevel, 8),
		call(coll.AllReduce, coll.TwoLevel, 4096),
	} {
		for _, shape := range [][2]int{{2, 1}, {2, 3}, {4, 4}, {16, 1}, {8, 8}, {64, 2}} {
			for _, p := range []Params{odd, Slingshot(), InfiniBand()} {
				cfg := Config{Hosts: shape[0], PerHost: shape[1], Params: p}
				few := mustRun(t, cfg, c)
				cfg.All = true
				all := mustRun(t, cfg, c)
				ranks := shape[0] * shape[1]
				if few.Simulated != shape[1] || few.Compared != ranks-shape[1] || all.Simulated != ranks {
					t.Errorf("%v by %v on %v: %d ranks simulated, %d compared, and %d of all", c.Kind, c.Algorithm, shape, few.Simulated, few.Compared, all.Simulated)
				}
				for r, end := range all.Ends {
					if want := few.Ends[r%few.Simulated]; end != want {
						t.Errorf("%v by %v on %v: rank %d ends at %d ps, the one that stands for it at %d", c.Kind, c.Algorithm, shape, r, end, want)
						break
					}
				}
				if few.Counters != all.Counters {
					t.Errorf("%v by %v on %v: counters %+v, of all ranks %+v", c.Kind, c.Algorithm, shape, few.Counters, all.Counters)
				}
			}
		}
	}
}

// Where a rank has a part of its own, no other stands for it.
func TestRootsStandForThemselves(t *testing.T) {
	r := mustRun(t, Config{Hosts: 4, PerHost: 2, Params: odd}, call(coll.Bcast, coll.Binomial, 64))
	if r.Simulated != 8 {
		t.Errorf("%d ranks stand for 8 in a broadcast", r.Simulated)
	}
}

// A run gives the same result again.
func TestRunsRepeat(t *testing.T) {
	for _, c := range []coll.Call{call(coll.AllToAll, coll.Auto, 512), call(coll.AllReduce, coll.ReduceScatterGather, 1<<20), call(coll.Bcast, coll.Auto, 1<<16)} {
		cfg := Config{Hosts: 8, PerHost: 4, Params: InfiniBand(), All: true}
		first := mustRun(t, cfg, c)
		for range 3 {
			if again := mustRun(t, cfg, c); !reflect.DeepEqual(again, first) {
				t.Fatalf("%v: %+v, and again %+v", c.Kind, first, again)
			}
		}
	}
}

// More of a parameter takes no less time.
func TestTimesAreMonotone(t *testing.T) {
	for _, c := range []coll.Call{
		call(coll.Barrier, coll.Auto, 0),
		call(coll.AllReduce, coll.Auto, 8), call(coll.AllReduce, coll.Auto, 1<<16), call(coll.AllReduce, coll.Ring, 1<<16),
		call(coll.AllToAll, coll.Auto, 8), call(coll.AllToAll, coll.Auto, 4096),
	} {
		base := mustRun(t, Config{Hosts: 8, PerHost: 4, Params: Slingshot()}, c).Time
		for i := range 10 {
			p := Slingshot()
			v := []*Time{&p.Memory.Latency, &p.Memory.Overhead, &p.Memory.Gap, &p.Memory.PerByte, &p.Network.Latency, &p.Network.Overhead,
				&p.Network.Gap, &p.Network.PerByte, &p.Copy, &p.Reduce}[i]
			*v = 10*(*v) + 1
			if got := mustRun(t, Config{Hosts: 8, PerHost: 4, Params: p}, c).Time; got < base {
				t.Errorf("%v of %d bytes: parameter %d is 10 times as much, and the time %d ps, less than %d", c.Kind, c.Bytes, i, got, base)
			}
		}
	}
}

// The data that the plans move is right, on every placement: the simulator does what they say.
func TestDataIsRight(t *testing.T) {
	add := func(dst, a, b []byte) {
		for i := 0; i < len(dst); i += 8 {
			binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(a[i:])+binary.LittleEndian.Uint64(b[i:]))
		}
	}
	for _, kind := range []coll.Kind{coll.Barrier, coll.AllReduce, coll.AllToAll, coll.AllGather, coll.ReduceScatter, coll.Scan, coll.Bcast, coll.Gather} {
		for _, a := range append(coll.Algorithms(kind), coll.Auto) {
			for _, shape := range [][2]int{{1, 5}, {2, 4}, {5, 3}, {13, 1}, {16, 16}} {
				for _, n := range []int{8, 200, 20000} {
					ranks := shape[0] * shape[1]
					if ranks > 20 && (n > 200 || a != coll.Auto) {
						continue
					}
					t.Run(fmt.Sprintf("%v/%v/%dx%d/%d", kind, a, shape[0], shape[1], n), func(t *testing.T) {
						c := call(kind, a, n)
						if kind == coll.Barrier {
							c.Bytes = 0
						}
						rng := rand.New(rand.NewPCG(1, uint64(n)))
						cfg := Config{Hosts: shape[0], PerHost: shape[1], Params: odd, Output: ranks * n, Combine: add}
						for range ranks {
							in := make([]byte, ranks*n)
							for i := range in {
								in[i] = byte(rng.Uint32())
							}
							cfg.Inputs = append(cfg.Inputs, in)
						}
						if kind == coll.Bcast { // the vector is in the receive buffer
							cfg.Vectors = true
						}
						r := mustRun(t, cfg, c)
						for rank, out := range r.Outputs {
							if want := expected(c, cfg.Inputs, rank, add); !bytes.Equal(out[:len(want)], want) {
								t.Fatalf("rank %d of %d has other bytes than it should, from %x, want %x", rank, ranks, out[:8], want[:8])
							}
						}
						cfg.Inputs = nil
						if dry := mustRun(t, cfg, c); dry.Time != r.Time || dry.Counters != r.Counters {
							t.Errorf("%d ps without data, %d with; counters %+v and %+v", dry.Time, r.Time, dry.Counters, r.Counters)
						}
					})
				}
			}
		}
	}
}

// expected is a rank's result by the words of MPI.
func expected(c coll.Call, in [][]byte, rank int, add func(dst, a, b []byte)) (want []byte) {
	n := c.Bytes
	sum := func(ranks, off int) []byte {
		total := append([]byte(nil), in[0][off:off+n]...)
		for _, v := range in[1:ranks] {
			add(total, total, v[off:off+n])
		}
		return total
	}
	switch c.Kind {
	case coll.AllReduce:
		return sum(len(in), 0)
	case coll.Scan:
		return sum(rank+1, 0)
	case coll.ReduceScatter:
		return sum(len(in), rank*n)
	case coll.Bcast:
		return in[0][:n]
	case coll.AllToAll:
		for _, v := range in {
			want = append(want, v[rank*n:(rank+1)*n]...)
		}
	case coll.Gather, coll.AllGather:
		if c.Kind == coll.Gather && rank != 0 {
			return nil
		}
		for _, v := range in {
			want = append(want, v[:n]...)
		}
	}
	return want
}

// The messages and bytes are those of ranks that make the call.
func TestCountersAreThoseOfRanks(t *testing.T) {
	testenv.NoLeaks(t)
	const n = 6
	for _, bytes := range []int{8, 4096, 40000} {
		for _, kind := range []coll.Kind{coll.Barrier, coll.AllReduce, coll.AllToAll} {
			var mu sync.Mutex
			var want coll.Counters
			ranktest.Run(t, n, func(ctx context.Context, c *rank.Comm) error {
				send, recv := make([]int64, n*bytes/8), make([]int64, n*bytes/8)
				before, err := c.World().Counters().Collective, error(nil)
				switch kind {
				case coll.Barrier:
					err = c.Barrier(ctx)
				case coll.AllReduce:
					err = rank.Allreduce(ctx, c, send[:bytes/8], recv[:bytes/8], rank.Sum)
				case coll.AllToAll:
					err = rank.Alltoall(ctx, c, send, recv)
				}
				after := c.World().Counters().Collective
				mu.Lock()
				defer mu.Unlock()
				want.Puts += after.Puts - before.Puts
				want.PutBytes += after.PutBytes - before.PutBytes
				want.Gets += after.Gets - before.Gets
				want.GetBytes += after.GetBytes - before.GetBytes
				want.Signals += after.Signals - before.Signals
				want.Descriptors += after.Descriptors - before.Descriptors
				want.CopyBytes += after.CopyBytes - before.CopyBytes
				want.UnpackBytes += after.UnpackBytes - before.UnpackBytes
				want.Reductions += after.Reductions - before.Reductions
				want.ReduceBytes += after.ReduceBytes - before.ReduceBytes
				return err
			})
			c := call(kind, coll.Auto, bytes)
			if kind == coll.Barrier { // these ranks share CPUs
				c.Bytes, c.Algorithm = 0, coll.Central
			}
			got := mustRun(t, Config{Hosts: 1, PerHost: n, Params: odd}, c)
			if got.Counters.Credits = 0; got.Counters != want {
				t.Errorf("%v of %d bytes: simulated %+v, ranks count %+v", kind, bytes, got.Counters, want)
			}
		}
	}
}

func TestRunRefuses(t *testing.T) {
	good := Config{Hosts: 2, PerHost: 2, Params: odd}
	still := good
	still.Network.Latency = 0
	for name, x := range map[string]struct {
		cfg  Config
		call coll.Call
	}{
		"no hosts":      {Config{PerHost: 1, Params: odd}, call(coll.Barrier, coll.Auto, 0)},
		"no latency":    {still, call(coll.Barrier, coll.Auto, 0)},
		"no algorithm":  {good, call(coll.Barrier, coll.Ring, 0)},
		"parts":         {good, call(coll.Exchange, coll.Auto, 0)},
		"half elements": {good, call(coll.AllReduce, coll.Auto, 12)},
	} {
		if _, err := Run(x.cfg, x.call); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
