package main

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// header is the first object of a file of results.
type header struct {
	Header   bool              `json:"header"` // true: tells it from a row
	Time     time.Time         `json:"time"`
	Machine  machine           `json:"machine"`
	Versions map[string]string `json:"versions"` // of gorun, go, mpich, openmpi
	Commit   string            `json:"commit"`   // "" where the build does not know it
	Command  string            `json:"command"`
	// How the calls were timed, in a sentence.
	Method string `json:"method"`
	// Complete is false when the session was ended early.
	Complete bool `json:"complete"`
	// The machine's load average before and after, and how many of the planned rounds were made.
	LoadBefore float64 `json:"load_before,omitempty"`
	LoadAfter  float64 `json:"load_after,omitempty"`
	Rounds     int     `json:"rounds,omitempty"`
	Planned    int     `json:"rounds_planned,omitempty"`
}

// machine is where it was measured.
type machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"` // that the ranks may use
	Kernel string `json:"kernel"`
	Memory int64  `json:"memory_bytes"`
	System string `json:"system,omitempty"` // the distribution
	Costs  *costs `json:"costs,omitempty"`  // nil: of an older file
}

// costs are what the machine charged when the session began, by which figures of two machines
// can be read beside each other. 0: not measured.
type costs struct {
	Call  float64 `json:"system_call_us"`
	Fault float64 `json:"page_fault_us"`
	Hand  float64 `json:"pipe_round_us"`
	Line  float64 `json:"cache_line_round_us"`
	Fork  float64 `json:"process_us"`
}

func (c *costs) String() string {
	var list []string
	for _, one := range []struct {
		what string
		us   float64
	}{{"a system call", c.Call}, {"the first touch of a page", c.Fault}, {"a cache line to another CPU and back", c.Line},
		{"a byte through a pipe to another thread and back", c.Hand}, {"a process", c.Fork}} {
		if one.us > 0 {
			list = append(list, fmt.Sprintf("%s %.3g us", one.what, one.us))
		}
	}
	return strings.Join(list, ", ")
}

// A row is one object of the results: a system's figures for one benchmark,
// number of ranks and size. Times are in microseconds a call, or a message.
type row struct {
	Benchmark  string  `json:"benchmark"`
	System     string  `json:"system"`
	NP         int     `json:"np"`
	Bytes      int     `json:"bytes"`
	Type       string  `json:"type"`
	Memory     string  `json:"memory"`
	Median     float64 `json:"median_us"` // the median of the runs' medians
	P10        float64 `json:"p10_us"`    // so with the other quantiles
	P90        float64 `json:"p90_us"`
	P99        float64 `json:"p99_us"`
	Runs       int     `json:"runs"`
	Iterations int     `json:"iterations"` // of all runs
	Verified   bool    `json:"verified"`

	// Progress is that of threads: off, on or auto, of MPICH on; daemon: gorun's --offload.
	Progress string `json:"async_progress,omitempty"`
	// Engine is what ran the collective (--engine), and Executed the calls of all ranks that it ran from the first
	// step to the last: all there were.
	Engine   string `json:"engine,omitempty"`
	Executed uint64 `json:"engine_calls,omitempty"`
	// Application is the command that was measured instead of ranks of gorun-bench.
	Application string `json:"application,omitempty"`

	Variant   string  `json:"variant,omitempty"` // the settings that were best
	Least     float64 `json:"min_us"`            // of the runs' medians
	Most      float64 `json:"max_us"`
	Rate      float64 `json:"messages_per_s,omitempty"`
	Bandwidth float64 `json:"mb_per_s,omitempty"` // 10^6 bytes
	// Of non-blocking calls: the work beside, both together, the work alone, the blocking
	// call, and in per cent OSU's overlap and the honest one.
	Compute float64  `json:"compute_us,omitempty"`
	Total   float64  `json:"total_us,omitempty"`
	Alone   float64  `json:"alone_us,omitempty"`
	Comm    float64  `json:"comm_us,omitempty"`
	Overlap *float64 `json:"overlap,omitempty"`
	Honest  *float64 `json:"overlap_honest,omitempty"`
	// Daemon is what the daemon worked on a call of a rank.
	Daemon float64 `json:"daemon_work_us,omitempty"`
	// The least and the most of the rounds.
	HonestLeast float64 `json:"overlap_honest_min,omitempty"`
	HonestMost  float64 `json:"overlap_honest_max,omitempty"`
	// The median of the rounds' quotients of our time by the better peer's.
	Ratio     float64 `json:"ratio,omitempty"`
	RatioLow  float64 `json:"ratio_min,omitempty"`
	RatioHigh float64 `json:"ratio_max,omitempty"`
	Pairs     int     `json:"pairs,omitempty"`
	Peer      string  `json:"peer,omitempty"`

	Explanation string `json:"chosen,omitempty"` // which algorithm and why
	Failed      string `json:"failed,omitempty"` // why there are no figures
}

