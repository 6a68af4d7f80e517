package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Marks around the README's paragraph about the longer run.
const (
	longerBegin = "<!-- longer run: go test ./cmd/gorun-bench -run TestReadmeLongerRun -update -->\n"
	longerEnd   = "<!-- end of longer run -->\n"
)

// TestReadmeLongerRun holds the README's paragraph to testdata/bench/full.json.
func TestReadmeLongerRun(t *testing.T) {
	f, err := os.Open(filepath.Join("..", "..", "testdata", "bench", "full.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, rows, err := readJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join("..", "..", "README.md")
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := bytes.Cut(text, []byte(longerBegin))
	old, after, closed := bytes.Cut(rest, []byte(longerEnd))
	if !ok || !closed {
		t.Fatalf("found no paragraph between %q and %q", longerBegin, longerEnd)
	}
	want := longerRun(rows)
	if *update {
		if err := os.WriteFile(name, slices.Concat(before, []byte(longerBegin+want+longerEnd), after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(old) != want {
		t.Errorf("the README says\n%s\nand the data\n%s\n(-update writes it)", old, want)
	}
}

// worstNamed is how many of the slowest benchmarks are named.
const worstNamed = 8

// longerRun counts what is slower than the better MPI, and names the worst row of
// each benchmark that is slowest.
func longerRun(rows []row) string {
	quotients, slower, aimless := 0, 0, 0
	worst := map[string]*row{}
	var missed []*row
	for i := range rows {
		r := &rows[i]
		if r.System != gorun || r.Peer == "" {
			continue
		}
		quotients++
		if r.missed() {
			missed = append(missed, r)
		}
		if r.Ratio <= 1 {
			continue
		}
		slower++
		if _, _, ok := r.aim(); !ok {
			aimless++
		}
		if w := worst[r.Benchmark]; w == nil || r.Ratio > w.Ratio {
			worst[r.Benchmark] = r
		}
	}
	aimed, misses := judged(rows)
	var list []*row
	for _, r := range worst {
		list = append(list, r)
	}
	bySlowness := func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(a.Benchmark, b.Benchmark), cmp.Compare(a.NP, b.NP), cmp.Compare(a.Bytes, b.Bytes))
	}
	slices.SortFunc(list, bySlowness)
	slices.SortFunc(missed, bySlowness)
	var b strings.Builder
	fmt.Fprintf(&b, "The longer run has %d rows with a quotient. In %d of them gorun is slower than the better MPI, and %d of these have no aim.\n", quotients, slower, aimless)
	fmt.Fprintf(&b, "Of the %d rows with an aim %d are where they are meant to be. The slowest benchmarks, each by its worst row:\n\n", aimed, aimed-misses)
	b.WriteString("| | ranks | memory | quotient | aim |\n|---|---|---|---|---|\n")
	for _, r := range list[:min(worstNamed, len(list))] {
		fmt.Fprintln(&b, tableRow(r))
	}
	fmt.Fprintf(&b, "\n<details><summary>The %d rows that miss their aim</summary>\n\n| | ranks | memory | quotient | aim |\n|---|---|---|---|---|\n", misses)
	for _, r := range missed {
		fmt.Fprintln(&b, tableRow(r))
	}
	b.WriteString("\n</details>\n")
	return b.String()
}

func tableRow(r *row) string {
	aim := cmp.Or(r.aimText(), "none")
	if _, rate, _ := r.aim(); rate > 0 {
		aim += fmt.Sprintf(", %.0f M/s", rate/1e6)
	}
	return fmt.Sprintf("| %s | %d | %s | %.2f | %s |", r.label(), r.NP, r.Memory, r.Ratio, aim)
}
