package host

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// desk is a host without a loop, whose ranks are pipes that a test writes to.
type desk struct {
	*Host
	t      *testing.T
	pipes  []int          // ends of the ranks' standard outputs
	out    []bytes.Buffer // what was passed on of each
	pieces []int          // in how many events
	asked  []int          // ranks that asked for room for a long line
	torn   []string
	failed []string
}

func newDesk(t *testing.T, np int) *desk {
	t.Helper()
	d := &desk{t: t, out: make([]bytes.Buffer, np), pieces: make([]int, np)}
	spec := ranks(np, "true")
	spec.NP, spec.Hosts, spec.Job = np, 1, jobOf(t)
	var err error
	d.Host, err = New(spec, Config{Emit: func(e Event) {
		switch e.Kind {
		case Output:
			d.out[e.Rank].Write(e.Data)
			d.pieces[e.Rank]++
		case Long:
			d.asked = append(d.asked, e.Rank)
		case Torn:
			d.torn = append(d.torn, e.Text)
		case Failed:
			d.failed = append(d.failed, e.Text)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err = d.poll.open(false); err != nil {
		t.Fatal(err)
	}
	d.buf = make([]byte, bufLeast)
	d.server.dialers = make([]bool, 1)
	d.Host.ranks = make([]rank, np)
	d.server.openWorld()
	for i := range d.Host.ranks {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		r := &d.Host.ranks[i]
		r.up, r.spoken, r.socket, r.pid = true, i > 0, -1, os.Getpid()
		r.pipes[Stdout].fd, r.pipes[Stderr].fd = ends[0], -1
		if err := d.watch(ends[0], unix.EPOLLIN, sourceStdout, i); err != nil {
			t.Fatal(err)
		}
		d.output.open++
		d.pipes = append(d.pipes, ends[1])
	}
	t.Cleanup(func() {
		for i := range d.pipes {
			closeFD(&d.pipes[i])
			closeFD(&d.Host.ranks[i].pipes[Stdout].fd)
		}
		d.output.aside.close()
		d.poll.close()
		d.mail.close()
	})
	return d
}

// write writes as a rank, and reads it as far as the host does.
func (d *desk) write(rank int, text string) {
	d.t.Helper()
	for len(text) > 0 {
		n, err := unix.Write(d.pipes[rank], []byte(text[:min(len(text), 60<<10)])) // a pipe takes it
		if err != nil {
			d.t.Fatal(err)
		}
		text = text[n:]
		if len(text) > 0 {
			d.serve()
		}
	}
}

// serve does what is due, and gives room to the ranks that ask for it. All that was
// passed on counts as written.
func (d *desk) serve() {
	d.t.Helper()
	for d.read(); len(d.asked) > 0; d.read() {
		rank := d.asked[0]
		d.asked = d.asked[1:]
		d.output.goOn(rank, Stdout)
		d.output.credit(Stdout, d.output.streams[Stdout].ahead)
	}
	d.output.credit(Stdout, d.output.streams[Stdout].ahead)
}

// read serves what is ready, as long as there is more in a pipe that is read.
func (d *desk) read() {
	d.t.Helper()
	for more := true; more; {
		if err := d.turn(0); err != nil {
			d.t.Fatal(err)
		}
		more = false
		for i := range d.Host.ranks {
			p := &d.Host.ranks[i].pipes[Stdout]
			if p.fd >= 0 && !p.waits && !d.output.streams[Stdout].paused {
				n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
				more = more || err == nil && n > 0
			}
		}
	}
}

func TestLongLines(t *testing.T) {
	line := func(n int, c string) string { return strings.Repeat(c, n) + "\n" }
	for _, c := range []struct {
		name   string
		dir    string // TMPDIR
		limit  uint64 // of the file; 0: none
		write  string
		pieces int // at least 1
		torn   string
	}{
		{"short", "", 0, line(100, "a"), 1, ""},
		{"a million digits", "", 0, line(1_000_000, "7"), 1, ""},
		{"two of them", "", 0, line(1_000_000, "7") + line(500_000, "8"), 2, ""},
		{"without an end", "", 0, strings.Repeat("a", 300_000), 1, ""},
		{"the longest", "", 0, line(stdio.LineMax-1, "a"), 1, ""},
		{"longer", "", 0, line(stdio.LineMax+stdio.LineMax/2, "a") + line(300_000, "b"), 0, "a line of more than 16 MiB is passed on in parts"},
		{"nowhere to keep them", "/nowhere", 0, line(1_000_000, "7") + line(10, "b"), 0, "no such file or directory; TMPDIR may name a directory with room"},
		{"a full disk", "", 300_000, line(1_000_000, "7") + line(100_000, "8"), 0, "as they cannot be kept: file too large (ulimit -f)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t, 2)
			if c.dir != "" {
				d.spec.Apps[0].Env = []string{"TMPDIR=" + c.dir}
			}
			if c.limit > 0 {
				d.output.aside.open(nil)
				d.output.aside.limit = c.limit
			}
			d.write(0, c.write)
			closeFD(&d.pipes[0])
			for d.output.open > 1 || len(d.asked) > 0 {
				d.serve()
			}
			if got := d.out[0].String(); got != c.write {
				t.Errorf("%d bytes became %d", len(c.write), len(got))
			}
			if c.pieces > 0 && d.pieces[0] > c.pieces {
				t.Errorf("passed on in %d pieces, want %d at most", d.pieces[0], c.pieces)
			}
			if got := strings.Join(d.torn, "; "); !strings.Contains(got, c.torn) || (got == "") != (c.torn == "") || len(d.torn) > 1 {
				t.Errorf("told %q, want %q", got, c.torn)
			}
			if len(d.failed) > 0 || d.output.aside.waiting != 0 || len(d.output.aside.slots) > 1 {
				t.Errorf("failures %q, %d lines wait, %d slots", d.failed, d.output.aside.waiting, len(d.output.aside.slots))
			}
			var st unix.Stat_t
			if d.output.aside.file > 0 && (unix.Fstat(d.output.aside.file, &st) != nil || st.Nlink != 0 || st.Blocks > 64) {
				t.Errorf("the file has %d names, %d blocks", st.Nlink, st.Blocks)
			}
		})
	}
}

// A disk that is full (/dev/full takes no byte) loses no byte either.
func TestLongLinesOnAFullDisk(t *testing.T) {
	d := newDesk(t, 2)
	var err error
	if d.output.aside.file, err = unix.Open("/dev/full", unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		t.Fatal(err)
	}
	d.output.aside.limit = 1 << 62
	text := strings.Repeat("x", 500_000) + "\n"
	d.write(0, text)
	d.serve()
	if got := d.out[0].String(); got != text {
		t.Errorf("%d bytes became %d", len(text), len(got))
	}
	if len(d.torn) != 1 || !strings.Contains(d.torn[0], "no space left on device") {
		t.Errorf("told %q", d.torn)
	}
}

// A rank whose long line waits is not read, the others are, and nobody reads what
// waits once output is dropped.
func TestLongLineWaits(t *testing.T) {
	d := newDesk(t, 2)
	text := strings.Repeat("x", 100_000) + "\n"
	for at := 0; at < len(text); at += 50_000 {
		d.write(0, text[at:min(at+50_000, len(text))])
		d.read()
	}
	d.write(0, "behind\n")
	d.write(1, "other\n")
	d.read()
	if len(d.asked) != 1 || d.out[0].Len() > 0 || d.out[1].String() != "other\n" {
		t.Fatalf("asked %v, passed on %d bytes, %q", d.asked, d.out[0].Len(), d.out[1].String())
	}
	if d.output.drained() {
		t.Error("a host whose long line waits is done")
	}
	d.output.goOn(1, Stdout) // it has none
	d.output.goOn(-1, Stdout)
	d.serve()
	d.serve()
	if got := d.out[0].String(); got != text+"behind\n" {
		t.Errorf("%d bytes became %d", len(text)+7, len(got))
	}
	for at := 0; at < len(text); at += 50_000 {
		d.write(0, text[at:min(at+50_000, len(text))])
		d.read()
	}
	had := d.out[0].Len()
	d.output.discardOutput()
	if d.output.aside.waiting != 0 || d.out[0].Len() != had || !d.output.drained() {
		t.Errorf("%d lines wait, %d bytes passed on, drained %v", d.output.aside.waiting, d.out[0].Len()-had, d.output.drained())
	}
}

// A rank that cannot write, as nobody reads its pipe, has not stopped to write in the
// middle of a line.
func TestPromptIsNotSeenInAPausedStream(t *testing.T) {
	for _, how := range []string{"stream is paused", "other stream is paused", "long line waits", "more is in the pipe"} {
		t.Run(how, func(t *testing.T) {
			d := newDesk(t, 2)
			d.spec.Output.Prompt = 100 * time.Millisecond
			late := time.Now().Add(time.Hour)
			d.write(0, "the begin ")
			d.read()
			var resume func()
			switch how {
			case "stream is paused":
				d.output.pause(Stdout, true)
				resume = func() { d.output.pause(Stdout, false) }
			case "other stream is paused":
				d.output.pause(Stderr, true)
				resume = func() { d.output.pause(Stderr, false) }
			case "long line waits":
				for range 2 {
					d.write(1, strings.Repeat("x", 50_000))
					d.read()
				}
				d.write(1, "\n")
				d.read()
				resume = func() { d.output.goOn(1, Stdout) }
			case "more is in the pipe":
				d.write(0, "and more ")
				resume = func() { d.read() }
			}
			d.output.promptsOnTime(late)
			if got := d.out[0].String(); got != "" {
				t.Errorf("passed on %q", got)
			}
			resume()
			if d.output.prompt.IsZero() {
				t.Fatal("nobody waits for the end of the line any more")
			}
			d.output.promptsOnTime(late.Add(time.Hour))
			if got := d.out[0].String(); !strings.HasPrefix(got, "the begin ") {
				t.Errorf("passed on %q", got)
			}
		})
	}
}

// Where output goes to no terminal, a rank that is alone within a line has its prompt passed on when no rank
// writes; the lines of several stay whole.
func TestPromptAlone(t *testing.T) {
	d := newDesk(t, 3)
	d.spec.Output.Prompt, d.spec.Output.Alone = 100*time.Millisecond, true
	now := time.Now().Add(time.Hour)
	say := func(rank int, text string) {
		d.write(rank, text)
		d.read()
	}
	silence := func(want ...string) {
		t.Helper()
		now = now.Add(time.Hour)
		d.output.promptsOnTime(now)
		for i, w := range want {
			if got := d.out[i].String(); got != w {
				t.Errorf("rank %d: passed on %q, want %q", i, got, w)
			}
		}
	}
	say(0, "name: ")
	say(1, "a line\n")
	silence("", "a line\n", "") // rank 1 has written since
	silence("name: ", "a line\n", "")
	if !d.output.prompt.IsZero() {
		t.Error("a timer runs, though nothing is held back")
	}
	// The line of rank 0 is not over, so that of rank 1 waits for it, without a timer.
	say(1, "computing ")
	silence("name: ", "a line\n", "")
	if !d.output.prompt.IsZero() {
		t.Error("a timer runs, though nothing can be passed on")
	}
	say(0, "x\n")
	silence("name: x\n", "a line\ncomputing ", "")
	// The end of a rank is the end of its line.
	say(1, "\n")
	say(0, "0 ")
	say(2, "2 ")
	silence("name: x\n", "a line\ncomputing \n", "")
	silence("name: x\n", "a line\ncomputing \n", "")
	closeFD(&d.pipes[0])
	d.read()
	silence("name: x\n0 ", "a line\ncomputing \n", "2 ")
	// Whole lines need no timer.
	say(2, "\n")
	say(1, "a line\n")
	silence()
	if !d.output.prompt.IsZero() {
		t.Error("a timer runs for whole lines")
	}
}

func TestRawOutputWaitsForNoNewline(t *testing.T) {
	d := newDesk(t, 1)
	d.spec.Output.Raw = true
	for _, piece := range []string{"name", ": ", "x\ny"} {
		had := d.out[0].Len()
		d.write(0, piece)
		d.read()
		if got := d.out[0].String()[had:]; got != piece {
			t.Errorf("after %q: %q", piece, got)
		}
	}
}

// A rank that has loaded an MPI writes its first line while its init request waits
// in its socket: the look at the rank reads that request, and must leave the line
// alone.
func TestFirstLineIsNotOverwrittenByPMI(t *testing.T) {
	library := filepath.Join(t.TempDir(), "libmpich.so.12")
	if err := os.WriteFile(library, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	mapped, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mapped)

	d := newDesk(t, 2)
	h := d.Host
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	h.ranks[0].pid, h.ranks[0].socket = os.Getpid(), pair[0] // this process has the library mapped
	const line, request = "the first line of a rank\n", "cmd=init pmi_version=1 pmi_subversion=1\n"
	d.write(0, line)
	if _, err := unix.Write(pair[1], []byte(request)); err != nil {
		t.Fatal(err)
	}
	h.readPipe(0, Stdout, unix.EPOLLIN)
	if !h.watcher.hasJoined(0) {
		t.Error("the look at the rank has not read its request: this test shows nothing")
	}
	if got := d.out[0].String(); got != line {
		t.Errorf("passed on %q, want %q", got, line)
	}
}
