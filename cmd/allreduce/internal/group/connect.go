package group

// How participants connect: this one dials those that it or others name, and lets in members that dial
// it. What has come is a link in [Group].links or clients, and the forming goroutine (form.go) is woken.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"
)

// reachAll dials participants of whom others have told. The first in order dials at once;
// the other one helps when that takes long, as through a firewall.
func (g *Group) reachAll() {
	for id, r := range g.view.records {
		if id == g.own.ID || g.links[id] != nil || g.reaching[id] {
			continue
		}
		g.reaching[id] = true
		wait := time.Duration(0)
		if g.own.ID > id {
			wait = time.Second
		}
		addresses := r.Place.Addresses()
		g.all.Go(func() {
			select {
			case <-time.After(wait):
				g.reach("", id, addresses)
			case <-g.ctx.Done():
			}
		})
	}
}

// reach connects with the participant at an address that this one names, or with one of whom
// others have told, at any of some addresses.
func (g *Group) reach(name, id string, addresses []string) {
	addresses = slices.Clone(addresses)
	for len(addresses) > 0 && (id == "" || !g.joined(id)) {
		conn, address, err := dialing(g.ctx, addresses, func(err error) { g.unreached(name, err) })
		if err != nil {
			g.fail(err)
			return
		}
		l, err := g.greet(g.ctx, conn, id)
		if errors.Is(err, errElsewhere) || errors.Is(err, errOwn) && len(addresses) > 1 {
			addresses = slices.DeleteFunc(addresses, func(a string) bool { return a == address })
			continue
		}
		g.reached(name, address, l, err)
		return
	}
	// None is left: it will come by itself, or the group stays incomplete.
}

// reached judges what has come of dialing.
func (g *Group) reached(name, address string, l *link, err error) {
	switch {
	case errors.Is(err, errOwn):
		g.log.Infof("-a %s is this participant's own address: ignored", name)
		g.resolve(name, g.hello.ID)
	case errors.Is(err, errDuplicate):
		g.resolve(name, l.peer.ID)
	case err != nil:
		g.fail(fmt.Errorf("%s: %w", address, err))
	case !l.peer.Kind.participant():
		l.conn.Close()
		g.fail(fmt.Errorf("%s is an offloaded client, and no participant", address))
	default:
		g.join(l)
		g.resolve(name, l.peer.ID)
	}
}

func (g *Group) joined(id string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.links[id] != nil
}

func (g *Group) unreached(name string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.named[name]; t != nil {
		t.err = err
		g.wake()
	}
}

func (g *Group) resolve(name, id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if t := g.named[name]; t != nil {
		t.id = id
	}
	g.wake()
}

// join takes a link that this participant dialed. The other end counts on it from its answer on.
func (g *Group) join(l *link) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == closed {
		l.conn.Close()
		return
	}
	g.connected(l)
}

// connected adds a participant's link, and reads from it. The lock is held.
func (g *Group) connected(l *link) {
	g.links[l.peer.ID] = append(g.links[l.peer.ID], l)
	g.log.Infof("connected with %s at %s", l.peer.name(), l.conn.RemoteAddr())
	g.all.Go(func() { g.read(l) })
	g.wake()
}

// handshakes is how many may be saying who they are at a time.
const handshakes = 64

// accept takes connections until the group is closed: those who are late are told so.
func (g *Group) accept() {
	slots := make(chan struct{}, handshakes)
	for {
		conn, err := g.opt.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor for another one, or a client that left at once
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-g.ctx.Done():
				return
			}
		}
		slots <- struct{}{}
		g.all.Go(func() {
			defer func() { <-slots }()
			if err := g.admit(conn); err != nil && (g.ctx.Err() == nil || errors.Is(err, ErrRefused)) {
				g.sdk.Warnf("a connection from %s was not let in: %v", conn.RemoteAddr(), err)
			}
		})
	}
}

// admit has a member say who it is, and takes it or tells it why not.
func (g *Group) admit(conn net.Conn) error {
	l, err := g.open(g.ctx, conn, true)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(g.ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	heard := g.hear(l)
	// Also to one that is refused: it shows both configurations, as this end does.
	err = l.send(header{Kind: kindHello, Hello: &g.hello}, nil)
	if heard != nil {
		err = heard
		_ = l.send(header{Kind: kindAnswer, Answer: &answer{refused, strings.TrimPrefix(heard.Error(), ErrRefused.Error()+": ")}}, nil)
	}
	if err == nil {
		err = judge(&g.hello, &l.peer)
	}
	if !stop() && err == nil {
		err = context.Cause(g.ctx)
	}
	if err == nil {
		err = l.conn.SetDeadline(time.Time{})
	}
	if err != nil {
		l.conn.Close()
		if errors.Is(err, errOwn) || errors.Is(err, errElsewhere) {
			return nil // the end that dialed knows what to do
		}
		return err
	}
	a := g.take(l)
	if a.Verdict != accepted {
		l.conn.Close()
	}
	if a.Verdict == refused {
		return fmt.Errorf("%w: %s: %s", ErrRefused, l.peer.name(), a.Reason)
	}
	return nil
}

// take judges a member that has said who it is, and answers. The answer is the first frame
// that it gets, because others wait for the link.
func (g *Group) take(l *link) answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mu.Lock()
	a := g.decide(l)
	switch {
	case a.Verdict != accepted:
	case l.peer.Kind == Offloaded:
		g.clients = append(g.clients, l)
		g.log.Infof("%s has come: %d of %d", l.peer.name(), len(g.clients), g.opt.Clients)
		g.all.Go(func() { g.read(l) })
		g.wake()
	default:
		g.connected(l)
	}
	g.mu.Unlock()
	_ = l.write(&header{Kind: kindAnswer, Answer: &a}, nil) // the reader notices
	return a
}

// decide is what to answer. The lock is held.
func (g *Group) decide(l *link) answer {
	no := func(format string, args ...any) answer { return answer{refused, fmt.Sprintf(format, args...)} }
	if err := pairs(g.opt.Kind, l.peer.Kind); err != nil {
		return no("%v", err)
	}
	switch {
	case g.phase == closed || g.ctx.Err() != nil:
		return no("this %s is ending", g.opt.Kind)
	case l.peer.Kind == Offloaded && len(g.clients) >= g.opt.Clients:
		return no("this daemon serves %d clients (-c), and has them", g.opt.Clients)
	case l.peer.Kind == Offloaded:
		return answer{Verdict: accepted}
	case g.links[l.peer.ID] != nil:
		return answer{Verdict: duplicate}
	case g.phase == complete:
		return no("its group of %d participants is complete without this one: give -a with this one's address to one of them, or --participants %d to all, so that they wait", len(g.members), len(g.members)+1)
	}
	return answer{Verdict: accepted}
}
