package launcher

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// JSON of both streams comes whole and in the order of its rank.
func TestOutputAsJSON(t *testing.T) {
	const np, lines, pieces = 4, 200, 5
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: np, Argv: roleArgv(t, "lines", fmt.Sprint(lines), fmt.Sprint(pieces)), Output: Output{Form: JSON}}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || stderr != "" {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			next, last := [np]int{}, [np]time.Time{}
			for line := range strings.Lines(stdout) {
				var o struct {
					Time         time.Time
					Rank         int
					Stream, Text string
				}
				if err := json.Unmarshal([]byte(line), &o); err != nil {
					t.Fatalf("%v: %q", err, line)
				}
				if !strings.HasPrefix(o.Text, fmt.Sprintf("<%d:%d:0>", o.Rank, next[o.Rank])) || o.Stream != "stdout" || o.Time.Before(last[o.Rank]) {
					t.Fatalf("rank %d, line %d: got %q", o.Rank, next[o.Rank], line)
				}
				next[o.Rank]++
				last[o.Rank] = o.Time
			}
			if next != [np]int{lines, lines, lines, lines} {
				t.Errorf("lines of each rank: got %v, want %d", next, lines)
			}
		})
	}
}

// Files have every byte, and what spawned ranks write is in files of their own.
func TestOutputFiles(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			dir := t.TempDir()
			job := Job{NP: 3, Argv: sh(`head -c 3000000 /dev/zero | tr '\0' $PMI_RANK; echo err >&2`),
				Output: Output{Stdout: filepath.Join(dir, "%G/%r/%s"), Prefix: ""}}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || len(stdout) != 9_000_000 || stderr != "err\nerr\nerr\n" {
				t.Fatalf("got %+v, %v, %d bytes, %q", r, err, len(stdout), stderr)
			}
			for rank := range 3 {
				text, err := os.ReadFile(filepath.Join(dir, "1", fmt.Sprint(rank), "stdout"))
				if want := strings.Repeat(fmt.Sprint(rank), 3_000_000); err != nil || string(text) != want {
					t.Errorf("rank %d: got %d bytes, %v", rank, len(text), err)
				}
			}
		})
	}
}

func TestOutputFileOnAFullDisk(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 2, Argv: []string{"yes"}, Output: Output{Stdout: "/dev/full", NoCopy: true}}
			overAgents(t, &job, way.hosts)
			r, _, _, err := runJob(t, job)
			if err != nil || r.ExitStatus != 1 || r.Cause == nil || !strings.Contains(r.Cause.String(), "output file /dev/full: write: no space left on device") {
				t.Errorf("got %+v, cause %v, %v", r, r.Cause, err)
			}
		})
	}
}

// All ranks read; one of them little, one never, and the rest gets all of it.
func TestStdinForAll(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789abcde\n"), 256<<10) // 4 MiB
	sum := fmt.Sprintf("%x", sha256.Sum256(big))
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 4, StdinRank: StdinAll, Stdin: bytes.NewReader(big),
				Argv: sh(`case $PMI_RANK in 1) head -c 100000 >/dev/null;; 2) exec <&-; sleep 0.2;; *) sha256sum;; esac`)}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || strings.Count(stdout, sum) != 2 {
				t.Errorf("got %+v, %v, %q, %q", r, err, stdout, stderr)
			}
		})
	}
}

// Input for all that nobody reads ends with the ranks, and little of it is read.
func TestRunReturnsWhenStdinForAllIsUnread(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			in := new(endless)
			job := Job{NP: 3, StdinRank: StdinAll, Argv: sh("sleep 0.2"), Stdin: in}
			overAgents(t, &job, way.hosts)
			if r, _, stderr, err := runJob(t, job); err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			if in.n > 4<<20 {
				t.Errorf("read %d bytes ahead", in.n)
			}
		})
	}
}

func TestWatch(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			var mu sync.Mutex
			seen := map[string]int{}
			// The ranks end when it was told what they use.
			stdin, ends := io.Pipe()
			defer ends.Close()
			job := Job{NP: 2, Sample: 20 * time.Millisecond, Stdin: stdin, StdinRank: StdinAll,
				Argv: sh("echo hello $PMI_RANK; read x; exit 0"),
				Watch: func(c Change) {
					if !mu.TryLock() {
						t.Error("two calls at once")
						return
					}
					defer mu.Unlock()
					seen[fmt.Sprint(c.Kind, c.Rank, c.Line)]++
					if c.Kind == RankUses && c.RSS > 0 {
						ends.Close()
					}
				}}
			overAgents(t, &job, way.hosts)
			if r, _, stderr, err := runJob(t, job); err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			for rank := range 2 {
				for _, want := range []string{fmt.Sprint(RankStarted, rank, ""), fmt.Sprint(RankSaid, rank, fmt.Sprint("hello ", rank)), fmt.Sprint(RankEnded, rank, "")} {
					if seen[want] != 1 {
						t.Errorf("%q was told %d times: %v", want, seen[want], seen)
					}
				}
			}
		})
	}
}

