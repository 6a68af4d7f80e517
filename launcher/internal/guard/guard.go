package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// MaxGroups is how many process groups a guardian watches.
const MaxGroups = 1 << 16

// maxMarker is how long a marker may be. Overlap of the reads that look for it.
const maxMarker = 128

// Guard is the starter's side of a guardian. But for Add and Alive it belongs to one
// goroutine.
type Guard struct {
	ledger *ledger
	pid    int
	watch  int          // pidfd; -1: this kernel has none
	reader int          // reading end of the pipe, for the next guardian
	pipe   int          // writing end; -1 once released
	groups atomic.Int32 // entered

	mu    sync.Mutex
	freed bool // the ledger is
}

// Start makes a guardian. marker is what stands as a whole entry, NAME=value,
// in the environment of every process that it may kill, and in no other. The guardian
// kills a starter that has not called Alive for the time of lease and is stopped, or not for hangLeases of them; 0: it need not.
func Start(marker string, lease time.Duration) (*Guard, error) {
	if marker == "" || len(marker) > maxMarker {
		return nil, fmt.Errorf("guardian: marker of %d bytes: want 1..%d", len(marker), maxMarker)
	}
	l, err := newLedger(marker)
	if err != nil {
		return nil, fmt.Errorf("guardian: map the ledger: %w", err)
	}
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		l.free()
		return nil, fmt.Errorf("guardian: %w", os.NewSyscallError("pipe2", err))
	}
	l.starter, l.lease, l.beat = uintptr(unix.Getpid()), int64(lease), ticks()
	g := &Guard{ledger: l, watch: -1, reader: ends[0], pipe: ends[1]}
	if err := g.fork(0); err != nil {
		unix.Close(ends[0])
		unix.Close(ends[1])
		l.free()
		return nil, err
	}
	return g, nil
}

func (g *Guard) fork(era uint32) error {
	pid, err := fork(g.ledger, g.reader, era)
	if err != nil {
		return fmt.Errorf("guardian: %w (see ulimit -u and the pids limit of the control group)", os.NewSyscallError("clone", err))
	}
	g.pid = pid
	if g.watch, err = unix.PidfdOpen(pid, 0); err != nil {
		g.watch = -1
	}
	return nil
}

// Alive renews the starter's lease. It may be called at any time, by any goroutine.
func (g *Guard) Alive() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.freed {
		atomic.StoreInt64(&g.ledger.beat, ticks())
	}
}

// free unmaps the ledger.
func (g *Guard) free() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.freed = true
	g.ledger.free()
}

// FD becomes readable when the guardian dies, and then Replace should be called. It
// is -1 where the kernel has no such descriptors, and another one after Replace.
func (g *Guard) FD() int { return g.watch }

// Replace makes a new guardian in the place of one that has died.
func (g *Guard) Replace() error {
	if g.pipe < 0 {
		return nil
	}
	_, _ = unix.Wait4(g.pid, nil, unix.WALL|unix.WNOHANG, nil)
	g.closeWatch()
	era := atomic.LoadUint32(&g.ledger.era) + 1
	if err := g.fork(era); err != nil {
		g.pid = 0
		return err
	}
	// The second of the one before goes when it sees this.
	atomic.StoreUint32(&g.ledger.era, era)
	return nil
}

// Released tells whether Release was called.
func (g *Guard) Released() bool { return g.pipe < 0 }

func (g *Guard) closeWatch() {
	if g.watch >= 0 {
		unix.Close(g.watch)
		g.watch = -1
	}
}

// PID is the guardian's process.
func (g *Guard) PID() int { return g.pid }

// Add puts a process group under guard. It must stay the group of a process
// that has not been reaped until Release. Groups beyond MaxGroups are known to
// the guardian by their processes' marker only. It may be called by several
// goroutines at once.
func (g *Guard) Add(group int) {
	if group <= 1 {
		panic("guard: process group " + strconv.Itoa(group))
	}
	if i := g.groups.Add(1) - 1; i < MaxGroups {
		atomic.StoreInt32(&g.ledger.groups[i], int32(group))
	}
}

