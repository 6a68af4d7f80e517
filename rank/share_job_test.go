package rank_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// sharedLength is that of messages whose halves take each rank some milliseconds.
const sharedLength = 64 << 20

func init() {
	for name, receive := range map[string]func(context.Context, *rank.Comm, []byte) error{
		"recv": func(ctx context.Context, c *rank.Comm, b []byte) error {
			_, err := rank.Recv(ctx, c, b, 1, 0)
			return err
		},
		"mrecv": func(ctx context.Context, c *rank.Comm, b []byte) error {
			m, _, err := rank.Mprobe(ctx, c, 1, 0)
			if err == nil {
				_, err = rank.Mrecv(ctx, m, b)
			}
			return err
		},
	} {
		programs["sender is killed in "+name] = func() { halfSent(unix.SIGKILL, receive) }
		programs["sender is stopped in "+name] = func() { halfSent(unix.SIGSTOP, receive) }
	}
	programs["receiver is stopped"] = halfReceived
}

// halfSent is a job of two ranks, of which rank 1 sends itself a signal while both move
// one message. Rank 0 says what it got.
func halfSent(sig unix.Signal, receive func(context.Context, *rank.Comm, []byte) error) {
	ctx := context.Background()
	w, err := rank.Init(ctx, rank.Config{})
	orExit(err)
	c, b := w.Comm(), make([]byte, sharedLength)
	if c.Rank() == 1 {
		var took time.Duration // a send
		for round := range byte(4) {
			paint(b, round+1)
			orExit(rank.Barrier(ctx, c))
			if round == 3 {
				signalWithin(took, sig)
			}
			start := time.Now()
			err = rank.Send(ctx, c, b, 0, 0)
			took = time.Since(start)
		}
		fmt.Printf("sent: %v\n", err)
		pause()
	}
	usr := make(chan os.Signal, 1)
	signal.Notify(usr, unix.SIGUSR1)
	for range 3 {
		orExit(errors.Join(rank.Barrier(ctx, c), receive(ctx, c, b)))
	}
	paint(b, 0)
	orExit(rank.Barrier(ctx, c))
	if sig == unix.SIGSTOP {
		short, cancel := context.WithTimeout(ctx, time.Second/4)
		defer cancel()
		ctx = short
	}
	err = receive(ctx, c, b)
	came := bytes.Count(b[len(b)/2:], []byte{4})
	switch {
	case err == nil && bytes.Count(b, []byte{4}) == len(b):
		fmt.Println("came whole")
	case err == nil:
		fmt.Println("wrong: came, but not whole")
	default:
		fmt.Printf("failed with %d of the second half: %v: %s\n", came, err, judge(c, err))
	}
	paint(b, 9)
	<-usr
	if bytes.Count(b, []byte{9}) == len(b) {
		fmt.Println("untouched")
	} else {
		fmt.Println("wrong: memory was written to after the call")
	}
	pause()
}

// halfReceived is a job of two ranks, of which rank 0 stops itself while both move one
// message, and rank 1 gives it up and takes its memory back.
func halfReceived() {
	ctx := context.Background()
	w, err := rank.Init(ctx, rank.Config{})
	orExit(err)
	c, b := w.Comm(), make([]byte, sharedLength)
	if c.Rank() == 0 {
		var took time.Duration
		for round := range 4 {
			paint(b, 0)
			orExit(rank.Barrier(ctx, c))
			if round == 3 {
				signalWithin(took, unix.SIGSTOP)
			}
			start := time.Now()
			_, err = rank.Recv(ctx, c, b, 1, 0)
			took = time.Since(start)
		}
		if err == nil && bytes.Count(b, []byte{4}) != len(b) {
			fmt.Println("received: wrong: not whole")
		}
		fmt.Printf("received: %v\n", err)
		pause()
	}
	for round := range byte(4) {
		paint(b, round+1)
		orExit(rank.Barrier(ctx, c))
		if round == 3 {
			short, cancel := context.WithTimeout(ctx, time.Second/4)
			defer cancel()
			ctx = short
		}
		err = rank.Send(ctx, c, b, 0, 0)
	}
	paint(b, 9)
	fmt.Printf("sent: %v\n", err)
	pause()
}

