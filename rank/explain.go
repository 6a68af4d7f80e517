package rank

import "github.com/gorun-mpi/gorun/coll"

// Explain says by which algorithm and which protocol a collective of c would go,
// and why. bytes are those of [coll.Args]: of the vector, or of a block. It sends
// nothing, and is "" when c can make no calls any more.
func (c *Comm) Explain(kind coll.Kind, bytes int) string {
	if err := c.enter(); err != nil {
		return ""
	}
	defer c.world.leave()
	return c.team.Explain(coll.Args{Kind: kind, Bytes: bytes})
}
