package sim

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

var (
	update = flag.Bool("update", false, "write docs/scale.md, docs/scale.svg and testdata/scale.csv anew")
	all    = flag.Bool("all", false, "simulate the rows too that take minutes")
)

// A point is a line of testdata/scale.csv: a call on hosts of 64 ranks, and what it took.
type point struct {
	kind   coll.Kind
	bytes  int
	hosts  int
	costly bool // simulated with -all only

	algorithm           string
	time, infiniband    Time // on Slingshot's parameters, and on InfiniBand's, 0 of a costly one
	scratch             int
	simulated, compared int
}

const perHost = 64

// points are the rows in their order: the calls one after the other, each with its numbers of hosts.
func points() (list []point) {
	for _, c := range []struct {
		kind  coll.Kind
		bytes int
		cheap int // up to so many hosts
		most  int
	}{{coll.Barrier, 0, 1024, 1024}, {coll.AllReduce, 8, 1024, 1024}, {coll.AllReduce, 1024, 64, 64}, {coll.AllToAll, 8, 64, 1024}, {coll.AllToAll, 1024, 64, 256}} {
		for hosts := 16; hosts <= c.most; hosts *= 4 {
			list = append(list, point{kind: c.kind, bytes: c.bytes, hosts: hosts, costly: hosts > c.cheap})
		}
	}
	return list
}

// simulate fills in what a point takes.
func (p *point) simulate(t *testing.T) {
	c := call(p.kind, coll.Auto, p.bytes)
	r := mustRun(t, Config{Hosts: p.hosts, PerHost: perHost, Params: Slingshot()}, c)
	p.algorithm, p.time, p.scratch, p.simulated, p.compared = r.Call.Algorithm.String(), r.Time, r.Scratch, r.Simulated, r.Compared
	if p.costly {
		return
	}
	p.infiniband = mustRun(t, Config{Hosts: p.hosts, PerHost: perHost, Params: InfiniBand()}, c).Time
}

func (p *point) record() []string {
	text := func(n int) string { return strconv.Itoa(n) }
	return []string{p.kind.String(), text(p.bytes), text(p.hosts), p.algorithm, text(int(p.time.Duration())), text(int(p.infiniband.Duration())), text(p.scratch), text(p.simulated), text(p.compared)}
}

// TestPage holds docs/scale.md to what the simulator gives now. What takes minutes
// is only simulated with -all, and otherwise as testdata/scale.csv has it.
func TestPage(t *testing.T) {
	file := filepath.Join("testdata", "scale.csv")
	data, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	kept, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	list := points()
	records := [][]string{{"call", "bytes", "hosts", "algorithm", "slingshot_ns", "infiniband_ns", "scratch", "simulated", "compared"}}
	for i := range list {
		p := &list[i]
		if p.costly && !*all {
			if !p.read(kept) {
				t.Errorf("%s has no row of %v of %d bytes on %d hosts; go test ./coll/sim -run TestPage -update -all makes it", file, p.kind, p.bytes, p.hosts)
				return
			}
		} else {
			p.simulate(t)
		}
		records = append(records, p.record())
	}
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(records); err != nil {
		t.Fatal(err)
	}
	docs := filepath.Join("..", "..", "docs")
	const command = "go test ./coll/sim -run TestPage -update"
	testenv.File(t, file, b.String(), command, *update)
	testenv.File(t, filepath.Join(docs, "scale.svg"), picture(list), command, *update)
	page := filepath.Join(docs, "scale.md")
	testenv.Page(t, page, "calls", callsTable(list), *update)
	testenv.Page(t, page, "memory", memoryTable(t), *update)
}

// read takes a point's figures out of records.
func (p *point) read(records [][]string) bool {
	key := p.record()[:3]
	for _, r := range records {
		if len(r) == 9 && r[0] == key[0] && r[1] == key[1] && r[2] == key[2] {
			number := func(i int) int { n, _ := strconv.Atoi(r[i]); return n }
			p.algorithm, p.time, p.infiniband = r[3], Time(number(4))*Nanosecond, Time(number(5))*Nanosecond
			p.scratch, p.simulated, p.compared = number(6), number(7), number(8)
			return p.time > 0
		}
	}
	return false
}

