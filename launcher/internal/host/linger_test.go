package host

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The grace of what ranks have left behind passes only while their output is taken, and only once it was begun; at its
// end what is in the pipes is read, and nothing after it.
func TestGrace(t *testing.T) {
	d := newDesk(t, 2)
	d.spec.Grace = 10 * time.Second
	now := time.Now()
	pass := func(seconds int) {
		now = now.Add(time.Duration(seconds) * time.Second)
		d.output.lingerOnTime(now)
	}
	look := func(what string, left int) {
		t.Helper()
		if got := d.output.linger.left; got != time.Duration(left)*time.Second || d.output.linger.cut {
			t.Errorf("%s: %v are left, cut %v, want %ds", what, got, d.output.linger.cut, left)
		}
		if due := d.output.graceEnds(); !due.IsZero() && due != now.Add(d.output.linger.left) {
			t.Errorf("%s: it ends in %v", what, due.Sub(now))
		}
	}
	d.running = 1
	d.output.settle()
	pass(100)
	look("a rank runs", 10)
	d.running = 0
	pass(100)
	look("it has just ended", 10)
	pass(4)
	look("output is taken", 6)
	d.output.settle()
	look("a second wish", 6)
	d.output.pause(Stdout, true)
	pass(1) // until here it was taken
	look("output is not taken", 5)
	pass(100)
	look("nor later", 5)
	d.output.pause(Stdout, false)
	pass(100)
	look("nor until here", 5)
	pass(2)
	look("it is taken again", 3)
	if d.output.drained() {
		t.Error("the host does not wait for it")
	}
	d.write(1, "before")
	pass(3)
	if !d.output.linger.cut || d.output.drained() {
		t.Errorf("cut %v, drained %v at the end of the grace", d.output.linger.cut, d.output.drained())
	}
	d.read()
	if !d.output.drained() {
		t.Error("what was written before is read, and the host goes on")
	}
}

// A host tells that output is open once: when all ranks have ended and a look at the pipes brings nothing, or always something.
func TestLingersIsToldOnce(t *testing.T) {
	for _, c := range []struct {
		name            string
		running, served int
		since           time.Duration
		paused, closed  bool
		want            int
	}{
		{"a rank runs", 1, 0, time.Hour, false, false, 0},
		{"nothing comes", 0, 0, 0, false, false, 1},
		{"something has come", 0, 1, 0, false, false, 0},
		{"something comes all the time", 0, 1, time.Hour, false, false, 1},
		{"output is not taken", 0, 0, time.Hour, true, false, 0},
		{"it closes", 0, 0, time.Hour, false, true, 0},
	} {
		d := newDesk(t, 1)
		told := 0
		d.cfg.Emit = func(e Event) {
			if e.Kind == Lingers {
				told++
			}
		}
		d.running, d.served, d.output.linger.since = c.running, c.served, time.Now().Add(-c.since)
		if c.paused {
			d.output.pause(Stdout, true)
		}
		if c.closed {
			closeFD(&d.pipes[0])
			d.read()
			if err := d.turn(0); err != nil {
				t.Fatal(err)
			}
			d.served = 0
		}
		if d.output.lingers() != (c.running == 0 && !c.paused) {
			t.Errorf("%s: it sleeps, or does not", c.name)
		}
		d.output.tellLingers()
		d.output.tellLingers()
		if told != c.want {
			t.Errorf("%s: told %d times, want %d", c.name, told, c.want)
		}
	}
}

// What holds output is named, on a pipe and on a terminal.
func TestHoldersAreNamed(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		name, script, want string
		pty                PTY
		then               CommandKind
	}{
		{"one", "sleep 600 & exec sleep 0", `^\w+ \(pid \d+\), which it had started, still held its output 50ms after the last rank's end and is killed; --grace TIME waits longer$`, NoPTY, Settle},
		{"before its grace is over", "sleep 600 & exec sleep 0", `^\w+ \(pid \d+\), which`, NoPTY, Discard},
		{"on a terminal", "sleep 600 2>/dev/null & exec sleep 0", `^\w+ \(pid \d+\), which`, NeedPTY, Settle},
		{"many", "for i in 1 2 3 4 5; do sleep 600 & done; exec sleep 0", `^\w+ \(pid \d+\), \w+ \(pid \d+\), \w+ \(pid \d+\) and 2 more processes, which`, NoPTY, Settle},
	} {
		spec := ranks(1, "sh", "-c", c.script)
		spec.Terminal.PTY, spec.Grace = c.pty, 50*time.Millisecond
		var cut []string
		for _, e := range record(t, spec, func(h *Host, e Event) {
			if e.Kind == Lingers {
				h.Send(Command{Kind: c.then})
			}
		}) {
			if e.Kind == Cut {
				cut = append(cut, e.Text)
			}
		}
		if len(cut) != 1 || !regexp.MustCompile(c.want).MatchString(cut[0]) {
			t.Errorf("%s: told %q, want %s", c.name, cut, c.want)
		}
	}
}

// Of several ranks the first with a process that can be seen is named.
func TestHoldersOfSeveralRanks(t *testing.T) {
	d := newDesk(t, 3)
	for i := range d.pipes[:2] { // what is written there by nobody is on its way, or of a process that cannot be seen
		closeFD(&d.pipes[i])
	}
	self, _ := proc.Of(os.Getpid())
	this := fmt.Sprintf("%s (pid %d), which", self.Name, os.Getpid())
	if got := d.output.holders(); got.Kind != Cut || got.Rank != 2 || !strings.HasPrefix(got.Text, this) || !strings.Contains(got.Text, "killed, as is what 2 more had started;") {
		t.Errorf("got rank %d, %q, want rank 2, %s", got.Rank, got.Text, this)
	}
	closeFD(&d.pipes[2])
	if got := d.output.holders(); got.Rank != 0 || !strings.HasPrefix(got.Text, "a process that cannot be seen from here, which") {
		t.Errorf("got rank %d, %q", got.Rank, got.Text)
	}
}

// A container's terminal of the same number is another one.
func TestTerminalsOfOthersAreTheirs(t *testing.T) {
	for _, c := range []struct {
		name, open string
		want       bool
	}{{"/dev/pts/ptmx", "/dev/null", true}, {"/dev/pts/ptmx", "/dev/pts/ptmx", false}, {"pipe:[1]", "/dev/null", false}} {
		if got := elsewhere(c.name, c.open); got != c.want {
			t.Errorf("%s and an open %s: %t, want %t", c.name, c.open, got, c.want)
		}
	}
}
