package group

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// says fails unless an error has all of some texts.
func says(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q in it", err, text)
		}
	}
}

// Each field of the configuration is compared; the end that dialed is refused with both
// configurations, and so is it in the log of the other one, which goes on waiting for the right one.
func TestMismatchIsRefusedWithBothConfigurations(t *testing.T) {
	base := config(100, "int", "sum", Auto)
	for name, change := range map[string]func(c *Config){
		"size": func(c *Config) { c.Size = 99 }, "type": func(c *Config) { c.Type = "float" },
		"batch size": func(c *Config) { c.Batch = 6 }, "batches": func(c *Config) { c.Batches = 3 },
		"operation": func(c *Config) { c.Operation = "max" }, "algorithm": func(c *Config) { c.Algorithm = "ring" },
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, time.Minute)
			all := options(t, base, nil, []member{{kind: Daemon, clients: 1}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{0}}})
			var log strings.Builder
			all[0].SDK.SetOutput(&log)
			change(&all[1].Config)
			served := make(chan outcome, 1)
			go func() {
				_, err := one(ctx, 0, all[0])
				served <- outcome{err: err}
			}()
			_, err := one(ctx, 1, all[1])
			says(t, err, "refused", base.String(), all[1].Config.String())
			// The right client still finds its daemon.
			if _, err := one(ctx, 2, all[2]); err != nil {
				t.Error(err)
			}
			if d := <-served; d.err != nil {
				t.Error(d.err)
			}
			says(t, errors.New(log.String()), "was not let in", base.String(), all[1].Config.String())
		})
	}
}

func TestIncompleteGroupsSayWhoIsMissing(t *testing.T) {
	testenv.NoLeaks(t)
	gone := listen(t)
	nobody := gone.Addr().String()
	gone.Close()
	for _, c := range []struct {
		name    string
		members []member
		extra   string // an address that member 0 names as well
		want    [][]string
	}{
		{"an address where nobody is", []member{{kind: Direct}}, nobody, [][]string{{"no participant has answered at " + nobody + " (connection refused), which this client (non-offloaded) names"}}},
		{"a daemon that has no clients", []member{{kind: Daemon, clients: 2}, {kind: Direct, names: []int{0}}}, "", [][]string{{"has 0 of 2 clients"}, {"has 0 of 2 clients"}}},
		{"one client of two", []member{{kind: Daemon, clients: 2}, {kind: Offloaded, names: []int{0}}}, "", [][]string{{"this daemon has 1 of 2 clients"}, {"daemon ", "has 1 of 2 clients"}}},
		{"alone", []member{{kind: Direct}}, "", [][]string{{"no other participant is here"}}},
		{"fewer than wanted", []member{{kind: Direct, want: 3}, {kind: Direct, names: []int{0}}}, "", [][]string{{"2 of 3 participants are here"}, {"2 of 3 participants are here"}}},
		{"a third one's name", []member{{kind: Direct}, {kind: Direct, names: []int{0}}}, nobody, [][]string{{nobody}, {nobody}}},
		{"an offloaded client without a daemon", []member{{kind: Offloaded}}, nobody, [][]string{{"no daemon has answered at " + nobody + " within 1s (--connect-timeout): connection refused"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // each waits for a second
			all := options(t, config(10, "int", "sum", Auto), nil, c.members)
			for i := range all {
				all[i].Timeout = time.Second
			}
			if c.extra != "" {
				all[0].Addresses = append(all[0].Addresses, c.extra)
			}
			for i, o := range run(testenv.Deadline(t, time.Minute), all) {
				says(t, o.err, c.want[i]...)
			}
		})
	}
}

// A daemon that names nobody, and that nobody has reached, waits until it is interrupted.
func TestDaemonWaitsForItsFirstClient(t *testing.T) {
	testenv.NoLeaks(t)
	ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
	all := options(t, config(10, "int", "sum", Auto), nil, []member{{kind: Daemon, clients: 1, names: []int{0}}})
	all[0].Timeout = time.Second // in which it finds out that the address is its own
	address := all[0].Listener.Addr().String()
	done := make(chan error, 1)
	go func() {
		_, err := Form(ctx, all[0])
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("the daemon has ended: %v", err)
	case <-time.After(1500 * time.Millisecond):
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

// cut is a listener whose connections a test can cut.
type cut struct {
	net.Listener
	conns chan net.Conn
}

func (c *cut) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.conns <- conn
	}
	return conn, err
}

// A member that is gone in the middle of a batch ends all others, who name it.
func TestMemberGoneInABatchIsNamed(t *testing.T) {
	for _, c := range []struct {
		name    string
		members []member
		victim  int
	}{
		{"a client of a daemon", []member{{kind: Daemon, clients: 2}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{0}}}, 1},
		{"a participant", counted([]member{{kind: Direct, names: []int{1, 2}}, {kind: Direct, names: []int{2}}, {kind: Direct}}), 1},
		{"a daemon", []member{{kind: Daemon, clients: 1, names: []int{1}}, {kind: Daemon, clients: 1, want: 2}, {kind: Offloaded, names: []int{0}}, {kind: Offloaded, names: []int{1}}}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, time.Minute)
			cfg := config(1000, "int", "sum", Auto)
			cfg.Batches = 1 << 20 // without end
			all := options(t, cfg, nil, c.members)
			vanish, cancel := context.WithCancel(ctx)
			defer cancel()
			out := make(chan error, len(all))
			for i, o := range all {
				within := ctx
				if i == c.victim {
					within = vanish
				}
				go func() {
					// The first whole batch of client 2 says that all are at work.
					begun := cancel
					if i != 2 {
						begun = nil
					}
					out <- endless(within, o, begun)
				}()
			}
			for range all {
				err := <-out
				says(t, err, "")
				if !errors.Is(err, context.Canceled) {
					says(t, err, "interrupted")
				}
			}
		})
	}
}

