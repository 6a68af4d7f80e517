package rank_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/pmi/pmitest"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// programVariable makes the test binary run one of programs as a rank.
const programVariable = "RANK_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if name := os.Getenv(programVariable); name != "" {
		program, ok := programs[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "no test program %q\n", name)
			os.Exit(2)
		}
		program()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// programs are what the ranks of a job run; rank_test files add theirs.
var programs = map[string]func(){}

// A job is ranks as processes, under a small launcher: PMI on socket pairs, and
// the environment of gorun unless foreign.
type job struct {
	program string
	hosts   []int // ranks on each host, by host
	foreign bool  // only what every PMI launcher sets
	env     []string
	binary  string // "" is the test binary
	offload int    // threads of a daemon on each host
	marks   bool   // the segments say which ranks of other hosts are dead

	ranks []*exec.Cmd
	out   []output // by rank
	errs  []output
	gone  []chan struct{}
	segs  []*shm.Segment
	wires []*wire
	serve sync.WaitGroup

	mu     sync.Mutex
	events []string // violations and aborts
}

// A wire serves PMI to the ranks of one host.
type wire struct {
	mu     sync.Mutex
	engine *pmi.Engine
	store  pmi.Store
	conns  map[int]net.Conn
}

// output keeps what a rank prints.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // closed at the next write, for who waits
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// until waits until a rank has printed a text.
func (j *job) until(t testing.TB, r int, text string) {
	t.Helper()
	for late := time.After(limit); ; {
		o := &j.out[r]
		o.mu.Lock()
		if strings.Contains(o.text.String(), text) {
			o.mu.Unlock()
			return
		}
		if o.more == nil {
			o.more = make(chan struct{})
		}
		more := o.more
		o.mu.Unlock()
		select {
		case <-more:
		case <-j.gone[r]:
			t.Fatalf("rank %d ended without printing %q\n%s%s", r, text, o, &j.errs[r])
		case <-late:
			t.Fatalf("rank %d did not print %q within %v\n%s%s", r, text, limit, o, &j.errs[r])
		}
	}
}

func (j *job) size() int {
	n := 0
	for _, k := range j.hosts {
		n += k
	}
	return n
}

