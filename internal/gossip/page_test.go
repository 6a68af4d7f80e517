package gossip

import (
	"bytes"
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/coll/sim"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

var (
	update = flag.Bool("update", false, "write the starts in docs/scale.md, docs/bootstrap.svg and testdata/bootstrap.csv anew")
	all    = flag.Bool("all", false, "the starts too that take minutes and 15 GB to simulate, and 256 hosts in TestManyHosts")
)

// bootHosts are the sizes of the jobs on the page; larger ones than cheapHosts are simulated with -all only.
var bootHosts = []int{16, 64, 256, 1024, 4096, 10_000}

const cheapHosts = 1024

// A bootRow is a line of testdata/bootstrap.csv, in nanoseconds and bytes.
type bootRow struct{ hosts, reached, wide, joined, greeted, carded, up, infiniband, root, all, answer int }

func (r *bootRow) fields() []*int {
	return []*int{&r.hosts, &r.reached, &r.wide, &r.joined, &r.greeted, &r.carded, &r.up, &r.infiniband, &r.root, &r.all, &r.answer}
}

func simulated(t *testing.T, hosts int) bootRow {
	if hosts > cheapHosts {
		defer debug.SetGCPercent(debug.SetGCPercent(25))
	}
	r := bootstrap(t, hosts, sim.Slingshot().Network)
	ns := func(at sim.Time) int { return int(at.Duration()) }
	row := bootRow{hosts, ns(r.reached), ns(r.wide), ns(r.joined), ns(r.greeted), ns(r.carded), ns(r.up), 0, r.root, r.bytes, r.answer}
	if hosts <= cheapHosts {
		row.infiniband = ns(bootstrap(t, hosts, sim.InfiniBand().Network).up)
	}
	return row
}

// TestBootstrapPage holds docs/scale.md to what starts of jobs take in virtual time.
func TestBootstrapPage(t *testing.T) {
	file := filepath.Join("testdata", "bootstrap.csv")
	data, err := os.ReadFile(file)
	if err != nil && !*update {
		t.Fatal(err)
	}
	kept, err := csv.NewReader(bytes.NewReader(data)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var rows []bootRow
	text := "hosts,reached,wide,joined,greeted,carded,up,infiniband,root,all,answer\n"
	for i, hosts := range bootHosts {
		var r bootRow
		if hosts <= 256 || hosts <= cheapHosts && !testing.Short() || *all {
			r = simulated(t, hosts)
		} else if i+1 < len(kept) && len(kept[i+1]) == len(r.fields()) {
			for k, f := range r.fields() {
				if *f, err = strconv.Atoi(kept[i+1][k]); err != nil {
					t.Fatal(err)
				}
			}
		}
		if r.hosts != hosts || r.up <= r.carded || r.carded <= r.joined {
			t.Fatalf("%s has %+v for %d hosts; go test ./internal/gossip -run TestBootstrapPage -update -all makes it", file, r, hosts)
		}
		var words []string
		for _, f := range r.fields() {
			words = append(words, strconv.Itoa(*f))
		}
		text += strings.Join(words, ",") + "\n"
		rows = append(rows, r)
	}
	docs := filepath.Join("..", "..", "docs")
	const command = "go test ./internal/gossip -run TestBootstrapPage -update"
	testenv.File(t, file, text, command, *update)
	testenv.File(t, filepath.Join(docs, "bootstrap.svg"), bootPicture(rows), command, *update)
	page := filepath.Join(docs, "scale.md")
	testenv.Page(t, page, "bootstrap", bootTable(rows), *update)
	testenv.Page(t, page, "bootstrap memory", bootMemory(rows), *update)
}

func seconds(ns int) string { return fmt.Sprintf("%.3g", float64(ns)/1e9) }

func amount(n int) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	f, u := float64(n), 0
	for ; f >= 1000 && u+1 < len(units); u++ {
		f /= 1000
	}
	return fmt.Sprintf("%.3g %s", f, units[u])
}

func bootTable(rows []bootRow) string {
	var b strings.Builder
	b.WriteString("| hosts | ranks | logins, 32 at a time | agents meet | greetings | cards at all hosts | ranks have them | in all, s | in all with 256 logins | InfiniBand |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		other := ""
		if r.infiniband > 0 {
			other = seconds(r.infiniband)
		}
		fmt.Fprintf(&b, "| %d | %d | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.hosts, r.hosts*bootRanks, seconds(r.reached), seconds(r.joined-r.reached),
			seconds(r.greeted-r.joined), seconds(r.carded-r.greeted), seconds(r.up-r.carded), seconds(r.up), seconds(r.up-r.reached+r.wide), other)
	}
	return b.String()
}

func bootMemory(rows []bootRow) string {
	var b strings.Builder
	b.WriteString("| hosts | gorun writes: work | addresses | before | host 0 sends in fences | all hosts send | an agent holds | a rank holds | a host of 64 ranks |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range rows {
		// An agent has the contributions, and the answer to its ranks.
		agent, rank := r.hosts*contribution(r.hosts, cardSize)+r.answer, r.answer+r.hosts*bootRanks*cardKept
		fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s | %s | %s | %s |\n", r.hosts, amount(r.hosts*setupSize), amount(r.hosts*peersSize),
			amount(r.hosts*(setupSize+r.hosts*(9+6*bootRanks)+r.hosts*22)), amount(r.root), amount(r.all), amount(agent), amount(rank), amount(agent+bootRanks*rank))
	}
	return b.String()
}

// bootPicture draws the times over the hosts, both scales logarithmic, in coll/sim's manner.
func bootPicture(rows []bootRow) string {
	const left, width, top, height = 70, 480, 40, 300 // pixels
	low, high := 0.01, 200.0
	x := func(hosts int) float64 { return left + width*math.Log(float64(hosts)/16)/math.Log(10_000.0/16) }
	y := func(s float64) float64 { return top + height*(1-math.Log(s/low)/math.Log(high/low)) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="13">
<title>Simulated time of a job's start over the number of hosts</title>
<style>
text { fill: #1f2328 } .grid { stroke: #8c959f; stroke-opacity: .4 } .line { stroke: #2f81f7; stroke-width: 2; fill: none } .dot { fill: #2f81f7 }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }
</style>
<text x="%d" y="20">Simulated start of a job by hosts, 64 ranks each, Slingshot's parameters</text>
`, left+width+150, top+height+40, left)
	for _, s := range []float64{0.01, 0.1, 1, 10, 100} {
		fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%g s</text>`+"\n", left, y(s), left+width, left-8, y(s)+4, s)
	}
	for _, r := range rows {
		fmt.Fprintf(&b, `<path class="grid" d="M%.1f %dV%d"/><text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(r.hosts), top, top+height, x(r.hosts), top+height+20, r.hosts)
	}
	for _, line := range []struct {
		name string
		of   func(r bootRow) int
	}{{"all, 32 logins", func(r bootRow) int { return r.up }}, {"all, 256 logins", func(r bootRow) int { return r.up - r.reached + r.wide }}, {"after the logins", func(r bootRow) int { return r.up - r.reached }}} {
		var path strings.Builder
		var end float64
		for i, r := range rows {
			end = y(float64(line.of(r)) / 1e9)
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x(r.hosts), end)
			fmt.Fprintf(&b, `<circle class="dot" cx="%.1f" cy="%.1f" r="3"/>`, x(r.hosts), end)
		}
		fmt.Fprintf(&b, `<path class="line" d="%s"/><text x="%d" y="%.1f">%s</text>`+"\n", path.String(), left+width+8, end+4, line.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
