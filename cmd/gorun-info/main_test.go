package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
		{"there", `echo '{"library":"libpmix.so.2","version":"4.2.2","headers":"4.2.1","problem":""}'`, true, "yes   libpmix 4.2.2 (libpmix.so.2, built for 4.2.1)"},
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

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
	}{
		{"--help", 0}, {"--version", 0}, {"", statusUsage}, {"nonsense", statusUsage}, {"pmi pmi", statusUsage},
	} {
		var out, errs strings.Builder
		if got := run(t.Context(), strings.Fields(c.args), &out, &errs); got != c.status {
			t.Errorf("%q: got status %d, want %d: %s", c.args, got, c.status, errs.String())
		}
	}
	// There is no helper beside a test's binary.
	var out, errs strings.Builder
	if got := run(t.Context(), []string{"pmi", "--json"}, &out, &errs); got != statusMissing {
		t.Errorf("pmi --json: got status %d, want %d", got, statusMissing)
	}
	var r pmiReport
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil || !r.PMI1.OK || r.PMIx.OK || r.PMIx.Problem == "" {
		t.Errorf("got %+v, %v of %s", r, err, out.String())
	}
}
