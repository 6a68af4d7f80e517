package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/cmd/internal/nearest"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rank"
)

// params is what the command line says.
type params struct {
	benchmarkList, countList, sizeList, compareList, memoryList, timeText string
	typ                                                                   string
	iterations, warmup, runs                                              int
	quick, backToBack, applications, verbose, quiet                       bool
	csv, json, html, svg, tune, from                                      string
	deviceList                                                            string // as given: "a" or "a,b"
	programText, mpiList                                                  string
	asyncList, compute, engineList                                        string

	// What these come to.
	counts   []int // of ranks
	memories []string
	compare  []string // the MPIs to compare with
	asyncs   []string // modes of progress threads; none: the environment's
	engines  []string // that run collectives; none: the ranks do
	points   []point
	program  []string      // with its arguments
	mpis     []anyMPI      // that it runs with
	budget   time.Duration // for a point
	deadline time.Duration // of the session, 0: none
}

func newParser() (*doca.Parser, *params) {
	p := &params{typ: "float", compute: computeSleep, iterations: 0, warmup: -1, memoryList: registered + "," + ordinary}
	parser := doca.New("gorun-bench", "Measures messages, collectives and launches of gorun. With --compare it measures the MPIs of this machine in turn with gorun,\n"+
		"so that drift of the machine affects all of them alike. It verifies all results before it times them.\n"+
		"Benchmarks: "+strings.Join(benchmarkNames(), ", ")+".", version.Line("gorun-bench"))
	parser.Manual()
	parser.Rename("json", "parameters", 'j')
	parser.Rename("version", "version", 'V')
	parser.String(&p.benchmarkList, doca.Flag{Long: "benchmarks", Short: 'b', Value: "LIST", Check: p.checkBenchmarks,
		Help: "what to measure: names, or messages, collectives, engines, nonblocking, overlap, onesided, start, all (default: all)"})
	parser.String(&p.countList, doca.Flag{Long: "np", Short: 'n', Value: "LIST", Check: p.checkCounts,
		Help: "numbers of ranks: 2,4 or 2:16 (default: 2; with --quick 2,4)"})
	parser.String(&p.sizeList, doca.Flag{Long: "sizes", Short: 'm', Value: "LIST", Check: p.checkSizes,
		Help: "sizes of a message, vector or block in bytes: 8,1K,64K or 8:1M or 8:1M*4 (default: 8,1K,4K,8K,16K,32K,64K,256K,1M)"})
	parser.String(&p.typ, doca.Flag{Long: "type", Short: 't', Value: "TYPE", Check: p.checkType,
		Help: "element type of reductions: " + typeNames + " (default float)"})
	parser.String(&p.memoryList, doca.Flag{Long: "memory", Value: "LIST", Check: p.checkMemory,
		Help: "kinds of memory that gorun's ranks use: registered,ordinary (default: both)"})
	parser.String(&p.deviceList, doca.Flag{Long: "devices", Short: 'd', Value: "NAME[,NAME]", Check: p.checkDevices,
		Help: "RDMA device for all data of gorun's ranks; with two names, the lower half of the ranks uses the first (default: soft0 and shared memory)"})
	parser.String(&p.compareList, doca.Flag{Long: "compare", Short: 'c', Value: "LIST", Check: p.checkCompare,
		Help: "MPIs to compare with: mpich,openmpi (default: none; with --quick those that are installed)"})
	parser.String(&p.asyncList, doca.Flag{Long: "async-progress", Value: "LIST", Check: p.checkAsync,
		Help: "off, on, auto, daemon or several of them: the progress threads of gorun's ranks, or gorun --offload, each in rows of its own; with on, MPICH is measured with its own progress threads as well (default: the environment's)"})
	parser.String(&p.engineList, doca.Flag{Long: "engine", Value: "LIST", Check: p.checkEngines,
		Help: "inline, thread, dpa, daemon or several of them: what runs the collectives, the rank itself, its progress thread, a device thread or gorun --offload, each in rows of its own; a call that another has run is an error (with -b engines by default)"})
	parser.String(&p.compute, doca.Flag{Long: "compute", Value: "HOW", Check: p.checkCompute,
		Help: "the work beside non-blocking calls: sleep, as a program that waits for a GPU; cpu; or spare, the same where each rank has a second CPU (default sleep)"})
	parser.Bool(&p.applications, doca.Flag{Long: "applications", Help: "measure a2a beside alltoall and allreduce beside iallreduce_x16 too, by the figures that these commands give"})
	parser.Bool(&p.quick, doca.Flag{Long: "quick", Help: "run the most important comparison, in less than two minutes"})
	parser.Int(&p.runs, doca.Flag{Long: "runs", Short: 'r', Value: "N", Check: doca.AtLeast(&p.runs, 1),
		Help: "number of rounds; every system runs once in each (default 5)"})
	parser.String(&p.timeText, doca.Flag{Long: "time", Value: "TIME", Check: p.checkTime,
		Help: "time to measure one point in one round (default 100ms; with --quick 25ms)"})
	parser.Int(&p.iterations, doca.Flag{Long: "iterations", Short: 'i', Value: "N", Check: doca.AtLeast(&p.iterations, 1),
		Help: "number of calls to time for one point in one round, instead of --time"})
	parser.Int(&p.warmup, doca.Flag{Long: "warmup", Short: 'w', Value: "N", Check: doca.AtLeast(&p.warmup, 0),
		Help: "number of calls for warm-up (default: a tenth of the time)"})
	parser.Bool(&p.backToBack, doca.Flag{Long: "back-to-back", Help: "time collectives in sequence, without a barrier before each"})
	parser.String(&p.csv, doca.Flag{Long: "csv", Value: "FILE", Help: "write the rows as CSV"})
	parser.String(&p.json, doca.Flag{Long: "json", Value: "FILE", Help: "write a header and the rows as JSON, one object per line"})
	parser.String(&p.html, doca.Flag{Long: "html", Value: "FILE", Help: "write a page with plots, which needs no other files"})
	parser.String(&p.svg, doca.Flag{Long: "svg", Value: "DIR", Help: "write each plot of --html into this directory, as a picture of its own: BENCHMARK-RANKS.svg, of overlaps BENCHMARK-RANKS-overlap.svg"})
	parser.String(&p.from, doca.Flag{Long: "from", Value: "FILE", Help: "measure nothing; read the results from a file that --json wrote"})
	parser.String(&p.tune, doca.Flag{Long: "tune", Value: "FILE", Check: p.checkTune,
		Help: "time every algorithm of the collectives for these ranks and sizes, and write the fastest ones as a table for GORUN_TUNING=FILE"})
	parser.String(&p.programText, doca.Flag{Long: "program", Value: "COMMAND", Help: "run this program of MPI's standard ABI, with its arguments in one word, with each MPI of --mpi in turn, and compare the lines of numbers that it writes, as the OSU micro-benchmarks do"})
	parser.String(&p.mpiList, doca.Flag{Long: "mpi", Value: "LIST", Help: "the MPIs for --program: mpich,openmpi or paths of libraries (gorun --mpi)"})
	parser.Bool(&p.verbose, doca.Flag{Long: "verbose", Short: 'v', Help: "print which algorithm was chosen for each point, and why"})
	parser.Bool(&p.quiet, doca.Flag{Long: "quiet", Short: 'q', Help: "do not show the progress"})
	return parser, p
}

