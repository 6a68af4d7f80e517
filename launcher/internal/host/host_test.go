package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestScrub(t *testing.T) {
	in := []string{"A=1", "PMI_RANK=3", "B=x=y", "A=2", "GORUN_JOB=j", "GORUN_MINE=1", "OMPI_MCA_btl=self", "OMPI_COMM_WORLD_SIZE=4", "PMIX_ID=1", "HYDI_CONTROL_FD=5", "=odd", "none", "", "EMPTY="}
	want := []string{"A=2", "B=x=y", "GORUN_MINE=1", "OMPI_MCA_btl=self", "EMPTY="}
	if got := Scrub(in); !reflect.DeepEqual(got, want) {
		t.Errorf("Scrub(%q): got %q, want %q", in, got, want)
	}
	if got := Scrub([]string{"PYTHONPATH=/dev/shm/gorun-job-1-0/python", "LD_PRELOAD=/g/profile/libgorun-profile.so"}); len(got) > 0 {
		t.Errorf("got %q", got)
	}
}

// In a rank of another launcher its settings are not the user's; elsewhere they are.
func TestScrubTakesOutWhatOthersHadSet(t *testing.T) {
	for _, c := range []struct{ mark, theirs, users string }{
		{"OMPI_COMM_WORLD_RANK=0", // 4.1
			"OMPI_MCA_ess=^singleton OMPI_MCA_mpi_oversubscribe=0 OMPI_MCA_orte_tmpdir_base=/tmp", "OMPI_MCA_btl=self MPIR_CVAR_CH3_INTERFACE_HOSTNAME=h"},
		{"OMPI_COMM_WORLD_RANK=0", // 5.0 and 6.0
			"OMPI_MCA_PREFIXES=mca OMPI_MCA_cpu_type=x86_64 OMPI_MCA_initial_wdir=/ OMPI_MCA_num_procs=2 OMPI_MCA_num_restarts=0 OMPI_MCA_mca_base_component_path=/p " +
				"OMPI_LIBDIR_LOC=/l OMPI_TOOL_NAME=mpirun OMPI_VERSION=6.0.0rc2 OMPI_WORLD_SIZE=2 OMPI_WORLD_LOCAL_SIZE=2 OPAL_USER_PARAMS_GIVEN=1 " +
				"PRTE_LAUNCHED=1 PRTE_SHARED_FS=FALSE PMIX_MCA_mca_base_component_path=/p", "OMPI_MCA_btl=self PMIX_MCA_gds=hash PRTE_MCA_rmaps_default_mapping_policy=core"},
		{"HYDI_CONTROL_FD=7", "MPIR_CVAR_CH3_INTERFACE_HOSTNAME=h", "OMPI_VERSION=6 MPIR_CVAR_PMI_VERSION=2"},
	} {
		theirs, users := strings.Fields(c.theirs), strings.Fields(c.users)
		in := slices.Concat(theirs, users)
		if got := Scrub(append(in, c.mark)); !reflect.DeepEqual(got, users) {
			t.Errorf("beside %s: got %q, want %q", c.mark, got, users)
		}
		if got := Scrub(in); !reflect.DeepEqual(got, in) {
			t.Errorf("in no rank: got %q, want %q", got, in)
		}
	}
	in := []string{"OMPI_COMMAND=x", "PMIX_SERVER_URI61=u", "PMIX_PARAM_FILE_PASSED=1", "OMPI_MCA_orte_local_daemon_uri=u", "PMI_HOSTNAME=h"} // nobody else's
	if got := Scrub(in); len(got) > 0 {
		t.Errorf("what only launchers set: got %q, want none", got)
	}
}

func TestScrubTakesOutWhatGorunHadSet(t *testing.T) {
	// RANK and MASTER_PORT are still the outer gorun's; WORLD_SIZE has been set by the rank since.
	in := []string{"RANK=3", "WORLD_SIZE=9", "MASTER_PORT=77", "LOCAL_RANK=1", "PMIX_MCA_gds=hash", "MPIR_CVAR_PMI_VERSION=1", "GORUN_SET=MPIR_CVAR_PMI_VERSION=1 RANK=3 WORLD_SIZE=4 MASTER_PORT=77", "PYTHONPATH=/dev/shm/gorun-job-1-0/python:/a:/b", "LD_PRELOAD=/g/profile/libgorun-profile.so:/a.so /b.so"}
	want := []string{"WORLD_SIZE=9", "LOCAL_RANK=1", "PMIX_MCA_gds=hash", "PYTHONPATH=/a:/b", "LD_PRELOAD=/a.so:/b.so"}
	if got := Scrub(in); !reflect.DeepEqual(got, want) {
		t.Errorf("Scrub(%q): got %q, want %q", in, got, want)
	}
}