// endless runs a member until it fails. begun is called behind its first batch.
func endless(ctx context.Context, o Options, begun func()) error {
	s, err := Form(ctx, o)
	if err != nil {
		return err
	}
	if o.Kind == Daemon {
		_, err = s.Serve()
		return errors.Join(err, s.Close())
	}
	err = s.Barrier(nil)
	for n := 0; err == nil; n++ {
		if n == NetworkBatches {
			err = s.Barrier(nil)
		}
		if err == nil {
			err = s.Batch(nil)
		}
		if n == 0 && begun != nil {
			begun()
		}
	}
	return errors.Join(err, s.Close())
}

// A connection that breaks without a word.
func TestBrokenConnectionNamesThePeer(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	cfg := config(1000, "int", "sum", Auto)
	cfg.Batches = 1 << 20
	all := options(t, cfg, nil, []member{{kind: Direct}, {kind: Direct, names: []int{0}}})
	c := &cut{all[0].Listener, make(chan net.Conn, 4)}
	all[0].Listener = c
	out := make(chan error, 2)
	begun := make(chan struct{})
	go func() { out <- endless(ctx, all[0], func() { close(begun) }) }()
	go func() { out <- endless(ctx, all[1], nil) }()
	<-begun
	conn := <-c.conns
	_ = conn.(*net.TCPConn).SetLinger(0) // without a good-bye
	conn.Close()
	for range 2 {
		select {
		case err := <-out:
			says(t, err, "client (non-offloaded) ")
		case <-ctx.Done():
			t.Fatal("nobody noticed")
		}
	}
}

