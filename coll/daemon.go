package coll

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
)

// A DaemonConfig configures a host's daemon.
type DaemonConfig struct {
	// Segment is the memory of the host's ranks. Its first Ranks numbers are the ranks', the
	// next Threads ones the daemon's. The caller owns it.
	Segment        *shm.Segment
	Ranks, Threads int
	// Memory is the registered memory of the rank with a number in the segment.
	Memory func(number int) (rdma.PeerMemory, error)
	// Goroutines: ranks and daemon are goroutines of one process, as in tests.
	Goroutines bool
	// Log is told of teams that are not served, for they or their ranks are broken. nil: nobody.
	Log func(line string)
}

// DaemonFor is the number in the segment of the thread that serves a rank.
func DaemonFor(local, ranks, threads int) int { return ranks + local%threads }

// A Daemon steps the calls that the ranks of its host have lent it (see [Team.Start] and
// [OpenOffload]), with a plan of its own making: nothing of the program is in it. It reads and
// writes their registered memory, and serves no rank that has died.
//
// It sleeps when there is nothing to do; a rank that lends a call rings it awake. While the peer
// of a lent call has not come yet, it looks for it at least once in a millisecond. Its threads tell the
// segment that they are well: the launcher kills a daemon that hangs, and the ranks go on by its journals.
type Daemon struct {
	cfg     DaemonConfig
	threads []*daemonThread

	mu      sync.RWMutex // guards deputies
	members map[memberAt]*deputy

	most  int               // daemonBytes, less in tests
	point func(what string) // tests end the daemon here, before it does what is named
}

// at is a point at which tests may end the daemon.
func (d *Daemon) at(what string) {
	if d.point != nil {
		d.point(what)
	}
}

// memberAt is where a member's control region is: by it two deputies of a team know each other.
type memberAt struct {
	number int
	rkey   uint32
}

// NewDaemon makes a daemon, which [Daemon.Run] runs. cfg's segment must live until Run has returned.
func NewDaemon(cfg DaemonConfig) (*Daemon, error) {
	if cfg.Segment == nil || cfg.Memory == nil || cfg.Ranks < 1 || cfg.Threads < 1 || cfg.Ranks+cfg.Threads > cfg.Segment.Ranks() {
		return nil, fmt.Errorf("daemon: found %d ranks and %d threads, expected one or more, and a segment that has a number for each", cfg.Ranks, cfg.Threads)
	}
	d := &Daemon{cfg: cfg, members: make(map[memberAt]*deputy), most: daemonBytes}
	for i := range cfg.Threads {
		th, err := d.newThread(i)
		if err != nil {
			return nil, fmt.Errorf("daemon: %w", err)
		}
		d.threads = append(d.threads, th)
	}
	return d, nil
}

// Run serves until ctx ends, with a locked OS thread for each of the threads.
func (d *Daemon) Run(ctx context.Context) {
	var done sync.WaitGroup
	if !d.cfg.Goroutines {
		arch.AddProcessors(len(d.threads))
		defer arch.AddProcessors(-len(d.threads))
	}
	for _, th := range d.threads {
		th.bell.KeepProcessor(!d.cfg.Goroutines)
		done.Go(func() {
			if !d.cfg.Goroutines {
				runtime.LockOSThread()
			}
			th.thread = arch.Thread()
			// The condition is never true: only the context ends it.
			_ = th.waiter.Wait(ctx, th)
		})
	}
	done.Wait()
}

func (d *Daemon) log(format string, args ...any) {
	if d.cfg.Log != nil {
		d.cfg.Log(fmt.Sprintf(format, args...))
	}
}

// deputyOf is the deputy of the member with such a region, if some thread has it.
func (d *Daemon) deputyOf(m memberAt) *deputy {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.members[m]
}

// A daemonThread serves some of the ranks.
type daemonThread struct {
	d      *Daemon
	number int  // in the segment
	thread int  // of the operating system
	used   bool // which the segment says
	bell   *shm.Bell
	waiter *wait.Waiter
	doors  []doorway
	open   []wait.Stepper // deputies that have calls
	passes uint
}

// A doorway is the daemon's side of a rank's door.
type doorway struct {
	rank  int
	door  door
	taken uint64
	teams map[uint64]*deputy // by serial
	gone  bool
}

