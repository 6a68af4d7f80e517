package hosts

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Names by which users may call hosts, and machines that call themselves 127.0.1.1 and have networks of containers.
func TestNamesOfHosts(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	b.Name("h1.example.org", b.Hosts[0])
	b.Name("h2.example.org", b.Hosts[1])
	ownLoopback(t, b)
	containers(t, b)
	for _, c := range []struct {
		name  string
		hosts string
		ranks int
	}{
		{"the own name is 127.0.1.1", "h1,h2", 2},
		{"a name twice", "h1,h2,h2", 3},
		{"an alias of a host that is named too", "h1,h2,alias", 3},
		{"with its domain", "h1,h2.example.org", 2},
		{"with its domain and without", "h1,h2,h2.example.org", 3},
		{"this machine with its domain", "h1.example.org,h2", 2},
		{"an address", "h1,10.9.0.2", 2},
		{"this machine's addresses and aliases", "10.9.0.1,[fd09::1],H1,head.lan,h2", 5},
		{"an IPv6 address", "h1,[fd09::2]:2", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := gorun(t, b, "-H", c.hosts, bin+"/a2a", "-m", fmt.Sprint(4*c.ranks))
			if got.status != 0 || !strings.Contains(got.out, fmt.Sprintf("Rank %d ", c.ranks-1)) || !strings.Contains(got.out, "on every rank") {
				t.Errorf("-H %s: status %d, want %d ranks\n%s%s", c.hosts, got.status, c.ranks, got.out, got.err)
			}
			b.Idle(leftLimit)
		})
	}
}

// containers gives each host the networks of docker and libvirt, by the same addresses on each.
func containers(t *testing.T, b *testbed.Bed) {
	t.Helper()
	const script = `
ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up
ip link add virbr0 type bridge; ip addr add 192.168.122.1/24 dev virbr0; ip addr add fd12::1/64 dev virbr0 nodad; ip link set virbr0 up`
	for _, h := range b.Hosts {
		if out, err := h.Command(t.Context(), "sh", "-ec", script).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// ownLoopback has each host find itself at 127.0.1.1, as Debian sets machines up.
func ownLoopback(t *testing.T, b *testbed.Bed) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(b.Dir, "hosts"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range b.Hosts {
		file := filepath.Join(b.Dir, "hosts."+h.Name)
		if err := os.WriteFile(file, append([]byte("127.0.1.1 "+h.Name+" head.lan\n"), text...), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := h.Command(t.Context(), "mount", "--bind", file, "/etc/hosts").CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// What ssh would ask a user ends the job at once, with what ssh says.
func TestSSHAsksNothing(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	for _, c := range []struct {
		name, option, want string
	}{
		{"an unknown host key", "StrictHostKeyChecking=ask", "Host key verification failed"},
		{"a password", "PubkeyAuthentication=no", "Permission denied (publickey"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := gorun(t, b, "--rsh-args", "-o "+c.option, "-H", "h1,h2", "hostname")
			for _, want := range []string{"host h2: ", c.want, "try ssh -o " + c.option + " h2"} {
				if got.status == 0 || !strings.Contains(got.err, want) {
					t.Errorf("status %d, no %q in\n%s", got.status, want, got.err)
				}
			}
			if got.took > 15*time.Second {
				t.Errorf("it took %v", got.took)
			}
			b.Idle(leftLimit)
		})
	}
}

// The job's key is in no process's command line or environment, on any host, in no line of gorun's log, and in no
// core: gorun and its agents leave none, whatever the limit.
func TestKeyIsInNoCommandLineEnvironmentLogOrCore(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	said := filepath.Join(b.Dir, "said")
	shell := filepath.Join(b.Dir, "shell")
	if err := os.WriteFile(shell, []byte("#!/bin/sh\ntee "+said+" | ssh \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	there := filepath.Join(b.Dir, "there")
	if err := errors.Join(os.Mkdir(there, 0o700), os.WriteFile(there+"/agent", []byte("#!/bin/sh\ncd "+there+"\nulimit -c unlimited\nexec "+bin+"/gorun-agent\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	cmd := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), "sh", "-c", "ulimit -c unlimited; exec "+filepath.Join(bin, "gorun")+
		" -v --rsh "+shell+" --launch-agent "+there+"/agent -H h1,h2 sh -c 'sleep 4321 & exec "+bin+"/rank idle'")
	var log bytes.Buffer
	cmd.Stderr, cmd.WaitDelay = &log, time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, 40*time.Second, "ranks on both hosts", func() bool {
		up, _ := filepath.Glob(filepath.Join(b.Dir, "up.*"))
		return len(up) == len(b.Hosts)
	})
	stream, err := os.ReadFile(said)
	if err != nil {
		t.Fatal(err)
	}
	const mark, size = "\xa3Key\xc4\x20", 32 // msgpack's: a field, and its bytes
	at := bytes.Index(stream, []byte(mark))
	if at < 0 || at+len(mark)+size > len(stream) {
		t.Fatalf("no key among the %d bytes that the agent is told", len(stream))
	}
	key := stream[at+len(mark):][:size]
	looked := 0
	for _, h := range b.Hosts {
		for pid, line := range h.Processes() {
			for _, file := range []string{"cmdline", "environ"} {
				text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
				if err != nil {
					continue // it has ended
				}
				looked++
				if shows(text, key) {
					t.Errorf("%s: the key is in %s of %s", h.Name, file, line)
				}
			}
		}
	}
	if looked < 8 {
		t.Errorf("looked at %d files only", looked)
	}
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil {
		t.Fatal(err)
	}
	cores := func() (found []string) {
		for _, dir := range []string{b.Dir, there} {
			more, _ := filepath.Glob(filepath.Join(dir, "core*"))
			found = append(found, more...)
		}
		return found
	}
	for i, victim := range []string{"sleep 4321", bin + "/gorun-agent"} {
		pid := b.Hosts[1].First(func(line string) bool { return strings.HasPrefix(line, victim) })
		if err := syscall.Kill(pid, syscall.SIGSEGV); err != nil {
			t.Fatal(err)
		}
		// What is no program of Go leaves one, which has the environment of a rank.
		if i == 0 && strings.HasPrefix(string(pattern), "core") {
			testenv.Await(t, 10*time.Second, "a core of a rank's process", func() bool { return len(cores()) > 0 })
		}
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(log.String(), "host h2: its agent") {
		t.Errorf("%v, the agent's death is not told\n%s", err, log.String())
	}
	if shows(log.Bytes(), key) {
		t.Error("the key is in gorun's log")
	}
	b.Idle(leftLimit)
	found := cores()
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil || shows(text, key) {
			t.Errorf("%s, %d bytes: the key is there, or %v", file, len(text), err)
		}
	}
	if len(found) > 1 {
		t.Errorf("the agent has left a core: %q", found)
	}
}

// shows tells whether a text has a key in some form, or a half of it.
func shows(text, key []byte) bool {
	for _, part := range [][]byte{key[:len(key)/2], key[len(key)/2:]} {
		for _, form := range []string{string(part), hex.EncodeToString(part), base64.RawStdEncoding.EncodeToString(part[:15]), base64.RawURLEncoding.EncodeToString(part[:15])} {
			if bytes.Contains(bytes.ToLower(text), bytes.ToLower([]byte(form))) {
				return true
			}
		}
	}
	return false
}
