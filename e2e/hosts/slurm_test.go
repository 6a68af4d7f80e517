package hosts

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// What Slurm starts, and what gorun starts in Slurm's allocations.
func TestSlurm(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := testbed.New(t, 2)
	b.Slurm()
	gorun := filepath.Join(bin, "gorun")
	for _, c := range []struct {
		name string
		argv []string
		ends int      // its status; -1: any but 0
		want []string // in its output
		not  string   // not there
	}{
		{"srun starts Go ranks", []string{"srun", "--mpi=pmi2", "-N2", "-n4", bin + "/a2a", "-m", "32"}, 0, []string{"Rank 3 |", "on every rank"}, ""},
		{"the allocation's slots", []string{"salloc", "-N2", "-n4", gorun, "-v", "-v", bin + "/a2a", "-m", "32"}, 0, []string{"Rank 3 |", "on every rank", "srun --overlap"}, "ssh"},
		{"of different numbers", []string{"salloc", "-N2", "-n3", gorun, "hostname"}, 0, []string{"h1\nh1\nh2\n"}, ""},
		{"on another host alone", []string{"salloc", "-N1", "-n2", "-w", "h2", gorun, "hostname"}, 0, []string{"h2\nh2\n"}, ""},
		{"this host alone", []string{"salloc", "-N1", "-n2", "-w", "h1", gorun, "-v", "-v", "hostname"}, 0, []string{"h1\nh1\n"}, "srun"},
		{"placed by topology", []string{"salloc", "-N2", "-n4", gorun, "--map-by", "core", "--oversubscribe", "hostname"}, 0, []string{"h2", "h1"}, ""},
		{"by ssh", []string{"salloc", "-N2", "-n2", gorun, "-v", "-v", "--launcher", "ssh", "hostname"}, 0, []string{"h2", "command=ssh", "h1"}, "srun"},
		{"a host outside", []string{"salloc", "-N1", "-w", "h1", gorun, "-H", "h1,h2", "hostname"}, -1, []string{"host h2 of -H or a hostfile is not in the allocation", "--launcher ssh"}, ""},
		{"outside of an allocation", []string{gorun, "--launcher", "slurm", "-H", "h2", "hostname"}, -1, []string{"SLURM_JOB_ID", "salloc"}, ""},
		{"no agent there", []string{"salloc", "-N2", gorun, "--launch-agent", "/nowhere/gorun-agent", "hostname"}, -1, []string{"host h2: ", ": srun", "/nowhere/gorun-agent", "try srun"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, b, c.argv...)
			said := inOrder(got.out) + got.err
			if (got.status != 0) != (c.ends != 0) || c.not != "" && strings.Contains(said, c.not) {
				t.Errorf("%q: status %d\n%s", c.argv, got.status, said)
			}
			for _, want := range c.want {
				if !strings.Contains(said, want) {
					t.Errorf("%q: no %q in\n%s", c.argv, want, said)
				}
			}
			b.Idle(leftLimit)
		})
	}
}

// inOrder sorts the lines of a host each, which come in any order.
func inOrder(text string) string {
	var first, others strings.Builder
	for line := range strings.Lines(text) {
		if line == "h1\n" {
			first.WriteString(line)
		} else {
			others.WriteString(line)
		}
	}
	return first.String() + others.String()
}

// An allocation that ends is the cause of what follows, and nothing is left.
func TestSlurmCancels(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := testbed.New(t, 2)
	b.Slurm()
	gorun := filepath.Join(bin, "gorun")
	for _, c := range []struct {
		name, batch string
	}{
		{"salloc", ""},
		{"sbatch", "#!/bin/sh\nexec " + gorun + " sleep 1234\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testenv.Deadline(t, time.Minute)
			argv := []string{"salloc", "-N2", gorun, "sleep", "1234"}
			if c.batch != "" {
				argv = []string{"sbatch", "-W", "-N2", "-o", filepath.Join(b.Dir, "said"), "--wrap", "exec " + gorun + " sleep 1234"}
			}
			cmd := b.Hosts[0].Command(ctx, argv...)
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
			err := struck(t, b, cmd, func() {
				if out, err := b.Hosts[0].Command(ctx, "scancel", "--user=root").CombinedOutput(); err != nil {
					t.Fatalf("scancel: %v\n%s", err, out)
				}
			})
			// Of a cancelled job sbatch -W may say 0, when the job was gone before it asked.
			if err == nil && c.batch == "" {
				t.Errorf("%q ended well", argv)
			}
			text := said.String()
			if c.batch != "" {
				file, _ := exec.Command("cat", filepath.Join(b.Dir, "said")).Output()
				text += string(file)
			}
			if !strings.Contains(text, "gorun: the allocation was cancelled (Slurm's job") {
				t.Errorf("no word of the allocation in\n%s", text)
			}
		})
	}
}

// awaitRanks waits until a command runs on all hosts.
func awaitRanks(t *testing.T, b *testbed.Bed, line string) {
	t.Helper()
	testenv.Await(t, 30*time.Second, "ranks on all hosts", func() bool {
		for _, h := range b.Hosts {
			found := false
			for _, have := range h.Processes() {
				found = found || have == line
			}
			if !found {
				return false
			}
		}
		return true
	})
}

// struck starts a job whose ranks are "sleep 1234", strikes when they run on all hosts, and waits until nothing is left. It
// gives the end of cmd.
func struck(t *testing.T, b *testbed.Bed, cmd *exec.Cmd, strike func()) error {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitRanks(t, b, "sleep 1234")
	began := time.Now()
	strike()
	err := cmd.Wait()
	b.Idle(leftLimit)
	t.Logf("ended and clean after %v", time.Since(began).Round(time.Millisecond))
	return err
}

// Whatever is killed in an allocation, the job ends on all hosts, and nothing is left.
func TestSlurmDeaths(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := testbed.New(t, 2)
	b.Slurm()
	gorun := filepath.Join(bin, "gorun")
	for _, c := range []struct {
		name   string
		host   int
		victim string // the beginning of its command line
		want   string
	}{
		{"a rank", 1, "sleep 1234", "host h2"},
		{"an agent", 1, bin + "/gorun-agent", "host h2: its agent"},
		{"srun", 0, "srun", "host h2: its agent"},
		{"gorun", 0, gorun, ""},
	} {
		if c.name != "an agent" && !*all {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			cmd := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), "salloc", "-N2", gorun, "sleep", "1234")
			var said bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &said, &said, time.Second
			err := struck(t, b, cmd, func() { killFirst(t, b.Hosts[c.host], c.victim) })
			if err == nil && c.want != "" { // salloc forgives a signal
				t.Error("gorun ended well")
			}
			if !strings.Contains(said.String(), c.want) || strings.Contains(said.String(), "was cancelled") {
				t.Errorf("no %q in\n%s", c.want, said.String())
			}
		})
	}
}