// start starts the ranks. The test's end kills what is left.
func (j *job) start(t testing.TB) {
	t.Helper()
	n := j.size()
	j.ranks, j.out, j.errs = make([]*exec.Cmd, n), make([]output, n), make([]output, n)
	j.gone = make([]chan struct{}, n)
	binary := j.binary
	if binary == "" {
		var err error
		if binary, err = os.Executable(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { j.stop(t) })
	stores, hostOf := pmitest.Stores(len(j.hosts)), []int{}
	for host, k := range j.hosts {
		for range k {
			hostOf = append(hostOf, host)
		}
	}
	first := 0
	for host, k := range j.hosts {
		local := make([]int, k)
		for i := range local {
			local[i] = first + i
		}
		w := &wire{store: stores[host], conns: make(map[int]net.Conn),
			engine: pmi.NewEngine(pmi.EngineConfig{Size: n, Ranks: local, Mapping: pmi.Mapping(hostOf), Universe: testUniverse})}
		j.wires = append(j.wires, w)
		g := shm.DefaultGeometry(k+j.offload, shm.Limit())
		if j.marks {
			g.World = n
		}
		seg, err := shm.Create(g)
		if err != nil {
			t.Fatal(err)
		}
		j.segs = append(j.segs, seg)
		if j.offload > 0 {
			j.openDaemon(t, seg, k)
		}
		for i, r := range local {
			j.spawn(t, binary, w, seg, host, i, r)
		}
		first += k
	}
}

// openDaemon runs a daemon, of this process, beside the ranks of a host.
func (j *job) openDaemon(t testing.TB, seg *shm.Segment, ranks int) {
	visitor, err := soft.Visit(seg)
	if err != nil {
		t.Fatal(err)
	}
	d, err := coll.NewDaemon(coll.DaemonConfig{Segment: seg, Ranks: ranks, Threads: j.offload, Memory: visitor.Peer,
		Log: func(line string) { t.Errorf("the daemon says: %s", line) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { d.Run(ctx) })
	t.Cleanup(func() { // before the ranks are stopped, and the segment is closed
		stop()
		done.Wait()
	})
}

func (j *job) spawn(t testing.TB, binary string, w *wire, seg *shm.Segment, host, local, r int) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "pmi"), os.NewFile(uintptr(pair[1]), "pmi of a rank")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	w.conns[r] = conn
	w.mu.Unlock()
	cmd := exec.Command(binary)
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.Env = append(os.Environ(), programVariable+"="+j.program, "PMI_FD=3",
		"PMI_RANK="+strconv.Itoa(r), "PMI_SIZE="+strconv.Itoa(j.size()))
	if !j.foreign {
		fd, err := unix.FcntlInt(uintptr(seg.FD()), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		memory := os.NewFile(uintptr(fd), "segment")
		defer memory.Close()
		cmd.ExtraFiles = append(cmd.ExtraFiles, memory)
		cmd.Env = append(cmd.Env, "GORUN_PMI=cards", "GORUN_JOB=test", "GORUN_HOST="+string(rune('a'+host)),
			"GORUN_HOST_INDEX="+strconv.Itoa(host), "GORUN_LOCAL_RANK="+strconv.Itoa(local),
			"GORUN_LOCAL_SIZE="+strconv.Itoa(j.hosts[host]), "GORUN_SEGMENT=4")
		if j.offload > 0 {
			cmd.Env = append(cmd.Env, "GORUN_OFFLOAD="+strconv.Itoa(j.offload))
		}
	}
	cmd.Env = append(cmd.Env, j.env...)
	cmd.Stdout, cmd.Stderr = &j.out[r], &j.errs[r]
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.ranks[r], j.gone[r] = cmd, make(chan struct{})
	j.serve.Go(func() { j.listen(w, conn, r) })
	go func() {
		defer close(j.gone[r])
		_ = cmd.Wait() // the status is looked at in wait
		if !j.foreign {
			seg.SetDead(local)
		}
	}()
}

// listen serves one rank until its socket ends.
func (j *job) listen(w *wire, conn net.Conn, r int) {
	defer conn.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := conn.Read(b)
		w.mu.Lock()
		if n > 0 {
			j.handle(w, w.engine.Receive(r, b[:n]))
		}
		if err != nil {
			j.handle(w, w.engine.Disconnect(r))
			w.mu.Unlock()
			return
		}
		w.mu.Unlock()
	}
}

// handle does what the engine asks for. w.mu is held.
func (j *job) handle(w *wire, events []pmi.Event) {
	for _, e := range events {
		switch e := e.(type) {
		case pmi.Reply:
			_, _ = w.conns[e.Rank].Write(e.Data) // a rank that is gone is told by its read
		case pmi.Fence:
			j.serve.Go(func() {
				all, err := w.store.Fence(context.Background(), e.Epoch, e.Contribution)
				w.mu.Lock()
				defer w.mu.Unlock()
				if err != nil {
					j.handle(w, w.engine.FenceFailed(e.Epoch, err))
				} else {
					j.handle(w, w.engine.FenceDone(e.Epoch, all))
				}
			})
		case pmi.Abort:
			j.note("rank %d aborts with %d: %s", e.Rank, e.Code, e.Message)
		case pmi.Violation:
			j.note("violation: %v", e.Err)
		}
	}
}

func (j *job) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, fmt.Sprintf(format, args...))
}

// limit bounds a job of processes.
const limit = 5 * time.Minute

// wait waits for a rank's end and gives its exit status, 128 and more for a signal.
func (j *job) wait(t testing.TB, r int) int {
	t.Helper()
	select {
	case <-j.gone[r]:
	case <-time.After(limit):
		_ = j.ranks[r].Process.Signal(unix.SIGQUIT) // for its stacks
		select {
		case <-j.gone[r]:
		case <-time.After(time.Second):
		}
		t.Fatalf("rank %d is not through after %v\n%s", r, limit, j.errs[r].String())
	}
	ws := j.ranks[r].ProcessState.Sys().(interface {
		Signaled() bool
		ExitStatus() int
	})
	if ws.Signaled() {
		return 255
	}
	return ws.ExitStatus()
}

