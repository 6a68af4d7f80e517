package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// both has gorun's ranks with and without progress threads, and MPICH's.
var both = []string{"--async-progress", "off,on"}

// daemonToo has gorun's daemon too.
var daemonToo = []string{"--async-progress", "off,on,daemon"}

// comparison is a table with a row for each point, and a column for each series.
func (b *bench) comparison(t table, columns []column, points []point, g *measured, show func(*row) string) table {
	for _, c := range columns {
		t.columns = append(t.columns, c.title)
	}
	for _, p := range points {
		cells := slices.Clone(p.names)
		for _, c := range columns {
			cells = append(cells, b.cell(c, g.find(c, p.benchmark, p.np, p.bytes), show))
		}
		t.rows = append(t.rows, cells)
	}
	return t
}

// A point is a row of a comparison: the first cells of its line, and which figures stand behind them.
type point struct {
	names     []string
	benchmark string
	np, bytes int
}

// sessions runs several, one after the other, and brings their rows together.
func (b *bench) sessions(ctx context.Context, list ...session) (*measured, error) {
	all := &measured{}
	for _, s := range list {
		g, err := b.m.bench(ctx, s)
		if err != nil {
			return nil, err
		}
		all.rows = append(all.rows, g.rows...)
	}
	return all, nil
}

// engines are a2a's.
var engines = []column{application("a2a --engine inline"), application("a2a --engine dpa"), application("a2a --engine dpa --threads 1")}

// alltoall measures the tables of the DPA all-to-all. -m of a2a is the buffer of a rank; the
// MPIs and gorun-bench count the bytes for one peer.
func (b *bench) alltoall(ctx context.Context, p *page) error {
	args := append([]string{"--applications", "--back-to-back"}, both...)
	g, err := b.sessions(ctx,
		session{"alltoall", []int{2}, []int{32, 64 << 10, 1 << 20}, args},
		session{"alltoall", []int{4}, []int{4, 8, 16, 1 << 10}, args},
		session{"alltoall", []int{8}, []int{8}, args},
		session{"alltoall", []int{16}, []int{4}, args})
	if err != nil {
		return err
	}
	at := func(np, msgsize int, names ...string) point { return point{names, "alltoall", np, msgsize / np} }
	columns := append(slices.Clone(engines), ranks...)
	p.sections = append(p.sections, section{
		title: "All-to-all",
		text: "One call in microseconds, in the steady state: calls follow each other. The guides' seconds are for the whole of set-up and one call.\n" +
			"`-m` is the send buffer of a rank, of which each rank gets an equal part. [a2a](a2a.md) has the program, its engines and its output.\n",
		tables: []table{
			b.comparison(table{title: "Message length, four processes", columns: []string{"`-m`", "DOCA, whole"}}, columns, []point{
				at(4, 16, "16 B", "1.521 s"), at(4, 32, "32 B", "1.525 s"), at(4, 64, "64 B", "1.522 s"), at(4, 4096, "4 KiB", "1.521 s")}, g, times),
			b.comparison(table{title: "Ranks, `-m 64`", columns: []string{"processes", "DOCA, whole"}}, columns, []point{
				at(2, 64, "2", "0.919 s"), at(4, 64, "4", "1.522 s"), at(8, 64, "8", "2.814 s"), at(16, 64, "16", "5.647 s")}, g, times),
			b.comparison(table{title: "Longer messages, two processes", text: "The guides have no figures for these.\n", columns: []string{"`-m`"}}, columns, []point{
				at(2, 128<<10, "128 KiB"), at(2, 2<<20, "2 MiB")}, g, times),
		},
	})
	return nil
}

// A start is a row of the table of a2a's set-up; the guides' time, if any, is for the whole.
type start struct {
	np, msgsize int
	doca        string
	set, first  [2][]float64 // by engine, in milliseconds
}

// startTime is how long the runs of a2a for the table of set-ups may take.
const startTime = 40 * time.Second

