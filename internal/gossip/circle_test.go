package gossip

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Hosts of several circles meet, each with no more addresses than it asks for.
func TestManyHosts(t *testing.T) {
	testenv.Part(t, testenv.Large)
	testenv.NoLeaks(t)
	hosts, limit := 72, time.Minute
	if *all {
		hosts, limit = 256, 5*time.Minute
	}
	ctx := testenv.Deadline(t, limit)
	nodes := listenAll(t, hosts, func(_ int, cfg *Config) {
		cfg.ProbeInterval = time.Hour // as in TestCardsCross
	})
	all := addrsOf(nodes)
	began := time.Now()
	if err := errors.Join(each(nodes, func(_ int, n *Node) error {
		addrs := make(map[int]string)
		for _, i := range n.Needs() {
			addrs[i] = all[i]
		}
		return n.Join(ctx, addrs)
	})...); err != nil {
		t.Fatal(err)
	}
	joined := time.Since(began)
	if err := fenceAll(ctx, nodes, 1, testData(1, 300)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d hosts: joined within %v, a fence later after %v", hosts, joined, time.Since(began)-joined)
	for _, n := range nodes {
		first, end := n.members()
		n.mu.Lock()
		for i, seen := range n.seen {
			if seen != (i >= first && i < end) {
				t.Errorf("host %d of the circle %d to %d: host %d was a member: %v", n.cfg.Index, first, end-1, i, seen)
			}
		}
		n.mu.Unlock()
	}
}

// Each host is in one circle with the hosts beside it, and needs few addresses however many hosts there are.
func TestCircles(t *testing.T) {
	for _, hosts := range []int{1, 2, circleMost, circleMost + 1, 100, 10_000} {
		end := 0
		for i := range hosts {
			n := &Node{cfg: Config{Index: i, Hosts: hosts, circle: circleMost}, fences: newFences(i, hosts, 8)}
			first, next := n.members()
			if i == end { // the first of a circle
				if first != end || next <= i || next-first > circleMost {
					t.Fatalf("host %d of %d: members are %d to %d", i, hosts, first, next-1)
				}
				end = next
			}
			if next != end {
				t.Fatalf("host %d of %d: members are %d to %d, want up to %d", i, hosts, first, next-1, end-1)
			}
			needs := n.Needs()
			if len(needs) > circleMost+9 || !slices.Contains(needs, first) || i > 0 && !slices.Contains(needs, n.fences.parent()) {
				t.Fatalf("host %d of %d needs the addresses of %v", i, hosts, needs)
			}
		}
		if end != hosts {
			t.Errorf("%d hosts: the last circle ends at %d", hosts, end)
		}
	}
}

func TestLateHostIsNamed(t *testing.T) {
	testenv.NoLeaks(t)
	nodes := listenAll(t, 3, nil)
	addrs := addrsOf(nodes)
	ctx, cancel := context.WithCancel(context.Background())
	joined := make(chan struct{}, 1)
	done := make(chan error)
	go func() { done <- nodes[0].Join(ctx, addrs) }()
	nodes[1].addrs = addrs
	go func() {
		nodes[1].meet(ctx)
		joined <- struct{}{}
	}()
	<-joined
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), addrs[2]) {
		t.Errorf("join without host c: %v, want its address %s", err, addrs[2])
	}

	all := listenAll(t, 3, nil)
	joinAll(t, testenv.Deadline(t, 30*time.Second), all)
	ctx, cancel = context.WithCancel(context.Background())
	go func() { _, err := all[0].Fence(ctx, 1, nil); done <- err }()
	cancel()
	if err := <-done; err == nil || !strings.Contains(err.Error(), "host b, host c") {
		t.Errorf("fence without b and c: %v, want their names", err)
	}
}

// A host that is lost before all have met ends Join at those that wait for it, and at those that it was to answer.
func TestLostHostEndsJoin(t *testing.T) {
	testenv.NoLeaks(t)
	ctx := testenv.Deadline(t, 30*time.Second)
	nodes := listenAll(t, 3, nil)
	addrs := addrsOf(nodes)
	for _, c := range []struct {
		gone, stay int
	}{{1, 0}, {0, 2}} {
		ended := make(chan error)
		nodes[c.gone].Close()
		go func() { ended <- nodes[c.stay].Join(ctx, addrs) }()
		nodes[c.stay].Lost(nodes[c.gone].cfg.Host, "its agent has died")
		if err := <-ended; !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "its agent has died") {
			t.Errorf("Join of %s: %v, want host %s lost", nodes[c.stay].cfg.Host, err, nodes[c.gone].cfg.Host)
		}
	}
}

func TestJoinErrors(t *testing.T) {
	cases := map[string]struct {
		addrs map[int]string
		want  string
	}{
		"few":       {map[int]string{0: "127.0.0.1:1"}, `"" of host 1`},
		"name":      {map[int]string{0: "127.0.0.1:1", 1: "nosuch:1"}, `"nosuch:1" of host 1`},
		"no port":   {map[int]string{0: "127.0.0.1", 1: "127.0.0.1:1"}, `"127.0.0.1" of host 0`},
		"port zero": {map[int]string{0: "127.0.0.1:0", 1: "127.0.0.1:1"}, `"127.0.0.1:0" of host 0`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			nodes := listenAll(t, 2, nil)
			if err := nodes[0].Join(context.Background(), c.addrs); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if _, err := nodes[0].Fence(context.Background(), 1, nil); err == nil || !strings.Contains(err.Error(), "before Join") {
				t.Errorf("fence: %v", err)
			}
		})
	}
}
