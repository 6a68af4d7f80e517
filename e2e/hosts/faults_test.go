package hosts

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

var update = flag.Bool("update", false, "write the table of docs/hosts.md anew, with -all")

// A fault is what may happen to a job of three hosts, of which gorun is on the first.
type fault struct {
	name  string
	quick bool // CI runs it
	limit time.Duration
	named string // what the first line of gorun's complaints says, but for a warning; "": it has none
	play  func(p *play)
}

// Limits of the time from a fault to the end of the job with nothing left on any host.
const (
	killed = 1500 * time.Millisecond
	cut    = 5 * time.Second
	start  = 40 * time.Second

	starting = 11 * time.Second // 6 s to the end of the job, and 5 s to the end of all of it
	alone    = 75 * time.Second // the ranks find out by themselves
	never    = 0                // the job is to go on
)

var faults = []fault{
	{"kill -9 of a rank", true, killed, `^gorun: rank 1 \(host h2, .*killed by signal 9`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], bin+"/rank", syscall.SIGKILL)
	}},
	{"kill -9 of an agent", true, killed, `^gorun: host h2: its agent`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], "gorun-agent", syscall.SIGKILL)
	}},
	{"kill -9 of gorun", true, killed, "", func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[0], bin+"/gorun -H", syscall.SIGKILL)
	}},
	{"kill -9 of an ssh client", true, killed, `^gorun: host h2: its agent .*is lost: ssh was killed by signal 9`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[0], " h2 exec", syscall.SIGKILL)
	}},
	{"SIGSTOP of an agent", true, cut, `^gorun: host h2: its agent`, func(p *play) {
		p.begin("idle")
		p.signal(p.b.Hosts[1], "gorun-agent", syscall.SIGSTOP)
	}},
	{"SIGSTOP of gorun for two leases", true, never, "", func(p *play) {
		p.begin("busy")
		p.signal(p.b.Hosts[0], bin+"/gorun -H", syscall.SIGSTOP)
		p.pass(8 * time.Second)
		_ = p.cmd.Process.Signal(syscall.SIGCONT) // nsenter stops with gorun, and has it go on
	}},
	{"link down, idle ranks", false, cut, `^gorun: host h2: its agent .*has not answered for`, func(p *play) {
		p.begin("idle")
		p.cut(p.b.Hosts[1])
	}},
	{"link down, busy ranks", true, cut, `^gorun: host h2: its agent .*has not answered for`, func(p *play) {
		p.begin("busy")
		p.cut(p.b.Hosts[1])
	}},
	{"link down for 2 s, busy ranks", false, never, "", func(p *play) {
		p.begin("busy")
		p.cut(p.b.Hosts[1])
		p.pass(2 * time.Second)
		p.b.Hosts[1].Link(true)
		p.pass(5 * time.Second)
	}},
	{"link down for 2 s, idle ranks, then Finalize", true, never, "", func(p *play) {
		p.begin("idle")
		p.cut(p.b.Hosts[1])
		p.pass(2 * time.Second)
		p.b.Hosts[1].Link(true)
	}},
	{"20 % of packets lost, idle ranks", true, never, "", func(p *play) {
		p.begin("idle")
		for _, h := range p.b.Hosts {
			h.Lossy(20)
			defer h.Lossy(0)
		}
		p.pass(p.long(30*time.Second, 6*time.Second))
	}},
	{"20 % of packets lost, busy ranks", false, never, "", func(p *play) {
		p.begin("busy")
		for _, h := range p.b.Hosts {
			h.Lossy(20)
			defer h.Lossy(0)
		}
		p.pass(2 * time.Minute)
	}},
	{"the connections of h2's ranks cut, busy ranks", false, alone, `^gorun: rank 1 \(host h2, .*aborted the job`, func(p *play) {
		p.begin("busy")
		p.struck = time.Now()
		p.b.Hosts[1].OnlySSH(true)
		p.t.Cleanup(func() { p.b.Hosts[1].OnlySSH(false) })
	}},
	{"all cores busy for 60 s", true, never, "", func(p *play) {
		p.begin("busy")
		for range 2 * runtime.NumCPU() {
			for _, h := range p.b.Hosts {
				defer p.loop(h)()
			}
		}
		p.pass(p.long(time.Minute, 5*time.Second))
		p.end()
	}},
	{"SIGSTOP of an agent while another host starts", true, starting, `^gorun: host h2: its agent .*has not answered for`, func(p *play) {
		p.hold("h3,h2,h1")
		p.signal(p.b.Hosts[1], "gorun-agent", syscall.SIGSTOP)
	}},
	{"link down while another host starts", true, starting, `^gorun: host h2: its agent .*has not answered for`, func(p *play) {
		p.hold("h3,h2,h1")
		p.cut(p.b.Hosts[1])
	}},
	{"link down while ssh logs in", true, starting, `^gorun: host h2: .*: ssh (exited with status 255|was killed by .*: 10.9.0.2:2231 has answered nothing for 5\.5s)`, func(p *play) {
		p.login(2231, 4321)
		p.cut(p.b.Hosts[1])
	}},
	{"link down while ssh logs in, pidfd_getfd refused", true, starting, `^gorun: host h2: .*: ssh was killed by .*: 10.9.0.2:2233 has answered nothing for 4s while it logged in`, func(p *play) {
		p.refused()
		p.login(2233, 4321)
		p.cut(p.b.Hosts[1])
	}},
	{"link down while a shell logs in whose connection waits for longer", true, starting, `^gorun: host h2: .*: .* was killed by .*: 10.9.0.2:22 has answered nothing for 5\.5s while it logged in`, func(p *play) {
		shell, begun := filepath.Join(p.b.Dir, "patient"), filepath.Join(p.b.Dir, "begun")
		_ = os.Remove(begun)
		// TCP_USER_TIMEOUT, after gorun has set its own.
		const text = `#!/usr/bin/env python3
import socket, sys, time
s = socket.create_connection((sys.argv[1], 22))
while s.getsockopt(socket.IPPROTO_TCP, 18) == 0: time.sleep(.01)
s.setsockopt(socket.IPPROTO_TCP, 18, 600000)
open(%q, "w").close()
time.sleep(4321)
`
		if err := os.WriteFile(shell, fmt.Appendf(nil, text, begun), 0o755); err != nil {
			p.t.Fatal(err)
		}
		p.args, p.hosts = []string{"--rsh", shell}, "h1,h2"
		p.start("idle")
		testenv.Await(p.t, 90*time.Second, "a connection with patience", func() bool { _, err := os.Stat(begun); return err == nil })
		p.cut(p.b.Hosts[1])
	}},
	{"link of a jump host down while ssh logs in", true, starting, `^gorun: host h2: .*: ssh (exited with status 255|was killed by .*: 10.9.0.3:22 has answered nothing for 5\.5s)`, func(p *play) {
		p.login(2234, 4321, "-J h3")
		p.cut(p.b.Hosts[2])
	}},
	{"the same, pidfd_getfd refused", true, starting, `^gorun: host h2: .*: ssh was killed by .*: 10.9.0.3:22 has answered nothing for 4s while it logged in`, func(p *play) {
		p.refused()
		p.login(2235, 4321, "-J h3")
		p.cut(p.b.Hosts[2])
	}},
	{"link down behind a jump host, with ServerAliveInterval", true, starting, `^gorun: host h2: .*: ssh exited with status 255`, func(p *play) {
		p.login(2236, 4321, "-J h3 -o ServerAliveInterval=2 -o ServerAliveCountMax=2")
		p.cut(p.b.Hosts[1])
	}},
	{"link down before ssh logs in by a master (ControlPath)", true, starting, `^gorun: host h2: .*: ssh was killed by .*: 10.9.0.2:2238 has answered nothing for 4s while it logged in`, func(p *play) {
		p.master(2238)
		p.cut(p.b.Hosts[1])
		p.start("idle")
	}},
	{"a login that takes 8 s", true, never, "", func(p *play) {
		p.login(2232, 4) // for each of two questions
	}},
	{"a login that takes 8 s, pidfd_getfd refused", true, never, "", func(p *play) {
		p.refused()
		p.login(2237, 4)
	}},
	{"a login by a master that takes 8 s", true, never, "", func(p *play) {
		p.master(2239, `ForceCommand=sleep 8; exec sh -c "$SSH_ORIGINAL_COMMAND"`)
		p.start("idle")
	}},
	{"a host down at the start", false, start, `^gorun: host h2: .*: ssh exited with status 255: .*(No route to host|timed out)`, func(p *play) {
		p.cut(p.b.Hosts[1])
		p.start("idle")
	}},
	{"a host that returns", false, never, "", func(p *play) {
		p.begin("idle")
		p.cut(p.b.Hosts[1])
		if err := p.cmd.Wait(); err == nil {
			p.t.Error("a job that has lost a host ended well")
		}
		p.b.Hosts[1].Link(true)
		p.b.Idle(leftLimit)
		p.begin("idle")
	}},
	{"a full disk, and a long line", false, never, "", func(p *play) {
		p.b.Hosts[1].FillDisk(bin)
		p.begin("idle")
		p.end()
		const long = 1 << 20
		got := gorun(p.t, p.b, "-H", "h1,h2", "sh", "-c", fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x; echo", long))
		if n := strings.Count(got.out, "x"); got.status != 0 || n != 2*long {
			p.t.Errorf("status %d, %d bytes, want %d\n%s", got.status, n, 2*long, got.err)
		}
	}},
}

