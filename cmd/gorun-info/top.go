package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/visit"
)

// How often a job is looked at: on a terminal, and twice where there is none, for the CPU time between.
const (
	topEvery = time.Second
	topOnce  = 500 * time.Millisecond
)

// readPID reads what is behind top.
func readPID(words []string) (pid int, err error) {
	if len(words) == 0 {
		return 0, nil
	}
	if pid, err = strconv.Atoi(words[0]); err != nil || pid < 1 || len(words) > 1 {
		return 0, fmt.Errorf("top: found %q, expected the pid of a gorun; without one it lists them", words)
	}
	return pid, nil
}

// showTop is gorun-info top.
func showTop(ctx context.Context, r *request) int {
	pid, err := chooseJob(r.pid, visit.Jobs())
	if err != nil {
		fmt.Fprintf(r.err, "gorun-info: top: %v\n", err)
		return statusMissing
	}
	v, err := visit.Begin(pid)
	if err != nil {
		fmt.Fprintf(r.err, "gorun-info: top: %v\n", err)
		return statusMissing
	}
	defer v.Close()
	if err := r.follow(ctx, v.Ask); err != nil && !errors.Is(err, io.EOF) { // else the job has ended
		fmt.Fprintf(r.err, "gorun-info: top: gorun (pid %d): %v\n", pid, err)
		return statusMissing
	}
	return 0
}

// chooseJob is the pid that is asked for, or of the only job.
func chooseJob(asked int, jobs []visit.Job) (pid int, err error) {
	switch {
	case asked > 0:
		return asked, nil
	case len(jobs) == 1:
		return jobs[0].PID, nil
	case len(jobs) == 0:
		return 0, errors.New("no job of yours runs on this machine; top looks where gorun itself runs")
	}
	text := fmt.Sprintf("%d jobs run here, say which one: gorun-info top PID", len(jobs))
	for _, j := range jobs {
		text += fmt.Sprintf("\n%8d  %s", j.PID, j.Program)
	}
	return 0, errors.New(text)
}

// follow shows a job: once, or anew until it or ctx ends.
func (r *request) follow(ctx context.Context, ask func() (*visit.Report, error)) error {
	size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
	terminal := err == nil && !r.json
	every := topOnce
	if terminal {
		every = topEvery
		fmt.Fprint(r.out, "\x1b[?1049h\x1b[?7l") // another screen, lines that are cut off
	}
	var last []string
	defer func() {
		if terminal {
			fmt.Fprintf(r.out, "\x1b[?7h\x1b[?1049l%s\n", strings.Join(last, "\n"))
		}
	}()
	var before *visit.Report
	asked := time.Now()
	for first := true; ; first = false {
		report, err := ask()
		if err != nil {
			return err
		}
		now := time.Now()
		switch {
		case terminal:
			if s, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ); err == nil {
				size = s
			}
			last = table(report, before, now.Sub(asked), max(3, int(size.Row)-3))
			fmt.Fprintf(r.out, "\x1b[H%s\x1b[K\x1b[J", strings.Join(last, "\x1b[K\r\n"))
		case !first && r.json:
			r.encode(report)
			return nil
		case !first:
			fmt.Fprintln(r.out, strings.Join(table(report, before, now.Sub(asked), len(report.Ranks)), "\n"))
			return nil
		}
		before, asked = report, now
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// table shows so many ranks, those first that others may wait for.
func table(r, before *visit.Report, took time.Duration, most int) []string {
	hosts := make(map[string]bool)
	for _, rank := range r.Ranks {
		hosts[rank.Host] = true
	}
	on := ""
	if len(hosts) > 1 {
		on = fmt.Sprintf(" on %d hosts", len(hosts))
	}
	lines := []string{fmt.Sprintf("gorun (pid %d), %d ranks%s, %.0f s: %s", r.PID, len(r.Ranks), on, time.Since(r.Begun).Seconds(), plain(r.Program))}
	if len(r.Ranks) == 0 {
		return append(lines, "no rank runs: they are not started yet, or have ended")
	}
	ranks := slices.Clone(r.Ranks)
	slices.SortStableFunc(ranks, func(a, b visit.Rank) int {
		return cmp.Or(cmp.Compare(urgency(a), urgency(b)), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Rank, b.Rank))
	})
	counted := slices.ContainsFunc(ranks, func(rank visit.Rank) bool { return rank.Calls > 0 })
	head := fmt.Sprintf("%6s  %-12s  %5s  %9s", "rank", "host", "CPU", "memory")
	if counted {
		head += fmt.Sprintf("  %8s", "calls/s")
	}
	lines = append(lines, head+"  doing")
	for _, rank := range ranks[:min(most, len(ranks))] {
		name, load, rate := strconv.Itoa(rank.Rank), "-", "-"
		if rank.Group > 0 {
			name = fmt.Sprintf("%d.%d", rank.Group, rank.Rank) // of a spawn
		}
		if was := find(before, rank); was != nil && took > 0 {
			load = fmt.Sprintf("%.0f%%", 100*float64(max(0, rank.CPU-was.CPU))/float64(took))
			rate = fmt.Sprintf("%.0f", float64(rank.Calls-min(was.Calls, rank.Calls))/took.Seconds())
		}
		line := fmt.Sprintf("%6s  %-12.12s  %5s  %9s", name, plain(rank.Host), load, fmt.Sprintf("%.1f MiB", float64(rank.RSS)/(1<<20)))
		if counted {
			line += fmt.Sprintf("  %8s", rate)
		}
		lines = append(lines, line+"  "+doing(rank))
	}
	if more := len(ranks) - most; more > 0 {
		lines = append(lines, fmt.Sprintf("%6s  and %d more", "...", more))
	}
	return lines
}

func find(r *visit.Report, rank visit.Rank) *visit.Rank {
	if r == nil {
		return nil
	}
	at := slices.IndexFunc(r.Ranks, func(o visit.Rank) bool { return o.Group == rank.Group && o.Rank == rank.Rank })
	if at < 0 {
		return nil
	}
	return &r.Ranks[at]
}

// What a rank has said, or its host says of it: see gorun --hang-timeout.
const (
	ofMPI = "MPI: "
	waits = ofMPI + "it wait"  // in a call
	is    = ofMPI + "it is in" // a call
	meets = ofMPI + "waiting " // in MPI_Init or MPI_Finalize
	ended = "has ended"
)

// urgency is where a rank stands: others may wait for those that wait for nobody.
func urgency(r visit.Rank) int {
	switch {
	case slices.Contains(r.Lines, ended):
		return 2
	case slices.ContainsFunc(r.Lines, func(line string) bool {
		return strings.HasPrefix(line, waits) || strings.HasPrefix(line, is) || strings.HasPrefix(line, meets)
	}):
		return 1
	}
	return 0
}

// doing is the line that says most: in which call it waits, else what its process does.
func doing(r visit.Rank) string {
	best := ""
	for _, line := range r.Lines {
		text, mpi := strings.CutPrefix(line, ofMPI)
		switch {
		case strings.HasPrefix(line, waits), strings.HasPrefix(line, is):
			return plain(strings.TrimPrefix(text, "it "))
		case strings.HasPrefix(line, meets):
			best = text
		case !mpi && (best == "" || strings.Contains(line, "): running")):
			best = line
		}
	}
	return plain(best)
}

// plain is text of others without what a terminal would act on.
func plain(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return '?'
		}
		return c
	}, text)
}
