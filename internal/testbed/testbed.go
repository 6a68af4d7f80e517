// Package testbed makes hosts for tests: on one machine, each with its own network,
// processes, host name, shared memory, IPC, /tmp and /etc/hosts, and with sshd.
//
// Hosts are namespaces joined by veth pairs to a bridge in a namespace of its own. They
// share the machine's files but for those named, and its kernel: what tells machines
// apart by the boot id alone takes them for one.
//
// # What dies when
//
// [New] ends the hosts when the test ends. The kernel ends all processes of a host with
// the first of its PID namespace, which dies with the process that started it, and
// that with this one; the namespaces go with their last process. Nothing has a name in
// /run/netns. A directory in /var/tmp stays only if this process is killed.
//
// It needs root that may make namespaces, OpenSSH and iproute2; without them the test is skipped
// with the reason.
package testbed

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A Bed is the hosts of a test.
type Bed struct {
	Hosts []*Host
	Dir   string // on all hosts
	t     testing.TB
	hub   int      // a process in the namespace of the bridge
	env   []string // of commands, beside this process's
}

// A Host is one of them.
type Host struct {
	Name string
	Addr string
	bed  *Bed
	pid  int // of its first process, as this one sees it
}

//go:embed host.sh
var hostScript string

// startLimit is how long a host may take to start.
const startLimit = 20 * time.Second

// New makes hosts h1, h2, ... with addresses 10.9.0.1, 10.9.0.2, ... and fd09::1, fd09::2, ... ssh knows h2 as alias, too,
// a name that has no address.
func New(t testing.TB, n int) *Bed {
	t.Helper()
	if os.Getuid() != 0 {
		testenv.Unsupported(t, "only root makes hosts of namespaces")
	}
	for _, tool := range []string{"ip", "unshare", "nsenter", "ssh", "ssh-keygen"} {
		testenv.Need(t, tool)
	}
	if _, err := os.Stat("/usr/sbin/sshd"); err != nil {
		testenv.Need(t, "sshd")
	}
	// Root of a container may not.
	if out, err := exec.Command("unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "sh", "-ec",
		"mount -t tmpfs tmpfs /dev/shm; ip link add br0 type bridge; ip link add v0 type veth peer name v1").CombinedOutput(); err != nil {
		testenv.Unsupported(t, "this machine makes no hosts of namespaces: "+strings.TrimSpace(string(out)))
	}
	dir, err := os.MkdirTemp("/var/tmp", "gorun-bed-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &Bed{t: t, Dir: dir}
	b.files(n)
	hub, _, _ := b.start("--net", "sh", "-ec", "ip link set lo up; ip link add br0 type bridge; ip link set br0 up; echo ready; exec cat")
	b.hub = hub
	for i := 1; i <= n; i++ {
		b.Hosts = append(b.Hosts, b.newHost(i))
	}
	return b
}

// files writes what all hosts read.
func (b *Bed) files(n int) {
	b.t.Helper()
	hosts := "127.0.0.1 localhost\n::1 localhost\n"
	for i := 1; i <= n; i++ {
		hosts += fmt.Sprintf("10.9.0.%d h%d\n", i, i)
	}
	for name, text := range map[string]string{
		"hosts":      hosts,
		"ssh_config": "Host alias\n\tHostName 10.9.0.2\nHost *\n\tIdentityFile " + b.Dir + "/user\n\tStrictHostKeyChecking no\n\tUserKnownHostsFile /dev/null\n\tLogLevel ERROR\n",
	} {
		if err := os.WriteFile(filepath.Join(b.Dir, name), []byte(text), 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(b.Dir, key)).CombinedOutput(); err != nil {
			b.t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
}

// start starts a process that unshares namespaces, waits until it says ready, and ends
// it with the test.
func (b *Bed) start(args ...string) (pid int, in *os.File, said *bufio.Reader) {
	b.t.Helper()
	cmd := exec.Command("unshare", args...)
	theirs, in, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	cmd.Stdin = theirs
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // whose end the process does not survive
	err = cmd.Start()
	theirs.Close()
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		runtime.UnlockOSThread()
	})
	said = bufio.NewReader(out)
	late := time.AfterFunc(startLimit, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	if line, err := said.ReadString('\n'); err != nil || line != "ready\n" {
		_ = cmd.Wait()
		b.t.Fatalf("unshare %q: said %q (%v), want ready\n%s", args, line, err, complaints.String())
	}
	return cmd.Process.Pid, in, said
}

func (b *Bed) newHost(i int) *Host {
	b.t.Helper()
	h := &Host{Name: "h" + strconv.Itoa(i), Addr: "10.9.0." + strconv.Itoa(i), bed: b}
	outer, in, said := b.start("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", hostScript, "sh", h.Name, h.Addr, b.Dir)
	h.pid = childOf(b.t, outer)
	link := "v" + strconv.Itoa(i)
	b.ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.pid))
	b.ip("link", "set", link, "master", "br0", "up")
	if _, err := in.WriteString("go\n"); err != nil {
		b.t.Fatal(err)
	}
	late := time.AfterFunc(startLimit, func() { _ = syscall.Kill(outer, syscall.SIGKILL) })
	defer late.Stop()
	if line, err := said.ReadString('\n'); err != nil || line != "listens\n" {
		log, _ := os.ReadFile(filepath.Join(b.Dir, "sshd."+h.Name))
		b.t.Fatalf("host %s: said %q (%v), want listens\n%s", h.Name, line, err, log)
	}
	return h
}

