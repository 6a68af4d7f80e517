package launcher

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
	"golang.org/x/sys/unix"
)

// sayPlace is a rank that says where it is: its rank, host and place there, the
// CPUs it may use, and those it shares with how many ranks.
var sayPlace = sh(`echo "$PMI_RANK $GORUN_HOST $GORUN_LOCAL_RANK/$GORUN_LOCAL_SIZE $(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status) $GORUN_CPUS/$GORUN_CPU_RANKS ${OMPI_MCA_mpi_yield_when_idle-calm}"`)

func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	sort.Strings(lines)
	return lines
}

// twoCPUs are two CPUs that this process may use, in different cores if it can.
func twoCPUs(t *testing.T) (first, second int) {
	t.Helper()
	m := topo.Here()
	var own []int
	for _, c := range m.Objects(topo.Core) {
		if s := c.CPUs.And(m.Allowed); s.Len() > 0 {
			own = append(own, s.First())
		}
	}
	if len(own) < 2 {
		own = m.Allowed.List()
	}
	if len(own) < 2 {
		testenv.Unsupported(t, "binding to different CPUs needs two")
	}
	return own[0], own[1]
}

func TestRanksAreBound(t *testing.T) {
	first, second := twoCPUs(t)
	all := topo.Here().Allowed.String()
	usable := topo.CPUs()
	for _, way := range ways {
		hostOf := func(rank int) (string, int, int) { // host, local rank, local size
			if way.hosts == 0 {
				return reach.This().Name, rank, 2
			}
			return string(rune('a' + rank)), 0, 1
		}
		for _, c := range []struct {
			name string
			job  Job
			cpus [2]string
			of   string // CPUs and how many ranks share them
		}{
			{"nothing said", Job{}, [2]string{all, all}, fmt.Sprintf("%d/LOCAL", usable)},
			{"to one CPU each", Job{Placing: Placing{Bind: fmt.Sprintf("user:%d,%d", first, second)}}, [2]string{fmt.Sprint(first), fmt.Sprint(second)}, "1/1"},
			{"to the machine", Job{Placing: Placing{Bind: "machine"}}, [2]string{all, all}, fmt.Sprintf("%d/LOCAL", usable)},
		} {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := c.job
				job.Argv, job.NP = sayPlace, 2
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v, %q", r, err, stderr)
				}
				var want []string
				for rank := range 2 {
					host, local, size := hostOf(rank)
					cpus := c.cpus[rank]
					if local != rank && c.of == "1/1" {
						cpus = c.cpus[local]
					}
					of := strings.ReplaceAll(c.of, "LOCAL", fmt.Sprint(size))
					calm := "calm"
					var n, ranks int
					if _, err := fmt.Sscanf(of, "%d/%d", &n, &ranks); err != nil {
						t.Fatal(err)
					}
					if ranks > n {
						calm = "1"
					}
					want = append(want, fmt.Sprintf("%d %s %d/%d %s %s %s", rank, host, local, size, cpus, of, calm))
				}
				if got := sortedLines(stdout); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
	// The launcher's own threads are as they were.
	if now := topo.Here().Allowed.String(); now != all {
		t.Errorf("this process may use CPUs %s afterwards, before %s", now, all)
	}
}

// Many ranks are forked by two threads, each of which is bound as its ranks are.
func TestManyRanksAreBound(t *testing.T) {
	testenv.NoLeaks(t)
	first, second := twoCPUs(t)
	job := Job{Argv: sayPlace, NP: 24, Placing: Placing{Bind: fmt.Sprintf("user:%d,%d", first, second)}}
	r, stdout, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 {
		t.Fatalf("got %+v, %v, %q", r, err, stderr)
	}
	for _, line := range sortedLines(stdout) {
		var rank, cpu int
		var host, local, share, calm string
		if _, err := fmt.Sscan(line, &rank, &host, &local, &cpu, &share, &calm); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if want := []int{first, second}[rank%2]; cpu != want || share != "1/12" || calm != "1" {
			t.Errorf("rank %d: got CPU %d, shares %s, %s; want CPU %d, 1/12, 1", rank, cpu, share, calm, want)
		}
	}
}

// A Go rank that has little of a CPU has one processor, unless the user has said how many.
func TestCrowdedRanksHaveOneProcessor(t *testing.T) {
	testenv.NoLeaks(t)
	many := 8*topo.CPUs() + 1
	for _, c := range []struct {
		np        int
		set, want string
	}{{many, "", "1"}, {many, "GOMAXPROCS=3", "3"}, {topo.CPUs(), "", "unset"}} {
		job := Job{Argv: sh("echo ${GOMAXPROCS-unset}"), NP: c.np, Env: slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, "GOMAXPROCS=") })}
		if c.set != "" {
			job.Env = append(job.Env, c.set)
		}
		if r, stdout, _, err := runJob(t, job); err != nil || r.ExitStatus != 0 || stdout != strings.Repeat(c.want+"\n", c.np) {
			t.Errorf("%d ranks on %d CPUs, %q: got %+v, %v, %q, want %q of each", c.np, topo.CPUs(), c.set, r, err, stdout, c.want)
		}
	}
}

