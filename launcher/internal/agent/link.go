package agent

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// leaveLimit is how long an agent may take to leave after its last event, and a remote shell after SIGTERM.
const leaveLimit = 2 * time.Second

// Link is the controller's end of the stream to an agent.
type Link struct {
	origin origin        // of the process
	stream string        // what its greeting says: the version of what follows
	remote bool          // it is a remote shell, or of another machine
	opened chan struct{} // closed when the three that follow are there, or never will be and are nil
	to     io.WriteCloser
	from   readEnd
	errors readEnd       // the agent's standard error
	in     *bufio.Reader // of from
	out    *outbox
	stage  *Stage // nil: each host has the agent's program
	told   Told
	detour *carrier     // of connections between this agent's host and others
	killed atomic.Bool  // by Kill, or Send
	moved  atomic.Int64 // when the host came on last, for Waits; 0: no process has been started, or not again

	greeted  sync.Once
	greetErr error
	stray    atomic.Pointer[string] // what came before the greeting
	agent    atomic.Int64           // the agent's pid; 0: it has not greeted
	wanted   atomic.Pointer[string] // why stage was sent; nil: it was not
	idle     atomic.Int32           // answers to pings since it has said anything else
	readers  sync.WaitGroup
	tail     stdio.Tail // of errors; complete when readers are done

	// What the process of a try has written on errors goes from their reader to attend, which has
	// written a NUL behind it, and says whether the next one begins anew.
	marked atomic.Bool
	said   chan []string
	fresh  chan bool

	closed     sync.Once
	how        string // it ended; with closed
	complaints []string
	status     unix.WaitStatus
}

// An origin is where the process of a Link comes from: this process starts it ([tries]), or a relay does ([relayed]). None of
// its methods but wait blocks.
type origin interface {
	// process is the pid of the process on the machine that has started it; 0: none runs, as far as is known.
	process() int
	// signal gives the process a signal, and none follows it.
	signal(s unix.Signal)
	// last has no other process follow the present one.
	last()
	// arrived is told when the agent has greeted.
	arrived()
	// over is closed when no other process will be started.
	over() <-chan struct{}
	// wait waits for that, and for the end of the last process. ran: status is that process's.
	wait() (status unix.WaitStatus, ran bool)
	// started is how many processes were, and why the last one was not.
	started() (count int, failed error)
}

// A readEnd is what is read of a process: a pipe, or a stream of a relay.
type readEnd interface {
	io.ReadCloser
	SetReadDeadline(t time.Time) error
}

func newLink(o origin, remote bool, stage *Stage) *Link {
	l := &Link{origin: o, stream: streamVersion, remote: remote, stage: stage, opened: make(chan struct{}), said: make(chan []string), fresh: make(chan bool)}
	l.in = bufio.NewReaderSize(heardReader{pipes{l}, l.heard}, 64<<10)
	l.out = newOutbox(pipes{l}, stage != nil, l.move)
	l.detour = &carrier{put: func(b []byte, then func()) error { return l.out.put(order{Detour: b}, then) }, done: l.out.done, make: yamux.Client, taken: l.carry}
	return l
}

// Told is what a Link tells, each on the link's goroutine: first Address, then
// Events, at last Lost unless Close came before. Address and Event must not
// block for longer than the stream may stand still.
type Told struct {
	Address func(address, why string, needs []int) // needs: whose addresses the agent wants of Peers
	Event   func(host.Event)
	Lost    func(why error)
	Alive   func()            // at everything that comes; it must be quick
	Suspect func(host string) // whose agent does not answer this one's
	// Program reads bytes of a program that the host does not have, from an offset on.
	Program func(app int, offset int64, into []byte) (int, error)
	Sent    func(bytes int) // of a program, each time that some have been; on a goroutine of the link
	// Across is the agent of the host that has an address, and Carried is told of each connection to one that is carried; both
	// on goroutines of the link.
	Across  func(address string) (*Link, error)
	Carried func(address string)
}

// Start starts the agent of a host with an environment, in a process group of
// its own, or a session for a shell, on the calling goroutine's thread, whose end the agent does not
// survive: lock it. With a shell argv is a remote shell that starts the agent, on a thread of its own and when
// there is a place for it. Then comes Begin, before it perhaps Machine.
func Start(argv, env []string, name string, shell *Shell) (*Link, error) {
	return start(argv, env, name, streamVersion, shell)
}

