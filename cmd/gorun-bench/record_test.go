package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// recorded is a session as it might have been: gorun beside both MPIs in three
// rounds, of which one MPI missed one, with a wrong result and a system that failed.
func recorded() (*header, []point, *results) {
	points := []point{{"latency", "byte", 8}, {"bw", "byte", 1 << 20}, {"barrier", "byte", 0}, {"allreduce", "float", 8}, {"allreduce", "float", 1 << 20}}
	if find("bw") == nil {
		points[1].benchmark = "alltoall"
	}
	r := &results{}
	// Times by system and point.
	systems := []struct {
		job   job
		times []float64
	}{
		{job{contender: &contender{system: gorun, memory: registered}, np: 2}, []float64{0.25, 40, 0.3, 0.2, 60}},
		{job{contender: &contender{system: gorun, memory: ordinary}, np: 2}, []float64{0.28, 50, 0, 0.22, 190}},
		{job{contender: &contender{system: mpich, memory: ordinary, variant: "core"}, np: 2}, []float64{0.4, 60, 0.85, 0.6, 226}},
		{job{contender: &contender{system: mpich, memory: ordinary, variant: "none"}, np: 2}, []float64{0.5, 55, 0.9, 0.7, 300}},
		{job{contender: &contender{system: openmpi, memory: ordinary, variant: "core"}, np: 2}, []float64{0.3, 70, 0.34, 0.4, 192}},
	}
	for i := range systems {
		s := &systems[i]
		for round := range 3 {
			for k, us := range s.times {
				if us == 0 || s.job.system == mpich && round == 2 {
					continue
				}
				us *= 1 + float64(round)/10
				one := sample{batch: 1, count: 100, p10: us * 0.9, p50: us, p90: us * 1.2, p99: us * 3}
				if s.job.system == openmpi && k == 0 {
					one = sample{wrong: true}
				}
				r.add(&s.job, points[k], round, one)
			}
		}
	}
	dead := job{contender: &contender{system: mpich, memory: ordinary}, np: 4, points: points[3:4]}
	r.fail(&dead, errors.New("mpiexec: signal: killed\nand more"))
	alone := job{contender: &contender{system: gorun, memory: registered}, np: 4}
	r.add(&alone, points[3], 0, sample{batch: 2, count: 50, p10: 1, p50: 2, p90: 3, p99: 4, explanation: "recursive-doubling, in messages (few bytes: fewest steps)"})
	h := &header{Header: true, Time: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Machine: machine{CPU: "A CPU <of> this & that", Cores: 2, Kernel: "Linux 6.1", Memory: 24 << 30},
		Versions: map[string]string{"gorun": "0.1.0", "go": "go1.26", "mpich": "4.0.2", "openmpi": "4.1.4"}, Commit: "0123456789ab",
		Command: "gorun-bench --quick", Method: (&params{}).method(), Complete: true}
	return h, points, r
}

func TestRowsTakeTheBestVariantAndPairRounds(t *testing.T) {
	_, points, r := recorded()
	rows := r.rows(points)
	byPlace := map[[2]string]row{}
	for _, one := range rows {
		if one.NP == 2 && one.Bytes == points[1].bytes && one.Benchmark == points[1].benchmark {
			byPlace[[2]string{one.System, one.Memory}] = one
		}
	}
	peer := byPlace[[2]string{mpich, ordinary}]
	if peer.Variant != "none" || peer.Runs != 2 || math.Abs(peer.Median-57.75) > 1e-9 || peer.Iterations != 200 {
		t.Errorf("mpich: got %+v, want the variant none with 57.75 us of 2 runs", peer)
	}
	ours := byPlace[[2]string{gorun, registered}]
	if ours.Peer != mpich || ours.Pairs != 2 || math.Abs(ours.Ratio-40.0/55) > 1e-4 || ours.Runs != 3 || math.Abs(ours.Median-44) > 1e-9 {
		t.Errorf("gorun: got %+v, want the ratio %.3f to mpich of 2 pairs", ours, 40.0/55)
	}
	for _, one := range rows {
		switch {
		case one.System != gorun && one.Peer != "":
			t.Errorf("a peer has a ratio: %+v", one)
		case one.Benchmark == "latency" && one.System == openmpi && (one.Verified || one.Median != 0):
			t.Errorf("a wrong result has times: %+v", one)
		case one.Benchmark == "latency" && one.System == gorun && one.Peer != mpich:
			t.Errorf("the ratio is to a wrong result: %+v", one)
		}
	}
	if !r.bad() {
		t.Error("a wrong result and a failed system are no fault of the session")
	}
}

