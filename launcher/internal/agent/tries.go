package agent

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Again decides whether a remote shell that has ended before its agent was there is started
// once more, and after which pause. tries is how many have ended, said is what the last one wrote on
// its standard error. It may block.
type Again func(tries int, said []string) (pause time.Duration, again bool)

// A Shell is how a remote shell starts an agent.
type Shell struct {
	Again Again  // nil: it is tried once
	Stage *Stage // the program of the agent, whose Command is part of the shell's; nil: the host has one
	Gate  Gate   // nil: it need not wait
	// Silence is for how long the other machine's kernel may acknowledge nothing while it logs in, where that can be told; 0: that is not
	// looked at.
	Silence time.Duration
}

// A Gate has a place for each remote shell that may be on its way at a time: from its start until its agent
// has greeted, or it has ended. A login costs both machines tens of milliseconds of a CPU, and
// hundreds of them at once have some give up.
type Gate chan struct{}

// NewGate makes one with so many places.
func NewGate(places int) Gate { return make(Gate, places) }

// tries are the processes that one after the other are to start an agent. They share their pipes:
// a remote shell that has found no host has read nothing, so the next one reads all of it.
//
//	waits --a place--> runs --ends--> judged --again--> pauses --> waits
//	  | quit                            |                  | quit
//	  v                                 v                  v
//	                over: the ends of the pipes are closed
type tries struct {
	start   func() (pid int, err error)
	gate    Gate
	silence time.Duration // see Shell
	ends    [3]int        // of the pipes, for the process, from its first start until no other will be started; -1: closed

	mu     sync.Mutex
	pid    int           // of the process that runs, or has ended and is not waited for; 0: none
	count  int           // of those that were started
	failed error         // why the last one could not be
	placed bool          // it has a place of the gate
	here   bool          // the agent is there
	relay  bool          // it is to start a relay, which is watched until the agent beside it is there
	login  chan struct{} // closed by unwatch; nil: the process is not watched, or not any more
	// severed: cut has ended one. A master of ssh, which has the pipes as well, holds them as long as its own machine answers nothing.
	severed bool
	stop    bool
	quit    chan struct{} // closed with stop
	done    chan struct{} // closed when no other process will be started
}

func newTries(gate Gate) *tries {
	return &tries{gate: gate, ends: [3]int{-1, -1, -1}, quit: make(chan struct{}), done: make(chan struct{})}
}

// open makes the pipes of the processes, with the first of them, and gives this side's ends: a remote shell that waits for its
// place has no descriptors here, one that is under way has six, and one that has reached its host three.
func (t *tries) open(name string) (files [3]*os.File, err error) {
	for i := range files {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			for j, f := range files[:i] {
				_ = f.Close()
				closeEnd(&t.ends[j])
			}
			return files, os.NewSyscallError("pipe2", err)
		}
		own, their := 0, 1 // we read
		if i == 0 {
			own, their = 1, 0
		}
		t.ends[i] = pipe[their]
		// Non-blocking, so that Close ends a Read in progress; only this end.
		_ = unix.SetNonblock(pipe[own], true)
		files[i] = os.NewFile(uintptr(pipe[own]), name)
	}
	return files, nil
}

func (t *tries) over() <-chan struct{} { return t.done }

// process is the pid of the present process; 0: there is none.
func (t *tries) process() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pid
}

// last has the present process be the last one.
func (t *tries) last() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stop {
		t.stop = true
		close(t.quit)
	}
}

// next starts another process when there is a place for it, unless last was called. A process that was under way
// when last was called is killed: the start may hang, as on a file system that does not answer, and nobody waits for that.
func (t *tries) next() (ok bool) {
	if t.gate != nil {
		select {
		case t.gate <- struct{}{}:
		case <-t.quit:
			return false
		}
	}
	t.mu.Lock()
	t.placed = t.gate != nil
	stop := t.stop || t.count > 0 && t.ends[0] < 0
	t.mu.Unlock()
	if !stop {
		pid, err := t.start()
		t.mu.Lock()
		t.pid, t.failed = pid, err
		t.count++
		if ok = pid > 0; ok && t.stop {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if ok && t.silence > 0 && !t.here {
			t.login = make(chan struct{})
			go watchLogin(pid, t.silence, t.login, func(why string) { t.cut(pid, why) })
		}
		t.mu.Unlock()
	}
	if !ok {
		t.leave()
	}
	return ok
}

// leave gives the place back, once.
func (t *tries) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.placed {
		t.placed = false
		<-t.gate
	}
}

