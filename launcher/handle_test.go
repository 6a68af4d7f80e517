package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Lines come one at a time, each rank's in its order, with what is known of them,
// here and through agents.
func TestLinesOfJob(t *testing.T) {
	for _, launcher := range []string{"", "fork"} {
		t.Run("launcher="+launcher, func(t *testing.T) {
			const ranks, count = 4, 500
			next := make([]int, ranks)
			var partial []string
			var out bytes.Buffer
			calls := 0
			begun := time.Now()
			job := Job{NP: ranks, Argv: []string{"sh", "-c", `i=0; while [ $i -lt 500 ]; do echo $PMI_RANK $i; i=$((i+1)); done; printf 'end %s' $PMI_RANK >&2`}, Stdout: &out}
			if launcher == "fork" {
				job.Agents.Launcher, job.Agents.Command = launcher, roleArgv(t, "agent")
				job.Hosts = []Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}}
			}
			job.Lines = func(l Line) {
				calls++ // the race detector finds two at once
				if l.Time.Before(begun) || l.Time.After(time.Now()) || l.Group != 0 {
					t.Errorf("%+v", l)
				}
				if launcher == "fork" && l.Host != []string{"a", "b"}[l.Rank/2] {
					t.Errorf("rank %d on host %s", l.Rank, l.Host)
				}
				if l.Stream == Stderr {
					if !l.Partial || l.Text != fmt.Sprint("end ", l.Rank) {
						t.Errorf("%+v", l)
					}
					partial = append(partial, l.Text)
					return
				}
				if want := fmt.Sprint(l.Rank, " ", next[l.Rank]); l.Text != want || l.Partial {
					t.Errorf("%+v, want %q", l, want)
				}
				next[l.Rank]++
			}
			r, err := Run(t.Context(), job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatal(r, err)
			}
			if calls != ranks*(count+1) || len(partial) != ranks || bytes.Count(out.Bytes(), []byte("\n")) != ranks*count {
				t.Errorf("%d calls, %q, %d bytes beside them", calls, partial, out.Len())
			}
		})
	}
}

