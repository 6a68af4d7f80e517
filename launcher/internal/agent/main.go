package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/orphan"
)

// JoinLimit is how long the agents of a job may take to find each other.
const JoinLimit = 30 * time.Second

// KeySize is the length of a job's key in bytes.
const KeySize = 32

// A Member is a host among the hosts of a job: its store, and how it meets the
// others.
type Member interface {
	// Begin is that of host.Store, once Join has returned.
	Begin(epoch uint64, contribution []byte, then func(all [][]byte, err error))
	Close() error
	// Addr is where the others reach it.
	Addr() string
	// Needs are the hosts whose addresses this one must know.
	Needs() []int
	// Join meets the others, given those addresses by host. It
	// gives ErrLeft when Close ended it, and ErrBereft when Lost did.
	Join(ctx context.Context, addresses map[int]string) error
	// Suspects are hosts that do not answer this one, which the controller is told.
	Suspects() <-chan string
	// Lost says that a host is gone, and why: the controller has decided so.
	Lost(host, why string)
}

// ErrLeft means that a member was closed before it had joined.
var ErrLeft = errors.New("left before the hosts had met")

// ErrBereft means that a host was lost before all had met.
var ErrBereft = errors.New("a host was lost before the hosts had met")

// A Place is what a member is to be.
type Place struct {
	Host         string
	Index, Hosts int // it is the host of this number, of so many
	Key          []byte
	At           netip.Addr  // where it listens
	Ports        ports.Range // at one of these
	// Dial connects to others; nil: as any program does.
	Dial func(address string, limit time.Duration) (net.Conn, error)
}

// Listen makes a member.
type Listen func(p Place) (Member, error)

// A Process is what an agent's process has.
type Process struct {
	Session string          // SSH_CONNECTION; "": none
	Listen  Listen          // nil: of one host, it has no others to listen to
	Orphans *orphan.Adopter // nil: it adopts none
	Dog     *Watchdog       // nil: nothing continues this process when it is stopped
}

// Main is an agent's life. It returns when the stream from the controller ends
// and nothing of its ranks is left, but for daemons if this process adopts them.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer, p Process) error {
	v := &vigil{}
	in := bufio.NewReader(heardReader{stdin, v.streamed})
	var first order
	_, err := stdout.Write(greeting(streamVersion))
	out := newOutbox(stdout, false, nil)
	lapsed := make(chan struct{})
	defer func() {
		out.close()
		select {
		case <-out.done:
		case <-lapsed: // nobody takes what it writes
		}
	}()
	var relay *relayWord
	probed := false
	for err == nil && first.Setup == nil {
		first = order{}
		if err = readSoon(in, &first); err == io.EOF && probed {
			return nil // it was all that was wanted
		}
		switch {
		case err != nil:
		case first.Relay != nil:
			relay = first.Relay
		case first.Ping:
			err = out.put(report{Pong: true})
		case first.Probe:
			probed = true
			machine := topo.Here()
			err = out.put(report{Machine: &machine})
		case first.Setup == nil:
			err = errors.New("found another message, expected the setup")
		}
	}
	if err != nil {
		return fmt.Errorf("an agent is started by gorun and reads its job from standard input: %w", err)
	}
	p.Dog.Set(first.Setup.Lease * 5 / 4) // with none gorun, on this machine, sees that this process is stopped
	a := &agent{session: p.Session, relay: relay, listen: p.Listen, setup: first.Setup, spec: first.Setup.Spec, out: out, orphans: p.Orphans, vigil: v, begin: make(chan string, 1), pieces: make(chan *piece, 1), stop: make(chan struct{}), over: make(chan struct{}), lapsed: lapsed}
	return a.run(ctx, in)
}

// SetupLimit is how long an agent waits for a word of gorun before it has its work.
const SetupLimit = 8 * time.Second

