package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// leaveLimit is how long an agent may take to leave after its last event.
const leaveLimit = 2 * time.Second

// Link is the controller's end of the stream to an agent.
type Link struct {
	pid    int  // of the process that was started here
	remote bool // that is a remote shell
	to     *os.File
	from   *os.File
	in     *bufio.Reader // of from
	errors *os.File      // the agent's standard error
	out    *outbox
	told   Told
	killed atomic.Bool // by Kill

	greeted  sync.Once
	greetErr error
	stray    atomic.Pointer[string] // what came before the greeting
	agent    atomic.Int64           // the agent's pid; 0: it has not greeted
	readers  sync.WaitGroup
	tail     stdio.Tail // of errors; complete when readers are done
}

// Told is what a Link tells, each on the link's goroutine: first Address, then
// Events, at last Lost unless Close came before. Address and Event must not
// block for longer than the stream may stand still.
type Told struct {
	Address func(address, why string)
	Event   func(host.Event)
	Lost    func(why error)
	Alive   func() // at everything that comes; it must be quick
}

// Start starts the agent of a host with an environment, in a process group of
// its own, on the calling goroutine's thread, whose end the agent does not
// survive: lock it. Then comes Begin, before it perhaps Machine. remote: argv is a
// remote shell that starts the agent.
func Start(argv, env []string, name string, remote bool) (*Link, error) {
	file, err := exec.LookPath(argv[0])
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return nil, err
	}
	l := &Link{remote: remote}
	var theirs [3]int
	defer func() {
		for _, fd := range theirs {
			if fd > 0 {
				unix.Close(fd)
			}
		}
	}()
	for i, mine := range [...]**os.File{&l.to, &l.from, &l.errors} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			l.closeFiles()
			return nil, os.NewSyscallError("pipe2", err)
		}
		own, their := 0, 1 // we read
		if i == 0 {
			own, their = 1, 0
		}
		theirs[i] = ends[their]
		// Non-blocking, so that Close ends a Read in progress; only this end.
		_ = unix.SetNonblock(ends[own], true)
		*mine = os.NewFile(uintptr(ends[own]), "agent of host "+name)
	}
	l.pid, err = syscall.ForkExec(file, argv, &syscall.ProcAttr{
		Files: []uintptr{uintptr(theirs[0]), uintptr(theirs[1]), uintptr(theirs[2])},
		Env:   env,
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		l.closeFiles()
		return nil, &os.PathError{Op: "exec", Path: file, Err: err}
	}
	l.in = bufio.NewReaderSize(l.from, 64<<10)
	l.out = newOutbox(l.to)
	l.readers.Go(l.readErrors)
	return l, nil
}

// Machine asks the agent for the machine that it runs on and waits for the
// answer, or the agent's end, or a time.
func (l *Link) Machine(limit time.Duration) (*topo.Machine, error) {
	if err := l.out.put(order{Probe: true}); err != nil {
		return nil, err
	}
	_ = l.from.SetReadDeadline(time.Now().Add(limit))
	var r report
	err := l.greet()
	if err == nil {
		err = readFrame(l.in, &r)
	}
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("no answer from the agent within %v%s", limit, l.Instead())
		}
		return nil, err
	}
	_ = l.from.SetReadDeadline(time.Time{})
	if r.Machine == nil || len(r.Machine.CPUs) == 0 || r.Machine.Allowed.Len() == 0 {
		return nil, errors.New("the agent does not say what machine it runs on: is it of this version?")
	}
	return r.Machine, nil
}

// Begin gives the agent its work. From now on told is told of the agent. lease is how long
// its ranks outlive the last word to it; 0: until the stream ends.
func (l *Link) Begin(spec host.Spec, key []byte, way Way, lease time.Duration, told Told) {
	l.told = told
	// An error is that of the stream, whose end the reader sees too.
	_ = l.out.put(order{Setup: &setup{spec, key, way, lease}})
	l.readers.Go(l.read)
}

