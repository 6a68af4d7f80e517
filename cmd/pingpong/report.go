package main

import (
	"fmt"
	"io"
)

// A report is what an end has to tell.
type report struct {
	Op        string    `json:"op"`
	Device    string    `json:"device"`
	Provider  string    `json:"provider"`
	Transport string    `json:"transport"`
	figures             // without -a
	Sizes     []figures `json:"sizes,omitempty"` // with -a
	Lines     []string  `json:"lines,omitempty"`
	Verified  bool      `json:"verified"`
}

// A figures is what was measured of one size.
type figures struct {
	Bytes     int      `json:"bytes,omitempty"`
	Latency   *summary `json:"latency,omitempty"`
	Bandwidth *rate    `json:"bandwidth,omitempty"`
}

// write prints the report: the tutorial's lines at both ends, figures at the
// client's.
func (r *report) write(out io.Writer, p *params, server bool) {
	r.Verified = true // else there would be no report
	for _, line := range r.Lines {
		fmt.Fprintln(out, line)
	}
	rows := r.Sizes
	if r.Latency != nil {
		rows = []figures{r.figures}
	}
	if server || len(rows) == 0 {
		return
	}
	what := "half a round trip"
	if p.op == opRead || p.op == opAtomic {
		what = "until it is complete"
	}
	fmt.Fprintf(out, "RDMA %s latency, %s on %s (%s), %s:\n", r.Op, r.Transport, r.Device, r.Provider, what)
	fmt.Fprintf(out, " %-9s %-12s %-12s %-12s %-16s %-12s %-10s %s\n", "#bytes", "#iterations", "t_min[usec]", "t_max[usec]", "t_typical[usec]", "t_avg[usec]", "99%[usec]", "99.9%[usec]")
	for _, row := range rows {
		l := row.Latency
		fmt.Fprintf(out, " %-9d %-12d %-12.2f %-12.2f %-16.2f %-12.2f %-10.2f %.2f\n", row.Bytes, p.iterations, l.Min, l.Max, l.Typical, l.Average, l.P99, l.P999)
	}
	ways := ""
	if p.pairs > 1 {
		ways = fmt.Sprintf(" on each of %d queue pairs", p.pairs)
	}
	if p.both {
		ways += ", both directions together"
	}
	fmt.Fprintf(out, "RDMA %s bandwidth, %d outstanding%s:\n", r.Op, p.depth, ways)
	fmt.Fprintf(out, " %-9s %-12s %-20s %s\n", "#bytes", "#iterations", "BW average[MB/sec]", "MsgRate[Mpps]")
	for _, row := range rows {
		fmt.Fprintf(out, " %-9d %-12d %-20.2f %.6f\n", row.Bytes, p.iterations, row.Bandwidth.MBps, row.Bandwidth.Mpps)
	}
}
