package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/topo"
)

// spawner is a rank 0 that spawns, as one of "np" ranks: the steps of rolePMI
// after "spawn=..." are those of the parents.
func spawner(t testing.TB, steps ...string) []string {
	return roleArgv(t, "pmi", append([]string{"init"}, steps...)...)
}

// spawn is a step of rolePMI: rank 0 spawns N ranks of this binary.
func spawn(n int, steps ...string) []string {
	return []string{"@0", fmt.Sprintf("spawn=%d|self|%s", n, strings.Join(steps, " "))}
}

func steps(lists ...[]string) []string { return slices.Concat(lists...) }

// Spawned ranks are bound as those are that live, where these are not.
func TestSpawnBinds(t *testing.T) {
	m := topo.Here()
	cores := m.Objects(topo.Core)
	if len(cores) < 2 {
		testenv.Unsupported(t, "needs two cores to bind to")
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			argv := spawner(t, steps([]string{"cpus=parent"}, spawn(1, "init", "cpus=child", "barrier", "finalize"), []string{"finalize"})...)
			job := Job{Argv: argv, NP: 1, Placing: Placing{Bind: "core"}}
			overAgents(t, &job, min(way.hosts, 1))
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			for _, want := range []string{fmt.Sprintln("parent", cores[0].CPUs.And(m.Allowed)), fmt.Sprintln("child", cores[1].CPUs.And(m.Allowed))} {
				if !strings.Contains(stdout, want) {
					t.Errorf("got %q, want %q", stdout, want)
				}
			}
		})
	}
}

func sorted(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return lines
}

// A spawned group is a world of its own, beside that of its parents.
func TestSpawn(t *testing.T) {
	for _, way := range ways {
		for _, np := range []int{1, 2, 3, 4} {
			t.Run(fmt.Sprint(way.name, " np ", np), func(t *testing.T) {
				testenv.NoLeaks(t)
				argv := spawner(t, steps(spawn(3, "init", "get=PARENT", "cards=100", "barrier", "env=PMI_SPAWNED", "size", "finalize"),
					[]string{"barrier", "size", "finalize"})...)
				job := Job{Argv: argv, NP: np, Output: Output{Prefix: TagPrefix}}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				want := []string{}
				for rank := range np {
					want = append(want, fmt.Sprintf("[1,%d]<stdout>:%d/%d", rank, rank, np))
				}
				for rank := range 3 {
					want = append(want, fmt.Sprintf("[2,%d]<stdout>:%d/3", rank, rank),
						fmt.Sprintf("[2,%d]<stdout>:%d: PARENT=a port$", rank, rank),
						fmt.Sprintf("[2,%d]<stdout>:PMI_SPAWNED=1", rank))
				}
				want = append(want, "[1,0]<stdout>:spawned []")
				slices.Sort(want)
				if got := sorted(stdout); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
				var ends []string
				for _, e := range r.Ranks {
					ends = append(ends, fmt.Sprintf("%d.%d", e.Group, e.Rank))
					if e.Status != 0 || e.PID == 0 || e.Host == "" {
						t.Errorf("end %+v", e)
					}
				}
				var all []string
				for rank := range np {
					all = append(all, fmt.Sprintf("0.%d", rank))
				}
				if all = append(all, "1.0", "1.1", "1.2"); !slices.Equal(ends, all) {
					t.Errorf("ends of %q, want %q", ends, all)
				}
			})
		}
	}
}

// A host that cannot be reached ends a spawn, and the logins to its other hosts, and the job goes on.
func TestSpawnOnAHostThatCannotBeReached(t *testing.T) {
	testenv.NoLeaks(t)
	hangs := filepath.Join(t.TempDir(), "hangs")
	job := Job{Argv: spawner(t, "@0", "spawn=2|self|finalize", "say=goes on", "finalize"), NP: 1}
	overShells(t, &job, 3, `case $1 in
		far1) while [ ! -e `+hangs+` ]; do ls / >/dev/null; done; echo no way >&2; exit 255;;
		far2) : >`+hangs+`; exec sleep 1000;;
	esac
	`+play)
	r, stdout, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 || r.Cause != nil || !strings.Contains(stdout, "no_way") || !strings.Contains(stdout, "goes on") {
		t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
	}
}

