package testbed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// make test-hosts passes it to all packages of its part.
var _ = flag.Bool("all", false, "nothing here: see e2e/hosts")

// Two hosts have nothing of what tells machines apart in common, and ssh leads from one
// to the other.
func TestHostsAreApart(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := New(t, 2)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
	defer cancel()
	const spaces = "hostname; for s in net pid ipc uts mnt; do readlink /proc/self/ns/$s; done; stat -c %d /dev/shm /tmp"
	own, err := b.Hosts[0].Command(ctx, "sh", "-c", spaces).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, own)
	}
	other, err := b.Hosts[0].Command(ctx, "ssh", "h2", spaces).CombinedOutput()
	if err != nil {
		t.Fatalf("ssh: %v\n%s", err, other)
	}
	a, c := strings.Fields(string(own)), strings.Fields(string(other))
	if len(a) != 8 || len(c) != 8 {
		t.Fatalf("got %q and %q, want 8 words each", a, c)
	}
	for i := range a {
		if a[i] == c[i] {
			t.Errorf("both hosts have %q", a[i])
		}
	}
	b.Idle(time.Second)
}

// srun reaches both hosts of a bed with Slurm, each apart.
func TestSlurmRunsOnHosts(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := New(t, 2)
	b.Slurm()
	ctx := testenv.Deadline(t, time.Minute)
	out, err := b.Hosts[0].Command(ctx, "srun", "-N2", "-n4", "sh", "-c", "echo $(hostname) $(readlink /proc/self/ns/pid)").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	slices.Sort(lines)
	if lines = slices.Compact(lines); len(lines) != 2 || lines[0][:3] != "h1 " || lines[1][:3] != "h2 " || lines[0][2:] == lines[1][2:] {
		t.Errorf("got %q, want h1 and h2 with a PID namespace each", lines)
	}
	b.Idle(5 * time.Second)
}

// qrsh reaches both hosts of a job of gridengine, and its hostfile has them.
func TestGridengineRunsOnHosts(t *testing.T) {
	testenv.Part(t, testenv.Batch)
	b := New(t, 2)
	b.Gridengine()
	out := filepath.Join(b.Dir, "out")
	job := `cut -d" " -f1,2 $PE_HOSTFILE; for h in h1 h2; do echo hello | qrsh -inherit $h "hostname; cat"; done`
	if said, err := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), "qsub", "-sync", "y", "-b", "y", "-cwd", "-V", "-pe", "mpi", "4", "-j", "y", "-o", out, "sh", "-c", "'"+job+"'").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	text, err := os.ReadFile(out)
	if got := strings.Fields(string(text)); err != nil || len(got) != 8 || got[1] != "2" || got[3] != "2" || !slices.Equal(got[4:], []string{"h1", "hello", "h2", "hello"}) {
		t.Errorf("%v, got %q", err, got)
	}
	b.Idle(5 * time.Second)
}

// Packets come late, and overtake each other, and streams over them are whole.
func TestSlowDelaysAndReorders(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := New(t, 2)
	const delay = 20 * time.Millisecond
	r := b.Slow(delay, delay)
	began := time.Now()
	out, err := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), "ssh", "h2", "head -c 1000000 /dev/zero | cksum; head -c 1000000 /dev/zero").Output()
	if want := "1345294785 1000000\n"; err != nil || len(out) != len(want)+1000000 || string(out[:len(want)]) != want {
		t.Errorf("%v, %d bytes, %.40q", err, len(out), out)
	}
	// The handshake of TCP, versions, keys and so on: ten times there and back at the least.
	if took := time.Since(began); took < 10*2*delay || r.Overtaken.Load() == 0 || r.Carried.Load() < 100 {
		t.Errorf("it took %v, %d packets, %d of them overtaken", took, r.Carried.Load(), r.Overtaken.Load())
	}
	b.Idle(time.Second)
}

// Nothing is left of a bed: no process in its namespaces, nothing that keeps these, no mount, no file.
func TestNothingIsLeft(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	spaces := map[string]bool{}
	dir := ""
	if !t.Run("bed", func(t *testing.T) {
		b := New(t, 2)
		dir = b.Dir
		b.Slow(0, time.Millisecond)
		b.Hosts[0].daemon("sleep", "1234")
		b.Hosts[1].FillDisk()
		if out, err := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), "ssh", "h2", "setsid sleep 1234 >&- 2>&- <&- & hostname").CombinedOutput(); err != nil || string(out) != "h2\n" {
			t.Errorf("%v, %q", err, out)
		}
		for _, pid := range []int{b.hub, b.Hosts[0].pid, b.Hosts[1].pid} {
			for _, link := range links(fmt.Sprintf("/proc/%d/ns/*", pid)) {
				spaces[link] = true
			}
		}
		for _, link := range links("/proc/self/ns/*") {
			delete(spaces, link)
		}
		if users(spaces) < 8 || len(spaces) < 11 {
			t.Errorf("%d namespaces of processes in %v, expected more", users(spaces), spaces)
		}
	}) || dir == "" {
		return // it failed, or this machine makes no beds
	}
	// The kernel ends processes a while after the first of their namespace.
	testenv.Await(t, 10*time.Second, "the end of a bed", func() bool { return users(spaces) == 0 })
	for _, link := range links("/proc/self/fd/*") {
		if spaces[link] || strings.Contains(link, dir) {
			t.Errorf("this process has %s open", link)
		}
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("%v, or mounts of %s in\n%s", err, dir, mounts)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s: %v", dir, err)
	}
}

// links are what links point to.
func links(pattern string) (targets []string) {
	files, _ := filepath.Glob(pattern)
	for _, f := range files {
		if target, err := os.Readlink(f); err == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// users is how many namespaces of processes are among these.
func users(spaces map[string]bool) (n int) {
	for _, link := range links("/proc/[0-9]*/ns/*") {
		if spaces[link] {
			n++
		}
	}
	return n
}

// Without root a test that needs hosts is skipped with the reason, and fails where CI should have them.
func TestWithoutRoot(t *testing.T) {
	if os.Getuid() != 0 {
		testenv.Unsupported(t, "only root becomes another user")
	}
	// The program of this test is where only root may read.
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join("/tmp", fmt.Sprintf("gorun-bed-test-%d", os.Getpid()))
	if err := os.WriteFile(program, text, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(program)
	for ci, want := range map[string]string{"CI=": "--- SKIP: TestHostsAreApart", "CI=true": "--- FAIL: TestHostsAreApart"} {
		cmd := exec.Command(program, "-test.run", "^TestHostsAreApart$", "-test.v")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), ci, "TEST_PARTS=hosts")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, _ := cmd.CombinedOutput()
		if !strings.Contains(string(out), want) || !strings.Contains(string(out), "only root makes hosts of namespaces") {
			t.Errorf("%s: no %q in\n%s", ci, want, out)
		}
	}
}
