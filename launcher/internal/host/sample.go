package host

import (
	"os"
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
func (h *Host) sampleOnTime(now time.Time) {
	if h.sample.IsZero() || now.Before(h.sample) {
		return
	}
	h.sample = now.Add(h.spec.Sample)
	local := make(map[int]int) // by group
	for i, r := range h.up() {
		if !r.gone {
			local[r.pid] = i
		}
	}
	if len(local) == 0 {
		return
	}
	uses := make(map[int]Sample)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		h.log("%v", err)
		return
	}
	for _, e := range entries {
		if c := e.Name()[0]; c < '0' || c > '9' {
			continue
		}
		p, ok := proc.Read("/proc/" + e.Name() + "/stat")
		if i, ours := local[p.Group]; ok && ours {
			s := uses[i]
			uses[i] = Sample{Rank: h.rankOf(i), CPU: s.CPU + p.CPU, RSS: s.RSS + p.RSS}
		}
	}
	e := Event{Kind: Sampled}
	for i := range h.ranks {
		if s, ok := uses[i]; ok {
			e.Samples = append(e.Samples, s)
		}
	}
	h.emit(e)
}
