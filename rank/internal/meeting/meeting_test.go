package meeting

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// members are configurations of so many, which listen at a free port of an address.
func members(t *testing.T, n int, host string) []Config {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		testenv.Unsupported(t, err.Error())
	}
	all := make([]Config, n)
	addresses := []string{l.Addr().String()}
	for r := 1; r < n; r++ {
		addresses = append(addresses, fmt.Sprintf("member%d:1", r))
	}
	for r := range all {
		all[r] = Config{Addresses: addresses, Rank: r, Timeout: testenv.Limit(20 * time.Second)}
	}
	all[0].Listener = l
	return all
}

// met has members meet, in an order, and gives what came of each.
func met(ctx context.Context, all []Config, order ...int) ([]*Meeting, []error) {
	meetings, errs := make([]*Meeting, len(all)), make([]error, len(all))
	var done sync.WaitGroup
	for _, r := range order {
		done.Go(func() { meetings[r], errs[r] = Meet(ctx, all[r]) })
	}
	done.Wait()
	return meetings, errs
}

func says(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("error %v, want %q in it", err, text)
		}
	}
}

func TestAllGather(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	all := members(t, 5, "127.0.0.1")
	meetings, errs := met(ctx, all, 4, 2, 0, 1, 3)
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	for r, m := range meetings {
		done.Go(func() {
			for round := range 20 {
				cards, err := m.AllGather(ctx, fmt.Appendf(nil, "%d/%d", r, round))
				for from, card := range cards {
					if want := fmt.Sprintf("%d/%d", from, round); string(card) != want {
						err = errors.Join(err, fmt.Errorf("card %q, want %q", card, want))
					}
				}
				served := false
				err = errors.Join(err, m.BarrierServing(ctx, func() (time.Duration, error) {
					served = true
					return time.Millisecond, nil
				}))
				if err != nil {
					t.Errorf("rank %d, round %d (served %v): %v", r, round, served, err)
					return
				}
			}
		})
	}
	done.Wait()
	for _, m := range meetings {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Others than the members neither end a meeting nor keep it from beginning.
func TestStrangersAreLetGo(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	all := members(t, 2, "127.0.0.1")
	var log []string
	all[0].Log = func(line string) { log = append(log, line) }
	first := make(chan error, 1)
	go func() {
		m, err := Meet(ctx, all[0])
		if err == nil {
			err = m.Close()
		}
		first <- err
	}()
	silent, err := net.Dial("tcp", all[0].Addresses[0]) // stays
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", protocol, protocol + strings.Repeat("x", 1000)} {
		conn, err := net.Dial("tcp", all[0].Addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write([]byte(text))
		_ = conn.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until it is let go
		conn.Close()
	}
	m, err := Meet(ctx, all[1])
	if err != nil {
		t.Fatal(err)
	}
	m.Close()
	if err := <-first; err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(log, func(line string) bool { return strings.Contains(line, "was not let in: it is no rank of this version") }) {
		t.Errorf("rank 0 has said %q", log)
	}
}

// A stranger at the first address is told from rank 0.
func TestStrangerInPlaceOfRank0(t *testing.T) {
	testenv.NoLeaks(t)
	all := members(t, 2, "127.0.0.1")
	go func() {
		if conn, err := all[0].Listener.Accept(); err == nil {
			_, _ = conn.Write([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n"))
			_, _ = io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	_, err := Meet(testenv.Deadline(t, time.Minute), all[1])
	says(t, err, "rank 0 at "+all[0].Addresses[0]+": it is no rank of this version")
	all[0].Listener.Close()
}

func TestRefusals(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		name   string
		change func(all []Config)
		want   []string // what rank 1 says
	}{
		{"a list of another length", func(all []Config) { all[1].Addresses = append(slices.Clone(all[1].Addresses), "more:1") }, []string{"the lists of addresses differ: rank 1 has 4 (", "rank 0 has 3 ("}},
		{"rank 0 again", func(all []Config) { all[1].Rank = 3 }, []string{"found rank 3, expected 1 to 2"}},
		{"another key", func(all []Config) { all[0].Key, all[1].Key = []byte("one"), []byte("another") }, []string{"it has another key"}},
		{"no key", func(all []Config) { all[0].Key = []byte("one") }, []string{"it has another key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := members(t, 3, "127.0.0.1")
			c.change(all)
			ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
			first := make(chan error, 1)
			go func() {
				_, err := Meet(ctx, all[0])
				first <- err
			}()
			_, err := Meet(ctx, all[1])
			says(t, err, c.want...)
			cancel() // rank 0 has waited on
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("rank 0: %v", err)
			}
		})
	}
}

// A rank that comes twice is refused; the others go on.
func TestSameRankTwice(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, time.Minute)
	all := members(t, 3, "127.0.0.1")
	twice := make(chan error, 2)
	var refused error
	meetings := make(chan *Meeting, 3)
	go func() {
		m, _ := Meet(ctx, all[0])
		meetings <- m
	}()
	for range 2 {
		go func() {
			m, err := Meet(ctx, all[1])
			if err == nil {
				meetings <- m
			} else {
				twice <- err
			}
		}()
	}
	refused = <-twice // before the last has come
	says(t, refused, "rank 1 is here already, from 127.0.0.1:", "each process needs a rank of its own")
	last, err := Meet(ctx, all[2])
	if err != nil {
		t.Fatal(err)
	}
	last.Close()
	for range 2 {
		if m := <-meetings; m == nil {
			t.Error("rank 0 has failed")
		} else {
			m.Close()
		}
	}
}

// Each member that is missing is named by all that wait.
func TestMissingMembersAreNamed(t *testing.T) {
	testenv.NoLeaks(t)
	all := members(t, 4, "127.0.0.1")
	all[0].Timeout, all[3].Timeout = testenv.Limit(200*time.Millisecond), 200*time.Millisecond
	_, errs := met(testenv.Deadline(t, time.Minute), all, 1, 0)
	for _, r := range []int{0, 1} { // rank 1 hears of it from rank 0
		says(t, errs[r], fmt.Sprintf("2 of 4 members have not come to %s within %v: rank 2 (member2:1), rank 3 (member3:1)", all[0].Addresses[0], all[0].Timeout))
	}
	_, errs = met(testenv.Deadline(t, time.Minute), all, 3)
	says(t, errs[3], "rank 0 has not answered at "+all[0].Addresses[0]+" within 200ms: connection refused")
}

// A member that is gone ends the exchange of all others, who name it.
func TestMemberGone(t *testing.T) {
	for gone := range 3 {
		t.Run(fmt.Sprint("rank ", gone), func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, time.Minute)
			all := members(t, 3, "127.0.0.1")
			meetings, errs := met(ctx, all, 0, 1, 2)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			var done sync.WaitGroup
			for r, m := range meetings {
				if r != gone {
					done.Go(func() {
						_, err := m.AllGather(ctx, nil)
						says(t, err, fmt.Sprintf("rank %d (", gone), "is gone")
					})
				}
			}
			meetings[gone].Close()
			done.Wait()
		})
	}
}

// A context ends each wait, and the others learn of it.
func TestContextEndsWaits(t *testing.T) {
	testenv.NoLeaks(t)
	all := members(t, 2, "127.0.0.1")
	why := errors.New("enough")
	for r := range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
		if _, err := Meet(ctx, all[r]); !errors.Is(err, why) {
			t.Errorf("rank %d waits for the others: %v, want %v", r, err, why)
		}
	}
	for r := range 2 {
		all = members(t, 2, "127.0.0.1")
		meetings, errs := met(t.Context(), all, 0, 1)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
		if err := meetings[r].Barrier(ctx); !errors.Is(err, why) {
			t.Errorf("rank %d in a barrier: %v, want %v", r, err, why)
		}
		// Rank 1 had come to its barrier before, so for rank 0 it is one of all.
		if err := meetings[1-r].Barrier(testenv.Deadline(t, time.Minute)); r == 0 {
			says(t, err, "enough")
		}
		_ = meetings[1-r].Close()
	}
}

