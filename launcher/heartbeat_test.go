package launcher

import (
	"context"
	"encoding/binary"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	far "github.com/gorun-mpi/gorun/launcher/agent"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// The time for which the controller's lock is held does not count against an agent that only
// its answers speak for.
func TestLeaseOfALocalAgentWhileTheControllerIsHeld(t *testing.T) {
	r := &remotes{c: &controller{}, links: []*agent.Link{{}}, heartbeat: newHeartbeat(1)}
	begin := time.Unix(1000, 0)
	silentFrom := func(from, to int) (at int) {
		for i := from; i <= to; i++ {
			if r.silent(0, begin.Add(time.Duration(i)*time.Second)) {
				return i
			}
		}
		return 0
	}
	r.heartbeat.leases[0].Begin(agent.Looks*time.Second, begin)
	r.c.mu.Lock()
	if at := silentFrom(1, 20); at > 0 {
		t.Errorf("over after %d s, with the lock held", at)
	}
	r.c.mu.Unlock()
	if at := silentFrom(21, 60); at != 36 {
		t.Errorf("over after %d s, want 36: 16 s from the last look before the lock was free", at)
	}
}

// The order to start the ranks may take longer than a lease, as over a network that loses packets: an agent that has not been
// told to begin is not given up for its silence.
func TestAnOrderTakesLongerThanALease(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	testenv.NoLeaks(t)
	job := Job{NP: 2, Argv: sh("echo on $GORUN_HOST"), Agents: Agents{Timeout: time.Second}}
	overShells(t, &job, 2, roleArgv(t, "held")[0]+` --role held 2s | env -u SSH_CONNECTION sh -c "$2"`)
	r, stdout, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 || len(stdout) != 2*len("on far0\n") {
		t.Errorf("status %d, %v, cause %v\n%s%s", r.ExitStatus, err, r.Cause, stdout, stderr)
	}
}

// A host that is lost between the order to start the ranks and its agent's first word after that is noticed as soon as any other.
func TestAHostIsLostAtTheOrder(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	testenv.NoLeaks(t)
	job := Job{NP: 2, Argv: sh("sleep 100"), Agents: Agents{Timeout: time.Second}}
	overShells(t, &job, 2, play)
	job.Agents.Command = roleArgv(t, "struck")
	begin := time.Now()
	r, _, _, err := runJob(t, job)
	if took := time.Since(begin); err != nil || r.Cause == nil || r.Cause.Host == "" || took > agent.StreamLimit/2 {
		t.Errorf("after %v: %v, cause %v; want a host, and less than %v", took, err, r.Cause, agent.StreamLimit/2)
	}
}

// roleStruck is an agent that stands still, as its machine would, when more than the job comes.
func roleStruck([]string) int {
	in, out, err := os.Pipe()
	if err != nil {
		return 1
	}
	go func() {
		var head [4]byte
		if _, err := io.ReadFull(os.Stdin, head[:]); err != nil {
			return
		}
		_, _ = out.Write(head[:])
		_, _ = io.CopyN(out, os.Stdin, int64(binary.BigEndian.Uint32(head[:])))
		if _, err := io.ReadFull(os.Stdin, head[:1]); err == nil {
			_ = unix.Kill(os.Getpid(), unix.SIGSTOP)
		}
	}()
	return far.Main(context.Background(), in, os.Stdout)
}

// roleHeld passes its input on, but holds all that stands behind the first frame for a time: TIME.
func roleHeld(args []string) int {
	hold, err := time.ParseDuration(args[0])
	var head [4]byte
	if err == nil {
		_, err = io.ReadFull(os.Stdin, head[:])
	}
	if err == nil {
		_, err = os.Stdout.Write(head[:])
	}
	if err == nil {
		_, err = io.CopyN(os.Stdout, os.Stdin, int64(binary.BigEndian.Uint32(head[:])))
	}
	var next [1]byte
	if err == nil {
		_, err = io.ReadFull(os.Stdin, next[:])
	}
	if err != nil {
		return 1
	}
	time.Sleep(hold) // which is what is tested
	if _, err = os.Stdout.Write(next[:]); err == nil {
		_, err = io.Copy(os.Stdout, os.Stdin)
	}
	if err != nil {
		return 1
	}
	return 0
}