// better tells whether r says more for its system than the variant before. In
// doubt the peer is given credit: a fast time counts however few rounds gave it.
func (r *row) better(old *row) bool {
	if r.Verified != old.Verified {
		return r.Verified
	}
	if (r.Runs > 0) != (old.Runs > 0) {
		return r.Runs > 0
	}
	return r.Median < old.Median
}

// writeJSON writes the header and then the rows, an object a line.
func writeJSON(w io.Writer, h *header, rows []row) error {
	e := json.NewEncoder(w)
	if err := e.Encode(h); err != nil {
		return err
	}
	for i := range rows {
		if err := e.Encode(&rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// maxRecord bounds a line of a file of results.
const maxRecord = 1 << 20

// readJSON reads what writeJSON wrote.
func readJSON(r io.Reader) (*header, []row, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxRecord)
	var h header
	var rows []row
	for n := 1; lines.Scan(); n++ {
		var into any = &h
		if n > 1 {
			rows = append(rows, row{})
			into = &rows[len(rows)-1]
		}
		if err := json.Unmarshal(lines.Bytes(), into); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, nil, err
	}
	if !h.Header {
		return nil, nil, errors.New("the first line is no header of gorun-bench")
	}
	for i := range rows {
		if err := rows[i].validate(); err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", i+2, err)
		}
	}
	return &h, rows, nil
}

// validate finds what no session gives.
func (r *row) validate() error {
	systems := append([]string{gorun}, rivals[:]...)
	switch {
	case find(r.Benchmark) == nil:
		return fmt.Errorf("no benchmark is called %q", r.Benchmark)
	case !slices.Contains(systems, r.System):
		return fmt.Errorf("found the system %q, expected one of %s", r.System, strings.Join(systems, ", "))
	case r.Memory != registered && r.Memory != ordinary:
		return fmt.Errorf("found the memory %q, expected %s or %s", r.Memory, registered, ordinary)
	case !slices.Contains([]string{"", "off", progressOn, "auto", progressDaemon}, r.Progress):
		return fmt.Errorf("found the async_progress %q, expected off, on, auto or daemon", r.Progress)
	case r.Engine != "" && !slices.Contains(engines, r.Engine):
		return fmt.Errorf("found the engine %q, expected one of %s", r.Engine, strings.Join(engines, ", "))
	case r.NP < 1 || r.NP > maxRanks || r.Bytes < 0 || r.Bytes > maxSize || r.Runs < 0:
		return fmt.Errorf("found %d ranks, %d bytes, %d runs", r.NP, r.Bytes, r.Runs)
	}
	var times []float64
	if r.Runs > 0 {
		times = append(times, r.Median, r.P10, r.P90, r.P99, r.Least, r.Most)
	}
	if r.Peer != "" {
		if !slices.Contains(systems[1:], r.Peer) {
			return fmt.Errorf("found a ratio to %q", r.Peer)
		}
		times = append(times, r.Ratio, r.RatioLow, r.RatioHigh)
	}
	for _, v := range times {
		if !(v > 0 && v < math.MaxFloat32) {
			return fmt.Errorf("found %g, expected times and ratios above 0", v)
		}
	}
	return nil
}

// writeCSV writes the rows under a line of names; the header has no place here.
func writeCSV(w io.Writer, rows []row) error {
	c := csv.NewWriter(w)
	write := func(fields ...string) { _ = c.Write(fields) } // Error has it in the end
	write("benchmark", "system", "np", "bytes", "type", "memory", "median_us", "p10_us", "p90_us", "p99_us", "runs", "iterations",
		"verified", "async_progress", "engine", "engine_calls", "application", "variant", "min_us", "max_us", "messages_per_s", "mb_per_s", "compute_us", "total_us", "alone_us", "comm_us", "overlap", "overlap_honest", "daemon_work_us",
		"ratio", "ratio_min", "ratio_max", "peer", "failed")
	f := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	some := func(v float64) string {
		if v == 0 {
			return ""
		}
		return f(v)
	}
	for _, r := range rows {
		overlap, honest, executed := "", "", ""
		if r.Engine != "" {
			executed = strconv.FormatUint(r.Executed, 10)
		}
		if r.Overlap != nil && r.Honest != nil {
			overlap, honest = f(*r.Overlap), f(*r.Honest)
		}
		write(r.Benchmark, r.System, strconv.Itoa(r.NP), strconv.Itoa(r.Bytes), r.Type, r.Memory, f(r.Median), f(r.P10), f(r.P90), f(r.P99),
			strconv.Itoa(r.Runs), strconv.Itoa(r.Iterations), strconv.FormatBool(r.Verified), r.Progress, r.Engine, executed, r.Application, r.Variant, f(r.Least), f(r.Most), some(r.Rate), some(r.Bandwidth),
			some(r.Compute), some(r.Total), some(r.Alone), some(r.Comm), overlap, honest, some(r.Daemon), some(r.Ratio), some(r.RatioLow), some(r.RatioHigh), r.Peer, r.Failed)
	}
	c.Flush()
	return c.Error()
}