// What the user said of how Open MPI waits stays.
func TestOversubscribedRanksKeepTheUsersSettings(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{Argv: sh("echo $OMPI_MCA_mpi_yield_when_idle/$OMPI_MCA_mpi_oversubscribe"), NP: topo.CPUs() + 1,
		Env: append(os.Environ(), "OMPI_MCA_mpi_yield_when_idle=0")}
	r, stdout, _, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 || stdout != strings.Repeat("0/\n", job.NP) {
		t.Errorf("got %+v, %v, %q", r, err, stdout)
	}
}

// Where groups on one host have servers of their own, ranks and those that they spawn have one setting of Open MPI's levels.
func TestOpenMPIMakesNoLevelsOnOneHost(t *testing.T) {
	const name = "OMPI_MCA_coll_han_priority"
	for _, c := range []struct {
		hosts, np int
		set, want string
	}{
		{0, 1, "A=b", ""},
		{2, 1, "A=b", "-1"},
		{2, 2, "A=b", ""},
		{2, 1, name + "=35", "35"},
		{2, 1, "OMPI_MCA_coll=^sm", ""},
	} {
		t.Run(fmt.Sprintf("%d hosts, %d ranks, %s", c.hosts, c.np, c.set), func(t *testing.T) {
			testenv.NoLeaks(t)
			argv := spawner(t, steps(spawn(2, "init", "env="+name, "barrier", "finalize"), []string{"env=" + name, "finalize"})...)
			job := Job{Argv: argv, NP: c.np, Env: append(os.Environ(), c.set)}
			overAgents(t, &job, c.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || strings.Count(stdout, name+"="+c.want+"\n") != c.np+2 {
				t.Errorf("got %+v, %v, %q, %q, want %d times %q", r, err, stdout, stderr, c.np+2, c.want)
			}
		})
	}
}

func TestPlacementByMapAndRank(t *testing.T) {
	for _, c := range []struct {
		name string
		job  Job
		want string // hosts by rank
	}{
		{"all slots", Job{Hosts: []Host{{Name: "a", Slots: 2}, {Name: "b"}}}, "a a b"},
		{"by node", Job{NP: 4, Placing: Placing{Map: "node"}, Hosts: []Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}}, "a b a b"},
		{"beyond the slots", Job{NP: 4, Hosts: []Host{{Name: "a"}, {Name: "b"}}}, "a a b b"},
		{"per host", Job{Placing: Placing{PerHost: 2}, Hosts: []Host{{Name: "a"}, {Name: "b"}}}, "a a b b"},
		{"ranks of packages", Job{Placing: Placing{Map: "ppr:1:package", CPUs: "0"}, Hosts: []Host{{Name: "a"}, {Name: "b"}}}, "a b"},
		{"a rankfile", Job{Placing: Placing{RankFile: "rank 0=b\nrank 1=a slot=*\nrank 2=b\n"}, Hosts: []Host{{Name: "a"}, {Name: "b"}}}, "b a b"},
		{"a slot for each CPU", Job{Hosts: []Host{{Name: "a", Slots: -1}}, Placing: Placing{CPUs: "0"}}, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := c.job
			job.Argv, job.Agents.Launcher, job.Agents.Command = sayPlace, "fork", roleArgv(t, "agent")
			if topo.Here().Allowed.Has(0) == false && job.Placing.CPUs != "" {
				testenv.Unsupported(t, "the test needs CPU 0")
			}
			var told Placement
			job.Placing.Placed = func(p Placement) { told = p }
			// What is said, what runs, and what a dry run says are the same.
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			var ran, said []string
			for _, line := range sortedLines(stdout) {
				ran = append(ran, strings.Fields(line)[1])
			}
			for _, rank := range told.Ranks {
				said = append(said, told.Hosts[rank.Host].Name)
			}
			if strings.Join(ran, " ") != c.want || strings.Join(said, " ") != c.want {
				t.Errorf("ran on %v, told %v, want %s", ran, said, c.want)
			}
			text := told.Map()
			job.Placing.DryRun = true
			if r, stdout, _, err := runJob(t, job); err != nil || r.ExitStatus != 0 || r.Ranks != nil || stdout != "" || told.Map() != text {
				t.Errorf("dry run: got %+v, %v, %q, map %q, want %q", r, err, stdout, told.Map(), text)
			}
		})
	}
}

