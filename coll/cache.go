package coll

// A cache keeps compiled plans. The call made last is found without a lookup;
// when the plans kept have too many steps in sum they are all forgotten, for
// making one costs about as much as running it.
type cache struct {
	last  *plan
	plans map[Call]*plan
	steps int

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
	if c.last != nil && c.last.call == *call {
		return c.last
	}
	p := c.plans[*call]
	if p == nil {
		p = compile(*call, t)
		if c.plans == nil || c.steps+len(p.steps) > cacheSteps {
			c.plans, c.steps = make(map[Call]*plan), 0
		}
		c.plans[*call] = p
		c.steps += len(p.steps)
	}
	c.last = p
	return p
}

// planOf is the plan of an invocation. Calls with parts are seldom the same twice:
// they are compiled each time, into the invocation's own memory.
func (t *Team) planOf(v *invocation) *plan {
	if !traits[v.call.Kind].parts {
		return t.cache.plan(&v.call, t.tuning)
	}
	t.cache.builder.compile(&v.parts, &v.call, v.sends, v.recvs, t.tuning)
	return &v.parts
}
