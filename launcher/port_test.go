package launcher

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

// Ranks that connect to their server see what those see that inherit it, and so
// do those that they spawn.
func TestPMIPort(t *testing.T) {
	for _, way := range ways {
		for _, np := range []int{1, 2, 4, 12} {
			t.Run(fmt.Sprint(way.name, " np ", np), func(t *testing.T) {
				testenv.NoLeaks(t)
				argv := spawner(t, steps([]string{"cards=1000", "env=PMI_FD"}, spawn(2, "init", "get=PARENT", "env=PMI_FD", "barrier", "finalize"),
					[]string{"lookup=none", "barrier", "size", "finalize"})...)
				job := Job{Argv: argv, NP: np, Hosting: hosting.Settings{PMIPort: true}}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				for rank := range np {
					if !strings.Contains(stdout, fmt.Sprintf("%d/%d\n", rank, np)) {
						t.Errorf("rank %d of %d does not say so: %q", rank, np, stdout)
					}
				}
				if got := strings.Count(stdout, "PMI_FD=\n"); got != np+2 {
					t.Errorf("%d ranks have no PMI_FD, want %d: %q", got, np+2, stdout)
				}
				if got := strings.Count(stdout, "PARENT=a port$"); got != 2 {
					t.Errorf("%d children have their parents' port, want 2: %q", got, stdout)
				}
			})
		}
	}
}

// The ends of ranks are seen over a port too.
func TestPMIPortEnds(t *testing.T) {
	for name, c := range map[string]struct {
		steps  []string
		status int
		text   string
	}{
		"abort":       {[]string{"init", "@1", "abort=7", "sleep=20000"}, 7, "aborted the job with status 7"},
		"killed":      {[]string{"init", "@1", "kill=9", "barrier"}, 137, "killed by signal 9"},
		"no finalize": {[]string{"init", "@1", "exit=0", "barrier"}, 1, "without MPI_Finalize"},
		"not joined":  {[]string{"@1", "exit=0", "init", "barrier"}, 1, "before init"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			r, _, stderr, err := runJob(t, Job{Argv: roleArgv(t, "pmi", c.steps...), NP: 3, Hosting: hosting.Settings{PMIPort: true}})
			if err != nil || r.Cause == nil || r.ExitStatus != c.status || r.Cause.Rank != 1 || !strings.Contains(r.Cause.String(), c.text) {
				t.Errorf("got %+v, %v, %q, want rank 1, status %d, %q", r, err, stderr, c.status, c.text)
			}
		})
	}
}

// heldAtPort starts two ranks, which join when finish is called, and gives the address of their PMI server. finish waits
// for them, and sees that they have met.
func heldAtPort(t *testing.T) (address string, finish func()) {
	t.Helper()
	var out buffer
	ready := out.await("PMI_PORT=")
	// The ranks wait for a line, and a test that is killed leaves nothing behind.
	stdin, line := io.Pipe()
	job := Job{Argv: sh(`echo PMI_PORT=$PMI_PORT; read x; exec "$@"`), NP: 2, Hosting: hosting.Settings{PMIPort: true}, Stdin: stdin, StdinRank: StdinAll, Stdout: &out}
	job.Argv = append(append(job.Argv, "sh"), roleArgv(t, "pmi", "init", "barrier", "size", "finalize")...)
	done := make(chan struct{})
	var r Result
	var err error
	go func() {
		defer close(done)
		defer stdin.Close()
		r, err = Run(testenv.Deadline(t, time.Minute), job)
	}()
	select {
	case <-ready:
	case <-done:
		t.Fatalf("got %+v, %v, %q before a rank has told its port", r, err, out.String())
	}
	return strings.TrimPrefix(strings.SplitN(out.String(), "\n", 2)[0], "PMI_PORT="), func() {
		t.Helper()
		fmt.Fprintln(line)
		line.Close()
		<-done
		if err != nil || r.ExitStatus != 0 || !strings.Contains(out.String(), "0/2\n") || !strings.Contains(out.String(), "1/2\n") {
			t.Errorf("got %+v, %v, %q", r, err, out.String())
		}
	}
}

// Strangers at the port are turned away, and ranks are served all the same.
func TestPMIPortTurnsForgedConnectionsAway(t *testing.T) {
	testenv.NoLeaks(t)
	address, finish := heldAtPort(t)
	var conns []net.Conn
	for _, say := range []string{"", "x", "GET / HTTP/1.1\r\n\r\n", "cmd=initack pmiid=7\n", "cmd=initack pmiid=-1\n", "cmd=init pmi_version=1\n", strings.Repeat("y", 1000), "\n"} {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		if _, err := c.Write([]byte(say)); err != nil {
			t.Fatal(err)
		}
		if len(say) < 2 && say != "\n" {
			continue // it waits for the rest
		}
		c.SetReadDeadline(time.Now().Add(testenv.Limit(20 * time.Second)))
		if n, err := c.Read(make([]byte, 100)); n > 0 || os.IsTimeout(err) {
			t.Errorf("%.20q is answered with %d bytes, %v", say, n, err)
		}
	}
	// More than may wait to say who they are.
	for range 300 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			break
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		c.Close()
	}
	finish()
}

// As many silent connections as there may be, and more, keep no rank out, and neither
// do those that come and go.
func TestPMIPortServesRanksBesideSilentConnections(t *testing.T) {
	testenv.NoLeaks(t)
	address, finish := heldAtPort(t)
	for range 260 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 100 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	finish()
}

// A second connection of a rank is none.
func TestPMIPortRefusesASecondConnectionOfARank(t *testing.T) {
	testenv.NoLeaks(t)
	var out buffer
	ready := out.await("PMI_PORT=")
	ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = Run(ctx, Job{Argv: sh("echo PMI_PORT=$PMI_PORT; sleep 100"), NP: 1, Hosting: hosting.Settings{PMIPort: true}, Stdout: &out})
	}()
	<-ready
	address := strings.TrimPrefix(strings.TrimSpace(out.String()), "PMI_PORT=")
	var answers []string
	for range 2 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintln(c, "cmd=initack pmiid=0")
		c.SetReadDeadline(time.Now().Add(testenv.Limit(20 * time.Second)))
		line, _ := bufio.NewReader(c).ReadString('\n')
		answers = append(answers, line)
	}
	if want := []string{"cmd=initack\n", ""}; !slices.Equal(answers, want) {
		t.Errorf("got %q, want %q", answers, want)
	}
	cancel()
	<-done
}
