package agent

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"
)

// A Relay is the controller's end of the stream to a relay: a process on another machine that starts agents for it,
// one as a child, on its own host, and others by the remote shell. Behind the greeting the stream is one of yamux. Each process
// has three of its streams, which the controller opens one after the other: of the words below, of standard input and output, and of
// standard error.
//
//	controller                       relay
//	launch (command)        ------->        waits for a place, starts the process
//	                        <-------  Started (pid), or Failed
//	Arrived                 ------->        gives the place back: the agent has greeted
//	Signal, Last            ------->
//	                        <-------  Ended (wait status), behind all output
//
// A relay whose stream ends closes the inputs of its processes, and kills those that stay.
type Relay struct {
	host   string
	link   *Link
	up     chan struct{} // closed when the session is there, or never will be
	passed chan struct{} // closed when the other hosts do not wait for it any more
	pass   atomic.Bool   // closes it

	stream  *muxed
	session *yamux.Session // over stream; nil: there is none, because of
	failed  error

	opening sync.Mutex   // the streams of a process follow each other
	moved   atomic.Int64 // when it came on last, for Waits
}

// relayOrder is what a controller tells a relay of a process: one of its fields.
type relayOrder struct {
	Launch  *launching  `msgpack:"l,omitempty"`
	Arrived bool        `msgpack:"a,omitempty"`
	Signal  unix.Signal `msgpack:"s,omitempty"` // and none follows
	Last    bool        `msgpack:"e,omitempty"` // none follows
}

// launching is a process that a relay is to start: an agent of its own host, or a remote shell.
type launching struct {
	Argv []string
	Own  bool
}

// relayNews is what a relay tells of a process: one of its fields; none if it was ended before its turn.
type relayNews struct {
	Started int     `msgpack:"p,omitempty"` // its pid
	Failed  string  `msgpack:"f,omitempty"` // why it was not
	Ended   *uint32 `msgpack:"e,omitempty"` // its wait status
}

// relayed is the process of a link that a relay has started.
type relayed struct {
	relay *Relay
	own   bool // its host is the relay's
	quit  chan struct{}
	done  chan struct{} // closed when it has ended, or never will run

	mu     sync.Mutex
	orders *outbox // nil: the relay does not know of it yet
	stop   bool    // quit is closed
	pid    int     // there
	count  int
	failed error
	status unix.WaitStatus
	ran    bool // status is the process's
	lost   bool // the relay was, first
}

// StartRelay starts a relay as Start does an agent.
func StartRelay(argv, env []string, host string, shell *Shell) (*Relay, error) {
	r := &Relay{host: host, up: make(chan struct{}), passed: make(chan struct{})}
	l, err := start(argv, env, host, relayVersion, shell)
	if err != nil {
		return nil, err
	}
	r.link = l
	l.readers.Go(r.greet)
	return r, nil
}

// greet waits for the relay.
func (r *Relay) greet() {
	defer close(r.up)
	if r.failed = r.link.greet(); r.failed == nil {
		r.moved.Store(time.Now().UnixNano())
		l := r.link
		r.stream = newMuxed(l.in, pipes{l}, l.from, l.to)
		r.session, r.failed = yamux.Client(r.stream, relayConfig())
	}
	if r.failed != nil && !errors.Is(r.failed, io.EOF) {
		r.link.Kill()
	}
}

// Host is the relay's.
func (r *Relay) Host() string { return r.host }

// Login is the relay's process, as it was started here. Only its PID, Said and Close mean anything of a relay.
func (r *Relay) Login() *Link { return r.link }

// IsUp tells whether it has ever come; failed says what was wrong with its greeting; nil: it has ended without one.
func (r *Relay) IsUp() (is bool, failed error) {
	select {
	case <-r.up:
	default:
		return false, nil
	}
	if errors.Is(r.failed, io.EOF) || isClosed(r.failed) {
		return false, nil
	}
	return r.session != nil, r.failed
}

// Refused tells of one that has never come, or is gone, whether the remote shell has not reached its host, or has lost it, as ssh says by
// this status.
func (r *Relay) Refused() bool {
	r.link.Close()
	t, is := r.link.origin.(*tries)
	return is && t.severed || r.link.status.Exited() && r.link.status.ExitStatus() == 255
}

// IsGone tells whether it has come and is there no more.
func (r *Relay) IsGone() bool {
	up, _ := r.IsUp()
	return up && r.session.IsClosed()
}

// Pass has the other hosts not wait for a relay that does not come. It is false if it has come, or that was said before.
func (r *Relay) Pass() bool {
	select {
	case <-r.up:
		return false
	default:
	}
	if r.pass.Swap(true) {
		return false
	}
	close(r.passed)
	return true
}

// Kill ends the relay here, and with that what it has started.
func (r *Relay) Kill() {
	r.link.Kill()
	select {
	case <-r.up:
		if r.session != nil {
			r.stream.stop()
		}
	default:
	}
}

// Close ends the relay and waits for its end. It returns how that was and what it complained about.
func (r *Relay) Close() (how string, complaints []string) {
	select {
	case <-r.up:
		if r.session != nil {
			r.stream.stop()
			<-r.session.CloseChan()
			_ = r.session.Close() // waits for the end of its goroutines
		}
	default:
		r.link.Kill()
	}
	return r.link.Close()
}

// Start has the relay start the agent of a host, its own or another, by a command: the agent's, or a remote shell's.
func (r *Relay) Start(argv []string, host string) *Link {
	p := &relayed{relay: r, own: host == r.host, quit: make(chan struct{}), done: make(chan struct{})}
	l := newLink(p, true, nil)
	l.readers.Go(l.readErrors)
	go p.attend(l, argv) // Close waits for its end
	return l
}

