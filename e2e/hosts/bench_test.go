package hosts

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

const (
	benchRounds = 5
	benchLimit  = 25 * time.Second // of a job
)

// The systems that are measured in turns; the MPIs are 1 and 2.
var benchSystems = []string{"gorun", "MPICH", "Open MPI", "bare TCP"}

// A compared is a row: what is timed, and what gorun may take of the time of the fastest of rivals.
type compared struct {
	where, what string
	limit       float64
	rivals      []int
	point       string // of gorun-bench's plan: benchmark, type, bytes; "": the job itself is timed
}

var (
	mpis = []int{1, 2}

	messagesOfTwo = []compared{
		{"2 hosts x 1", "latency 8 B", 1.1, []int{1}, "latency byte 8"},
		{"2 hosts x 1", "latency 8 B, by bare TCP", 1.3, []int{3}, "latency byte 8"},
		{"2 hosts x 1", "latency 64 KiB", 1, mpis, "latency byte 65536"},
		{"2 hosts x 1", "latency 1 MiB", 1, mpis, "latency byte 1048576"},
		{"2 hosts x 1", "stream of 1 MiB", 1, mpis, "bw byte 1048576"},
		{"2 hosts x 1", "all-reduce 8 B", 1, mpis, "allreduce float 8"},
		{"2 hosts x 1", "all-reduce 1 MiB", 1, mpis, "allreduce float 1048576"},
		{"2 hosts x 1", "all-to-all 64 KiB", 1, mpis, "alltoall byte 65536"},
	}
	messagesOfFour = []compared{
		{"2 hosts x 2", "all-reduce 8 B", 0.9, mpis, "allreduce float 8"},
		{"2 hosts x 2", "all-reduce 1 MiB", 0.9, mpis, "allreduce float 1048576"},
		{"2 hosts x 2", "all-to-all 64 KiB", 0.9, mpis, "alltoall byte 65536"},
	}
	starts = []compared{
		{"4 hosts x 4", "`true`", 1, []int{1}, ""},
		{"4 hosts x 4", "MPICH program, Init and Finalize", 1, []int{1}, ""},
		{"4 hosts x 4", "Go ranks, by MPICH's in Hydra", 0.6, []int{1}, ""},
	}
)

// A taken is what a row's systems took in each round; NaN: the job did not finish.
type taken struct {
	compared
	us [4][]float64
}

// quotient is the median of the rounds' quotients of gorun's time by that of the fastest rival
// that finished; NaN where in no round both did.
func (k *taken) quotient() float64 {
	var all []float64
	for round, own := range k.us[0] {
		best := math.NaN()
		for _, r := range k.rivals {
			if v := k.us[r][round]; math.IsNaN(best) || v < best {
				best = v
			}
		}
		if q := own / best; !math.IsNaN(q) {
			all = append(all, q)
		}
	}
	return middle(all)
}

// middle is the median of what is a number.
func middle(all []float64) float64 {
	all = slices.DeleteFunc(slices.Clone(all), math.IsNaN)
	if len(all) == 0 {
		return math.NaN()
	}
	slices.Sort(all)
	return all[len(all)/2]
}

var benchColumns = append(append([]string{"where", "what"}, benchSystems...), "quotient", "limit")