// TestFaults plays each fault, and prints a line: how long after it the job has ended and
// nothing was left, the host that gorun has named, what was left on each host.
func TestFaults(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	var rows [][]string
	for _, f := range faults {
		if !f.quick && !*all {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			p := &play{t: t, b: b, fault: f}
			defer p.close()
			f.play(p)
			rows = append(rows, p.judge())
		})
	}
	text := table(rows)
	if *all {
		text += "\n" + lossyStart(t, b)
	}
	if *all && *update && !t.Failed() {
		testenv.Page(t, filepath.Join("..", "..", "docs", "hosts.md"), "faults", text, true)
	}
}

// lossyStart compares how long gorun and Hydra take to start programs while a fifth of the
// packets is lost. One start takes between 1 and 40 s, as ssh's packets have luck.
func lossyStart(t *testing.T, b *testbed.Bed) string {
	const rounds = 5
	hydra := testenv.Need(t, "mpiexec.hydra")
	for _, h := range b.Hosts {
		h.Lossy(20)
		defer h.Lossy(0)
	}
	var took [2][]time.Duration
	for range rounds {
		for i, argv := range [][]string{
			{filepath.Join(bin, "gorun"), "-H", "h1,h2,h3", "true"},
			{hydra, "-launcher", "ssh", "-hosts", "h1,h2,h3", "-n", "3", "-ppn", "1", "true"},
		} {
			got := runFor(t, b, 2*time.Minute, argv...)
			switch {
			case got.status == 0:
				took[i] = append(took[i], got.took)
			case i == 0:
				t.Errorf("%q: status %d\n%s", argv, got.status, got.err)
			default: // Hydra may break where nobody reads its standard input
				t.Logf("%q: status %d\n%s", argv, got.status, got.err)
			}
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	if len(took[0]) == 0 || len(took[1]) == 0 {
		t.Error("no start was good")
		return ""
	}
	own, other := took[0][len(took[0])/2], took[1][len(took[1])/2]
	line := fmt.Sprintf("`true` on the three hosts while 20 %% of the packets are lost takes gorun %s and Hydra %s, the medians of %d.\n", seconds(own), seconds(other), rounds)
	t.Logf("%sgorun %v\nHydra %v", line, took[0], took[1])
	if own > 2*other {
		t.Errorf("gorun takes %v, more than twice Hydra's %v", own, other)
	}
	return line
}

// The page has each fault, and no cell is empty.
func TestPageHasAllFaults(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "hosts.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		at := bytes.Index(text, []byte("\n| "+f.name+" | "))
		if at < 0 {
			t.Errorf("docs/hosts.md has no row %q; make hosts-table writes it", f.name)
			continue
		}
		line, _, _ := strings.Cut(string(text[at+1:]), "\n")
		cells := strings.Split(strings.Trim(line, "|"), "|")
		if len(cells) != len(columns) || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("docs/hosts.md: row %q has an empty cell, or not %d of them", line, len(columns))
		}
	}
}