// What a spawn cannot start is told to the rank that wants it, and the job goes on.
func TestSpawnRefused(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ spawn, want string }{
		"no such program":     {"2|./missing|", ":_no_such_program"},
		"not in PATH":         {"2|no-such-program|", "directories_of_PATH,_nor_in_the_working_directory"},
		"no interpreter":      {"3|" + text + "|", "its_interpreter"},
		"not executable":      {"1|/etc/passwd|", "not_executable"},
		"no directory":        {"1|self|finalize|wdir=/no/such/dir", "/no/such/dir"},
		"not on its path":     {"1|sh||path=/usr", ":_no_such_program_in_/usr"},
		"host not of the job": {"1|self|finalize|host=elsewhere", "elsewhere:_it_is_not_among"},
		"soft without number": {"2|self|finalize|soft=3:9", "soft=3:9"},
		"soft nonsense":       {"2|self|finalize|soft=x", "soft=x"},
		"another machine":     {"1|self|finalize|arch=vax", "arch=vax"},
		"too many":            {"1000000|self|finalize", "1000000_processes"},
	} {
		for _, way := range waysOf(name) {
			t.Run(way.name+" "+name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := Job{Argv: spawner(t, "@0", "spawn="+c.spawn, "barrier", "say=goes on", "finalize"), NP: 2}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "goes on") != 2 {
					t.Fatalf("got %+v, %v, %q, %q", r, err, stdout, stderr)
				}
				if !strings.Contains(stdout, "not spawned: ") || !strings.Contains(stdout, c.want) {
					t.Errorf("told %q, want %q", stdout, c.want)
				}
			})
		}
	}
}

// Whatever happens to a spawned rank happens to the job.
func TestSpawnedRankFails(t *testing.T) {
	for name, c := range map[string]struct {
		steps  []string
		status int
		text   string
	}{
		"abort":          {[]string{"init", "barrier", "@1", "abort=9"}, 9, "rank 1 of spawn 1 (host "},
		"exit":           {[]string{"init", "barrier", "@1", "exit=3"}, 3, "exited with status 3"},
		"signal":         {[]string{"init", "barrier", "@1", "kill=9"}, 137, "killed by signal 9"},
		"never joins":    {[]string{"@1", "exit=5"}, 5, "rank 1 of spawn 1 (host "},
		"no finalize":    {[]string{"init", "barrier", "@1", "exit=0"}, 1, "without MPI_Finalize"},
		"breaks the PMI": {[]string{"init", "barrier", "@1", "raw=cmd=nonsense", "sleep=20000"}, 1, "pmi: unknown command: cmd=nonsense"},
	} {
		for _, way := range waysOf(name) {
			t.Run(way.name+" "+name, func(t *testing.T) {
				testenv.NoLeaks(t)
				// The others wait for what will not come.
				job := Job{Argv: spawner(t, steps(spawn(3, append(c.steps, "sleep=20000")...), []string{"sleep=20000"})...), NP: 2,
					Grace: 100 * time.Millisecond} // five times that after an end without MPI_Finalize
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.Cause == nil || r.ExitStatus != c.status {
					t.Fatalf("got %+v, %v, %q, %q, want status %d", r, err, stdout, stderr, c.status)
				}
				if r.Cause.Group != 1 || r.Cause.Rank != 1 || !strings.Contains(r.Cause.String(), c.text) || !strings.Contains(r.Cause.String(), "rank 1 of spawn 1") {
					t.Errorf("cause %+v: %s, want %q", r.Cause, r.Cause, c.text)
				}
				for _, e := range r.Ranks {
					if e.Group == 0 && !e.Told {
						t.Errorf("rank %d of the parents was not told to end: %+v", e.Rank, e)
					}
				}
			})
		}
	}
}

