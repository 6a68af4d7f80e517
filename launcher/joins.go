package launcher

import (
	"fmt"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// joins counts how often the ranks of a group have connected to the PMIx servers.
// A rank that connects waits there for all others: one that has ended will not
// come. Guarded by the controller's mu.
type joins struct {
	of   []int // by rank: how often it has connected; nil: nobody serves PMIx
	left []int // and finalized
	came int   // ranks that have connected
	most int   // of the ranks the one that has connected most often
	gone int   // of those that have ended the one that connected least often; -1: none
}

func newJoins(n int) joins { return joins{of: make([]int, n), left: make([]int, n), gone: -1} }

func (j *joins) connected(rank int) {
	if j.of == nil {
		return
	}
	if j.of[rank]++; j.of[rank] == 1 {
		j.came++
	}
	if j.of[rank] > j.of[j.most] {
		j.most = rank
	}
}

// joined tells whether a rank has ever connected.
func (j *joins) joined(rank int) bool { return j.of != nil && j.of[rank] > 0 }

func (j *joins) finalized(rank int) {
	if j.of != nil {
		j.left[rank]++
	}
}

func (j *joins) ended(rank int) {
	if j.of != nil && (j.gone < 0 || j.of[rank] < j.of[j.gone]) {
		j.gone = rank
	}
}

// behind are the ranks that live and have not connected as often as the one that is
// in its most recent program.
func (j *joins) behind(gone []bool) []int {
	most := 0
	for rank, n := range j.of {
		if n > j.left[rank] {
			most = max(most, n)
		}
	}
	var behind []int
	for rank, n := range j.of {
		if n < most && !gone[rank] {
			behind = append(behind, rank)
		}
	}
	return behind
}

// absentee is the cause that a rank waits for one that has ended; nil: none does.
func (g *group) absentee() *Cause {
	j := &g.joins
	if j.of == nil || j.gone < 0 || j.of[j.most] <= j.of[j.gone] {
		return nil
	}
	cause := g.seats[g.hostOf[j.gone]].cause(host.Event{Rank: j.gone})
	cause.Status = statusFailed
	end := g.ranks[j.gone]
	how := (&Cause{Status: end.Status, Signal: end.Signal}).how()
	if j.of[j.gone] == 0 {
		cause.Message = fmt.Sprintf("%s without MPI_Init, where rank %d waits for it", how, j.most)
	} else {
		cause.Message = fmt.Sprintf("%s, but rank %d has begun another MPI program and waits for it in MPI_Init", how, j.most)
	}
	return cause
}