// A callback that does not return makes the ranks wait; their output is bounded
// until then, and whole in the end.
func TestRanksWaitWhileLinesIsSlow(t *testing.T) {
	const bytesEach = 8 << 20
	gate := make(chan struct{})
	var once sync.Once
	n := 0
	h, err := Start(t.Context(), Job{NP: 1, Argv: []string{"sh", "-c", fmt.Sprintf("yes 0123456789 | head -c %d", bytesEach)},
		Lines: func(l Line) {
			once.Do(func() { <-gate })
			n += len(l.Text) + 1
			if l.Partial {
				n--
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, 30*time.Second, "a figure that counts output", func() bool { return h.Stats().Stdout > 0 })
	if s := h.Stats(); s.Stdout == bytesEach || s.Running != 1 {
		t.Errorf("while nobody takes its lines the rank has written all: %+v", s)
	}
	close(gate)
	r, err := h.Wait()
	if err != nil || r.ExitStatus != 0 || n != bytesEach {
		t.Errorf("%d bytes of %d, %+v, %v", n, bytesEach, r, err)
	}
}

// A handle tells how its ranks are, passes signals on, and has the end.
func TestHandle(t *testing.T) {
	ready := make(chan int, 3)
	h, err := Start(t.Context(), Job{NP: 3, Argv: []string{"sh", "-c", `trap 'echo got; exit $((4+PMI_RANK))' USR1; echo ready; [ $PMI_RANK = 2 ] && exit 0; while :; do sleep 0.01; done`},
		Lines: func(l Line) {
			if l.Text == "ready" {
				ready <- l.Rank
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		<-ready
	}
	testenv.Await(t, 30*time.Second, "the end of a rank", func() bool {
		return slices.ContainsFunc(h.Ranks(), func(r RankStatus) bool { return r.State == StateEnded })
	})
	for i, r := range h.Ranks() {
		want := StateRunning
		if i == 2 {
			want = StateEnded
		}
		if r.Rank != i || r.State != want || r.PID <= 0 || r.Host == "" {
			t.Errorf("%+v, want rank %d %v", r, i, want)
		}
	}
	if s := h.Stats(); s.Running != 2 || s.Ended != 1 || s.Failed != 0 || s.Launch <= 0 || s.Place <= 0 || s.Meet != 0 || s.Stdout != 18 || s.Elapsed <= 0 {
		t.Errorf("%+v", s)
	}
	select {
	case <-h.Done():
		t.Fatal("it is done")
	default:
	}
	if err := h.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	r, err := h.Wait()
	if err != nil || r.ExitStatus != 4 && r.ExitStatus != 5 || len(r.Ranks) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
	<-h.Done()
	if err := h.Signal(syscall.SIGUSR1); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("a signal after the end: %v", err)
	}
	if s := h.Stats(); s.Ended != 3 || s.Failed < 1 || s.Elapsed != h.Stats().Elapsed {
		t.Errorf("%+v", s)
	}
}

// Jobs that make no sense are not started, those that cannot run tell it at the end.
func TestStartErrors(t *testing.T) {
	for field, job := range map[string]Job{
		"Argv":         {NP: 1},
		"NP":           {NP: -1, Argv: []string{"true"}},
		"Restarts.Max": {NP: 1, Argv: []string{"true"}, Restarts: Restarts{Max: -1}},
		"Elastic":      {Argv: []string{"true"}, Elastic: &Elastic{Min: 3, Max: 2}},
		"Placing.Map":  {NP: 1, Argv: []string{"true"}, Placing: Placing{Map: "nowhere"}},
	} {
		var jerr *JobError
		if h, err := Start(t.Context(), job); h != nil || !errors.As(err, &jerr) || jerr.Field != field {
			t.Errorf("%s: %v, %v", field, h, err)
		}
	}
	h, err := Start(t.Context(), Job{NP: 1, Argv: []string{"/no/such/program"}})
	if err != nil {
		t.Fatal(err)
	}
	var jerr *JobError
	if r, err := h.Wait(); !errors.As(err, &jerr) || jerr.ExitStatus != 127 || r.ExitStatus != 127 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A signal ends a job at once that still looks for the way to its hosts, and what it has started.
func TestSignalDuringLookUp(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	testenv.NoLeaks(t)
	asked := make(chan struct{}, 100)
	was := net.DefaultResolver
	defer func() { net.DefaultResolver = was }()
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		asked <- struct{}{}
		<-ctx.Done() // the name server does not answer
		return nil, ctx.Err()
	}}
	job := Job{NP: 2, Argv: sh("true")}
	overShells(t, &job, 2, play)
	h, err := Start(t.Context(), job)
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-asked:
	case <-h.Done():
		r, err := h.Wait()
		t.Fatalf("no name was looked up: status %d, %v", r.ExitStatus, err)
	}
	begin := time.Now()
	if err := h.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	r, err := h.Wait()
	if took := time.Since(begin); err != nil || r.Cause == nil || r.Cause.Signal != syscall.SIGINT || took > lookupLimit/2 {
		t.Errorf("after %v: status %d, cause %v, %v; want the signal, and less than %v", took, r.ExitStatus, r.Cause, err, lookupLimit/2)
	}
}

// Signals of both ways reach the job, and a closed channel is none.
func TestHandleSignals(t *testing.T) {
	signals := make(chan os.Signal)
	h, err := Start(t.Context(), Job{NP: 1, Argv: []string{"sleep", "100"}, Signals: signals})
	if err != nil {
		t.Fatal(err)
	}
	signals <- syscall.SIGCONT
	close(signals)
	if err := h.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r, err := h.Wait(); err != nil || r.ExitStatus != 143 {
		t.Errorf("%+v, %v", r, err)
	}
}

// Ranks that meet pass fences, which end the third phase; on several hosts each
// counts once. Restarts are counted, and phases are of the last start.
func TestStats(t *testing.T) {
	for _, launcher := range []string{"", "fork"} {
		job := Job{NP: 2, Argv: roleArgv(t, "pmi", "init", "barrier", "finalize")}
		if launcher != "" {
			job.Agents.Launcher, job.Agents.Command, job.Hosts = launcher, roleArgv(t, "agent"), []Host{{Name: "a"}, {Name: "b"}}
		}
		h, err := Start(t.Context(), job)
		if err != nil {
			t.Fatal(err)
		}
		r, err := h.Wait()
		if s := h.Stats(); err != nil || r.ExitStatus != 0 || s.Fences != 1 || s.Meet <= 0 || s.Restarts != 0 {
			t.Errorf("launcher %q: %+v, %+v, %v", launcher, s, r, err)
		}
	}
	h, err := Start(t.Context(), Job{NP: 1, Argv: []string{"sh", "-c", "exit 3"}, Restarts: Restarts{Max: 2, Pause: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := h.Wait(); err != nil || r.Restarts != 2 || h.Stats().Restarts != 2 || h.Stats().Failed != 1 {
		t.Errorf("%+v, %+v, %v", h.Stats(), r, err)
	}
}

// The text for Prometheus has every family once, with its type before its values.
func TestPrometheus(t *testing.T) {
	var b strings.Builder
	err := Stats{Waiting: 1, Running: 2, Ended: 7, Failed: 3, Place: time.Millisecond, Stdin: 5, Stdout: 1 << 40, Fences: 6, Restarts: 4, Elapsed: 90 * time.Second}.WritePrometheus(&b)
	want := `gorun_ranks{state="waiting"} 1
gorun_ranks{state="running"} 2
gorun_ranks{state="ended"} 4
gorun_ranks{state="failed"} 3
gorun_startup_seconds{phase="place"} 0.001
gorun_stream_bytes_total{stream="stdin"} 5
gorun_stream_bytes_total{stream="stdout"} 1099511627776
gorun_stream_bytes_total{stream="stderr"} 0
gorun_pmi_fences_total 6
gorun_restarts_total 4
gorun_elapsed_seconds 90
`
	var got strings.Builder
	typed := ""
	for line := range strings.Lines(b.String()) {
		if name, ok := strings.CutPrefix(line, "# TYPE "); ok {
			typed, _, _ = strings.Cut(name, " ")
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		if !strings.HasPrefix(line, typed) {
			t.Errorf("%q stands below the type of %q", line, typed)
		}
		got.WriteString(line)
	}
	if err != nil || got.String() != want {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// What the ranks do is told to whoever asks, as often as asked, also on hosts; a channel without room gets nothing.
func TestLook(t *testing.T) {
	for _, launcher := range []string{"", "fork"} {
		t.Run("launcher="+launcher, func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			started := make(chan bool, 2)
			job := Job{NP: 2, Argv: []string{"sh", "-c", "echo up; read line"}, Stdin: r, StdinRank: StdinAll, Lines: func(Line) { started <- true }}
			if launcher == "fork" {
				job.Agents.Launcher, job.Agents.Command = launcher, roleArgv(t, "agent")
				job.Hosts = []Host{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}
			}
			h, err := Start(t.Context(), job)
			if err != nil {
				t.Fatal(err)
			}
			<-started
			<-started
			full := make(chan []RankState)
			for range 2 {
				answer := make(chan []RankState, 1)
				if err := errors.Join(h.Signal(Look(full)), h.Signal(Look(answer))); err != nil {
					t.Fatal(err)
				}
				states := <-answer
				if len(states) != 2 {
					t.Fatalf("%+v, want two ranks", states)
				}
				for rank, s := range states {
					if s.Rank != rank || s.RSS == 0 || len(s.Lines) == 0 || !strings.HasPrefix(s.Lines[0], "sh (pid ") || s.Calls != 0 || launcher == "fork" && s.Host != []string{"a", "b"}[rank] {
						t.Errorf("%+v", s)
					}
				}
			}
			_ = w.Close()
			if result, err := h.Wait(); err != nil || result.States != nil {
				t.Errorf("%+v, %v", result, err)
			}
			if err := h.Signal(Look(full)); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}