// A watcher that hangs holds up nothing, and what waits for it is bounded.
func TestRunReturnsWhileWatchHangs(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			hangs, over := make(chan struct{}), make(chan struct{})
			calls := 0
			job := Job{NP: 3, Sample: time.Millisecond, Argv: sh("test $PMI_RANK = 1 && exit 5; while :; do echo line; done"), Watch: func(Change) {
				if calls++; calls == 1 {
					<-hangs
				}
				close(over)
			}, Stdout: io.Discard}
			overAgents(t, &job, way.hosts)
			r, _, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 5 {
				t.Errorf("got %+v, %v, %q", r, err, stderr)
			}
			close(hangs)
			<-over // a call after it would close it again
		})
	}
}

// A slow watcher is told all that ranks do, in order, the last line and the last
// sample of what came meanwhile, and the end.
func TestSlowWatchIsToldTheLatestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		w := newWatcher(&Job{Watch: func(c Change) {
			time.Sleep(watchLimit - time.Millisecond)
			told = append(told, fmt.Sprint(c.Kind, c.Rank, c.Line, c.RSS))
		}, Warn: func(text string) { told = append(told, text) }})
		w.put(Change{Kind: RankStarted, Rank: 0})
		synctest.Wait() // it is being told
		w.put(Change{Kind: RankStarted, Rank: 1})
		for i := range 1000 {
			w.put(Change{Kind: RankSaid, Rank: i % 2, Line: fmt.Sprint("line ", i)})
			w.put(Change{Kind: RankUses, Rank: 1, RSS: int64(i)})
		}
		for i := range 1000 {
			w.putWarning(fmt.Sprint("warning ", i))
		}
		if n := len(w.queue); n != 4+warnsMax {
			t.Errorf("%d wait, want %d", n, 4+warnsMax)
		}
		w.put(Change{Kind: RankEnded, Rank: 1})
		w.put(Change{Kind: RankSaid, Rank: 0, Line: "the last"})
		w.put(Change{Kind: RankEnded, Rank: 0})
		w.close()
		want := []string{
			fmt.Sprint(RankStarted, 0, "", 0), fmt.Sprint(RankStarted, 1, "", 0), fmt.Sprint(RankSaid, 0, "the last", 0),
			fmt.Sprint(RankUses, 1, "", 999), fmt.Sprint(RankSaid, 1, "line 999", 0),
		}
		for i := range warnsMax {
			want = append(want, fmt.Sprint("warning ", i))
		}
		want = append(want, fmt.Sprint(RankEnded, 1, "", 0), fmt.Sprint(RankEnded, 0, "", 0))
		if !slices.Equal(told, want) {
			t.Errorf("got %q, want %q", told, want)
		}
	})
}

func TestBadOutput(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		job   Job
		field string
	}{
		{Job{Output: Output{Form: 9}}, "Output.Form"},
		{Job{Output: Output{Terminal: "perhaps"}}, "Output.Terminal"},
		{Job{Output: Output{Prompt: -1}}, "Output.Prompt"},
		{Job{Output: Output{Stdout: "/proc/no/such"}}, "Output.Stdout"},
		{Job{StdinRank: 1}, "StdinRank"},
		{Job{StdinRank: -2}, "StdinRank"},
	} {
		c.job.NP, c.job.Argv = 1, []string{"true"}
		_, _, _, err := runJob(t, c.job)
		if e, ok := err.(*JobError); !ok || e.Field != c.field {
			t.Errorf("%s: got %v", c.field, err)
		}
	}
}

