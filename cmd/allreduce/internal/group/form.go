package group

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
)

// Options say what this member is.
type Options struct {
	Config
	Kind Kind
	// Listener is where other members reach a participant. It is the group's from Form on.
	Listener net.Listener
	// Addresses are where other participants are, and for an offloaded client where its daemon
	// is: for each one or more addresses, HOST:PORT, which are tried in turn.
	Addresses [][]string
	// Clients is how many a daemon serves.
	Clients int
	// Participants is how many there shall be; 0: those that are named.
	Participants int
	// Order comes before the name in the order in which vectors are combined: the rank, under
	// a launcher.
	Order int
	// Key is a secret that all members know: connections are encrypted, and nobody else is let
	// in. nil: none.
	Key []byte
	// Name tells groups with one key apart.
	Name string
	// Timeout is how long a group may be incomplete, from its first connection on,
	// or from the start where this member names another one.
	Timeout time.Duration
	Log     *logrus.Logger // what the group waits for, and has
	SDK     *logrus.Logger // of connections: strangers, and what others can read
}

// A Group is this participant's part in a group that is complete. Its calls block until the
// other members have done their part, or the group has failed, which each call then
// returns. They belong to one goroutine.
type Group struct {
	endpoint
	opt    Options
	box    *mailbox
	ctx    context.Context // ends with the first failure, its cause
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
	kick   chan struct{} // of one place: the forming goroutine has something to do

	mu       sync.Mutex // guards the next lines; a link's comes before it
	phase    phase
	view     view
	own      record             // the last that was told
	changed  time.Time          // when the last record did
	links    map[string][]*link // of participants, by ID; more than one where both dialed at once
	clients  []*link            // of a daemon
	named    map[string]*target // by address
	reaching map[string]bool    // participants that are being dialed
	started  *start

	// Of the group that is complete.
	members   []string
	self      int
	peers     []*link // by member; nil: this one
	algorithm string
	op        uint64 // the next operation
}

type phase int

const (
	forming phase = iota
	complete
	closed
)

// A target is an address that this participant names.
type target struct {
	id  string // who is there; "": not known yet
	err error  // why not, last
}

