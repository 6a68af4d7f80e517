package main

import (
	"slices"
	"strings"
	"testing"
)

// A busy machine and rounds that were not made are told in the table, on the page above all figures, and in the file.
func TestDoubtsAreTold(t *testing.T) {
	h, points, r := recorded()
	rows := r.rows(points)
	if got := h.caveats(rows); got != nil {
		t.Errorf("results of an older version: %q", got)
	}
	h.LoadBefore, h.LoadAfter, h.Rounds, h.Planned = 19.04, 21, 2, 3
	want := []string{"The machine was busy: load 19.0 before and 21.0 after, on 2 cores.", "Only 2 of 3 rounds were made", " figures are of fewer than the 3 rounds that were planned, the least of 1."}
	var file, table, page strings.Builder
	if err := writeJSON(&file, h, rows); err != nil {
		t.Fatal(err)
	}
	h, rows, err := readJSON(strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := writeNotes(&table, h, rows, false); err != nil {
		t.Fatal(err)
	}
	if err := writePage(&page, h, rows); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(page.String(), "gorun is faster in")
	for _, w := range want {
		if !strings.Contains(table.String(), w) || !strings.Contains(head, w) {
			t.Errorf("no %q under the table\n%s\nor at the head of the page\n%s", w, &table, head[strings.Index(head, "<body>"):])
		}
	}
}

// The session's own ranks do not make a machine busy.
func TestOwnRanksAreNoOthers(t *testing.T) {
	rows := []row{{NP: 4, Runs: 5}}
	for _, tt := range []struct {
		before, after float64
		busy          bool
	}{{0.3, 4.5, false}, {1.2, 4, true}, {0.3, 5.5, true}} {
		h := &header{Machine: machine{Cores: 2}, LoadBefore: tt.before, LoadAfter: tt.after, Rounds: 5, Planned: 5}
		if got := slices.ContainsFunc(h.caveats(rows), func(s string) bool { return strings.Contains(s, "busy") }); got != tt.busy {
			t.Errorf("load %g before, %g after: busy %v, want %v", tt.before, tt.after, got, tt.busy)
		}
	}
}
