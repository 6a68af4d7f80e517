package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// An application is a way to run a2a or allreduce that moves the same data as the ranks of
// a benchmark, in the same pattern. It measures itself: a run gives one sample of a point, its own median
// (a2a, of the ranks' calls one behind the other) or mean (allreduce, of its batches).
type application struct {
	name      string // as in the rows
	program   string
	benchmark string
	memory    string // that its ranks use
	// command are gorun's arguments; the figures go to a file.
	command func(program string, np int, p point, file string) []string
	read    func(file []byte) (sample, error)
}

var applications = []application{
	{"a2a --engine inline", "a2a", "alltoall", registered, a2aCommand("--engine", "inline"), readA2A},
	{"a2a --engine dpa --threads 1", "a2a", "alltoall", registered, a2aCommand("--engine", "dpa", "--threads", "1"), readA2A},
	{"a2a --engine dpa", "a2a", "alltoall", registered, a2aCommand("--engine", "dpa"), readA2A},
	{"allreduce -m non-offloaded", "allreduce", "iallreduce_x16", ordinary, allreduceCommand(false), readAllreduce},
	{"allreduce -m offloaded", "allreduce", "iallreduce_x16", ordinary, allreduceCommand(true), readAllreduce},
}

// takes tells whether the application can move what a point says: a2a has integers, and
// allreduce no char and no long.
func (a *application) takes(p point) bool {
	return p.benchmark == a.benchmark && p.bytes > 0 && p.bytes%4 == 0 && p.typ != "char" && p.typ != "long"
}

func a2aCommand(engine ...string) func(string, int, point, string) []string {
	return func(program string, np int, p point, file string) []string {
		return append([]string{"-np", strconv.Itoa(np), program, "-m", strconv.Itoa(p.bytes * np), "--print", "none", "-l", "30", "--output-json", file}, engine...)
	}
}

// applicationBatches are how many batches allreduce times, as in the commands of the original's guides.
const applicationBatches = 16

// allreduceCommand has as many clients as the benchmark has ranks; offloaded each has a daemon.
func allreduceCommand(offloaded bool) func(string, int, point, string) []string {
	return func(program string, np int, p point, file string) []string {
		member := func(n int, args ...string) []string {
			return append([]string{"-np", strconv.Itoa(n), program, "-s", strconv.Itoa(p.bytes / typeSizes[p.typ]), "-d", p.typ, "-o", "sum",
				"-b", strconv.Itoa(together), "-i", strconv.Itoa(applicationBatches), "-l", "30", "-r"}, args...)
		}
		client := []string{"client", "-m", "non-offloaded"}
		var job []string
		if offloaded {
			client[2] = "offloaded"
			job = append(member(np, "daemon"), ":")
		}
		job = append(job, member(1, append(client, "--output-json", file)...)...)
		if np > 1 {
			job = append(append(job, ":"), member(np-1, client...)...)
		}
		return job
	}
}

// readA2A reads what a2a --output-json wrote.
func readA2A(file []byte) (sample, error) {
	var r struct {
		Steady struct {
			Iterations int     `json:"iterations"`
			Median     float64 `json:"median_us"`
		} `json:"steady_state"`
	}
	err := json.Unmarshal(file, &r)
	us := r.Steady.Median
	return sample{batch: r.Steady.Iterations, count: 1, p10: us, p50: us, p90: us, p99: us}, err
}

// readAllreduce reads what allreduce --output-json wrote.
func readAllreduce(file []byte) (sample, error) {
	var r struct {
		Batches int     `json:"num_batches"`
		Average float64 `json:"run_avg_s"`
		Compute float64 `json:"compute_s"`
		Network float64 `json:"network_s"`
	}
	err := json.Unmarshal(file, &r)
	network, compute := r.Network*1e6, r.Compute*1e6
	return sample{batch: r.Batches, count: 1, p10: network, p50: network, p90: network, p99: network,
		compute: compute, total: r.Average * 1e6, alone: compute, comm: network, overlapped: true}, err
}

// contender runs the application for each point of a plan, and answers as a worker does.
func (a *application) contender(self string, scratch *scratch) *contender {
	c := &contender{system: gorun, memory: a.memory, application: a.name, self: self}
	c.run = func(ctx context.Context, np int, name string, out, _ io.Writer) error {
		p, err := loadPlan(name)
		if err != nil {
			return err
		}
		begun := time.Now()
		answer := bufio.NewWriter(out)
		for i, pt := range p.points {
			if time.Since(begun) > p.quota {
				break
			}
			s, err := a.measure(ctx, self, scratch, np, pt)
			if err != nil {
				return err
			}
			fmt.Fprintf(answer, "point %d %v\n", i, s)
			if err := answer.Flush(); err != nil {
				return err
			}
		}
		fmt.Fprintln(answer, "end")
		return answer.Flush()
	}
	return c
}

// measure runs the application once. What it says counts only where it fails.
func (a *application) measure(ctx context.Context, self string, scratch *scratch, np int, p point) (sample, error) {
	file := filepath.Join(scratch.dir, "application.json")
	if err := os.RemoveAll(file); err != nil {
		return sample{}, err
	}
	argv := append([]string{commandBeside(self, "gorun")}, a.command(commandBeside(self, a.program), np, p, file)...)
	var said tail
	if err := scratch.runCommand(ctx, &said, &said, argv...); err != nil {
		return sample{}, fmt.Errorf("%s: %w: %s", a.name, err, strings.TrimSpace(said.String()))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return sample{}, err
	}
	s, err := a.read(text)
	if err == nil {
		err = s.validate()
	}
	if err != nil {
		return sample{}, fmt.Errorf("%s: %s: %w", a.name, file, err)
	}
	return s, nil
}
