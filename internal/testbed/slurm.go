package testbed

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

//go:embed slurm.conf
var slurmConf string

// slurmSlots is how many CPUs Slurm believes a host to have.
const slurmSlots = 2

// Slurm makes the bed a cluster of Slurm: a controller on the first host, a slurmd on each.
// Hosts have SLURM_CONF in their environment from now on. Where Slurm is not installed, the test
// is skipped with the reason.
func (b *Bed) Slurm() {
	b.t.Helper()
	for _, tool := range []string{"srun", "munged", "slurmctld", "slurmd"} {
		testenv.Need(b.t, tool)
	}
	conf := strings.NewReplacer("DIR", b.Dir, "CPUS", fmt.Sprint(slurmSlots)).Replace(slurmConf)
	for _, h := range b.Hosts {
		conf += fmt.Sprintf("NodeName=%s NodeAddr=%s CPUs=%d\n", h.Name, h.Addr, slurmSlots)
		if err := os.MkdirAll(filepath.Join(b.Dir, "slurmd."+h.Name), 0o755); err != nil {
			b.t.Fatal(err)
		}
	}
	conf += "PartitionName=all Nodes=ALL Default=YES State=UP\n"
	for name, text := range map[string]string{"slurm.conf": conf, "munge.key": strings.Repeat("the key of a bed ", 4)} {
		if err := os.WriteFile(filepath.Join(b.Dir, name), []byte(text), 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
	b.env = append(b.env, "SLURM_CONF="+filepath.Join(b.Dir, "slurm.conf"))
	at := func(name string) string { return filepath.Join(b.Dir, name) }
	first := b.Hosts[0]
	first.daemon("munged", "-F", "-f", "-S", at("munge.sock"), "--key-file", at("munge.key"), "--pid-file", at("munge.pid"),
		"--seed-file", at("munge.seed"), "--log-file", at("munge.log"))
	testenv.Await(b.t, startLimit, "munged's socket", func() bool { _, err := os.Stat(at("munge.sock")); return err == nil })
	first.daemon("slurmctld", "-D", "-i")
	for _, h := range b.Hosts {
		h.daemon("slurmd", "-D")
	}
	ctx := testenv.Deadline(b.t, 2*startLimit)
	state := ""
	defer func() {
		if b.t.Failed() {
			b.t.Logf("sinfo: %s\n%s", state, b.logs())
		}
	}()
	testenv.Await(b.t, startLimit, "Slurm's hosts to be idle", func() bool {
		out, _ := first.Command(ctx, "sinfo", "-h", "-N", "-o", "%T").CombinedOutput()
		state = string(out)
		return state == strings.Repeat("idle\n", len(b.Hosts))
	})
}

// daemon starts a program on the host that runs until the test ends.
func (h *Host) daemon(argv ...string) {
	h.bed.t.Helper()
	cmd := h.Command(testenv.Deadline(h.bed.t, time.Hour), argv...)
	said, err := os.Create(filepath.Join(h.bed.Dir, filepath.Base(argv[0])+"."+h.Name+".said.log"))
	if err != nil {
		h.bed.t.Fatal(err)
	}
	defer said.Close()
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		h.bed.t.Fatal(err)
	}
	h.bed.t.Cleanup(func() {
		victim := cmd.Process.Pid // nsenter, which ends with its child
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", victim, victim)); err == nil {
			if child, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil {
				victim = child
			}
		}
		_ = syscall.Kill(victim, syscall.SIGKILL)
		_ = cmd.Wait()
	})
}

// logs is what the daemons have written last.
func (b *Bed) logs() string {
	var all strings.Builder
	files, _ := filepath.Glob(filepath.Join(b.Dir, "*.log"))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		fmt.Fprintf(&all, "%s:\n%s\n", f, text[max(0, len(text)-4096):])
	}
	return all.String()
}