// readSoon is readFrame of an order that must come within SetupLimit. A Read may go on behind it, which ends with the process.
func readSoon(in *bufio.Reader, o *order) error {
	type read struct {
		o   order
		err error
	}
	got := make(chan read, 1)
	go func() {
		var r read
		r.err = readFrame(in, &r.o)
		got <- r
	}()
	select {
	case r := <-got:
		*o = r.o
		return r.err
	case <-time.After(SetupLimit):
		return fmt.Errorf("heard nothing of gorun for %v: it, or the network between, has gone", SetupLimit)
	}
}

// agent is the state of an agent process.
type agent struct {
	session string     // see Way.Address
	relay   *relayWord // nil: no relay has started it
	listen  Listen
	setup   *setup
	spec    host.Spec // the setup's, completed
	out     *outbox
	orphans *orphan.Adopter // nil: this process does not adopt
	begin   chan string     // the ranks, once: what begin says
	pieces  chan *piece     // of a program, each after it was wanted
	stop    chan struct{}   // closed when the ranks are to end, or never to run
	over    chan struct{}   // closed when the stream has ended
	lapsed  chan struct{}   // closed when the lease has
	vigil   *vigil
	member  Member   // nil: there is no other host
	joining *joining // of the member
	detour  *detour  // nil: all hosts are this machine, or there is no other one

	mu      sync.Mutex
	host    *host.Host     // once it runs
	early   []host.Command // what came before
	stopped bool           // stop is closed
}

func (a *agent) emit(e host.Event) {
	select {
	case <-a.lapsed:
		if e.Kind != host.Output {
			return // gorun, if it lives, has lost this agent; what that does to its ranks is no failure of theirs
		}
	default:
	}
	// An error is that of the stream, whose end the reader sees too.
	_ = a.out.put(report{Event: &e})
}

func (a *agent) run(ctx context.Context, in *bufio.Reader) error {
	store, said, err := a.meet()
	if err != nil {
		a.emit(host.Event{Kind: host.Failed, Text: err.Error()})
		a.emit(host.Event{Kind: host.Done})
		return err
	}
	if a.joining != nil {
		left := make(chan struct{})
		var passing sync.WaitGroup
		passing.Go(func() { a.passSuspects(left) })
		defer func() {
			close(left)
			passing.Wait()
			a.part()
		}()
	}
	if a.setup.Lease > 0 {
		a.vigil.begin(a.setup)
		if s, ok := sessionOf(a.session); ok && s.proves(a.setup.Way, a.relay) {
			a.vigil.excused(s, a.setup.Lease, func() { _ = a.out.put(report{}) }) // as in emit
		}
		a.vigil.show(a.setup, a.from(), a.alive, a.lapse)
	}
	if err := a.out.put(said); err != nil {
		return err
	}
	// The reader may block in the stream for longer than the agent lives:
	// where that is a process, its end ends it.
	go a.obey(ctx, in)
	kill := func() { a.command(host.Command{Kind: host.Kill}) }
	unbind := context.AfterFunc(ctx, kill)
	defer unbind()

	select {
	case master := <-a.begin:
		if at, err := netip.ParseAddrPort(master); err == nil && a.setup.Way.Apart {
			a.spec.Master.Address = at.Addr().String()
		}
		if err := a.serve(store); err != nil {
			return err
		}
	case <-a.stop:
	}
	a.emit(host.Event{Kind: host.Done})
	select {
	case <-a.over:
	case <-ctx.Done():
	case <-a.lapsed:
		if pid := unix.Getppid(); a.relay != nil && a.relay.PID == pid {
			_ = unix.Kill(pid, unix.SIGKILL) // it hears no more either, or is stopped; this process ends with it
		}
		return fmt.Errorf("%s: it, or the network between, has gone; its ranks here are ended", a.vigil.why)
	}
	return nil
}

// part leaves the other hosts. The detour goes first: a member waits for what reads its connections, and a read of one that is
// carried ends by nothing but its session while yamux waits for the rest of a frame, which a gorun that has gone will not send.
func (a *agent) part() {
	if a.detour != nil {
		a.detour.close()
	}
	_ = a.joining.Close()
}

