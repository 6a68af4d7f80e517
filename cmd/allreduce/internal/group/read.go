package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

func byOrder(a, b *hello) int {
	return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Label, b.Label), cmp.Compare(a.ID, b.ID))
}

// read takes what a member sends, until it ends.
func (g *Group) read(l *link) {
	defer close(l.ended)
	if l.peer.Kind == Offloaded {
		defer close(l.vectors)
	}
	bye := false
	for {
		h, n, err := readHead(l.in, max(g.opt.Bytes(), maxDigest))
		if err == nil && bye {
			err = fmt.Errorf("%w: a frame behind the last", errFrame)
		}
		if err == nil {
			bye, err = g.handle(l, &h, n)
		}
		if err != nil {
			if !bye || !errors.Is(err, io.EOF) {
				g.lost(l, err)
			}
			return
		}
	}
}

// lost judges the end of a connection without good-bye.
func (g *Group) lost(l *link, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stranger(l) {
		return
	}
	if l.peer.Kind == Offloaded && g.phase == forming {
		// Another one may take its place.
		g.log.Warnf("%s is gone before the group was complete: %v", l.peer.name(), plain(err))
		g.drop(l)
		return
	}
	if errors.Is(err, errFrame) {
		g.fail(fmt.Errorf("%s broke the rules: %w", l.peer.name(), err))
		return
	}
	g.fail(fmt.Errorf("%s is gone: its connection has ended (%w)", l.peer.name(), plain(err)))
}

// drop forgets a client. The lock is held.
func (g *Group) drop(l *link) {
	if i := slices.Index(g.clients, l); i >= 0 {
		g.clients = slices.Delete(g.clients, i, i+1)
		_ = l.conn.Close()
	}
	g.wake()
}

// handle takes one frame; its payload, of n bytes, is still to be read.
func (g *Group) handle(l *link, h *header, n int) (bye bool, err error) {
	if g.ctx.Err() != nil && h.Kind != kindBye {
		return false, l.discard(n)
	}
	switch client := l.peer.Kind == Offloaded; {
	case h.Kind == kindBye:
		return true, g.left(l, h.Text)
	case h.Kind == kindVector && client:
		b := g.box.buffer(n)
		if _, err := io.ReadFull(l.in, b); err != nil {
			return false, unexpected(err)
		}
		select {
		case l.vectors <- vector{h.Op, b}:
		case <-g.ctx.Done():
		}
		return false, nil
	case h.Kind == kindData && !client:
		b := g.box.buffer(n)
		if _, err := io.ReadFull(l.in, b); err != nil {
			return false, unexpected(err)
		}
		return false, g.box.put(slot{l.peer.ID, h.Op, h.Step}, b)
	case h.Kind == kindRecord && !client:
		return false, g.learn(h.Records)
	case h.Kind == kindStart && !client && h.Start != nil:
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.started != nil {
			return false, fmt.Errorf("%w: a second start", errFrame)
		}
		g.started = h.Start
		g.wake()
		return false, nil
	}
	return false, fmt.Errorf("%w: kind %d of a %s", errFrame, h.Kind, l.peer.Kind)
}

func (g *Group) learn(records []record) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase != forming {
		return nil
	}
	for _, r := range records {
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
}

// stranger tells whether a participant came too late for the group, which goes on without it.
// The lock is held.
func (g *Group) stranger(l *link) bool {
	return g.phase == complete && l.peer.Kind != Offloaded && !slices.Contains(g.members, l.peer.ID)
}

// left notes a member's good-bye.
func (g *Group) left(l *link, reason string) error {
	g.mu.Lock()
	early := g.phase == forming
	l.bye = true
	if g.stranger(l) {
		g.mu.Unlock()
		return nil
	}
	// Of two connections, the other one may have frames that are still to be read.
	all := !slices.ContainsFunc(g.links[l.peer.ID], func(l *link) bool { return !l.bye })
	if l.peer.Kind == Offloaded && early {
		g.log.Warnf("%s has ended before the group was complete: %s", l.peer.name(), cmp.Or(reason, "it was done"))
		g.drop(l)
	}
	g.mu.Unlock()
	switch {
	case l.peer.Kind == Offloaded && early:
	case reason != "":
		g.fail(fmt.Errorf("%s has ended: %s", l.peer.name(), reason))
	case early:
		g.fail(fmt.Errorf("%s has ended before the group was complete", l.peer.name()))
	case all:
		g.box.leave(l.peer.ID)
	}
	return nil
}

// cause is why the group has failed, if err is but its echo.
func (g *Group) cause(err error) error {
	if c := context.Cause(g.ctx); c != nil {
		return c
	}
	return err
}
