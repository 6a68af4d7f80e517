package comch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

var kinds = []string{"pair", "here", "tls"}

// limit is how long a test may wait for what must come.
func limit(t testing.TB) context.Context { return testenv.Deadline(t, 30*time.Second) }

// message is the i-th message of a stream, of a length of its own.
func message(seed uint64, i int) []byte {
	r := rand.New(rand.NewPCG(seed, uint64(i)))
	n := 1 + r.IntN(MaxMessage)
	switch i % 5 {
	case 0:
		n = 1 + r.IntN(64)
	case 1:
		n = MaxMessage
	}
	b := make([]byte, n)
	for k := range b {
		b[k] = byte(i + k*int(seed))
	}
	return b
}

// send sends n messages and the end mark.
func send(ctx context.Context, c *Conn, seed uint64, n int) error {
	for i := range n {
		if err := c.Send(ctx, message(seed, i)); err != nil {
			return fmt.Errorf("send %d: %w", i, err)
		}
	}
	return c.CloseSend(ctx)
}

// receive expects what send sends.
func receive(ctx context.Context, c *Conn, seed uint64, n int) error {
	buf := make([]byte, MaxMessage)
	for i := 0; ; i++ {
		k, err := c.Recv(ctx, buf)
		switch {
		case err == io.EOF && i == n:
			return nil
		case err != nil:
			return fmt.Errorf("receive %d of %d: %w", i, n, err)
		case i == n:
			return fmt.Errorf("a message behind the last, %d bytes", k)
		}
		if want := message(seed, i); !bytes.Equal(buf[:k], want) {
			return fmt.Errorf("message %d is %d bytes %.20x..., want %d %.20x...", i, k, buf[:k], len(want), want)
		}
	}
}

// Both directions at once: all messages, whole, in order.
func TestMessagesArriveInOrder(t *testing.T) {
	for _, kind := range kinds {
		for _, cfg := range []Config{{}, {Buffer: 16, Queue: 1}, {Buffer: 17, Queue: 300}, {Buffer: 4096, Queue: 1}, {Buffer: 1000, Queue: 5}, {Shared: true}, {Crowded: true}} {
			t.Run(fmt.Sprintf("%s/%d x %d", kind, cfg.Queue, cfg.Buffer), func(t *testing.T) {
				testenv.NoLeaks(t)
				ctx := limit(t)
				server, client := connected(t, kind, cfg)
				n := testenv.Fewer(2000, 300)
				errs := make(chan error, 4)
				go func() { errs <- send(ctx, server, 3, n) }()
				go func() { errs <- send(ctx, client, 5, n/2) }()
				go func() { errs <- receive(ctx, server, 5, n/2) }()
				go func() { errs <- receive(ctx, client, 3, n) }()
				if err := errors.Join(<-errs, <-errs, <-errs, <-errs); err != nil {
					t.Fatal(err)
				}
				for _, c := range []*Conn{server, client} {
					if err := c.Drain(ctx); err != nil {
						t.Errorf("Drain: %v", err)
					}
					if _, err := c.Recv(ctx, make([]byte, MaxMessage)); err != io.EOF {
						t.Errorf("Recv behind the end: %v, want io.EOF", err)
					}
					if err := c.Send(ctx, []byte{1}); !errors.Is(err, ErrClosed) {
						t.Errorf("Send behind the end: %v, want %v", err, ErrClosed)
					}
				}
			})
		}
	}
}