var columns = []string{"fault", "job ended after", "nothing left after", "gorun names", "left on h1, h2, h3"}

func table(rows [][]string) string {
	text := "| " + strings.Join(columns, " | ") + " |\n|" + strings.Repeat("---|", len(columns)) + "\n"
	for _, r := range rows {
		text += "| " + strings.Join(r, " | ") + " |\n"
	}
	return text
}

// A play is a fault on its way.
type play struct {
	t     *testing.T
	b     *testbed.Bed
	fault fault

	args  []string // of gorun
	under []string // the command that starts gorun; nil: none
	hosts string   // "": three

	cmd        *exec.Cmd
	cancel     context.CancelFunc
	complaints *bytes.Buffer
	struck     time.Time // the fault
	over       bool      // the ranks were told to end
}

// start starts a job of a rank a host, with a process that each leaves behind.
func (p *play) start(kind string) {
	p.t.Helper()
	for _, name := range []string{"over", "up.0", "up.1", "up.2", "up.3"} {
		_ = os.Remove(filepath.Join(p.b.Dir, name))
	}
	ctx, cancel := context.WithTimeout(p.t.Context(), testenv.Limit(3*time.Minute))
	p.cancel, p.over, p.complaints = cancel, false, &bytes.Buffer{}
	p.cmd = p.b.Hosts[0].Command(ctx, slices.Concat(p.under, []string{filepath.Join(bin, "gorun")}, p.args, []string{"-H", cmp.Or(p.hosts, "h1,h2,h3"), "sh", "-c", `sleep 4321 >/dev/null 2>&1 & exec "$0" "$1"`, filepath.Join(bin, "rank"), kind})...)
	p.cmd.Stderr, p.cmd.WaitDelay = p.complaints, time.Second
	if p.struck.IsZero() || p.fault.limit == never {
		p.struck = time.Now()
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// hold starts a job that does not reach h3, and waits until the agent of h2 is there.
func (p *play) hold(hosts string) {
	p.t.Helper()
	shell := filepath.Join(p.b.Dir, "hold")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\n[ $1 != h3 ] || exec sleep 4321\nexec ssh \"$@\"\n"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	p.args, p.hosts = append(slices.Clone(p.args), "-v", "--rsh", shell), hosts
	p.start("idle")
	testenv.Await(p.t, 90*time.Second, "the agent of h2", func() bool {
		return len(p.b.Hosts[1].Processes()) > 0 && strings.Contains(p.complaints.String(), "host ready address=10.9.0.2")
	})
}

// login starts a job that logs in to h2 at a port of its own, and waits until sshd there looks for the user's key, which takes
// so many seconds.
func (p *play) login(port, seconds int, options ...string) {
	p.t.Helper()
	begun, script := filepath.Join(p.b.Dir, "begun"), filepath.Join(p.b.Dir, "keys")
	_ = os.Remove(begun)
	// What waits is the daemon's, whatever becomes of the login.
	text := fmt.Sprintf("[ -n \"$again\" ] || again=1 exec -a sshd bash \"$0\"\n: >%s\n(exec -a sshd sleep %d)\nexec cat %s/user.pub\n", begun, seconds, p.b.Dir)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		p.t.Fatal(err)
	}
	p.b.Hosts[1].SSHD(port, "AuthorizedKeysFile=none", "AuthorizedKeysCommand=/bin/bash "+script, "AuthorizedKeysCommandUser=root")
	p.args = []string{"--rsh", fmt.Sprintf("ssh -p %d %s", port, strings.Join(options, " "))}
	p.hosts = "h1,h2"
	p.start("idle")
	testenv.Await(p.t, 90*time.Second, "ssh to log in", func() bool { _, err := os.Stat(begun); return err == nil })
}

// master has ssh reach h2 at a port of its own by a connection of the user's, which is to outlive the job.
func (p *play) master(port int, options ...string) {
	p.t.Helper()
	path := filepath.Join(p.b.Dir, "master")
	p.b.Hosts[1].SSHD(port, options...)
	p.args = []string{"--rsh", fmt.Sprintf("ssh -p %d -o ControlPath=%s", port, path)}
	p.hosts = "h1,h2"
	ctx := testenv.Deadline(p.t, 10*time.Minute)
	// By its name it is no process of the job.
	master := p.b.Hosts[0].Command(ctx, "bash", "-c", `exec -a sshd ssh -M -N -S "$0" -p "$1" h2`, path, fmt.Sprint(port))
	if err := master.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if out, err := p.b.Hosts[0].Command(ctx, "ssh", "-S", path, "-O", "exit", "h2").CombinedOutput(); err != nil {
			p.t.Errorf("the master is gone: %v\n%s", err, out)
		}
		_ = master.Wait()
	})
	testenv.Await(p.t, 90*time.Second, "a master", func() bool { _, err := os.Stat(path); return err == nil })
}

