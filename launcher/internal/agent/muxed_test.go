package agent

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A Write that fails ends the Read in progress first: yamux ends its session after that, and all who read its streams poll meanwhile.
func TestMuxedEndsItsReaderFirst(t *testing.T) {
	testenv.NoLeaks(t)
	in, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	defer in.Close()
	gone, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	m := newMuxed(in, out, in, out)
	read := make(chan error, 1)
	go func() {
		_, err := m.Read(make([]byte, 1))
		read <- err
	}()
	if _, err := m.Write([]byte("x")); err == nil {
		t.Error("nobody reads, and the write did not fail")
	}
	select {
	case <-m.over:
	default:
		t.Error("the reader is not over")
	}
	if err := <-read; err == nil {
		t.Error("the reader has read something")
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// A relay of no other host starts what it is told, tells of its end behind all output, and leaves with its stream.
func TestRelayStartsProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	var ends [4]*os.File // of two pipes
	for i := 0; i < len(ends); i += 2 {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		_ = unix.SetNonblock(pipe[1-i/2], true) // this side's
		ends[i], ends[i+1] = os.NewFile(uintptr(pipe[0]), "read"), os.NewFile(uintptr(pipe[1]), "write")
	}
	over := make(chan error, 1)
	go func() { over <- MainRelay(ends[0], ends[3], []string{"PATH=" + os.Getenv("PATH")}, 1, 0) }()
	l := newLink(newTries(nil), true, nil)
	l.stream, l.to, l.from, l.errors = relayVersion, ends[1], ends[2], ends[2]
	close(l.opened)
	r := &Relay{host: "h", link: l, up: make(chan struct{}), passed: make(chan struct{})}
	r.greet()
	if up, err := r.IsUp(); !up {
		t.Fatal(err)
	}
	for _, c := range []struct{ script, how, said string }{
		{"echo one >&2; echo two >&2; exit 7", "exited with status 7", "two"},
		{"head -c 70000 /dev/zero | tr '\\0' x; echo; echo left >&2", "exited with status 0", "left"},
		{"kill -9 $$", "was killed by signal 9 (killed)", ""},
	} {
		p := r.Start([]string{"sh", "-c", c.script}, "other")
		_, _ = pipes{p}.Read(make([]byte, 1))
		<-p.origin.over()
		how, said := p.Close()
		if how != c.how || len(said) == 0 && c.said != "" || len(said) > 0 && said[len(said)-1] != c.said {
			t.Errorf("%q: %s, %q; want %s, %q", c.script, how, said, c.how, c.said)
		}
	}
	p := r.Start([]string{"/no/such/program"}, "other")
	<-p.origin.over()
	if how, _ := p.Close(); how != "cannot be started: exec: \"/no/such/program\": stat /no/such/program: no such file or directory" {
		t.Error(how)
	}
	// One has the place, and another waits for it; both are killed.
	first, second := r.Start([]string{"sleep", "1000"}, "a"), r.Start([]string{"sleep", "1000"}, "b")
	testenv.Await(t, time.Minute, "a process", func() bool { return first.origin.process()+second.origin.process() > 0 })
	first.Kill()
	second.Kill()
	for _, l := range []*Link{first, second} {
		if how, _ := l.Close(); how != "was killed by signal 9 (killed)" && how != "was not started" {
			t.Error(how)
		}
	}
	r.stream.stop()
	<-r.session.CloseChan()
	_ = ends[1].Close()
	if err := <-over; err != nil {
		t.Error(err)
	}
	_ = r.session.Close()
	_ = ends[2].Close()
	l.out.close()
}