// start is Start of what greets with a stream.
func start(argv, env []string, name, stream string, shell *Shell) (*Link, error) {
	file, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, err
	}
	t := newTries(nil)
	var stage *Stage
	if shell != nil {
		stage, t.gate, t.silence = shell.Stage, shell.Gate, shell.Silence
		t.relay = stream == relayVersion
	}
	l := newLink(t, shell != nil, stage)
	l.stream = stream
	t.start = func() (int, error) {
		if l.to == nil {
			files, err := t.open("agent of host " + name)
			if err != nil {
				return 0, err
			}
			l.to, l.from, l.errors = files[0], files[1], files[2]
			close(l.opened)
		}
		pid, err := launch(file, argv, env, t.ends, shell != nil)
		if err != nil {
			return 0, &os.PathError{Op: "exec", Path: file, Err: err}
		}
		return pid, nil
	}
	if shell == nil {
		ok := t.next()
		l.end(t)
		if !ok {
			l.out.close()
			l.closeFiles()
			return nil, t.failed
		}
		l.move()
	}
	l.readers.Go(l.readErrors)
	if shell != nil {
		go l.attend(t, shell.Again) // Close waits for its end
	}
	return l, nil
}

// end is told when no process will be started any more.
func (l *Link) end(t *tries) {
	t.end()
	switch {
	case l.to == nil:
		close(l.opened)
	case t.severed:
		_ = l.from.Close()
	}
	close(t.done)
}

// A pipes is a Link as what is read from the agent and written to it, once it is there.
type pipes struct{ l *Link }

func (p pipes) Read(b []byte) (int, error) {
	if <-p.l.opened; p.l.from == nil {
		return 0, io.EOF
	}
	return p.l.from.Read(b)
}

func (p pipes) Write(b []byte) (int, error) {
	if <-p.l.opened; p.l.to == nil {
		return 0, os.ErrClosed
	}
	return p.l.to.Write(b)
}

// move notes that the host has come on.
func (l *Link) move() { l.moved.Store(time.Now().UnixNano()) }

// Waits is for how long the agent has not come on: since the start of its process, a piece of its program, its
// greeting. 0 while the remote shell waits for its place.
func (l *Link) Waits() time.Duration {
	at := l.moved.Load()
	if p, is := l.origin.(*relayed); is && at == 0 {
		return p.waits()
	}
	return since(at)
}

// since is for how long a time has passed, in nanoseconds; 0 of 0.
func since(at int64) time.Duration {
	if at == 0 {
		return 0
	}
	return max(0, time.Since(time.Unix(0, at)))
}

// within has the stream's reads fail when the agent does not come on for a time, which is lease once it has greeted.
func (l *Link) within(limit, lease time.Duration) (stop func()) {
	over := make(chan struct{})
	left := func() time.Duration {
		if l.Reached() {
			return lease - l.Waits()
		}
		return limit - l.Waits()
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for left() > 0 {
			select {
			case <-time.After(min(left(), lease/Looks)):
			case <-over:
				return
			}
		}
		if <-l.opened; l.from != nil { // Waits counts from then on
			_ = l.from.SetReadDeadline(time.Unix(1, 0))
		}
	})
	return func() {
		close(over)
		watching.Wait()
		if <-l.opened; l.from != nil {
			_ = l.from.SetReadDeadline(time.Time{})
		}
	}
}

// Machine asks the agent for the machine that it runs on and waits for the
// answer, or the agent's end, or until it has not come on for a time, which is lease once it has greeted.
func (l *Link) Machine(limit, lease time.Duration) (*topo.Machine, error) {
	if err := l.out.put(order{Probe: true}); err != nil {
		return nil, err
	}
	defer l.within(limit, lease)()
	var r report
	err := l.greet()
	for err == nil && r.Machine == nil {
		r = report{}
		if err = readFrame(l.in, &r); err == nil && !r.Pong {
			break
		}
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if l.Reached() {
				limit = lease
			}
			err = fmt.Errorf("no answer from the agent within %v%s", limit, l.Late())
		}
		return nil, err
	}
	if r.Machine == nil || len(r.Machine.CPUs) == 0 || r.Machine.Allowed.Len() == 0 {
		return nil, errors.New("the agent does not say what machine it runs on: is it of this version?")
	}
	return r.Machine, nil
}

// heard is told of whatever the agent sends.
func (l *Link) heard() {
	if l.told.Alive != nil {
		l.told.Alive()
	}
}

// Begin gives the agent its work. From now on told is told of the agent. lease is how long
// its ranks outlive the last word to it; 0: until the stream ends. port is where this
// process takes datagrams; 0: nowhere.
func (l *Link) Begin(spec host.Spec, key []byte, way Way, lease time.Duration, port int, told Told) {
	l.told = told
	// An error is that of the stream, whose end the reader sees too.
	_ = l.out.put(order{Setup: &setup{spec, key, way, lease, port}})
	l.readers.Go(l.read)
}