func benchmarkNames() []string {
	var names []string
	for _, b := range benchmarks {
		names = append(names, b.name)
	}
	return names
}

// groups are names for several benchmarks.
var groups = map[string]func(b *benchmark) bool{
	"all":         func(*benchmark) bool { return true },
	"start":       func(b *benchmark) bool { return b.how&launches != 0 },
	"messages":    func(b *benchmark) bool { return b.group == "messages" },
	"collectives": func(b *benchmark) bool { return b.group == "collectives" },
	"engines":     func(b *benchmark) bool { return b.how&startable != 0 },
	"overlap":     func(b *benchmark) bool { return b.name == "iallreduce" || b.name == "ialltoall" },
	"nonblocking": func(b *benchmark) bool { return b.group == "nonblocking" },
	"onesided":    func(b *benchmark) bool { return b.group == "onesided" },
}

func (p *params) checkBenchmarks() error {
	_, err := p.selected()
	return err
}

// selected are the benchmarks that -b names, in the order of the table.
func (p *params) selected() ([]*benchmark, error) {
	wanted := map[string]bool{}
	for name := range strings.SplitSeq(p.benchmarkList, ",") {
		group := groups[name]
		if group == nil && find(name) == nil {
			hint := "see --help"
			if n := nearest.Name(name, benchmarkNames()); n != "" {
				hint = "did you mean " + n + "?"
			}
			return nil, fmt.Errorf("found %q, expected the name of a benchmark; %s", name, hint)
		}
		for i := range benchmarks {
			if b := &benchmarks[i]; b.name == name || group != nil && group(b) {
				wanted[b.name] = true
			}
		}
	}
	var list []*benchmark
	for i := range benchmarks {
		if wanted[benchmarks[i].name] {
			list = append(list, &benchmarks[i])
		}
	}
	return list, nil
}

