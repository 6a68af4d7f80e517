package rank

import "github.com/gorun-mpi/gorun/coll"

// Explain names the algorithm and the protocol that a collective of c would use, and
// says why. bytes is the size of the vector or of a block, as in [coll.Args]. Explain
// sends nothing. It returns "" when c can make no more calls. It is public because
// programs that measure, as gorun-bench -v, report it beside their figures.
func (c *Comm) Explain(kind coll.Kind, bytes int) string {
	if err := c.enter(); err != nil {
		return ""
	}
	defer c.world.leave()
	return c.team.Explain(coll.Args{Kind: kind, Bytes: bytes})
}
