package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/rank"
)

// Options say what this member is.
type Options struct {
	Config
	Kind Kind
	// Listener is where other members reach a participant. It is the group's from Form on.
	Listener net.Listener
	// Addresses are where other participants are, HOST:PORT, and for an offloaded client where its daemon is.
	Addresses []string
	// Clients is how many a daemon serves.
	Clients int
	// Participants is how many there shall be; 0: those that are named.
	Participants int
	// Key is a secret that all members know: connections are encrypted, and nobody else is let
	// in. nil: none.
	Key []byte
	// Name tells groups with one key apart.
	Name string
	// Timeout is how long a group may be incomplete, from its first connection on,
	// or from the start where this member names another one.
	Timeout time.Duration
	// Environment is the process's, with the ports and the network for other hosts; nil: nothing is known.
	Environment *rank.Environment
	Log         *logrus.Logger // what the group waits for, and has
	SDK         *logrus.Logger // of connections: strangers, and what others can read

	apart bool // take members of this host for those of others, in tests
}

// A group is how this member meets the others, and hears of their end.
type group struct {
	endpoint
	opt    Options
	ctx    context.Context // ends with the first failure, its cause
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
	kick   chan struct{} // of one place: the forming goroutine has something to do

	mu      sync.Mutex // guards the next lines; a link's comes before it
	phase   phase
	view    view
	own     *record   // the last that was told; nil: of an offloaded client
	changed time.Time // when the last record did
	links   []*link   // two with one member, where each names the other
	named   map[string]target
	started *start
	port    net.Listener // of the first: where the world meets
}

type phase int

const (
	forming phase = iota
	complete
	closed
)

// A target is what came of an address that this member names.
type target struct {
	id  string // who is there; "": not known yet
	err error  // why not, last
}

// A start says that a group is complete, and how its members form a world of package rank.
type start struct {
	IDs   []string `msgpack:"ids"` // of the members, by rank
	Seats []Seat   `msgpack:"seats"`
	Host  string   `msgpack:"host"` // of rank 0; "": that of the member that sends this
	Port  int      `msgpack:"port"` // where it listens
	Key   []byte   `msgpack:"key"`  // of the world
}

func newID() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Form makes this process a member, and waits until its group is complete.
func Form(ctx context.Context, opt Options) (*Session, error) {
	if opt.Environment == nil {
		opt.Environment = &rank.Environment{}
	}
	g := &group{opt: opt, kick: make(chan struct{}, 1), named: map[string]target{}}
	hostname, _ := os.Hostname()
	label := fmt.Sprintf("%s:%d", hostname, os.Getpid())
	if opt.Listener != nil {
		label = fmt.Sprintf("%s:%d", hostname, opt.Listener.Addr().(*net.TCPAddr).Port)
	}
	g.endpoint = endpoint{hello: hello{Magic: magic, Version: protocolVersion, Kind: opt.Kind, ID: newID(), Label: label, Config: opt.Config},
		key: opt.Key, name: opt.Name, log: opt.Log, sdk: opt.SDK}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	context.AfterFunc(g.ctx, g.hurry)
	g.view = view{self: g.hello.ID, records: map[string]*record{}}
	for _, address := range opt.Addresses {
		g.named[address] = target{}
	}
	if opt.Kind.participant() {
		g.own = &record{ID: g.hello.ID, Kind: opt.Kind, Label: label, Want: opt.Participants, Serves: opt.Clients}
		g.view.records[g.own.ID] = g.own
		g.all.Go(g.accept)
	}
	for _, address := range opt.Addresses {
		g.all.Go(func() { g.reach(address) })
	}
	err := opt.Validate()
	if err == nil {
		err = g.form()
	}
	var s *Session
	if err == nil {
		s, err = g.join()
	}
	if err != nil {
		g.fail(err)
		return nil, g.close()
	}
	return s, nil
}

// join makes the world of the members.
func (g *group) join() (*Session, error) {
	st := g.started
	s := newSession(g.ctx, &g.opt.Config, st.Seats, g.log)
	s.group, s.apart = g, g.opt.apart
	cfg, err := s.rankConfig(g.opt.Key != nil)
	if err != nil {
		return nil, err
	}
	if e := g.opt.Environment; e != nil {
		env := *e
		env.Secure = g.opt.Key != nil // without one, a member that is alone: params.settle refuses others
		cfg.Environment = &env
	}
	addresses := make([]string, len(st.IDs))
	addresses[0] = net.JoinHostPort(st.Host, strconv.Itoa(st.Port))
	w, err := rank.Join(g.ctx, rank.Members{Addresses: addresses, Rank: slices.Index(st.IDs, g.hello.ID), Listener: g.port, Key: st.Key}, cfg)
	if err != nil && g.ctx.Err() == nil {
		err = fmt.Errorf("the members do not meet at %s: %w; a firewall between hosts has to let some ports through: with GORUN_TCP_PORTS=40000-40100 members take theirs there", addresses[0], err)
	}
	if err == nil {
		if err = s.failed(s.begin(w)); err != nil {
			s.abandon()
		}
	}
	return s, err
}