// A ratio keeps its digits however small it is.
func TestSmallRatios(t *testing.T) {
	p := point{"barrier", "byte", 0}
	r := &results{}
	for system, us := range map[string]float64{gorun: 0.0004, mpich: 20} {
		r.add(&job{contender: &contender{system: system, memory: ordinary}, np: 2}, p, 0, sample{batch: 1, count: 1, p10: us, p50: us, p90: us, p99: us})
	}
	for _, one := range r.rows([]point{p}) {
		if one.System == gorun && one.Ratio != 0.00002 {
			t.Errorf("got %+v, want the ratio 0.00002", one)
		}
	}
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s\n(go test -run %s -update writes it anew)", name, got, want, t.Name())
	}
}

func TestTable(t *testing.T) {
	h, points, r := recorded()
	rows := r.rows(points)
	var b strings.Builder
	if err := writeTable(&b, rows); err != nil {
		t.Fatal(err)
	}
	writeNotes(&b, h, rows, true)
	golden(t, "table.txt", b.String())
}

func TestCSV(t *testing.T) {
	_, points, r := recorded()
	var b strings.Builder
	if err := writeCSV(&b, r.rows(points)); err != nil {
		t.Fatal(err)
	}
	records, err := csv.NewReader(strings.NewReader(b.String())).ReadAll()
	if err != nil || len(records) != 1+len(r.rows(points)) {
		t.Errorf("%d records, error %v; want a line of names and %d rows", len(records), err, len(r.rows(points)))
	}
	golden(t, "rows.csv", b.String())
}

func TestJSON(t *testing.T) {
	h, points, r := recorded()
	rows := r.rows(points)
	var b bytes.Buffer
	if err := writeJSON(&b, h, rows); err != nil {
		t.Fatal(err)
	}
	first, rest, _ := bytes.Cut(b.Bytes(), []byte("\n"))
	second, _, _ := bytes.Cut(rest, []byte("\n"))
	for _, c := range []struct {
		line   []byte
		fields string
	}{
		{first, "header machine versions commit command time"},
		{second, "benchmark system np bytes type memory median_us p10_us p90_us p99_us runs iterations verified"},
	} {
		var object map[string]any
		if err := json.Unmarshal(c.line, &object); err != nil {
			t.Fatal(err)
		}
		for name := range strings.FieldsSeq(c.fields) {
			if _, ok := object[name]; !ok {
				t.Errorf("no field %s in %s", name, c.line)
			}
		}
	}
	gotHeader, gotRows, err := readJSON(&b)
	if err != nil || !reflect.DeepEqual(gotHeader, h) || !reflect.DeepEqual(gotRows, rows) {
		t.Errorf("read as %+v, %+v, error %v", gotHeader, gotRows, err)
	}
	for _, text := range []string{"", "{}\n", "x\n", `{"header":true}` + "\n" + `{"benchmark":"none"}` + "\n", `{"header":true}` + "\n" + `{"np":"2"}` + "\n",
		strings.Repeat("x", maxRecord+1)} {
		if _, _, err := readJSON(strings.NewReader(text)); err == nil {
			t.Errorf("%.100q: no error", text)
		}
	}
	// What no session gives is found, not drawn.
	for _, c := range []struct {
		want  string
		spoil func(r *row)
	}{
		{"no benchmark", func(r *row) { r.Benchmark = "allredcue" }},
		{"the system", func(r *row) { r.System = "<mpi>" }},
		{"the memory", func(r *row) { r.Memory = "" }},
		{"0 ranks", func(r *row) { r.NP = 0 }},
		{"-8 bytes", func(r *row) { r.Bytes = -8 }},
		{"-1 runs", func(r *row) { r.Runs = -1 }},
		{"found 0, expected times", func(r *row) { r.Median = 0 }},
		{"found -2, expected times", func(r *row) { r.P99 = -2 }},
		{"found 1e+300, expected times", func(r *row) { r.Most = 1e300 }},
		{"found 0, expected times and ratios", func(r *row) { r.Ratio = 0 }},
		{"a ratio to", func(r *row) { r.Peer = "gorun" }},
	} {
		bad := rows[0]
		c.spoil(&bad)
		var b bytes.Buffer
		if err := writeJSON(&b, h, []row{rows[0], bad}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := readJSON(&b); err == nil || !strings.Contains(err.Error(), "line 3: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", c.want, err)
		}
	}
}

// What a machine takes is told with three digits; what could not be measured is left out.
func TestCosts(t *testing.T) {
	c := costs{Call: 0.1764, Fault: 1.958, Hand: 26.23, Fork: 789.95}
	want := "a system call 0.176 us, the first touch of a page 1.96 us, a byte through a pipe to another thread and back 26.2 us, a process 790 us"
	if got := c.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	files := outputs{}
	var out strings.Builder
	if err := files.write(&out, &header{Machine: machine{Costs: &c}}, nil, &params{}); err != nil || !strings.HasSuffix(out.String(), "The machine takes for "+want+".\n") {
		t.Errorf("the output ends with %q, %v", out.String(), err)
	}
	if c := thisMachine().Costs; c == nil || c.Call <= 0 || c.Fork <= 0 {
		t.Errorf("of this machine: %+v", c)
	}
}
