package launcher

import (
	"fmt"
	"path/filepath"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// library is one that a rank of a group has loaded.
type library struct {
	rank int
	pmix bool
	file string
}

// loaded compares a rank's library with those of others in the same world. Ranks of which one speaks PMI and the other
// PMIx may be in different programs, as long as neither waits for the other: mixWatch sees to these.
func (c *controller) loaded(s *seat, e host.Event) {
	g := s.group
	own := library{e.Rank, e.N == 1, e.Text}
	for _, other := range g.libraries {
		if other.pmix != own.pmix || alike(other.file, own.file) {
			continue
		}
		cause := s.cause(e)
		cause.Status = statusFailed
		cause.Message = fmt.Sprintf("has loaded %s, but rank %d %s: ranks of one job need one version of one MPI, and these may hang or fail; set LD_LIBRARY_PATH alike for all ranks and hosts, or choose one for programs of the standard ABI with --mpi", own.file, other.rank, other.file)
		if c.job.StrictPMI {
			c.end.fail(cause)
		} else {
			c.warnings.once(warning{kind: e.Kind}, cause)
		}
		break
	}
	g.libraries = append(g.libraries, own)
}

// alike tells whether two libraries are of one MPI and one series of versions, as far as the names of their files say: the
// standard ABI's has numbers of its own.
func alike(a, b string) bool {
	x, y := host.MPILibrary.FindStringSubmatch(filepath.Base(a)), host.MPILibrary.FindStringSubmatch(filepath.Base(b))
	if x == nil || y == nil || x[1] != y[1] && (x[1] != "libmpi" && x[1] != "libmpich" || y[1] != "libmpi" && y[1] != "libmpich") {
		return true
	}
	return x[1] == y[1] && x[2] == y[2]
}

// libraryOf names the library of a rank, if one of these ranks has told it.
func (g *group) libraryOf(ranks []int) string {
	for _, l := range g.libraries {
		for _, rank := range ranks {
			if l.rank == rank {
				return "; rank " + fmt.Sprint(rank) + " has loaded " + l.file
			}
		}
	}
	return ""
}