// One goroutine an end that sends and receives in turns, as secure-channel does.
func TestOneGoroutineAnEnd(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := limit(t)
			server, client := connected(t, kind, Config{Buffer: 128, Queue: 40, Shared: true})
			const n = 3000
			end := func(c *Conn, mine, theirs uint64) error {
				buf := make([]byte, MaxMessage)
				for sent, got := 0, 0; sent < n || got < n; {
					moved := false
					if sent < n {
						ok, err := c.TrySend(message(mine, sent))
						if err != nil {
							return err
						}
						if ok {
							sent, moved = sent+1, true
						}
					}
					if got < n {
						k, ok, err := c.TryRecv(buf)
						if err != nil {
							return err
						}
						if ok {
							if !bytes.Equal(buf[:k], message(theirs, got)) {
								return fmt.Errorf("message %d is wrong", got)
							}
							got, moved = got+1, true
						}
					}
					switch {
					case moved:
					case sent == n:
						k, err := c.Recv(ctx, buf)
						if err != nil {
							return err
						}
						if !bytes.Equal(buf[:k], message(theirs, got)) {
							return fmt.Errorf("message %d is wrong", got)
						}
						got++
					default:
						if err := c.Wait(ctx); err != nil {
							return err
						}
					}
				}
				if err := c.CloseSend(ctx); err != nil {
					return err
				}
				// Both take the other's end before they wait for their own to be taken.
				if _, err := c.Recv(ctx, buf); err != io.EOF {
					return fmt.Errorf("behind the last: %w, want io.EOF", err)
				}
				return c.Drain(ctx)
			}
			errs := make(chan error, 2)
			for i, c := range []*Conn{server, client} {
				go func() { errs <- end(c, uint64(7+i), uint64(8-i)) }()
			}
			if err := errors.Join(<-errs, <-errs); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			ctx := limit(t)
			server, client := connected(t, kind, Config{})
			for _, n := range []int{0, MaxMessage + 1} {
				if err := client.Send(ctx, make([]byte, n)); !errors.Is(err, ErrSize) {
					t.Errorf("Send of %d bytes: %v, want %v", n, err, ErrSize)
				}
				if _, err := client.TrySend(make([]byte, n)); !errors.Is(err, ErrSize) {
					t.Errorf("TrySend of %d bytes: %v, want %v", n, err, ErrSize)
				}
			}
			if err := client.Send(ctx, make([]byte, 300)); err != nil {
				t.Fatal(err)
			}
			if _, err := server.Recv(ctx, make([]byte, 299)); !errors.Is(err, ErrSize) {
				t.Errorf("Recv into 299 bytes: %v, want %v", err, ErrSize)
			}
			if n, err := server.Recv(ctx, make([]byte, 300)); n != 300 || err != nil {
				t.Errorf("Recv into 300 bytes behind it: %d, %v; want the message", n, err)
			}
		})
	}
}

// A queue that is full holds the sender up; nothing is lost.
func TestBackPressure(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			ctx := limit(t)
			server, client := connected(t, kind, Config{Buffer: 256, Queue: 20})
			sent, msg := 0, make([]byte, 256)
			brief, cancel := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() {
				for {
					msg[0], msg[1] = byte(sent), byte(sent>>8)
					if err := client.Send(brief, msg); err != nil {
						done <- err
						return
					}
					sent++
				}
			}()
			// It is held up when its queue, and for TLS the kernel's, are full: the next try fails.
			if kind != "tls" {
				testenv.Await(t, time.Minute, "a full queue", func() bool {
					ok, _ := server.t.(*ringConn).peekLast()
					return ok
				})
			}
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Fatalf("the sender ended with %v, want %v", err, context.Canceled)
			}
			if kind != "tls" && sent != 20 {
				t.Errorf("%d messages went into a queue of 20", sent)
			}
			go client.CloseSend(ctx)
			for i := range sent {
				if n, err := server.Recv(ctx, msg); n != 256 || err != nil || int(msg[0])|int(msg[1])<<8 != i {
					t.Fatalf("message %d of %d: %d bytes that begin with %d, %v", i, sent, n, int(msg[0])|int(msg[1])<<8, err)
				}
			}
			if _, err := server.Recv(ctx, msg); err != io.EOF {
				t.Errorf("behind the last: %v, want io.EOF", err)
			}
		})
	}
}

// peekLast tells whether the last slot of the first round is filled.
func (c *ringConn) peekLast() (bool, error) {
	r := c.in
	r.at, r.turn = slotsAt+(r.Slots-1)*r.step, uint64(r.Slots)
	_, ok, err := r.peek()
	return ok, err
}

