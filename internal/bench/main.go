// Bench prints how gorun's main job compares with the MPIs of this machine:
// the launch of `true`, and the steady state of an all-to-all. Every figure is
// a ratio of runs taken in turn (A B A B ...) in one session, because machines
// are shared and drift; it gives the median of the pairs' ratios and their
// spread. `make bench` runs it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// runLimit bounds one run of any command: a peer may hang.
const runLimit = 30 * time.Second

func main() {
	pairs := flag.Int("pairs", 7, "how often each pair of commands is run")
	flag.Parse()
	if err := run(*pairs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// A contender is one way to do a thing; time gives the figure of one run.
type contender struct {
	name string
	time func() (float64, error)
}

func run(pairs int) error {
	dir, err := os.MkdirTemp("", "gorun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	mpich, errMPICH := newMPI("mpich", dir, "mpiexec.mpich", "mpicc.mpich", nil)
	openmpi, errOpen := newMPI("openmpi", dir, "mpirun.openmpi", "mpicc.openmpi", []string{"--allow-run-as-root", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1"})
	for _, err := range []error{errMPICH, errOpen} {
		if err != nil {
			fmt.Println("left out:", err)
		}
	}

	fmt.Printf("%-34s %10s %10s   %s\n", "", "gorun", "peer", "ratio: median [least..most]")
	if errMPICH == nil {
		for _, np := range []int{4, 64} {
			ours := contender{"gorun", func() (float64, error) { return launch("bin/gorun", "-np", strconv.Itoa(np), "true") }}
			peer := contender{"mpich", func() (float64, error) { return launch(mpich.exec, "-n", strconv.Itoa(np), "true") }}
			if err := compare(fmt.Sprintf("launch true, np %d (ms)", np), pairs*3, ours, peer); err != nil {
				return err
			}
		}
	}
	for _, np := range []int{2, 4} {
		ours := contender{"gorun", func() (float64, error) { return a2a(dir, np) }}
		for _, m := range []*mpi{mpich, openmpi} {
			if m == nil {
				continue
			}
			iterations := 20000
			if m == mpich && np > 2 {
				iterations = 200 // it spins without yielding: milliseconds a call with more ranks than cores
			}
			peer := contender{m.name, func() (float64, error) { return m.alltoall(np, iterations) }}
			if err := compare(fmt.Sprintf("all-to-all 8 B, np %d, %s (us)", np, m.name), pairs, ours, peer); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare runs the two in turn, once more than counted to warm up.
func compare(what string, pairs int, a, b contender) error {
	var as, bs, ratios []float64
	for i := -1; i < pairs; i++ {
		x, err := a.time()
		if err != nil {
			return fmt.Errorf("%s: %s: %w", what, a.name, err)
		}
		y, err := b.time()
		if errors.Is(err, context.DeadlineExceeded) {
			fmt.Printf("%-34s %s did not end within %v in run %d\n", what, b.name, runLimit, i+1)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %s: %w", what, b.name, err)
		}
		if i >= 0 {
			as, bs, ratios = append(as, x), append(bs, y), append(ratios, x/y)
		}
	}
	if len(ratios) == 0 {
		return nil
	}
	slices.Sort(ratios)
	fmt.Printf("%-34s %10.2f %10.2f   %.2f [%.2f..%.2f] of %d\n", what, median(as), median(bs), median(ratios), ratios[0], ratios[len(ratios)-1], len(ratios))
	return nil
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

// command runs a command to its end and gives its standard output.
func command(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.WaitDelay = time.Second
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// launch is the wall time of a whole job, in milliseconds.
func launch(name string, args ...string) (float64, error) {
	start := time.Now()
	_, err := command(name, args...)
	return float64(time.Since(start).Microseconds()) / 1e3, err
}

// a2a is the steady state's median of our all-to-all of 8 bytes a peer, in
// microseconds.
func a2a(dir string, np int) (float64, error) {
	file := filepath.Join(dir, "a2a.json")
	_, err := command("bin/gorun", "-np", strconv.Itoa(np), "bin/a2a", "-m", strconv.Itoa(8*np), "-i", "20000", "-w", "2000", "--print", "none", "--output-json", file)
	if err != nil {
		return 0, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var result struct {
		SteadyState struct {
			MedianUS float64 `json:"median_us"`
		} `json:"steady_state"`
	}
	if err := json.Unmarshal(data, &result); err != nil {
		return 0, err
	}
	if result.SteadyState.MedianUS == 0 {
		return 0, errors.New("a2a's result holds no steady_state.median_us")
	}
	return result.SteadyState.MedianUS, nil
}

// An mpi is an MPI of this machine with the benchmark built for it.
type mpi struct {
	name, exec, program string
	args                []string
}

func newMPI(name, dir, launcher, compiler string, args []string) (*mpi, error) {
	path, err := exec.LookPath(launcher)
	if err != nil {
		return nil, fmt.Errorf("%s: no %s in PATH", name, launcher)
	}
	program := filepath.Join(dir, "alltoall-"+name)
	if _, err := command(compiler, "-O2", "-o", program, "testdata/mpi/alltoall.c"); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &mpi{name: name, exec: path, program: program, args: args}, nil
}

func (m *mpi) alltoall(np, iterations int) (float64, error) {
	args := append(slices.Clone(m.args), "-n", strconv.Itoa(np), m.program, "8", strconv.Itoa(iterations))
	out, err := command(m.exec, args...)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}