func TestKeys(t *testing.T) {
	other := []byte("another key of another job, so what")
	for _, c := range []struct {
		name         string
		daemon, host []byte
		want         string
	}{
		{"another key", key, other, "the peer has another key"},
		{"no key here", key, nil, "has a key where this end has none"},
		{"no key there", nil, key, "is the key the same on both sides?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
			all := options(t, config(10, "int", "sum", Auto), nil, []member{{kind: Daemon, clients: 1}, {kind: Offloaded, names: []int{0}}})
			all[0].Key, all[1].Key = c.daemon, c.host
			done := make(chan error, 1)
			go func() {
				_, err := one(ctx, 0, all[0])
				done <- err
			}()
			_, err := one(ctx, 1, all[1])
			says(t, err, "refused", c.want)
			cancel()
			<-done
		})
	}
}

func TestRefusals(t *testing.T) {
	ctx := testenv.Deadline(t, time.Minute)
	t.Run("an offloaded client of a client", func(t *testing.T) {
		testenv.NoLeaks(t)
		all := options(t, config(10, "int", "sum", Auto), nil, []member{{kind: Direct}, {kind: Offloaded, names: []int{0}}})
		all[0].Timeout = time.Second
		says(t, run(ctx, all)[1].err, "refused", "serves no clients")
	})
	t.Run("more participants than wanted", func(t *testing.T) {
		testenv.NoLeaks(t)
		all := options(t, config(10, "int", "sum", Auto), nil, []member{{kind: Direct, want: 2, names: []int{1}}, {kind: Direct, want: 3, names: []int{2}}, {kind: Direct, want: 3}})
		for _, o := range run(ctx, all) {
			says(t, o.err, "3 participants have come, but ", "wants 2 (--participants)")
		}
	})
	t.Run("one that comes when the group is complete", func(t *testing.T) {
		testenv.NoLeaks(t)
		cfg := config(10, "int", "sum", Auto)
		all := options(t, cfg, nil, []member{{kind: Daemon, clients: 1}, {kind: Offloaded, names: []int{0}}, {kind: Direct, names: []int{0}}, {kind: Offloaded, names: []int{0}}})
		served := make(chan error, 1)
		go func() {
			_, err := one(ctx, 0, all[0])
			served <- err
		}()
		s, err := Form(ctx, all[1])
		if err != nil {
			t.Fatal(err)
		}
		_, err = one(ctx, 2, all[2])
		says(t, err, "refused by daemon", "is complete without this one", "--participants 2")
		_, err = one(ctx, 3, all[3])
		says(t, err, "refused by daemon", "serves 1 clients")
		if _, err := work(s, &cfg, 1); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Members whose results differ end with an error.
func TestDifferentResultsAreFound(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	all := options(t, Config{Size: 1, Type: "int", Operation: "sum", Batch: 1, Batches: 1, Algorithm: Auto}, nil, []member{{kind: Direct}, {kind: Direct, names: []int{0}}})
	out := make(chan error, 2)
	for i := range all {
		go func() {
			g, err := Form(ctx, all[i])
			if err != nil {
				out <- err
				return
			}
			err = g.Barrier(nil)
			for range NetworkBatches + 1 {
				err = errors.Join(err, g.Batch(nil))
			}
			out <- errors.Join(err, g.Barrier([]byte{byte(i)}), g.Close())
		}()
	}
	for range all {
		says(t, <-out, "the results differ")
	}
}

// A daemon whose client submits nothing can be interrupted.
func TestDaemonIsInterruptedWhileItsClientSubmitsNothing(t *testing.T) {
	testenv.NoLeaks(t)
	ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
	all := options(t, config(10, "int", "sum", Auto), nil, []member{{kind: Daemon, clients: 1, want: 1}, {kind: Offloaded, names: []int{0}}})
	served := make(chan error, 1)
	go func() {
		_, err := one(ctx, 0, all[0])
		served <- err
	}()
	s, err := Form(testenv.Deadline(t, time.Minute), all[1])
	if err == nil {
		err = s.Barrier(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("the daemon: %v", err)
	}
	err = s.Batch(nil)
	says(t, err, "daemon ", "interrupted")
	says(t, s.Close(), "interrupted")
}