// fail ends the group. The first cause counts.
func (g *group) fail(err error) { g.cancel(err) }

// hurry ends writes to members that take nothing, when the group has ended.
func (g *group) hurry() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, l := range g.links {
		_ = l.conn.SetWriteDeadline(time.Now().Add(closeMost))
	}
}

func (g *group) wake() {
	select {
	case g.kick <- struct{}{}:
	default:
	}
}

const (
	// settling is how long what is missing must stay the same before it is told: most of it comes
	// within milliseconds.
	settling = 200 * time.Millisecond
	// lull is how long nothing must have changed before a group starts whose number of participants nobody
	// has told: one that was started at the same time may come yet.
	lull = 300 * time.Millisecond
	// grace is how much later than its daemon a client gives up: the daemon knows who is missing.
	grace = 2 * time.Second
)

// form is the forming goroutine: it tells the others what is new, and starts the group or waits for the start.
func (g *group) form() error {
	var late, told <-chan time.Time // while somebody is awaited who should come; while something else is missing than was told
	var most time.Duration          // of late
	var missing, shown string
	for {
		lines, limit, done, err := g.step()
		if err != nil || done {
			return err
		}
		if limit != most {
			if most, late = limit, nil; limit > 0 {
				late = time.After(limit)
			}
		}
		if text := strings.Join(lines, "; "); text != missing {
			missing, told = text, time.After(settling)
		}
		select {
		case <-g.kick:
		case <-told:
			if told, shown = nil, missing; shown != "" {
				g.log.Infof("waiting: %s", shown)
			}
		case <-late:
			return g.tooLate(missing)
		case <-g.ctx.Done():
			return context.Cause(g.ctx)
		}
	}
}

// tooLate is the error of a group that is incomplete for too long.
func (g *group) tooLate(missing string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.own != nil:
		return fmt.Errorf("the group is incomplete after %v (--connect-timeout): %s", g.opt.Timeout, missing)
	case len(g.links) == 0:
		at := g.opt.Addresses[0]
		return fmt.Errorf("no daemon has answered at %s within %v (--connect-timeout): %w; start it with allreduce -r daemon -c 1 -t PORT", at, g.opt.Timeout, g.named[at].err)
	}
	return fmt.Errorf("%s has not started within %v (--connect-timeout): %s", g.links[0].peer.name(), g.opt.Timeout, missing)
}

// A message is a frame for a link, to be sent without the lock.
type message struct {
	to *link
	frame
}

// step does what there is to do now. limit is for how long the group may go on to be incomplete; 0: without limit.
func (g *group) step() (missing []string, limit time.Duration, done bool, err error) {
	g.mu.Lock()
	out, missing, err := g.next()
	done = g.started != nil
	switch {
	case g.own == nil && len(g.links) > 0:
		limit = g.opt.Timeout + grace
	case g.own == nil || g.opt.Kind == Direct || len(g.links) > 0 || len(g.own.Open) > 0:
		limit = g.opt.Timeout
	}
	g.mu.Unlock()
	if err != nil {
		return nil, 0, false, err
	}
	for _, m := range out {
		_ = m.to.send(m.frame) // a broken link is the reader's to report
	}
	return missing, limit, done, nil
}

// next is step with the lock.
func (g *group) next() (out []message, missing []string, err error) {
	if err := g.view.tooMany(); err != nil {
		return nil, nil, err
	}
	g.renew()
	if g.own == nil && len(g.links) == 0 {
		if at := g.opt.Addresses[0]; g.named[at].err != nil {
			missing = []string{fmt.Sprintf("no daemon has answered at %s (%v)", at, g.named[at].err)}
		}
	} else {
		missing = g.view.missing()
	}
	if g.started == nil && len(missing) == 0 && g.own != nil && g.view.order()[0] == g.own.ID && g.quiet() {
		if err := g.start(); err != nil {
			return nil, nil, err
		}
	}
	if g.started != nil {
		out, err = g.begin()
		return out, missing, err
	}
	return g.news(), missing, nil
}

