package rank

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// Run runs f on n ranks, which are goroutines of this process, and returns when all have returned. The
// first rank that fails, panics or aborts cancels the contexts of the others. The error joins the
// errors of all ranks that failed by themselves, each with its rank; for a panic it is a [*PanicError], and the text has
// the stack of the first that panicked.
func Run(n int, f func(ctx context.Context, c *Comm) error) error {
	return RunConfig{}.Run(context.Background(), n, f)
}

// RunConfig configures [Run]. The zero value holds the defaults.
type RunConfig struct {
	// Seed, if not 0, makes the software device as unpredictable as the rules
	// of RDMA permit, reproducibly: late and reordered execution, payload
	// that arrives in pieces, lost acknowledgements, repeated requests.
	Seed uint64
	// Continuous lets the ranks go on when one fails, as gorun --continuous does: one whose function returns an
	// error counts as dead. The error of Run has those of all that failed.
	Continuous bool
	// Config is the configuration of each rank. Its Environment is ignored, and so is the
	// process's but for the variables of Config.Progress.
	Config Config
}

// Run is the function [Run] with a configuration. When ctx ends, the contexts of the ranks end.
func (rc RunConfig) Run(ctx context.Context, n int, f func(ctx context.Context, c *Comm) error) error {
	if n < 1 {
		return badArgument("%d ranks: expected 1 or more", n)
	}
	var err error
	if rc.Config, err = rc.Config.withProgress(); err != nil {
		return err
	}
	segment, err := shm.NewLocal(shm.DefaultGeometry(n, shm.Limit()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r := &runner{cfg: rc, size: n, segment: segment, hub: wireup.NewHub(n), cancel: cancel, errs: make([]error, n)}
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() { r.rank(ctx, rank, f) })
	}
	ranks.Wait()
	for i, err := range r.errs {
		if p, ok := errors.AsType[*PanicError](err); ok {
			r.errs[i] = &withStack{err, p.Stack} // testing.T's Fatal prints no more than the text
			break
		}
	}
	return errors.Join(append(r.errs, segment.Close())...)
}

// A withStack is the error of a panic, and prints where that was.
type withStack struct {
	error
	stack []byte
}

func (e *withStack) Error() string { return fmt.Sprintf("%v\n\n%s", e.error, e.stack) }
func (e *withStack) Unwrap() error { return e.error }

// A runner is one Run.
type runner struct {
	cfg     RunConfig
	size    int
	segment *shm.Segment
	hub     *wireup.Hub
	cancel  context.CancelCauseFunc

	mu   sync.Mutex
	errs []error // by rank, of those that failed by themselves
}

// errOthers is why the contexts of the other ranks end.
var errOthers = errors.New("another rank has failed")

// rank is the life of one rank.
func (r *runner) rank(ctx context.Context, rank int, f func(context.Context, *Comm) error) {
	cfg := r.cfg.Config
	env := Environment{SegmentFD: -1, LocalSize: 1, Continuous: r.cfg.Continuous}
	if cfg.Environment != nil {
		env.Emulate, env.QPMemory = cfg.Environment.Emulate, cfg.Environment.QPMemory
	}
	cfg.Environment, cfg.adversary = &env, r.cfg.Seed
	if cfg.adversary != 0 {
		cfg.adversary = cfg.adversary*uint64(r.size+1) + uint64(rank) // each rank misbehaves in its own way
	}
	cfg.place = &place{host: "localhost", identity: "run", segment: r.segment, whole: true, local: rank, size: r.size, largest: r.size, cpus: runtime.GOMAXPROCS(0)}
	if r.cfg.Continuous {
		defer r.segment.SetDead(rank)
	}
	w, err := join(ctx, cfg, member{r.hub.Member(rank), rank}, rank, r.size, wait.Config{Scheduler: true})
	if err != nil {
		r.failed(ctx, rank, err)
		return
	}
	failed := func(err error) {
		r.failed(ctx, rank, err)
		if r.cfg.Continuous {
			r.segment.SetDead(rank) // before its memory is given back
		}
		if !w.final {
			_ = w.endBeside() // which reads it
			w.final = true
			_ = w.close() // the error is told already
		}
	}
	if err := guarded(ctx, w, f, failed); err != nil {
		failed(err)
	} else if err = w.Finalize(ctx); err != nil && !errors.Is(err, ErrFinalized) {
		failed(err)
	}
}

// failed takes a rank's error down, unless it is only that others have failed,
// and ends the others.
func (r *runner) failed(ctx context.Context, rank int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if context.Cause(ctx) == errOthers && (errors.Is(err, context.Canceled) || errors.Is(err, ErrRevoked) || errors.Is(err, ErrPeerDied)) {
		return
	}
	r.errs[rank] = err
	if !r.cfg.Continuous {
		r.cancel(errOthers)
	}
}

// member is a rank of Run as its world sees the launcher.
type member struct {
	wireup.Exchange
	rank int
}

// abortPanic carries an abort through f to guarded.
type abortPanic struct{ err *AbortError }

// Abort ends f by a panic that guarded takes: a process of several ranks goes on.
func (m member) Abort(code int, message string) {
	panic(abortPanic{&AbortError{Rank: m.rank, Code: code, Message: message}})
}

func (member) Finalize() error { return nil }
func (member) Close() error    { return nil }