// A parent's failure ends what it spawned; its good end does not.
func TestSpawnedGroupWhenItsParentEnds(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name+" badly", func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: spawner(t, steps(spawn(2, "init", "sleep=20000"), []string{"@0", "kill=9", "sleep=20000"})...), NP: 2}
			overAgents(t, &job, way.hosts)
			r, _, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 137 || r.Cause.Group != 0 || r.Cause.Rank != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			if n := len(r.Ranks); n != 4 {
				t.Errorf("%d ends, want 4", n)
			}
		})
		t.Run(way.name+" well", func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: spawner(t, steps(spawn(2, "init", "sleep=300", "barrier", "say=last", "finalize"), []string{"finalize"})...), NP: 1}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "last") != 2 {
				t.Fatalf("got %+v, %v, %q, %q", r, err, stdout, stderr)
			}
		})
	}
}

// Spawned ranks spawn, and a name that one group publishes others find.
func TestSpawnedRanksSpawn(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			grandchild := "init lookup=svc finalize"
			child := []string{"init", "@0", "spawn=2~self~" + strings.ReplaceAll(grandchild, " ", "+"), "lookup=svc", "barrier", "finalize"}
			job := Job{Argv: spawner(t, steps([]string{"@0", "publish=svc=tag#0$host", "barrier"}, spawn(2, child...),
				[]string{"@0", "publish=svc=again", "lookup=none", "barrier", "finalize"})...), NP: 2}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q, %q", r, err, stdout, stderr)
			}
			if n := strings.Count(stdout, "svc is tag#0$host"); n != 4 {
				t.Errorf("%d ranks have found the service, want 4: %q", n, stdout)
			}
			for _, text := range []string{"again: not published: ", "key_already_present", "none is not there"} {
				if !strings.Contains(stdout, text) {
					t.Errorf("no %q in %q", text, stdout)
				}
			}
			if len(r.Ranks) != 6 || r.Ranks[5].Group != 2 {
				t.Errorf("ends %+v", r.Ranks)
			}
		})
	}
}

// The hints of MPI that mean something here.
func TestSpawnInfo(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "spawned-tool")
	if err := os.WriteFile(tool, []byte("#!/bin/sh\necho $PMI_RANK/$PMI_SIZE on $GORUN_HOST in $(pwd) with $EXTRA\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, way := range ways {
		for name, c := range map[string]struct{ spawn, want string }{
			"wdir":          {"1|" + tool + "||wdir=/tmp", "0/1 on HOST in /tmp with"},
			"relative wdir": {"1|" + tool + "||wdir=../tmp", "0/1 on HOST in /tmp with"},
			"path":          {"1|spawned-tool||path=/nowhere:" + dir, "0/1 on HOST in /usr with"},
			"env":           {"1|" + tool + "||env=EXTRA=more", "0/1 on HOST in /usr with more"},
			"soft":          {"5|" + tool + "||soft=1:2", "1/2 on HOST in /usr with|spawned [0 0 1 1 1]"},
			"soft all":      {"2|" + tool + "||soft=0:8:2", "1/2 on HOST in /usr with|spawned []"},
			"arch, unknown": {"1|" + tool + "||arch=" + machine() + "|color=blue", "0/1 on HOST in /usr with"},
		} {
			t.Run(way.name+" "+name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := Job{Argv: spawner(t, "@0", "spawn="+c.spawn, "finalize"), NP: 1, Dir: "/usr"}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q, %q", r, err, stdout, stderr)
				}
				for _, e := range r.Ranks {
					stdout = strings.ReplaceAll(stdout, " on "+e.Host+" ", " on HOST ")
				}
				for _, want := range strings.Split(c.want, "|") {
					if !strings.Contains(stdout, want) {
						t.Errorf("got %q, want %q", stdout, want)
					}
				}
			})
		}
	}
}

