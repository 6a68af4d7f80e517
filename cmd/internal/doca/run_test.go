package doca

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// start makes the run of a program with this command line.
func start(t *testing.T, out, errOut io.Writer, args ...string) *Run {
	t.Helper()
	p := New("prog", "", "prog 1.0")
	p.Results()
	err := p.Parse(args)
	if err == nil {
		err = p.CreateResults()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p.Start(Stdio{out, errOut})
}

func TestEndGivesTheStatus(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		name   string
		ctx    context.Context
		err    error
		status int
		says   string
	}{
		{"well", context.Background(), nil, 0, ""},
		{"badly", context.Background(), errors.New("peer 3 is gone"), StatusFailed, "[GORUN][ERR][run_test.go:"},
		{"by a signal", ended, context.Canceled, StatusInterrupted, "[GORUN][WRN][run_test.go:"},
		{"badly, and then a signal came", ended, errors.New("peer 3 is gone"), StatusFailed, "] peer 3 is gone\n"},
		{"by a context of its own", context.Background(), context.Canceled, StatusFailed, "] context canceled\n"},
	} {
		var errOut strings.Builder
		r := start(t, io.Discard, &errOut)
		if status := r.End(c.ctx, c.err); status != c.status || !strings.Contains(errOut.String(), c.says) || c.says == "" && errOut.Len() > 0 {
			t.Errorf("%s: status %d, %q; want %d, %q", c.name, status, errOut.String(), c.status, c.says)
		}
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var errOut strings.Builder
	r := start(t, full, &errOut, "--output-json", "-")
	if status := r.End(context.Background(), r.WriteResults(1)); status != StatusFailed || errOut.String() != "prog: standard output: no space left on device\n" {
		t.Errorf("a full disk: status %d, %q", status, errOut.String())
	}
}

// Ranks that name the same file add to it.
func TestResultsOfSeveralRanks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	if err := os.WriteFile(path, []byte(strings.Repeat("old ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	var runs []*Run
	for range 3 {
		runs = append(runs, start(t, io.Discard, io.Discard, "--output-json", path))
	}
	for i, r := range runs {
		if status := r.End(context.Background(), r.WriteResults(map[string]int{"rank": i})); status != 0 {
			t.Errorf("rank %d ends with %d", i, status)
		}
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	d := json.NewDecoder(file)
	for i := range runs {
		var got struct{ Rank int }
		if err := d.Decode(&got); err != nil || got.Rank != i {
			t.Errorf("results %d are %+v, %v", i, got, err)
		}
	}
	if d.More() {
		t.Error("the file holds more than the results")
	}
}

func TestResultsThatCannotBeWritten(t *testing.T) {
	p := New("prog", "", "prog 1.0")
	p.Results()
	if err := p.Parse([]string{"--output-json", filepath.Join(t.TempDir(), "no", "such")}); err != nil {
		t.Fatal(err)
	}
	if err := p.CreateResults(); err == nil || !strings.HasPrefix(err.Error(), "--output-json: cannot write the results: ") {
		t.Errorf("got %v", err)
	}
	var errOut strings.Builder
	r := start(t, io.Discard, &errOut, "--output-json", "/dev/full")
	if status := r.End(context.Background(), r.WriteResults(1)); status != StatusFailed || !strings.Contains(errOut.String(), "--output-json: cannot write the results: ") {
		t.Errorf("a full disk: status %d, %q", status, errOut.String())
	}
}
