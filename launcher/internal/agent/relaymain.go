package agent

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// A relay is the state of a relay's process.
type relay struct {
	session *yamux.Session
	told    atomic.Bool // to start something
	env     []string
	from    string // the address that gorun has come from, as far as is known
	gate    Gate
	silence time.Duration // of logins: see Shell

	mu      sync.Mutex
	running map[*tries]bool
	ended   bool          // its own agent has
	idle    chan struct{} // closed when that has, and nothing else runs
	leave   sync.Once     // closes it
}

// MainRelay is a relay's life. It returns when its stream has ended, or its own host's agent has, and nothing of what it has started is left. atOnce
// is how many remote shells may be on their way to their agents at a time, and silence for how long they may be (Shell.Silence); env is that of what it starts.
func MainRelay(stdin, stdout *os.File, env []string, atOnce int, silence time.Duration) error {
	stdin, stdout = polled(stdin), polled(stdout)
	if _, err := stdout.Write(greeting(relayVersion)); err != nil {
		return err
	}
	y, err := yamux.Server(newMuxed(stdin, stdout, stdin, stdout), relayConfig())
	if err != nil {
		return err
	}
	r := &relay{session: y, env: env, gate: NewGate(atOnce), silence: silence, running: map[*tries]bool{}, idle: make(chan struct{}), from: sshClient(envvar.Get(env, "SSH_CONNECTION"))}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			var streams [3]*yamux.Stream
			for i := range streams {
				if streams[i], err = y.AcceptStream(); err != nil {
					return
				}
			}
			serving.Go(func() { r.serve(streams) })
		}
	})
	// One that is told nothing has lost gorun, as the agents that it would start do.
	told := time.AfterFunc(SetupLimit, func() {
		if !r.told.Load() {
			_ = y.Close()
		}
	})
	defer told.Stop()
	select {
	case <-r.idle:
		select {
		case <-y.CloseChan():
		case <-time.After(leaveLimit): // nobody is there any more
		}
		return nil
	case <-y.CloseChan():
	}
	r.each((*tries).last)
	kill := time.AfterFunc(leaveLimit, func() { r.each(func(t *tries) { t.signal(unix.SIGKILL) }) })
	defer kill.Stop()
	serving.Wait()
	return nil
}

// polled is a pipe whose Close ends a Read or Write in progress.
func polled(f *os.File) *os.File {
	fd := f.Fd()
	_ = unix.SetNonblock(int(fd), true)
	return os.NewFile(fd, f.Name())
}

func (r *relay) each(f func(t *tries)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for t := range r.running {
		f(t)
	}
}

// serve starts a process and waits for its end.
func (r *relay) serve(streams [3]*yamux.Stream) {
	words, data, errs := streams[0], streams[1], streams[2]
	defer func() { _, _, _ = words.Close(), data.Close(), errs.Close() }()
	in := bufio.NewReader(words)
	var first relayOrder
	if readFrame(in, &first) != nil || first.Launch == nil {
		return
	}
	r.told.Store(true)
	t := newTries(r.gate)
	t.silence = r.silence
	if first.Launch.Own {
		t.gate, t.silence = nil, 0
	}
	if !r.begin(t) {
		return
	}
	defer r.over(t, first.Launch.Own)
	go obey(t, in)
	var n relayNews
	if ended, err := r.run(t, first.Launch, words, data, errs); err != nil {
		n = relayNews{Failed: err.Error()}
	} else if ended != nil {
		n = relayNews{Ended: (*uint32)(ended)}
	}
	_ = say(words, n)
}

// begin notes a process that is to be started; false: none is any more.
func (r *relay) begin(t *tries) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.session.IsClosed() {
		return false
	}
	r.running[t] = true
	return true
}

func (r *relay) over(t *tries, own bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, t)
	if r.ended = r.ended || own; r.ended && len(r.running) == 0 {
		r.leave.Do(func() { close(r.idle) })
	}
}

// obey does what the controller wants of a process, until its stream ends.
func obey(t *tries, in *bufio.Reader) {
	for {
		var o relayOrder
		if readFrame(in, &o) != nil {
			return
		}
		switch {
		case o.Arrived:
			t.leave()
			t.unwatch()
		case o.Signal != 0:
			t.signal(o.Signal)
		case o.Last:
			t.last()
		}
	}
}

// run is the life of a process, on a thread of its own, whose end that does not survive. ended is nil if it was not started.
func (r *relay) run(t *tries, what *launching, words, data, errs *yamux.Stream) (ended *unix.WaitStatus, err error) {
	runtime.LockOSThread()
	var files [3]*os.File
	t.start = func() (pid int, err error) {
		if files, err = t.open(what.Argv[0]); err != nil {
			return 0, err
		}
		file, err := exec.LookPath(what.Argv[0])
		if err == nil || errors.Is(err, exec.ErrDot) {
			pid, err = launch(file, what.Argv, r.env, t.ends, !what.Own)
		}
		if err != nil {
			closeAll(files[:])
		}
		return pid, err
	}
	ok := t.next()
	t.end()
	if !ok {
		return nil, t.failed
	}
	pid := t.process()
	_ = say(words, relayNews{Started: pid})
	via := order{Relay: &relayWord{From: r.from}}
	if what.Own {
		via.Relay.PID = os.Getpid()
	}
	go func() {
		head, _ := appendFrame(nil, via)
		if _, err := files[0].Write(head); err == nil {
			_, _ = io.Copy(files[0], data)
		}
		_ = files[0].Close()
		_, _ = io.Copy(io.Discard, data) // what its process does not read any more
	}()
	var copying sync.WaitGroup
	var over atomic.Bool
	copying.Go(func() { passOn(data, files[1], &over) })
	copying.Go(func() { passOn(errs, files[2], &over) })
	awaitEnd(pid)
	status := t.reap()
	t.leave()
	t.unwatch()
	over.Store(true)
	for _, f := range files[1:] {
		restOf(f)
	}
	copying.Wait()
	closeAll(files[1:])
	return &status, nil
}

// passOn passes on what a process writes, until its end.
func passOn(to io.Writer, from *os.File, over *atomic.Bool) {
	b := make([]byte, 32<<10)
	for {
		if over.Load() {
			restOf(from)
		}
		n, err := from.Read(b)
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

// restOf has a pipe read on for what is in it: a process that the one of the pipe left behind may hold it open.
func restOf(f *os.File) { _ = f.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) }

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

func say(w io.Writer, n relayNews) error {
	b, err := appendFrame(nil, n)
	if err == nil {
		_, err = w.Write(b)
	}
	return err
}