// refuser is the name by which this program executes its arguments where pidfd_getfd is refused.
const refuser = "without-pidfd-getfd"

func init() {
	if filepath.Base(os.Args[0]) != refuser {
		return
	}
	err := testenv.Refuse(unix.EPERM, testenv.Call{Number: unix.SYS_PIDFD_GETFD})
	if err == nil {
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, os.Args, err)
	os.Exit(98)
}

// refused has gorun run where pidfd_getfd is refused.
func (p *play) refused() {
	p.t.Helper()
	own, err := os.Executable()
	if err != nil {
		p.t.Fatal(err)
	}
	p.under = []string{filepath.Join(p.b.Dir, refuser)}
	if out, err := exec.Command("cp", own, p.under[0]).CombinedOutput(); err != nil {
		p.t.Fatalf("%v\n%s", err, out)
	}
}

// begin starts a job, and waits until its ranks have met.
func (p *play) begin(kind string) {
	p.t.Helper()
	p.start(kind)
	testenv.Await(p.t, 90*time.Second, "ranks on all hosts", func() bool {
		up, _ := filepath.Glob(filepath.Join(p.b.Dir, "up.*"))
		return len(up) == len(p.b.Hosts)
	})
}

func (p *play) signal(h *testbed.Host, part string, sig syscall.Signal) {
	p.t.Helper()
	pid := h.First(func(line string) bool { return strings.Contains(line, part) && !strings.HasPrefix(line, "sh -c cd") })
	p.struck = time.Now()
	if err := syscall.Kill(pid, sig); err != nil {
		p.t.Fatal(err)
	}
}

