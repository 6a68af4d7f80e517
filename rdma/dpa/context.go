package dpa

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/rdma"
)

// MaxThreads is the maximum number of threads of a Context.
const MaxThreads = 256

// defaultGrace is Config.Grace's default.
const defaultGrace = time.Second

// Config configures a Context. The zero value is one thread, for a process alone on its CPUs.
type Config struct {
	// Threads is the number of device threads, at most MaxThreads; 0 is 1.
	Threads int
	// Place is the number of this process among Processes that may run on the same CPUs, 0 to Processes-1.
	// Processes 0 is 1. Threads are pinned if these CPUs are enough for one of each process, and
	// for Threads of each, and if no thread of other programs of gorun's is pinned there.
	Place, Processes int
	// MaxRunTime is the deadline of a launch that names none, from when its kernel begins; 0 is none.
	MaxRunTime time.Duration
	// Grace is how long a kernel whose launch is over may take to return before its thread is given up; 0 is 1 s.
	Grace time.Duration
}

// settle checks the values and fills in the defaults.
func (c *Config) settle() error {
	c.Threads, c.Processes, c.Grace = max(c.Threads, 1), max(c.Processes, 1), cmp.Or(c.Grace, defaultGrace)
	switch {
	case c.Threads > MaxThreads:
		return bad("context", "%d threads, expected at most %d", c.Threads, MaxThreads)
	case c.Place < 0 || c.Place >= c.Processes:
		return bad("context", "place %d of %d processes, expected 0 to %d", c.Place, c.Processes, c.Processes-1)
	case c.MaxRunTime < 0 || c.Grace < 0:
		return bad("context", "a run time of %v and a grace of %v, expected none below 0", c.MaxRunTime, c.Grace)
	}
	return nil
}

// A Context is a device with its threads and events.
type Context struct {
	cfg     Config
	pd      rdma.PD
	device  rdma.Context
	name    string
	cpus    []int // to pin threads to, by number; nil: they share the CPUs
	holds   []topo.Hold
	waiters sync.Pool // of *waiter, for the program
	closed  atomic.Bool
	lastErr atomic.Pointer[error]
	counts  counts

	mu     sync.Mutex // guards what follows; taken before a group's
	groups []*ThreadGroup
	taken  [MaxThreads]bool // numbers of threads
	free   int
	slots  int
	pages  []rdma.MR // of slots
	ended  bool
}

// Counters count what a Context has done.
type Counters struct {
	Launches uint64 // that are over
	Failed   uint64 // of them, those that failed
	Runs     uint64 // times that a thread has called a kernel
	Posted   uint64 // send requests that device threads have posted
	GivenUp  uint64 // threads
}

type counts struct{ launches, failed, runs, posted, givenUp atomic.Uint64 }

// New makes a Context (doca_dpa_create) for queue pairs and memory of pd, which must outlive it. It
// starts no thread: a group does.
func New(pd rdma.PD, cfg Config) (*Context, error) {
	if err := cfg.settle(); err != nil {
		return nil, err
	}
	c := &Context{cfg: cfg, pd: pd, device: pd.Context(), free: cfg.Threads}
	c.name = c.device.Device().Name()
	if all := arch.CPUs(); len(all) >= cfg.Processes*(1+cfg.Threads) {
		c.takeCPUs(all[cfg.Processes:])
	}
	c.waiters.New = func() any { return newWaiter(c, c.cpus != nil, cfg.Place) }
	arch.AddProcessors(cfg.Threads)
	return c, nil
}

// takeCPUs takes a CPU for each thread, of those that no other process has taken, or none.
func (c *Context) takeCPUs(from []int) {
	for i := range from {
		cpu := from[(c.cfg.Place*c.cfg.Threads+i)%len(from)]
		if hold, taken := topo.TakeCPU(cpu); taken {
			c.cpus, c.holds = append(c.cpus, cpu), append(c.holds, hold)
		}
		if len(c.cpus) == c.cfg.Threads {
			return
		}
	}
	c.giveCPUs()
	c.cpus = nil
}

func (c *Context) giveCPUs() {
	for _, hold := range c.holds {
		hold.Release()
	}
	c.holds = nil
}

// Pinned are the CPUs that the threads are pinned to, one each; nil: they share CPUs with others.
func (c *Context) Pinned() []int { return c.cpus }

// Counters returns the counters.
func (c *Context) Counters() Counters {
	n := &c.counts
	return Counters{Launches: n.launches.Load(), Failed: n.failed.Load(), Runs: n.runs.Load(), Posted: n.posted.Load(), GivenUp: n.givenUp.Load()}
}

// LastError is how the latest launch that failed did (doca_dpa_peek_at_last_error); nil: none has.
func (c *Context) LastError() error {
	if err := c.lastErr.Load(); err != nil {
		return *err
	}
	return nil
}

// open is ErrClosed once Close has begun.
func (c *Context) open(op string) error {
	if c.closed.Load() {
		return &rdma.OpError{Op: "dpa " + op, Err: ErrClosed}
	}
	return nil
}

// NewThreadGroup takes n of the Context's threads that are in no group, and starts them. It fails with
// an error that wraps [rdma.ErrNoMemory] when there are fewer.
func (c *Context) NewThreadGroup(n int) (*ThreadGroup, error) {
	if n < 1 {
		return nil, bad("thread group", "%d threads, expected at least 1", n)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.open("thread group"); err != nil {
		return nil, err
	}
	if n > c.free {
		return nil, &rdma.OpError{Op: "dpa thread group", Detail: plural(n, "thread") + " of " + plural(c.free, "free one"), Err: rdma.ErrNoMemory}
	}
	g := &ThreadGroup{ctx: c}
	for number := 0; len(g.threads) < n; number++ {
		if !c.taken[number] {
			c.taken[number] = true
			g.threads = append(g.threads, newThread(g, len(g.threads), number, 0))
		}
	}
	c.free -= n
	c.groups = append(c.groups, g)
	for _, d := range g.threads {
		d.start()
	}
	return g, nil
}

// release takes a group off the Context, and its threads back.
func (c *Context) release(g *ThreadGroup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, have := range c.groups {
		if have == g {
			c.groups = append(c.groups[:i], c.groups[i+1:]...)
			for _, d := range g.threads {
				c.taken[d.number] = false
			}
			c.free += len(g.threads)
			return
		}
	}
}

// Close ends the Context: kernels that run are told, queued launches fail with [ErrClosed], waits for events
// return it. Close waits for the threads, for at most [Config].Grace, then frees the memory of
// events. A [*StuckError] names threads that did not return. A second Close does nothing.
func (c *Context) Close() error {
	c.closed.Store(true)
	c.mu.Lock()
	groups := append([]*ThreadGroup(nil), c.groups...)
	c.mu.Unlock()
	for _, g := range groups {
		g.tellEnd()
	}
	var errs []error
	for _, g := range groups {
		errs = append(errs, g.Close())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return nil
	}
	c.ended = true
	arch.AddProcessors(-c.cfg.Threads)
	c.giveCPUs()
	if c.counts.givenUp.Load() == 0 {
		for _, mr := range c.pages {
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(errs...)
}
