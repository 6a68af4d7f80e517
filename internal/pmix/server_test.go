//go:build cgo

package pmix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The server of these tests. libpmix is one a process and never taken down, so all
// tests share it, each with a namespace of its own.
var shared struct {
	once   sync.Once
	err    error
	dir    string // of the server and of the client program
	server *Server
	fake   launcher
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

// launcher answers as one of one host would, and keeps what it was told.
type launcher struct {
	mu    sync.Mutex
	told  map[string][]string // by namespace
	names map[string]Pair
	last  int
}

var _ Handler = (*launcher)(nil)

func (l *launcher) tell(p Proc, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told[p.Space] = append(l.told[p.Space], strconv.Itoa(int(p.Rank))+" "+fmt.Sprintf(format, args...))
}

func (l *launcher) Connected(p Proc) { l.tell(p, "connected") }
func (l *launcher) Finalized(p Proc) { l.tell(p, "finalized") }

func (l *launcher) Abort(r Request, p Proc, status int, text string) {
	l.tell(p, "aborts with %d: %s", status, text)
	r.Done(0)
}

func (l *launcher) Fence(r Request, _ Kind, _ []Proc, data []byte) { go r.Data(0, data) }
func (l *launcher) Modex(r Request, _ Proc)                        { go r.Data(NotFound(), nil) }

func (l *launcher) Publish(r Request, p Proc, pairs []Pair) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range pairs {
		if _, there := l.names[q.Key]; there {
			r.Done(Duplicate())
			return
		}
		l.names[q.Key] = q
	}
	r.Done(0)
}

func (l *launcher) Lookup(r Request, p Proc, keys []string, wait bool, seconds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []Pair
	for _, key := range keys {
		if q, ok := l.names[key]; ok {
			found = append(found, q)
		}
	}
	switch {
	case len(found) == len(keys):
		r.Found(0, found)
	case wait && seconds > 0:
		time.AfterFunc(time.Duration(seconds)*time.Millisecond, func() { r.Found(TimedOut(), nil) })
	default:
		r.Found(NotFound(), nil)
	}
}

func (l *launcher) Unpublish(r Request, p Proc, keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		delete(l.names, key)
	}
	r.Done(0)
}

func (l *launcher) Spawn(r Request, p Proc, apps []App) {
	a := apps[0]
	l.tell(p, "spawns %d of %q in %v", a.NP, a.Argv, slices.ContainsFunc(a.Info, func(i [2]string) bool { return i[0] == "wdir" }))
	if a.Argv[1] == "refused" {
		r.Spawned(Failed(), "")
		return
	}
	r.Spawned(0, "child")
}

func (l *launcher) Query(r Request, queries []Query) {
	key := queries[0].Keys[0]
	p := Proc{Space: queries[0].Namespace, Rank: 1}
	answers := map[string]any{
		"PMIX_QUERY_NAMESPACES":    "one,two",
		"PMIX_QUERY_NUM_PSETS":     uint64(1) << 40,
		"PMIX_QUERY_SPAWN_SUPPORT": uint32(77),
		"PMIX_QUERY_JOB_STATUS":    NotFound(),
		"PMIX_QUERY_PSET_NAMES":    "",
		"PMIX_QUERY_PROC_TABLE":    []Process{{p, "host", "program", 4711, 0, Connected}, {Proc{Space: p.Space, Rank: 2}, "", "", 4712, 3, EndedNonZero}},
		"PMIX_QUERY_ALLOC_STATUS":  []byte("bytes"),
		"PMIX_QUERY_MEMORY_USAGE":  []Info{{"PMIX_HOSTNAME", "host"}, {"PMIX_DAEMON_MEMORY", float32(1.5)}, {"PMIX_SPAWNED", true}},
	}
	value, ok := answers[key]
	if !ok {
		r.Infos(NotFound(), nil)
		return
	}
	r.Infos(0, []Info{{key, value}})
}

func (l *launcher) Control(r Request, p Proc, c Control) {
	l.tell(p, "sends %d to %d, end %v", c.Signal, int32(c.Procs[0].Rank), c.End)
	r.Infos(0, nil)
}

func (l *launcher) Group(r Request, k Kind, name string, procs []Proc, context bool, data []byte) {
	var infos []Info
	if k == Construct {
		infos = append(infos, Info{"PMIX_GROUP_MEMBERSHIP", procs})
	}
	if context {
		infos = append(infos, Info{"PMIX_GROUP_CONTEXT_ID", uint64(1) << 33})
	}
	if len(data) > 0 {
		infos = append(infos, Info{"PMIX_GROUP_ENDPT_DATA", data})
	}
	r.Infos(0, infos)
}

