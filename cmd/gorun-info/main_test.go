package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
)

// helper puts a gorun-pmix of a few lines of shell into a directory.
func helper(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gorun-pmix"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPMI(t *testing.T) {
	for _, c := range []struct {
		name, script string
		ok           bool
		want         string // in the table
	}{
		{"there", `echo '{"library":"libpmix.so.2","version":"4.2.2","problem":""}'`, true, "yes   libpmix 4.2.2 (libpmix.so.2)"},
		{"no library", `echo '{"problem":"libpmix.so.2: cannot open; apt-get install libpmix2"}'`, false, "no    libpmix.so.2: cannot open; apt-get install libpmix2"},
		{"another program", `echo hello`, false, `prints "hello\n": it is not of this gorun`},
		{"it fails", `exit 3`, false, "--probe: exit status 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := lookForPMI(t.Context(), helper(t, c.script))
			var out strings.Builder
			r.table(&out)
			if r.PMIx.OK != c.ok || !strings.Contains(out.String(), c.want) {
				t.Errorf("got ok %v and\n%swant %v and %q", r.PMIx.OK, out.String(), c.ok, c.want)
			}
		})
	}
	t.Run("no helper", func(t *testing.T) {
		r := lookForPMI(t.Context(), t.TempDir())
		if r.PMIx.OK || !strings.Contains(r.PMIx.Problem, "gorun-pmix does not exist") {
			t.Errorf("got %+v", r.PMIx)
		}
	})
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == doctor.ReachWord {
		os.Exit(doctor.Reach(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// info runs a command line.
func info(t *testing.T, args ...string) (status int, out, errs string) {
	t.Helper()
	var o, e strings.Builder
	status = run(t.Context(), args, os.Environ(), stdio{&o, &e})
	return status, o.String(), e.String()
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		errs   string
	}{
		{"--help", 0, ""}, {"-h", 0, ""}, {"-help", 0, ""}, {"--version", 0, ""}, {"-V", 0, ""}, {"--man", 0, ""}, {"doctor --help", 0, ""},
		{"--completion bash", 0, ""}, {"-completion=zsh", 0, ""}, {"--completion fish", 0, ""}, {"settings", 0, ""}, {"topo", 0, ""}, {"topo --record", 0, ""},
		{"--completion tcsh", 2, `found "tcsh", expected bash, zsh or fish`},
		{"nonsense", 2, `found "nonsense", expected doctor, devices, top, topo, settings, mpi, pmi`},
		{"doctr", 2, "did you mean doctor?"},
		{"pmi pmi", 2, `pmi: found ["pmi"], expected no further arguments`},
		{"doctor --jsn", 2, "did you mean --json?"},
		{"doctor -x", 2, "there is no option"},
		{"doctor --np", 2, "--np: expected a value"},
		{"doctor -np x", 2, `--np: found "x", expected a number`},
		{"doctor -np 0", 2, "--np: found 0, expected a number of ranks"},
		{"doctor --tcp-ports 40000", 2, `--tcp-ports: found "40000", expected two ports, the first and the last`},
		{"doctor --tcp-ports=", 2, `--tcp-ports: found "", expected two ports`},
		{"topo --tcp-ports 1-2", 2, "--tcp-ports has no meaning for gorun-info topo"},
		{"doctor --record", 2, "--record has no meaning for gorun-info doctor"},
		{"topo -np 3", 2, "--np has no meaning for gorun-info topo"},
		{"doctor a:b", 2, "a:b"},
		{"doctor -- -oProxyCommand=true", 2, "expected NAME"},
	} {
		status, out, errs := info(t, strings.Fields(c.args)...)
		if status != c.status || !strings.Contains(errs, c.errs) || (errs == "") != (c.errs == "") || (out == "") != (c.status != 0) {
			t.Errorf("%q: got status %d, %q, want %d, %q", c.args, status, errs, c.status, c.errs)
		}
	}
	r, err := parse(strings.Fields("doctor -np 64 -v -tcp-ports 40000:40100 node[01-02]:8 ada@node03,node01"))
	if err != nil || r.ports.String() != "40000-40100" || r.np != 64 || !r.verbose || len(r.hosts) != 3 || r.hosts[1].Name != "node02" || r.hosts[2].User != "ada" {
		t.Errorf("got %+v, %v, want three hosts", r, err)
	}
}

func TestPMIAsJSON(t *testing.T) {
	// There is no helper beside a test's binary.
	status, out, _ := info(t, "pmi", "--json")
	var r pmiReport
	if err := json.Unmarshal([]byte(out), &r); status != statusMissing || err != nil || !r.PMI1.OK || r.PMIx.OK || r.PMIx.Problem == "" {
		t.Errorf("got status %d, %+v, %v of %s", status, r, err, out)
	}
}

// Beside a test's binary there is no gorun: that is a problem, in every form of
// the report.
func TestDoctor(t *testing.T) {
	status, out, errs := info(t, "doctor", "--json", "-np", "2")
	if status != 1 || errs != "" {
		t.Errorf("got status %d, %q, want 1 and nothing", status, errs)
	}
	names := map[string]int{}
	for line := range strings.Lines(out) {
		var f doctor.Finding
		d := json.NewDecoder(strings.NewReader(line))
		d.DisallowUnknownFields()
		if err := d.Decode(&f); err != nil || f.Name == "" || f.State == "" || f.Found == "" || f.Why == "" {
			t.Errorf("got %q, %v, want name, state, found, why and fix", line, err)
		}
		names[f.Name]++
		if f.Name == "gorun" && (f.State != doctor.Problem || f.Fix == "") {
			t.Errorf("got %+v, want a problem and a fix", f)
		}
	}
	for _, c := range doctor.Checks() {
		if names[c.Name] != 1 {
			t.Errorf("%d objects of the check %s", names[c.Name], c.Name)
		}
	}
	status, out, _ = info(t, "doctor")
	if status != 1 || !strings.Contains(out, "problem  gorun ") || !strings.Contains(out, "fix: make build") || !strings.Contains(out, " problem") {
		t.Errorf("got status %d and\n%s", status, out)
	}
}

// An interrupted doctor says so, and nothing that it has not seen.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	if status := run(ctx, []string{"doctor"}, os.Environ(), stdio{&out, &errs}); status != statusInterrupted || out.Len() > 0 || !strings.Contains(errs.String(), "interrupted") {
		t.Errorf("got status %d, %q, %q", status, out.String(), errs.String())
	}
}