func (p *params) checkCounts() (err error) {
	p.counts, err = parseCounts(p.countList)
	return err
}

func (p *params) checkSizes() error {
	_, err := parseSizes(p.sizeList)
	return err
}

func (p *params) checkType() error {
	if typeSizes[p.typ] == 0 {
		return fmt.Errorf("found %q, expected %s", p.typ, typeNames)
	}
	return nil
}

func (p *params) checkMemory() error { return known(p.memoryList, registered, ordinary) }

func (p *params) checkCompare() error { return known(p.compareList, mpich, openmpi) }

// devices are the names that -d gives.
func (p *params) devices() []string {
	if p.deviceList == "" {
		return nil
	}
	return strings.Split(p.deviceList, ",")
}

// checkDevices finds the devices too, so that one message tells that one is missing.
func (p *params) checkDevices() error {
	if p.deviceList == "" {
		return fmt.Errorf("found no name, expected NAME or NAME,NAME")
	}
	return rank.FindDevices(onDevices(p.devices(), new(rank.Environment)))
}

func (p *params) checkAsync() error {
	p.asyncs = nil
	for name := range strings.SplitSeq(p.asyncList, ",") {
		if name != progressDaemon {
			mode, err := rank.ParseProgress(name)
			if err != nil {
				return fmt.Errorf("found %q, %w, or %s", p.asyncList, err, progressDaemon)
			}
			name = mode.String()
		}
		if slices.Contains(p.asyncs, name) {
			return fmt.Errorf("found %q, expected each mode once", p.asyncList)
		}
		p.asyncs = append(p.asyncs, name)
	}
	return nil
}

// The kinds of work beside non-blocking calls.
const (
	computeSleep, computeCPU, computeSpare = "sleep", "cpu", "spare"
)

func (p *params) checkCompute() error {
	if !slices.Contains([]string{computeSleep, computeCPU, computeSpare}, p.compute) {
		return fmt.Errorf("found %q, expected %s, %s or %s", p.compute, computeSleep, computeCPU, computeSpare)
	}
	return nil
}

// checkSpare refuses work that is to leave a CPU to each rank's progress thread where there
// is none.
func (p *params) checkSpare(cpus int) error {
	if most := slices.Max(p.counts); p.compute == computeSpare && cpus < 2*most {
		return fmt.Errorf("--compute spare: %d ranks need %d CPUs, found %d; expected --compute sleep or cpu, or fewer ranks", most, 2*most, cpus)
	}
	return nil
}

func (p *params) checkTune() error {
	if p.compareList != "" || p.quick || p.from != "" {
		return errors.New("found --compare, --quick or --from beside it, expected none of them: --tune measures only gorun")
	}
	return nil
}