// Peers gives the agent the addresses of all, which starts its ranks.
func (l *Link) Peers(addresses []string) { _ = l.out.put(order{Peers: addresses}) }

// Send gives the host a command. An error is that of the stream, whose other
// direction tells of it.
func (l *Link) Send(c host.Command) { _ = l.out.put(order{Command: &c}) }

// Ping asks whether the agent is there; Told.Alive tells.
func (l *Link) Ping() { _ = l.out.put(order{Ping: true}) }

// Kill ends the agent, and with it its ranks, without a word.
func (l *Link) Kill() {
	l.killed.Store(true)
	_ = unix.Kill(l.pid, unix.SIGKILL)
}

// Killed tells whether Kill was called.
func (l *Link) Killed() bool { return l.killed.Load() }

// PID is the agent's process on its host; 0 while a remote shell has not reached it.
func (l *Link) PID() int {
	if l.remote {
		return int(l.agent.Load())
	}
	return l.pid
}

// Remote tells whether a remote shell has started the agent.
func (l *Link) Remote() bool { return l.remote }

// Reached tells whether the agent has greeted.
func (l *Link) Reached() bool { return l.agent.Load() > 0 }

// Said is the last line that came instead of a greeting, as that of a login script or of one
// that asks; "": nothing has.
func (l *Link) Said() string {
	if text := l.stray.Load(); text != nil && !l.Reached() {
		return lastLine(*text)
	}
	return ""
}

// Instead is what Said says, for the end of a message.
func (l *Link) Instead() string {
	if said := l.Said(); said != "" {
		return fmt.Sprintf("; it has said %q", said)
	}
	return ""
}

// greet reads the greeting, once.
func (l *Link) greet() error {
	l.greeted.Do(func() {
		pid, err := readGreeting(l.in, func(stray string) { l.stray.Store(&stray) })
		l.agent.Store(int64(pid))
		l.greetErr = err
	})
	return l.greetErr
}

func (l *Link) read() {
	err := l.greet()
	for {
		var r report
		if err == nil {
			err = readFrame(l.in, &r)
		}
		if err != nil {
			if err == io.EOF || errors.Is(err, os.ErrClosed) {
				err = nil
			}
			l.told.Lost(err)
			return
		}
		l.told.Alive()
		switch {
		case r.Address != "":
			l.told.Address(r.Address, r.Why)
		case r.Event != nil:
			l.told.Event(*r.Event)
		}
	}
}

// readErrors keeps what the agent itself complains about.
func (l *Link) readErrors() {
	buf := make([]byte, 4<<10)
	for {
		n, err := l.errors.Read(buf)
		l.tail.Add(buf[:n])
		if err != nil {
			return
		}
	}
}

// Close ends the stream and waits for the agent's end, for which it has some
// time if its last event was read. It returns how the agent ended and what it
// complained about.
func (l *Link) Close() (how string, complaints []string) {
	l.out.close()
	kill := time.AfterFunc(leaveLimit, func() { _ = unix.Kill(l.pid, unix.SIGKILL) })
	<-l.out.done
	_ = l.to.Close()
	var status unix.WaitStatus
	for {
		if _, err := unix.Wait4(l.pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	kill.Stop()
	// A process that the agent left behind may hold these.
	_ = l.from.Close()
	_ = l.errors.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	l.readers.Wait()
	l.closeFiles()
	switch {
	case status.Signaled():
		how = fmt.Sprintf("was killed by signal %d (%v)", int(status.Signal()), status.Signal())
	default:
		how = fmt.Sprintf("exited with status %d", status.ExitStatus())
	}
	if said := l.Said(); said != "" {
		complaints = append(complaints, said)
	}
	return how, append(complaints, l.tail.Lines()...)
}

func (l *Link) closeFiles() {
	for _, f := range [...]*os.File{l.to, l.from, l.errors} {
		if f != nil {
			_ = f.Close()
		}
	}
}
