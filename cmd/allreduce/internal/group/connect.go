package group

// How members connect: this one dials those that it names, and lets in members that name it. The forming goroutine (form.go) is woken
// by what has come.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/peer"
)

// reach connects with the member at an address that this one names.
func (g *group) reach(name string) {
	conn, err := dialing(g.ctx, name, func(err error) { g.resolve(name, "", err) })
	if err != nil {
		g.fail(err)
		return
	}
	l, err := g.greet(g.ctx, conn)
	switch {
	case errors.Is(err, errOwn):
		g.log.Infof("-a %s is this participant's own address: ignored", name)
		g.resolve(name, g.hello.ID, nil)
	case err != nil:
		g.fail(fmt.Errorf("%s: %w", name, err))
	case !l.peer.Kind.participant():
		l.conn.Close()
		g.fail(fmt.Errorf("%s is an offloaded client, and no participant", name))
	default:
		// The other end counts on it from its answer on.
		g.mu.Lock()
		g.connected(l)
		g.mu.Unlock()
		g.resolve(name, l.peer.ID, nil)
	}
}

// resolve notes who is at an address, or why nobody is.
func (g *group) resolve(name, id string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.named[name] = target{id, err}
	g.wake()
}

// connected adds a link, and reads from it. The lock is held.
func (g *group) connected(l *link) {
	if g.phase == closed {
		l.conn.Close()
		return
	}
	g.links = append(g.links, l)
	g.log.Infof("connected with %s at %s", l.peer.name(), l.conn.RemoteAddr())
	g.all.Go(func() { g.read(l) })
	g.wake()
}

// handshakes is how many may be saying who they are at a time.
const handshakes = 64

// accept takes connections until the group is closed: those who are late are told so.
func (g *group) accept() {
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
			if err := g.admit(conn); err != nil && (g.ctx.Err() == nil || errors.Is(err, errRefused)) {
				g.sdk.Warnf("a connection from %s was not let in: %v", conn.RemoteAddr(), err)
			}
		})
	}
}

// admit has a member say who it is, and takes it or tells it why not.
func (g *group) admit(conn net.Conn) error {
	l, err := g.open(g.ctx, conn, true)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(g.ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	heard := g.hear(l)
	// Also to one that is refused: it shows both configurations, as this end does.
	err = l.send(frame{Kind: kindHello, Hello: &g.hello})
	if heard != nil {
		err = heard
		_ = l.send(frame{Kind: kindAnswer, Answer: &answer{strings.TrimPrefix(heard.Error(), errRefused.Error()+": ")}})
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
	if err == nil {
		err = g.take(l)
	}
	if err != nil {
		l.conn.Close()
	}
	if errors.Is(err, errOwn) {
		return nil // the end that dialed knows what to do
	}
	return err
}

// take judges a member that has said who it is, and answers. The answer is the first frame
// that it gets, because others wait for the link.
func (g *group) take(l *link) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g.mu.Lock()
	no := g.decide(l)
	if no == "" {
		g.connected(l)
	}
	if n := len(g.clients()); no == "" && l.peer.Kind == Offloaded {
		g.log.Infof("%s has come: %d of %d", l.peer.name(), n, g.opt.Clients)
	}
	g.mu.Unlock()
	_ = l.write(&frame{Kind: kindAnswer, Answer: &answer{no}}) // the reader notices
	if no != "" {
		return fmt.Errorf("%w: %s: %s", errRefused, l.peer.name(), no)
	}
	return nil
}

// decide is why a member is refused. The lock is held.
func (g *group) decide(l *link) string {
	if err := pairs(g.opt.Kind, l.peer.Kind); err != nil {
		return err.Error()
	}
	switch {
	case g.phase == closed || g.ctx.Err() != nil:
		return fmt.Sprintf("this %s is ending", g.opt.Kind)
	case l.peer.Kind == Offloaded && len(g.clients()) >= g.opt.Clients:
		return fmt.Sprintf("this daemon serves %d clients (-c), and has them", g.opt.Clients)
	case l.peer.Kind == Offloaded:
	case g.phase == complete && !slices.Contains(g.started.IDs, l.peer.ID):
		n := len(g.view.records)
		return fmt.Sprintf("its group of %d participants is complete without this one: give -a with this one's address to one of them, or --participants %d to all, so that they wait", n, n+1)
	}
	return ""
}

// read takes what a member sends, until it ends.
func (g *group) read(l *link) {
	defer close(l.ended)
	bye := false
	for {
		f, err := readFrame(l.in)
		if err == nil && bye {
			err = fmt.Errorf("%w: a frame behind the last", errFrame)
		}
		if err == nil {
			bye = f.Kind == kindBye
			err = g.handle(l, &f)
		}
		if err != nil {
			if !bye || !errors.Is(err, io.EOF) {
				g.lost(l, err)
			}
			return
		}
	}
}

// handle takes one frame.
func (g *group) handle(l *link, f *frame) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch client := l.peer.Kind == Offloaded; {
	case f.Kind == kindBye:
		g.left(l, f.Text)
		return nil
	case g.phase != forming:
		return nil // what others have not heard of yet
	case f.Kind == kindRecord && !client:
		for _, r := range f.Records {
			news, err := g.view.learn(r)
			if err != nil {
				return err
			}
			if news {
				g.changed = time.Now()
			}
		}
		g.wake()
		return nil
	case f.Kind == kindStart && !client && f.Start != nil:
		if g.started == nil { // it may come from several
			g.started = f.Start
			if g.started.Host == "" {
				g.started.Host, _, _ = net.SplitHostPort(l.conn.RemoteAddr().String())
			}
			g.wake()
		}
		return nil
	}
	return fmt.Errorf("%w: kind %d of a %s", errFrame, f.Kind, l.peer.Kind)
}

// lost judges the end of a connection without good-bye.
func (g *group) lost(l *link, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.stranger(l):
	case l.peer.Kind == Offloaded && g.phase == forming:
		// Another one may take its place.
		g.log.Warnf("%s is gone before the group was complete: %v", l.peer.name(), peer.Reason(err))
		g.drop(l)
	case errors.Is(err, errFrame):
		g.fail(fmt.Errorf("%s broke the rules: %w", l.peer.name(), err))
	default:
		g.fail(fmt.Errorf("%s is gone: its connection has ended (%w)", l.peer.name(), peer.Reason(err)))
	}
}

// left takes a member's good-bye. The lock is held.
func (g *group) left(l *link, reason string) {
	switch early := g.phase == forming; {
	case g.stranger(l):
	case l.peer.Kind == Offloaded && early:
		if reason == "" {
			reason = "it was done"
		}
		g.log.Warnf("%s has ended before the group was complete: %s", l.peer.name(), reason)
		g.drop(l)
	case reason != "":
		g.fail(fmt.Errorf("%s has ended: %s", l.peer.name(), reason))
	case early:
		g.fail(fmt.Errorf("%s has ended before the group was complete", l.peer.name()))
	}
}

// stranger tells whether a member came too late for the group, which goes on without it. The lock is held.
func (g *group) stranger(l *link) bool {
	return g.phase == complete && !slices.Contains(g.started.IDs, l.peer.ID)
}

// drop forgets a client. The lock is held.
func (g *group) drop(l *link) {
	g.links = slices.DeleteFunc(g.links, func(o *link) bool { return o == l })
	_ = l.conn.Close()
	g.wake()
}