// A program in another root is sent to no directory that it does not see.
func TestOtherRoot(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join("/dev/shm", "gorun-job-x-0")
	if err := os.MkdirAll(filepath.Join(root, "with", dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]bool{
		"./chroot.sh /r":                        false,
		"chroot " + root + " ./p":               true,
		"chroot --userspec=1 " + root + "/with": false,
		"/usr/sbin/chroot " + root:              true,
		"env A=1 chroot " + root:                true,
		"unshare -rm ./p":                       false,
		"unshare -r --root=/r ./p":              true,
		"podman run image ./p":                  true,
		"podman run -v /dev/shm:/dev/shm image": false,
		"apptainer exec image ./p":              false,
		"apptainer exec -c image ./p":           true,
	} {
		if got := otherRoot(strings.Fields(command), dir); got != want {
			t.Errorf("%s: got %v, want %v", command, got, want)
		}
	}
	spec := &Spec{NP: 1, Ranks: make([]RankSpec, 1), Apps: []AppSpec{{Argv: []string{"chroot", root}}}}
	for _, e := range newEnvironment(spec, surroundings{cpus: 1, dir: dir, files: dir, ports: []string{""}, alone: []bool{false}, cgo: []bool{false}}).of(0) {
		if name, value, _ := strings.Cut(e, "="); strings.Contains(value, dir) && name != dirVar {
			t.Errorf("it is told of %s", e)
		}
	}
}

// MPICH 5 finds PMI-1 although there is PMIx too, in ranks that gorun has started.
// A choice of the user's stays, also one made in a rank.
func TestMPICHIsToldOfPMI1(t *testing.T) {
	spec := &Spec{NP: 1, Ranks: make([]RankSpec, 1)}
	rank := func(user ...string) (set []string) {
		v := newSharedVars(spec, Scrub(user), false)
		for _, e := range append(v.append(nil, "0", "0", false), Scrub(user)...) {
			if strings.HasPrefix(e, "MPI") {
				set = append(set, e)
			}
		}
		return set
	}
	inner := "GORUN_SET=MPIR_CVAR_PMI_VERSION=1 RANK=0"
	for _, c := range []struct{ user, want []string }{
		{nil, []string{"MPIR_CVAR_PMI_VERSION=1"}},
		{[]string{"MPIR_CVAR_PMI_VERSION=2"}, []string{"MPIR_CVAR_PMI_VERSION=2"}},
		{[]string{"MPICH_PMI_VERSION=x"}, []string{"MPICH_PMI_VERSION=x"}},
		{[]string{"MPIR_PARAM_PMI_VERSION=2"}, []string{"MPIR_PARAM_PMI_VERSION=2"}},
		{[]string{"MPIR_CVAR_PMI_VERSION=1", inner}, []string{"MPIR_CVAR_PMI_VERSION=1"}},
		{[]string{"MPIR_CVAR_PMI_VERSION=2", inner}, []string{"MPIR_CVAR_PMI_VERSION=2"}},
		{[]string{"MPIR_CVAR_PMI_VERSION=1", "MPICH_PMI_VERSION=2", inner}, []string{"MPICH_PMI_VERSION=2"}},
	} {
		if got := rank(c.user...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("with %q: got %q, want %q", c.user, got, c.want)
		}
	}
}

// A job over hosts inside a job of one host makes levels of hosts. A choice of the user's stays, also one made in a rank.
func TestOpenMPIsLevelsEndWithTheirJob(t *testing.T) {
	levels := func(flat bool, user ...string) (set []string) {
		v := newSharedVars(&Spec{NP: 1, Ranks: make([]RankSpec, 1), Flat: flat}, Scrub(user), false)
		for _, e := range append(v.append(nil, "0", "0", false), Scrub(user)...) {
			if strings.HasPrefix(e, "OMPI_MCA_coll") || strings.HasPrefix(e, "GORUN_SET=") && flat {
				set = append(set, e)
			}
		}
		return set
	}
	outer := levels(true)
	for _, c := range []struct{ user, want []string }{
		{outer, nil},
		{append(outer, "OMPI_MCA_coll=^sm"), []string{"OMPI_MCA_coll=^sm"}},
		{append(outer, ompiLevels+"=35"), []string{ompiLevels + "=35"}},
	} {
		if got := levels(false, c.user...); !reflect.DeepEqual(got, c.want) {
			t.Errorf("in ranks with %q: got %q, want %q", c.user, got, c.want)
		}
	}
}

func TestSharedVarsKeepTheUsersSettings(t *testing.T) {
	spec := &Spec{NP: 6, Master: MasterSpec{Address: "127.0.0.1", Port: 4711}, Ranks: make([]RankSpec, 3)}
	for _, c := range []struct {
		user, want []string
	}{
		{nil, []string{"MPIR_CVAR_PMI_VERSION=1", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=4711", "RANK=5", "LOCAL_RANK=2",
			"GORUN_SET=MPIR_CVAR_PMI_VERSION=1 WORLD_SIZE=6 LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=4711 RANK=5 LOCAL_RANK=2"}},
		{[]string{"MASTER_ADDR=head", "RANK=", "RANKS=1"}, []string{"MPIR_CVAR_PMI_VERSION=1", "WORLD_SIZE=6", "LOCAL_WORLD_SIZE=3", "MASTER_PORT=4711", "LOCAL_RANK=2",
			"GORUN_SET=MPIR_CVAR_PMI_VERSION=1 WORLD_SIZE=6 LOCAL_WORLD_SIZE=3 MASTER_PORT=4711 LOCAL_RANK=2"}},
	} {
		m := newSharedVars(spec, c.user, false)
		if got := m.append(nil, "5", "2", false); !reflect.DeepEqual(got, c.want) {
			t.Errorf("beside %q: got %q, want %q", c.user, got, c.want)
		}
	}
}

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"here/p": 0o755, "there/p": 0o755, "plain/p": 0o644, "here/only": 0o755} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	at := func(p string) string { return filepath.Join(dir, p) }
	if err := os.Mkdir(at("shut"), 0); err != nil { // root may search it all the same
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, program, dir, path string
		want                     string
		status                   int
		search                   string // of the program, instead of PATH
	}{
		{"first in PATH", "p", "", at("here") + ":" + at("there"), at("here/p"), 0, ""},
		{"what is not executable is passed by", "p", "", at("plain") + ":" + at("there"), at("there/p"), 0, ""},
		{"nothing executable", "p", "", at("plain"), "", 126, ""},
		{"nowhere", "q", "", at("here"), "", 127, ""},
		{"in a directory that may not be searched", "p", "", at("shut"), "", 127, ""},
		{"behind a directory that may not be searched", "p", "", at("shut") + ":" + at("there"), at("there/p"), 0, ""},
		{"an empty PATH", "p", "", "", "", 127, ""},
		{"no PATH", "sh", "", "none", "/bin/sh", 0, ""},
		{"a directory of that name", "here", "", dir, "", 126, ""},
		{"an empty element is the directory", "p", at("here"), ":/nowhere", "./p", 0, ""},
		{"relative to the directory", "here/p", dir, "", "here/p", 0, ""},
		{"absolute", at("here/p"), "/", "", at("here/p"), 0, ""},
		{"a path of its own", "p", "", at("plain"), at("there/p"), 0, at("there")},
		{"nowhere in a path of its own", "p", "", at("here"), "", 127, "/nowhere"},
		{"in the directory, when not in PATH", "only", at("here"), at("there"), "./only", 0, ""},
		{"in PATH first", "p", at("here"), at("there"), at("there/p"), 0, ""},
		{"not in the directory with a path of its own", "only", at("here"), "", "", 127, at("there")},
		{"below a file", at("here/p/x"), "", "", "", 127, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := []string{"PATH=" + c.path}
			if c.path == "none" {
				env = nil
			}
			got, err := program(c.program, c.dir, c.search, env)
			status := 0
			var se *startError
			if errors.As(err, &se) {
				status = se.status
			}
			if got != c.want || status != c.status || (err != nil) != (c.status != 0) {
				t.Errorf("program(%s) in %q along %s: got %q, status %d, %v, want %q, %d", c.program, c.dir, c.path, got, status, err, c.want, c.status)
			}
		})
	}
}

