package coll

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// Ranks as processes: the test binary runs itself with this in the environment,
// "rank size what". The segment is file descriptor 3; lines on the standard
// streams are an all-gather.
const processRank = "COLL_TEST_RANK"

func TestMain(m *testing.M) {
	if spec := os.Getenv(processRank); spec != "" {
		if err := childMain(spec); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// A hub is the child's side of the all-gather: a line out, size lines in.
type hub struct {
	size int
	in   *bufio.Reader
}

func (h *hub) exchange(_ context.Context, mine []byte) ([][]byte, error) {
	line, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stdout.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	all := make([][]byte, h.size)
	for i := range all {
		line, err := h.in.ReadBytes('\n')
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(line, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// A start is what a process tells the others to be connected.
type start struct {
	GID      rdma.GID
	Endpoint []byte
	QPs      []uint32 // by peer
}

func childMain(spec string) error {
	var rank, size int
	var what string
	if _, err := fmt.Sscanf(spec, "%d %d %s", &rank, &size, &what); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
	defer cancel()
	h := &hub{size: size, in: bufio.NewReader(os.Stdin)}
	what, verbs := strings.CutSuffix(what, "-verbs")
	m, err := joinSegment(ctx, rank, size, h, !verbs)
	if err != nil {
		return err
	}
	var result any
	switch what {
	case "check":
		result, err = m.checkAll(ctx)
	case "measure":
		result, err = m.measure(ctx, false, m.calls)
	case "select":
		result, err = m.measure(ctx, true, m.rivals)
	}
	if err != nil {
		return fmt.Errorf("rank %d: %w", rank, err)
	}
	if err := m.team.Free(ctx); err != nil {
		return err
	}
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	_, err = h.exchange(ctx, b)
	return err
}

func joinSegment(ctx context.Context, rank, size int, h *hub, mapped bool) (*member, error) {
	segment, err := shm.Open(3)
	if err != nil {
		return nil, err
	}
	m := &member{rank: rank, size: size, qps: make([]rdma.QP, size)}
	if m.provider, err = soft.New(soft.Config{Segment: segment, Rank: rank, Host: "here"}); err != nil {
		return nil, err
	}
	devices, err := m.provider.Devices()
	if err != nil {
		return nil, err
	}
	if m.ctx, err = devices[0].Open(); err != nil {
		return nil, err
	}
	if m.pd, err = m.ctx.AllocPD(); err != nil {
		return nil, err
	}
	if m.cq, err = m.ctx.CreateCQ(4 * size); err != nil {
		return nil, err
	}
	if m.odp, err = m.pd.RegMR(nil, rdma.AccessLocalWrite|reachable|rdma.AccessOnDemand); err != nil {
		return nil, err
	}
	mine := start{Endpoint: m.ctx.(rdma.Endpointer).Endpoint(), QPs: make([]uint32, size)}
	if mine.GID, err = m.ctx.QueryGID(1, 0); err != nil {
		return nil, err
	}
	for i := range size {
		if i != rank {
			m.qps[i], err = m.pd.CreateQP(rdma.QPInitAttr{SendCQ: m.cq, RecvCQ: m.cq, Type: rdma.RC,
				Cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 2048}})
			if err != nil {
				return nil, err
			}
			mine.QPs[i] = m.qps[i].Num()
		}
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	all, err := h.exchange(ctx, b)
	if err != nil {
		return nil, err
	}
	var peers []rdma.PeerMemory
	if mapped {
		peers = make([]rdma.PeerMemory, size)
	}
	for i, b := range all {
		if i == rank {
			continue
		}
		var theirs start
		if err := json.Unmarshal(b, &theirs); err != nil {
			return nil, err
		}
		if err := m.ctx.(rdma.Endpointer).AddEndpoint(theirs.GID, theirs.Endpoint); err != nil {
			return nil, err
		}
		if err := connect(m.qps[i], theirs.GID, theirs.QPs[rank]); err != nil {
			return nil, err
		}
		if mapped {
			if peers[i], err = m.ctx.(rdma.Mapper).Peer(theirs.GID); err != nil {
				return nil, err
			}
		}
	}
	if _, err := h.exchange(ctx, nil); err != nil { // all are in RTS
		return nil, err
	}
	if m.mesh, err = meshOf(m.pd, m.cq, m.qps, peers); err != nil {
		return nil, err
	}
	m.team, err = NewTeam(ctx, TeamConfig{Rank: rank, Size: size, Mesh: m.mesh, ODP: m.odp, Exchange: h.exchange,
		Waiter: wait.New(wait.Config{CPU: rank, Oversubscribed: size > runtime.NumCPU(), Sleeper: m.ctx.(rdma.Sleeper)})})
	return m, err
}

// checkAll makes random calls.
func (m *member) checkAll(ctx context.Context) (any, error) {
	for i, j := range jobs(uint64(m.size), m.size, 150, defaultEager, 300<<10) {
		if err := m.check(ctx, j, i%2 == 0); err != nil {
			return nil, fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil, nil
}

// A figure is the time of a call.
type figure struct {
	Name               string
	Least, Median, P99 float64 // ns
}

// A timed call, so many of which are a sample.
type timed struct {
	name  string
	calls int
	do    func() error
}

// calls are the calls whose time matters to programs.
func (m *member) calls(ctx context.Context, in, out Buffer) []timed {
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	in2, out2 := Buffer{Mem: make([]byte, len(in.Mem))}, Buffer{Mem: make([]byte, len(out.Mem))}
	return []timed{
		{"barrier", 100, func() error { return m.team.Barrier(ctx) }},
		{"alltoall-8", 100, func() error { return m.team.AllToAll(ctx, in, out, 8, Auto) }},
		{"alltoall-8-plain", 100, func() error { return m.team.AllToAll(ctx, in2, out2, 8, Auto) }},
		{"alltoall-1K", 100, func() error { return m.team.AllToAll(ctx, in, out, 1<<10, Auto) }},
		{"alltoall-64K", 10, func() error { return m.team.AllToAll(ctx, in, out, 64<<10, Auto) }},
		{"alltoall-64K-plain", 10, func() error { return m.team.AllToAll(ctx, in2, out2, 64<<10, Auto) }},
		{"allreduce-8", 100, func() error { return m.team.AllReduce(ctx, in, out, 2, sum) }},
		{"allreduce-4K", 20, func() error { return m.team.AllReduce(ctx, in, out, 1<<10, sum) }},
		{"allreduce-64K", 5, func() error { return m.team.AllReduce(ctx, in, out, 16<<10, sum) }},
		{"allreduce-1M", 1, func() error { return m.team.AllReduce(ctx, in, out, 256<<10, sum) }},
		{"allreduce-1M-plain", 1, func() error { return m.team.AllReduce(ctx, in2, out2, 256<<10, sum) }},
		{"allreduce-4M", 1, func() error { return m.team.AllReduce(ctx, in, out, 1<<20, sum) }},
		{"bcast-8", 100, func() error { return m.team.Bcast(ctx, out, 8, 0) }},
		{"bcast-1M", 1, func() error { return m.team.Bcast(ctx, out, 1<<20, 0) }},
	}
}

// rivals are the algorithms of the same call, at sizes about the thresholds of
// the selection.
func (m *member) rivals(ctx context.Context, in, out Buffer) (list []timed) {
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	for _, kind := range Kinds() {
		if len(Algorithms(kind)) < 2 {
			continue
		}
		for _, n := range []int{8, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20} {
			if kind == Barrier && n > 8 {
				break
			}
			if n*m.size > len(in.Mem) && (kind == AllGather || kind == AllToAll || kind == Gather || kind == Scatter) {
				continue
			}
			for _, a := range Algorithms(kind) {
				args := &Args{Kind: kind, Algorithm: a, Send: in, Recv: out, Bytes: n, Reduction: sum}
				calls := 1 + min(9, (64<<10)/n)
				list = append(list, timed{fmt.Sprintf("%v-%d-%v", kind, n, a), calls, func() error { return m.team.Run(ctx, args) }})
			}
		}
	}
	return list
}

// measure times calls as the ranks see them: some in a row, all kinds in turn,
// many times, so that what disturbs the machine disturbs all. whole: until all ranks
// are through, a barrier included, for a root may be done long before.
func (m *member) measure(ctx context.Context, whole bool, calls func(ctx context.Context, in, out Buffer) []timed) (any, error) {
	mr, err := m.pd.AllocMR(8<<20, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
	if err != nil {
		return nil, err
	}
	defer mr.Close()
	mem := mr.Bytes()
	in, out := Buffer{Mem: mem[:4<<20], MR: mr}, Buffer{Mem: mem[4<<20:], MR: mr}
	const samples = 51
	list := calls(ctx, in, out)
	times := make([][]float64, len(list))
	for range samples {
		for i, c := range list {
			if err := m.team.Barrier(ctx); err != nil {
				return nil, err
			}
			begin := time.Now()
			for range c.calls {
				if err := c.do(); err != nil {
					return nil, fmt.Errorf("%s: %w", c.name, err)
				}
			}
			if whole {
				if err := m.team.Barrier(ctx); err != nil {
					return nil, err
				}
			}
			times[i] = append(times[i], float64(time.Since(begin))/float64(c.calls))
		}
	}
	var figures []figure
	for i, c := range list {
		slices.Sort(times[i])
		figures = append(figures, figure{c.name, times[i][0], times[i][samples/2], times[i][samples*99/100]})
	}
	return figures, nil
}

// processes runs size ranks and gives what rank 0 found.
func processes(t testing.TB, size int, what string) []byte {
	t.Helper()
	segment, err := shm.Create(shm.Geometry{Ranks: size, ArenaSize: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	file, err := os.Open("/proc/self/fd/" + strconv.Itoa(segment.FD()))
	if err == nil {
		file.Close()
		file, err = os.OpenFile("/proc/self/fd/"+strconv.Itoa(segment.FD()), os.O_RDWR, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var (
		ins     []io.WriteCloser
		outs    []*bufio.Reader
		cmds    []*exec.Cmd
		stderrs []*strings.Builder
	)
	for r := range size {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %s", processRank, r, size, what))
		cmd.ExtraFiles = []*os.File{file}
		stderr := &strings.Builder{}
		cmd.Stderr = stderr
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ins, outs, cmds, stderrs = append(ins, in), append(outs, bufio.NewReader(out)), append(cmds, cmd), append(stderrs, stderr)
	}
	var last []byte
	for {
		var all []byte
		over := false
		for r := range size {
			line, err := outs[r].ReadBytes('\n')
			if err != nil {
				over = true
				break
			}
			if r == 0 {
				last = line
			}
			all = append(all, line...)
		}
		if over {
			break
		}
		for r := range size {
			if _, err := ins[r].Write(all); err != nil {
				t.Logf("rank %d: %v", r, err)
			}
		}
	}
	for r := range size {
		ins[r].Close()
		if err := cmds[r].Wait(); err != nil {
			t.Errorf("rank %d: %v: %s", r, err, stderrs[r])
		}
	}
	var result []byte
	if err := json.Unmarshal(last, &result); err != nil {
		t.Fatalf("rank 0 ended with %q: %v", last, err)
	}
	return result
}

func TestCollectivesAcrossProcesses(t *testing.T) {
	if arch.RaceEnabled {
		return // the race detector sees one process
	}
	for _, size := range []int{2, 3, 5} {
		for _, what := range []string{"check", "check-verbs"} {
			t.Run(fmt.Sprintf("%s/ranks=%d", what, size), func(t *testing.T) {
				testenv.NoLeaks(t)
				processes(t, size, what)
			})
		}
	}
}

// BenchmarkProcesses gives the least and the median time of each collective, and
// its 99th percentile, as rank 0 of so many processes sees it.
func BenchmarkProcesses(b *testing.B) { figuresOf(b, "measure", 2, 4, 8) }

// BenchmarkProcessesByVerbs is the same without mapped memory.
func BenchmarkProcessesByVerbs(b *testing.B) { figuresOf(b, "measure-verbs", 2, 4, 8) }

// BenchmarkSelection compares the algorithms.
func BenchmarkSelection(b *testing.B) { figuresOf(b, "select", 2, 4, 8, 16, 32) }

func figuresOf(b *testing.B, what string, sizes ...int) {
	for _, size := range sizes {
		b.Run(fmt.Sprintf("ranks=%d", size), func(b *testing.B) {
			var figures []figure
			if err := json.Unmarshal(processes(b, size, what), &figures); err != nil {
				b.Fatal(err)
			}
			for _, f := range figures {
				b.ReportMetric(f.Least, f.Name+"-min-ns")
				b.ReportMetric(f.Median, f.Name+"-ns")
				b.ReportMetric(f.P99, f.Name+"-p99-ns")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}