// benchTable has the row that is furthest over its limit first.
func benchTable(rows []taken) string {
	slices.SortStableFunc(rows, func(a, b taken) int {
		over := func(k *taken) float64 {
			if q := k.quotient(); !math.IsNaN(q) {
				return q / k.limit
			}
			return math.Inf(1)
		}
		switch x, y := over(&a), over(&b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	text := "| " + strings.Join(benchColumns, " | ") + " |\n|" + strings.Repeat("---|", len(benchColumns)) + "\n"
	for i := range rows {
		k := &rows[i]
		cells := []string{k.where, k.what}
		for system, us := range k.us {
			switch v := middle(us); {
			case system > 0 && !slices.Contains(k.rivals, system):
				cells = append(cells, "-")
			case math.IsNaN(v):
				cells = append(cells, "not finished")
			case v >= 1000:
				cells = append(cells, fmt.Sprintf("%.3g ms", v/1000))
			default:
				cells = append(cells, fmt.Sprintf("%.3g us", v))
			}
		}
		q := k.quotient()
		mark := fmt.Sprintf("%.2f", q)
		switch {
		case math.IsNaN(q):
			mark = "none"
		case q > k.limit:
			mark = "**" + mark + "**"
		}
		text += "| " + strings.Join(append(cells, mark, fmt.Sprintf("%.1f", k.limit)), " | ") + " |\n"
	}
	return text
}

// The worst row comes first, a system that does not finish is no rival, and a quotient is that of a round.
func TestBenchTable(t *testing.T) {
	nan := math.NaN()
	rows := []taken{
		{compared{"a", "within", 1, mpis, ""}, [4][]float64{{5, 50, 6}, {10, 100, 10}, {nan, nan, nan}, nil}},
		{compared{"b", "over", 0.6, mpis, ""}, [4][]float64{{2000, 3000, nan}, {4000, 1000, 1}, {2000, 2000, 2}, nil}},
	}
	const want = `| where | what | gorun | MPICH | Open MPI | bare TCP | quotient | limit |
|---|---|---|---|---|---|---|---|
| b | over | 3 ms | 1 ms | 2 ms | - | **3.00** | 0.6 |
| a | within | 6 us | 10 us | not finished | - | 0.50 | 1.0 |
`
	if got := benchTable(rows); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// BenchmarkHosts compares gorun with the MPIs over hosts, for minutes: each round runs all of them, one after
// the other. With -update it writes the table of docs/hosts.md anew.
func BenchmarkHosts(t *testing.B) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	c := newComparison(t)
	rows := slices.Concat(c.messages(messagesOfTwo, 1), c.messages(messagesOfFour, 2), c.starts())
	text := benchTable(rows)
	text += fmt.Sprintf("\n%s, medians of %d rounds. The machine's load was %s before them: that of other programs, which took CPU time beside them.\n", processor(t), benchRounds, strings.Fields(string(load))[0])
	t.Log("\n" + text)
	if *update && !t.Failed() {
		testenv.Page(t, filepath.Join("..", "..", "docs", "hosts.md"), "speed", text, true)
	}
}

// processor is this machine in a few words.
func processor(t testing.TB) string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	name, cores := "processor", 0
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "processor":
			cores++
		case "model name":
			name = strings.TrimSpace(value)
		}
	}
	return fmt.Sprintf("%d cores of %s", cores, name)
}

// A comparison has the hosts, and the programs of the systems.
type comparison struct {
	t                      testing.TB
	b                      *testbed.Bed
	hydra, openmpi         string
	ofMPICH, ofOpenMPI     string // the benchmark in C
	limit, worker, leanest string
}

func newComparison(t testing.TB) *comparison {
	c := &comparison{t: t, hydra: testenv.Need(t, "mpiexec.hydra"), openmpi: testenv.Need(t, "mpirun.openmpi"),
		worker: filepath.Join(bin, "gorun-bench"), leanest: filepath.Join(bin, "gorun-bench-init")}
	c.b = testbed.New(t, 4)
	c.ofMPICH, c.ofOpenMPI = c.compile("mpicc.mpich", "bench"), c.compile("mpicc.openmpi", "bench")
	c.limit = c.compile("cc", "limit")
	return c
}

