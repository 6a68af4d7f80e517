package launcher

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// site is a host's ranks as the controller sees them: in this process or behind
// an agent's stream. Send does not block.
type site interface{ Send(host.Command) }

// group is a world of ranks: the job as it was started is group 0, and each
// spawn of a running rank makes another. Its hosts run independently of those
// of other groups, with engines, a segment and a guardian of their own; what
// joins the groups is the controller: a failure in one ends all, and the job is
// over when all are. What may change is guarded by the controller's mu.
type group struct {
	id     int
	apps   []App
	shares []place.Share
	preset map[string]string // of its key-value space
	hostOf []int             // by rank: index in shares
	appOf  []int             // by rank: index in apps
	routes []route           // of output, by rank and stream

	spawner string // the job whose rank has spawned it; "": none has

	seats []*seat   // by share, once they are started
	ranks []RankEnd // by rank; PID 0: not started
	gone  []bool    // by rank: it has ended
	up    int       // ranks that were started
	asked *asked    // who waits for it to run; nil: nobody, any more
	mpi   openMPI
	mix   mixture
	off   bool // it could not be started, and how its ranks end is no matter
}

// seat is a group's part on one host.
type seat struct {
	site
	group *group
	at    int             // index in the group's shares
	owed  [3]atomic.Int64 // bytes written of each stream, to be credited

	// Guarded by the controller's mu.
	done    bool  // its last event was read, or never will be
	still   bool  // nothing moves on it
	passing bool  // it has yet to pass TSTP on
	input   int64 // bytes of the job's input that its ranks have had
	unread  bool  // its ranks read no more of it
}

// newGroup makes a group of programs whose ranks are placed. It panics when
// apps and shares are not of the same number of ranks.
func newGroup(id int, apps []App, shares []place.Share) *group {
	g := &group{id: id, apps: apps, shares: shares}
	for i, a := range apps {
		for range a.NP {
			g.appOf = append(g.appOf, i)
		}
	}
	n := len(g.appOf)
	g.hostOf, g.ranks, g.gone = make([]int, n), make([]RankEnd, n), make([]bool, n)
	for at, share := range shares {
		for _, rank := range share.Ranks {
			g.hostOf[rank] = at
		}
	}
	return g
}

// size is the number of its ranks.
func (g *group) size() int { return len(g.ranks) }

// host is the name of a seat's host.
func (s *seat) host() string { return s.group.shares[s.at].Host }

// has tells whether a rank of the group runs there.
func (s *seat) has(rank int) bool {
	return rank >= 0 && rank < len(s.group.hostOf) && s.group.hostOf[rank] == s.at
}