func (l *launcher) Log(p Proc, stream int, text string, once bool) {
	l.tell(p, "says %q on %d, %v", text, stream, once)
}

func (l *launcher) Notify(data []byte) {
	l.tell(Proc{Space: "events", Rank: 0}, "%d", min(len(data), 1))
}

// start makes the server and its client program, or ends the test.
func start(t *testing.T) (*Server, *launcher) {
	t.Helper()
	gcc := testenv.Need(t, "gcc")
	if _, err := Probe(); err != nil {
		testenv.Unsupported(t, err.Error())
	}
	shared.once.Do(func() {
		shared.fake = launcher{told: map[string][]string{}, names: map[string]Pair{}}
		shared.err = func() (err error) {
			if shared.dir, err = os.MkdirTemp("", "pmix-"); err != nil {
				return err
			}
			args := []string{"-O1", "-o", filepath.Join(shared.dir, "client"), filepath.Join("..", "..", "testdata", "mpi", "pmix.c")}
			for _, arch := range []string{"x86_64", "aarch64"} {
				dir := "/usr/lib/" + arch + "-linux-gnu/pmix2"
				args = append(args, "-I"+dir+"/include", "-L"+dir+"/lib", "-Wl,-rpath,"+dir+"/lib")
			}
			if out, err := exec.Command(gcc, append(args, "-lpmix")...).CombinedOutput(); err != nil {
				return fmt.Errorf("gcc %s: %w\n%s", args, err, out)
			}
			shared.server, err = Start(shared.dir, "here", &shared.fake)
			return err
		}()
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.server, &shared.fake
}

// job is a namespace of one test.
type job struct {
	t      *testing.T
	name   string
	size   int
	server *Server
	fake   *launcher
	at     string
}

func newJob(t *testing.T, size int) *job {
	t.Helper()
	return register(t, Namespace{Nodes: []string{"here"}, NodeOf: make([]uint32, size)})
}

// register makes a job of a namespace, which it names.
func register(t *testing.T, ns Namespace) *job {
	t.Helper()
	server, fake := start(t)
	fake.mu.Lock()
	clear(fake.names)
	fake.last++
	j := &job{t: t, name: fmt.Sprintf("test_%d", fake.last), size: len(ns.NodeOf), server: server, fake: fake}
	fake.mu.Unlock()
	ns.Name = j.name
	err := server.Register(ns)
	if err != nil {
		t.Fatal(err)
	}
	if j.at, err = server.Address(j.name); err != nil {
		t.Fatal(err)
	}
	return j
}

// run runs all ranks and returns their lines, sorted, and how they ended.
func (j *job) run(words ...string) (lines []string, ends []error) {
	j.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(30*time.Second))
	defer cancel()
	uri := "SRV.0;tcp4://" + j.at
	var all bytes.Buffer
	outs, cmds := make([]bytes.Buffer, j.size), make([]*exec.Cmd, j.size)
	for rank := range cmds {
		c := exec.CommandContext(ctx, filepath.Join(shared.dir, "client"), words...)
		c.Env = append(os.Environ(),
			"PMIX_NAMESPACE="+j.name, "PMIX_RANK="+strconv.Itoa(rank), "PMIX_SERVER_URI41="+uri, "PMIX_SERVER_URI4="+uri,
			"PMIX_SECURITY_MODE=native", "PMIX_GDS_MODULE=hash", "PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC",
			"PMIX_SERVER_TMPDIR="+shared.dir, "PMIX_SYSTEM_TMPDIR="+shared.dir, "PMIX_HOSTNAME=here")
		c.Stdout, c.Stderr = &outs[rank], &outs[rank]
		if err := c.Start(); err != nil {
			j.t.Fatal(err)
		}
		cmds[rank] = c
	}
	for rank, c := range cmds {
		ends = append(ends, c.Wait())
		all.Write(outs[rank].Bytes())
	}
	if ctx.Err() != nil {
		j.t.Fatalf("%q does not end: %s", words, all.String())
	}
	lines = strings.Split(strings.TrimSuffix(all.String(), "\n"), "\n")
	slices.Sort(lines)
	return lines, ends
}

// wants runs all ranks to a good end with these lines.
func (j *job) wants(words string, want ...string) {
	j.t.Helper()
	got, ends := j.run(strings.Fields(words)...)
	slices.Sort(want)
	if err := errors.Join(ends...); err != nil || !reflect.DeepEqual(got, want) {
		j.t.Errorf("%s: %v, got\n%s\nwant\n%s", words, err, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// heard wants what the launcher was told of the namespace, in any order.
func (j *job) heard(want ...string) {
	j.t.Helper()
	j.fake.mu.Lock()
	got := slices.Clone(j.fake.told[j.name])
	j.fake.mu.Unlock()
	slices.Sort(got)
	slices.Sort(want)
	if !reflect.DeepEqual(got, want) {
		j.t.Errorf("the launcher was told\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestPutFenceGet(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	newJob(t, 2).wants("0:put k zero 1:put k one - commit collect get 0 k get 1 k",
		"0 put: ok", "1 put: ok", "0 commit: ok", "1 commit: ok", "0 collect: ok", "1 collect: ok",
		"0 k = zero", "1 k = zero", "0 k = one", "1 k = one")
	// Without data in the fence it is fetched when asked for; a missing key is one.
	newJob(t, 2).wants("0:put k zero - commit fence get 0 k now 1 k",
		"0 put: ok", "0 commit: ok", "1 commit: ok", "0 fence: ok", "1 fence: ok",
		"0 k = zero", "1 k = zero", "0 k: NOT-FOUND", "1 k: NOT-FOUND")
	// A get that waits for what never comes ends when it says.
	newJob(t, 2).wants("1:soon 0 never - fence", "1 never: TIMEOUT", "0 fence: ok", "1 fence: ok")
}

func TestLargeValues(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	newJob(t, 2).wants("0:size k 8000000 - commit collect get 0 k",
		"0 size: ok", "0 commit: ok", "1 commit: ok", "0 collect: ok", "1 collect: ok",
		"0 k = 8000000 bytes", "1 k = 8000000 bytes")
}

func TestConnectedAndFinalized(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 2)
	j.wants("fence", "0 fence: ok", "1 fence: ok")
	j.heard("0 connected", "1 connected", "0 finalized", "1 finalized")
}

func TestAbort(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 1)
	_, ends := j.run("abort", "7")
	var exit *exec.ExitError
	if !errors.As(ends[0], &exit) || exit.ExitCode() != 32 {
		t.Errorf("got %v", ends[0])
	}
	j.heard("0 connected", "0 aborts with 7: as the test wants")
}

// A rank that dies in a fence does not leave the other one waiting, and the server
// goes on.
func TestDiesInFence(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 2)
	lines, ends := j.run("0:fence", "1:die", "-")
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "0 fence: ") || ends[0] != nil || ends[1] == nil {
		t.Errorf("got %q, %v", lines, ends)
	}
	newJob(t, 2).wants("fence", "0 fence: ok", "1 fence: ok")
}

func TestPublish(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 2)
	j.wants("0:publish s port publish s again count n 42 - fence lookup s lookup n lookup none patience none fence 0:unpublish s unpublish n - fence lookup s",
		"0 publish: ok", "0 publish: DUPLICATE KEY", "0 count: ok", "0 fence: ok", "1 fence: ok",
		"0 s = port", "1 s = port", "0 n = 42", "1 n = 42", "0 none: NOT-FOUND", "1 none: NOT-FOUND", "0 none: TIMEOUT", "1 none: TIMEOUT",
		"0 fence: ok", "1 fence: ok", "0 unpublish: ok", "0 unpublish: ok", "0 fence: ok", "1 fence: ok", "0 s: NOT-FOUND", "1 s: NOT-FOUND")
	j = newJob(t, 1)
	j.wants("own o x once f y", "0 own: ok", "0 once: ok")
	j.fake.mu.Lock()
	defer j.fake.mu.Unlock()
	by := Proc{Space: j.name, Rank: 0}
	for key, want := range map[string]Pair{
		"o": {Key: "o", Value: []byte("x"), Text: true, By: by, Own: true},
		"f": {Key: "f", Value: []byte("y"), Text: true, By: by, Once: true},
	} {
		if got := j.fake.names[key]; !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestSpawn(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 1)
	j.wants("spawn 3 program argument spawn 1 program refused", "0 spawn: ok", "0 spawn: ERROR")
	j.heard("0 connected", "0 finalized", `0 spawns 3 of ["program" "argument"] in true`, `0 spawns 1 of ["program" "refused"] in true`)
}

func TestEvents(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 2)
	j.wants("listen fence 0:tell 1:heard - fence", "0 listen: ok", "1 listen: ok", "0 fence: ok", "1 fence: ok", "0 tell: ok", "1 heard of rank 0", "0 fence: ok", "1 fence: ok")
	if err := j.server.Deliver([]byte("nonsense")); err == nil {
		t.Error("nonsense is delivered")
	}
	if err := j.server.Deliver(nil); err != nil {
		t.Error(err)
	}
}

