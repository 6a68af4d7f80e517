package rank

import (
	"cmp"
	"fmt"

	"github.com/gorun-mpi/gorun/coll"
)

// openOffload finds the daemon of the host, where gorun has started one (--offload): started
// collectives of 256 KiB and more in registered memory ([Alloc]) are its, see coll.Daemon.
func (w *World) openOffload(cfg *Config) error {
	p, env := w.place, cfg.Environment
	if env == nil || env.Offload == 0 || !env.Gorun || p.segment == nil || w.size == 1 {
		return nil
	}
	ranks := p.segment.Ranks() - env.Offload
	if ranks < p.size {
		return fmt.Errorf("GORUN_OFFLOAD=%d, but the segment has numbers for %d ranks and threads, and %d ranks", env.Offload, p.segment.Ranks(), p.size)
	}
	o, err := coll.OpenOffload(p.segment, p.local, coll.DaemonFor(p.local, ranks, env.Offload))
	if err != nil {
		return err
	}
	if cfg.OffloadFrom < -1 {
		return fmt.Errorf("Config.OffloadFrom is %d: expected a number of bytes, 0 or -1", cfg.OffloadFrom)
	}
	o.From = max(0, cmp.Or(cfg.OffloadFrom, o.From))
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
