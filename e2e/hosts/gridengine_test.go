package hosts

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// qsub is a job of gridengine with so many ranks, whose output, and complaints, go to a file of the bed.
func qsub(t *testing.T, b *testbed.Bed, ranks string, options []string, argv ...string) (cmd *exec.Cmd, said func() string) {
	t.Helper()
	file := filepath.Join(b.Dir, "said")
	_ = os.Remove(file)
	script := filepath.Join(b.Dir, "job.sh")
	if err := os.WriteFile(script, []byte("exec "+strings.Join(argv, " ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	line := append([]string{"qsub", "-sync", "y", "-cwd", "-V", "-pe", "mpi", ranks, "-j", "y", "-o", file}, options...)
	cmd = b.Hosts[0].Command(testenv.Deadline(t, time.Minute), append(line, script)...)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &complaints, &complaints, time.Second
	return cmd, func() string {
		text, _ := os.ReadFile(file)
		return string(text) + complaints.String()
	}
}

// What gorun starts in gridengine's jobs.
func TestGridengine(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := testbed.New(t, 2)
	b.Gridengine()
	gorun := filepath.Join(bin, "gorun")
	for _, c := range []struct {
		name string
		argv []string
		good bool
		want []string
		not  string
	}{
		{"the job's slots", []string{gorun, "-v", "-v", bin + "/a2a", "-m", "32"}, true, []string{"Rank 3 |", "on every rank", "qrsh -inherit"}, "ssh"},
		{"by ssh", []string{gorun, "-v", "-v", "--launcher", "ssh", "hostname"}, true, []string{"h1", "h2", "command=ssh"}, "qrsh"},
		{"its program is sent", []string{gorun, "--stage", "-v", "hostname"}, true, []string{"h1", "h2"}, ""},
		{"a host outside", []string{gorun, "-H", "h1,h7", "hostname"}, false, []string{"host h7 of -H or a hostfile is not in the allocation", "--launcher ssh"}, ""},
		{"no agent there", []string{gorun, "--launch-agent", "/nowhere/gorun-agent", "hostname"}, false, []string{": qrsh", "/nowhere/gorun-agent", "try qrsh -inherit", "--launcher ssh"}, ""},
	} {
		if c.name != "the job's slots" && !*all {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cmd, said := qsub(t, b, "4", nil, c.argv...)
			err := cmd.Run()
			if text := said(); (err == nil) != c.good || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("%q: %v\n%s", c.argv, err, text)
			}
			for _, want := range c.want {
				if !strings.Contains(said(), want) {
					t.Errorf("%q: no %q in\n%s", c.argv, want, said())
				}
			}
			b.Idle(leftLimit)
		})
	}
	got := run(t, b, gorun, "--launcher", "sge", "-H", "h2", "hostname")
	if want := "PE_HOSTFILE, want a parallel job of gridengine"; got.status == 0 || !strings.Contains(got.err, want) {
		t.Errorf("outside of a job: status %d, no %q in\n%s", got.status, want, got.err)
	}
}

// A job that is deleted ends everywhere. gorun says why where gridengine gives notice; else it kills gorun first.
func TestGridengineDeletes(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := testbed.New(t, 2)
	b.Gridengine()
	for _, c := range []struct {
		name    string
		options []string
		want    string
	}{
		{"with notice", []string{"-notify"}, "gorun: the allocation was cancelled (gridengine's job"},
		{"without", nil, ""},
	} {
		if c.want == "" && !*all {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cmd, said := qsub(t, b, "4", c.options, filepath.Join(bin, "gorun"), "sleep", "1234")
			_ = struck(t, b, cmd, func() { // qsub ends well, it says
				if out, err := b.Hosts[0].Command(t.Context(), "qdel", "-u", "root").CombinedOutput(); err != nil {
					t.Fatalf("qdel: %v\n%s", err, out)
				}
			})
			if !strings.Contains(said(), c.want) {
				t.Errorf("no %q in\n%s", c.want, said())
			}
		})
	}
}