func size(n int) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.4g KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func micro(t Time) string {
	us := float64(t) / float64(Microsecond)
	if us >= 1000 {
		return fmt.Sprintf("%.0f", us)
	}
	return fmt.Sprintf("%.1f", us)
}

func (p *point) name() string {
	if p.kind == coll.Barrier {
		return p.kind.String()
	}
	return p.kind.String() + " " + size(p.bytes)
}

func callsTable(list []point) string {
	var b strings.Builder
	b.WriteString("| call | ranks | algorithm | Slingshot, us | InfiniBand, us | scratch a rank | ranks simulated |\n|---|---|---|---|---|---|---|\n")
	for i := range list {
		p := &list[i]
		how := "all"
		if ranks := p.hosts * perHost; p.simulated < ranks {
			if how = fmt.Sprintf("%d, for all", p.simulated); p.simulated+p.compared < ranks {
				how += fmt.Sprintf("; %d plans compared", p.compared)
			}
		}
		second := micro(p.infiniband)
		if p.costly {
			second = ""
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s |\n", p.name(), p.hosts*perHost, p.algorithm, micro(p.time), second, size(p.scratch), how)
	}
	return b.String()
}

func memoryTable(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| ranks | control region a rank | tables a rank | both, of a host's 64 ranks |\n|---|---|---|---|\n")
	for n := perHost; n <= 1<<16; n *= 4 {
		p, err := coll.NewPlanner(n, func(r int) int { return r / perHost }, nil)
		if err != nil {
			t.Fatal(err)
		}
		f := p.Footprint()
		fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", n, size(f.Region), size(f.Tables), size(perHost*(f.Region+f.Tables)))
	}
	return b.String()
}

// picture draws the times over the ranks, both scales logarithmic. Its colours follow the
// reader's light or dark theme.
func picture(list []point) string {
	const left, width, top, height = 70, 480, 40, 300 // pixels
	low, high := 10*Microsecond, 100*Millisecond
	x := func(ranks int) float64 { return left + width*math.Log2(float64(ranks)/1024)/6 }
	y := func(t Time) float64 {
		return top + height*(1-math.Log(float64(t)/float64(low))/math.Log(float64(high)/float64(low)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="13">
<title>Simulated time of collectives over the number of ranks</title>
<style>
text { fill: #1f2328 } .grid { stroke: #8c959f; stroke-opacity: .4 } .line { stroke: #2f81f7; stroke-width: 2; fill: none } .dot { fill: #2f81f7 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
</style>
<text x="%d" y="20">Simulated time by ranks, 64 a host, Slingshot's parameters</text>
`, left+width+120, top+height+40, left)
	for t := low; t <= high; t *= 10 {
		label := fmt.Sprintf("%d us", t/Microsecond)
		if t >= Millisecond {
			label = fmt.Sprintf("%d ms", t/Millisecond)
		}
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left, y(t), left+width, left-8, y(t)+4, label)
	}
	for n := 1024; n <= 1<<16; n *= 4 {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(n), top, top+height, x(n), top+height+20, n)
	}
	for i := 0; i < len(list); {
		var path strings.Builder
		first := i
		for ; i < len(list) && list[i].name() == list[first].name(); i++ {
			p := &list[i]
			ranks := p.hosts * perHost
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i-first, 1)], x(ranks), y(p.time))
			fmt.Fprintf(&b, `<circle class="dot" cx="%.1f" cy="%.1f" r="3"/>`, x(ranks), y(p.time))
		}
		last := &list[i-1]
		fmt.Fprintf(&b, `<path class="line" d="%s"/><text x="%.1f" y="%.1f">%s</text>`+"\n", path.String(), x(last.hosts*perHost)+8, y(last.time)+4, last.name())
	}
	b.WriteString("</svg>\n")
	return b.String()
}
