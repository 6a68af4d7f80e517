package gossip

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// circleMost is how many hosts are members of one memberlist at most: docs/decisions/members-in-circles.md.
const circleMost = 32

// members are the hosts of this node's circle, from first to before end: the circles have the same size, but for the last.
func (n *Node) members() (first, end int) {
	hosts, most := n.cfg.Hosts, n.cfg.circle
	circles := (hosts + most - 1) / most
	size := (hosts + circles - 1) / circles
	first = n.cfg.Index / size * size
	return first, min(first+size, hosts)
}

// Needs are the hosts whose addresses Join is to be given: their number does not grow with the job.
func (n *Node) Needs() []int {
	first, end := n.members()
	var hosts []int
	for i := first; i < end; i++ {
		hosts = append(hosts, i)
	}
	hosts = append(hosts, n.fences.children()...)
	if n.cfg.Index > 0 {
		hosts = append(hosts, n.fences.parent())
	}
	slices.Sort(hosts)
	return slices.Compact(hosts)
}

// Join makes this node one of the hosts of the job; addrs has the addresses of those of Needs, by host index. It
// returns when all hosts have joined, so it may be called before the others listen; when ctx ends first, the
// error names nodes that are late.
func (n *Node) Join(ctx context.Context, addrs map[int]string) error {
	for _, i := range n.Needs() {
		// A name would have to be resolved for each dial.
		if at, err := netip.ParseAddrPort(addrs[i]); err != nil || at.Port() == 0 {
			return fmt.Errorf("gossip: join: address %q of host %d: want IP:port", addrs[i], i)
		}
	}
	n.mu.Lock()
	if n.stopped {
		n.mu.Unlock()
		return ErrClosed
	}
	if n.addrs == nil && n.cfg.Index > 0 {
		parent := n.fences.parent()
		n.running.Add(1)
		go n.hold(n.branches[parent], addrs[parent])
	}
	n.addrs = addrs
	n.mu.Unlock()
	if err := n.meet(ctx); err != nil {
		return err
	}
	if first, _ := n.members(); n.cfg.Index == first {
		if err := n.gather(ctx); err != nil {
			return err
		}
	}
	// Once the first host of a circle takes part, it knows that.
	names, err := n.Fence(ctx, 0, []byte(n.cfg.Host))
	if err != nil {
		return fmt.Errorf("gossip: join: %w", err)
	}
	n.mu.Lock()
	n.names = make([]string, len(names))
	for i, name := range names {
		n.names[i] = string(name)
	}
	n.mu.Unlock()
	return n.meet(ctx)
}

// gather waits until the first host of a circle has all as members. That all have met it does not
// mean that: memberlist answers a push-pull before it merges what it was told.
func (n *Node) gather(ctx context.Context) error {
	for {
		n.mu.Lock()
		var late []string
		for i, end := n.members(); i < end; i++ {
			if !n.seen[i] {
				late = append(late, fmt.Sprintf("host %d at %s", i, n.addrs[i]))
			}
		}
		n.mu.Unlock()
		if late == nil {
			return nil
		}
		select {
		case <-n.joins:
		case <-n.bereft:
			return n.loss()
		case <-n.closed:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("gossip: join: waiting for %s: %w", strings.Join(late, ", "), ctx.Err())
		}
	}
}

// joined notes a member.
func (n *Node) joined(index int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if index < 0 || index >= len(n.seen) {
		return
	}
	n.seen[index] = true
	select {
	case n.joins <- struct{}{}:
	default: // one is there, and gather looks at all
	}
}

// meet exchanges what this node and the first of its circle know of the members.
// A member takes at most 128 such exchanges at a time, and closes the
// connection on others: they come again, spread over time.
func (n *Node) meet(ctx context.Context) error {
	first, _ := n.members()
	if n.cfg.Index == first {
		return nil
	}
	addr := n.addrs[first]
	pause := 2 * time.Millisecond
	for {
		_, err := n.list.Join([]string{addr})
		if err == nil {
			return nil
		}
		// memberlist 0.7 wraps no errors (memberlist.go, Join).
		if strings.Contains(err.Error(), ErrKey.Error()) {
			return fmt.Errorf("gossip: join host %d at %s: %w", first, addr, ErrKey)
		}
		select {
		case <-time.After(pause + time.Duration(n.cfg.Index)*pause/time.Duration(n.cfg.Hosts)):
			pause = min(2*pause, 250*time.Millisecond)
		case <-ctx.Done():
			return fmt.Errorf("gossip: join host %d at %s: %w: %w", first, addr, ctx.Err(), err)
		case <-n.bereft:
			return n.loss()
		case <-n.closed:
			return ErrClosed
		}
	}
}