// ip runs ip where the bridge is.
func (b *Bed) ip(args ...string) {
	b.t.Helper()
	args = append([]string{"-t", strconv.Itoa(b.hub), "-n", "ip"}, args...)
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		b.t.Fatalf("nsenter %q: %v\n%s", args, err, out)
	}
}

// PID is the first process of the host, as this process sees it.
func (h *Host) PID() int { return h.pid }

// Link cuts a host off, or joins it again.
func (h *Host) Link(up bool) {
	h.bed.t.Helper()
	state := "down"
	if up {
		state = "up"
	}
	h.bed.ip("link", "set", "v"+strings.TrimPrefix(h.Name, "h"), state)
}

// Name gives a host another name, which all hosts know from now on.
func (b *Bed) Name(name string, h *Host) {
	b.t.Helper()
	f, err := os.OpenFile(filepath.Join(b.Dir, "hosts"), os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(h.Addr + " " + name + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// SSHD starts another sshd on the host, with more options, and returns when it listens.
func (h *Host) SSHD(port int, options ...string) {
	h.bed.t.Helper()
	at := func(name string) string { return filepath.Join(h.bed.Dir, name) }
	argv := []string{"/usr/sbin/sshd"}
	for _, o := range options { // the first value counts
		argv = append(argv, "-o", o)
	}
	h.daemon(append(argv, "-D", "-e", "-f", "/dev/null", "-h", at("host"), "-o", "AuthorizedKeysFile="+at("user.pub"),
		"-o", "StrictModes=no", "-o", "PermitRootLogin=yes", "-o", "PidFile=none", "-o", "UsePAM=no", "-p", strconv.Itoa(port))...)
	testenv.Await(h.bed.t, startLimit, "sshd to listen", func() bool {
		text, _ := os.ReadFile(at("sshd." + h.Name + ".said.log"))
		return bytes.Contains(text, []byte("Server listening"))
	})
}

// Lossy has the host lose so many percent of the packets that come to it; 0: none any more.
// It needs nft.
func (h *Host) Lossy(percent int) {
	h.bed.t.Helper()
	h.filter("loss", fmt.Sprintf("iifname eth0 numgen random mod 100 < %d drop", percent), percent > 0)
}

// OnlySSH has the host drop what comes to it over TCP, but for ssh; false: not any more. It needs nft.
func (h *Host) OnlySSH(only bool) {
	h.bed.t.Helper()
	h.filter("streams", "tcp sport 22 accept\ntcp dport 22 accept\niifname eth0 meta l4proto tcp drop", only)
}

// LetIn has the host drop connections that others begin, and datagrams, but for those to ports, as "22" or "22, 40000-40100"; "": not any more.
// It needs nft.
func (h *Host) LetIn(ports string) {
	h.bed.t.Helper()
	h.filter("begun", fmt.Sprintf("tcp dport { %[1]s } accept\nudp dport { %[1]s } accept\niifname eth0 tcp flags & (syn | ack) == syn drop\niifname eth0 meta l4proto udp drop", ports), ports != "")
}

// filter has a table of nft judge the packets that come to the host; begin is false: not any more.
func (h *Host) filter(table, judge string, begin bool) {
	h.bed.t.Helper()
	testenv.Need(h.bed.t, "nft")
	rules := fmt.Sprintf("table inet %s\ndelete table inet %[1]s\n", table)
	if begin {
		rules += fmt.Sprintf("table inet %s {\nchain in {\ntype filter hook input priority 0\n%s\n}\n}\n", table, judge)
	}
	cmd := h.Command(h.bed.t.Context(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		h.bed.t.Fatalf("nft on %s: %v\n%s", h.Name, err, out)
	}
}

// FillDisk leaves no room on the host in /tmp, /dev/shm and /var/tmp, of which it sees these
// directories only, besides the bed's. It stays so.
func (h *Host) FillDisk(keep ...string) {
	h.bed.t.Helper()
	const script = `
mkdir /run/disk
mount --bind /var/tmp /run/disk
for full in /tmp /dev/shm /var/tmp; do mount -t tmpfs -o size=16k tmpfs $full; done
for dir; do mkdir "$dir"; mount --bind "/run/disk/${dir#/var/tmp/}" "$dir"; done
for full in /tmp /dev/shm /var/tmp; do cat /dev/zero >$full/full 2>/dev/null || true; done`
	cmd := h.Command(h.bed.t.Context(), append([]string{"sh", "-ec", script, "sh", h.bed.Dir}, keep...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		h.bed.t.Fatalf("fill the disk of %s: %v\n%s", h.Name, err, out)
	}
}

// Command is a command on the host, as root and in the bed's directory. It dies with its context; what it has
// started there dies with the host.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-m", "-u", "-i", "-n", "-p", "--", "sh", "-c", `cd "$0" && exec "$@"`, h.bed.Dir}, argv...)...)
	cmd.Env = append(cmd.Environ(), h.bed.env...)
	return cmd
}

// daemons are programs that are no part of a job.
var daemons = []string{"sshd", "sshd-session", "sshd-auth", "munged", "slurmctld", "slurmd", "sge_qmaster", "sge_execd"}

// Processes are the processes of the host, by pid as this process sees them, but for its
// first one and daemons.
func (h *Host) Processes() map[int]string {
	h.bed.t.Helper()
	own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", h.pid))
	if err != nil {
		h.bed.t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		h.bed.t.Fatal(err)
	}
	found := map[int]string{}
	for _, path := range all {
		if space, err := os.Readlink(path); err != nil || space != own {
			continue // it is another's, or has just gone
		}
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		text := strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " "))
		// What is over, and waits for the first process to collect it, has none.
		if err == nil && pid != h.pid && text != "" && !daemon(text) {
			found[pid] = text
		}
	}
	return found
}

// First is the process of the host that started first of those whose command line matches:
// guardians of a process, which are forks of it, have its command line. Ids do not tell
// the order, they wrap.
func (h *Host) First(match func(line string) bool) (pid int) {
	h.bed.t.Helper()
	var least uint64
	for p, line := range h.Processes() {
		if !match(line) {
			continue
		}
		s, ok := proc.Of(p) // if not, it has just gone
		if ok && (pid == 0 || s.Start < least || s.Start == least && p < pid) {
			pid, least = p, s.Start
		}
	}
	if pid == 0 {
		h.bed.t.Fatalf("no such process on %s: %v", h.Name, h.Processes())
	}
	return pid
}

// daemon tells whether a command line is that of a daemon, or of what it has forked.
func daemon(line string) bool {
	name := strings.TrimSuffix(filepath.Base(strings.Fields(line)[0]), ":")
	return slices.Contains(daemons, name) || strings.HasSuffix(line, ": slurmscriptd")
}

// Sockets are the host's connections over TCP, as /proc/net/tcp has them.
func (h *Host) Sockets() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", h.pid))
	return string(text)
}

// Files are those in /tmp and /dev/shm of the host, which nobody else has.
func (h *Host) Files() (found []string) {
	for _, dir := range []string{"/tmp", "/dev/shm"} {
		entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/root%s", h.pid, dir))
		for _, e := range entries {
			found = append(found, dir+"/"+e.Name())
		}
	}
	return found
}

// Idle waits until no process but sshd's is left on any host, and fails the test when one is.
func (b *Bed) Idle(limit time.Duration) {
	b.t.Helper()
	left := map[string]map[int]string{}
	deadline := time.Now().Add(testenv.Limit(limit))
	for {
		clear(left)
		for _, h := range b.Hosts {
			if p := h.Processes(); len(p) > 0 {
				left[h.Name] = p
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			b.t.Errorf("left after %v: %v", limit, left)
			return
		}
		time.Sleep(5 * time.Millisecond) // the kernel tells nobody who is not the parent
	}
}

// childOf is the one child of a process.
func childOf(t testing.TB, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatalf("process %d has children %q, want one", pid, text)
	}
	return child
}
