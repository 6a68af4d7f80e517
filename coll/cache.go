package coll

import "math/bits"

// A cache keeps compiled plans. Calls made lately are found without a lookup in
// the map, which takes as long as a small call; when the plans kept have too many
// steps in sum they are all forgotten, for making one costs about as much as
// running it.
type cache struct {
	recent [16]*plan
	plans  map[Call]*plan
	steps  int
	shorts []*Short  // of the plans that are kept
	total  *Counters // where their runs are counted in the end

	builder builder // of the plans that are not kept
	extents []extent
	marks   []uint8
}

// members is a zero for each of n members, until the next call of it.
func (c *cache) members(n int) []uint8 {
	if len(c.marks) != n {
		c.marks = make([]uint8, n)
	}
	clear(c.marks)
	return c.marks
}

// cacheSteps bounds a team's plans to some 10 MiB.
const cacheSteps = 1 << 17

// plan is the plan of a call whose algorithm has been selected.
func (c *cache) plan(call *Call, t tuning) *plan {
	recent := &c.recent[(uint(call.Kind)*3+uint(call.Root)+uint(bits.Len(uint(call.Bytes))))%uint(len(c.recent))]
	if *recent != nil && (*recent).call == *call {
		return *recent
	}
	p := c.plans[*call]
	if p == nil {
		p = compile(*call, t)
		if c.plans == nil || c.steps+len(p.steps) > cacheSteps {
			c.forget()
		}
		c.plans[*call] = p
		c.steps += len(p.steps)
	}
	*recent = p
	return p
}

// forget drops all plans. A caller that holds a short form of one has to ask for it again.
func (c *cache) forget() {
	c.count()
	for _, s := range c.shorts {
		s.team = nil
	}
	c.plans, c.steps, c.shorts, c.recent = make(map[Call]*plan), 0, nil, [len(c.recent)]*plan{}
}

// planOf is the plan of an invocation. Calls with parts are seldom the same twice:
// they are compiled each time, into the invocation's own memory.
func (t *Team) planOf(v *invocation) *plan {
	if operations[v.call.Kind].parts == nil {
		return t.cache.plan(&v.call, t.tuning)
	}
	t.cache.builder.compile(&v.parts, &v.call, v.sends, v.recvs, t.tuning)
	return &v.parts
}
