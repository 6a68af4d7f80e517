package rank_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/soft/softtls"
)

// joinVariable has the list of addresses, the rank and the key of a process that joins.
const joinVariable = "RANK_TEST_JOIN"

func init() {
	joins := func(f func(ctx context.Context, c *rank.Comm) error) func() {
		return func() {
			list := strings.Fields(os.Getenv(joinVariable))
			m := rank.Members{Addresses: strings.Split(list[0], ",")}
			m.Rank, _ = strconv.Atoi(list[1])
			cfg := rank.Config{}
			if len(list) > 2 {
				m.Key, cfg.Secure = []byte(list[2]), softtls.Handshake
			}
			err := func() error {
				w, err := rank.Join(context.Background(), m, cfg)
				if err != nil {
					return err
				}
				fmt.Println("joined", w.LocalSize(), "of", w.Comm().Size())
				if err := f(context.Background(), w.Comm()); err != nil {
					return err
				}
				return w.Finalize(context.Background())
			}()
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	programs["joins, collectives"] = joins(collectives[int32])
	programs["joins, messages"] = joins(pingpong)
	programs["joins, barriers"] = joins(func(ctx context.Context, c *rank.Comm) error {
		for {
			if err := rank.Barrier(ctx, c); err != nil {
				fmt.Fprintln(os.Stderr, err)
				_, _ = io.Copy(io.Discard, os.Stdin) // its own end is to be the cause of no other's
				return err
			}
		}
	})
}

// freePort is an address that nobody has for now.
func freePort(t *testing.T, host string) string {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		testenv.Unsupported(t, err.Error())
	}
	defer l.Close()
	return l.Addr().String()
}

// A joined is a process that joins a world by its members' addresses.
type joined struct {
	cmd       *exec.Cmd
	stay      io.Closer
	out, errs output
	gone      chan struct{}
}

// joinProcess starts one. Of the same host are those of the same user and process namespace: apart gives it another.
func joinProcess(t *testing.T, program string, addresses []string, rank int, key string, apart bool) *joined {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &joined{cmd: exec.Command(self), gone: make(chan struct{})}
	j.cmd.Env = append(os.Environ(), programVariable+"="+program, fmt.Sprintf("%s=%s %d %s", joinVariable, strings.Join(addresses, ","), rank, key))
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.errs
	if apart {
		j.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	}
	if j.stay, err = j.cmd.StdinPipe(); err == nil {
		err = j.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(j.gone)
		_ = j.cmd.Wait() // its status is looked at
	}()
	t.Cleanup(func() {
		_ = j.cmd.Process.Kill()
		<-j.gone
	})
	return j
}

func (j *joined) wait(t *testing.T) (status int, errs string) {
	t.Helper()
	select {
	case <-j.gone:
	case <-time.After(testenv.Limit(time.Minute)):
		_ = j.cmd.Process.Signal(syscall.SIGQUIT) // for its stacks
		<-j.gone
		t.Errorf("a member is not through\n%s", &j.errs)
	}
	return j.cmd.ProcessState.ExitCode(), j.errs.String()
}

// joinPlaces are where members are: on one host, or each on its own.
func joinPlaces(t *testing.T, f func(t *testing.T, apart bool)) {
	t.Run("one host", func(t *testing.T) { f(t, false) })
	t.Run("three hosts", func(t *testing.T) {
		if os.Geteuid() != 0 {
			testenv.Unsupported(t, "only root makes process namespaces, which have members take each other for other hosts'")
		}
		if arch.RaceEnabled {
			return // TCP brings what the detector does not see handed over
		}
		f(t, true)
	})
}

// Members of one host share memory, those of several do not; they may start in any order.
func TestJoin(t *testing.T) {
	testenv.NoLeaks(t)
	joinPlaces(t, func(t *testing.T, apart bool) {
		for _, program := range []string{"joins, collectives", "joins, messages"} {
			for _, key := range []string{"", "0123456789abcdef0123456789abcdef"} {
				addresses := []string{freePort(t, "127.0.0.1"), "", ""}
				var all []*joined
				for _, r := range []int{2, 0, 1} {
					all = append(all, joinProcess(t, program, addresses, r, key, apart))
				}
				want := "joined 3 of 3\n"
				if apart {
					want = "joined 1 of 3\n"
				}
				for _, j := range all {
					if status, errs := j.wait(t); status != 0 || j.out.String() != want {
						t.Errorf("%s, key %q: status %d, it says %q, want %q\n%s", program, key, status, j.out.String(), want, errs)
					}
				}
			}
		}
	})
}

// A member that dies in a call ends the calls of the others.
func TestJoinedMemberDies(t *testing.T) {
	testenv.NoLeaks(t)
	joinPlaces(t, func(t *testing.T, apart bool) {
		for victim := range 3 {
			addresses := []string{freePort(t, "127.0.0.1"), "127.0.0.1", "127.0.0.1:1"}
			var all []*joined
			for r := range 3 {
				all = append(all, joinProcess(t, "joins, barriers", addresses, r, "", apart))
			}
			for _, j := range all {
				testenv.Await(t, time.Minute, "a member that has joined", func() bool { return j.out.String() != "" })
			}
			if err := all[victim].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for r, j := range all {
				if r != victim {
					testenv.Await(t, time.Minute, "an error", func() bool { return j.errs.String() != "" })
				}
			}
			for r, j := range all {
				_ = j.stay.Close()
				if status, errs := j.wait(t); r != victim && (status != 1 || !strings.Contains(errs, fmt.Sprintf("rank %d", victim))) {
					t.Errorf("rank %d is killed, rank %d: status %d\n%s", victim, r, status, errs)
				}
			}
		}
	})
}

// joinAll has members join as goroutines of this process, and each do something.
func joinAll(ctx context.Context, list []rank.Members, f func(ctx context.Context, c *rank.Comm) error) error {
	errs := make([]error, len(list))
	var all sync.WaitGroup
	for i, m := range list {
		all.Go(func() {
			w, err := rank.Join(ctx, m, rank.Config{})
			if err == nil {
				err = errors.Join(f(ctx, w.Comm()), w.Finalize(ctx))
			}
			errs[i] = err
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func TestJoinInOneProcess(t *testing.T) {
	testenv.NoLeaks(t)
	if arch.RaceEnabled {
		return // the members share a mapped file, in which the detector sees nothing handed over
	}
	for _, host := range []string{"127.0.0.1", "::1", "localhost"} {
		for _, n := range []int{1, 2, 5} {
			l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
			if err != nil {
				testenv.Unsupported(t, err.Error())
			}
			list := make([]rank.Members, n)
			for r := range list {
				list[r] = rank.Members{Addresses: make([]string, n), Rank: r}
				list[r].Addresses[0] = l.Addr().String()
			}
			list[0].Listener = l
			if err := joinAll(testenv.Deadline(t, time.Minute), list, collectives[float64]); err != nil {
				t.Errorf("%d at %s: %v", n, host, err)
			}
		}
	}
}

func TestJoinRefusesArguments(t *testing.T) {
	ten := make([]string, 10)
	ten[0] = "127.0.0.1:1"
	for _, c := range []struct {
		m    rank.Members
		env  []string
		want string
	}{
		{rank.Members{}, nil, "join: bad argument: no addresses"},
		{rank.Members{Addresses: ten, Rank: 10}, nil, "found rank 10, expected 0 to 9"},
		{rank.Members{Addresses: ten, Rank: -1}, nil, "found rank -1, expected 0 to 9"},
		{rank.Members{Addresses: []string{"here"}}, nil, `found the first address "here", expected HOST:PORT`},
		{rank.Members{Addresses: ten, Key: []byte("short")}, nil, "found a key of 5 bytes, expected 16"},
		{rank.Members{Addresses: ten}, []string{"GORUN_SECURE=1"}, "GORUN_SECURE=1 asks for encryption"},
		{rank.Members{Addresses: ten, Key: []byte("0123456789abcdef")}, []string{"GORUN_SECURE=1"}, "this program has none built in"},
		{rank.Members{Addresses: []string{"192.0.2.1:1"}}, nil, "the first address is where rank 0 listens"},
		{rank.Members{Addresses: ten, Rank: 3, Timeout: time.Millisecond}, nil, "rank 0 has not answered at 127.0.0.1:1 within 1ms: connection refused"},
	} {
		env, err := rank.FromEnviron(c.env)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rank.Join(t.Context(), c.m, rank.Config{Environment: &env}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.m, err, c.want)
		}
	}
}