// A start says that a group is complete.
type start struct {
	Members       []string `msgpack:"members"` // IDs, in order
	Contributions int      `msgpack:"contributions"`
	Algorithm     string   `msgpack:"algorithm"`
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (o *Options) hello(label string) hello {
	return hello{Magic: magic, Version: protocolVersion, Kind: o.Kind, ID: newID(), Order: o.Order, Label: label, Config: o.Config}
}

// Form makes this process a participant, and waits until its group is complete.
func Form(ctx context.Context, opt Options) (*Group, error) {
	if err := opt.Validate(); err != nil {
		return nil, errors.Join(err, opt.Listener.Close())
	}
	hostname, _ := os.Hostname()
	place, err := Here(opt.Listener)
	if err != nil {
		return nil, errors.Join(err, opt.Listener.Close())
	}
	g := &Group{
		endpoint: endpoint{hello: opt.hello(fmt.Sprintf("%s:%d", hostname, place.Port)), key: opt.Key, name: opt.Name, log: opt.Log, sdk: opt.SDK},
		opt:      opt, box: newMailbox(), kick: make(chan struct{}, 1),
		links: map[string][]*link{}, named: map[string]*target{}, reaching: map[string]bool{},
	}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(g.ctx, g.hurry)
	g.own = record{ID: g.hello.ID, Kind: opt.Kind, Label: g.hello.Label, Order: opt.Order, Place: place, Want: opt.Participants, Serves: opt.Clients}
	g.view = view{self: g.own.ID, records: map[string]*record{g.own.ID: &g.own}}
	for _, addresses := range opt.Addresses {
		g.named[addresses[0]] = &target{}
	}
	g.all.Go(g.accept)
	for _, addresses := range opt.Addresses {
		g.all.Go(func() { g.reach(addresses[0], "", addresses) })
	}
	if err := g.form(); err != nil {
		g.fail(err)
		return nil, g.Close()
	}
	return g, nil
}

// fail ends the group. The first cause counts.
func (g *Group) fail(err error) { g.cancel(err) }

// Fail implements Session.
func (g *Group) Fail(err error) { g.fail(err) }

// hurry ends writes to members that take nothing, when the group has ended.
func (g *Group) hurry() {
	for _, l := range g.everyone() {
		_ = l.conn.SetWriteDeadline(time.Now().Add(closeMost))
	}
}

// everyone are the links of this participant.
func (g *Group) everyone() []*link {
	g.mu.Lock()
	defer g.mu.Unlock()
	links := slices.Clone(g.clients)
	for _, list := range g.links {
		links = append(links, list...)
	}
	return links
}

func (g *Group) wake() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

// settling is how long what is missing must stay the same before it is told: most of it comes
// within milliseconds.
const settling = 200 * time.Millisecond

// form is the forming goroutine: it tells the others what is new, dials who is not connected,
// and starts the group or waits for the start.
func (g *Group) form() error {
	var late <-chan time.Time // while somebody is awaited who should come
	var told <-chan time.Time // while something else is missing than was told
	missing, shown := "", ""
	for {
		lines, awaited, done, err := g.step(shown)
		if err != nil || done {
			return err
		}
		switch {
		case !awaited:
			late = nil
		case late == nil:
			late = time.After(g.opt.Timeout)
		}
		if text := strings.Join(lines, "; "); text != missing {
			missing, told = text, time.After(settling)
		}
		select {
		case <-g.kick:
		case <-told:
			told, shown = nil, missing
			if shown != "" {
				g.log.Infof("waiting: %s", shown)
			}
			g.wake() // clients are told as well
		case <-late:
			return fmt.Errorf("the group is incomplete after %v (--connect-timeout): %s", g.opt.Timeout, missing)
		case <-g.ctx.Done():
			return context.Cause(g.ctx)
		}
	}
}

// A message is a frame for a link, to be sent without the lock.
type message struct {
	to *link
	header
}

// step does what there is to do now. status is for clients. awaited tells whether the group must be
// complete in time.
func (g *Group) step(status string) (missing []string, awaited, done bool, err error) {
	g.mu.Lock()
	if err := g.view.tooMany(); err != nil {
		g.mu.Unlock()
		return nil, false, false, err
	}
	g.renew()
	missing = g.view.missing()
	if g.started == nil && len(missing) == 0 && g.view.order()[0] == g.own.ID && g.quiet() {
		order := g.view.order()
		g.started = &start{Members: order, Contributions: g.view.contributions(), Algorithm: choose(&g.opt.Config, len(order))}
	}
	var out []message
	if g.started != nil {
		out, err = g.begin()
		done = true
	} else {
		g.reachAll()
		out = g.news(status)
	}
	awaited = g.opt.Kind == Direct || len(g.links) > 0 || len(g.clients) > 0 || len(g.own.Open) > 0
	g.mu.Unlock()
	if err != nil {
		return nil, false, false, err
	}
	for _, m := range out {
		// A broken link is the reader's to report.
		_ = m.to.send(m.header, nil)
	}
	return missing, awaited, done, nil
}

// lull is how long nothing must have changed before a group starts whose number of participants nobody
// has told: one that was started at the same time may come yet.
const lull = 300 * time.Millisecond

// quiet tells whether nobody else is to be expected. The lock is held.
func (g *Group) quiet() bool {
	for _, r := range g.view.records {
		if r.Want > 0 {
			return true
		}
	}
	left := lull - time.Since(g.changed)
	if left > 0 {
		time.AfterFunc(left, g.wake)
	}
	return left <= 0
}

// renew brings this participant's own record up to date.
func (g *Group) renew() {
	r := g.own
	r.Open, r.Joined, r.Clients = nil, nil, len(g.clients)
	for address, t := range g.named {
		// One that is connected already may have said so before this end knew it.
		if t.id != r.ID && g.links[t.id] == nil {
			if t.err != nil {
				address += fmt.Sprintf(" (%v)", t.err)
			}
			r.Open = append(r.Open, address)
		}
	}
	for id := range g.links {
		r.Joined = append(r.Joined, id)
	}
	slices.Sort(r.Open)
	slices.Sort(r.Joined)
	if !reflect.DeepEqual(r, g.own) {
		r.Version++
		g.own, g.changed = r, time.Now()
	}
}

// news is what the others have not been told yet.
func (g *Group) news(status string) []message {
	var out []message
	for _, list := range g.links {
		for _, l := range list {
			var records []record
			for id, r := range g.view.records {
				if version, told := l.told[id]; !told || version < r.Version {
					l.told[id] = r.Version
					records = append(records, *r)
				}
			}
			if records != nil {
				out = append(out, message{l, header{Kind: kindRecord, Records: records}})
			}
		}
	}
	for _, l := range g.clients {
		if status != l.status {
			l.status = status
			out = append(out, message{l, header{Kind: kindStatus, Text: status}})
		}
	}
	return out
}

// begin makes the group that was started this one's. The lock is held.
func (g *Group) begin() ([]message, error) {
	s := g.started
	g.members, g.self, g.algorithm = s.Members, slices.Index(s.Members, g.own.ID), s.Algorithm
	if g.self < 0 || !slices.Contains(Algorithms(), s.Algorithm) || s.Contributions < 1 || s.Contributions > maxContributions {
		return nil, fmt.Errorf("%w: a start without this participant", errFrame)
	}
	if len(g.clients) != g.opt.Clients {
		return nil, fmt.Errorf("a client left when the group was complete: %d of %d are here", len(g.clients), g.opt.Clients)
	}
	var out []message
	g.peers = make([]*link, len(s.Members))
	for i, id := range s.Members {
		if i == g.self {
			continue
		}
		if g.links[id] == nil {
			return nil, fmt.Errorf("%w: a start with a participant that is not connected", errFrame)
		}
		g.peers[i] = g.links[id][0]
		if g.self == 0 {
			out = append(out, message{g.peers[i], header{Kind: kindStart, Start: s}})
		}
	}
	for id := range g.links {
		if !slices.Contains(s.Members, id) {
			for _, l := range g.links[id] {
				out = append(out, message{l, header{Kind: kindBye, Text: "its group is complete without this one"}})
			}
		}
	}
	slices.SortFunc(g.clients, func(a, b *link) int { return byOrder(&a.peer, &b.peer) })
	for _, l := range g.clients {
		out = append(out, message{l, header{Kind: kindStart, Start: s}})
	}
	g.phase = complete
	return out, nil
}

// Members is the number of participants, and Contributions that of vectors which an operation
// combines.
func (g *Group) Members() int       { return len(g.members) }
func (g *Group) Contributions() int { return g.started.Contributions }

// Algorithm is the one that was chosen.
func (g *Group) Algorithm() string { return g.algorithm }

// Close ends this participant's part, and waits for all that runs. It returns why the group has
// failed, and tells the other members; nil when all operations are done.
func (g *Group) Close() error {
	g.cancel(errDone)
	cause := context.Cause(g.ctx)
	reason := ""
	switch {
	case errors.Is(cause, errDone):
		cause = nil
	case errors.Is(cause, context.Canceled):
		reason = "it was interrupted"
	default:
		reason = cause.Error()
	}
	g.mu.Lock()
	g.phase = closed
	g.mu.Unlock()
	_ = g.opt.Listener.Close() // who comes now finds nobody
	for _, l := range g.everyone() {
		g.all.Go(func() { l.part(reason) })
	}
	g.all.Wait()
	return cause
}

// errDone ends a group whose operations are done.
var errDone = errors.New("done")
