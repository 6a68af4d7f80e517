package rank

import "github.com/gorun-mpi/gorun/coll"

// Explain names the algorithm and the protocol that a collective of c would use, and says why. bytes is the
// size of the vector or of a block, as in [coll.Args]. Explain does not communicate. It returns "" when c
// can make no more calls. Programs that measure, such as gorun-bench -v, print it beside their results.
func (c *Comm) Explain(kind coll.Kind, bytes int) string {
	if err := c.enter(); err != nil {
		return ""
	}
	defer c.world.leave()
	return c.team.Explain(coll.Args{Kind: kind, Bytes: bytes})
}
