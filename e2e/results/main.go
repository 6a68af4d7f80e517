// Command results measures what the guides of DOCA's three applications measured, and
// the same in MPICH and Open MPI, and writes the page of results with its plots.
// `make results` builds what it needs and runs it.
//
//	results -bin bin -to docs
//
// It runs the commands of a directory and reads the figures that they write as JSON:
// secure-channel and a2a by themselves, and gorun-bench, which runs a2a, allreduce, ranks of
// gorun and the MPIs in turn. Every part of the run has its time: what is not
// measured by then is left out of the page's cells, never its rows.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// whole bounds a run, quickly that of a quick one; commands need some seconds more to end.
const (
	whole   = 570 * time.Second
	quickly = 400 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	bin := flag.String("bin", "bin", "where the commands are")
	to := flag.String("to", "docs", "directory for "+pageName+" and the plots")
	quick := flag.Bool("quick", false, "one short round of everything, for the page's form: its figures say little")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("found the argument %q, expected none", flag.Arg(0))
	}
	m := &measuring{quick: *quick}
	limit := whole
	if m.quick {
		limit = quickly
	}
	if m.bin, err = filepath.Abs(*bin); err != nil {
		return err
	}
	if m.dir, err = os.MkdirTemp("", "gorun-results-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(m.dir)) }()
	m.plots = filepath.Join(*to, plotFolder)
	if err := os.MkdirAll(m.plots, 0o777); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	p, err := m.page(limited)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: no page was written")
	}
	return os.WriteFile(filepath.Join(*to, pageName), []byte(p.markdown()), 0o666)
}

// The page's file, and the folder of its plots beside it.
const (
	pageName   = "results.md"
	plotFolder = "results"
)

// A measuring is one run.
type measuring struct {
	bin, dir string // the commands; files that are gone after the run
	plots    string
	quick    bool
}

// How many rounds a whole run makes; gorun-bench fewer where its time is over.
const (
	channelRounds = 9
	benchRounds   = 5
)

// commit is that of the folder, "" where git does not know.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// rounds is n, or one in a quick run.
func (m *measuring) rounds(n int) int {
	if m.quick {
		return 1
	}
	return n
}

// page measures everything.
func (m *measuring) page(ctx context.Context) (*page, error) {
	p := &page{command: "make results"}
	if m.quick {
		p.command += " QUICK=1"
	}
	p.rounds = fmt.Sprintf("%d of the secure channel, at most %d of all else", m.rounds(channelRounds), m.rounds(benchRounds))
	p.load = loadAverage()
	first, err := m.bench(ctx, session{benchmarks: "barrier", np: []int{2}})
	if err != nil {
		return nil, err
	}
	if p.header = first.header; p.header.Commit == "" {
		p.header.Commit = commit(ctx) // the commands were built without their version control's word
	}
	b := bench{m: m, installed: map[string]bool{}}
	for _, r := range first.rows {
		b.installed[r.System] = true
	}
	for _, part := range []func(context.Context, *page) error{m.channel, b.alltoall, b.setUp, b.allreduce, b.overlap, b.blocking} {
		if err := part(ctx, p); err != nil {
			return nil, err
		}
	}
	return p, nil
}