// StartRanks has the agent start its ranks. master is the address of the agent that has the first one.
func (l *Link) StartRanks(master string) { _ = l.out.put(order{Begin: &begin{master}}) }

// Peers gives the agent the addresses that it needs, by host, so that it meets the others.
func (l *Link) Peers(addresses map[int]string) { _ = l.out.put(order{Peers: addresses}) }

// Send gives the host a command. An error is that of the stream, whose other
// direction tells of it. Where ranks are to end before a remote shell has reached their host, that ends: first
// it is asked to, so that srun ends its step.
func (l *Link) Send(c host.Command) {
	if c.Kind.Ends() && l.remote && !l.Reached() && !l.killed.Swap(true) {
		l.origin.signal(unix.SIGTERM)
		time.AfterFunc(leaveLimit, l.kill)
	}
	_ = l.out.put(order{Command: &c})
}

// Ping asks whether the agent is there, and whether its host does what it is told;
// Told.Alive and Idle tell.
func (l *Link) Ping() { _ = l.out.put(order{Ping: true}) }

// Idle is how often the agent has answered a ping since its host last did anything.
func (l *Link) Idle() int { return int(l.idle.Load()) }

// Lose tells the agent that a host is gone, which ends what waits for that.
func (l *Link) Lose(host, why string) { _ = l.out.put(order{Lost: &lost{host, why}}) }

// Kill ends the agent, and with it its ranks, without a word.
func (l *Link) Kill() {
	l.killed.Store(true)
	l.kill()
}

func (l *Link) kill() { l.origin.signal(unix.SIGKILL) }

// Killed tells whether Kill was called, or Send in its stead.
func (l *Link) Killed() bool { return l.killed.Load() }

// PID is the agent's process on its host; 0 while a remote shell has not reached it.
func (l *Link) PID() int {
	if l.remote {
		return int(l.agent.Load())
	}
	return l.origin.process()
}

// Remote tells whether a remote shell has started the agent.
func (l *Link) Remote() bool { return l.remote }

// Reached tells whether the agent has greeted.
func (l *Link) Reached() bool { return l.agent.Load() > 0 }

// Said is the last line that came instead of a greeting, as that of a login script or of one
// that asks; "": nothing has.
func (l *Link) Said() string {
	if l.Reached() {
		return ""
	}
	return l.Stray()
}

// Stray is the last line that came before the greeting, as that of a login script; "": none did.
func (l *Link) Stray() string {
	if text := l.stray.Load(); text != nil {
		return lastLine(*text)
	}
	return ""
}

// Late is how far an agent has come that should long have answered, for the end of a message.
func (l *Link) Late() string {
	if p, is := l.origin.(*relayed); is && p.own {
		if up, _ := p.relay.IsUp(); !up {
			return p.relay.link.Late()
		}
	}
	switch said := l.Said(); {
	case l.Reached():
		return fmt.Sprintf(": it runs there (pid %d), and does not say where it listens", l.PID())
	case l.wanted.Load() != nil:
		return fmt.Sprintf(": its program is being sent, %d of %d bytes", l.out.sent.Load(), len(l.stage.program))
	case said != "":
		return fmt.Sprintf("; it has said %q", said)
	}
	return ""
}

// Staged tells why the host was sent the agent's program, and how much of it; "": it was not.
func (l *Link) Staged() (why string, bytes int64) {
	if text := l.wanted.Load(); text != nil {
		return *text, l.out.sent.Load()
	}
	return "", 0
}

// greet reads the greeting, once.
func (l *Link) greet() error {
	l.greeted.Do(func() {
		pid, err := readGreeting(l.in, l.stream, func(stray string) { l.stray.Store(&stray) }, func(why string) {
			if l.stage != nil {
				l.wanted.Store(&why)
				l.out.before(l.stage.program)
			}
		})
		l.agent.Store(int64(pid))
		l.greetErr = err
		if err == nil {
			l.origin.arrived()
			l.move()
			l.out.release()
		}
	})
	return l.greetErr
}

func (l *Link) read() {
	var wants chan want // of programs; nil: there was none
	defer func() {
		if wants != nil {
			close(wants)
		}
	}()
	err := l.greet()
	for {
		var r report
		if err == nil {
			err = readFrame(l.in, &r)
		}
		if err != nil {
			if err == io.EOF || isClosed(err) {
				err = nil
			}
			l.told.Lost(err)
			return
		}
		switch {
		case r.Pong:
			l.idle.Add(1)
		case r.Detour == nil:
			l.idle.Store(0)
		}
		switch {
		case r.Want != nil:
			if wants == nil {
				wants = make(chan want, 1)
				l.readers.Go(func() { l.feed(wants) })
			}
			select {
			case wants <- *r.Want:
			default:
				err = errors.New("found a second request for a piece of the program, expected one after the other: is the agent of this version?")
			}
		case r.Detour != nil:
			l.detour.came(r.Detour)
		case r.Suspect != "":
			l.told.Suspect(r.Suspect)
		case r.Address != "":
			l.told.Address(r.Address, r.Why, r.Needs)
		case r.Event != nil:
			l.told.Event(*r.Event)
		}
	}
}

