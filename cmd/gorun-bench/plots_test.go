package main

import (
	"encoding/xml"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// overlapped are the rows of a session of -b overlap --async-progress off,on.
func overlapped() []row {
	r := &results{}
	points := []point{{"ialltoall", "byte", 1 << 16}, {"ialltoall", "byte", 1 << 20}}
	for _, c := range []*contender{
		{system: gorun, memory: registered, progress: "off"}, {system: gorun, memory: registered, progress: progressOn},
		{system: mpich, memory: ordinary}, {system: mpich, memory: ordinary, progress: progressOn},
	} {
		j := &job{contender: c, np: 2, points: points}
		for round := range 3 {
			for _, p := range points {
				s := sample{batch: 1, count: 3, p10: 8, p50: 10, p90: 12, p99: 20, compute: 10, total: 20, alone: 10, comm: 10, overlapped: true}
				if c.progress == progressOn {
					s.total = 11 + float64(round)
				}
				r.add(j, p, round, s)
			}
		}
	}
	return r.rows(points)
}

// Modes of progress threads, of gorun's ranks and of MPICH, have rows, columns and curves of their own.
func TestProgressModesStandApart(t *testing.T) {
	rows := overlapped()
	if len(rows) != 8 {
		t.Fatalf("%d rows, want 2 sizes of 4 series: %+v", len(rows), rows)
	}
	for _, r := range rows {
		want := [3]float64{0, 0, 0}
		if r.Progress == progressOn {
			want = [3]float64{80, 70, 90}
		}
		if got := [3]float64{*r.Honest, r.HonestLeast, r.HonestMost}; got != want {
			t.Errorf("%s, progress %q: honest overlap %v, want %v", r.System, r.Progress, got, want)
		}
	}
	var table strings.Builder
	if err := writeTable(&table, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{" mpich  mpich-async ", "registered, progress off", "registered, progress on"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in\n%s", want, table.String())
		}
	}
	for _, f := range newPage(&header{}, rows).Curves {
		if f.Count != 4 || len(f.Legend) != 4 {
			t.Errorf("%s: %d curves, legend %+v, want 4", f.Title, f.Count, f.Legend)
		}
	}
}

// --svg writes each plot as a file that is whole by itself.
func TestPlotsAreFiles(t *testing.T) {
	parser, p := newParser()
	p.svg = filepath.Join(t.TempDir(), "plots")
	o, err := openOutputs(parser, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.write(io.Discard, &header{}, overlapped(), p); err != nil {
		t.Fatal(err)
	}
	for name, title := range map[string]string{"ialltoall-2": "Non-blocking alltoall, 2 ranks", "ialltoall-2-overlap": "Non-blocking alltoall, 2 ranks: honest overlap"} {
		text, err := os.ReadFile(filepath.Join(p.svg, name+".svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		var picture struct {
			XMLName xml.Name `xml:"http://www.w3.org/2000/svg svg"`
			Title   string   `xml:"title"`
			Style   string   `xml:"style"`
			Plot    struct {
				Series []struct{} `xml:"g"`
			} `xml:"svg"`
			Legend []struct {
				Text string `xml:"text"`
			} `xml:"g"`
		}
		if err := xml.Unmarshal(text, &picture); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if picture.Title != title || len(picture.Plot.Series) != 4 || len(picture.Legend) != 4 || picture.Legend[3].Text != "MPICH with progress threads" ||
			!strings.Contains(picture.Style, "--s-mpich:") || !strings.Contains(picture.Style, ".series polyline") {
			t.Errorf("%s: got %+v, want the title %q, 4 curves and their legend", name, picture, title)
		}
	}
	parser, p = newParser()
	p.svg = "/dev/null/plots"
	if _, err := openOutputs(parser, p); err == nil || !strings.Contains(err.Error(), "cannot write the plots") {
		t.Errorf("a directory that cannot be made: %v", err)
	}
}
