package proc

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestParse(t *testing.T) {
	page := int64(unix.Getpagesize())
	for _, name := range []string{"cat", "a) S 1 (b", ") Z ", "", "two words", "((", "))"} {
		text := "17 (" + name + ") S 3 17 5 0 -1 4194308 1 2 3 4 250 50 7 8 20 0 4 0 8812 9999 33 18446744073709551615 1 1\n"
		got, ok := Parse([]byte(text))
		want := Stat{PID: 17, Name: name, State: 'S', Parent: 3, Group: 17, Session: 5, CPU: 3 * time.Second, Parted: true, Threads: 4, Start: 8812, RSS: 33 * page, flags: 4194308}
		if !ok || got != want || got.Ended() || !got.Exiting() {
			t.Errorf("%q: got %+v, %v, want %+v", name, got, ok, want)
		}
	}
	for _, bad := range []string{"", "17", "17 (cat", "17 (cat) S 3 17", "17 (cat) SS 3 17 5 0 -1 0 1 2 3 4 250 50 7 8 20 0 4 0 8812 9999 33 1",
		"x (cat) S 3 17 5 0 -1 0 1 2 3 4 250 50 7 8 20 0 4 0 8812 9999 33 1", "17 (cat) S 3 x 5 0 -1 0 1 2 3 4 250 50 7 8 20 0 4 0 8812 9999 33 1"} {
		if got, ok := Parse([]byte(bad)); ok {
			t.Errorf("%q: got %+v, want nothing", bad, got)
		}
	}
}

func TestOwnProcess(t *testing.T) {
	s, ok := Of(os.Getpid())
	session, _ := unix.Getsid(0)
	if !ok || s.PID != os.Getpid() || s.Parent != os.Getppid() || s.Group != unix.Getpgrp() || s.Session != session || s.RSS == 0 || s.Start == 0 || s.Exiting() {
		t.Errorf("got %+v, %v", s, ok)
	}
	if !Alive(os.Getpid()) {
		t.Error("this process is said not to be alive")
	}
}

// TestEndedProcess looks at one that nobody has waited for yet, and then at none.
func TestEndedProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	testenv.Await(t, 10*time.Second, "its end", func() bool { return !Alive(pid) })
	if s, ok := Of(pid); !ok || !s.Ended() || !s.Exiting() {
		t.Errorf("not waited for: got %+v, %v", s, ok)
	}
	_ = cmd.Wait()
	if s, ok := Of(pid); ok || Alive(pid) {
		t.Errorf("waited for: got %+v, %v", s, ok)
	}
}
