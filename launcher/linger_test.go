package launcher

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// rankEnds has a function that waits, in a rank's helper, for the end of the rank, which is a zombie until all have ended.
const rankEnds = `ended() { while read -r _ _ s _ </proc/$$/stat; [ $s != Z ]; do :; done; }; `

// TestOutputAfterTheEnd has ranks end before what they have started has written: no line is lost.
func TestOutputAfterTheEnd(t *testing.T) {
	bash := func(script string) []string { return []string{testenv.Need(t, "bash"), "-c", script} }
	for _, c := range []struct {
		name           string
		job            Job
		status         int
		stdout, stderr string
		file           string // content of the file "out"
	}{
		{"a child", Job{Argv: sh(rankEnds + "(ended; echo late; echo later >&2) & echo early")}, 0, "early\nlate\n", "later\n", ""},
		{"tee", Job{Argv: bash(rankEnds + "exec > >(ended; exec tee copy); echo one; echo two")}, 0, "one\ntwo\n", "", ""},
		{"in a session of its own", Job{Argv: sh(`p=$$; export p; exec setsid sh -c 'while read -r _ _ s _ </proc/$p/stat; [ $s != Z ]; do :; done; echo late'`)}, 0, "late\n", "", ""},
		{"of a rank that fails", Job{NP: 2, Argv: sh(rankEnds + `if [ $PMI_RANK = 1 ]; then trap ': >told; exit' TERM; : >up; while :; do :; done; fi
			until [ -e up ]; do :; done; (ended; until [ -e told ]; do :; done; echo late) & exit 3`)}, 3, "late\n", "", ""},
		{"a terminal", Job{Argv: sh(rankEnds + "(ended; echo late) & echo early"), Output: Output{Terminal: "always"}}, 0, "early\nlate\n", "", ""},
		{"a file", Job{Argv: sh(rankEnds + "(ended; echo late) & echo early"), Output: Output{Stdout: "out", NoCopy: true}}, 0, "", "", "early\nlate\n"},
		{"input", Job{Argv: sh(rankEnds + "exec 4<&0; (ended; cat <&4) & head -c 6"), Stdin: strings.NewReader("early\nlate\n")}, 0, "early\nlate\n", "", ""},
		{"much", Job{Argv: sh(rankEnds + "(ended; head -c 3000000 /dev/zero | tr '\\0' x; echo) &")}, 0, strings.Repeat("x", 3000000) + "\n", "", ""},
	} {
		for _, way := range ways {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := c.job
				job.Dir, job.Grace = t.TempDir(), time.Minute
				job.NP = max(job.NP, 1)
				file := filepath.Join(job.Dir, "out")
				if job.Output.Stdout != "" {
					job.Output.Stdout = file
				}
				if job.Stdin != nil {
					job.Stdin = strings.NewReader("early\nlate\n")
				}
				job.Warn = func(text string) { t.Errorf("warned: %s", text) }
				overAgents(t, &job, min(way.hosts, job.NP))
				r, stdout, stderr, err := runJob(t, job)
				text, _ := os.ReadFile(file)
				if err != nil || r.ExitStatus != c.status || stdout != c.stdout || stderr != c.stderr || string(text) != c.file {
					t.Errorf("got status %d, %.100q, %.100q, file %q, %v", r.ExitStatus, stdout, stderr, text, err)
				}
			})
		}
	}
}

// What never ends is named and killed after the grace. A signal to the launcher reaches it, too.
func TestWhatNeverEndsIsEnded(t *testing.T) {
	testenv.Need(t, "setsid")
	for _, c := range []struct {
		name, script, stdout string
		send                 syscall.Signal
		grace                time.Duration
		status               int
		warned               string
	}{
		{"in the group", rankEnds + "(ended; echo late; exec sleep 600) & echo early", "early\nlate\n", 0, time.Second, 0, `^rank 0 \(host .*, sh, pid \d+\): \w+ \(pid \d+\), which it had started, still held its output 1s after the last rank's end and is killed; --grace TIME waits longer$`},
		{"in a session of its own", "setsid sleep 600 & echo early", "early\n", 0, 100 * time.Millisecond, 0, `^rank 0 .*: \w+ \(pid \d+\), which it had started`},
		{"TERM", rankEnds + "(trap 'echo told; exit' TERM; ended; echo ready; while :; do :; done) &", "ready\ntold\n", syscall.SIGTERM, time.Minute, 143, ""},
		{"TERM, and it stays", rankEnds + "(trap '' TERM; ended; echo ready; exec sleep 600) &", "ready\n", syscall.SIGTERM, time.Second, 143, `^rank 0 .*: (sh|sleep) \(pid`},
	} {
		for _, way := range ways {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				var out buffer
				var warned []string
				signals := make(chan os.Signal, 1)
				job := Job{NP: 1, Argv: sh(c.script), Grace: c.grace, Stdout: &out, Signals: signals, Warn: func(text string) { warned = append(warned, text) }}
				overAgents(t, &job, min(way.hosts, 1))
				if c.send != 0 {
					go func() { <-out.await("ready\n"); signals <- c.send }()
				}
				r, _, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != c.status || out.String() != c.stdout {
					t.Errorf("got status %d, cause %v, %v, %q, %q", r.ExitStatus, r.Cause, err, out.String(), stderr)
				}
				if (c.warned == "") != (warned == nil) || c.warned != "" && (len(warned) != 1 || !regexp.MustCompile(c.warned).MatchString(warned[0])) {
					t.Errorf("warned %q, want %s", warned, c.warned)
				}
			})
		}
	}
}

// The grace begins when the ranks of all hosts and groups have ended.
func TestGraceBeginsWithTheLastHost(t *testing.T) {
	var said []string
	c := &controller{job: &Job{}}
	for id := range 2 {
		g := newGroup(id, []App{{NP: 2, Argv: []string{"x"}}}, []place.Share{{Host: "a", Ranks: []int{0}}, {Host: "b", Ranks: []int{1}}})
		for at := range 2 {
			g.seats = append(g.seats, &seat{group: g, at: at, site: siteFunc(func(cmd host.Command) { said = append(said, fmt.Sprint(id, at, cmd.Kind == host.Settle)) })})
		}
		c.worlds.groups = append(c.worlds.groups, g)
	}
	c.requests.job, c.outlet = c.job, &outlet{}
	tell := func(group, at int, kind host.EventKind) {
		c.event(c.worlds.groups[group].seats[at], host.Event{Kind: kind})
	}
	tell(0, 1, host.Lingers)
	tell(1, 1, host.Lingers)
	tell(0, 0, host.Done)
	if said != nil {
		t.Errorf("a host has not ended: told %q", said)
	}
	tell(1, 0, host.Done)
	if want := []string{"0 1 true", "1 1 true"}; !slices.Equal(said, want) {
		t.Errorf("told %q, want %q", said, want)
	}
}
