package gossip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/hashicorp/memberlist"
)

var testKey = bytes.Repeat([]byte{7}, KeySize)

// listenAll makes the nodes of a job, host names a, b, c, ...; edit may change
// each configuration.
func listenAll(t *testing.T, hosts int, edit func(i int, cfg *Config)) []*Node {
	t.Helper()
	nodes := make([]*Node, hosts)
	for i := range nodes {
		cfg := Config{Host: hostName(i), Index: i, Hosts: hosts, Key: testKey}
		if edit != nil {
			edit(i, &cfg)
		}
		n, err := Listen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.Close(); err != nil {
				t.Errorf("close %s: %v", n.cfg.Host, err)
			}
		})
		nodes[i] = n
	}
	return nodes
}

func hostName(i int) string { return string(rune('a'+i%26)) + strings.Repeat("x", i/26) }

func addrsOf(nodes []*Node) map[int]string {
	addrs := make(map[int]string)
	for i, n := range nodes {
		addrs[i] = n.Addr()
	}
	return addrs
}

// each runs f for all nodes at once and gives the errors by index.
func each(nodes []*Node, f func(i int, n *Node) error) []error {
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = f(i, n)
		}()
	}
	wg.Wait()
	return errs
}

func joinAll(t *testing.T, ctx context.Context, nodes []*Node) {
	t.Helper()
	addrs := addrsOf(nodes)
	if err := errors.Join(each(nodes, func(_ int, n *Node) error { return n.Join(ctx, addrs) })...); err != nil {
		t.Fatal(err)
	}
}

// fenceAll runs one fence and checks what everybody got.
func fenceAll(ctx context.Context, nodes []*Node, epoch uint64, data func(i int) []byte) error {
	return errors.Join(each(nodes, func(i int, n *Node) error {
		all, err := n.Fence(ctx, epoch, data(i))
		if err != nil {
			return fmt.Errorf("%s: %w", n.cfg.Host, err)
		}
		for j, got := range all {
			if want := data(j); !bytes.Equal(got, want) {
				return fmt.Errorf("%s: fence %d: host %d is %d bytes, want %d", n.cfg.Host, epoch, j, len(got), len(want))
			}
		}
		return nil
	})...)
}

func testData(epoch, size int) func(i int) []byte {
	return func(i int) []byte { return bytes.Repeat([]byte{byte(i), byte(epoch)}, size+i) }
}

func TestCardsCross(t *testing.T) {
	for _, hosts := range []int{1, 2, 3, 5, 8, 16, 64} {
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			testenv.NoLeaks(t)
			ctx := testenv.Deadline(t, 30*time.Second)
			nodes := listenAll(t, hosts, func(_ int, cfg *Config) {
				if hosts > 16 {
					cfg.ProbeInterval = time.Hour // a probe outlives Close by seconds here
				}
			})
			joinAll(t, ctx, nodes)
			for i, n := range nodes {
				first, end := n.members()
				if got := n.list.NumMembers(); got != end-first {
					t.Errorf("after Join %s sees %d members, want %d", nodes[i].cfg.Host, got, end-first)
				}
			}
			for epoch := 1; epoch <= 5; epoch++ {
				if err := fenceAll(ctx, nodes, uint64(epoch), testData(epoch, 1000)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := nodes[0].Fence(ctx, 5, nil); err == nil {
				t.Error("a second contribution to one fence: no error")
			}
		})
	}
}

func TestPipelinedFences(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	nodes := listenAll(t, 4, nil)
	joinAll(t, ctx, nodes)
	var wg sync.WaitGroup
	errs := make([]error, 10)
	for e := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[e] = fenceAll(ctx, nodes, uint64(e+1), testData(e, 10))
		}()
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}

func TestLargeContributions(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 60*time.Second)
	nodes := listenAll(t, 3, nil)
	joinAll(t, ctx, nodes)
	for epoch := 1; epoch <= 2; epoch++ {
		if err := fenceAll(ctx, nodes, uint64(epoch), testData(epoch, 5<<19)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		n.mu.Lock()
		if open := len(n.fences.open); open > 2 {
			t.Errorf("%s keeps %d fences", n.cfg.Host, open)
		}
		n.mu.Unlock()
	}
}

func TestWrongKey(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	nodes := listenAll(t, 2, func(i int, cfg *Config) {
		if i == 1 {
			cfg.Key = bytes.Repeat([]byte{8}, KeySize)
		}
	})
	if err := nodes[1].Join(ctx, addrsOf(nodes)); !errors.Is(err, ErrKey) {
		t.Errorf("join with another key: %v, want ErrKey", err)
	}
	if got := nodes[0].list.NumMembers(); got != 1 {
		t.Errorf("host a sees %d members, want itself only", got)
	}
}

func TestLostHostEndsFences(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	nodes := listenAll(t, 3, nil)
	joinAll(t, ctx, nodes)
	errs := each(nodes[:2], func(i int, n *Node) error {
		go n.Lost("c", "its agent's connection ended")
		_, err := n.Fence(ctx, 1, nil)
		return err
	})
	for i, err := range errs {
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "c: its agent's connection ended") {
			t.Errorf("fence of %s: %v, want host c lost", nodes[i].cfg.Host, err)
		}
	}
}