// Every type of value that an answer can have reaches a client.
func TestQuery(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	newJob(t, 1).wants("query PMIX_QUERY_NAMESPACES query PMIX_QUERY_NUM_PSETS query PMIX_QUERY_SPAWN_SUPPORT query PMIX_QUERY_JOB_STATUS query PMIX_QUERY_PSET_NAMES query PMIX_QUERY_PROC_TABLE query PMIX_QUERY_ALLOC_STATUS query PMIX_QUERY_MEMORY_USAGE query PMIX_QUERY_QUEUE_LIST",
		"0 PMIX_QUERY_NAMESPACES = one,two",
		"0 PMIX_QUERY_NUM_PSETS = 1099511627776",
		"0 PMIX_QUERY_SPAWN_SUPPORT = 77",
		"0 PMIX_QUERY_JOB_STATUS = NOT-FOUND",
		"0 PMIX_QUERY_PSET_NAMES = ",
		"0 PMIX_QUERY_PROC_TABLE = rank 1, host, program, a pid, PROC HAS CONNECTED TO LOCAL PMIX SERVER",
		"0 PMIX_QUERY_PROC_TABLE = rank 2, (null), (null), a pid, PROC TERMINATED WITH NON-ZERO STATUS",
		"0 PMIX_QUERY_ALLOC_STATUS = 5 bytes",
		"0 PMIX_HOSTNAME = host", "0 PMIX_DAEMON_MEMORY = positive", "0 PMIX_SPAWNED = true",
		"0 PMIX_QUERY_QUEUE_LIST: NOT-FOUND")
}

