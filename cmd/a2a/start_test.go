package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher"
)

// rankVariable has the test's binary be a2a.
const rankVariable = "A2A_TEST_RANK"

func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) != "" {
		main()
	}
	os.Exit(m.Run())
}

// started runs a2a as a job of processes and gives its results.
func started(t testing.TB, ranks int, args ...string) (r results) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out, errOut bytes.Buffer
	result, err := launcher.Run(testenv.Deadline(t, time.Minute), launcher.Job{
		Argv: append([]string{self, "--print", "none", "--output-json", "-", "-w", "0"}, args...), NP: ranks,
		Env: append(os.Environ(), rankVariable+"=1"), Stdout: &out, Stderr: &errOut})
	if err != nil || result.ExitStatus != 0 {
		t.Fatalf("%d ranks, %q: %v, result %+v\n%s", ranks, args, err, result, errOut.String())
	}
	text := out.Bytes()
	if err := json.Unmarshal(text[bytes.IndexByte(text, '{'):], &r); err != nil {
		t.Fatalf("%d ranks, %q: %v in %s", ranks, args, err, text)
	}
	return r
}

// What setting up and the first call take is held by counts, which do not depend on how
// busy the machine is: no rank sleeps until a time is over while what it waits for is
// there, and no letter has to be repeated. A rank that loses its CPU behind what another waits for, before it
// wakes that one, looks the same, so the least of three runs counts. Worlds of up to 16 ranks connect by what their
// cards say, and send no datagram. In others each pair of ranks that a call needs takes
// four letters, which answer each other, for its connection, unless a CPU has more than eight ranks. An answer without a letter, and
// a letter that is sent again though the first has arrived, make a few more.
func TestStartTakesNoTimer(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		ranks int
		args  []string
	}{{2, nil}, {4, nil}, {4, []string{"-d", "soft0"}}, {8, nil}, {16, nil}, {24, nil}} {
		t.Run(fmt.Sprintf("%d ranks %v", c.ranks, c.args), func(t *testing.T) {
			args := append([]string{"-i", "0", "-m", fmt.Sprint(8 * c.ranks)}, c.args...)
			s := started(t, c.ranks, args...).Start
			for tries := 1; s.Overslept != 0 && tries < 3; tries++ {
				s = started(t, c.ranks, args...).Start
			}
			pairs := uint64(c.ranks * (c.ranks - 1) / 2)
			if c.ranks <= 16 || c.ranks > 8*topo.CPUs() {
				pairs = 0
			}
			if s.Overslept != 0 || s.Late != 0 || s.Datagrams < 2*pairs || s.Datagrams > 8*pairs {
				t.Errorf("%+v: want nothing overslept or late, and some 4 datagrams for each of %d pairs", s, pairs)
			}
		})
	}
}

// In the steady state a rank gives its CPU up a few times a call at most: to the ranks
// that it waits for, where these share CPUs, some 0.6 times on two CPUs, and to other
// programs, where there are any: up to 9 times were seen. Now and then it was 55: while another program has the CPU of a rank, those
// that wait for it give theirs to each other all the time. So the least of some runs counts.
func TestSteadyStateSwitchesSeldom(t *testing.T) {
	testenv.NoLeaks(t)
	for _, ranks := range []int{2, 4} {
		var switches []float64
		for len(switches) < 5 && (switches == nil || slices.Min(switches) > 40) {
			switches = append(switches, started(t, ranks, "-i", "2000", "-m", fmt.Sprint(8*ranks)).Steady.Switches)
		}
		if slices.Min(switches) > 40 {
			t.Errorf("%d ranks: %.1f context switches of a rank in a call, want some 1 and 40 at most in one of the runs", ranks, switches)
		}
	}
}

// BenchmarkStart reports the times of setting up and of the first call.
func BenchmarkStart(b *testing.B) {
	for _, ranks := range []int{4, 8, 16} {
		b.Run(fmt.Sprintf("%dranks", ranks), func(b *testing.B) {
			var setUp, first, sleeps float64
			for range b.N {
				r := started(b, ranks, "-i", "0", "-m", fmt.Sprint(8*ranks))
				setUp, first, sleeps = setUp+r.SetUp, first+r.First, sleeps+float64(r.Start.Sleeps)
			}
			b.ReportMetric(setUp/float64(b.N)/1e3, "ms/set-up")
			b.ReportMetric(first/float64(b.N)/1e3, "ms/first-call")
			b.ReportMetric(sleeps/float64(b.N), "sleeps/start")
		})
	}
}
