package rank_test

import (
	"context"
	"fmt"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

const (
	// profileVariable names a file into which rank 0 of a benchmark writes a CPU profile.
	profileVariable = "RANK_TEST_PROFILE"
	// onlyVariable is the beginning of the names of the calls to measure.
	onlyVariable = "RANK_TEST_ONLY"
)

func init() { programs["bench"] = func() { rank.Main(measure) } }

// measure times each call on rank 0 and prints a line for each:
//
//	name: median p99 (ns)
func measure(ctx context.Context, c *rank.Comm) error {
	const small, large = 8, 64 << 10
	size, me := c.Size(), c.Rank()
	a, err := rank.Alloc[byte](c, size*large)
	if err != nil {
		return err
	}
	b, err := rank.Alloc[byte](c, size*large)
	if err != nil {
		return err
	}
	var counts, at []int // of the v forms
	for r := range size {
		counts, at = append(counts, small), append(at, r*small)
	}
	x, y := make([]float64, 1), make([]float64, 1)
	heapA, heapB := make([]byte, size*large), make([]byte, size*large)
	pingpong := func(a, b []byte) func() error {
		return func() error {
			switch me {
			case 0:
				if err := rank.Send(ctx, c, a, 1, 0); err != nil {
					return err
				}
				_, err := rank.Recv(ctx, c, b, 1, 0)
				return err
			case 1:
				if _, err := rank.Recv(ctx, c, b, 0, 0); err != nil {
					return err
				}
				return rank.Send(ctx, c, a, 0, 0)
			}
			return nil
		}
	}
	if file := os.Getenv(profileVariable); file != "" && me == 0 {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, m := range []struct {
		name  string
		calls int
		call  func() error
	}{
		{"alltoall 8 B", 20000, func() error { return rank.Alltoall(ctx, c, a[:small*size], b[:small*size]) }},
		{"alltoall 64 KiB", 500, func() error { return rank.Alltoall(ctx, c, a, b) }},
		{"alltoall 64 KiB, heap", 500, func() error { return rank.Alltoall(ctx, c, heapA, heapB) }},
		{"barrier", 20000, func() error { return rank.Barrier(ctx, c) }},
		{"allreduce 8 B", 20000, func() error { return rank.Allreduce(ctx, c, x, y, rank.Sum) }},
		{"gatherv 8 B", 20000, func() error { return rank.Gatherv(ctx, c, a[:small], b[:small*size], counts, at, 0) }},
		{"scatterv 8 B", 20000, func() error { return rank.Scatterv(ctx, c, a[:small*size], counts, at, b[:small], 0) }},
		{"scatter 8 B", 20000, func() error { return rank.Scatter(ctx, c, a[:small*size], b[:small], 0) }},
		{"allgatherv 8 B", 20000, func() error { return rank.Allgatherv(ctx, c, a[:small], b[:small*size], counts, at) }},
		{"alltoallv 8 B", 20000, func() error { return rank.Alltoallv(ctx, c, a[:small*size], counts, at, b[:small*size], counts, at) }},
		{"pingpong 8 B", 20000, pingpong(a[:small], b[:small])},
		{"pingpong 8 B, heap", 20000, pingpong(heapA[:small], heapB[:small])},
		{"pingpong 4032 B", 5000, pingpong(a[:4032], b[:4032])}, // the longest eager one
		{"pingpong 4 KiB", 5000, pingpong(a[:4096], b[:4096])},
		{"pingpong 4 KiB, heap", 5000, pingpong(heapA[:4096], heapB[:4096])},
		{"pingpong 64 KiB", 2000, pingpong(a[:large], b[:large])},
		{"pingpong 64 KiB, heap", 2000, pingpong(heapA[:large], heapB[:large])},
	} {
		if !strings.HasPrefix(m.name, os.Getenv(onlyVariable)) {
			continue
		}
		for range m.calls / 10 {
			if err := m.call(); err != nil {
				return err
			}
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		// In groups of 10, as a call is not much longer than reading the clock.
		samples := make([]float64, 0, m.calls/10)
		for range m.calls / 10 {
			start := time.Now()
			for range 10 {
				if err := m.call(); err != nil {
					return err
				}
			}
			samples = append(samples, float64(time.Since(start))/10)
		}
		slices.Sort(samples)
		if me == 0 {
			fmt.Printf("%s: %.0f %.0f\n", m.name, samples[len(samples)/2], samples[len(samples)*99/100])
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkProcesses measures calls between processes; a metric is the median,
// in nanoseconds (of a ping-pong: there and back).
func BenchmarkProcesses(b *testing.B) {
	for _, hosts := range [][]int{{2}, {4}, {1, 1}} {
		b.Run(strings.ReplaceAll(strings.Trim(fmt.Sprint(hosts), "[]"), " ", "+"), func(b *testing.B) {
			for b.Loop() {
				j := &job{program: "bench", hosts: hosts}
				j.start(b)
				report(b, j.done(b))
			}
		})
	}
}

func init() { programs["bench queue pairs"] = func() { onDevice(measureQueuePairs) } }

// onDevice runs f as a rank on device soft0, by name: all goes over queue pairs.
func onDevice(f func(ctx context.Context, c *rank.Comm) error) {
	ctx := context.Background()
	w, err := rank.Init(ctx, rank.Config{Devices: []string{"soft0"}})
	if err == nil {
		err = f(ctx, w.Comm())
	}
	if err == nil {
		err = w.Finalize(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// measureQueuePairs times messages over queue pairs on rank 0, the median of groups in
// nanoseconds: half a ping-pong, and a message of a stream from all other ranks to rank 0.
func measureQueuePairs(ctx context.Context, c *rank.Comm) error {
	const groups, calls, window = 300, 20, 64
	me := c.Rank()
	median := func(name string, per int, call func() error) error {
		samples := make([]float64, 0, groups)
		for i := range groups + groups/5 {
			start := time.Now()
			if err := call(); err != nil {
				return err
			}
			if i >= groups/5 {
				samples = append(samples, float64(time.Since(start))/float64(per))
			}
		}
		slices.Sort(samples)
		if me == 0 {
			fmt.Printf("%s: %.0f %.0f\n", name, samples[len(samples)/2], samples[len(samples)*9/10])
		}
		return rank.Barrier(ctx, c)
	}
	for _, bytes := range []int{8, 1024} {
		b := make([]byte, bytes)
		err := median(fmt.Sprintf("half ping-pong %d B", bytes), 2*calls, func() error {
			for range calls {
				if me == 0 {
					if err := rank.Send(ctx, c, b, 1, 0); err != nil {
						return err
					}
				}
				if me < 2 {
					if _, err := rank.Recv(ctx, c, b, 1-me, 0); err != nil {
						return err
					}
				}
				if me == 1 {
					if err := rank.Send(ctx, c, b, 0, 0); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		var requests [window]rank.Request
		err = median(fmt.Sprintf("stream %d B", bytes), window*(c.Size()-1), func() error {
			if me > 0 {
				for range window {
					if err := rank.Send(ctx, c, b, 0, 1); err != nil {
						return err
					}
				}
				_, err := rank.Recv(ctx, c, b[:0], 0, 2)
				return err
			}
			for from := 1; from < c.Size(); from++ {
				for i := range requests {
					var err error
					if requests[i], err = rank.Irecv(c, b, from, 1); err != nil {
						return err
					}
				}
				for i := range requests {
					if _, err := requests[i].Wait(ctx); err != nil {
						return err
					}
				}
			}
			for to := 1; to < c.Size(); to++ {
				if err := rank.Send(ctx, c, b[:0], to, 2); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// report makes metrics of a program's lines of a name, a median and a percentile.
func report(b *testing.B, out string) {
	b.Helper()
	for line := range strings.Lines(out) {
		name, numbers, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var median, high float64
		if _, err := fmt.Sscan(numbers, &median, &high); err != nil {
			b.Fatalf("%q: %v", line, err)
		}
		unit := strings.NewReplacer(" ", "_", ",", "").Replace(name)
		b.ReportMetric(median, unit+"-ns")
		b.ReportMetric(high, unit+"-high-ns")
	}
}

// BenchmarkQueuePairs measures messages over queue pairs between processes, as a ratio
// between two builds is of use: a metric is the median, in nanoseconds.
func BenchmarkQueuePairs(b *testing.B) {
	for _, hosts := range [][]int{{2}, {4}, {1, 1}} {
		b.Run(strings.ReplaceAll(strings.Trim(fmt.Sprint(hosts), "[]"), " ", "+"), func(b *testing.B) {
			for b.Loop() {
				j := &job{program: "bench queue pairs", hosts: hosts}
				j.start(b)
				report(b, j.done(b))
			}
		})
	}
}

// BenchmarkInit is the time from start to end of a job that joins and leaves.
func BenchmarkInit(b *testing.B) {
	for _, n := range []int{1, 2, 4, 16, 64, 300} {
		b.Run(fmt.Sprintf("np=%d", n), func(b *testing.B) {
			for b.Loop() {
				j := &job{program: "nothing", hosts: []int{n}}
				j.start(b)
				j.done(b)
			}
		})
	}
}

func init() {
	programs["nothing"] = func() { rank.Main(func(context.Context, *rank.Comm) error { return nil }) }
}