// Free slots come first, on hosts that no rank runs on yet too; then one each in
// turn.
func TestSpawnPlacement(t *testing.T) {
	for name, c := range map[string]struct{ spawn, want string }{
		"free slots":     {"3|sh|-c,echo $PMI_RANK@$GORUN_HOST", "0@a 1@b 2@c"},
		"more than free": {"6|sh|-c,echo $PMI_RANK@$GORUN_HOST", "0@a 1@b 2@c 3@a 4@b 5@c"},
		"named":          {"2|sh|-c,echo $PMI_RANK@$GORUN_HOST|host=c", "0@c 1@c"},
		"named in order": {"3|sh|-c,echo $PMI_RANK@$GORUN_HOST|host=c,b", "0@c 1@b 2@c"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: spawner(t, "@0", "spawn="+c.spawn, "universe", "finalize"), NP: 1,
				Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Hosts: []Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 1}, {Name: "c", Slots: 1}}}
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || !strings.Contains(stdout, "universe 4\n") {
				t.Fatalf("got %+v, %v, %q, %q", r, err, stdout, stderr)
			}
			var got []string
			for _, line := range sorted(stdout) {
				if strings.Contains(line, "@") {
					got = append(got, line)
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// What ends a job from outside ends all its groups.
func TestJobEndsWithSpawned(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name+" timeout", func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: spawner(t, steps(spawn(2, "init", "sleep=1000000"), []string{"sleep=1000000"})...), NP: 1, Timeout: time.Second}
			overAgents(t, &job, way.hosts)
			// On a busy machine the spawned ranks may not be there in time to be ended.
			for ; ; job.Timeout *= 2 {
				r, _, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 124 || len(r.Ranks) > 3 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				if len(r.Ranks) == 3 {
					return
				}
			}
		})
		t.Run(way.name+" signal", func(t *testing.T) {
			testenv.NoLeaks(t)
			signals := make(chan os.Signal, 1)
			var out buffer
			ready := out.await("ready")
			job := Job{Argv: spawner(t, steps(spawn(1, "init", "say=ready", "sleep=20000"), []string{"finalize"})...), NP: 1, Signals: signals, Stdout: &out}
			overAgents(t, &job, way.hosts)
			go func() {
				<-ready
				signals <- syscall.SIGINT
			}()
			r, _, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 130 {
				t.Errorf("got %+v, %v, %q", r, err, stderr)
			}
		})
	}
}

// Many spawns leave nothing behind while the job runs.
func TestManySpawns(t *testing.T) {
	testenv.NoLeaks(t)
	var list []string
	for range 40 {
		list = append(list, "spawn=2|true|")
	}
	r, stdout, stderr, err := runJob(t, Job{Argv: spawner(t, append(list, "launcher-fds=64", "finalize")...), NP: 1})
	if err != nil || r.ExitStatus != 0 || len(r.Ranks) != 81 {
		t.Fatalf("got %d ends, %v, %q, %q", len(r.Ranks), err, stdout, stderr)
	}
}

func TestSpawnInfoSoft(t *testing.T) {
	for _, c := range []struct {
		value string
		most  int
		want  int // 0: an error
	}{
		{"4", 4, 4}, {"4", 3, 0}, {"1:8", 5, 5}, {"2:8:2", 7, 6}, {"2:8:2", 1, 0}, {"8:2:-2", 7, 6}, {"9:2:-2", 6, 5}, {"9:2:-2", 2, 0},
		{"1:2,5:9", 7, 7}, {"5:9,1:2", 4, 2}, {"-3:0", 4, 0}, {"-3:2", 4, 2}, {"0", 4, 0}, {"", 4, 0}, {"a", 4, 0}, {"1:2:3:4", 4, 0},
		{"1:9:0", 4, 0}, {"9:1", 4, 0}, {"1:9:-1", 4, 0}, {"1:2147483647:1", 3, 3}, {"99999999999", 3, 0}, {" 1 : 3 ", 2, 2},
	} {
		got, err := soft(c.value, c.most)
		if got != c.want && !(c.want == 0 && err != nil) || (err == nil) != (c.want > 0) {
			t.Errorf("soft(%q, %d): got %d, %v, want %d", c.value, c.most, got, err, c.want)
		}
		// Slowly and obviously.
		if err == nil {
			best := 0
			for part := range strings.SplitSeq(c.value, ",") {
				first, last, step := 0, 0, 1
				switch n, _ := fmt.Sscanf(strings.ReplaceAll(part, " ", ""), "%d:%d:%d", &first, &last, &step); n {
				case 1:
					last = first
				}
				for i := first; step > 0 && i <= min(last, c.most) || step < 0 && i >= last; i += step {
					if i <= c.most {
						best = max(best, i)
					}
				}
			}
			if best != got {
				t.Errorf("soft(%q, %d): got %d, counted %d", c.value, c.most, got, best)
			}
		}
	}
}