func (c *comparison) compile(compiler, name string) string {
	c.t.Helper()
	program := filepath.Join(c.b.Dir, compiler+"-"+name)
	if out, err := exec.Command(testenv.Need(c.t, compiler), "-O2", "-w", "-o", program, filepath.Join("..", "..", "testdata", "mpi", name+".c")).CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// job runs a command on the first host, and gives its output and time. What it leaves on any host is killed. gorun's
// jobs must succeed.
func (c *comparison) job(must bool, argv ...string) (out string, took time.Duration, ok bool) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), benchLimit)
	defer cancel()
	cmd := c.b.Hosts[0].Command(ctx, argv...)
	var said, complaints bytes.Buffer
	// Hydra may break where nobody gives its standard input.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(""), &said, &complaints
	cmd.WaitDelay = time.Second
	began := time.Now()
	err := errors.Join(cmd.Run(), ctx.Err())
	took = time.Since(began)
	if err != nil {
		for _, h := range c.b.Hosts {
			for pid := range h.Processes() {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		report := c.t.Logf
		if must {
			report = c.t.Errorf
		}
		report("%q: %v\n%.400s%.400s", argv, err, said.String(), complaints.String())
	}
	return said.String(), took, err == nil
}

// commands are those of the systems for so many ranks on each of so many hosts, with the settings in which they
// are fastest here: no rank is bound, because the hosts share the cores, and with more ranks than cores they yield.
func (c *comparison) commands(hosts, each int) [3][]string {
	var plain, slots []string
	for _, h := range c.b.Hosts[:hosts] {
		plain, slots = append(plain, h.Name), append(slots, fmt.Sprintf("%s:%d", h.Name, each))
	}
	np := fmt.Sprint(hosts * each)
	hydra := []string{c.hydra, "-launcher", "ssh", "-hosts", strings.Join(plain, ","), "-ppn", fmt.Sprint(each), "-n", np, "-bind-to", "none"}
	open := []string{c.openmpi, "--allow-run-as-root", "-H", strings.Join(slots, ","), "-np", np, "--bind-to", "none"}
	if hosts*each > 2 {
		hydra = append(hydra, "-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1")
		open = append(open, "--mca", "mpi_yield_when_idle", "1")
	}
	return [3][]string{{filepath.Join(bin, "gorun"), "-H", strings.Join(slots, ",")}, hydra, open}
}

// messages measures rows on two hosts.
func (c *comparison) messages(what []compared, each int) []taken {
	rows := make([]taken, len(what))
	text := fmt.Sprintf("limit %d\nquota %d.0\nseparate 1\nmemory ordinary\n", int(benchLimit.Seconds()), int(benchLimit.Seconds())-10)
	for i, w := range what {
		rows[i].compared = w
		text += fmt.Sprintf("point %d %s 200000 -1 0\n", i, w.point)
	}
	plan := filepath.Join(c.b.Dir, fmt.Sprintf("plan%d", each))
	if err := os.WriteFile(plan, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	commands := c.commands(2, each)
	programs := [3][]string{{c.worker, "--worker", plan}, {c.ofMPICH, plan}, {c.ofOpenMPI, plan}}
	for range benchRounds {
		for system, argv := range commands {
			out, _, ok := c.job(system == 0, append(argv, programs[system]...)...)
			got := answers(out, len(rows))
			for i := range rows {
				if system == 0 && ok && math.IsNaN(got[i]) {
					c.t.Errorf("gorun: no time of %s in\n%s", rows[i].point, out)
				}
				rows[i].us[system] = append(rows[i].us[system], got[i])
			}
		}
		bare := math.NaN()
		if each == 1 {
			bare = c.bare()
		}
		for i := range rows {
			rows[i].us[3] = append(rows[i].us[3], bare)
		}
	}
	return rows
}

// answers are the medians that a worker has printed, in microseconds; NaN for those that it has not.
func answers(out string, n int) []float64 {
	got := slices.Repeat([]float64{math.NaN()}, n)
	for line := range strings.Lines(out) {
		var i, batch, count int
		var p10, p50 float64
		if k, _ := fmt.Sscanf(line, "point %d %d %d %f %f", &i, &batch, &count, &p10, &p50); k == 5 && i >= 0 && i < n {
			got[i] = p50
		}
	}
	return got
}

// bare is half a round trip of 8 bytes over a TCP connection of which both ends poll.
func (c *comparison) bare() float64 {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), benchLimit)
	defer cancel()
	echo := c.b.Hosts[1].Command(ctx, c.limit, "echo", "7777")
	said, err := echo.StdoutPipe()
	if err == nil {
		err = echo.Start()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if line, err := bufio.NewReader(said).ReadString('\n'); err != nil || line != "listens\n" {
		c.t.Fatalf("limit echo said %q (%v), want listens", line, err)
	}
	out, _, _ := c.job(true, c.limit, "ping", c.b.Hosts[1].Addr, "7777", "20000")
	if err := echo.Wait(); err != nil {
		c.t.Error(err)
	}
	var us float64
	if _, err := fmt.Sscan(out, &us); err != nil {
		c.t.Fatalf("limit ping said %q: %v", out, err)
	}
	return us
}

// starts measures jobs on four hosts, from the start of the launcher to its end.
func (c *comparison) starts() []taken {
	rows := make([]taken, len(starts))
	commands := c.commands(4, 4)
	for i, programs := range [][2][]string{
		{{"true"}, {"true"}},
		{{c.ofMPICH, "init"}, {c.ofMPICH, "init"}},
		{{c.leanest}, {c.ofMPICH, "init"}},
	} {
		rows[i].compared = starts[i]
		for range benchRounds {
			for system, program := range programs {
				_, took, ok := c.job(system == 0, append(slices.Clone(commands[system]), program...)...)
				us := math.NaN()
				if ok {
					us = float64(took.Microseconds())
				}
				rows[i].us[system] = append(rows[i].us[system], us)
			}
		}
	}
	return rows
}

// The page has each row, and no cell is empty.
func TestPageHasAllComparisons(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "hosts.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range slices.Concat(messagesOfTwo, messagesOfFour, starts) {
		_, rest, found := strings.Cut(string(text), "\n| "+w.where+" | "+w.what+" | ")
		line, _, _ := strings.Cut(rest, "\n")
		if cells := strings.Split(strings.Trim(line, "|"), "|"); !found || len(cells) != len(benchColumns)-2 ||
			slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("docs/hosts.md has no row %q of %q, or an empty cell in it; make bench-hosts writes it", w.what, w.where)
		}
	}
}