// PMI works however ranks are spread: each rank's messages go to its own host.
// A job may have more ranks than a host.
func TestManyRanksOnManyHosts(t *testing.T) {
	job := Job{NP: 640_000, Argv: sh("true"), Agents: Agents{Launcher: "fork", Command: []string{"agent"}}, Placing: Placing{DryRun: true}}
	for i := range 10_000 {
		job.Hosts = append(job.Hosts, Host{Name: fmt.Sprintf("n%05d", i), Slots: 64})
	}
	job.Placing.Placed = func(p Placement) {
		if last := p.Ranks[len(p.Ranks)-1]; len(p.Ranks) != job.NP || last.Host != 9999 || last.Local != 63 {
			t.Errorf("got %d ranks, the last one number %d of host %d; want %d, number 63 of host 9999", len(p.Ranks), last.Local, last.Host, job.NP)
		}
	}
	if r, err := Run(t.Context(), job); err != nil || r.ExitStatus != 0 {
		t.Errorf("got %+v, %v, want a placement", r, err)
	}
	for np, want := range map[int]string{1<<16 + 1: "65536 or fewer on a host", 1<<20 + 1: "1048576 ranks or fewer"} {
		_, err := Run(t.Context(), Job{NP: np, Argv: sh("true"), Placing: Placing{DryRun: true}})
		if bad, ok := errors.AsType[*JobError](err); !ok || bad.Field != "NP" || !strings.Contains(err.Error(), want) {
			t.Errorf("%d ranks on this machine: got %v, want %q of NP", np, err, want)
		}
	}
}

// A job with more agents than there may be open files is refused at the start.
func TestTooManyAgentsForTheLimitOfFiles(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur != limit.Max {
		t.Errorf("the soft limit is %d, want the hard one, %d", limit.Cur, limit.Max)
	}
	if limit.Cur > 1<<30 {
		testenv.Unsupported(t, "there is no limit of open files to speak of")
	}
	job := Job{run: jobRun{gate: agent.NewGate(32)}}
	hosts := slices.Repeat([]string{"far"}, int(limit.Cur)/filesOfAgent)
	if err := job.roomForFiles(hosts[:len(hosts)/2]); err != nil {
		t.Errorf("%d hosts: %v", len(hosts)/2, err)
	}
	err := job.roomForFiles(hosts)
	if want := fmt.Sprintf("found a limit of %d open files (RLIMIT_NOFILE; ulimit -Hn shows it)", limit.Cur); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%d hosts: got %v, want %q", len(hosts), err, want)
	}
}

func TestRanksMeetWhenSpreadOverHosts(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{Argv: append(roleArgv(t, "pmi"), "init", "barrier", "cards=100", "barrier", "finalize"), NP: 6, Placing: Placing{Map: "node"},
		Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Hosts: []Host{{Name: "a", Slots: 3}, {Name: "b", Slots: 3}}}
	if r, _, stderr, err := runJob(t, job); err != nil || r.ExitStatus != 0 {
		t.Fatalf("got %+v, %v, %q", r, err, stderr)
	}
}

func TestPlacedNamesOversubscribedHosts(t *testing.T) {
	hosts := []Host{{Name: "localhost", Slots: 2}}
	for _, c := range []struct {
		job  Job
		want string
	}{
		{Job{NP: 2, Hosts: hosts}, "[]"},
		{Job{NP: 3, Hosts: hosts}, "[" + reach.This().Name + " (3 ranks, 2 slots)]"},
		{Job{NP: 3, Hosts: hosts, Placing: Placing{Map: ":oversubscribe"}}, "[]"},
		{Job{NP: 100}, "[]"},
	} {
		got := ""
		c.job.Argv, c.job.Placing.DryRun = sh("true"), true
		c.job.Placing.Placed = func(p Placement) { got = fmt.Sprint(p.Oversubscribed) }
		if _, err := Run(testenv.Deadline(t, 0), c.job); err != nil || got != c.want {
			t.Errorf("%d ranks, hosts %v, map %q: got %s, %v, want %s", c.job.NP, c.job.Hosts, c.job.Placing.Map, got, err, c.want)
		}
	}
}

