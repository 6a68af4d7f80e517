package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Results of before stay where a session gives none.
func TestOldResultsStay(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	old := filepath.Join(dir, "old.json")
	if err := os.WriteFile(old, []byte("of before\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	status, _, errs := bench(t, "-b", "barrier", "--compare", "mpich", "--json", old)
	if data, err := os.ReadFile(old); status != statusMissing || err != nil || string(data) != "of before\n" {
		t.Errorf("status %d, %s, file %q, error %v; want 2 and the file as it was", status, errs, data, err)
	}
	status, _, errs = bench(t, "--json", old, "--csv", filepath.Join(dir, ".", "old.json"))
	if status != statusFailed || !strings.Contains(errs, "names the file of --csv too") {
		t.Errorf("status %d, %s; want a file of two kinds refused", status, errs)
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, errors.New("refused") }

// New results replace older ones that were longer, and what one output refuses
// the others have.
func TestOutputsAreIndependent(t *testing.T) {
	dir := t.TempDir()
	h, points, r := recorded()
	rows := r.rows(points)
	names := map[string]string{}
	for _, name := range []string{"csv", "html"} {
		names[name] = filepath.Join(dir, name)
		if err := os.WriteFile(names[name], bytes.Repeat([]byte("long ago\n"), 1<<16), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	parser, p := newParser()
	p.csv, p.html, p.json = names["csv"], names["html"], "/dev/full"
	o, err := openOutputs(parser, p)
	if err != nil {
		t.Fatal(err)
	}
	err = o.write(refusing{}, h, rows, p)
	if err == nil || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v, want both that failed", err)
	}
	var table bytes.Buffer
	if err := writeCSV(&table, rows); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"csv": table.String(), "html": recordedPage(t)} {
		if data, err := os.ReadFile(names[name]); err != nil || string(data) != want {
			t.Errorf("%s: %d bytes, error %v; want %d bytes", name, len(data), err, len(want))
		}
	}
}
