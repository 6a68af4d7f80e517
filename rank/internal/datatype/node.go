package datatype

import "sort"

// A node is a piece of a type map, as places of bytes: count steps, the beginning of
// each stride bytes after that of the one before; a step is one run of bytes, or its
// parts one after the other.
type node struct {
	off    int // of the first step
	count  int
	stride int
	step   int    // bytes of data of one step
	parts  []node // nil: a run; their off counts from the step's beginning
	ends   []int  // of parts: where each ends in the data of the step
}

// spliceMost is the longest list that becomes part of a list around it: lists of
// lists of lists would double their length with each level.
const spliceMost = 8

func run(off, n int) node { return node{off: off, count: 1, step: n} }

func (n *node) size() int { return n.count * n.step }

// solid tells whether the node is one run.
func (n *node) solid() bool { return n.parts == nil && n.count == 1 }

// repeat is count times n at a stride.
func (n node) repeat(count, stride int) node {
	switch {
	case count == 1:
		return n
	case n.solid() && stride == n.step:
		n.step *= count
		return n
	case n.count == 1:
		n.count, n.stride = count, stride
		return n
	case stride == n.count*n.stride:
		n.count *= count
		return n
	}
	return node{count: count, stride: stride, step: n.size(), parts: []node{n}, ends: []int{n.size()}}
}

// list is nodes one after the other, none of them empty.
func list(nodes []node) node {
	var parts []node
	for _, n := range nodes {
		if n.parts != nil && n.count == 1 && len(n.parts) <= spliceMost {
			for _, p := range n.parts {
				p.off += n.off
				parts = push(parts, p)
			}
			continue
		}
		parts = push(parts, n)
	}
	switch len(parts) {
	case 0:
		return node{count: 1}
	case 1:
		return parts[0]
	}
	l := node{count: 1, parts: parts, ends: make([]int, len(parts))}
	for i := range parts {
		l.step += parts[i].size()
		l.ends[i] = l.step
	}
	return l
}

// push appends a node, or makes it part of the last one: runs that touch are one
// run, runs of one length at equal distances one node.
func push(parts []node, n node) []node {
	if len(parts) == 0 || n.parts != nil {
		return append(parts, n)
	}
	last := &parts[len(parts)-1]
	switch {
	case last.parts != nil:
	case last.solid() && n.solid() && last.off+last.step == n.off:
		last.step += n.step
		return parts
	case last.step != n.step:
	case last.count == 1 && n.count == 1:
		last.count, last.stride = 2, n.off-last.off
		return parts
	case last.count > 1 && n.off == last.off+last.count*last.stride && (n.count == 1 || n.stride == last.stride):
		last.count += n.count
		return parts
	}
	return append(parts, n)
}

// at is the part in which position pos of a step's data lies, and the position in it.
func (n *node) at(pos int) (part, rest int) {
	if pos == 0 {
		return 0, 0
	}
	part = sort.SearchInts(n.ends, pos+1)
	if part > 0 {
		pos -= n.ends[part-1]
	}
	return part, pos
}