// from is the address that gorun, or its relay, has come from; "": none is known.
func (a *agent) from() string {
	switch {
	case a.relay != nil && a.relay.PID == 0:
		return a.relay.From
	case a.setup.Way.Remote:
		return sshClient(a.session)
	}
	return ""
}

// lapse ends the ranks of a host that hears no more of the controller.
func (a *agent) lapse() {
	close(a.lapsed)
	a.command(host.Command{Kind: host.Abandon})
}

// passSuspects tells the controller which hosts do not answer this one.
func (a *agent) passSuspects(left <-chan struct{}) {
	for {
		select {
		case name := <-a.member.Suspects():
			_ = a.out.put(report{Suspect: name}) // as in emit
		case <-left:
			return
		}
	}
}

// alive renews the lease that the guardian holds of this process.
func (a *agent) alive() {
	a.mu.Lock()
	h := a.host
	a.mu.Unlock()
	if h != nil {
		h.Alive()
	}
}

// turn has the host tell that it does what it is told. Before there is one, nothing can
// stand still but this.
func (a *agent) turn() {
	a.mu.Lock()
	h := a.host
	a.mu.Unlock()
	if h == nil {
		a.emit(host.Event{Kind: host.Turned})
		return
	}
	h.Send(host.Command{Kind: host.Turn})
}

// meet listens for the job's other hosts, where there are any.
func (a *agent) meet() (host.Store, report, error) {
	if a.spec.Hosts < 2 {
		return nil, report{Address: "-"}, nil
	}
	at, why, err := a.setup.Way.Address(a.session)
	if err != nil {
		return nil, report{}, err
	}
	p := Place{Host: a.spec.Host, Index: a.spec.Index, Hosts: a.spec.Hosts, Key: a.setup.Key, At: at, Ports: a.setup.Way.Ports}
	if a.setup.Way.Apart {
		a.detour, err = openDetour(at, &carrier{put: func(b []byte, then func()) error { return a.out.put(report{Detour: b}, then) }, done: a.out.done, make: yamux.Server})
		if err != nil {
			return nil, report{}, fmt.Errorf("a port of the loopback address: %w", err)
		}
		p.Dial, a.spec.Detour = a.detour.Dial, a.detour.name
	}
	node, err := a.listen(p)
	if err != nil {
		return nil, report{}, err
	}
	a.spec.Address = at.String()
	a.member, a.joining = node, newJoining(node)
	return a.joining, report{Address: node.Addr(), Why: why, Needs: node.Needs()}, nil
}

// serve runs the ranks.
func (a *agent) serve(store host.Store) error {
	cfg := host.Config{Store: store, Adopted: a.orphans != nil, Lease: a.setup.Lease, Fetch: a.fetch, Emit: func(e host.Event) {
		if e.Kind != host.Done { // which run says, whatever happened
			a.emit(e)
		}
		if e.Free != nil {
			e.Free()
		}
	}}
	if a.setup.Way.Apart {
		cfg.Lead = a.orphans.Lead
	}
	h, err := host.New(a.spec, cfg)
	if err != nil {
		a.emit(host.Event{Kind: host.Failed, Text: err.Error()})
		return nil
	}
	a.mu.Lock()
	if a.stopped {
		a.mu.Unlock()
		h.Close()
		return nil
	}
	a.host = h
	for _, c := range a.early {
		h.Send(c)
	}
	a.early = nil
	a.mu.Unlock()
	h.Run()
	return nil
}

// fetch asks the controller for a piece of a program, and waits for it.
func (a *agent) fetch(app int, offset int64) ([]byte, error) {
	if err := a.out.put(report{Want: &want{app, offset}}); err != nil {
		return nil, host.ErrNotWanted // the stream's end ends the ranks
	}
	select {
	case p := <-a.pieces:
		if p.Why != "" {
			return nil, errors.New(p.Why)
		}
		return p.Data, nil
	case <-a.stop:
		return nil, host.ErrNotWanted
	}
}