// A working directory that was removed is named as the reason.
func TestProgramInARemovedDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := program("./p", "", "", nil); err == nil || strings.Contains(err.Error(), "removed") {
		t.Errorf("in a directory that is there: %v", err)
	}
	gone := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"./p", "sub/p"} {
		if _, err := program(name, "", "", nil); err == nil || !strings.Contains(err.Error(), "no such program: the working directory was removed; change to one that exists") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := program("sh", "", "", nil); got != "/bin/sh" || err != nil {
		t.Errorf("a program of PATH: %q, %v", got, err)
	}
}

func TestEnded(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		script string
		status int
		signal syscall.Signal
	}{{"exit 0", 0, 0}, {"exit 255", 255, 0}, {"kill -9 $$", 137, syscall.SIGKILL}, {"kill -SEGV $$", 139, syscall.SIGSEGV}} {
		cmd := exec.Command("sh", "-c", "read x; "+c.script)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if how, err := ended(cmd.Process.Pid); how.over || err != nil {
			t.Errorf("%s: over %v, %v before its end", c.script, how.over, err)
		}
		in.Close()
		testenv.Await(t, 10*time.Second, "the end of "+c.script, func() bool {
			how, err := ended(cmd.Process.Pid)
			if err != nil {
				t.Fatalf("%s: %v", c.script, err)
			}
			if how.over && (how.status != c.status || how.signal != c.signal) {
				t.Errorf("%s: got %d, %v, want %d, %v", c.script, how.status, how.signal, c.status, c.signal)
			}
			return how.over
		})
		cmd.Wait() // it was not reaped before
		if _, err := ended(cmd.Process.Pid); !errors.Is(err, syscall.ECHILD) {
			t.Errorf("%s: reaped: got %v, want ECHILD", c.script, err)
		}
	}
}