func (p *play) cut(h *testbed.Host) {
	p.struck = time.Now()
	h.Link(false)
}

// pass lets time pass, which is what is tested, while the job goes on.
func (p *play) pass(d time.Duration) { time.Sleep(d) }

// long is the time that a fault lasts, and in CI.
func (p *play) long(full, short time.Duration) time.Duration {
	if *all {
		return full
	}
	return short
}

// loop keeps a core busy, until stop.
func (p *play) loop(h *testbed.Host) (stop func()) {
	cmd := h.Command(p.t.Context(), "sh", "-c", "exec sh -c 'while :; do :; done'")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	}
}

// end has the ranks finalize, and waits for the job's end, which is a good one.
func (p *play) end() {
	p.t.Helper()
	if p.over {
		return
	}
	p.over = true
	if err := os.WriteFile(filepath.Join(p.b.Dir, "over"), nil, 0o644); err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil || strings.Contains(p.complaints.String(), "gorun: ") {
		p.t.Errorf("the job did not end well: %v\n%s", err, p.complaints.String())
	}
}

// judge waits for the end of the job, judges it, and tells a row of the table.
func (p *play) judge() []string {
	p.t.Helper()
	limit := p.fault.limit
	if limit == never {
		p.end()
		limit = time.Since(p.struck) + leftLimit
	} else if err := p.cmd.Wait(); err == nil {
		p.t.Error("the job ended well")
	}
	ended := time.Since(p.struck)
	if !*all && p.fault.limit != never {
		limit *= 2 // beside whatever else CI's machine does
	}
	left := p.left()
	for len(left) > 0 && time.Since(p.struck) < limit {
		left = p.left()
	}
	clean := time.Since(p.struck)
	if ended > limit || len(left) > 0 {
		p.t.Errorf("ended after %v, and after %v there is left %v; want nothing after %v\n%s", ended, clean, left, limit, p.complaints.String())
	}
	if p.fault.named != "" && !regexp.MustCompile(p.fault.named).MatchString(first(p.complaints.String())) {
		p.t.Errorf("gorun says\n%s\nwant %s first", p.complaints.String(), p.fault.named)
	}
	row := []string{p.fault.name, "it goes on, status 0", seconds(clean - ended), "none", p.count(left)}
	switch {
	case p.fault.limit != never && p.fault.named == "":
		row = []string{p.fault.name, seconds(ended), seconds(clean), "none: it is dead", p.count(left)}
	case p.fault.limit != never:
		row = []string{p.fault.name, seconds(ended), seconds(clean), regexp.MustCompile(`\bh[0-9]\b`).FindString(first(p.complaints.String())), p.count(left)}
	}
	p.t.Log(strings.Join(row, " | "))
	return row
}

// first is the first line of gorun's own.
func first(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "gorun: ") && !strings.HasPrefix(line, "gorun: warning: ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// left is what is left on the hosts: processes, and files that are theirs alone.
func (p *play) left() (found []string) {
	for _, h := range p.b.Hosts {
		for pid, line := range h.Processes() {
			found = append(found, fmt.Sprintf("%s: %d %s", h.Name, pid, line))
		}
		for _, file := range h.Files() {
			if !strings.HasSuffix(file, "/full") { // FillDisk's
				found = append(found, h.Name+": "+file)
			}
		}
	}
	return found
}

func (p *play) count(left []string) string {
	var text []string
	for _, h := range p.b.Hosts {
		n := 0
		for _, l := range left {
			if strings.HasPrefix(l, h.Name+":") {
				n++
			}
		}
		text = append(text, fmt.Sprint(n))
	}
	return strings.Join(text, ", ")
}

// close joins all hosts again, and ends the job if it runs.
func (p *play) close() {
	for _, h := range p.b.Hosts {
		h.Link(true)
	}
	if p.cancel != nil {
		p.cancel()
	}
	p.b.Idle(2 * leftLimit)
}
