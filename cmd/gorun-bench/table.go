package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// unit is in which a benchmark's figures are shown, and what a time of so many
// microseconds is in it.
func (b *benchmark) unit() string {
	switch {
	case b.name == "mr":
		return "M/s"
	case b.how&perMessage != 0:
		return "MB/s"
	case b.how&launches != 0:
		return "ms"
	}
	return "us"
}

func (b *benchmark) in(us float64, bytes int) float64 {
	switch b.unit() {
	case "M/s":
		return 1 / us
	case "MB/s":
		return float64(bytes) / us
	case "ms":
		return us / 1e3
	}
	return us
}

// figure prints a number with two to four digits.
func figure(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v < 0.095 && v > 0:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// cell is a row's figure with the spread of its rounds.
func (r *row) cell() string {
	b := find(r.Benchmark)
	switch {
	case r.Failed != "":
		return "failed"
	case !r.Verified:
		return "WRONG"
	case r.Runs == 1:
		return figure(b.in(r.Median, r.Bytes))
	}
	low, high := b.in(r.Least, r.Bytes), b.in(r.Most, r.Bytes)
	return fmt.Sprintf("%s [%s..%s]", figure(b.in(r.Median, r.Bytes)), figure(min(low, high)), figure(max(low, high)))
}

// deviationText is how far the round that was farthest off was from the median.
func (r *row) deviationText() string {
	if r.Runs < 2 || r.Median <= 0 {
		return ""
	}
	far := max(r.Most-r.Median, r.Median-r.Least) / r.Median
	if far >= 9.995 {
		return fmt.Sprintf(" ±%.0fx", far)
	}
	return fmt.Sprintf(" ±%.0f%%", 100*far)
}

// shortCell is a row's figure and how far its rounds were off.
func (r *row) shortCell() string {
	figure, _, ok := strings.Cut(r.cell(), " ")
	if ok {
		figure += r.deviationText()
	}
	return figure
}

// ratioText is a row's ratio with its spread.
func (r *row) ratioText() string {
	switch {
	case r.Peer == "":
		return ""
	case r.Pairs < 2:
		return figure(r.Ratio)
	}
	return fmt.Sprintf("%s [%s..%s]", figure(r.Ratio), figure(r.RatioLow), figure(r.RatioHigh))
}

// A line is what stands in one line of the table: gorun's row of one kind of
// memory beside the peers'.
type line struct {
	gorun *row
	peers map[string]*row
}

// linesOf brings rows of the same point together, in their order.
func linesOf(rows []row) []line {
	type key struct {
		benchmark, typ, memory string
		np, bytes              int
	}
	peers := map[key]map[string]*row{}
	for i := range rows {
		r := &rows[i]
		k := key{r.Benchmark, r.Type, r.Memory, r.NP, r.Bytes}
		if peers[k] == nil {
			peers[k] = map[string]*row{}
		}
		if r.System != gorun {
			peers[k][r.column()] = r
		}
	}
	var list []line
	for i := range rows {
		if r := &rows[i]; r.System == gorun {
			k := key{r.Benchmark, r.Type, find(r.Benchmark).reference(r.Memory), r.NP, r.Bytes}
			if len(peers[k]) == 0 {
				k.memory = ordinary // of a file from before the MPIs had both kinds
			}
			list = append(list, line{r, peers[k]})
		}
	}
	return list
}

// column names a peer's series: mpich, openmpi, limit, and MPICH with its progress threads mpich-async.
func (s series) column() string {
	if s.system != gorun && s.progress == progressOn {
		return s.system + "-async"
	}
	return s.system
}

func (r *row) series() series { return series{r.System, r.Memory, r.Progress, r.Application, r.Engine} }

func (r *row) column() string { return r.series().column() }

// columnsOf are the peers' columns that the rows fill, in a fixed order.
func columnsOf(rows []row) []string {
	var list []string
	for _, s := range rivalSeries {
		if slices.ContainsFunc(rows, func(r row) bool { return r.column() == s.column() }) {
			list = append(list, s.column())
		}
	}
	return list
}

// memoryName is a row's memory, where that makes a difference.
func (r *row) memoryName() string {
	if b := find(r.Benchmark); b.how&(launches|sizeless) != 0 && r.Bytes == 0 {
		if r.Engine != "" {
			return "engine " + r.Engine
		}
		return ""
	}
	return r.settings()
}

// settings are a row's memory and, where it was asked for, its mode of progress threads;
// or the application.
func (r *row) settings() string {
	if r.Application != "" {
		return r.Application
	}
	if r.Engine != "" {
		return r.Memory + ", engine " + r.Engine
	}
	if r.Progress != "" && r.System == gorun {
		return r.Memory + ", progress " + r.Progress
	}
	return r.Memory
}

// writeTable prints the rows for people, in lines that a window of 120 columns holds.
func writeTable(w io.Writer, rows []row) error {
	peers := columnsOf(rows)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "benchmark\tnp\tbytes\tmemory\tunit\tgorun\t")
	for _, p := range peers {
		fmt.Fprintf(t, "%s\t", p)
	}
	if len(peers) > 0 {
		fmt.Fprintf(t, "ratio of times\taim\t\t")
	}
	fmt.Fprintln(t)
	for _, l := range linesOf(rows) {
		b := find(l.gorun.Benchmark)
		bytes := ""
		if b.how&sizeless == 0 {
			bytes = sizeName(l.gorun.Bytes)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t", b.name, l.gorun.NP, bytes, l.gorun.memoryName(), b.unit(), l.gorun.shortCell())
		for _, p := range peers {
			text := "-"
			if r := l.peers[p]; r != nil {
				text = r.shortCell()
			}
			fmt.Fprintf(t, "%s\t", text)
		}
		if len(peers) > 0 {
			mark := ""
			if l.gorun.missed() {
				mark = "!"
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t", l.gorun.ratioText(), l.gorun.aimText(), mark)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// writeNotes tells under the table why to doubt it, how to read it, what could not be measured,
// how calls overlapped, and with -v which settings the peers had and what was
// chosen.
func writeNotes(w io.Writer, h *header, rows []row, verbose bool) error {
	var b strings.Builder
	for _, c := range h.caveats(rows) {
		fmt.Fprintf(&b, "WARNING: %s\n", c)
	}
	if slices.ContainsFunc(rows, func(r row) bool { return r.Runs > 1 }) {
		fmt.Fprintln(&b, "±: how far the farthest round was from the median of the rounds.")
	}
	if others := columnsOf(rows); len(others) > 0 {
		better := "the better MPI's"
		if slices.Contains(others, limit) {
			better = "the better of the others"
		}
		fmt.Fprintf(&b, "ratio of times: gorun's by %s, with the least and the most of the rounds; below 1 gorun is faster.\n", better)
	}
	if all, missed := judged(rows); all > 0 {
		fmt.Fprintf(&b, "aim: the most that the ratio is meant to be%s; %d of %d rows are within it, ! marks the others.\n", ratesText(rows), all-missed, all)
	}
	for i := range rows {
		r := &rows[i]
		what := fmt.Sprintf("%s on %d ranks, %s", r.label(), r.NP, r.column())
		if r.Overlap != nil && r.Honest != nil {
			fmt.Fprintf(&b, "%s, %s: %s\n", what, r.settings(), r.overlapText())
		}
		if r.Failed != "" {
			fmt.Fprintf(&b, "%s: failed: %s\n", what, strings.SplitN(r.Failed, "\n", 2)[0])
		}
		if verbose && r.Explanation != "" {
			fmt.Fprintf(&b, "%s, %s: %s\n", what, r.settings(), r.Explanation)
		}
		if verbose && r.Variant != "" {
			fmt.Fprintf(&b, "%s: best with %s\n", what, r.Variant)
		}
	}
	if c := h.Machine.Costs; c != nil {
		fmt.Fprintf(&b, "The machine takes for %s.\n", c)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// overlapText says how a non-blocking call overlapped.
func (r *row) overlapText() string {
	return fmt.Sprintf("blocking %s us, work alone %s us, both %s us: overlap %.0f %% honest, %.0f %% by OSU's formula",
		figure(r.Comm), figure(r.Alone), figure(r.Total), *r.Honest, *r.Overlap)
}