// What a peer had sent before it closed is there, then the channel says that it is gone.
func TestPeerThatGoes(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := limit(t)
			server, client := connected(t, kind, Config{})
			for i := range 10 {
				if err := client.Send(ctx, message(1, i)); err != nil {
					t.Fatal(err)
				}
			}
			blocked := make(chan error, 1)
			received := make(chan int, 1)
			go func() {
				buf := make([]byte, MaxMessage)
				for i := 0; ; i++ {
					if _, err := server.Recv(ctx, buf); err != nil {
						received <- i
						blocked <- err
						return
					}
				}
			}()
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if n, err := <-received, <-blocked; n != 10 || !errors.Is(err, ErrPeerGone) {
				t.Errorf("received %d, then %v; want 10, then %v", n, err, ErrPeerGone)
			}
			var err error
			for err == nil { // what fits into the queue is taken
				err = server.Send(ctx, make([]byte, MaxMessage))
			}
			if !errors.Is(err, ErrPeerGone) {
				t.Errorf("Send: %v, want %v", err, ErrPeerGone)
			}
			if err := server.Drain(ctx); !errors.Is(err, ErrPeerGone) {
				t.Errorf("Drain: %v, want %v", err, ErrPeerGone)
			}
		})
	}
}

func TestCloseUnblocks(t *testing.T) {
	buf := make([]byte, MaxMessage)
	calls := map[string]func(ctx context.Context, c *Conn) error{
		"Recv": func(ctx context.Context, c *Conn) error { _, err := c.Recv(ctx, buf); return err },
		"Send": func(ctx context.Context, c *Conn) error {
			for {
				if err := c.Send(ctx, buf); err != nil {
					return err
				}
			}
		},
		"Wait": func(ctx context.Context, c *Conn) error {
			for {
				if _, err := c.TrySend(buf); err != nil {
					return err
				}
				if _, _, err := c.TryRecv(buf); err != nil {
					return err
				}
				if err := c.Wait(ctx); err != nil {
					return err
				}
			}
		},
		"Drain": func(ctx context.Context, c *Conn) error {
			if err := c.Send(ctx, buf); err != nil {
				return err
			}
			if err := c.CloseSend(ctx); err != nil {
				return err
			}
			return c.Drain(ctx)
		},
	}
	for _, kind := range kinds {
		for name, call := range calls {
			for _, how := range []string{"Close", "context"} {
				t.Run(kind+"/"+name+"/"+how, func(t *testing.T) {
					testenv.NoLeaks(t)
					server, _ := connected(t, kind, Config{Shared: true})
					ctx, cancel := context.WithCancel(limit(t))
					defer cancel()
					done := make(chan error, 1)
					started := make(chan struct{})
					go func() {
						close(started)
						done <- call(ctx, server)
					}()
					<-started
					want := ErrClosed
					if how == "context" {
						want = context.Canceled
						cancel()
					} else if err := server.Close(); err != nil {
						t.Error(err)
					}
					if err := <-done; !errors.Is(err, want) {
						t.Errorf("%s ended with %v, want %v", name, err, want)
					}
					if err := server.Close(); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

func TestNoCallAllocates(t *testing.T) {
	for _, kind := range []string{"pair", "here"} {
		server, client := connected(t, kind, Config{})
		ctx, out, in := limit(t), make([]byte, 256), make([]byte, MaxMessage)
		if n := testing.AllocsPerRun(1000, func() {
			if err := client.Send(ctx, out); err != nil {
				t.Error(err)
			}
			if _, err := server.Recv(ctx, in); err != nil {
				t.Error(err)
			}
		}); n != 0 {
			t.Errorf("%s: a message to an end costs %v allocations, want 0", kind, n)
		}
	}
}

func TestConfigIsJudged(t *testing.T) {
	for _, c := range []Config{{Buffer: 15}, {Buffer: 4097}, {Queue: -1}, {Queue: MaxQueue + 1}, {Key: make([]byte, MinKey-1)}} {
		if _, _, err := Pair(c, Config{}); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}
