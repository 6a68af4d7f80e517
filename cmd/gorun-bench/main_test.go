package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// bench runs the command in this process, up to where it would start jobs.
func bench(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	status = run(t.Context(), args, stdio{out: &o, err: &e})
	return status, o.String(), e.String()
}

func TestBadCommandLines(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "no", "such", "folder")
	for _, c := range []struct {
		args   string
		status int
		want   string // on standard error
	}{
		{"--size 8", 1, "did you mean --sizes?"},
		{"-b allredce", 1, `-b: found "allredce", expected the name of a benchmark; did you mean allreduce?`},
		{"-b barrier,", 1, `-b: found ""`},
		{"-m 8:4", 1, "-m: found the range"},
		{"--sizes x", 1, `-m: found "x"`},
		{"-np 0", 1, "-n: found \"0\", expected numbers of ranks from 1 to 4096"},
		{"-n 2,x", 1, "-n: found"},
		{"--type floot", 1, `-t: found "floot", expected char, int, long, float or double`},
		{"--memory registred", 1, "did you mean registered?"},
		{"--compare mpich,mpich", 1, "-c: found"},
		{"-d nosuch", 1, `-d: no RDMA device "nosuch": there is soft0 (soft)`},
		{"-d soft0,", 1, `-d: no RDMA device ""`},
		{"--devices soft0,soft0,soft0", 1, "-d: bad argument: 3 devices are named"},
		{"--compare openmpy", 1, "did you mean openmpi?"},
		{"--runs 0", 1, "-r: found 0, expected 1 or more"},
		{"--iterations -1", 1, "-i: found -1"},
		{"--time 5", 1, "--time: found \"5\", expected a time from 1ms"},
		{"--json " + missing, 1, "--json: cannot write the results"},
		{"--html " + missing, 1, "--html: cannot write the results"},
		{"--csv " + missing, 1, "--csv: cannot write the results"},
		{"--from " + missing, 1, "no such file"},
		{"extra", 1, `found the argument "extra"`},
		{"-b latency -n 4", 1, "nothing of latency can be measured on 4 ranks"},
		{"-b allreduce -m 6 -q", 1, "nothing of allreduce can be measured"},
	} {
		status, out, errs := bench(t, strings.Fields(c.args)...)
		if !strings.HasPrefix(errs, "gorun-bench: ") || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: it says %q, want one line that begins with gorun-bench", c.args, errs)
		}
		if status != c.status || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: status %d, out %q, err %q; want status %d and %q", c.args, status, out, errs, c.status, c.want)
		}
	}
}

func TestMissingMPI(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, name := range []string{mpich, openmpi} {
		status, _, errs := bench(t, "-b", "barrier", "--compare", name)
		if status != 2 || !strings.Contains(errs, "apt-get install "+peerNames[name].apt) || !strings.Contains(errs, "dnf install "+peerNames[name].dnf) {
			t.Errorf("%s: status %d, %q; want 2 and how to install it", name, status, errs)
		}
	}
}

// A compiler that fails is quoted, with its first lines.
func TestMPICompilerThatFails(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"mpiexec.mpich": "#!/bin/sh\necho HYDRA build details\n",
		"mpicc.mpich":   "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo \"trouble $i\" >&2; done; exit 1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	status, _, errs := bench(t, "-b", "barrier", "--compare", "mpich")
	if status != 1 || !strings.Contains(errs, "| trouble 10\ngorun-bench: | ...") || strings.Contains(errs, "trouble 11") {
		t.Errorf("status %d, %q; want 1 and ten lines of trouble", status, errs)
	}
}

func TestFromFile(t *testing.T) {
	dir := t.TempDir()
	h, points, r := recorded()
	rows := r.rows(points)
	var b bytes.Buffer
	if err := writeJSON(&b, h, rows); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "results.json")
	if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(dir, "page.html")
	status, out, errs := bench(t, "--from", file, "--html", page)
	var table bytes.Buffer
	if err := writeTable(&table, rows); err != nil {
		t.Fatal(err)
	}
	if status != 0 || !strings.HasPrefix(out, table.String()) || errs != "" {
		t.Errorf("status %d, %q, %q; want 0 and the table", status, out, errs)
	}
	if data, err := os.ReadFile(page); err != nil || string(data) != recordedPage(t) {
		t.Errorf("the page differs from that of the session, or %v", err)
	}
	status, _, errs = bench(t, "--from", file, "--json", file)
	if data, err := os.ReadFile(file); status != 1 || !strings.Contains(errs, "would overwrite") || err != nil || !bytes.Equal(data, b.Bytes()) {
		t.Errorf("status %d, %q, error %v; want 1 and the file as it was", status, errs, err)
	}
}

// The estimate is what the rounds that are left took before.
func TestProgressEstimates(t *testing.T) {
	var b bytes.Buffer
	p := &progress{w: &b}
	jobs := []*job{{contender: &contender{system: gorun, memory: registered}, np: 2, points: make([]point, 10)}, {contender: &contender{system: mpich, variant: "core"}, np: 2}}
	p.plan(jobs, &params{runs: 3, budget: 100 * time.Millisecond})
	p.at(0, jobs[0], point{"barrier", "byte", 0})
	jobs[0].took, jobs[1].took = 2*time.Second, 10*time.Second
	p.at(1, jobs[0], point{"barrier", "byte", 0})
	p.at(1, jobs[0], point{"latency", "byte", 8}) // the same job: no new line
	p.at(2, jobs[1], point{"latency", "byte", 8})
	want := "round 1 of 3, np 2, gorun, registered, 6s left\nround 2 of 3, np 2, gorun, registered, 24s left\nround 3 of 3, np 2, mpich, core, 10s left\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	b.Reset()
	p.terminal, p.under = true, &b
	p.at(0, jobs[0], point{"barrier", "byte", 0})
	p.clear()
	if want := "\r\x1b[Kround 1 of 3, np 2, gorun, registered: barrier 0, 36s left\r\x1b[K"; b.String() != want {
		t.Errorf("on a terminal: got %q, want %q", b.String(), want)
	}
	// It is one line of the window, and makes room for what others say.
	b.Reset()
	p.width = func() int { return 20 }
	p.at(1, jobs[0], point{"barrier", "byte", 0})
	fmt.Fprintln(p, "trouble")
	if want := "\r\x1b[Kround 2 of 3, np 2,\r\x1b[Ktrouble\n"; b.String() != want {
		t.Errorf("on a narrow terminal: got %q, want %q", b.String(), want)
	}
}