// signalWithin has the process send itself a signal somewhere in a time.
func signalWithin(d time.Duration, sig unix.Signal) {
	time.AfterFunc(time.Duration(time.Now().UnixNano()%800+100)*d/1000, func() { _ = unix.Kill(os.Getpid(), sig) })
}

func orExit(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
}

func paint(b []byte, v byte) {
	b[0] = v
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// pause is for a rank that the test kills.
func pause() {
	for {
		_ = unix.Pause()
	}
}

// A receiver that is stopped while it moves its part of a message ends the send in bounded
// time. When it goes on it does not take for the message what the sender has in its
// memory by then.
func TestReceiverInMidMessage(t *testing.T) {
	testenv.NoLeaks(t)
	const rounds = 12
	middle := false
	for round := 0; round < rounds && !middle; round++ {
		j := &job{program: "receiver is stopped", hosts: []int{2}}
		start := time.Now()
		j.start(t)
		j.until(t, 1, "sent: ")
		took, sent := time.Since(start), j.out[1].String()
		middle = strings.Contains(sent, "it stopped in the middle")
		// Its timer may be late: then it stops when the message is through.
		var stop unix.Siginfo
		for errors.Is(unix.Waitid(unix.P_PID, j.ranks[0].Process.Pid, &stop, unix.WSTOPPED, nil), unix.EINTR) {
		}
		if err := j.ranks[0].Process.Signal(unix.SIGCONT); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(sent, "<nil>") || middle {
			j.until(t, 0, "received: ")
			j.until(t, 0, "\n")
		} // else it was taken back before it was begun
		received := j.out[0].String()
		t.Logf("%v: %s%s", took.Round(time.Millisecond), sent, received)
		if strings.Contains(received, "wrong") || middle && !strings.Contains(received, "rank 1 ") {
			t.Errorf("%s%s", sent, received)
		}
		j.stop(t)
	}
	if !middle && runtime.NumCPU() > 1 {
		t.Errorf("in %d rounds the signal never came in the middle of a message", rounds)
	}
}

// A sender that is killed, or stopped, while it moves a part of a message ends the receive
// in bounded time: with an error that names it, or with all of the message where the
// receiver had not left it anything. What it does when it goes on reaches nobody's
// memory.
func TestSenderInMidMessage(t *testing.T) {
	testenv.NoLeaks(t)
	const rounds = 12
	for _, tt := range []struct {
		name, says string
		stopped    bool
	}{
		{"sender is killed in recv", "the process has died", false},
		{"sender is killed in mrecv", "the process has died", false},
		{"sender is stopped in recv", "it stopped in the middle", true},
		{"sender is stopped in mrecv", "it stopped in the middle", true},
	} {
		if tt.stopped && testing.Short() && strings.HasSuffix(tt.name, " recv") {
			continue // mrecv takes the same way
		}
		t.Run(tt.name, func(t *testing.T) {
			halves := 0
			for round := 0; round < rounds && halves == 0; round++ {
				j := &job{program: tt.name, hosts: []int{2}}
				start := time.Now()
				j.start(t)
				j.until(t, 0, "\n")
				text := j.out[0].String()
				t.Logf("%v: %s", time.Since(start).Round(time.Millisecond), text)
				if strings.Contains(text, "wrong") {
					t.Error(text)
				}
				if strings.Contains(text, tt.says) && !strings.Contains(text, " 0 of the second half") || tt.stopped && strings.Contains(text, tt.says) {
					halves++
				}
				if tt.stopped {
					if err := j.ranks[1].Process.Signal(unix.SIGCONT); err != nil {
						t.Fatal(err)
					}
					j.until(t, 1, "sent: ")
					failed := strings.Contains(text, tt.says)
					if sent := j.out[1].String(); failed == strings.Contains(sent, "<nil>") {
						t.Errorf("rank 0 %s, rank 1 %s", text, sent)
					}
				} else {
					<-j.gone[1]
				}
				if err := j.ranks[0].Process.Signal(unix.SIGUSR1); err != nil {
					t.Fatal(err)
				}
				j.until(t, 0, "untouched")
				j.stop(t)
			}
			if halves == 0 && runtime.NumCPU() > 1 {
				t.Errorf("in %d rounds the signal never came in the middle of a message", rounds)
			}
		})
	}
}