// obey reads orders until the stream ends, which ends the ranks.
func (a *agent) obey(ctx context.Context, in *bufio.Reader) {
	defer close(a.over)
	defer a.vigil.end()
	defer a.command(host.Command{Kind: host.Abandon})
	begun, met := false, false
	for {
		var o order
		if err := readFrame(in, &o); err != nil {
			if err != io.EOF {
				a.emit(host.Event{Kind: host.Failed, Text: "agent: " + err.Error()})
			}
			return
		}
		a.vigil.obey(&o)
		switch {
		case o.Begin != nil && !begun:
			begun = true
			a.begin <- o.Begin.Master
		case o.Peers != nil && !met && a.joining != nil:
			met = true
			go a.joining.join(ctx, o.Peers, a.detour, func(err error) { a.emit(host.Event{Kind: host.Failed, Text: err.Error()}) })
		case o.Ping:
			_ = a.out.put(report{Pong: true})
			a.turn()
		case o.Detour != nil && a.detour != nil:
			a.detour.carrier.came(o.Detour)
		case o.Lost != nil && a.member != nil:
			a.member.Lost(o.Lost.Host, o.Lost.Why)
		case o.Piece != nil:
			select {
			case a.pieces <- o.Piece:
			default: // nobody has asked for it
			}
		case o.Command != nil:
			a.command(*o.Command)
		}
	}
}

// command gives the host a command, or keeps it until there is one. Before the
// ranks run, their ending is that they never do.
func (a *agent) command(c host.Command) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ends := c.Kind.Ends()
	if ends && !a.stopped {
		a.stopped = true
		close(a.stop)
	}
	switch {
	case a.host != nil:
		a.host.Send(c)
	case !ends:
		a.early = append(a.early, c)
	}
}

// joinLatest is when an agent joins whose ranks have not spoken: to join takes a fifth of its CPU time in a short job,
// and a job whose ranks never speak needs no more of the others than that they watch each other while it lasts.
const joinLatest = time.Second

// joinSoon is how long joining takes at most where hosts can connect to each other and lose no packets. An agent that lives for longer
// looks whether it can connect to the others.
const joinSoon = 500 * time.Millisecond

// joining is the store of an agent that may not have joined yet: ranks
// start while the agents find each other.
type joining struct {
	Member
	wanted func()          // ends wants
	wants  context.Context // ended when a rank has spoken
	once   sync.Once       // join, or Close before that
	done   chan struct{}   // closed when joined, or when err says why not
	err    error
}

func newJoining(m Member) *joining {
	j := &joining{Member: m, done: make(chan struct{})}
	j.wants, j.wanted = context.WithCancel(context.Background())
	return j
}

// Expect has it join now.
func (j *joining) Expect() { j.wanted() }

// join finds the others, once they are wanted or the job lasts; failed is told if it cannot.
func (j *joining) join(ctx context.Context, peers map[int]string, detour *detour, failed func(error)) {
	select {
	case <-j.wants.Done():
	case <-time.After(joinLatest):
	case <-j.done:
		return
	}
	if detour != nil {
		time.AfterFunc(joinSoon, func() { detour.lookAt(peers) })
	}
	ctx, cancel := context.WithTimeout(ctx, JoinLimit)
	defer cancel()
	j.once.Do(func() {
		j.err = j.Join(ctx, peers)
		close(j.done)
	})
	// Of a lost host the controller knows. Ranks go on that need no fence, if it lets them.
	if j.err != nil && !errors.Is(j.err, ErrLeft) && !errors.Is(j.err, ErrBereft) {
		failed(j.err)
	}
}

// Close ends what waits for the joining, too.
func (j *joining) Close() error {
	err := j.Member.Close()
	j.once.Do(func() {
		j.err = ErrLeft
		close(j.done)
	})
	return err
}

// Begin waits for the joining first.
func (j *joining) Begin(epoch uint64, contribution []byte, then func(all [][]byte, err error)) {
	begin := func() {
		<-j.done
		if j.err != nil {
			then(nil, j.err)
			return
		}
		j.Member.Begin(epoch, contribution, then)
	}
	select {
	case <-j.done:
		begin()
	default:
		go begin() // it ends with the joining
	}
}
