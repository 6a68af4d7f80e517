package hosts

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

var (
	rounds = flag.Int("rounds", 0, "faults of each kind that TestRandomFaults plays; 0: 2, or 50 with -all")
	seed   = flag.Uint64("seed", 0, "of TestRandomFaults; 0: another one each time")
)

// A randomFault happens to one of four hosts at a random moment of a job, from the start of gorun on.
type randomFault struct {
	name  string
	own   bool // it happens to gorun's host
	relay bool // h2 has a relay, which logs in to the others
	// strike is false where there is nothing to strike yet.
	strike func(p *play, at *testbed.Host) bool
	quick  bool // the job ends at once
	// resumes: what was stopped runs on when the job has ended, and cleans up then. Nobody else on its host could.
	resumes bool
}

// agents are the processes of agents on a host: theirs and their guardians'; relay: of its relay.
func agents(h *testbed.Host, relay bool) (pids []int) {
	for pid, line := range h.Processes() {
		if !strings.HasPrefix(line, "sh -c") && strings.HasPrefix(line, bin+"/gorun-agent") && strings.Contains(line, "--relay") == relay {
			pids = append(pids, pid)
		}
	}
	return pids
}

// strike signals the first of the agents on a host, or all of them and their guardians.
func strike(p *play, h *testbed.Host, relay, all bool, s syscall.Signal) bool {
	pids := agents(h, relay)
	if len(pids) == 0 {
		return false
	}
	first := h.First(func(line string) bool {
		return !strings.HasPrefix(line, "sh -c") && strings.HasPrefix(line, bin+"/gorun-agent") && strings.Contains(line, "--relay") == relay
	})
	if !all {
		pids = []int{first}
	}
	if s == syscall.SIGSTOP {
		// Before it has the timer that ends it, it could only be continued, and the job goes on with another one.
		if timers, err := os.ReadFile(fmt.Sprintf("/proc/%d/timers", first)); err == nil && len(timers) == 0 {
			return false
		}
	}
	p.struck = time.Now()
	for _, pid := range pids {
		_ = syscall.Kill(pid, s)
	}
	return true
}

var randomFaults = []randomFault{
	{name: "link cut", strike: func(p *play, h *testbed.Host) bool { p.cut(h); return true }},
	{name: "gorun's own link cut", own: true, strike: func(p *play, h *testbed.Host) bool { p.cut(h); return true }},
	{name: "host dead", strike: func(p *play, h *testbed.Host) bool {
		p.cut(h)
		for pid := range h.Processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = h.Command(p.t.Context(), "sh", "-c", "rm -rf /dev/shm/* /tmp/*").Run() // its memory is gone
		return true
	}},
	{name: "agent stopped", strike: func(p *play, h *testbed.Host) bool { return strike(p, h, false, false, syscall.SIGSTOP) }},
	{name: "agent and guardian stopped", resumes: true, strike: func(p *play, h *testbed.Host) bool { return strike(p, h, false, true, syscall.SIGSTOP) }},
	{name: "agent killed", quick: true, strike: func(p *play, h *testbed.Host) bool { return strike(p, h, false, false, syscall.SIGKILL) }},
	{name: "relay stopped", relay: true, strike: func(p *play, h *testbed.Host) bool { return strike(p, h, true, false, syscall.SIGSTOP) }},
	{name: "link of a relay cut", relay: true, strike: func(p *play, h *testbed.Host) bool { p.cut(h); return true }},
}

// Limits of a random fault: to the end of the job, and from there until nothing is left on any host.
const (
	randomLimit = 6 * time.Second
	// unanswered is the limit where the host has not answered ssh yet: ssh's own, twice.
	unanswered = 25 * time.Second
)

// slack is for what else the machine does.
const slack = 2

// answered tells whether a host has a connection to the sshd of another one.
func answered(from, to *testbed.Host) bool {
	var a [4]byte
	fmt.Sscanf(to.Addr, "%d.%d.%d.%d", &a[0], &a[1], &a[2], &a[3])
	remote := fmt.Sprintf("%02X%02X%02X%02X:0016 01", a[3], a[2], a[1], a[0])
	return strings.Contains(from.Sockets(), remote)
}