// maxDir bounds the path for Remove, with the zero byte after it.
const maxDir = 512

// Remove has the guardian remove a directory, and all in it, once it has killed
// what it guards. It need not exist. Only the first call counts.
func (g *Guard) Remove(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" || len(dir) >= maxDir {
		return fmt.Errorf("guardian: directory %q: want a clean absolute path of less than %d bytes", dir, maxDir)
	}
	if atomic.LoadUint32(&g.ledger.named) == 0 {
		copy(g.ledger.dir[:], dir)
		atomic.StoreUint32(&g.ledger.named, 1)
	}
	return nil
}

// Disband has the guardian kill all in a control group, and remove it. Its directory
// must be in the unified hierarchy and hold nobody else. Only the first call counts.
func (g *Guard) Disband(dir string) error {
	const kill = "/cgroup.kill"
	if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir || dir == "/" || len(dir)+len(kill) >= maxDir {
		return fmt.Errorf("guardian: control group %q: want a clean absolute path of less than %d bytes", dir, maxDir-len(kill))
	}
	if atomic.LoadUint32(&g.ledger.grouped) == 0 {
		copy(g.ledger.cgroup[:], dir)
		copy(g.ledger.kill[:], dir+kill)
		atomic.StoreUint32(&g.ledger.grouped, 1)
	}
	return nil
}

// Release tells the guardian to go and harm nobody. Wait must follow.
func (g *Guard) Release() {
	if g.pipe < 0 {
		return
	}
	atomic.StoreUint32(&g.ledger.released, 1)
	unix.Close(g.pipe)
	g.pipe = -1
}

// Strike has the guardian do what it does when the starter dies, and waits until
// it has. No method may follow. One that was released before harms nobody.
func (g *Guard) Strike() error {
	if g.pipe >= 0 {
		unix.Close(g.pipe)
		g.pipe = -1
	}
	return g.wait(strikeLimit)
}

// Wait releases the guardian, waits until it is gone and frees the ledger.
func (g *Guard) Wait() error {
	g.Release()
	return g.wait(releaseLimit)
}

// How long a guardian may take to go, until it is killed. One that was stopped is
// told to continue after stopLimit.
const (
	stopLimit    = 50 * time.Millisecond
	releaseLimit = 2 * time.Second
	strikeLimit  = 10 * time.Second
	killLimit    = 2 * time.Second
)

func (g *Guard) wait(limit time.Duration) error {
	defer g.free()
	defer unix.Close(g.reader)
	defer g.closeWatch()
	if g.pid == 0 || g.ended(stopLimit) {
		return nil
	}
	_ = unix.Kill(g.pid, unix.SIGCONT)
	if g.ended(limit) {
		return nil
	}
	_ = unix.Kill(g.pid, unix.SIGKILL)
	if g.ended(killLimit) {
		return fmt.Errorf("guardian: process %d did not go within %v and was killed", g.pid, limit)
	}
	return fmt.Errorf("guardian: process %d does not go, though it was killed", g.pid)
}

// ended waits for so long for the guardian's end, and reaps it.
func (g *Guard) ended(limit time.Duration) bool {
	for end := time.Now().Add(limit); ; {
		if g.watch >= 0 {
			ms := int(time.Until(end)/time.Millisecond) + 1
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(g.watch), Events: unix.POLLIN}}, ms)
		}
		// Made without a signal for its parent, it is waited for by name only,
		// with __WALL: no other wait of this process finds it.
		pid, err := unix.Wait4(g.pid, nil, unix.WALL|unix.WNOHANG, nil)
		switch {
		case pid == g.pid || err == unix.ECHILD:
			return true
		case !time.Now().Before(end):
			return false
		case g.watch < 0:
			time.Sleep(time.Millisecond)
		}
	}
}
