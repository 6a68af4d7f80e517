package rank_test

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	programs["suite"] = func() {
		d := dose{[]layout{word, gaps}, []numeric{numerics[5], numerics[2]}, []int{2, large}, false}
		rank.Main(suite(d, 3))
	}
}

// The suite in processes: of one host, which share memory, and of several.
func TestSuiteOfProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	for _, hosts := range [][]int{{4}, {2, 1}} {
		if arch.RaceEnabled && len(hosts) > 1 {
			continue // for the reason that TestProcesses gives
		}
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			j := &job{program: "suite", hosts: hosts}
			j.start(t)
			j.done(t)
		})
	}
}
