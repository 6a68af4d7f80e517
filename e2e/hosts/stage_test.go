package hosts

import (
	"bytes"
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

// cache is where a host keeps agents that it was sent.
const cache = "/root/.cache/gorun"

// bare gives the host a home of its own, of so many bytes, and takes gorun's programs from it.
func bare(t *testing.T, h *testbed.Host, room string) {
	t.Helper()
	onHost(t, h, "mount -t tmpfs tmpfs "+bin+" && mount -t tmpfs -o size="+room+" tmpfs /root")
}

// onHost runs a shell's command there, and gives what it prints.
func onHost(t *testing.T, h *testbed.Host, script string) string {
	t.Helper()
	out, err := h.Command(testenv.Deadline(t, time.Minute), "sh", "-ec", script).CombinedOutput()
	if err != nil {
		t.Fatalf("%s on %s: %v\n%s", script, h.Name, err, out)
	}
	return strings.TrimSpace(string(out))
}

// killFirst kills the first process there whose command line begins so.
func killFirst(t *testing.T, h *testbed.Host, command string) {
	t.Helper()
	first := h.First(func(line string) bool { return strings.HasPrefix(line, command) })
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

const wasSent = "the agent's program was sent"

// --stage sends the agent to hosts that have none, once; what is in the way there is said.
func TestStage(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	h := b.Hosts[1]
	for _, host := range b.Hosts[1:] {
		bare(t, host, "64m")
	}
	stage := func(t *testing.T, more ...string) ran {
		t.Helper()
		return gorun(t, b, append(more, "--stage", "-v", "--wdir", "/tmp", "hostname")...)
	}
	works := func(t *testing.T, got ran, hosts, sent int) {
		t.Helper()
		if got.status != 0 || strings.Count(got.out, "\n") != hosts || strings.Count(got.err, wasSent) != sent {
			t.Errorf("status %d, sent to %d hosts, output %q; want 0, %d, %d names\n%s", got.status, strings.Count(got.err, wasSent), got.out, sent, hosts, got.err)
		}
		b.Idle(leftLimit)
	}
	fails := func(t *testing.T, got ran, want ...string) {
		t.Helper()
		line, _, _ := strings.Cut(got.err[max(0, strings.Index(got.err, "gorun: host h2")):], "\n")
		for _, w := range append(want, "gorun: host h2: ") {
			if got.status == 0 || !strings.Contains(line, w) {
				t.Errorf("status %d, want a failure and %q in one line:\n%s", got.status, w, got.err)
			}
		}
		if parts := onHost(t, h, "ls "+cache+"/part-* 2>/dev/null || true"); parts != "" {
			t.Errorf("left in the cache: %q", parts)
		}
		b.Idle(leftLimit)
	}
	t.Run("first", func(t *testing.T) { works(t, stage(t, "-H", "h1,h2,h3"), 3, 2) })
	t.Run("again", func(t *testing.T) {
		got := stage(t, "-H", "h1,h2,h3")
		works(t, got, 3, 0)
		plain := gorun(t, b, "-H", "h1", "hostname")
		t.Logf("gorun -H h1,h2,h3 --stage hostname took %v; on this host alone %v", got.took, plain.took)
	})
	t.Run("asked for their machines", func(t *testing.T) {
		onHost(t, h, "rm -r "+cache)
		works(t, stage(t, "-H", "h1:1,h2:1", "--map-by", "core"), 2, 1)
	})
	t.Run("a login script writes", func(t *testing.T) {
		onHost(t, h, "rm -r "+cache+"; echo 'echo Welcome to h2; printf \"no newline \"' >/root/.bashrc")
		works(t, stage(t, "-H", "h2"), 1, 1)
	})
	t.Run("another version in its place", func(t *testing.T) {
		onHost(t, h, "printf '#!/bin/sh\\necho old\\n' >"+bin+"/gorun-agent; chmod +x "+bin+"/gorun-agent")
		works(t, stage(t, "-H", "h2"), 1, 0)
		onHost(t, h, "rm "+bin+"/gorun-agent")
	})
	t.Run("changed in the cache", func(t *testing.T) {
		onHost(t, h, "for f in "+cache+"/agent-*; do echo >>$f; done")
		got := stage(t, "-H", "h2")
		works(t, got, 1, 1)
		if !strings.Contains(got.err, "that in the cache had changed") {
			t.Errorf("does not say why it was sent\n%s", got.err)
		}
		works(t, stage(t, "-H", "h2"), 1, 0)
	})
	t.Run("old ones go", func(t *testing.T) {
		onHost(t, h, "cd "+cache+"; rm *; for i in 1 2 3 4 5 6 7; do touch -d 2020-01-0$i agent-$i part-$i; done")
		works(t, stage(t, "-H", "h2"), 1, 1)
		if left := onHost(t, h, "cd "+cache+"; ls -tr | tr '\\n' ' '; find . -type f -size +1000k | wc -l"); !strings.HasPrefix(left, "agent-5 agent-6 agent-7 agent-") || !strings.HasSuffix(left, " 1") {
			t.Errorf("left %q, want three old ones and the new one", left)
		}
		if mode := onHost(t, h, "stat -c %a "+cache+" "+cache+"/agent-????????*"); mode != "700\n700" {
			t.Errorf("modes %q", mode)
		}
	})
	t.Run("a directory of another user's", func(t *testing.T) {
		onHost(t, h, "chown -R 1000 "+cache)
		fails(t, stage(t, "-H", "h1,h2"), cache, "not a directory of user 0", "set XDG_CACHE_HOME")
	})
	t.Run("a link of another user's", func(t *testing.T) {
		onHost(t, h, "rm -r "+cache+"; mkdir /root/elsewhere; ln -s /root/elsewhere "+cache)
		fails(t, stage(t, "-H", "h1,h2"), cache, "symbolic link")
		onHost(t, h, "rm "+cache)
	})
	t.Run("no sha256sum", func(t *testing.T) {
		path := onHost(t, h, "command -v sha256sum")
		onHost(t, h, "touch /tmp/nothing; mount --bind /tmp/nothing "+path)
		fails(t, stage(t, "-H", "h1,h2"), "no sha256sum")
		onHost(t, h, "umount "+path+"; rm /tmp/nothing")
	})
	t.Run("a home that cannot be written", func(t *testing.T) {
		onHost(t, h, "mount -o remount,ro /root")
		works(t, stage(t, "-H", "h2"), 1, 1)
		if got := onHost(t, h, "stat -c %a /tmp/gorun-0; rm -r /tmp/gorun-0"); got != "700" {
			t.Errorf("/tmp/gorun-0 has mode %q", got)
		}
		// There anybody may have been first.
		onHost(t, h, "mkdir /tmp/gorun-0; chown 1000 /tmp/gorun-0")
		fails(t, stage(t, "-H", "h1,h2"), "/tmp/gorun-0 is not a directory of user 0")
		onHost(t, h, "rmdir /tmp/gorun-0")
	})
	t.Run("a full disk", func(t *testing.T) {
		onHost(t, h, "umount /root; mount -t tmpfs -o size=1m tmpfs /root")
		fails(t, stage(t, "-H", "h1,h2"), "No space left on device", "bytes of the agent")
	})
	t.Run("no programs may run there", func(t *testing.T) {
		onHost(t, h, "umount /root; mount -t tmpfs -o noexec tmpfs /root")
		fails(t, stage(t, "-H", "h1,h2"), "noexec")
	})
}

// What receives the program on a host hangs: gorun says how far it came, and leaves nothing when it is killed.
func TestStageThatHangs(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	h := b.Hosts[1]
	bare(t, h, "64m")
	// It reads all, and does not see that.
	head := filepath.Join(b.Dir, "head")
	if err := os.WriteFile(head, []byte("#!/bin/sh\ntouch /tmp/receives\nexec cat\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	onHost(t, h, "mount --bind "+head+" $(command -v head)")
	t.Run("kill -9 of gorun", func(t *testing.T) {
		cmd := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), filepath.Join(bin, "gorun"), "--stage", "--wdir", "/tmp", "-H", "h1,h2", "hostname")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, 20*time.Second, "the program to travel", func() bool {
			_, err := os.Stat(fmt.Sprintf("/proc/%d/root/tmp/receives", h.PID()))
			return err == nil
		})
		killFirst(t, b.Hosts[0], bin+"/gorun ")
		if err := cmd.Wait(); err == nil {
			t.Error("gorun ended well, and was not killed")
		}
		b.Idle(leftLimit)
		if left := onHost(t, h, "ls "+cache+" | grep -c part || true"); left != "0" {
			t.Errorf("%s parts are left", left)
		}
	})
	if !*all {
		return // what follows takes 30 s
	}
	t.Run("late", func(t *testing.T) {
		got := gorun(t, b, "--stage", "--wdir", "/tmp", "-H", "h1,h2", "hostname")
		if got.status == 0 || !strings.Contains(got.err, "gorun: host h2: no answer from the agent within 30s: its program is being sent, ") || bytes.Count([]byte(got.err), []byte("\n")) != 1 {
			t.Errorf("status %d\n%s", got.status, got.err)
		}
		b.Idle(leftLimit)
	})
}

// --preload-binary sends the program to hosts that do not have it, and takes it away however the job ends.
func TestPreload(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	h := b.Hosts[1]
	for _, host := range b.Hosts[1:] {
		bare(t, host, "64m")
	}
	args := func(program ...string) []string {
		return append([]string{"--stage", "--preload-binary", "--wdir", "/tmp", "-H", "h1,h2,h3"}, program...)
	}
	clean := func(t *testing.T) {
		t.Helper()
		b.Idle(leftLimit)
		for _, h := range b.Hosts {
			if files := h.Files(); files != nil {
				t.Errorf("%s has %q", h.Name, files)
			}
		}
	}
	t.Run("a2a", func(t *testing.T) {
		if got := gorun(t, b, args(bin+"/a2a", "-m", "48")...); got.status != 0 || !strings.Contains(got.out, "on every rank") {
			t.Errorf("status %d\n%s%s", got.status, got.out, got.err)
		}
		clean(t)
	})
	t.Run("no programs in shared memory", func(t *testing.T) {
		onHost(t, h, "mount -o remount,noexec /dev/shm")
		if got := gorun(t, b, args(bin+"/a2a", "-m", "48")...); got.status != 0 || !strings.Contains(got.out, "on every rank") {
			t.Errorf("status %d\n%s%s", got.status, got.out, got.err)
		}
		onHost(t, h, "mount -o remount,exec /dev/shm")
		clean(t)
	})
	t.Run("a full disk", func(t *testing.T) {
		onHost(t, h, "mount -o remount,size=1m /dev/shm")
		got := gorun(t, b, args(bin+"/a2a", "-m", "48")...)
		if got.status == 0 || !strings.Contains(got.err, "--preload-binary to host h2: write /dev/shm/") || !strings.Contains(got.err, "no space left on device after ") || strings.Count(got.err, "\n") != 1 {
			t.Errorf("status %d\n%s", got.status, got.err)
		}
		onHost(t, h, "mount -o remount,size=50% /dev/shm")
		clean(t)
	})
	t.Run("no such directory there", func(t *testing.T) {
		onHost(t, b.Hosts[0], "mkdir /tmp/here")
		got := gorun(t, b, "--stage", "--preload-binary", "--wdir", "/tmp/here", "-H", "h1,h2", bin+"/a2a")
		if got.status == 0 || !strings.Contains(got.err, "--wdir /tmp/here") {
			t.Errorf("status %d\n%s", got.status, got.err)
		}
		onHost(t, b.Hosts[0], "rmdir /tmp/here")
		clean(t)
	})
	long := filepath.Join(b.Dir, "long")
	const script = "#!/bin/sh\nexec sleep 1000\n"
	if err := os.WriteFile(long, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, victim string
		host         int
		size         int64 // of the program
		await        string
	}{
		{"kill -9 of gorun while the program travels", bin + "/gorun ", 0, 200 << 20, "/dev/shm/*/program-0"},
		{"kill -9 of gorun", bin + "/gorun ", 0, 0, "/dev/shm/*/program-0/long"},
		{"kill -9 of an agent", "./agent-", 1, 0, "/dev/shm/*/program-0/long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.size > 0 {
				if err := os.Truncate(long, c.size); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = os.Truncate(long, int64(len(script))) }()
			}
			cmd := b.Hosts[0].Command(testenv.Deadline(t, time.Minute), filepath.Join(bin, "gorun"))
			cmd.Args = append(cmd.Args, args(long)...)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testenv.Await(t, 20*time.Second, c.await, func() bool {
				found, _ := filepath.Glob(fmt.Sprintf("/proc/%d/root%s", h.PID(), c.await))
				if c.size == 0 { // the rank runs
					found = nil
					for _, line := range h.Processes() {
						if strings.Contains(line, "sleep 1000") {
							found = append(found, line)
						}
					}
				}
				return found != nil
			})
			killFirst(t, b.Hosts[c.host], c.victim)
			if err := cmd.Wait(); err == nil {
				t.Error("gorun ended well")
			}
			clean(t)
		})
	}
}