// cut ends a process whose machine is gone, and those that it has started to reach that. The reason stands behind what they have written.
func (t *tries) cut(pid int, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.login == nil || t.pid != pid {
		return // it has ended
	}
	if t.ends[2] >= 0 {
		_, _ = unix.Write(t.ends[2], []byte(why+"\n"))
	}
	_ = unix.Kill(-pid, unix.SIGKILL)
	t.severed = true
}

// unwatch has the connection watched no more.
func (t *tries) unwatch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.login != nil {
		close(t.login)
		t.login = nil
	}
}

// started is how many processes were, and why the last one was not.
func (t *tries) started() (count int, failed error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count, t.failed
}

// reap waits for the present process, which has ended.
func (t *tries) reap() (status unix.WaitStatus) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		if _, err := unix.Wait4(t.pid, &status, 0, nil); err != unix.EINTR {
			break
		}
	}
	t.pid = 0
	return status
}

// wait waits until all processes have ended, and gives the last one's status, unless it
// ended before another was to be started. That of a remote shell has ended when attend has: another wait for its end would
// take another thread, and Go permits 10,000.
func (t *tries) wait() (status unix.WaitStatus, ran bool) {
	<-t.done
	pid := t.process()
	if pid == 0 {
		return 0, false
	}
	awaitEnd(pid)
	return t.reap(), true
}

// signal sends the present process a signal, and has none follow it.
func (t *tries) signal(s unix.Signal) {
	t.last()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pid > 0 {
		_ = unix.Kill(t.pid, s)
	}
}

// awaitEnd waits for the end of a child, and leaves it to be collected.
func awaitEnd(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// end closes what the processes had.
func (t *tries) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closeEnds()
}

func (t *tries) closeEnds() {
	for i := range t.ends {
		closeEnd(&t.ends[i])
	}
}

func closeEnd(fd *int) {
	if *fd >= 0 {
		unix.Close(*fd)
		*fd = -1
	}
}

// arrived is told when the agent is there: no other process will have those ends, unless it is being started just now.
func (t *tries) arrived() {
	t.mu.Lock()
	t.here = !t.relay
	t.mu.Unlock()
	t.leave()
	if !t.relay {
		t.unwatch()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pid > 0 {
		t.closeEnds()
	}
}

// mark writes a NUL behind what the process has written on its standard error. ok is false when the agent is there.
func (t *tries) mark() (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ends[2] < 0 {
		return false
	}
	_, err := unix.Write(t.ends[2], []byte{0})
	return err == nil
}

// attend starts the remote shell when there is a place for it, and again while again says so. It stays on one
// thread, whose end no process survives that it has started.
func (l *Link) attend(t *tries, again Again) {
	runtime.LockOSThread()
	defer l.end(t)
	for n := 1; ; n++ {
		l.moved.Store(0)
		if !t.next() {
			return
		}
		l.move()
		awaitEnd(t.process())
		t.leave()
		t.unwatch()
		if again == nil || l.Reached() || l.Killed() {
			return
		}
		// What it wrote is in the pipe before the mark.
		l.marked.Store(true)
		if !t.mark() {
			return
		}
		pause, more := again(n, <-l.said)
		l.marked.Store(false)
		l.fresh <- more
		if !more {
			return
		}
		t.reap()
		select {
		case <-time.After(pause):
		case <-t.quit:
		}
	}
}

// launch is the start of a process in a process group of its own, on the calling goroutine's thread. A remote shell has
// a session: it cannot ask on the user's terminal then, and a kernel that shares CPUs out to sessions (sched_autogroup) does not
// let all logins have one share. Agents of this machine have none: where their ranks share CPUs, a rank that yields
// gives its CPU to ranks of its session alone.
func launch(file string, argv, env []string, ends [3]int, session bool) (pid int, err error) {
	return syscall.ForkExec(file, argv, &syscall.ProcAttr{
		Files: []uintptr{uintptr(ends[0]), uintptr(ends[1]), uintptr(ends[2])},
		Env:   env,
		Sys:   &syscall.SysProcAttr{Setpgid: !session, Setsid: session, Pdeathsig: syscall.SIGKILL},
	})
}
