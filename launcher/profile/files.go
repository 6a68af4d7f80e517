package profile

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/calls"
)

// WriteJSON writes the report, for programs.
func (r *Report) WriteJSON(w io.Writer) error { return json.NewEncoder(w).Encode(r) }

// WriteTrace writes the events as Perfetto and chrome://tracing read them: a process for each host, a thread for each rank.
func (r *Report) WriteTrace(w io.Writer) error {
	b := bufio.NewWriter(w)
	enc := json.NewEncoder(b)
	fmt.Fprint(b, `{"displayTimeUnit":"ns","traceEvents":[`)
	type entry struct {
		Name string         `json:"name"`
		Ph   string         `json:"ph"`
		Pid  int            `json:"pid"`
		Tid  int            `json:"tid"`
		Ts   float64        `json:"ts"`
		Dur  float64        `json:"dur,omitempty"`
		Args map[string]any `json:"args,omitempty"`
	}
	hosts := make(map[string]int)
	first := true
	put := func(e entry) {
		if !first {
			_ = b.WriteByte(',') // Flush tells
		}
		first = false
		_ = enc.Encode(e)
	}
	for i := range r.Ranks {
		k := &r.Ranks[i]
		pid, known := hosts[k.Host]
		if !known {
			pid = len(hosts)
			hosts[k.Host] = pid
			put(entry{Name: "process_name", Ph: "M", Pid: pid, Args: map[string]any{"name": "host " + k.Host}})
		}
		put(entry{Name: "thread_name", Ph: "M", Pid: pid, Tid: i, Args: map[string]any{"name": r.name(i)}})
		for j := range k.Events {
			e := &k.Events[j]
			if e.Kind == calls.Arrived {
				continue
			}
			c := &k.Calls[e.Call]
			args := map[string]any{"place": c.At(), "out": e.Out, "in": e.In}
			if e.To >= 0 {
				args["to"] = e.To
			}
			if e.From >= 0 {
				args["from"] = e.From
			}
			put(entry{Name: c.Op, Ph: "X", Pid: pid, Tid: i, Ts: float64(e.Start) / 1e3, Dur: float64(e.Took) / 1e3, Args: args})
		}
	}
	fmt.Fprintln(b, "]}")
	return b.Flush()
}

//go:embed page.html
var page string

// pageEvents bounds what the page holds of each rank, so that it stays below 10 MB: the longest.
const pageEvents = 150_000

// pageRows bounds the rows of each of its tables.
const pageRows = 500

// WritePage writes a page for a browser, which holds all that it shows.
func (r *Report) WritePage(w io.Writer) error {
	type rank struct {
		Name, Host  string
		Begin, End  int64
		CPU, Memory int64
		Outside     int64
		RDMA        string
		Events      []int64 // begin and length of each, in microseconds, and its place in Texts
	}
	data := struct {
		Report *Report
		Ranks  []rank
		Texts  []string // calls with their places
		Notes  []string
		Matrix [][]uint64
		Sizes  []uint64
	}{Report: &Report{Elapsed: r.Elapsed, Total: r.Total, Waits: r.Waits[:min(len(r.Waits), pageRows)], Faults: r.Faults}, Notes: r.notes(), Matrix: r.Matrix}
	for _, s := range r.Calls[:min(len(r.Calls), pageRows)] {
		s.ByRank, s.InByRank = []time.Duration{s.ByRank[s.Least], s.ByRank[s.Most]}, nil // of thousands of ranks
		data.Report.Calls = append(data.Report.Calls, s)
	}
	texts := make(map[string]int64)
	most := max(100, pageEvents/max(1, len(r.Ranks)))
	for i := range r.Ranks {
		k := &r.Ranks[i]
		p := rank{Name: r.name(i), Host: k.Host, Begin: k.Begin, End: k.End, CPU: int64(k.CPU), Memory: k.Memory, Outside: int64(r.Outside[i])}
		if k.RDMA != nil {
			p.RDMA = k.RDMA.String()
		}
		for _, e := range longest(k.Events, most) {
			text := k.Calls[e.Call].Op + " " + k.Calls[e.Call].At()
			at, known := texts[text]
			if !known {
				at = int64(len(data.Texts))
				texts[text], data.Texts = at, append(data.Texts, text)
			}
			p.Events = append(p.Events, e.Start/1e3, max(1, e.Took/1e3), at)
		}
		data.Ranks = append(data.Ranks, p)
		for c, n := range k.Sizes {
			if len(data.Sizes) <= c {
				data.Sizes = append(data.Sizes, 0)
			}
			data.Sizes[c] += n
		}
	}
	text, err := json.Marshal(data) // which escapes <, so that nothing ends the script
	if err != nil {
		return err
	}
	_, err = io.WriteString(w, strings.Replace(page, "{{data}}", string(text), 1))
	return err
}

// longest are at most so many events, in order, the shortest left out.
func longest(events []Event, most int) []Event {
	list := make([]Event, 0, len(events))
	for _, e := range events {
		if e.Kind != calls.Arrived {
			list = append(list, e)
		}
	}
	if len(list) <= most {
		return list
	}
	took := make([]int64, len(list))
	for i := range list {
		took[i] = list[i].Took
	}
	least := nth(took, len(took)-most)
	kept := list[:0]
	for _, e := range list {
		if e.Took >= least && len(kept) < most {
			kept = append(kept, e)
		}
	}
	return kept
}
