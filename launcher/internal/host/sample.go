package host

import (
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// Sample is what a rank uses: its process and those of its group.
type Sample struct {
	Rank int           `msgpack:"r"`
	CPU  time.Duration `msgpack:"c"` // since their start
	RSS  int64         `msgpack:"m"` // bytes that are resident
	// Calls of MPI that it has recorded, in the answer to Look.
	Calls uint64 `msgpack:"n,omitempty"`
}

// sampleOnTime looks at the ranks when it is time to.
func (w *watcher) sampleOnTime(now time.Time) {
	if w.sample.IsZero() || now.Before(w.sample) {
		return
	}
	w.sample = now.Add(w.spec.Sample)
	e := Event{Kind: Sampled}
	all := w.processes()
	for i, r := range w.up() {
		if !r.gone {
			e.Samples = append(e.Samples, w.uses(i, all[i]))
		}
	}
	if len(e.Samples) > 0 {
		w.emit(e)
	}
}

// uses sums up what the processes of a rank use.
func (w *watcher) uses(local int, list []proc.Stat) Sample {
	s := Sample{Rank: w.rankOf(local)}
	for _, p := range list {
		s.CPU, s.RSS = s.CPU+p.CPU, s.RSS+p.RSS
	}
	return s
}
