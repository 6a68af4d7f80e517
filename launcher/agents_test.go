package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// Agents whose remote shells leave something behind that holds their standard error are ended together: one after the
// other they would take 100 ms each.
func TestAgentsAreKilledTogether(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	testenv.NoLeaks(t)
	const agents, each = 40, 100 * time.Millisecond
	dir := t.TempDir()
	fifo := filepath.Join(dir, "held")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close() // which ends what is left behind
	var links []*agent.Link
	for i := range agents {
		script := fmt.Sprintf("cat <%s >/dev/null & : >%s/up.%d; exec sleep 1000", fifo, dir, i)
		l, err := agent.Start([]string{"sh", "-c", script}, os.Environ(), "h", &agent.Shell{})
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, l)
	}
	testenv.Await(t, time.Minute, "all remote shells", func() bool {
		up, _ := filepath.Glob(filepath.Join(dir, "up.*"))
		return len(up) == agents
	})
	begin := time.Now()
	killAll(links)
	if took := time.Since(begin); took >= agents*each {
		t.Errorf("%d agents took %v, which is no less than one after the other", agents, took)
	}
}

// GOTRACEBACK=crash has ranks leave core files, and no agent.
func TestAgentsLeaveNoCore(t *testing.T) {
	testenv.NoLeaks(t)
	t.Setenv("GOTRACEBACK", "crash")
	for _, launcher := range []string{"fork", "ssh"} {
		job := Job{NP: 2, Argv: sh(`echo "$GOTRACEBACK"`), Agents: Agents{Launcher: launcher}}
		if launcher == "ssh" {
			overShells(t, &job, 2, play)
		} else {
			job.Hosts = []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}
		}
		told := filepath.Join(t.TempDir(), "told")
		job.Agents.Command = append(sh(`echo "($GOTRACEBACK)" >>`+told+`; exec "$@"`), append([]string{"sh"}, roleArgv(t, "agent")...)...)
		r, stdout, stderr, err := runJob(t, job)
		agents, _ := os.ReadFile(told)
		if err != nil || r.ExitStatus != 0 || stdout != "crash\ncrash\n" || string(agents) != "()\n()\n" {
			t.Errorf("%s: status %d, %v: ranks have %q, agents %q; want crash, and nothing\n%s", launcher, r.ExitStatus, err, stdout, agents, stderr)
		}
	}
}
