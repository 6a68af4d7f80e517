package sim

// Symmetry. In a plan of a rank that is the plan of the rank one host below, with each peer one
// host further, all hosts do the same at the same time. Then the members of one host stand
// for all: what one of them sends to another host arrives, at that time, from the host as far on
// the other side. Time and order on the fabric depend on distances only, so the times are
// exactly those of all members; the tests compare them.

// alike compares the program of a member with that of its representative: the same ops with
// peers at the same distance.
func (f *fabric) alike(p, like *program, shift int) bool {
	if len(p.ops) != len(like.ops) || p.scratch != like.scratch {
		return false
	}
	for i := range p.ops {
		a, b := &p.ops[i], &like.ops[i]
		if a.verb != b.verb || a.signal != b.signal || a.n != b.n {
			return false
		}
		if a.verb != local && int(p.peers[a.channel]) != (int(like.peers[b.channel])+shift)%f.size {
			return false
		}
	}
	return true
}

// comparedSteps is how many steps of plans are compared at least to find a symmetry: those of all
// members up to some hundred ranks, above that those of members spread over all hosts.
const comparedSteps = 1 << 20

// symmetric compiles the programs of the first host and tells whether its members can stand
// for all, and how many others were compared with them.
func (f *fabric) symmetric() (programs []program, compared int, ok bool) {
	k := f.cfg.PerHost
	for r := range k {
		programs = append(programs, f.compile(r, false))
	}
	// Members in the order of a stride that is prime to their number: any beginning of it is
	// spread over all of them.
	stride := f.size*5/8 | 1
	for ; gcd(stride, f.size) != 1; stride += 2 {
	}
	f.compiled = 0
	for i, r := 0, k%f.size; i < f.size && (f.compiled < comparedSteps || compared < 2); i, r = i+1, (r+stride)%f.size {
		if r < k {
			continue
		}
		p := f.compile(r, false)
		if !f.alike(&p, &programs[r%k], r-r%k) {
			return nil, 0, false
		}
		compared++
	}
	return programs, compared, true
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