// setUp measures what the guides' times of the all-to-all contain.
func (b *bench) setUp(ctx context.Context, p *page) error {
	starts := []*start{{np: 2, msgsize: 64, doca: "0.919 s"}, {np: 4, msgsize: 16, doca: "1.521 s"}, {np: 4, msgsize: 32, doca: "1.525 s"},
		{np: 4, msgsize: 64, doca: "1.522 s"}, {np: 4, msgsize: 4096, doca: "1.521 s"}, {np: 8, msgsize: 64, doca: "2.814 s"}, {np: 16, msgsize: 64, doca: "5.647 s"}}
	if err := b.m.starts(ctx, starts); err != nil {
		return err
	}
	g, err := b.sessions(ctx, session{benchmarks: "init", np: []int{2, 4, 8, 16}, args: []string{"-i", "1"}})
	if err != nil {
		return err
	}
	t := table{title: "Set-up and first call", text: "In milliseconds. Of `a2a`, its slowest rank: from the start of its process until all connections stand, and the first call. Then whole jobs\n" +
		"of programs that only initialise and finalize, from the launcher's start to its end.\n",
		columns: []string{"processes", "`-m`", "DOCA, whole", "inline: set-up", "first call", "dpa: set-up", "first call"}}
	columns := []column{{title: "gorun's ranks, job", system: "gorun"}, {title: "MPICH, job", system: "mpich"}, {title: "Open MPI, job", system: "openmpi"}}
	for _, c := range columns {
		t.columns = append(t.columns, c.title)
	}
	for _, s := range starts {
		line := []string{strconv.Itoa(s.np), sizeName(s.msgsize), s.doca, of(s.set[0]), of(s.first[0]), of(s.set[1]), of(s.first[1])}
		for _, c := range columns {
			line = append(line, b.cell(c, g.find(c, "init", s.np, 0), func(r *row) string { return spread(r.Median/1e3, r.Least/1e3, r.Most/1e3, r.Runs) }))
		}
		t.rows = append(t.rows, line)
	}
	last := &p.sections[len(p.sections)-1]
	last.tables = append(last.tables, t)
	return nil
}

// starts runs a2a by both engines in turn.
func (m *measuring) starts(ctx context.Context, list []*start) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for range m.rounds(benchRounds) {
		for _, s := range list {
			for i, engine := range []string{"inline", "dpa"} {
				if err := m.start(ctx, s, i, engine); err != nil && ctx.Err() == nil {
					return err
				}
			}
		}
	}
	return nil
}

// start runs a2a once, without its steady state.
func (m *measuring) start(ctx context.Context, s *start, i int, engine string) error {
	file := filepath.Join(m.dir, "a2a.json")
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	if _, err := m.command(ctx, "gorun", "-np", strconv.Itoa(s.np), filepath.Join(m.bin, "a2a"), "-m", strconv.Itoa(s.msgsize), "--engine", engine,
		"-i", "0", "-w", "0", "--print", "none", "-l", "30", "--output-json", file); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r struct {
		SetUp float64 `json:"set_up_us"`
		First float64 `json:"first_call_us"`
	}
	if err := json.Unmarshal(text, &r); err != nil || r.SetUp <= 0 {
		return fmt.Errorf("a2a wrote %q: %w", text, err)
	}
	s.set[i], s.first[i] = append(s.set[i], r.SetUp/1e3), append(s.first[i], r.First/1e3)
	return nil
}

// allreduce measures the tables of the all-reduce.
func (b *bench) allreduce(ctx context.Context, p *page) error {
	const batch = "iallreduce_x16"
	sizes := []int{400, 4 << 10, 64 << 10, 65535 * 4}
	g, err := b.sessions(ctx, session{batch, []int{2}, sizes, append([]string{"--applications", "--compute", "cpu"}, both...)})
	if err != nil {
		return err
	}
	columns := append([]column{application("allreduce -m non-offloaded"), application("allreduce -m offloaded")}, ranks...)
	var points []point
	for _, n := range sizes {
		points = append(points, point{[]string{fmt.Sprintf("%d (%s)", n/4, sizeName(n))}, batch, 2, n})
	}
	p.sections = append(p.sections, section{
		title: "All-reduce",
		text: "Batches of 16 sums of float vectors, by two members: two clients of `allreduce`, offloaded with a daemon each, or two ranks, which start 16\n" +
			"calls of Iallreduce before they wait. The load is computing on the ranks' CPUs, as long as the batch. [All-reduce](allreduce.md) has the program and its output.\n",
		tables: []table{
			b.comparison(table{title: "Message length", text: "The network time of a batch in microseconds, without load.\n", columns: []string{"elements"}}, columns, points, g, times),
			b.offload(columns, batch, []int{400, 65535 * 4}, g),
		},
	})
	return nil
}