func TestReport(t *testing.T) {
	var b strings.Builder
	writeFindings(&b, []doctor.Finding{{Name: "a", State: doctor.OK, Found: "well", Why: "it counts"}, {Name: "long", State: doctor.Note, Found: "so so", Why: "it matters", Fix: "do it"},
		{Name: "bad", State: doctor.Problem, Found: "broken", Why: "it fails", Fix: "mend it"}}, false)
	const want = "problem  bad   broken\n               why: it fails\n               fix: mend it\n" +
		"note     long  so so\n               why: it matters\n               fix: do it\n\n1 check ok (-v shows it), 1 note, 1 problem\n"
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	writeFindings(&b, []doctor.Finding{{Name: "a", State: doctor.OK, Found: "well", Why: "it counts"}}, true)
	if got, want := b.String(), "ok       a  well\n            why: it counts\n\n1 check ok, 0 notes, 0 problems\n"; got != want {
		t.Errorf("-v: got\n%s\nwant\n%s", got, want)
	}
	b.Reset()
	writeFindings(&b, []doctor.Finding{{State: doctor.OK}, {State: doctor.OK}}, false)
	if got, want := b.String(), "2 checks ok (-v shows them), 0 notes, 0 problems\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestOverview(t *testing.T) {
	status, out, errs := info(t)
	for _, want := range []string{"version    gorun ", "providers  soft", "PMI-1", "machine    ", "GORUN_TUNING", "gorun-info doctor"} {
		if status != 0 || errs != "" || !strings.Contains(out, want) {
			t.Errorf("got status %d, %q and\n%s\nwant %q", status, errs, out, want)
		}
	}
	status, out, _ = info(t, "--json")
	var o overview
	if err := json.Unmarshal([]byte(out), &o); status != 0 || err != nil || o.Version == "" || o.Machine == "" || len(o.Settings) != len(settings()) {
		t.Errorf("got status %d, %+v, %v", status, o, err)
	}
}
