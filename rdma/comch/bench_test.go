package comch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// connected makes the ends of a channel over the real transport.
func connected(t testing.TB, kind string, cfg Config) (server, client *Conn) {
	t.Helper()
	cfg.Name = t.Name() + strconv.Itoa(int(time.Now().UnixNano()))
	ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(20*time.Second))
	defer cancel()
	if kind == "pair" {
		server, client, err := Pair(cfg, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close(); client.Close() })
		return server, client
	}
	listen := func() (*Listener, error) { return Listen(cfg) }
	if kind == "tls" {
		cfg.Key = []byte("a key of more than 16 bytes")
		listen = func() (*Listener, error) { return ListenTLS(cfg, "127.0.0.1:0") }
	}
	l, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed := make(chan error, 1)
	go func() {
		var err error
		if kind == "tls" {
			client, err = DialTLS(ctx, cfg, l.Addr())
		} else {
			client, err = Dial(ctx, cfg)
		}
		dialed <- err
	}()
	server, err = l.Accept(ctx)
	if err := errors.Join(err, <-dialed); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// stream sends n messages one way, ends, and waits until all are taken.
func stream(ctx context.Context, from, to *Conn, size, n int) error {
	done := make(chan error, 1)
	go func() {
		buf := make([]byte, MaxMessage)
		for got := 0; ; got++ {
			k, err := to.Recv(ctx, buf)
			switch {
			case err == io.EOF && got == n:
				done <- nil
				return
			case err == nil && k != size:
				err = fmt.Errorf("a message of %d bytes, want %d", k, size)
			}
			if err != nil {
				done <- fmt.Errorf("message %d: %w", got, err)
				return
			}
		}
	}()
	msg := make([]byte, size)
	for range n {
		if err := from.Send(ctx, msg); err != nil {
			return errors.Join(err, <-done)
		}
	}
	err := from.CloseSend(ctx)
	err = errors.Join(err, <-done)
	return errors.Join(err, from.Drain(ctx))
}

func BenchmarkOneWay(b *testing.B) {
	for _, kind := range []string{"pair", "here", "tls"} {
		for _, size := range []int{8, 256, 4080} {
			b.Run(fmt.Sprintf("%s/%d", kind, size), func(b *testing.B) {
				server, client := connected(b, kind, Config{Buffer: max(size, MinBuffer)})
				b.ReportAllocs()
				b.SetBytes(int64(size))
				b.ResetTimer()
				if err := stream(context.Background(), client, server, size, b.N); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mmsg/s")
			})
		}
	}
}

// BenchmarkAlone is what a message costs both ends without any waiting: one goroutine
// sends some and receives them.
func BenchmarkAlone(b *testing.B) {
	const batch = 64
	for _, size := range []int{8, 256, 4080} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			server, client := connected(b, "here", Config{Buffer: min(size+8, MaxBuffer)})
			out, in := make([]byte, size), make([]byte, MaxMessage)
			b.ReportAllocs()
			for i := 0; i < b.N; i += batch {
				for range batch {
					if sent, err := client.TrySend(out); !sent || err != nil {
						b.Fatal(sent, err)
					}
				}
				for range batch {
					if n, ok, err := server.TryRecv(in); n != size || !ok || err != nil {
						b.Fatal(n, ok, err)
					}
				}
			}
		})
	}
}

// BenchmarkBurst is the time of some messages of 256 B until the receiver's program has all.
func BenchmarkBurst(b *testing.B) {
	for _, kind := range []string{"here", "tls"} {
		for _, n := range []int{1, 10, 100, 1000} {
			b.Run(fmt.Sprintf("%s/%d", kind, n), func(b *testing.B) {
				server, client := connected(b, kind, Config{})
				ctx := context.Background()
				done := make(chan error, 1)
				go func() {
					buf, one := make([]byte, MaxMessage), []byte{1}
					for got := 1; ; got++ {
						_, err := server.Recv(ctx, buf)
						if err == nil && got%n == 0 {
							err = server.Send(ctx, one)
						}
						if err != nil {
							if err == io.EOF {
								err = nil
							}
							done <- err
							return
						}
					}
				}()
				msg, ack := make([]byte, 256), make([]byte, 1)
				for b.Loop() {
					for range n {
						if err := client.Send(ctx, msg); err != nil {
							b.Fatal(err)
						}
					}
					if _, err := client.Recv(ctx, ack); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/msg")
				if err := errors.Join(client.CloseSend(ctx), <-done); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