func TestControl(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 1)
	j.wants("control kill 0 control term -1 control pause 0 control resume 0 control 10 0 control restart 0 control 4711 0",
		"0 kill: ok", "0 term: ok", "0 pause: ok", "0 resume: ok", "0 10: ok", "0 restart: NOT-SUPPORTED", "0 4711: BAD-PARAM")
	j.heard("0 connected", "0 finalized", "0 sends 9 to 0, end false", "0 sends 15 to -2, end true", "0 sends 19 to 0, end false", "0 sends 18 to 0, end false", "0 sends 10 to 0, end false")
}

func TestGroups(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	newJob(t, 2).wants("numbered g ungroup g", "0 numbered: ok", "1 numbered: ok", "0 number = 8589934592", "1 number = 8589934592", "0 ungroup: ok", "1 ungroup: ok")
}

func TestLog(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 1)
	j.wants("log words", "0 log: ok")
	j.heard("0 connected", "0 finalized", `0 says "words" on 2, false`)
}

// What Open MPI asks for in MPI_Init, 4.1 (orte/mca/ess/pmi, ompi/mca/rte/pmix) and
// 5.0 (ompi/runtime/ompi_rte.c, opal/mca/common/ofi), as far as it is there to serve.
// What is not: PMIX_LOCALITY_STRING and PMIX_CPUSET, which are in the words of hwloc
// and without which peers of one host are near, not nearer; PMIX_LOCAL_TOPO and the like,
// without which it reads the machine.
func TestKeysOfOpenMPI(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := register(t, Namespace{
		Nodes: []string{"here"}, NodeOf: []uint32{0, 0, 0}, AppOf: []uint32{0, 0, 1}, Universe: 5,
		Parent: &Proc{Space: "parent", Rank: 4}, Restarts: 2, Session: "/job",
		Programs: []Program{{Argv: []string{"./first", "a b", "c"}, Dir: "/work"}, {Argv: []string{"second"}, Dir: "/other"}},
	})
	j.wants(`1:job PMIX_UNIV_SIZE job PMIX_JOB_SIZE job PMIX_LOCAL_SIZE job PMIX_JOB_NUM_APPS job PMIX_LOCAL_PEERS job PMIX_NUM_NODES
		job OMPI_APP_SIZES job OMPI_FIRST_RANKS job PMIX_TMPDIR job PMIX_NSDIR job PMIX_TDIR_RMCLEAN job PMIX_SPAWNED job PMIX_PARENT_ID
		job PMIX_LOCAL_RANK job PMIX_NODE_RANK job PMIX_APPNUM job PMIX_NODEID job PMIX_HOSTNAME job PMIX_PROCDIR job PMIX_REINCARNATION job PMIX_LOCALLDR
		job PMIX_APP_RANK job PMIX_APP_ARGV job PMIX_WDIR job PMIX_APP_SIZE job PMIX_APPLDR
		- 2:job PMIX_APPNUM job PMIX_LOCAL_RANK job PMIX_APP_RANK job PMIX_APP_ARGV job PMIX_WDIR job PMIX_APP_SIZE job PMIX_APPLDR`,
		"1 PMIX_UNIV_SIZE = 5", "1 PMIX_JOB_SIZE = 3", "1 PMIX_LOCAL_SIZE = 3", "1 PMIX_JOB_NUM_APPS = 2", "1 PMIX_LOCAL_PEERS = 0,1,2", "1 PMIX_NUM_NODES = 1",
		"1 OMPI_APP_SIZES = 2 1", "1 OMPI_FIRST_RANKS = 0 2", "1 PMIX_TMPDIR = /job", "1 PMIX_NSDIR = /job/"+j.name, "1 PMIX_TDIR_RMCLEAN = true",
		"1 PMIX_SPAWNED = true", "1 PMIX_PARENT_ID = rank 4",
		"1 PMIX_LOCAL_RANK = 1", "1 PMIX_NODE_RANK = 1", "1 PMIX_APPNUM = 0", "1 PMIX_NODEID = 0", "1 PMIX_HOSTNAME = here",
		"1 PMIX_PROCDIR = /job/"+j.name+"/1", "1 PMIX_REINCARNATION = 2", "1 PMIX_LOCALLDR = 0",
		"1 PMIX_APP_RANK = 1", "1 PMIX_APP_ARGV = ./first a b c", "1 PMIX_WDIR = /work", "1 PMIX_APP_SIZE = 2", "1 PMIX_APPLDR = 0",
		"2 PMIX_APP_RANK = 0", "2 PMIX_APP_ARGV = second", "2 PMIX_WDIR = /other", "2 PMIX_APP_SIZE = 1", "2 PMIX_APPLDR = 2",
		"2 PMIX_APPNUM = 1", "2 PMIX_LOCAL_RANK = 2")
}

