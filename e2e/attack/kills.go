package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// Programs of jobs to be killed. They end by themselves within a second or so.
const (
	grandchildren = "sleep 1 & (sleep 1; sleep 0.1) & sleep 0.7; wait"
	daemons       = "setsid sleep 600 & setsid setsid env -i setsid sleep 600 & sleep 0.7"
	nested        = "%s -np 2 sh -c 'setsid sleep 600 & sleep 0.6 & wait $!; sleep 0.3'"
)

// kill starts a job, kills some of its processes at a random time and looks for what
// stays.
func (b *bench) kill(r *rand.Rand, i int) error {
	programs := [][]string{
		{b.self, "--victim", "-kind", "live", "-ms", "600"},
		{"sh", "-c", grandchildren},
		{"sh", "-c", daemons},
		{"sh", "-c", fmt.Sprintf(nested, filepath.Join(b.bin, "gorun"))},
	}
	for _, p := range []string{b.mpich, b.ompi} {
		if p != "" {
			programs = append(programs, []string{p, "short"})
		}
	}
	program := programs[r.IntN(len(programs))]
	args := []string{"--quiet", "-np", fmt.Sprint(1 + r.IntN(4))}
	hosts := r.IntN(3)
	if hosts > 0 {
		args = []string{"--quiet", "-np", fmt.Sprint(hosts * (1 + r.IntN(2))), "--launcher", "fork", "-H", []string{"a:2", "a:2,b:2"}[hosts-1]}
	}
	// Ranks of MPICH wait for one that has gone for ever, as gorun's warning says.
	if r.IntN(4) == 0 && (b.mpich == "" || program[0] != b.mpich) {
		args = append(args, "--continuous")
	}
	j, err := b.start(fmt.Sprintf("kill-%d", i), append(args, program...)...)
	if err != nil {
		return err
	}
	when := time.Duration(r.IntN(300_000)) * time.Microsecond
	if r.IntN(3) == 0 {
		when /= 10 // while it starts
	}
	timer := time.NewTimer(when)
	select {
	case <-timer.C:
	case <-j.ended:
		timer.Stop()
	}
	targets := choose(r, j.processes())
	var killed []string
	for _, pid := range targets {
		what := role(pid)
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed = append(killed, what)
			b.did("killed " + what)
		}
	}
	b.did("jobs")
	status, err := j.finish()
	// Without a guardian a job goes on.
	if err == nil && status != 0 && len(killed) > 0 && !slices.ContainsFunc(killed, func(s string) bool { return s != "gorun-guardian" }) {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return fmt.Errorf("gorun %s, where %s were killed after %v: %w; %q %q", strings.Join(append(args, program...), " "), strings.Join(killed, ", "), when, err, tail(j.out.String()), tail(j.err.String()))
	}
	return nil
}

// choose takes one to three processes, and of guardians one at most, which has a
// second: with all of its guardians and gorun itself nobody is left.
func choose(r *rand.Rand, pids []int) []int {
	r.Shuffle(len(pids), func(i, k int) { pids[i], pids[k] = pids[k], pids[i] })
	// Ranks are many, so the others come first half of the time.
	if r.IntN(2) == 0 {
		slices.SortStableFunc(pids, func(a, b int) int { return rankLast(a) - rankLast(b) })
	}
	most := 1 + r.IntN(3)
	var list []int
	guardian := false
	for _, pid := range pids {
		if len(list) == most {
			break
		}
		switch what := role(pid); {
		case what == "gorun-guardian":
			if guardian || !hasSecond(pid, pids) {
				continue
			}
			guardian = true
		case what != "rank" && cmdline(pid) == cmdline(parent(pid)):
			continue // a guardian, or a rank, that is being made
		}
		list = append(list, pid)
	}
	return list
}

// hasSecond tells whether a guardian is one of two.
func hasSecond(pid int, pids []int) bool {
	return role(parent(pid)) == "gorun-guardian" ||
		slices.ContainsFunc(pids, func(p int) bool { return parent(p) == pid && role(p) == "gorun-guardian" })
}

// parent is the parent of a process; 0 if it is gone.
func parent(pid int) int {
	s, _ := proc.Of(pid)
	return s.Parent
}

func cmdline(pid int) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return string(text)
}

func rankLast(pid int) int {
	if role(pid) == "rank" {
		return 1
	}
	return 0
}

// compile builds testdata/mpi/stay.c and runs it; "" if it cannot.
func (b *bench) compile(compiler, name string) string {
	file := filepath.Join(b.dir, name)
	if out, err := exec.Command(compiler, "-O1", "-o", file, filepath.Join("testdata", "mpi", "stay.c")).CombinedOutput(); err != nil {
		fmt.Printf("attack: without a program of %s: %v %s\n", compiler, err, out)
		return ""
	}
	j, err := b.start("try-"+name, "-np", "2", file, "short")
	if err == nil {
		var status int
		if status, err = j.finish(); err == nil && status != 0 {
			err = fmt.Errorf("status %d: %s", status, tail(j.err.String()))
		}
	}
	if err != nil {
		fmt.Printf("attack: without a program of %s: it does not run: %v\n", compiler, err)
		return ""
	}
	return file
}

// tail is the end of a text.
func tail(s string) string {
	if len(s) > 600 {
		return "..." + s[len(s)-600:]
	}
	return s
}
