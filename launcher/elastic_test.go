package launcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// listing is what an Elastic.Discover finds, which a test changes.
type listing struct {
	mu    sync.Mutex
	hosts []Host
	err   error
	calls int
}

func (l *listing) set(t *testing.T, hosts string, err error) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hosts, l.err = hostsOf(t, hosts), err
}

func (l *listing) discover(context.Context) ([]Host, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return l.hosts, l.err
}

// elasticJob is a job of hosts that l lists. Each rank says "RANK of SIZE" and the number of its start; those
// of starts before last wait for their end.
func elasticJob(t *testing.T, l *listing, least, most, last int) Job {
	t.Helper()
	return Job{Argv: sh(fmt.Sprintf(`echo $PMI_RANK of $PMI_SIZE in $GORUN_RESTART_COUNT; [ $GORUN_RESTART_COUNT -ge %d ] || exec sleep 100`, last)),
		Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Elastic: &Elastic{Min: least, Max: most, Discover: l.discover}, Restarts: Restarts{Pause: 1}}
}

// ended collects why the starts of a job have ended.
func ended(job *Job) *[]string {
	var why []string
	job.Restarts.Before = func(_ int, _ time.Duration, r Result) { why = append(why, r.Cause.String()) }
	return &why
}

// A job starts again when hosts come and when one goes, and takes all that there are.
func TestElasticFollowsTheList(t *testing.T) {
	testenv.NoLeaks(t)
	var l listing
	l.set(t, "a:1", nil)
	job := elasticJob(t, &l, 1, 4, 2)
	var out buffer
	job.Stdout = &out
	why := ended(&job)
	var seen []string
	job.Placing.Placed = func(p Placement) {
		seen = append(seen, strings.TrimSpace(p.Allocation()))
		next := map[int]string{1: "a:1,b:2", 3: "b:2"}[len(p.Ranks)]
		started := out.await(fmt.Sprintf("0 of %d in", len(p.Ranks)))
		go func() {
			<-started
			if next != "" {
				l.set(t, next, nil)
			}
		}()
	}
	r, _, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 || r.Restarts != 2 || len(seen) != 3 {
		t.Fatalf("%+v, %v, placements %q\n%s%s", r, err, seen, out.String(), stderr)
	}
	for _, want := range []string{"0 of 1 in 0", "2 of 3 in 1", "1 of 2 in 2"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %q", want, out.String())
		}
	}
	if want := []string{"gorun: there are hosts for 3 ranks, 1 run: a:1,b:2", "gorun: host a is no longer listed"}; strings.Join(*why, "; ") != strings.Join(want, "; ") {
		t.Errorf("the starts ended for %q, want %q", *why, want)
	}
}

// A host that is lost is set aside: with Elastic for fewer ranks, without it for a spare.
func TestLostHostIsSetAside(t *testing.T) {
	for _, c := range []struct {
		name, size string
		elastic    *Elastic
		np         int
		used       int // restarts that Restarts.Max counts
	}{
		{"elastic", "2 of 4 in 1", &Elastic{Min: 2, Max: 8}, 0, 0},
		{"spare", "3 of 4 in 1", nil, 4, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			var warned []string
			job := Job{NP: c.np, Hosts: hostsOf(t, "a:2,b:2,c:2"), Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Elastic: c.elastic,
				Restarts: Restarts{Max: c.used, Pause: 1}, Warn: func(text string) { warned = append(warned, text) },
				Argv: sh(`echo $PMI_RANK of $PMI_SIZE in $GORUN_RESTART_COUNT on $GORUN_HOST
[ $GORUN_RESTART_COUNT = 0 ] || exit 0
[ $PMI_RANK != 2 ] || kill -KILL $PPID
exec sleep 100`)}
			why := ended(&job)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || r.Restarts != 1 || !strings.Contains(stdout, c.size) {
				t.Fatalf("%+v, %v, want %q\n%s%s", r, err, c.size, stdout, stderr)
			}
			if len(*why) != 1 || !strings.Contains((*why)[0], "host b: its agent") {
				t.Errorf("the start ended for %q, want host b's agent", *why)
			}
			if want := "host b is set aside; what is left: 4 slots (a:2,c:2), set aside: b"; len(warned) != 1 || warned[0] != want {
				t.Errorf("warned of %q, want %q", warned, want)
			}
		})
	}
}