// Random faults at random moments end a job over four hosts soon, with the right host named and nothing left.
func TestRandomFaults(t *testing.T) {
	testenv.Part(t, testenv.Faults)
	n, s := *rounds, *seed
	if n == 0 {
		n = 2
		if *all {
			n = 50
		}
	}
	if s == 0 {
		s = uint64(time.Now().UnixNano())
	}
	t.Logf("the seed is %d", s)
	b := testbed.New(t, 4)
	for i, f := range randomFaults {
		t.Run(f.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(s, uint64(i)))
			var ends, cleans []time.Duration
			early := 0
			for round := range n {
				ended, clean, first := f.play(t, b, random, round)
				if first {
					early++
					continue
				}
				ends, cleans = append(ends, ended), append(cleans, clean)
			}
			slices.Sort(ends)
			slices.Sort(cleans)
			if len(ends) > 0 {
				mid, last := len(ends)/2, len(ends)-1
				t.Logf("FIGURES %s: %d faults, ended after %s (median), %s (most), nothing left %s, %s later; %d more before the host had answered",
					f.name, len(ends), seconds(ends[mid]), seconds(ends[last]), seconds(cleans[mid]), seconds(cleans[last]), early)
			}
		})
	}
}

// play plays a fault. early: the host had not answered ssh yet.
func (f *randomFault) play(t *testing.T, b *testbed.Bed, random *rand.Rand, round int) (ended, clean time.Duration, early bool) {
	t.Helper()
	p := &play{t: t, b: b, hosts: "h1,h2,h3,h4"}
	defer p.close()
	at := b.Hosts[1+random.IntN(3)]
	if f.own {
		at = b.Hosts[0]
	}
	if f.relay {
		at = b.Hosts[1]
		p.args = oneRelay
	}
	kind := []string{"idle", "busy"}[random.IntN(2)]
	moment := time.Duration(random.Int64N(int64(1500 * time.Millisecond)))
	p.start(kind)
	began := time.Now()
	p.pass(moment)
	testenv.Await(t, 30*time.Second, f.name, func() bool { return f.strike(p, at) })
	after := p.struck.Sub(began)
	if f.own {
		for _, to := range b.Hosts[1:] {
			early = early || !answered(at, to)
		}
	} else {
		early = !answered(b.Hosts[0], at)
	}
	waited := make(chan error, 1)
	go func() { waited <- p.cmd.Wait() }()
	var err error
	wentOn := false
	for over := false; !over; {
		select {
		case err = <-waited:
			over = true
		case <-time.After(100 * time.Millisecond):
			if up, _ := filepath.Glob(filepath.Join(b.Dir, "up.*")); f.relay && !wentOn && len(up) == len(b.Hosts) && time.Since(p.struck) > 2*randomLimit {
				wentOn = true // the relay had not come, and gorun has logged in to the others itself
				_ = os.WriteFile(filepath.Join(b.Dir, "over"), nil, 0o644)
			}
			if time.Since(p.struck) > 2*unanswered {
				p.cancel()
			}
		}
	}
	ended = time.Since(p.struck)
	if f.resumes {
		for pid := range at.Processes() {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	left := p.left()
	for len(left) > 0 && time.Since(p.struck) < ended+leftLimit {
		left = p.left()
	}
	clean = time.Since(p.struck) - ended
	limit := randomLimit
	switch {
	case early:
		limit = unanswered
	case f.quick:
		limit = killed
	}
	named := at.Name
	if f.own {
		named = "h[2-4]"
	}
	line := first(p.complaints.String())
	what := fmt.Sprintf("round %d: %s of %s, %s ranks, struck after %v, early %v: ended after %v, %v more until nothing was left", round, f.name, at.Name, kind, after.Round(time.Millisecond), early, ended.Round(time.Millisecond), clean.Round(time.Millisecond))
	switch {
	case wentOn && err == nil && len(left) == 0:
		t.Logf("%s: it went on without", what)
		return ended, clean, true
	case err == nil:
		t.Errorf("%s: the job ended well", what)
	case ended > slack*limit, len(left) > 0, !regexp.MustCompile(`\b` + named + `\b`).MatchString(line):
		t.Errorf("%s\n%s\nleft %v\n%s", what, line, left, p.complaints)
	default:
		t.Log(what)
	}
	return ended, clean, early
}
