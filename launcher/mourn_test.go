package launcher

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// roleMourns is a rank that does what its arguments say, in order, and then writes which ranks are dead elsewhere.
func roleMourns(args []string) int {
	s, err := shm.Open(4)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 90
	}
	only := false
	for _, a := range args {
		if only { // "@N,M": the next step is of those ranks alone
			only = false
			continue
		}
		if at, ok := strings.CutPrefix(a, "@"); ok {
			only = !slices.Contains(strings.Split(at, ","), os.Getenv("PMI_RANK"))
			continue
		}
		verb, value, _ := strings.Cut(a, "=")
		n, _ := strconv.Atoi(value)
		switch verb {
		case "exit":
			return n
		case "kill":
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		case "agent": // kills it, and dies of that
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			err = await(func() bool { return false })
		case "dead":
			err = await(func() bool { return s.Dead(n) })
		case "elsewhere":
			err = await(func() bool { return s.DeadElsewhere(n) })
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", a, err)
			return 91
		}
	}
	var dead []int
	for rank := range s.World {
		if s.DeadElsewhere(rank) {
			dead = append(dead, rank)
		}
	}
	fmt.Printf("%s of %d: %v\n", os.Getenv("PMI_RANK"), s.World, dead)
	return 0
}

// Ranks of other hosts are marked as dead where the survivors look, if the job goes on: those that failed, and those
// whose host is lost, not those that ended well.
func TestSurvivorsOfOtherHostsAreTold(t *testing.T) {
	for _, c := range []struct {
		name       string
		hosts, np  int
		continuous bool
		args       []string
		want       []string
	}{
		{"a rank is killed", 3, 6, true, []string{"@3", "kill", "@0,1,4,5", "elsewhere=3", "@2", "dead=1"}, []string{"0 of 6: [3]", "1 of 6: [3]", "2 of 6: []", "4 of 6: [3]", "5 of 6: [3]"}},
		{"a rank exits", 2, 2, true, []string{"@1", "exit=3", "elsewhere=1"}, []string{"0 of 2: [1]"}},
		{"one that ended well before is not told", 2, 4, true, []string{"@2", "exit=0", "@3", "dead=0", "@3", "kill", "elsewhere=3"}, []string{"0 of 4: [3]", "1 of 4: [3]"}},
		{"an agent is killed", 3, 6, true, []string{"@2,3", "agent", "elsewhere=2", "elsewhere=3"}, []string{"0 of 6: [2 3]", "1 of 6: [2 3]", "4 of 6: [2 3]", "5 of 6: [2 3]"}},
		{"one host", 1, 2, true, []string{"@1", "kill", "dead=1"}, []string{"0 of 0: []"}},
		{"a job that does not go on", 2, 2, false, nil, []string{"0 of 0: []", "1 of 0: []"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: c.np, Argv: roleArgv(t, "mourns", c.args...), Continuous: c.continuous}
			overAgents(t, &job, c.hosts)
			r, out, errs, err := runJob(t, job)
			got := strings.Split(strings.TrimSpace(out), "\n")
			if slices.Sort(got); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %q, cause %v, %v, want %q\n%s", got, r.Cause, err, c.want, errs)
			}
		})
	}
}

// An agent that tells again of an end, or of a rank that is not its own, has nobody marked by that: its word counts for its
// own ranks, once.
func TestAgentsTellOfTheirOwnRanksAlone(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	job := &Job{Continuous: true, Log: log}
	g := newGroup(0, []App{{NP: 4, Argv: []string{"x"}}}, []place.Share{{Host: "a", Ranks: []int{0, 1}}, {Host: "b", Ranks: []int{2, 3}}})
	told := make([][]int, 2)
	for i := range told {
		g.seats = append(g.seats, &seat{group: g, at: i, site: siteFunc(func(c host.Command) {
			if c.Kind == host.Mourn {
				told[i] = append(told[i], c.Ranks...)
			}
		})})
	}
	c := &controller{job: job}
	c.clock.mu = &c.mu
	c.worlds = worlds{job: job, groups: []*group{g}}
	c.end = ending{job: job, clock: &c.clock, worlds: &c.worlds, hasten: func() {}}
	died := func(seat, rank int) {
		c.event(g.seats[seat], host.Event{Kind: host.Ended, Rank: rank, PID: 7, Status: 137, Signal: syscall.SIGKILL})
	}
	died(0, 1)
	died(0, 1)
	c.mournHost(g.seats[1])
	died(1, 3)
	c.mournHost(g.seats[1])
	if !slices.Equal(told[0], []int{2, 3}) || !slices.Equal(told[1], []int{1}) {
		t.Errorf("told %v, want [[2 3] [1]]", told)
	}
	for _, rank := range []int{0, 1, 4, -1} {
		died(1, rank)
	}
	if !slices.Equal(told[0], []int{2, 3}) || !slices.Equal(told[1], []int{1}) || !c.end.told {
		t.Errorf("told %v, want what it was, and the end of the job: %v", told, c.end.told)
	}
}
