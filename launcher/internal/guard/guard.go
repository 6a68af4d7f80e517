package guard

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// MaxGroups is how many process groups a guardian watches.
const MaxGroups = 1 << 16

// maxMarker is how long a marker may be. Overlap of the reads that look for it.
const maxMarker = 128

// Guard is the starter's side of a guardian. But for Add it belongs to one
// goroutine.
type Guard struct {
	ledger *ledger
	pid    int
	pipe   int          // writing end; -1 once released
	groups atomic.Int32 // entered
}

// Start makes a guardian. marker is what stands as a whole entry, NAME=value,
// in the environment of every process that it may kill, and in no other.
func Start(marker string) (*Guard, error) {
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
	pid, err := fork(l, ends[0])
	unix.Close(ends[0])
	if err != nil {
		unix.Close(ends[1])
		l.free()
		return nil, fmt.Errorf("guardian: %w", os.NewSyscallError("clone", err))
	}
	return &Guard{ledger: l, pid: pid, pipe: ends[1]}, nil
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
	return g.wait()
}

// Wait releases the guardian, waits until it is gone and frees the ledger.
func (g *Guard) Wait() error {
	g.Release()
	return g.wait()
}

func (g *Guard) wait() error {
	for {
		// Made without a signal for its parent, it is waited for by name only,
		// with __WALL: no other wait of this process finds it.
		_, err := unix.Wait4(g.pid, nil, unix.WALL, nil)
		if err == unix.EINTR {
			continue
		}
		g.ledger.free()
		return os.NewSyscallError("wait4", err)
	}
}