// Lines that are longer than any buffer stay whole, among ranks, streams and hosts, in
// every form, and take their turn where many are due at once.
func TestLongLines(t *testing.T) {
	const np, lines, size = 4, 6, 1_000_000
	script := append(sh(fmt.Sprintf(`head -c %d /dev/zero | tr '\0' $PMI_RANK >$0/$PMI_RANK; echo >>$0/$PMI_RANK
		for i in $(seq %d); do cat $0/$PMI_RANK; done & for i in $(seq %d); do cat $0/$PMI_RANK; done >&2; wait`, size, lines/2, lines/2)), t.TempDir())
	for _, way := range ways {
		for _, form := range []Form{Plain, JSON} {
			t.Run(fmt.Sprint(way.name, " ", form), func(t *testing.T) {
				testenv.NoLeaks(t)
				both := new(bytes.Buffer)
				var taken [np]int
				job := Job{NP: np, Argv: script, Output: Output{Form: form}, Stdout: both, Stderr: both,
					Lines: func(l Line) {
						if len(l.Text) == size && !l.Partial {
							taken[l.Rank]++
						}
					}}
				overAgents(t, &job, way.hosts)
				r, err := Run(testenv.Deadline(t, time.Minute), job)
				if err != nil || r.ExitStatus != 0 {
					t.Fatalf("got %+v, %v", r, err)
				}
				var whole [np]int
				for line := range strings.Lines(both.String()) {
					text := line
					if form == JSON {
						var o struct {
							Text    string
							Partial bool
						}
						if err := json.Unmarshal([]byte(line), &o); err != nil || o.Partial {
							t.Fatalf("%v, partial %v: %.100q", err, o.Partial, line)
						}
						text = o.Text + "\n"
					}
					rank := int(text[0] - '0')
					if len(text) != size+1 || rank < 0 || rank >= np || strings.Count(text, text[:1]) != size {
						t.Fatalf("a torn line of %d bytes: %.100q", len(line), line)
					}
					whole[rank]++
				}
				if want := [np]int{lines, lines, lines, lines}; whole != want || taken != want {
					t.Errorf("lines of each rank: %v, to Lines %v, want %d", whole, taken, lines)
				}
			})
		}
	}
}

// A rank whose line is too long to be kept loses no byte of it, and the user is told.
func TestTooLongLineLosesNoByte(t *testing.T) {
	size := testenv.Fewer(40<<20, 17<<20)
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			var warned []string
			job := Job{NP: 2, Argv: sh(fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", size)), Warn: func(text string) { warned = append(warned, text) }}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || len(stdout) != 2*size || strings.Count(stdout, "x") != 2*size {
				t.Errorf("got %+v, %v, %d bytes, %q", r, err, len(stdout), stderr)
			}
			if len(warned) != 1 || !strings.Contains(warned[0], "of its stdout a line of more than 16 MiB is passed on in parts") {
				t.Errorf("warned %q", warned)
			}
		})
	}
}

// Hosts' long lines wait while two of the longest are on their way, and those of a host
// that is gone take no room.
func TestLongLinesTakeTurns(t *testing.T) {
	var l longLines
	var sent []string
	seats := make([]*seat, 3)
	for i := range seats {
		seats[i] = &seat{site: siteFunc(func(c host.Command) { sent = append(sent, fmt.Sprint(i, c.Rank)) }), at: i}
	}
	long := func(rank, n int) host.Event {
		return host.Event{Kind: host.Long, Rank: rank, Stream: host.Stdout, N: n}
	}
	for i, s := range seats {
		l.ask(s, long(2*i, longMost/2))
		l.ask(s, long(2*i+1, longMost/2))
	}
	written := l.came(seats[0], long(0, 0))
	l.forget(seats[0]) // rank 0's line has come, rank 1's will not
	if want := []string{"0 0", "0 1", "1 2"}; !slices.Equal(sent, want) {
		t.Errorf("let go on: %q, want %q", sent, want)
	}
	written()
	l.came(seats[2], long(9, 0))() // nobody let it
	l.came(seats[1], long(2, 0))()
	l.forget(seats[2])
	if want := []string{"0 0", "0 1", "1 2", "1 3", "2 4"}; !slices.Equal(sent, want) {
		t.Errorf("let go on: %q, want %q", sent, want)
	}
	l.came(seats[1], long(3, 0))()
	if l.taken != 0 || len(l.let) != 0 || len(l.wait) != 0 {
		t.Errorf("at the end: %d bytes taken, %v let, %v wait", l.taken, l.let, l.wait)
	}
	l.ask(seats[1], long(3, 9*longMost)) // longer than all room, alone
	if sent[len(sent)-1] != "1 3" || len(l.let) != 1 {
		t.Error("a line that is longer than the room for all never goes on")
	}
}

type siteFunc func(host.Command)

func (f siteFunc) Send(c host.Command) { f(c) }