// An agent that is no agent, or does not answer, ends the job while its machine
// is asked for.
func TestStartFailsWhenAgentsSendNoAddress(t *testing.T) {
	greets := "printf '\\0gorun-agent " + version.Number + " 7 7\\n'; "
	for _, c := range []struct{ name, script, want string }{
		{"ends", "exit 4", "exited with status 4"},
		{"says something else", "echo Welcome to a", "Welcome to a"},
		{"talks nonsense", greets + "printf '\\377\\377\\377\\377'; cat", "no stream of an agent"},
		{"answers something else", greets + "printf '\\0\\0\\0\\001\\200'; cat", "does not say what machine"},
		{"is of another version", "printf '\\0gorun-agent 0.0.9 1 7\\n'; cat", "found an agent of gorun 0.0.9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 2, Argv: sh("true"), Agents: Agents{Launcher: "fork", Command: sh(c.script)}, Placing: Placing{Bind: "core"}, Hosts: []Host{{Name: "a"}, {Name: "b"}}}
			r, _, _, err := runJob(t, job)
			if err != nil || r.Cause == nil || r.ExitStatus != 1 || !strings.Contains(r.Cause.String(), c.want) {
				t.Errorf("got %+v, cause %v, %v, want %q", r, r.Cause, err, c.want)
			}
		})
	}
}

func TestSignalEndsAStartWithSilentAgents(t *testing.T) {
	testenv.NoLeaks(t)
	signals := make(chan os.Signal, 1)
	signals <- os.Interrupt
	job := Job{NP: 2, Argv: sh("true"), Agents: Agents{Launcher: "fork", Command: []string{"sleep", "100"}}, Placing: Placing{Bind: "core"}, Hosts: []Host{{Name: "a"}, {Name: "b"}}, Signals: signals}
	r, _, _, err := runJob(t, job)
	if err != nil || r.ExitStatus != 130 || r.Cause == nil {
		t.Errorf("got %+v, %v", r, err)
	}
}

// In a container srun may be missing.
func TestMissingSrunNamesTheOption(t *testing.T) {
	job := Job{Agents: Agents{Launcher: slurm.Launcher, Command: []string{"/agent"}}}
	err := job.noAgent("far", &exec.Error{Name: "srun", Err: exec.ErrNotFound})
	if err.Field != "Agents.Launcher" || !strings.Contains(err.Error(), "; try --launcher ssh, or -H localhost:N") {
		t.Errorf("%s: %v", err.Field, err)
	}
}

// What the user says of ssh wins, for it comes first; hosts and users are no options.
func TestRemoteShell(t *testing.T) {
	job := Job{Agents: Agents{Command: []string{"/a b/agent"}}, Hosts: []Host{{Name: "far.away", User: "me"}}}
	if err := job.findLauncher(); err != nil || job.Agents.Launcher != "ssh" {
		t.Fatalf("launcher %q, %v", job.Agents.Launcher, err)
	}
	job.Agents.ShellArgs = []string{"-o", "ConnectTimeout=60"}
	argv := job.agentOf("far.away")
	if got := strings.Join(argv[:5], " "); got != "ssh -o ConnectTimeout=60 -x -T" {
		t.Errorf("begins %q", got)
	}
	if got := argv[len(argv)-2:]; got[0] != "me@far.away" || got[1] != "exec '/a b/agent'" {
		t.Errorf("ends %q", got)
	}
	job.Agents.Shell = []string{"rsh", "-4"}
	if got := strings.Join(job.agentOf("far.away"), " "); got != "rsh -4 -o ConnectTimeout=60 me@far.away exec '/a b/agent'" {
		t.Errorf("another shell: %q", got)
	}
	for _, h := range []Host{{Name: "-oProxyCommand=x"}, {Name: "b", User: "-oProxyCommand=x"}} {
		if err := (&Job{Agents: Agents{Command: []string{"agent"}}, Hosts: []Host{h}}).findLauncher(); err == nil {
			t.Errorf("host %+v is not refused", h)
		}
	}
}

// What means something on this machine alone stays here, unless the user gives it to the ranks.
func TestEnvironmentOfOtherMachines(t *testing.T) {
	job := Job{run: jobRun{environ: []string{"SSH_AUTH_SOCK=here", "TMPDIR=/tmp/x", "PATH=/bin"}}}
	for setting, stays := range map[string]bool{"SSH_AUTH_SOCK=here": true, "TMPDIR=/tmp/x": true, "TMPDIR=/scratch": false, "PATH=/bin": false} {
		if got := job.local(setting); got != stays {
			t.Errorf("%s: stays %v, want %v", setting, got, stays)
		}
	}
}