// ranks is a host with ranks of one program.
func ranks(n int, argv ...string) Spec {
	spec := Spec{Apps: []AppSpec{{Argv: argv, NP: n}}}
	for i := range n {
		spec.Ranks = append(spec.Ranks, RankSpec{Rank: i})
	}
	return spec
}

// jobOf is a job's name that no other run of these tests has: a guardian kills whatever has the job's marker.
func jobOf(t *testing.T) string {
	return fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), os.Getpid())
}

// record runs a host and returns its events.
func record(t *testing.T, spec Spec, during func(*Host, Event)) []Event {
	t.Helper()
	var mu sync.Mutex
	var events []Event
	spec.Host, spec.Job, spec.Hosts, spec.NP, spec.Grace = "h", jobOf(t), 1, max(spec.NP, len(spec.Ranks)), cmp.Or(spec.Grace, time.Second)
	for i := range spec.Apps {
		spec.Apps[i].Env = os.Environ()
	}
	var h *Host
	h, err := New(spec, Config{Emit: func(e Event) {
		mu.Lock()
		events = append(events, e)
		mu.Unlock()
		if during != nil {
			during(h, e)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { h.Run(); close(done) }()
	select {
	case <-done:
	case <-time.After(testenv.Limit(30 * time.Second)):
		t.Fatalf("it does not end; events %v", events)
	}
	h.Send(Command{Kind: Kill}) // after Done: nothing
	return events
}

func TestEventsOfAHost(t *testing.T) {
	testenv.NoLeaks(t)
	events := record(t, ranks(2, "sh", "-c", "echo out; echo err >&2; exit 2"), nil)
	count := make(map[EventKind]int)
	for _, e := range events {
		count[e.Kind]++
	}
	if count[Started] != 2 || count[Ended] != 2 || count[Output] != 4 || count[Done] != 1 || events[len(events)-1].Kind != Done {
		t.Errorf("got %+v", events)
	}
}

// The ranks of a host need not be neighbours, and they may run several programs.
func TestRanksOfAHost(t *testing.T) {
	testenv.NoLeaks(t)
	report := func(name string) []string {
		return []string{"sh", "-c", "echo " + name + " $PMI_RANK $OMPI_COMM_WORLD_RANK $GORUN_LOCAL_RANK $MPI_LOCALRANKID $GORUN_LOCAL_SIZE; exit $PMI_RANK"}
	}
	spec := Spec{
		NP:    8,
		Ranks: []RankSpec{{Rank: 2}, {Rank: 5, App: 2}, {Rank: 7, App: 2}},
		Apps:  []AppSpec{{Argv: report("first"), NP: 3}, {NP: 2}, {Argv: report("last"), NP: 3}},
	}
	out, ended := "", map[int]int{}
	for _, e := range record(t, spec, nil) {
		switch e.Kind {
		case Output:
			out += string(e.Data)
		case Ended:
			ended[e.Rank] = e.Status
		}
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	slices.Sort(lines)
	if want := []string{"first 2 2 0 0 3", "last 5 5 1 1 3", "last 7 7 2 2 3"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
	if want := map[int]int{2: 2, 5: 5, 7: 7}; !reflect.DeepEqual(ended, want) {
		t.Errorf("ends: got %v, want %v", ended, want)
	}
}

func TestCredits(t *testing.T) {
	testenv.NoLeaks(t)
	ahead, most, total := 0, 0, 0
	const size = 10 * Window
	record(t, ranks(1, "sh", "-c", "yes | head -c 10485760"), func(h *Host, e Event) {
		if e.Kind != Output {
			return
		}
		total += len(e.Data)
		ahead += len(e.Data)
		most = max(most, ahead)
		if ahead >= Window {
			h.Send(Command{Kind: Credit, Stream: Stdout, N: ahead})
			ahead = 0
		}
	})
	if total != size || most > Window+2*bufMost {
		t.Errorf("got %d bytes, at most %d ahead, want %d, %d", total, most, size, Window)
	}
}

func TestRankThatClosesItsSocket(t *testing.T) {
	testenv.NoLeaks(t)
	events := record(t, ranks(2, "sh", "-c", "exec 3>&-; sleep 0.5"), nil)
	for _, e := range events {
		if e.Kind == Violated || e.Kind == Ended && e.Status != 0 {
			t.Errorf("got %+v", e)
		}
	}
}

// The controller's pipes close before its death signal comes: whatever this process
// is killed in the middle of, something must be left that ends the ranks.
func TestAbandonedHost(t *testing.T) {
	testenv.Need(t, "setsid")
	testenv.NoLeaks(t)
	spec := ranks(2, "sh", "-c", "setsid sh -c 'echo $$; sleep 100' & wait")
	spec.Host, spec.Job, spec.Hosts, spec.NP, spec.Grace = "h", jobOf(t), 1, 2, time.Second
	spec.Apps[0].Env = os.Environ()
	var h *Host
	var pids []string
	h, err := New(spec, Config{Adopted: true, Emit: func(e Event) {
		if e.Kind == Output {
			pids = append(pids, strings.Fields(string(e.Data))...)
			if len(pids) == 2 {
				h.Send(Command{Kind: Abandon})
			}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	h.Run()
	if len(pids) != 2 {
		t.Fatalf("got %q, want two processes", pids)
	}
	for _, pid := range pids {
		if env, err := os.ReadFile("/proc/" + pid + "/environ"); err == nil && strings.Contains(string(env), Marker(&spec)) {
			t.Errorf("process %s outlived the host", pid)
		}
	}
}

func TestStoppedRanksEnd(t *testing.T) {
	testenv.NoLeaks(t)
	started := 0
	events := record(t, ranks(2, "sleep", "100"), func(h *Host, e Event) {
		if e.Kind == Started {
			if started++; started == 2 {
				h.Send(Command{Kind: Pass, Signal: syscall.SIGSTOP})
				h.Send(Command{Kind: End, Signal: syscall.SIGTERM})
			}
		}
	})
	for _, e := range events {
		if e.Kind == Ended && (e.Signal != syscall.SIGTERM || !e.Told) {
			t.Errorf("got %+v, want an end by TERM", e)
		}
	}
}

// What gorun sets for ranks that have little of a CPU is not the user's in a job inside that job.
func TestCrowdedRanksSettingIsScrubbed(t *testing.T) {
	for _, user := range []string{"", "GOMAXPROCS=3"} {
		m := newSharedVars(&Spec{NP: 1, Ranks: make([]RankSpec, 1)}, []string{user}, false)
		env := append(m.append(nil, "0", "0", true), user)
		set := slices.Contains(env, "GOMAXPROCS=1")
		if left := slices.Contains(Scrub(env), "GOMAXPROCS=1"); set != (user == "") || left {
			t.Errorf("with %q: %q, set %v; after Scrub it is there: %v", user, env, set, left)
		}
	}
}
