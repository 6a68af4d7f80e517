package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/testdata"
)

// The benchmarks of the group "start" time whole jobs, from the start of the
// launcher's command to its end, as a user of a shell sees it. What is held
// against gorun depends on the benchmark: the MPIs, one of them, or the limit,
// which is a loop of fork and exec in C that knows neither pipes nor signals, or
// for Init and Finalize gorun's own launch of true.

// outputBytes is what each rank of the benchmark output writes.
const outputBytes = 250_000_000

// mostHanging is up to how many ranks Open MPI launches true: with 32 and more
// it hangs in every third job or so (open-mpi/ompi issue 10586).
const mostHanging = 31

// mostStarted is up to how many ranks the MPIs' Init is timed: it takes them
// seconds beyond.
const mostStarted = 16

// rivals are the systems that gorun may be compared with.
var rivals = [...]string{mpich, openmpi, limit}

// rivalSeries are their rows, which gorun's have for a reference, in the order of the table's columns.
var rivalSeries = [...]series{{mpich, ordinary, "", "", ""}, {mpich, ordinary, progressOn, "", ""}, {openmpi, ordinary, "", "", ""}, {limit, ordinary, "", "", ""}}

// command is the command line of a job of a benchmark; nil where the system has
// no part in it.
func (c *contender) command(b *benchmark, np int) []string {
	if c.launch == nil {
		return nil
	}
	init := []string{c.self, "init"}
	if c.system == gorun || c.system == limit {
		init = []string{c.self, workerWord, "init"}
		// A rank of this program spends longer on starting what draws its plots.
		if lean := filepath.Join(filepath.Dir(c.self), "gorun-bench-init"); executable(lean) {
			init = []string{lean}
		}
	}
	var program []string
	switch {
	case b.name == "launch" && c.system != limit && !(c.system == openmpi && np > mostHanging):
		program = []string{"true"}
	case b.name == "launch_limit" && c.system == gorun:
		program = []string{"true"}
	case b.name == "launch_limit" && c.system == limit:
		return []string{c.plain, "start", strconv.Itoa(np), "true"}
	case b.name == "init" && (c.system == gorun || c.system != limit && np <= mostStarted):
		program = init
	case b.name == "init_limit" && c.system == gorun:
		program = init
	case b.name == "init_limit" && c.system == limit:
		program = []string{"true"}
	case b.name == "init_"+c.system && c.system != limit:
		program = init
	case b.name == "init_mpich" && c.system == gorun && c.foreign[mpich] != "":
		program = []string{c.foreign[mpich], "init"}
	case b.name == "init_openmpi" && c.system == gorun && c.foreign[openmpi] != "":
		program = []string{c.foreign[openmpi], "init"}
	case b.name == "output" && c.system != limit && c.plain != "":
		program = []string{c.plain, "write", strconv.Itoa(outputBytes)}
	}
	if program == nil {
		return nil
	}
	return append(c.launch(np), program...)
}

// limitContender is no launcher: what launchers are held against.
func limitContender(self, plain string) *contender {
	return &contender{system: limit, memory: ordinary, self: self, plain: plain, launch: func(np int) []string {
		return []string{commandBeside(self, "gorun"), "-np", strconv.Itoa(np)}
	}}
}

// needsLimit tells whether a point takes the program of testdata/mpi/limit.c.
func needsLimit(p point) bool {
	return slices.Contains([]string{"launch_limit", "init_limit", "output"}, p.benchmark)
}

// buildLimit builds it in the session's directory.
func buildLimit(ctx context.Context, s *scratch) (string, error) {
	var compiler string
	for _, name := range []string{"cc", "gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			compiler = path
			break
		}
	}
	if compiler == "" {
		return "", errors.New("launch_limit, init_limit and output need a C compiler, and there is none in PATH; to have one: apt-get install gcc libc6-dev")
	}
	source, program := filepath.Join(s.dir, "limit.c"), filepath.Join(s.dir, "limit")
	if err := os.WriteFile(source, testdata.LimitC, 0o644); err != nil {
		return "", err
	}
	if _, err := command(ctx, s.environ(), compiler, "-O2", "-w", "-o", program, source); err != nil {
		return "", fmt.Errorf("build the program for launches: %w", err)
	}
	return program, nil
}

// launches times whole jobs.
func (s *session) launches(ctx context.Context, round int, j *job, p point) error {
	argv := j.command(find(p.benchmark), j.np)
	want := int64(0)
	if p.benchmark == "output" {
		want = int64(j.np) * outputBytes
	}
	var samples []float64
	wrong := false
	begun := time.Now()
	for !s.enough(len(samples), time.Since(begun)) {
		took, got, err := s.launchOnce(ctx, argv)
		if err != nil {
			return err
		}
		wrong = wrong || want > 0 && got != want
		samples = append(samples, took.Seconds()*1e6)
	}
	slices.Sort(samples)
	s.results.add(j, p, round, sample{wrong: wrong, batch: 1, count: len(samples), p10: quantile(samples, 10), p50: quantile(samples, 50), p90: quantile(samples, 90), p99: quantile(samples, 99)})
	return nil
}

// mostLaunches of a round.
const mostLaunches = 20

// enough tells whether a round has launched enough.
func (s *session) enough(launched int, took time.Duration) bool {
	if s.params.iterations > 0 {
		return launched >= min(s.params.iterations, mostLaunches)
	}
	return launched == mostLaunches || launched >= leastSamples && took >= s.params.budget
}

// patience is how many times as long as other jobs a launch may take.
const patience = 3

// launchOnce runs one job and counts what it writes to standard output, which is
// a pipe, as behind a shell's |.
func (s *session) launchOnce(ctx context.Context, argv []string) (took time.Duration, wrote int64, err error) {
	limit := s.lateness * patience // Open MPI takes 20 s for the benchmark output
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w %v", errTooLong, limit))
	defer cancel()
	r, w, err := os.Pipe()
	if err != nil {
		return 0, 0, err
	}
	read := make(chan int64)
	go func() {
		var n int64
		buf := make([]byte, 256<<10)
		for {
			k, err := r.Read(buf)
			n += int64(k)
			if err != nil {
				read <- n
				return
			}
		}
	}()
	var said tail
	begun := time.Now()
	err = s.scratch.runCommand(ctx, w, &said, argv...)
	took = time.Since(begun)
	w.Close()
	// A process that a launcher left behind may hold the other end.
	if derr := r.SetReadDeadline(time.Now().Add(grace)); derr != nil {
		err = errors.Join(err, derr)
	}
	wrote = <-read
	r.Close()
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, strings.TrimSpace(said.String()))
	}
	return took, wrote, nil
}
