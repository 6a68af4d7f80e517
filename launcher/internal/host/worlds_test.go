package host

import (
	"testing"

	"github.com/gorun-mpi/gorun/pmi"
)

// Worlds are kept for the ranks that have yet to be through with them, not for those
// that have ended, nor are those lost that have yet to start.
func TestForgetWorlds(t *testing.T) {
	for name, c := range map[string]struct {
		ranks []rank
		kept  int // the first
	}{
		"all in the last": {[]rank{{up: true, world: 3}, {up: true, world: 3}}, 3},
		"one behind":      {[]rank{{up: true, world: 3}, {up: true, world: 1}}, 1},
		"one ended":       {[]rank{{up: true, world: 3}, {up: true, gone: true}}, 3},
		"one starts":      {[]rank{{up: true, world: 3}, {}}, 0},
		"all ended":       {[]rank{{up: true, gone: true, world: 2}}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			h := assemble(Spec{}, Config{})
			h.ranks = c.ranks
			for range 4 {
				h.server.worlds = append(h.server.worlds, pmi.NewEngine(pmi.EngineConfig{Size: 1, Ranks: []int{0}}))
			}
			h.server.forgetWorlds()
			for i, e := range h.server.worlds {
				if (e != nil) != (i >= c.kept) {
					t.Errorf("world %d is kept: %v, want those from %d on", i, e != nil, c.kept)
				}
			}
		})
	}
}
