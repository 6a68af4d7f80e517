package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// tables are those of the guides, and what stands beside them: how many rows each has on the page.
var tables = map[string]int{
	"Message size": 4, "Message count": 7, "Buffer size": 8, // of the secure channel
	"Message length, four processes": 4, "Ranks, `-m 64`": 4, "Longer messages, two processes": 2, "Set-up and first call": 7, // of the all-to-all
	"Message length": 4, "Offload": 16, // of the all-reduce
	"Iallreduce beside a sleep": 6, "Ialltoall beside a sleep": 6, "Beside work on the ranks' CPUs": 4, "Blocking calls": 6,
}

// skeleton is the page of a run that had no time for anything.
func skeleton(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := (&measuring{bin: t.TempDir(), dir: t.TempDir(), plots: t.TempDir()}).page(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return p.markdown()
}

// parsed are a page's tables by their titles: the line of names, and the rows.
func parsed(page string) map[string][][]string {
	found, title := map[string][][]string{}, ""
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "### "); ok {
			title = name
		}
		if strings.HasPrefix(line, "| ") {
			found[title] = append(found[title], strings.Split(strings.Trim(line, "| "), " | "))
		}
	}
	return found
}

// sameForm holds a page against the skeleton: the tables, their columns, and of each row what no run gives.
func sameForm(t *testing.T, page, skeleton string) {
	t.Helper()
	got, want := parsed(page), parsed(skeleton)
	for title, rows := range tables {
		if len(want[title]) != rows+1 {
			t.Errorf("%s: the program has %d rows for it, want %d", title, len(want[title])-1, rows)
		}
		if len(got[title]) != len(want[title]) {
			t.Errorf("%s: the page has %d rows, want %d", title, len(got[title])-1, len(want[title])-1)
			continue
		}
		for i, row := range want[title] {
			for k, cell := range row {
				if len(got[title][i]) != len(row) || !filled(cell) && got[title][i][k] != cell {
					t.Errorf("%s: found the row %q, want the form %q", title, got[title][i], row)
					break
				}
			}
		}
	}
	if len(want) != len(tables) || len(got) != len(want) {
		t.Errorf("the page has %d tables and the program %d, want %d", len(got), len(want), len(tables))
	}
}

// filled tells whether a cell of the skeleton is one that a run fills.
func filled(cell string) bool { return cell == notMeasured || cell == "not installed" }

// docs/results.md has every table and every row that the program writes, and its plots.
func TestPageIsWhole(t *testing.T) {
	docs := filepath.Join("..", "..", "docs")
	text, err := os.ReadFile(filepath.Join(docs, pageName))
	if err != nil {
		t.Fatal(err)
	}
	sameForm(t, string(text), skeleton(t))
	hasPlots(t, docs, string(text))
	if strings.Contains(string(text), "WRONG") {
		t.Error("the page has a wrong result")
	}
}

// hasPlots finds the plots that a page shows.
func hasPlots(t *testing.T, dir, page string) {
	t.Helper()
	shown := regexp.MustCompile(`!\[[^]]+\]\(([^)]+)\)`).FindAllStringSubmatch(page, -1)
	if len(shown) != 4 {
		t.Errorf("the page shows %d plots, want 4", len(shown))
	}
	for _, s := range shown {
		if text, err := os.ReadFile(filepath.Join(dir, s[1])); err != nil || !strings.Contains(string(text), "<polyline") {
			t.Errorf("%s: %v, want a plot with curves", s[1], err)
		}
	}
}

// spare is the part of the CPUs' time that a quick run finds free on a machine that has nothing else to do. Its sessions end by
// their limits, so that a busy machine costs rows rather than time: there even our cells may say why they are empty.
const spare = 0.9

// busy is the time that all CPUs have worked for anybody.
func busy(t *testing.T) time.Duration {
	t.Helper()
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		t.Fatal(err)
	}
	var n [8]int64 // user, nice, system, idle, iowait, irq, softirq and steal, in hundredths of a second (proc(5))
	line, _, _ := strings.Cut(string(text), "\n")
	if k, err := fmt.Sscanf(line, "cpu %d %d %d %d %d %d %d %d", &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7]); k != len(n) {
		t.Fatalf("%q: %v", line, err)
	}
	return time.Duration(n[0]+n[1]+n[2]+n[5]+n[6]+n[7]) * 10 * time.Millisecond
}

// A quick run fills every cell of ours, and each MPI's or says why not.
func TestQuickRun(t *testing.T) {
	testenv.Part(t, testenv.Results)
	testenv.Need(t, "mpiexec.mpich")
	testenv.Need(t, "mpirun.openmpi")
	bin, to := t.TempDir(), t.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./cmd/gorun", "./cmd/gorun-offload", "./cmd/a2a", "./cmd/secure-channel", "./cmd/allreduce", "./cmd/gorun-bench", "./cmd/gorun-bench-init", "./e2e/results")
	build.Dir = filepath.Join("..", "..")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	cmd := exec.CommandContext(testenv.Deadline(t, quickly+time.Minute), filepath.Join(bin, "results"), "-bin", bin, "-to", to, "-quick")
	begun, worked := time.Now(), busy(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	others := busy(t) - worked - cmd.ProcessState.UserTime() - cmd.ProcessState.SystemTime()
	late := others > time.Duration((1-spare)*float64(runtime.NumCPU())*float64(time.Since(begun)))
	t.Logf("it took %v; meanwhile others had the CPUs for %v", time.Since(begun), others)
	text, err := os.ReadFile(filepath.Join(to, pageName))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	sameForm(t, page, skeleton(t))
	hasPlots(t, to, page)
	number, reason := regexp.MustCompile(`^-?\d+(\.\d+)?( %)?$`), regexp.MustCompile(`^(no figure: .*|no time)$`)
	for title, rows := range parsed(skeleton(t)) {
		found := parsed(page)[title]
		if len(found) != len(rows) {
			continue // told above
		}
		for i, row := range rows {
			for k, cell := range row {
				if !filled(cell) {
					continue
				}
				mpi := strings.Contains(rows[0][k]+row[min(1, len(row)-1)], "MPI")
				if got := found[i][k]; !number.MatchString(got) && !((mpi || late) && reason.MatchString(got)) {
					t.Errorf("%s: %q in the row %q, under %q, want a figure", title, got, found[i], rows[0][k])
				}
			}
		}
	}
	for _, want := range []string{"make results QUICK=1", "; MPICH ", "; Open MPI ", "cores of "} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q at the head of the page", want)
		}
	}
}

// What a run cannot fill says why.
func TestCellsSayWhyTheyAreEmpty(t *testing.T) {
	b := bench{installed: map[string]bool{"gorun": true, "mpich": true}}
	good := row{Median: 2.5, Least: 2, Most: 150.4, Runs: 3, Verified: true}
	failed := row{Failed: "mpiexec | did not end\nand more"}
	wrong := row{Median: 1, Runs: 3}
	for _, c := range []struct {
		column column
		row    *row
		want   string
	}{
		{mpis[2], &good, "not installed"},
		{mpis[0], nil, "no time"},
		{mpis[0], &failed, "no figure: mpiexec / did not end"},
		{ranksOn, &wrong, "WRONG"},
		{ranksOn, &good, "2.50 (2.00..150)"},
	} {
		if got := b.cell(c.column, c.row, times); got != c.want {
			t.Errorf("%s: %q, want %q", c.column.title, got, c.want)
		}
	}
}
