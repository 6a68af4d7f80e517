package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A session is one run of gorun-bench. Within it all systems run in turn, round after round.
type session struct {
	benchmarks string
	np         []int
	sizes      []int    // in bytes
	args       []string // what else the command is given
}

// header and row are what gorun-bench --json writes, as far as the page needs it.
type header struct {
	Machine struct {
		CPU    string `json:"cpu"`
		Cores  int    `json:"cores"`
		Kernel string `json:"kernel"`
		Memory int64  `json:"memory_bytes"`
		System string `json:"system"`
	} `json:"machine"`
	Versions map[string]string `json:"versions"`
	Commit   string            `json:"commit"`
}

type row struct {
	Benchmark   string   `json:"benchmark"`
	System      string   `json:"system"`
	NP          int      `json:"np"`
	Bytes       int      `json:"bytes"`
	Progress    string   `json:"async_progress"`
	Application string   `json:"application"`
	Median      float64  `json:"median_us"`
	Least       float64  `json:"min_us"`
	Most        float64  `json:"max_us"`
	Runs        int      `json:"runs"`
	Verified    bool     `json:"verified"`
	Failed      string   `json:"failed"`
	Total       float64  `json:"total_us"`
	Alone       float64  `json:"alone_us"`
	Comm        float64  `json:"comm_us"`
	Honest      *float64 `json:"overlap_honest"`
	HonestLeast float64  `json:"overlap_honest_min"`
	HonestMost  float64  `json:"overlap_honest_max"`
}

// measured is what a session gave.
type measured struct {
	header header
	rows   []row
}

// grace is how long a command may take to end when it is told to.
const grace = 15 * time.Second

// sessionLimit is more than a session of gorun-bench --quick takes.
const sessionLimit = 110 * time.Second

// bench runs a session. One that ends early, or in which some systems fail, has given what it has given.
func (m *measuring) bench(ctx context.Context, s session) (*measured, error) {
	file := filepath.Join(m.dir, "rows.json")
	if err := os.RemoveAll(file); err != nil {
		return nil, err
	}
	// --quick bounds the session, and takes the MPIs that are there.
	args := []string{"--quick", "-q", "-b", s.benchmarks, "-n", list(s.np), "-r", strconv.Itoa(m.rounds(benchRounds)), "--memory", "registered", "--json", file}
	if m.quick {
		args = append(args, "--time", "2ms")
	}
	if len(s.sizes) > 0 {
		args = append(args, "-m", list(s.sizes))
	}
	ctx, cancel := context.WithTimeout(ctx, sessionLimit)
	defer cancel()
	_, failed := m.command(ctx, "gorun-bench", append(args, s.args...)...)
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		if ctx.Err() != nil { // no time was left for it
			return &measured{}, nil
		}
		return nil, errors.Join(fmt.Errorf("gorun-bench -b %s gave no figures", s.benchmarks), failed, err)
	}
	return read(text)
}

// list is numbers as gorun-bench takes them.
func list(numbers []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(numbers), "[]"), " ", ",")
}

// read takes a file of gorun-bench.
func read(text []byte) (*measured, error) {
	g := &measured{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for first := true; lines.Scan(); first = false {
		into := any(&g.header)
		if !first {
			g.rows = append(g.rows, row{})
			into = &g.rows[len(g.rows)-1]
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			return nil, fmt.Errorf("%q: %w", lines.Text(), err)
		}
	}
	return g, lines.Err()
}

// command runs a command of the directory and gives its standard output. When ctx ends it is interrupted, as by
// Ctrl-C, so that it can end its own processes.
func (m *measuring) command(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(m.bin, name), args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = grace
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, first)
	}
	return out, err
}

// A column is a series of figures that a table compares.
type column struct {
	title                         string
	system, progress, application string
}

var (
	ranksOff = column{title: "gorun's ranks", system: "gorun", progress: "off"}
	ranksOn  = column{title: "gorun's ranks, progress threads", system: "gorun", progress: "on"}
	// ranksDaemon stands where calls are started.
	ranksDaemon = column{title: "gorun's ranks, daemon", system: "gorun", progress: "daemon"}
	mpis        = []column{
		{title: "MPICH", system: "mpich"},
		{title: "MPICH, MPICH_ASYNC_PROGRESS=1", system: "mpich", progress: "on"},
		{title: "Open MPI", system: "openmpi"},
	}
	// ranks are the columns of what MPI programs do.
	ranks   = append([]column{ranksOff, ranksOn}, mpis...)
	started = append([]column{ranksOff, ranksOn, ranksDaemon}, mpis...)
)

func application(command string) column {
	return column{title: "`" + command + "`", system: "gorun", application: command}
}

// A bench has the sessions of gorun-bench, and which systems there are.
type bench struct {
	m         *measuring
	installed map[string]bool
}

// find is the row of a column; nil where there is none.
func (g *measured) find(c column, benchmark string, np, bytes int) *row {
	i := slices.IndexFunc(g.rows, func(r row) bool {
		return r.System == c.system && r.Progress == c.progress && r.Application == c.application && r.Benchmark == benchmark && r.NP == np && r.Bytes == bytes
	})
	if i < 0 {
		return nil
	}
	return &g.rows[i]
}

// cell shows a figure of a row, or says why there is none.
func (b *bench) cell(c column, r *row, show func(r *row) string) string {
	switch {
	case !b.installed[c.system]:
		return "not installed"
	case r == nil:
		return notMeasured
	case r.Failed != "":
		return "no figure: " + reason(r.Failed)
	case !r.Verified || r.Runs == 0:
		return "WRONG"
	}
	return show(r)
}

const notMeasured = "no time"

// reason is the beginning of an error, as a table's cell can have it.
func reason(failed string) string {
	text, _, _ := strings.Cut(failed, "\n")
	text = strings.ReplaceAll(text, "|", "/")
	if len(text) > 60 {
		text = text[:60] + "..."
	}
	return text
}

// times is a row's time in microseconds.
func times(r *row) string { return spread(r.Median, r.Least, r.Most, r.Runs) }

// overlaps is a row's honest overlap in per cent.
func overlaps(r *row) string {
	if r.Honest == nil {
		return notMeasured
	}
	if r.Runs < 2 {
		return fmt.Sprintf("%.0f", *r.Honest)
	}
	return fmt.Sprintf("%.0f (%.0f..%.0f)", *r.Honest, r.HonestLeast, r.HonestMost)
}

// slowdown is the time of call and work together by the sum of both alone.
func slowdown(r *row) string {
	if r.Comm+r.Alone <= 0 {
		return notMeasured
	}
	return fmt.Sprintf("%.2f", r.Total/(r.Comm+r.Alone))
}

// spread is a median with the least and the most of several rounds.
func spread(median, least, most float64, rounds int) string {
	if rounds < 2 {
		return figure(median)
	}
	return fmt.Sprintf("%s (%s..%s)", figure(median), figure(least), figure(most))
}

// figure prints a number with two to four digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// median is the middle value; of two in the middle the lower one.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)/2]
}

// of shows the median of what several rounds gave.
func of(values []float64) string {
	if len(values) == 0 {
		return notMeasured
	}
	return spread(median(values), slices.Min(values), slices.Max(values), len(values))
}

// sizeName is a number of bytes as people write it.
func sizeName(n int) string {
	for _, u := range []struct {
		bytes int
		name  string
	}{{1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.bytes && n%u.bytes == 0 {
			return fmt.Sprintf("%d %s", n/u.bytes, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// loadAverage is how busy the machine was in the minute before.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return cmp.Or(first, "unknown")
}
