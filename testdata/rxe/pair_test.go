package rxe

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/rxevm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The main job between two machines, each with its own kernel and Soft-RoCE device: agents by ssh, cards
// by gossip, data by verbs over the cable.
func TestTwoMachines(t *testing.T) {
	guest(t) // skips where nothing boots, and fills the cache
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		testenv.Need(t, "sshd")
	}
	pair, err := rxevm.BootPair(testenv.Deadline(t, 3*time.Minute), rxevm.Config{Progress: func(s string) { t.Log(s) }})
	if err != nil {
		t.Fatal(err)
	}
	first, second := pair[0], pair[1]
	defer first.Close()
	defer second.Close()
	withSSH(t, pair)
	stop := sshd(t, second)
	for _, engine := range []string{"inline", "dpa"} {
		before := received(t, first)
		out, err := first.Output(testenv.Deadline(t, 2*time.Minute), "gorun", "-H", "guest1:2,guest2:2", "a2a", "-m", "32", "-i", "50", "-d", "rxe0", "--engine", engine)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out, "on every rank") || !strings.Contains(out, "(verbs)") || !strings.Contains(out, "by engine "+engine) {
			t.Error(out)
		}
		// In each of 50 calls, two ranks here hear of two there.
		if got := received(t, first) - before; got < 50*2*2 {
			t.Errorf("%s: %d packets came over the cable", engine, got)
		}
	}
	for _, left := range stop() {
		if !strings.HasPrefix(left, "sshd") {
			t.Errorf("left behind on guest2: %s", left)
		}
	}
}

// withSSH gives the machines gorun, a2a, and ssh with keys of this test.
func withSSH(t *testing.T, pair [2]*rxevm.VM) {
	t.Helper()
	dir := t.TempDir()
	for _, key := range []string{"id_ed25519", "host"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	config := "Host *\n\tStrictHostKeyChecking no\n\tUserKnownHostsFile /dev/null\n\tLogLevel ERROR\n"
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o666); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{dir: "/root/.ssh", "/usr/sbin/sshd": "/usr/sbin/sshd", "/usr/bin/ssh": "/usr/bin/ssh"}
	for _, part := range []string{"sshd-session", "sshd-auth"} { // of newer releases
		name := "/usr/lib/openssh/" + part
		if _, err := os.Stat(name); err == nil {
			files[name] = name
		}
	}
	for _, program := range []string{"gorun", "gorun-agent", "a2a"} {
		files[filepath.Join(built, program)] = "/usr/bin/" + program // where sshd's PATH leads
	}
	for _, vm := range pair {
		for host, to := range files {
			if err := vm.Put(host, to); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := vm.Output(testenv.Deadline(t, time.Minute), "sh", "-ec", "mkdir -p /run/sshd; chmod 700 /root /root/.ssh; chmod 600 /root/.ssh/*"); err != nil {
			t.Fatal(err)
		}
	}
}

// sshd listens on a machine until stop, which tells what was left there then.
func sshd(t *testing.T, vm *rxevm.VM) (stop func() []string) {
	t.Helper()
	reader, writer := ioPipe(t)
	ctx, cancel := context.WithCancelCause(testenv.Deadline(t, 5*time.Minute))
	var left []string
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer writer.Close()
		r, err := vm.Run(ctx, rxevm.Cmd{Stderr: writer, Args: []string{"/usr/sbin/sshd", "-D", "-e", "-f", "/dev/null", "-h", "/root/.ssh/host",
			"-o", "AuthorizedKeysFile=/root/.ssh/id_ed25519.pub", "-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "PidFile=none", "-o", "UsePAM=no"}})
		if !errors.Is(err, rxevm.ErrHang) {
			t.Errorf("sshd ended: %+v, %v", r, err)
		}
		left = r.Left
	}()
	stop = func() []string {
		cancel(errors.New("enough"))
		<-ended
		return left
	}
	t.Cleanup(func() { stop() })
	said := bufio.NewScanner(reader)
	for said.Scan() {
		if strings.Contains(said.Text(), "Server listening") {
			go func() { _, _ = io.Copy(io.Discard, reader) }()
			return stop
		}
		t.Log(said.Text())
	}
	t.Fatal("sshd does not listen")
	return nil
}

// received counts the packets that came to a machine's device.
func received(t *testing.T, vm *rxevm.VM) int {
	t.Helper()
	out, err := vm.Output(testenv.Deadline(t, time.Minute), "cat", "/sys/class/infiniband/rxe0/ports/1/hw_counters/rcvd_pkts")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