// offload is the table of what runs beside the load.
func (b *bench) offload(columns []column, batch string, sizes []int, g *measured) table {
	t := table{title: "Offload",
		text: "Of a batch in microseconds: the network alone, the load alone, both together; by how much both are shorter than their sum; and the honest overlap,\n" +
			"which part of the network's time was hidden. The guides call their offloaded run \"about 20 % shorter\".\n",
		columns: []string{"elements", "by", "network", "load", "both", "shorter by", "honest overlap"},
		rows: [][]string{{"not given", "DOCA, non-offloaded", "1.0 s", "1.2 s", "2.2 s", "0 %", "0 %"},
			{"not given", "DOCA, offloaded", "0.8 s", "1.2 s", "not given", "\"about 20 %\"", "not given"}}}
	for _, n := range sizes {
		for _, c := range columns {
			r := g.find(c, batch, 2, n)
			line := []string{strconv.Itoa(n / 4), c.title}
			for _, show := range []func(*row) string{
				func(r *row) string { return figure(r.Comm) },
				func(r *row) string { return figure(r.Alone) },
				func(r *row) string { return figure(r.Total) },
				func(r *row) string { return fmt.Sprintf("%.0f %%", 100*(1-r.Total/(r.Comm+r.Alone))) },
				func(r *row) string { return overlaps(r) + " %" },
			} {
				line = append(line, b.cell(c, r, show))
			}
			t.rows = append(t.rows, line)
		}
	}
	return t
}

// overlap measures how much of a started call hides behind work.
func (b *bench) overlap(ctx context.Context, p *page) error {
	sizes := []int{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20}
	sleep := append([]string{"--compute", "sleep", "--svg", b.m.plots}, daemonToo...)
	g, err := b.sessions(ctx, session{"iallreduce", []int{2}, sizes, sleep}, session{"ialltoall", []int{2}, sizes, sleep})
	if err != nil {
		return err
	}
	busySizes := []int{64 << 10, 1 << 20}
	busy, err := b.sessions(ctx, session{"overlap", []int{2}, busySizes, append([]string{"--compute", "cpu"}, daemonToo...)})
	if err != nil {
		return err
	}
	var tables []table
	names := []struct{ benchmark, title string }{{"iallreduce", "Iallreduce"}, {"ialltoall", "Ialltoall"}}
	var busyPoints []point
	for _, name := range names {
		var points []point
		for _, n := range sizes {
			points = append(points, point{[]string{sizeName(n)}, name.benchmark, 2, n})
		}
		for _, n := range busySizes {
			busyPoints = append(busyPoints, point{[]string{name.title, sizeName(n)}, name.benchmark, 2, n})
		}
		t := b.comparison(table{title: name.title + " beside a sleep", text: "Honest overlap in per cent.\n", columns: []string{"size"}}, started, points, g, overlaps)
		t.plots = []plot{{plotFolder + "/" + name.benchmark + "-2-overlap.svg", "Curves: honest overlap of " + name.title + " over the size"}, {plotFolder + "/" + name.benchmark + "-2.svg", "Curves: time of " + name.title + " over the size"}}
		tables = append(tables, t)
	}
	tables = append(tables, b.comparison(table{title: "Beside work on the ranks' CPUs",
		text:    "Start, work and wait together, by the sum of the blocking call and the work alone: 1 is no gain and no loss. No CPU is spare here, so a thread or a daemon that moves data takes it from the work.\n",
		columns: []string{"call", "size"}}, started, busyPoints, busy, slowdown))
	p.sections = append(p.sections, section{
		title: "Overlap",
		text: "The original offloads for this: a rank starts a call, works as long as the blocking call takes, and waits. The honest overlap is 100 (1 - (all - work\n" +
			"alone) / blocking call), at least 0. Two ranks; a sleep stands for work on a GPU. Allreduce sums floats.\n",
		tables: tables,
	})
	return nil
}

// blocking measures what progress threads cost those that do not need them.
func (b *bench) blocking(ctx context.Context, p *page) error {
	sizes := []int{8, 64 << 10, 1 << 20}
	g, err := b.sessions(ctx, session{"allreduce,alltoall", []int{2}, sizes, both})
	if err != nil {
		return err
	}
	var points []point
	for _, name := range []struct{ benchmark, title string }{{"allreduce", "Allreduce"}, {"alltoall", "Alltoall"}} {
		for _, n := range sizes {
			points = append(points, point{[]string{name.title, sizeName(n)}, name.benchmark, 2, n})
		}
	}
	last := &p.sections[len(p.sections)-1]
	last.tables = append(last.tables, b.comparison(table{title: "Blocking calls", text: "In microseconds: what progress threads cost calls that nothing runs beside. Two ranks.\n",
		columns: []string{"call", "size"}}, ranks, points, g, times))
	return nil
}
