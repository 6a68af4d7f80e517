package main

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestPlanIsReadAsWritten(t *testing.T) {
	p := &plan{limit: 30 * time.Second, quota: 2500 * time.Millisecond, budget: 20 * time.Millisecond, warmup: -1, iterations: 7, separate: true, sleeps: true, memory: registered, engine: engineDPA, devices: []string{"soft0", "rxe0"},
		points: []point{{"latency", "byte", 8}, {"allreduce", "double", 1 << 20}}}
	var b bytes.Buffer
	if err := p.write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := readPlan(&b)
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Errorf("got %+v, error %v; want %+v", got, err, p)
	}
	for _, text := range []string{"point 0 latency", "point 1 latency byte 8 20000 -1 0", "limit x", "nonsense 1"} {
		if got, err := readPlan(strings.NewReader(text + "\n")); err == nil {
			t.Errorf("%q: got %+v, want an error", text, got)
		}
	}
}

func TestAnswer(t *testing.T) {
	var reported []int
	a := &answer{points: 3, samples: map[int]sample{}, report: func(i int) { reported = append(reported, i) }}
	in := &lines{take: a.line}
	s := sample{batch: 5, count: 100, p10: 1.5, p50: 2, p90: 3, p99: 4}
	o := sample{batch: 1, count: 3, p10: 1, p50: 2, p90: 3, p99: 4, compute: 2, total: 2.5, alone: 1.9, comm: 1.5, overlapped: true}
	text := fmt.Sprintf("version 1.2.3, of today\nsome library says hello\nchosen 0 by chance\nexecuted 0 12\npoint 0 %v\npoint 1 %v\nwrong 2\nend\n", s, o)
	for part := range strings.SplitAfterSeq(text, "o") { // lines come in pieces
		if _, err := in.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	s.explanation, s.executed = "by chance", 12
	want := map[int]sample{0: s, 1: o, 2: {wrong: true}}
	if in.err != nil || !a.ended || a.version != "1.2.3, of today" || !reflect.DeepEqual(a.samples, want) {
		t.Errorf("got %+v, error %v; want %+v", a, in.err, want)
	}
	if !reflect.DeepEqual(reported, []int{0, 1, 2}) {
		t.Errorf("reported %v, want each once", reported)
	}
	for _, bad := range []string{"point x 1 2 3 4 5 6", "point 1 2 3", "wrong", "wrong 3", "point -1 1 2 3 4 5 6", "point 0 1 2 NaN 4 5 6", "point 0 1 2 0 4 5 6", "point 0 1 2 1 4 +Inf 6", "point 0 0 2 3 4 5 6", "point 0 1 2 3 4 5 6 1 -2 3"} {
		if err := a.line(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