// open opens the streams of a process.
func (r *Relay) open() (streams [3]*yamux.Stream, err error) {
	r.opening.Lock()
	defer r.opening.Unlock()
	for i := range streams {
		if streams[i], err = r.session.OpenStream(); err != nil {
			return streams, err
		}
	}
	return streams, nil
}

// attend asks the relay for the process, and takes what it tells of it.
func (p *relayed) attend(l *Link, argv []string) {
	defer close(p.done)
	defer func() {
		if l.to == nil {
			close(l.opened)
		}
	}()
	passed := p.relay.passed
	if p.own {
		passed = nil
	}
	select {
	case <-p.relay.up:
	case <-passed:
	case <-p.quit:
		return
	}
	if is, _ := p.relay.IsUp(); !is {
		p.isLost()
		return
	}
	streams, err := p.relay.open()
	if err != nil {
		p.isLost()
		return
	}
	words := streams[0]
	defer words.Close()
	orders := newOutbox(words, false, nil)
	defer orders.close()
	if !p.ask(orders, argv) {
		_, _ = streams[1].Close(), streams[2].Close()
		return
	}
	l.to, l.from, l.errors = streams[1], &relayEnd{Stream: streams[1]}, &relayEnd{Stream: streams[2]}
	close(l.opened)
	if p.own {
		l.move()
	}
	in := bufio.NewReader(words)
	for {
		var n relayNews
		if err := readFrame(in, &n); err != nil {
			p.isLost()
			return
		}
		p.relay.moved.Store(time.Now().UnixNano())
		if n.Started > 0 {
			l.move()
		}
		if p.take(n) {
			return
		}
	}
}

// ask asks the relay for the process, unless none is wanted any more.
func (p *relayed) ask(orders *outbox, argv []string) (ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop {
		return false
	}
	p.orders = orders
	_ = orders.put(relayOrder{Launch: &launching{argv, p.own}})
	return true
}

// take notes what the relay tells, and whether that is the last.
func (p *relayed) take(n relayNews) (over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case n.Started > 0:
		p.pid = n.Started
		p.count++
		return false
	case n.Failed != "":
		p.failed = errors.New(n.Failed)
		p.count++
	case n.Ended != nil:
		p.status, p.ran = unix.WaitStatus(*n.Ended), true
	}
	p.pid = 0
	return true
}

func (p *relayed) isLost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid, p.lost = 0, true
}

// waits is for how long nothing has come on before the process was started: of the relay itself, and of what it starts in turns.
func (p *relayed) waits() time.Duration {
	select {
	case <-p.relay.up:
		return since(p.relay.moved.Load())
	default:
	}
	if p.own {
		return p.relay.link.Waits()
	}
	return 0
}

func (p *relayed) process() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pid
}

func (p *relayed) signal(s unix.Signal) { p.tell(relayOrder{Signal: s}) }

func (p *relayed) last() { p.tell(relayOrder{Last: true}) }

// tell tells the relay that the process is the last one.
func (p *relayed) tell(o relayOrder) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.stop {
		p.stop = true
		close(p.quit)
	}
	if p.orders != nil {
		_ = p.orders.put(o) // an error is that of the relay, which attend sees
	}
}

func (p *relayed) arrived() {
	p.relay.moved.Store(time.Now().UnixNano())
	if login, is := p.relay.link.origin.(*tries); is && p.own {
		login.unwatch() // the agent's lease begins
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.orders.put(relayOrder{Arrived: true})
}

func (p *relayed) over() <-chan struct{} { return p.done }

func (p *relayed) wait() (status unix.WaitStatus, ran bool) {
	<-p.done
	return p.status, p.ran
}

func (p *relayed) started() (count int, failed error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.failed
}

// A relayEnd is a stream of a relay as that which is read of a process.
type relayEnd struct {
	*yamux.Stream
	closed atomic.Bool
}

func (e *relayEnd) Read(b []byte) (int, error) {
	n, err := e.Stream.Read(b)
	switch {
	case err == nil:
	case e.closed.Load():
		err = os.ErrClosed
	case errors.Is(err, yamux.ErrTimeout):
		err = os.ErrDeadlineExceeded
	default:
		err = io.EOF // the relay is lost, of which attend tells
	}
	return n, err
}

// Close ends a Read in progress.
func (e *relayEnd) Close() error {
	e.closed.Store(true)
	_ = e.SetReadDeadline(time.Unix(1, 0))
	return e.Stream.Close()
}

// Relay is what has started the agent, or is to; nil: this process.
func (l *Link) Relay() *Relay {
	if p, is := l.origin.(*relayed); is {
		return p.relay
	}
	return nil
}

// OfRelay tells whether the agent is one that a relay has started on its own host.
func (l *Link) OfRelay() bool {
	p, is := l.origin.(*relayed)
	return is && p.own
}

// LostRelay tells whether the agent is lost because its relay is, or has never come.
func (l *Link) LostRelay() bool {
	p, is := l.origin.(*relayed)
	if !is {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Abandon is Kill, and ends the relay too where that does not do it soon: for a job that ends.
func (l *Link) Abandon() {
	l.Kill()
	if p, is := l.origin.(*relayed); is {
		time.AfterFunc(leaveLimit, func() {
			select {
			case <-p.done:
			default:
				p.relay.Kill()
			}
		})
	}
}

var (
	_ origin = (*tries)(nil)
	_ origin = (*relayed)(nil)
)
