package agent

import (
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
	start func() (pid int, err error)
	gate  Gate
	ends  [3]int // of the pipes, for the process, from its first start until no other will be started; -1: closed

	mu     sync.Mutex
	pid    int   // of the process that runs, or has ended and is not waited for; 0: none
	count  int   // of those that were started
	failed error // why the last one could not be
	placed bool  // it has a place of the gate
	stop   bool
	quit   chan struct{} // closed with stop
	over   chan struct{} // closed when no other process will be started
}

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
	<-t.over
	pid := t.process()
	if pid == 0 {
		return 0, false
	}
	awaitEnd(pid)
	return t.reap(), true
}

// kill kills the present process, and has none follow it.
func (t *tries) kill() { t.signal(unix.SIGKILL) }

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
func (l *Link) attend(again Again) {
	runtime.LockOSThread()
	defer l.end()
	for n := 1; ; n++ {
		l.moved.Store(0)
		if !l.tries.next() {
			return
		}
		l.move()
		awaitEnd(l.tries.process())
		l.tries.leave()
		if again == nil || l.Reached() || l.Killed() {
			return
		}
		// What it wrote is in the pipe before the mark.
		l.marked.Store(true)
		if !l.tries.mark() {
			return
		}
		pause, more := again(n, <-l.said)
		l.marked.Store(false)
		l.fresh <- more
		if !more {
			return
		}
		l.tries.reap()
		select {
		case <-time.After(pause):
		case <-l.tries.quit:
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
