package orphan

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
)

const (
	reapEvery = time.Second     // the dead wait that long, at most, to be waited for
	endLimit  = 2 * time.Second // for what was killed to be gone
	endPause  = time.Millisecond

	guardianLimit = 10 * time.Second // for a guardian to do its work, as in package guard
)

// Adopter is a process's adoption of orphans. A process has one at a time.
type Adopter struct {
	before []int // children that this process had
	was    bool  // it was a subreaper already
	deaths chan os.Signal
	over   chan struct{}
	reaper sync.WaitGroup

	starting sync.RWMutex // a leader is being started, or the dead are being waited for
	leaders  sync.Map     // the pids that Lead has started
}

// Adopt begins it. End must follow.
func Adopt() (*Adopter, error) {
	a := &Adopter{deaths: make(chan os.Signal, 1), over: make(chan struct{})}
	var was int32
	if err := getSubreaper(&was); err != nil {
		return nil, fmt.Errorf("adopt orphans: %w", os.NewSyscallError("prctl", err))
	}
	if a.was = was != 0; !a.was {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("adopt orphans: %w", os.NewSyscallError("prctl", err))
		}
	}
	if anyChild() {
		a.before = children()
	}
	signal.Notify(a.deaths, unix.SIGCHLD)
	a.reaper.Go(a.reap)
	return a, nil
}

// reap waits for orphans that end while the job runs.
func (a *Adopter) reap() {
	var due <-chan time.Time
	for {
		select {
		case <-a.deaths:
			if due == nil {
				due = time.After(reapEvery)
			}
		case <-due:
			due = nil
			a.starting.Lock()
			for _, pid := range children() {
				if _, led := a.leaders.Load(pid); !led && orphaned(pid) {
					_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
				}
			}
			a.starting.Unlock()
		case <-a.over:
			return
		}
	}
}

// Lead calls start, which starts a child that leads a session of its own and that somebody waits for: such a
// child looks like a daemon. Where nobody adopts, a is nil. Any goroutine may call it.
func (a *Adopter) Lead(start func() (pid int, err error)) (pid int, err error) {
	if a == nil {
		return start()
	}
	a.starting.RLock()
	defer a.starting.RUnlock()
	if pid, err = start(); err == nil {
		a.leaders.Store(pid, nil)
	}
	return pid, err
}

// End kills the orphans that are left, and what they leave in turn. All
// others have waited for their own children by then. It tells how many there were.
func (a *Adopter) End() (killed int) {
	signal.Stop(a.deaths)
	close(a.over)
	a.reaper.Wait()
	spared := slices.Clone(a.before)
	limit := endLimit
	for begun := time.Now(); anyChild() && time.Since(begun) < limit; {
		left := 0
		for _, pid := range children() {
			if slices.Contains(spared, pid) {
				continue
			}
			left++
			if isGuardian(pid) && time.Since(begun) < guardianLimit {
				limit = guardianLimit + endLimit
				_ = unix.Kill(pid, unix.SIGCONT) // somebody may have stopped it
				_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
				continue
			}
			if unix.Kill(pid, unix.SIGKILL) != nil {
				spared = append(spared, pid) // it has become another user
				continue
			}
			if got, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); got == pid && err == nil {
				killed++
			}
		}
		if left == 0 {
			break
		}
		time.Sleep(endPause)
	}
	if !a.was {
		// It cannot fail where it could be set.
		_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	}
	return killed
}

// isGuardian tells whether a child is the guardian of an agent that has died
// (package guard): it ends once it has done what it is there for.
func isGuardian(pid int) bool {
	s, ok := proc.Of(pid)
	return ok && s.Name == "gorun-guardian"
}

// anyChild tells whether this process has a child, dead or alive. Guardians,
// which end without a signal, are none.
func anyChild() bool {
	for {
		err := unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return !errors.Is(err, unix.ECHILD)
		}
	}
}

// children are those of all threads of this process.
func children() []int {
	files, _ := filepath.Glob("/proc/self/task/[0-9]*/children")
	if files == nil {
		return searchChildren() // a kernel without CONFIG_PROC_CHILDREN
	}
	var pids []int
	for _, file := range files {
		thread, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		pids = append(pids, proc.Children(thread)...) // none where it has ended: another has its children
	}
	return pids
}

// searchChildren looks for them among all processes.
func searchChildren() (pids []int) {
	for _, pid := range proc.All() {
		if s, ok := proc.Of(pid); ok && s.Parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// orphaned tells whether a child has ended and nobody but this package waits for
// it.
func orphaned(pid int) bool {
	s, ok := proc.Of(pid)
	if !ok || s.State != 'Z' || s.Group == unix.Getpgrp() {
		return false
	}
	session, err := unix.Getsid(0)
	return err == nil && (s.Group != pid || s.Session != session)
}
