package rank

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/pmi"
)

// openOffload finds the daemon of the host, where gorun has started one (--offload) or does so for this rank: started
// collectives of 256 KiB and more in registered memory ([Alloc]) are its, see coll.Daemon.
func (w *World) openOffload(ctx context.Context, cfg *Config) error {
	p, env := w.place, cfg.Environment
	if env == nil || w.size == 1 {
		return nil
	}
	if cfg.Offload && !env.Gorun {
		return errors.New("Config.Offload: found another launcher, expected gorun, which starts the daemon")
	}
	if env.Offload == 0 && (!cfg.Offload || p.size == 1) || !env.Gorun || p.segment == nil {
		return nil
	}
	threads := env.Offload
	if threads == 0 {
		var err error
		if threads, err = askForDaemon(ctx, w.launcher); err != nil {
			return fmt.Errorf("Config.Offload: %w", err)
		}
	}
	ranks := p.segment.Ranks() - threads
	if ranks < p.size {
		return fmt.Errorf("the daemon has %d threads, but the segment has numbers for %d ranks and threads, and %d ranks", threads, p.segment.Ranks(), p.size)
	}
	o, err := coll.OpenOffload(p.segment, p.local, coll.DaemonFor(p.local, ranks, threads))
	if err != nil {
		return err
	}
	if cfg.OffloadFrom < -1 {
		return fmt.Errorf("Config.OffloadFrom is %d: expected a number of bytes, 0 or -1", cfg.OffloadFrom)
	}
	o.From = max(0, cmp.Or(cfg.OffloadFrom, o.From))
	if !cfg.Offload { // or the program has asked for the daemon, come what may
		o.Recall = coll.OffloadRecall
	}
	w.offload = o
	if n := w.narrator; n != nil {
		told := make(map[string]bool)
		o.Declined = func(reason string) {
			if !told[reason] {
				told[reason] = true
				n.say("a started collective is not offloaded: " + reason)
			}
		}
	}
	return nil
}

// askForDaemon has gorun start the host's daemon, and gives the number of its threads.
func askForDaemon(ctx context.Context, of launcher) (threads int, err error) {
	l, ok := of.(interface {
		Lookup(ctx context.Context, service string) (string, error)
	})
	if !ok {
		return 0, errors.New("found a rank without a launcher, expected gorun, which starts the daemon")
	}
	answer, err := l.Lookup(ctx, pmi.DaemonService)
	if err != nil {
		return 0, fmt.Errorf("gorun has started no daemon, and has said why: %w", err)
	}
	if threads, err = strconv.Atoi(answer); err != nil || threads < 1 {
		return 0, fmt.Errorf("gorun answered %q, expected the number of the daemon's threads", answer)
	}
	return threads, nil
}