func (d *Daemon) newThread(i int) (*daemonThread, error) {
	number := d.cfg.Ranks + i
	arena, err := d.cfg.Segment.Arena(number)
	if err != nil {
		return nil, err
	}
	th := &daemonThread{d: d, number: number, bell: d.cfg.Segment.Bell(number)}
	for rank := range d.cfg.Ranks {
		if DaemonFor(rank, d.cfg.Ranks, d.cfg.Threads) != number {
			continue
		}
		at, err := doorOf(arena, rank)
		if err != nil {
			return nil, err
		}
		th.doors = append(th.doors, doorway{rank: rank, door: at, taken: atomic.LoadUint64(&at[doorTaken]), teams: make(map[uint64]*deputy)})
	}
	th.waiter = wait.New(wait.Config{Oversubscribed: true, Scheduler: d.cfg.Goroutines, Sleeper: &nap{th.bell, th}, CPU: number, IdleAfter: daemonHot})
	return th, nil
}

const (
	// daemonHot is how long a thread looks for more before it sleeps.
	daemonHot = 50 * time.Microsecond
	// daemonNap bounds its sleep while calls are open: a peer that runs its part itself
	// rings its own rank only.
	daemonNap = time.Millisecond
	// daemonBytes is how much of a call is moved before the other ranks' calls have their turn,
	// and before the rank is heard that wants it back.
	daemonBytes = 256 << 10
	// daemonPasses is how many passes there are to one look for dead ranks.
	daemonPasses = 64
)

// nap is the thread's sleep.
type nap struct {
	*shm.Bell
	th *daemonThread
}

func (n *nap) Sleep(nanoseconds int64) bool {
	if len(n.th.open) > 0 {
		nanoseconds = min(nanoseconds, int64(daemonNap))
	}
	n.th.beat()
	return n.Bell.Sleep(nanoseconds)
}

// beat tells the segment that the thread is well.
func (th *daemonThread) beat() { th.d.cfg.Segment.Beat(th.number, th.thread) }

// Ready is a pass over everything, as long as there is something to do. It is never true.
func (th *daemonThread) Ready() bool {
	for moved := true; moved; {
		moved = th.take()
		th.beat()
		if th.passes++; th.waiter.Thorough() || th.passes%daemonPasses == 0 {
			th.bury()
		}
		for i := 0; i < len(th.open); {
			th.beat() // a pass over the calls of many ranks moves much
			did, over := th.open[i].Step()
			moved = did || moved
			if over {
				th.open = slices.Delete(th.open, i, i+1)
			} else {
				i++
			}
		}
		if moved && th.d.cfg.Goroutines {
			runtime.Gosched()
		}
	}
	return false
}

// take takes the notes in.
func (th *daemonThread) take() (took bool) {
	for i := range th.doors {
		w := &th.doors[i]
		posted := atomic.LoadUint64(&w.door[doorPosted])
		if posted-w.taken > doorNotes {
			continue // scribbled
		}
		for ; w.taken != posted && !w.gone; took = true {
			n := readNote(w.door.note(w.taken))
			w.taken++
			arch.StoreRelease64(&w.door[doorTaken], w.taken)
			th.serve(w, n)
		}
	}
	return took
}

// serve does what a note asks for.
func (th *daemonThread) serve(w *doorway, n note) {
	p := w.teams[n.serial]
	if n.record == noteForget || n.record == noteStop {
		if p != nil {
			th.forget(w, p, n.record == noteStop)
		}
		return
	}
	if p != nil && (p.where.rkey != n.rkey || p.addr != n.addr) {
		th.forget(w, p, false) // of a program before this one, whose last note was lost
		p = nil
	}
	if p == nil {
		var err error
		if p, err = th.d.newDeputy(w.rank, n); err != nil {
			th.d.log("a team of rank %d is not served: %v", w.rank, err)
			th.d.refuse(w.rank, n)
			return
		}
		w.teams[n.serial] = p
	}
	if n.record >= deskRecords || len(p.queue) == deskRecords {
		th.d.log("rank %d left a note of record %d, expected less than %d", w.rank, n.record, deskRecords)
		return
	}
	if !th.used {
		th.used = true
		th.d.cfg.Segment.SetUsed(th.number)
	}
	if p.queue = append(p.queue, int(n.record)); len(p.queue) == 1 {
		p.busy.Store(true)
		th.open = append(th.open, p)
	}
}

// forget lets go of a team, of which the rank may free the memory then. answer: it waits for that.
func (th *daemonThread) forget(w *doorway, p *deputy, answer bool) {
	delete(w.teams, p.serial)
	th.d.mu.Lock()
	if th.d.members[p.where] == p {
		delete(th.d.members, p.where)
	}
	th.d.mu.Unlock()
	p.drop(answer)
}

// bury forgets the teams of ranks that have died.
func (th *daemonThread) bury() {
	for i := range th.doors {
		w := &th.doors[i]
		if w.gone || !th.d.cfg.Segment.Dead(w.rank) {
			continue
		}
		w.gone = true
		for _, p := range w.teams {
			th.forget(w, p, false)
		}
	}
}
