package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
)

func TestSummarize(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(100 - i)
	}
	for _, c := range []struct {
		name    string
		samples []int64
		want    steady
	}{
		{"none", nil, steady{}},
		{"one", []int64{7}, steady{7, 7, 7}},
		{"two", []int64{9, 3}, steady{3, 3, 9}},
		{"three", []int64{9, 3, 5}, steady{3, 5, 9}},
		{"hundred", hundred, steady{1, 50, 99}},
	} {
		if got := summarize(c.samples); got != c.want {
			t.Errorf("%s: summarize = %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0.000 us", 812 * time.Nanosecond: "0.812 us", 12_345 * time.Nanosecond: "12.3 us",
		3_412_345 * time.Nanosecond: "3.412 ms", 1_521 * time.Millisecond: "1.521 s",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%d ns) = %q, want %q", d, got, want)
		}
	}
}

func sample() *report {
	before := reading{Counters: rank.Counters{Device: rdma.Counters{Writes: 5}}}
	after := reading{Counters: rank.Counters{Device: rdma.Counters{Writes: 33}}, engine: engineCounts{kernels: 3, posted: 7}}
	after.Collective.Puts, after.Collective.PutBytes = 12, 96
	after.Collective.Copies, after.Collective.CopyBytes, after.Collective.Signals = 4, 32, 12
	after.Collective.Descriptors, after.Collective.Credits = 1, 2
	return &report{ranks: 4, params: params{op: "alltoall", msgsize: 32, engine: engineInline, warmup: 100, seed: 1}, device: rank.DeviceInfo{Name: "soft0", Provider: "soft"},
		setUp: 3412 * time.Microsecond, first: 12300, steady: steady{812, 934, 1720}, timed: 1000, calls: 1117, counted: delta(before, after),
		started: append(starting(rank.Counters{Sleeps: 3, Overslept: 1, Datagrams: 24, Late: 2}), 6000)}
}

func TestReportText(t *testing.T) {
	want := `set-up        3.412 ms
first call    12.3 us
steady state  min 0.812 us, median 0.934 us, p99 1.720 us (1000 calls on 4 ranks)
verified      1117 calls of 1117, on every rank
device        soft0 (soft), in one call by engine inline: 12 writes of 96 bytes in all, 4 copies (own blocks), 12 signals
`
	if got := sample().text(); got != want {
		t.Errorf("text is\n%s\nwant\n%s", got, want)
	}
	r := sample()
	r.timed, r.params.deviceList = 0, "a,b"
	r.params.engine, r.params.threads = engineDPA, 1
	if got := r.text(); !strings.Contains(got, "steady state  not measured (-i 0)\n") || !strings.Contains(got, "device        a,b (soft), in one call by engine dpa (1 device thread a rank, sharing CPUs): 12 writes") {
		t.Errorf("text without timed calls and with two devices is\n%s", got)
	}
	r = sample()
	r.params.op = "allreduce"
	r.counted[countReads], r.counted[countReadBytes], r.counted[countReductions] = 1, 8, 12
	if got, want := r.text(), "in one allreduce by engine inline: 12 writes of 96 bytes, 1 read of 8 bytes in all, 4 copies, 12 reductions, 12 signals\n"; !strings.HasSuffix(got, want) {
		t.Errorf("text of an all-reduce is\n%s\nwant at its end %s", got, want)
	}
}

func TestReportJSON(t *testing.T) {
	data, err := json.Marshal(sample().results())
	if err != nil {
		t.Fatal(err)
	}
	var got results
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	if got.Ranks != 4 || got.Op != "alltoall" || got.Engine != engineInline || got.PerPeer != 8 || got.Steady.Median != 0.934 || got.Steady.Switches != 1.5 || got.Verified != 1117 || got.OneCall != (callCount{Writes: 12, WriteBytes: 96, Copies: 4, CopyBytes: 32, Signals: 12, Descriptors: 1, Credits: 2, DeviceWrites: 28, Kernels: 3, PostedByThreads: 7}) || got.Start != (startCount{3, 1, 24, 2}) {
		t.Errorf("results are %+v", got)
	}
}
