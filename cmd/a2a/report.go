package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

// The places of what is counted in one call.
const (
	countWrites = iota
	countWriteBytes
	countReads
	countReadBytes
	countCopies
	countCopyBytes
	countReductions
	countReduceBytes
	countSignals
	countDescriptors
	countCredits
	countDeviceWrites
	countKernels
	countPosted
	counters
)

// The places of what is counted from Init to the end of the first call, and behind
// them of the switches in the timed calls.
const (
	startSleeps = iota
	startOverslept
	startDatagrams
	startLate
	steadySwitches
)

// starting is what was counted since Init, by the places above.
func starting(n rank.Counters) []uint64 {
	return []uint64{startSleeps: n.Sleeps, startOverslept: n.Overslept, startDatagrams: n.Datagrams, startLate: n.Late}
}

// A reading is what a rank has counted: of all that it did, and of what its engine did
// with threads of its own.
type reading struct {
	rank.Counters
	engine engineCounts
}

func (e *exchange) reading() reading { return reading{e.world.Counters(), e.engine.counts()} }

// delta is what was counted between two readings, by the places above.
func delta(before, after reading) []uint64 {
	d := make([]uint64, counters)
	d[countWrites] = after.Collective.Puts - before.Collective.Puts
	d[countWriteBytes] = after.Collective.PutBytes - before.Collective.PutBytes
	d[countReads] = after.Collective.Gets - before.Collective.Gets
	d[countReadBytes] = after.Collective.GetBytes - before.Collective.GetBytes
	d[countReductions] = after.Collective.Reductions - before.Collective.Reductions
	d[countReduceBytes] = after.Collective.ReduceBytes - before.Collective.ReduceBytes
	d[countCopies] = after.Collective.Copies - before.Collective.Copies
	d[countCopyBytes] = after.Collective.CopyBytes - before.Collective.CopyBytes
	d[countSignals] = after.Collective.Signals - before.Collective.Signals
	d[countDescriptors] = after.Collective.Descriptors - before.Collective.Descriptors
	d[countCredits] = after.Collective.Credits - before.Collective.Credits
	d[countDeviceWrites] = after.Device.Writes - before.Device.Writes
	of, was := &after.engine, &before.engine
	d[countWrites] += of.writes - was.writes
	d[countWriteBytes] += of.writeBytes - was.writeBytes
	d[countSignals] += of.signals - was.signals
	d[countKernels] = of.kernels - was.kernels
	d[countPosted] = of.posted - was.posted
	return d
}

// steady sums up the times of the timed calls of all ranks.
type steady struct{ min, median, p99 time.Duration }

// summarize sorts the samples. A quantile is the smallest sample that at
// least so large a part of all samples does not exceed.
func summarize(samples []int64) steady {
	if len(samples) == 0 {
		return steady{}
	}
	slices.Sort(samples)
	at := func(percent int) time.Duration {
		return time.Duration(samples[max(0, (len(samples)*percent+99)/100-1)])
	}
	return steady{min: at(0), median: at(50), p99: at(99)}
}

// report is what rank 0 tells at the end.
type report struct {
	ranks        int
	params       params
	device       rank.DeviceInfo // rank 0's
	pinned       bool            // the engine's threads, of rank 0
	setUp, first time.Duration   // of the slowest rank
	steady       steady          // over the calls of all ranks
	timed, calls int
	counted      []uint64 // in the first call, all ranks together
	started      []uint64 // from Init to its end, likewise, and the switches of the timed calls
}

// devices names the devices in use, with the provider.
func (r *report) devices() []string {
	if names := r.params.devices(); names != nil {
		return names
	}
	return []string{r.device.Name}
}

// engine names the engine, with its threads.
func (r *report) engine() string {
	if r.params.threads == 0 {
		return r.params.engine
	}
	cpus := "sharing CPUs"
	if r.pinned {
		cpus = "pinned"
	}
	return fmt.Sprintf("%s (%s a rank, %s)", r.params.engine, count(r.params.threads, "device thread", "device threads"), cpus)
}

// text is the report for people.
func (r *report) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "set-up        %s\n", span(r.setUp))
	fmt.Fprintf(&b, "first call    %s\n", span(r.first))
	if r.timed > 0 {
		fmt.Fprintf(&b, "steady state  min %s, median %s, p99 %s (%s on %s)\n",
			span(r.steady.min), span(r.steady.median), span(r.steady.p99), count(r.timed, "call", "calls"), count(r.ranks, "rank", "ranks"))
	} else {
		b.WriteString("steady state  not measured (-i 0)\n")
	}
	fmt.Fprintf(&b, "verified      %s of %d, on every rank\n", count(r.calls, "call", "calls"), r.calls)
	of, moved := "call", r.writes()+" in all, "+count(r.counted[countCopies], "copy", "copies")+" (own blocks)"
	if op := r.params.operation(); op != allToAll {
		of, moved = op.String(), fmt.Sprintf("%s, %s of %d bytes in all, %s, %s", r.writes(), count(r.counted[countReads], "read", "reads"), r.counted[countReadBytes],
			count(r.counted[countCopies], "copy", "copies"), count(r.counted[countReductions], "reduction", "reductions"))
	}
	fmt.Fprintf(&b, "device        %s (%s), in one %s by engine %s: %s, %s\n",
		strings.Join(r.devices(), ","), r.device.Provider, of, r.engine(), moved, count(r.counted[countSignals], "signal", "signals"))
	return b.String()
}