// feed answers a host that wants bytes of programs, one piece at a time.
func (l *Link) feed(wants <-chan want) {
	for w := range wants {
		p := &piece{Data: make([]byte, pieceMost)}
		n, err := l.told.Program(w.App, w.Offset, p.Data)
		if p.Data = p.Data[:n]; err != nil && err != io.EOF {
			p = &piece{Why: err.Error()}
		}
		sent := make(chan struct{})
		if l.out.put(order{Piece: p}, func() { close(sent) }) != nil {
			return // as in Begin
		}
		select {
		case <-sent:
			l.told.Sent(len(p.Data))
		case <-l.out.done:
			return // nothing is sent any more
		}
	}
}

// carry passes on what the agent's host and another one send each other by a connection to an address of that.
func (l *Link) carry(s net.Conn, address string) {
	to, err := l.told.Across(address)
	var over net.Conn
	if err == nil {
		over, err = to.detour.dial(address)
	}
	if err != nil {
		fmt.Fprintf(s, "no %.100s\n", oneLine(err))
		return
	}
	defer over.Close()
	_ = over.SetReadDeadline(time.Now().Add(2 * carryLimit))
	line, err := readLine(over)
	if err != nil {
		line = "no " + oneLine(err)
	} else if line == carried {
		l.told.Carried(address)
	}
	if _, err := io.WriteString(s, line+"\n"); err == nil && line == carried && over.SetReadDeadline(time.Time{}) == nil {
		passBoth(s, over)
	}
}

// readErrors keeps what the agent itself complains about.
func (l *Link) readErrors() {
	buf := make([]byte, 4<<10)
	if <-l.opened; l.errors == nil {
		return
	}
	for {
		n, err := l.errors.Read(buf)
		text := buf[:n]
		if before, after, is := bytes.Cut(text, []byte{0}); is && l.marked.Load() {
			l.tail.Add(before)
			l.said <- withoutNotices(l.tail.Lines())
			if <-l.fresh {
				l.tail = stdio.Tail{}
			}
			text = after // of what outlives the process
		}
		l.tail.Add(text)
		if err != nil {
			return
		}
	}
}

// Close ends the stream and waits for the agent's end, for which it has some
// time if its last event was read. It returns how the agent ended and what it
// complained about.
func (l *Link) Close() (how string, complaints []string) {
	l.closed.Do(func() { l.how, l.complaints = l.close() })
	return l.how, l.complaints
}

func (l *Link) close() (how string, complaints []string) {
	l.origin.last()
	l.out.close()
	kill := time.AfterFunc(leaveLimit, l.kill)
	if p, is := l.origin.(*relayed); is {
		defer time.AfterFunc(2*leaveLimit, p.relay.Kill).Stop()
	}
	if l.origin.process() == 0 {
		<-l.origin.over() // nothing reads what is to be written
	}
	<-l.out.done
	if <-l.opened; l.to != nil {
		_ = l.to.Close()
	}
	l.detour.close()
	status, ran := l.origin.wait()
	l.status = status
	kill.Stop()
	if l.to != nil {
		// A process that the agent left behind may hold these.
		_ = l.from.Close()
		_ = l.errors.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	}
	l.readers.Wait()
	l.closeFiles()
	count, failed := l.origin.started()
	switch {
	case failed != nil:
		how = "cannot be started: " + failed.Error()
	case !ran && count == 0:
		how = "was not started"
	case !ran:
		how = "was not started again"
	case status.Signaled():
		how = fmt.Sprintf("was killed by signal %d (%v)", int(status.Signal()), status.Signal())
	default:
		how = fmt.Sprintf("exited with status %d", status.ExitStatus())
	}
	if said := l.Said(); said != "" {
		complaints = append(complaints, said)
	}
	return how, append(complaints, withoutNotices(l.tail.Lines())...)
}

// withoutNotices leaves out what OpenSSH (10 and later) writes at every login to a server
// without a post-quantum key exchange: three lines that begin so, and are why of nothing.
func withoutNotices(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return strings.HasPrefix(line, "** ") })
}

func (l *Link) closeFiles() {
	if l.to != nil {
		_, _, _ = l.to.Close(), l.from.Close(), l.errors.Close()
	}
}
