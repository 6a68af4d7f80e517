package launcher

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// Stats are statistics of a running or ended job, for polling: they only count, so reading
// them late loses nothing. Job.Watch reports events when they happen. With Restarts.Max the
// numbers of ranks and the phases are those of the latest start; the rest covers all starts.
type Stats struct {
	// Waiting, Running and Ended are the numbers of ranks in each state.
	// Failed is the number of ended ranks that failed.
	Waiting, Running, Ended, Failed int
	// Place is the time to place the ranks, including the agents' answers. Launch
	// is the time from then until all ranks were started. Meet is the time from
	// then until the end of their first fence, in which MPI_Init or its equivalent
	// ends; with PMIx on one host, until all have connected. 0: not yet, or never.
	Place, Launch, Meet time.Duration
	// Stdin, Stdout and Stderr are the numbers of bytes that the launcher has passed
	// on. Input that a rank reads itself, for example from a file, is not counted.
	Stdin, Stdout, Stderr int64
	// Fences is the number of completed fences of all ranks, of PMI-1 and PMIx. PMIx fences
	// on one host are not counted, because libpmix completes them without the launcher.
	Fences   int64
	Restarts int
	Elapsed  time.Duration // since the job was started, until its end
}

// Stats returns the present statistics of the job.
func (h *Handle) Stats() Stats {
	s := h.stats.now()
	for _, r := range h.Ranks() {
		switch r.State {
		case StateWaiting:
			s.Waiting++
		case StateRunning:
			s.Running++
		case StateEnded:
			s.Ended++
			if r.Status != 0 {
				s.Failed++
			}
		}
	}
	return s
}

// WritePrometheus writes the statistics in Prometheus's text format, as
// the response to a GET of /metrics with content type PrometheusType.
func (s Stats) WritePrometheus(w io.Writer) error {
	var b strings.Builder
	family := func(name, kind, help string) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind) }
	family("gorun_ranks", "gauge", "Ranks of the job by state; failed ones are those that ended with a status other than 0.")
	for _, r := range []struct {
		state string
		n     int
	}{{"waiting", s.Waiting}, {"running", s.Running}, {"ended", s.Ended - s.Failed}, {"failed", s.Failed}} {
		fmt.Fprintf(&b, "gorun_ranks{state=%q} %d\n", r.state, r.n)
	}
	family("gorun_startup_seconds", "gauge", "Time that phases of the start took: place, launch, and meet, which ends with the ranks' first fence.")
	for _, p := range []struct {
		phase string
		d     time.Duration
	}{{"place", s.Place}, {"launch", s.Launch}, {"meet", s.Meet}} {
		if p.d > 0 {
			fmt.Fprintf(&b, "gorun_startup_seconds{phase=%q} %g\n", p.phase, p.d.Seconds())
		}
	}
	family("gorun_stream_bytes_total", "counter", "Bytes of the ranks' standard streams that the launcher has passed on.")
	for _, r := range []struct {
		stream string
		n      int64
	}{{"stdin", s.Stdin}, {"stdout", s.Stdout}, {"stderr", s.Stderr}} {
		fmt.Fprintf(&b, "gorun_stream_bytes_total{stream=%q} %d\n", r.stream, r.n)
	}
	family("gorun_pmi_fences_total", "counter", "Fences that all ranks have passed, of PMI-1, and of PMIx where there are several hosts.")
	fmt.Fprintf(&b, "gorun_pmi_fences_total %d\n", s.Fences)
	family("gorun_restarts_total", "counter", "Times that the job was started again.")
	fmt.Fprintf(&b, "gorun_restarts_total %d\n", s.Restarts)
	family("gorun_elapsed_seconds", "gauge", "Time since the job was started.")
	fmt.Fprintf(&b, "gorun_elapsed_seconds %g\n", s.Elapsed.Seconds())
	_, err := io.WriteString(w, b.String())
	return err
}

// PrometheusType is the Content-Type of the output of WritePrometheus.
const PrometheusType = "text/plain; version=0.0.4; charset=utf-8"

// stats is what is counted while a job runs. A controller without a handle has
// none: its methods do nothing then.
type stats struct {
	moved [3]atomic.Int64 // bytes, by stream
	fence atomic.Int64

	mu                   sync.Mutex
	since                time.Time // the job was started; set before anybody else looks
	over                 time.Time // its end; zero: it runs
	at                   time.Time // the end of the last phase
	place, launch, meets time.Duration
	restarts             int
}

// begin is the beginning of a start of the job, and of its first phase.
func (s *stats) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at, s.over = time.Now(), time.Time{}
}

// placed ends the first phase of the attempt of this number, from 1; 0: the only one.
func (s *stats) placed(attempt int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.place, s.launch, s.meets = now.Sub(s.at), 0, 0
	s.at, s.restarts = now, max(0, attempt-1)
}

// launched ends the second phase: all ranks are started.
func (s *stats) launched() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.launch, s.at = now.Sub(s.at), now
}

// met counts a fence. The first of the job's own ranks ends the third phase.
func (s *stats) met(first bool) {
	if s == nil {
		return
	}
	s.fence.Add(1)
	if first {
		s.gathered()
	}
}

// gathered ends the third phase.
func (s *stats) gathered() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meets == 0 && s.launch > 0 {
		s.meets = time.Since(s.at)
	}
}

// end is the end of a start of the job; another may follow.
func (s *stats) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = time.Now()
}

// move counts what was passed on.
func (s *stats) move(stream, n int) {
	if s != nil && stream >= 0 && stream < len(s.moved) {
		s.moved[stream].Add(int64(n))
	}
}

func (s *stats) now() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := s.over
	if end.IsZero() {
		end = time.Now()
	}
	return Stats{
		Place: s.place, Launch: s.launch, Meet: s.meets, Restarts: s.restarts, Fences: s.fence.Load(), Elapsed: end.Sub(s.since),
		Stdin: s.moved[0].Load(), Stdout: s.moved[host.Stdout].Load(), Stderr: s.moved[host.Stderr].Load(),
	}
}