// A rank's own failure uses up a restart.
func TestElasticCountsFailedRanks(t *testing.T) {
	testenv.NoLeaks(t)
	var l listing
	l.set(t, "a:2", nil)
	job := elasticJob(t, &l, 1, 2, 0)
	job.Argv, job.Restarts.Max = sh("exit 3"), 1
	r, _, _, err := runJob(t, job)
	if err != nil || r.ExitStatus != 3 || r.Restarts != 1 {
		t.Errorf("%+v, %v, want status 3 after 1 restart", r, err)
	}
}

// What a job waits for that has too few hosts, and what ends its wait.
func TestElasticWaits(t *testing.T) {
	t.Run("until there are enough", func(t *testing.T) {
		testenv.NoLeaks(t)
		var l listing
		l.set(t, "", errors.New("no answer yet"))
		job := elasticJob(t, &l, 2, 2, 0)
		var warned []string
		job.Warn = func(text string) {
			warned = append(warned, text)
			l.set(t, []string{"a:1", "a:2"}[len(warned)-1], nil)
		}
		r, stdout, _, err := runJob(t, job)
		if err != nil || r.ExitStatus != 0 || r.Restarts != 0 || !strings.Contains(stdout, "1 of 2 in 0") {
			t.Errorf("%+v, %v\n%s", r, err, stdout)
		}
		if got, want := strings.Join(warned, "\n"), "waiting for hosts: the list of hosts: no answer yet\nwaiting for hosts: found 1 slots (a:1), expected 2 or more"; got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	})
	for _, c := range []struct {
		name, hosts, want string
		err               error
	}{
		{"too few", "a:1", "too few hosts for 1ns: found 1 slots (a:1), expected 2 or more", nil},
		{"no list", "", "too few hosts for 1ns: the list of hosts: broken", errors.New("broken")},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			var l listing
			l.set(t, c.hosts, c.err)
			job := elasticJob(t, &l, 2, 2, 0)
			job.Elastic.Timeout = 1
			r, _, _, err := runJob(t, job)
			if err != nil || r.ExitStatus != 1 || r.Cause == nil || r.Cause.Message != c.want {
				t.Errorf("%+v, %v, want %q", r, err, c.want)
			}
		})
	}
	t.Run("a signal", func(t *testing.T) {
		testenv.NoLeaks(t)
		asked, over := make(chan struct{}), make(chan struct{})
		job := elasticJob(t, new(listing), 2, 2, 0)
		job.Elastic.Discover = func(ctx context.Context) ([]Host, error) {
			close(asked)
			<-ctx.Done()
			close(over)
			return nil, ctx.Err()
		}
		h, err := Start(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		<-asked
		if err := h.Signal(unix.SIGINT); err != nil {
			t.Error(err)
		}
		r, err := h.Wait()
		if err != nil || r.ExitStatus != 130 {
			t.Errorf("%+v, %v, want status 130", r, err)
		}
		select {
		case <-over:
		default:
			t.Error("Discover still runs")
		}
	})
}

func TestElasticRefusals(t *testing.T) {
	list := func(context.Context) ([]Host, error) { return nil, nil }
	for _, c := range []struct {
		job   Job
		field string
	}{
		{Job{Elastic: &Elastic{Min: 0, Max: 2, Discover: list}}, "Elastic"},
		{Job{Elastic: &Elastic{Min: 3, Max: 2, Discover: list}}, "Elastic"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2}}, "Elastic"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list, Timeout: -1}}, "Elastic.Timeout"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list}, Hosts: []Host{{Name: "a"}}}, "Elastic.Discover"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list, Timeout: 1}, Continuous: true}, "Elastic"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list}, NP: 2}, "NP"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list}, Placing: Placing{RankFile: "rank 0=a"}}, "Placing.RankFile"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list}, Apps: []App{{Argv: sh("true")}, {Argv: sh("true")}}}, "Elastic"},
		{Job{Elastic: &Elastic{Min: 1, Max: 2, Discover: list}, Apps: []App{{Argv: sh("true"), NP: 1}}}, "NP"},
	} {
		if c.job.Apps == nil {
			c.job.Argv = sh("true")
		}
		_, err := Run(t.Context(), c.job)
		refused, is := errors.AsType[*JobError](err)
		if !is || refused.Field != c.field {
			t.Errorf("%+v: %v, want an error of %s", c.job.Elastic, err, c.field)
		}
	}
}
