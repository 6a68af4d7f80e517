package visit

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// came has signals of visitors to this process.
var came = func() chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, Signal) // its goroutine stays
	return c
}()

// This process is visited by itself, twice, and by one visitor at a time.
func TestVisit(t *testing.T) {
	testenv.NoLeaks(t)
	for range 2 {
		left := make(chan error, 1)
		go func() {
			<-came
			left <- Receive(func() *Report {
				return &Report{PID: 5, Ranks: []Rank{{Rank: 1, Host: "a", CPU: time.Second, Lines: []string{"x"}}}}
			})
		}()
		v, err := Begin(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r, err := v.Ask()
			if err != nil || r.PID != 5 || len(r.Ranks) != 1 || r.Ranks[0].Host != "a" || r.Ranks[0].CPU != time.Second || !slices.Equal(r.Ranks[0].Lines, []string{"x"}) {
				t.Errorf("got %+v, %v", r, err)
			}
		}
		v.Close()
		if err := <-left; err != nil {
			t.Error(err)
		}
	}
}

// A job that has ended is told as that.
func TestVisitOfAnEnd(t *testing.T) {
	testenv.NoLeaks(t)
	gorun := make(chan *net.UnixConn, 1)
	go func() {
		<-came
		conn, err := net.DialUnix("unix", nil, name(os.Getpid()))
		if err != nil {
			t.Error(err)
		}
		gorun <- conn
	}()
	v, err := Begin(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	_ = (<-gorun).Close()
	for range 2 {
		if _, err := v.Ask(); !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want the end of file", err)
		}
	}
}

// While somebody looks, or nobody is there to be looked at, it says so.
func TestNoVisit(t *testing.T) {
	l, err := listen(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Begin(os.Getpid()); err == nil || !strings.HasPrefix(err.Error(), "another visitor looks at gorun") {
		t.Errorf("a second visitor: %v", err)
	}
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(other.Process.Pid); err == nil || !strings.HasSuffix(err.Error(), " is no gorun") {
		t.Errorf("another program: %v", err)
	}
	if err := other.Process.Kill(); err != nil {
		t.Error(err) // it lived
	}
	_ = other.Wait()
	if _, err := Begin(other.Process.Pid); err == nil || !strings.HasPrefix(err.Error(), "there is no process") {
		t.Errorf("no program: %v", err)
	}
}
