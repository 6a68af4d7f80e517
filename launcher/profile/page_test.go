package profile_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/calls"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/profile"
)

// recorded are the records of so many ranks, which make so many all-reduces; the second comes late each time.
func recorded(n, steps int) []profile.Rank {
	const step = 1e6
	ranks := make([]profile.Rank, n)
	for i := range ranks {
		r := &ranks[i]
		r.Rank, r.Size, r.Host, r.Current, r.Finalized = i, n, "host<"+strconv.Itoa(i%4)+">", -1, true
		r.Begin, r.End = 1000, int64(1000+steps*step)
		r.Calls = []profile.Call{{Op: "Allreduce", Function: "main.step", File: "/src/main.go", Line: 31, Count: uint64(steps), Out: uint64(8 * steps), In: uint64(8 * steps)}}
		r.Peers = []profile.Peer{{Rank: (i + 1) % n, Sent: 1, SentBytes: 100}}
		r.Sizes = []uint64{0, 0, 0, 0, uint64(steps)}
		for s := range steps {
			at, took := int64(1000+s*step), int64(step*3/4)
			if i == 1 {
				at, took = at+step/2, step/4
			}
			r.Calls[0].Total += time.Duration(took)
			r.Events = append(r.Events, profile.Event{Start: at, Took: took, Kind: calls.Collective, Group: 1, Sent: uint32(s), To: -1, From: -1, Out: 8, In: 8})
		}
	}
	return ranks
}

func page(t *testing.T, r *profile.Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WritePage(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// The page of 1,024 ranks is smaller than 10 MB, and a browser shows all of it, a part, and what is looked for, without a word to the network.
func TestPageInABrowser(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	ranks := recorded(1024, 300)
	for i := range ranks { // at more places than a rank tells apart
		for line := range 510 {
			ranks[i].Calls = append(ranks[i].Calls, profile.Call{Op: "Bcast", Function: "main.main", File: "/src/other.go", Line: line, Count: 1, Total: time.Duration(1000 + i)})
		}
	}
	r := profile.Analyze(ranks)
	text := page(t, r)
	if len(text) > 10<<20 {
		t.Errorf("the page has %d bytes", len(text))
	}
	drawn := func(part string) int {
		dom, console, requests := testenv.Browser(t, text, part)
		if console != "" || len(requests) > 0 {
			t.Errorf("%s: console %s, requests %q", part, console, requests)
		}
		for _, want := range []string{"1024 ranks", "rank 1 has 3.0 times the work of the others", "host&lt;3&gt;", "<td>16 B</td>"} {
			if !strings.Contains(dom, want) {
				t.Errorf("%s: no %q in the page", part, want)
			}
		}
		m := regexp.MustCompile(`data-drawn="(\d+)"`).FindStringSubmatch(dom)
		if m == nil {
			t.Fatalf("%s: nothing was drawn", part)
		}
		n, _ := strconv.Atoi(m[1])
		return n
	}
	all, some, found, none := drawn(""), drawn("#from=1000&to=3000"), drawn("#find=allreduce"), drawn("#find=barrier")
	if all < 1024 || some == 0 || some >= all || found != all || none != 0 {
		t.Errorf("%d events are drawn, %d of two milliseconds, %d found, %d of another call", all, some, found, none)
	}
}

// Traces and JSON are what programs can read.
func TestFiles(t *testing.T) {
	r := profile.Analyze(recorded(3, 5))
	var b bytes.Buffer
	if err := r.WriteTrace(&b); err != nil {
		t.Fatal(err)
	}
	var trace struct {
		TraceEvents []struct {
			Name, Ph string
			Pid, Tid int
			Ts, Dur  float64
		}
	}
	if err := json.Unmarshal(b.Bytes(), &trace); err != nil {
		t.Fatal(err)
	}
	if n := len(trace.TraceEvents); n != 3+3+3*5 || trace.TraceEvents[2].Name != "Allreduce" || trace.TraceEvents[2].Dur != 750 {
		t.Errorf("%d events: %+v", n, trace.TraceEvents)
	}
	b.Reset()
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back profile.Report
	if err := json.Unmarshal(b.Bytes(), &back); err != nil || len(back.Ranks) != 3 || len(back.Faults) == 0 || back.Waits[0].For != 1 {
		t.Errorf("%v, %+v", err, back)
	}
}

// Hosts whose clocks differ are set to one, by what they exchange; the error is said.
func TestClocks(t *testing.T) {
	const hour = int64(time.Hour)
	ranks := recorded(4, 50)
	for i := range ranks {
		r := &ranks[i]
		by := hour * int64(i%4)
		r.Begin, r.End = r.Begin+by, r.End+by
		for j := range r.Events {
			r.Events[j].Start += by
		}
	}
	r := profile.Analyze(ranks)
	if len(r.Clocks) != 3 || r.Elapsed > time.Second {
		t.Fatalf("%v, clocks %+v", r.Elapsed, r.Clocks)
	}
	for i, c := range r.Clocks {
		if off := c.Offset + time.Duration(hour*int64(i+1)); c.Guessed || off.Abs() > c.Error || c.Error > time.Millisecond {
			t.Errorf("%+v", c)
		}
	}
	if w := r.Waits[0]; w.For != 1 || w.Count != 150 {
		t.Errorf("%+v", w)
	}
}

// What ranks send that are wrong makes no harm, and an empty profile says so.
func TestOddRecords(t *testing.T) {
	for name, ranks := range map[string][]profile.Rank{
		"none":                  nil,
		"empty":                 {{Size: 3, Current: -1}, {Rank: 1, Size: 3, Current: -1, Concurrent: true}},
		"twice the same number": append(recorded(2, 3), recorded(2, 3)...),
		"peers that do not exist": {{Size: 1, Current: -1, End: 10, Calls: []profile.Call{{Op: "Send"}}, Peers: []profile.Peer{{Rank: 1 << 30}},
			Events: []profile.Event{{Kind: calls.Message, To: 1 << 30, From: -5, Took: 5}}}},
	} {
		t.Run(name, func(t *testing.T) {
			r := profile.Analyze(ranks)
			var b strings.Builder
			if err := r.Summary(&b, "| "); err != nil || b.Len() == 0 {
				t.Errorf("%v, %q", err, b.String())
			}
			if page(t, r) == "" {
				t.Error("no page")
			}
			if err := r.WriteTrace(&b); err != nil {
				t.Error(err)
			}
		})
	}
	for _, bad := range []string{"", "x", "\x81\xa7Current\x05"} {
		if _, err := profile.Unpack([]byte(bad)); err == nil {
			t.Errorf("%q is a record", bad)
		}
	}
}

func ExampleAnalyze() {
	report := profile.Analyze(recorded(3, 100))
	if err := report.Summary(os.Stdout, ""); err != nil {
		fmt.Println(err)
	}
	// Output:
	// rank 1 has 3.0 times the work of the others outside of calls (75ms, median 25ms): the others wait for it in Allreduce (main.go:31), 33 % of the ranks' time
	// 100ms of 3 ranks; 42 % outside of calls: median 25ms, most 75ms (rank 1)
	//        call       place  calls    bytes   time  share  least (rank)  most (rank)
	//   Allreduce  main.go:31    300  2.3 KiB  175ms   58 %      25ms (1)     75ms (0)
	// late to a collective: 200 waits for rank 1, in Allreduce (main.go:31), 100ms, the longest 500µs
}