// known checks that a list holds these names only, each once.
func known(list string, names ...string) error {
	seen := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(names, name) || seen[name] {
			hint := ""
			if n := nearest.Name(name, names); n != "" && !seen[name] {
				hint = "; did you mean " + n + "?"
			}
			return fmt.Errorf("found %q, expected a list of %s%s", list, strings.Join(names, ", "), hint)
		}
		seen[name] = true
	}
	return nil
}

func (p *params) checkTime() (err error) {
	p.budget, err = time.ParseDuration(p.timeText)
	if err != nil || p.budget < time.Millisecond || p.budget > time.Hour {
		return fmt.Errorf("found %q, expected a time from 1ms to 1h, as 100ms or 2s", p.timeText)
	}
	return nil
}

// quickPoints are what --quick measures: the figures that gorun is held to.
var quickPoints = []struct {
	benchmark string
	sizes     string
}{
	{"latency", "8,1K,64K,1M"},
	{"bw", "64K,1M"},
	{"mr", "8"},
	{"barrier", "0"},
	{"bcast", "8,1K,64K,1M"},
	{"allreduce", "8,1K,64K,256K,1M"},
	{"allgather", "8,1K,64K,1M"},
	{"alltoall", "8,1K,64K"},
	{"reduce_scatter", "8,1K,64K,1M"},
}

// A quick session begins no job after quickDeadline, and its last one lives no
// longer than quickQuota and quickLateness together: less than two minutes.
const (
	quickDeadline = 100 * time.Second
	quickQuota    = 5 * time.Second
	quickLateness = 5 * time.Second
)

// settle fills in what is not given and lists the points.
func (p *params) settle() error {
	if err := p.settleProgram(); err != nil {
		return err
	}
	p.memories = strings.Split(p.memoryList, ",")
	if err := p.settleEngines(); err != nil {
		return err
	}
	if p.compareList != "" {
		p.compare = strings.Split(p.compareList, ",")
	} else if p.quick {
		p.compare = []string{mpich, openmpi}
	}
	if p.counts == nil {
		p.counts = []int{2}
		if p.quick {
			p.counts = []int{2, 4}
		}
	}
	p.runs = cmp.Or(p.runs, 5)
	if p.budget == 0 {
		p.budget = 100 * time.Millisecond
		if p.quick {
			p.budget = 25 * time.Millisecond
		}
	}
	if p.quick {
		p.deadline = quickDeadline
	}
	if p.quick && p.benchmarkList == "" && p.sizeList == "" {
		for _, q := range quickPoints {
			if b := find(q.benchmark); b != nil {
				p.list(b, q.sizes)
			}
		}
		return nil
	}
	if p.benchmarkList == "" {
		p.benchmarkList = "all"
		if p.tune != "" {
			p.benchmarkList = "collectives"
		}
	}
	p.sizeList = cmp.Or(p.sizeList, "8,1K,4K,8K,16K,32K,64K,256K,1M")
	chosen, err := p.selected()
	for _, b := range chosen {
		p.list(b, p.sizeList)
	}
	return err
}

// list adds the points of a benchmark. A size that holds no whole number of
// elements is left out of reductions.
func (p *params) list(b *benchmark, sizes string) {
	typ, elem := "byte", 1
	if b.how&reduces != 0 {
		typ, elem = p.typ, typeSizes[p.typ]
	}
	list, err := parseSizes(sizes)
	if b.how&sizeless != 0 || err != nil {
		list = []int{0}
	}
	for _, n := range list {
		if n%elem == 0 && (n > 0 || b.how&reduces == 0) {
			p.points = append(p.points, point{b.name, typ, n})
		}
	}
}

// quotaOf is how long a job with so many points may go on beginning new ones:
// several times what it should take, since a system may need milliseconds for
// what others do in one. In a quick session it may not eat the others' time.
func (p *params) quotaOf(points int) time.Duration {
	each := p.budget + 20*time.Millisecond
	if p.iterations > 0 {
		return time.Duration(math.MaxInt32) * time.Second / 1000 // as long as it takes, within three weeks
	}
	quota := 5*time.Second + 5*time.Duration(points)*each
	if p.quick {
		quota = min(quota, quickQuota)
	}
	return quota
}