// writes are those of payload.
func (r *report) writes() string {
	return fmt.Sprintf("%s of %d bytes", count(r.counted[countWrites], "write", "writes"), r.counted[countWriteBytes])
}

// count is a number of things: "1 call", "2 calls".
func count[N int | uint64](n N, one, more string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", one)
	}
	return fmt.Sprintf("%d %s", n, more)
}

// span prints a time with three or four significant digits.
func span(d time.Duration) string {
	switch {
	case d < 10*time.Microsecond:
		return fmt.Sprintf("%.3f us", d.Seconds()*1e6)
	case d < time.Millisecond:
		return fmt.Sprintf("%.1f us", d.Seconds()*1e6)
	case d < time.Second:
		return fmt.Sprintf("%.3f ms", d.Seconds()*1e3)
	}
	return fmt.Sprintf("%.3f s", d.Seconds())
}

// results is the report for programs.
type results struct {
	Ranks    int      `json:"ranks"`
	Op       string   `json:"op"`
	MsgSize  int      `json:"msgsize"`
	PerPeer  int      `json:"bytes_per_peer"`
	Seed     int64    `json:"seed"`
	Devices  []string `json:"devices"`
	Provider string   `json:"provider"`
	// Engine ran the calls, with so many threads of its own a rank, which are pinned to CPUs or share them.
	Engine  string `json:"engine"`
	Threads int    `json:"threads"`
	Pinned  bool   `json:"pinned"`

	SetUp    float64     `json:"set_up_us"`     // of the slowest rank, from the start of the process
	First    float64     `json:"first_call_us"` // of the slowest rank
	Steady   steadyState `json:"steady_state"`
	Warmup   int         `json:"warmup"`
	Verified int         `json:"verified_calls"` // all there were, on every rank
	// OneCall is what the ranks counted together during the first call.
	OneCall callCount `json:"one_call"`
	// Start is what they counted from Init to its end.
	Start startCount `json:"start"`
}

type startCount struct {
	// Sleeps are those of waiting ranks; overslept ones were ended by a time-out
	// although what the rank waited for had come.
	Sleeps    uint64 `json:"sleeps"`
	Overslept uint64 `json:"overslept"`
	// Datagrams make connections; late are those of which only a repetition arrived.
	Datagrams uint64 `json:"datagrams"`
	Late      uint64 `json:"late"`
}

// steadyState is over all timed calls of all ranks.
type steadyState struct {
	Iterations int     `json:"iterations"`
	Min        float64 `json:"min_us"`
	Median     float64 `json:"median_us"`
	P99        float64 `json:"p99_us"`
	// Switches are the context switches of a rank in a call, on average; what it does
	// between the batches of calls counts too.
	Switches float64 `json:"context_switches"`
}

type callCount struct {
	Writes     uint64 `json:"writes"`
	WriteBytes uint64 `json:"write_bytes"`
	Copies     uint64 `json:"copies"`
	CopyBytes  uint64 `json:"copy_bytes"`
	// Reads are of long data, which the rank that needs them reads; reductions combine two vectors. All-to-alls have neither.
	Reads       uint64 `json:"reads"`
	ReadBytes   uint64 `json:"read_bytes"`
	Reductions  uint64 `json:"reductions"`
	ReduceBytes uint64 `json:"reduce_bytes"`
	// Signals announce writes; descriptors, two RDMA writes each, tell where
	// to write; credits give buffers back.
	Signals     uint64 `json:"signals"`
	Descriptors uint64 `json:"descriptors"`
	Credits     uint64 `json:"credits"`
	// DeviceWrites are the RDMA writes that the device executed: writes,
	// signals, credits and twice the descriptors.
	DeviceWrites uint64 `json:"device_writes"`
	// Kernels is how often threads of the engine have run its kernel, PostedByThreads
	// how many requests they have posted; the rest of them was posted by the ranks themselves.
	Kernels         uint64 `json:"kernels"`
	PostedByThreads uint64 `json:"posted_by_threads"`
}

func (r *report) results() results {
	return results{
		Ranks: r.ranks, Op: r.params.op, MsgSize: r.params.msgsize, PerPeer: r.params.perPeer(r.ranks) * intSize, Seed: r.params.seed,
		Devices: r.devices(), Provider: r.device.Provider,
		Engine: r.params.engine, Threads: r.params.threads, Pinned: r.pinned,
		SetUp: micros(r.setUp), First: micros(r.first),
		Steady: steadyState{Iterations: r.timed, Min: micros(r.steady.min), Median: micros(r.steady.median), P99: micros(r.steady.p99),
			Switches: float64(r.started[steadySwitches]) / float64(max(1, r.timed*r.ranks))},
		Warmup: r.params.warmup, Verified: r.calls, OneCall: callCounts(r.counted),
		Start: startCount{Sleeps: r.started[startSleeps], Overslept: r.started[startOverslept],
			Datagrams: r.started[startDatagrams], Late: r.started[startLate]},
	}
}

// callCounts names what was counted.
func callCounts(counted []uint64) callCount {
	return callCount{Writes: counted[countWrites], WriteBytes: counted[countWriteBytes], Copies: counted[countCopies],
		CopyBytes: counted[countCopyBytes],
		Reads:     counted[countReads], ReadBytes: counted[countReadBytes], Reductions: counted[countReductions], ReduceBytes: counted[countReduceBytes], Signals: counted[countSignals], Descriptors: counted[countDescriptors],
		Credits: counted[countCredits], DeviceWrites: counted[countDeviceWrites],
		Kernels: counted[countKernels], PostedByThreads: counted[countPosted]}
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