// A process of a job that spawns ranks elsewhere asks this server for theirs. Open MPI 6
// reads the first word of the list of local ones, and dies where there is none.
func TestNamespaceWithoutLocalRanks(t *testing.T) {
	away := register(t, Namespace{Nodes: []string{"here", "there"}, NodeOf: []uint32{1, 1}})
	newJob(t, 1).wants("of "+away.name+" PMIX_JOB_SIZE of "+away.name+" PMIX_LOCAL_SIZE of "+away.name+" PMIX_LOCAL_PEERS",
		"0 PMIX_JOB_SIZE = 2", "0 PMIX_LOCAL_SIZE = 0", "0 PMIX_LOCAL_PEERS: NOT-FOUND")
}

// Whoever connects and sends what is none of PMIx's is let go; the others are served.
func TestHostile(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	j := newJob(t, 1)
	for name, data := range map[string][]byte{
		"nothing":   nil,
		"text":      []byte("GET / HTTP/1.1\r\n\r\n"),
		"all ones":  bytes.Repeat([]byte{0xff}, 4096),
		"all zeros": make([]byte, 4096),
	} {
		c, err := net.Dial("tcp", j.at)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := c.Write(data); err != nil {
			t.Logf("%s: %v", name, err)
		}
		_ = c.(*net.TCPConn).CloseWrite()
		_ = c.SetReadDeadline(time.Now().Add(testenv.Limit(10 * time.Second)))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: the connection is kept", name)
		}
		_ = c.Close()
		if err := j.server.Ping(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	j.wants("fence", "0 fence: ok")
}

func TestRegisterRefuses(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	server, _ := start(t)
	for _, ns := range []Namespace{
		{},
		{Name: "n"},
		{Name: "n", Nodes: []string{"a"}, NodeOf: []uint32{1}},
		{Name: "n", Nodes: []string{"a"}, Node: 1, NodeOf: []uint32{0}},
		{Name: "n", Nodes: []string{""}, NodeOf: []uint32{0}},
		{Name: "n", Nodes: []string{"a"}, NodeOf: []uint32{0}, AppOf: []uint32{0, 0}},
		{Name: strings.Repeat("n", 256), Nodes: []string{"a"}, NodeOf: []uint32{0}},
	} {
		if err := server.Register(ns); err == nil {
			t.Errorf("%+v is registered", ns)
		}
	}
}