func TestSecretNeedsTheKey(t *testing.T) {
	told := []byte("told by rank 0")
	keyed, other, none := Meeting{cfg: Config{Key: []byte("a")}}, Meeting{cfg: Config{Key: []byte("b")}}, Meeting{}
	if bytes.Equal(keyed.Secret(told), told) || bytes.Equal(keyed.Secret(told), other.Secret(told)) || !bytes.Equal(none.Secret(told), told) {
		t.Error("the secret does not depend on the key alone")
	}
}

// fed is a connection from which given bytes come.
type fed struct {
	net.Conn
	in io.Reader
}

func (f *fed) Read(b []byte) (int, error)  { return f.in.Read(b) }
func (f *fed) Write(b []byte) (int, error) { return len(b), nil }

// Whatever a stranger sends, rank 0 takes it for no member and ends.
func FuzzWelcome(f *testing.F) {
	f.Add([]byte(protocol + "0123456789abcdef\x05\x00\x00\x00h\x92\x01\x91\xa1a0123456789abcdef"))
	f.Add([]byte(protocol + "0123456789abcdef\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		w, err := begin(&fed{in: bytes.NewReader(b)}, []byte("key"), false)
		if err != nil {
			return
		}
		if _, err := w.receive(frameHello, helloMost); err == nil {
			t.Error("a stranger was heard")
		}
	})
}