// start opens the port of the world. The lock is held.
func (g *group) start() (err error) {
	free, err := ports.Parse(g.opt.Environment.Ports)
	if err == nil {
		err = free.Bind(func(port int) (err error) {
			g.port, err = net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(port)))
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("no port for the group: %w", err)
	}
	s := &start{Host: "localhost", Port: g.port.Addr().(*net.TCPAddr).Port, Key: make([]byte, 32)}
	rand.Read(s.Key)
	s.Seats, s.IDs = g.view.seats()
	g.started = s
	return nil
}

// quiet tells whether nobody else is to be expected. The lock is held.
func (g *group) quiet() bool {
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

// clients are a daemon's. The lock is held.
func (g *group) clients() (list []client) {
	for _, l := range g.links {
		if l.peer.Kind == Offloaded {
			list = append(list, client{l.peer.ID, l.peer.Label})
		}
	}
	slices.SortFunc(list, func(a, b client) int { return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.ID, b.ID)) })
	return list
}

// renew brings this participant's own record up to date.
func (g *group) renew() {
	if g.own == nil {
		return
	}
	r := *g.own
	r.Open, r.Clients, r.Knows = nil, g.clients(), g.view.digest()
	for address, t := range g.named {
		// One that is connected already may have said so before this end knew it.
		if t.id != r.ID && !slices.ContainsFunc(g.links, func(l *link) bool { return l.peer.ID == t.id }) {
			if t.err != nil {
				address += fmt.Sprintf(" (%v)", t.err)
			}
			r.Open = append(r.Open, address)
		}
	}
	slices.Sort(r.Open)
	if !reflect.DeepEqual(&r, g.own) {
		r.Version++
		g.own, g.changed = &r, time.Now()
		g.view.records[r.ID] = g.own
	}
}

// news is what the others have not been told yet.
func (g *group) news() []message {
	if g.own == nil { // a client hears all from its daemon
		return nil
	}
	var out []message
	for _, l := range g.links {
		var records []record
		for id, r := range g.view.records {
			if version, told := l.told[id]; !told || version < r.Version {
				l.told[id] = r.Version
				records = append(records, *r)
			}
		}
		if records != nil {
			out = append(out, message{l, frame{Kind: kindRecord, Records: records}})
		}
	}
	return out
}

// begin makes the group that was started this one's, and passes the start on. The lock is held.
func (g *group) begin() ([]message, error) {
	s := g.started
	if len(s.IDs) < 1 || len(s.IDs) != len(s.Seats) || !slices.Contains(s.IDs, g.hello.ID) || s.Port < 1 || len(s.Key) < 16 || !s.sound() {
		return nil, fmt.Errorf("%w: a start without this member", errFrame)
	}
	on := *s
	if a, err := netip.ParseAddr(s.Host); s.Host == "localhost" || err == nil && a.Unmap().IsLoopback() {
		on.Host = ""
	}
	here := 0
	var out []message
	for _, l := range g.links {
		in := slices.Contains(s.IDs, l.peer.ID)
		if in && l.peer.Kind == Offloaded {
			here++
		}
		if in {
			out = append(out, message{l, frame{Kind: kindStart, Start: &on}})
		} else {
			out = append(out, message{l, frame{Kind: kindBye, Text: "its group is complete without this one"}})
		}
	}
	if here != g.opt.Clients {
		return nil, fmt.Errorf("a client left when the group was complete: %d of %d are here", here, g.opt.Clients)
	}
	g.phase = complete
	return out, nil
}

// sound tells whether the seats are those of a group: participants, then the clients of daemons.
func (s *start) sound() bool {
	for i, seat := range s.Seats {
		offloaded := seat.Kind == Offloaded
		if offloaded && (seat.Daemon < 0 || seat.Daemon >= i || s.Seats[seat.Daemon].Kind != Daemon) || !offloaded && (!seat.Kind.participant() || i > 0 && s.Seats[i-1].Kind == Offloaded) {
			return false
		}
	}
	return true
}

// close ends this member's part, and waits for all that runs. It returns why the group has
// failed, and tells the other members; nil when all operations are done.
func (g *group) close() error {
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
	links := slices.Clone(g.links)
	g.mu.Unlock()
	for _, l := range []net.Listener{g.opt.Listener, g.port} { // who comes now finds nobody
		if l != nil {
			_ = l.Close()
		}
	}
	for _, l := range links {
		g.all.Go(func() { l.part(reason) })
	}
	g.all.Wait()
	return cause
}

// errDone ends a group whose operations are done.
var errDone = errors.New("done")
