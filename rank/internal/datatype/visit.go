package datatype

// Runs calls f for each run of bytes, from an item's origin on, that holds the n bytes
// of packed data from position from on, in their order. The first error ends it. It is
// for memory that only requests reach: what is at hand is copied by Pack and Unpack.
func (t *Type) Runs(from, n int, f func(off, n int) error) error {
	if n == 0 || t.size == 0 {
		return nil
	}
	if t.solid {
		return f(from, n)
	}
	extent := t.ub - t.lb
	if s := t.shape; s.count == 1 {
		s.stride = extent // items are the steps of a loop
		return s.visit(0, from, n, f)
	}
	for item, rest := from/t.size, from%t.size; n > 0; item++ {
		some := min(n, t.size-rest)
		if err := t.shape.visit(item*extent, rest, some, f); err != nil {
			return err
		}
		n, rest = n-some, 0
	}
	return nil
}

// visit is Runs of a node that stands at base.
func (n *node) visit(base, from, length int, f func(off, n int) error) error {
	step, rest := from/n.step, from%n.step
	base += n.off + step*n.stride
	for length > 0 {
		some := min(length, n.step-rest)
		if err := n.visitStep(base, rest, some, f); err != nil {
			return err
		}
		length, rest, base = length-some, 0, base+n.stride
	}
	return nil
}

// visitStep is visit of a part of one step.
func (n *node) visitStep(base, from, length int, f func(off, n int) error) error {
	if n.parts == nil {
		return f(base+from, length)
	}
	for part, rest := n.at(from); length > 0; part++ {
		p := &n.parts[part]
		some := min(length, p.size()-rest)
		if err := p.visit(base, rest, some, f); err != nil {
			return err
		}
		length, rest = length-some, 0
	}
	return nil
}