// A host that memberlist takes for dead is a suspect: fences wait for it until the owner
// says that it is lost, and are complete if it answers after all.
func TestSuspectsEndNoFence(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	var down cutOff
	nodes := listenAll(t, 3, func(i int, cfg *Config) {
		cfg.ProbeInterval, cfg.ProbeTimeout = 100*time.Millisecond, 50*time.Millisecond
		under, err := listen(&memberlist.Config{BindAddr: "127.0.0.1", Logger: log.New(io.Discard, "", 0)})
		if err != nil {
			t.Fatal(err)
		}
		cfg.Transport = cutTransport{under, &down, i == 2}
	})
	joinAll(t, ctx, nodes)
	down.Store(&nodes[2].addr)
	for _, n := range nodes[:2] {
		if got := <-n.Suspects(); got != "c" {
			t.Fatalf("%s suspects %q, want c", n.cfg.Host, got)
		}
	}
	fences := make(chan error)
	go func() { fences <- fenceAll(ctx, nodes, 1, testData(1, 8)) }()
	down.Store(nil)
	if err := <-fences; err != nil {
		t.Fatal(err)
	}
	down.Store(&nodes[2].addr)
	lost := each(nodes[:2], func(i int, n *Node) error {
		go n.Lost("c", "gorun says so")
		_, err := n.Fence(ctx, 2, nil)
		return err
	})
	for i, err := range lost {
		if !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "c: gorun says so") {
			t.Errorf("fence of %s: %v, want host c lost", nodes[i].cfg.Host, err)
		}
	}
}

// cutOff is the address of a node that is cut off; nil: none is.
type cutOff = atomic.Pointer[string]

// A cutTransport sends nothing to a node that is cut off, and nothing of its own node if
// that is the one.
type cutTransport struct {
	memberlist.Transport
	off  *cutOff
	last bool // it is the transport of that node
}

func (c cutTransport) cut(addr string) bool {
	off := c.off.Load()
	return off != nil && (c.last || addr == *off)
}

func (c cutTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	if c.cut(addr) {
		return time.Now(), nil
	}
	return c.Transport.WriteTo(b, addr)
}

func (c cutTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	if c.cut(addr) {
		return nil, errors.New("cut off")
	}
	return c.Transport.DialTimeout(addr, timeout)
}

func TestCloseEndsFences(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	nodes := listenAll(t, 2, nil)
	joinAll(t, ctx, nodes)
	done := make(chan error)
	go func() { _, err := nodes[0].Fence(ctx, 1, nil); done <- err }()
	nodes[0].Close()
	if err := <-done; !errors.Is(err, ErrClosed) {
		t.Errorf("fence of a closed node: %v, want ErrClosed", err)
	}
}

// A node is closed at once although it dials a host that is cut off.
func TestCloseWaitsForNoDial(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	dials, free := make(chan string, 100), make(chan struct{})
	defer close(free)
	nodes := listenAll(t, 2, func(i int, cfg *Config) {
		if i == 1 {
			under, err := listen(&memberlist.Config{BindAddr: "127.0.0.1", Logger: log.New(io.Discard, "", 0)})
			if err != nil {
				t.Fatal(err)
			}
			cfg.Transport = slowTransport{under, dials, free}
		}
	})
	joined := make(chan error)
	go func() { joined <- nodes[1].Join(ctx, addrsOf(nodes)) }()
	<-dials
	if err := nodes[1].Close(); err != nil {
		t.Error(err)
	}
	if err := <-joined; err == nil {
		t.Error("joined by a dial that does not end")
	}
}

// A slowTransport tells of dials, and lets them wait.
type slowTransport struct {
	memberlist.Transport
	dials chan<- string
	free  <-chan struct{}
}

func (s slowTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	s.dials <- addr
	<-s.free
	return nil, errors.New("no answer")
}

func TestConfigErrors(t *testing.T) {
	cases := map[string]struct {
		cfg  Config
		want string
	}{
		"no name":     {Config{Hosts: 1, Key: testKey}, "Config.Host"},
		"blank":       {Config{Host: "a b", Hosts: 1, Key: testKey}, "Config.Host"},
		"no hosts":    {Config{Host: "a", Key: testKey}, "0 of 0 hosts"},
		"index":       {Config{Host: "a", Hosts: 2, Index: 2, Key: testKey}, "2 of 2 hosts"},
		"no key":      {Config{Host: "a", Hosts: 1}, "has 0 bytes, want 32"},
		"bind name":   {Config{Host: "a", Hosts: 1, Key: testKey, Bind: "nosuch:0"}, "not an IP address"},
		"bind port":   {Config{Host: "a", Hosts: 1, Key: testKey, Bind: "127.0.0.1:99999"}, "99999"},
		"not ours":    {Config{Host: "a", Hosts: 1, Key: testKey, Bind: "192.0.2.1:0"}, "listen on 192.0.2.1:0"},
		"bad fan-out": {Config{Host: "a", Hosts: 1, Key: testKey, Fanout: -1}, "Fanout"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			n, err := Listen(c.cfg)
			if err == nil {
				n.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func BenchmarkFence(b *testing.B) {
	for _, hosts := range []int{2, 8, 32} {
		for _, fanout := range []int{2, 4, 8, 16} {
			b.Run(fmt.Sprintf("hosts=%d/fanout=%d", hosts, fanout), func(b *testing.B) {
				nodes := make([]*Node, hosts)
				for i := range nodes {
					n, err := Listen(Config{Host: hostName(i), Index: i, Hosts: hosts, Key: testKey, Fanout: fanout})
					if err != nil {
						b.Fatal(err)
					}
					defer n.Close()
					nodes[i] = n
				}
				ctx := context.Background()
				addrs := addrsOf(nodes)
				start := time.Now()
				if err := errors.Join(each(nodes, func(_ int, n *Node) error { return n.Join(ctx, addrs) })...); err != nil {
					b.Fatal(err)
				}
				join := time.Since(start)
				epoch := uint64(0)
				b.ResetTimer()
				for b.Loop() {
					epoch++
					if err := fenceAll(ctx, nodes, epoch, testData(1, 500)); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(join.Microseconds())/1000, "join-ms")
			})
		}
	}
}

var _ memberlist.Transport = (*transport)(nil)