// done waits for all ranks, which must all succeed, and gives what they printed.
func (j *job) done(t testing.TB) string {
	t.Helper()
	var out strings.Builder
	for r := range j.ranks {
		if status := j.wait(t, r); status != 0 {
			t.Errorf("rank %d: exit status %d\n%s", r, status, j.errs[r].String())
		}
		out.WriteString(j.out[r].String())
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.events) > 0 {
		t.Errorf("the launcher saw %q", j.events)
	}
	return out.String()
}

// stop kills what is left and closes everything.
func (j *job) stop(t testing.TB) {
	for r, cmd := range j.ranks {
		if cmd != nil && j.gone[r] != nil {
			if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Error(err)
			}
			<-j.gone[r]
		}
	}
	for _, w := range j.wires {
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	}
	j.serve.Wait()
	for _, s := range j.segs {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func init() {
	programs["collectives"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			if err := collectives[int32](ctx, c); err != nil {
				return err
			}
			return collectives[float64](ctx, c)
		})
	}
	programs["messages"] = func() { rank.Main(pingpong) }
	programs["hosts"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			w := c.World()
			mine := append([]byte(w.Host()), make([]byte, 64-len(w.Host()))...)
			all := make([]byte, 64*c.Size())
			if err := rank.Allgather(ctx, c, mine, all); err != nil {
				return err
			}
			for r := range c.Size() {
				if got, want := string(bytes.TrimRight(all[64*r:64*(r+1)], "\x00")), w.HostOf(r); got != want {
					return fmt.Errorf("rank %d says it is on %q, its card says %q", r, got, want)
				}
			}
			fmt.Printf("%d:%s:%d/%d ", c.Rank(), w.Host(), w.LocalRank(), w.LocalSize())
			return nil
		})
	}
}

// pingpong sends messages of all lengths to and fro between all pairs of ranks.
func pingpong(ctx context.Context, c *rank.Comm) error {
	for a := range c.Size() {
		for b := range a {
			if c.Rank() != a && c.Rank() != b {
				continue
			}
			peer := a + b - c.Rank()
			for round, n := range lengths {
				buf, err := make1[byte](c, n, round)
				if err != nil {
					return err
				}
				if c.Rank() == a {
					if err := rank.Send(ctx, c, letter(buf, a, round, 0), peer, round); err != nil {
						return err
					}
				}
				if _, err := rank.Recv(ctx, c, buf, peer, round); err != nil {
					return err
				}
				if err := checkLetter(buf, a, round, 0); err != nil {
					return err
				}
				if c.Rank() == b {
					if err := rank.Send(ctx, c, buf, peer, round); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

func TestProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	for _, program := range []string{"collectives", "messages"} {
		for _, tt := range []struct {
			name    string
			hosts   []int
			foreign bool
		}{
			{"one", []int{1}, false},
			{"two", []int{2}, false},
			{"four", []int{4}, false},
			{"two hosts", []int{2, 1}, false},
			{"three hosts", []int{1, 2, 1}, false},
			{"foreign launcher", []int{3}, true},
		} {
			if arch.RaceEnabled && program == "collectives" && len(tt.hosts) > 1 {
				// What TCP brings is written by another goroutine and handed
				// over through mapped memory, which the detector does not see.
				continue
			}
			t.Run(program+"/"+tt.name, func(t *testing.T) {
				j := &job{program: program, hosts: tt.hosts, foreign: tt.foreign}
				j.start(t)
				j.done(t)
			})
		}
	}
}

func TestHosts(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "hosts", hosts: []int{2, 1}}
	j.start(t)
	if got, want := j.done(t), "0:a:0/2 1:a:1/2 2:b:0/1 "; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	j = &job{program: "hosts", hosts: []int{3}, foreign: true}
	j.start(t)
	got := strings.Fields(j.done(t))
	want := []string{"0:" + name + ":0/3", "1:" + name + ":1/3", "2:" + name + ":2/3"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A program without a launcher is a world of one.
func TestAlone(t *testing.T) {
	testenv.NoLeaks(t)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = []string{programVariable + "=collectives"}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
