package datatype

import "encoding/binary"

// Pack fills dst with the packed bytes from position from on of the items whose first
// has its origin at mem[0]. All bytes that the items touch must lie in mem (Span), which
// is not so for items of a negative lower bound.
func (t *Type) Pack(dst, mem []byte, from int) { t.move(dst, mem, 0, from, true) }

// PackAt is Pack where the first item has its origin at origin of mem, which may lie
// before it: what the items touch must lie in it still.
func (t *Type) PackAt(dst, mem []byte, origin, from int) { t.move(dst, mem, origin, from, true) }

// UnpackAt is Unpack where the first item has its origin at origin of mem.
func (t *Type) UnpackAt(mem, src []byte, origin, from int) { t.move(src, mem, origin, from, false) }

// Unpack is the opposite: it puts src, which begins at position from of the packed
// bytes, where it belongs in mem. Bytes of gaps stay as they are.
func (t *Type) Unpack(mem, src []byte, from int) { t.move(src, mem, 0, from, false) }

// move copies between packed bytes and memory.
func (t *Type) move(packed, mem []byte, origin, from int, pack bool) {
	if t.size == 0 || len(packed) == 0 {
		return
	}
	if t.solid {
		copyRun(packed, mem[origin+from:origin+from+len(packed)], pack)
		return
	}
	extent := t.ub - t.lb
	if n := t.shape; n.count == 1 {
		// Items are the steps of a loop.
		n.stride = extent
		n.move(packed, mem, origin, from, pack)
		return
	}
	item, rest := from/t.size, from%t.size
	for base := origin + item*extent; len(packed) > 0; base += extent {
		n := min(len(packed), t.size-rest)
		t.shape.move(packed[:n], mem, base, rest, pack)
		packed, rest = packed[n:], 0
	}
}

// move copies the data of a node, from position from on, as much as packed holds.
// base is where the node stands in mem.
func (n *node) move(packed, mem []byte, base, from int, pack bool) {
	base += n.off
	if from > 0 {
		step, rest := from/n.step, from%n.step
		base += step * n.stride
		if rest > 0 {
			some := min(len(packed), n.step-rest)
			n.movePart(packed[:some], mem, base, rest, pack)
			packed = packed[some:]
			base += n.stride
		}
	}
	whole := len(packed) / n.step
	if tail := packed[whole*n.step:]; len(tail) > 0 {
		n.movePart(tail, mem, base+whole*n.stride, 0, pack)
	}
	if n.parts == nil {
		n.moveRuns(packed, mem, base, n.step, whole, pack)
		return
	}
	for whole > 0 {
		some := min(whole, columnSteps)
		n.moveSteps(packed, mem, base, some, pack)
		packed = packed[some*n.step:]
		base += some * n.stride
		whole -= some
	}
}

// movePart copies a part of one step, which begins at base.
func (n *node) movePart(packed, mem []byte, base, from int, pack bool) {
	if n.parts == nil {
		copyRun(packed, mem[base+from:base+from+len(packed)], pack)
		return
	}
	part, rest := n.at(from)
	for ; len(packed) > 0; part++ {
		p := &n.parts[part]
		some := min(len(packed), p.size()-rest)
		p.move(packed[:some], mem, base, rest, pack)
		packed, rest = packed[some:], 0
	}
}

// columnSteps is how many steps are copied part by part: enough for the loops to be
// long, few enough for their bytes to stay in the nearest cache.
const columnSteps = 64

// moveSteps copies whole steps, the first of which begins at base: of all steps the
// first run, then of all the second, as a run of few bytes takes less time than to
// find out what it is.
func (n *node) moveSteps(packed, mem []byte, base, steps int, pack bool) {
	at := 0 // in the packed step
	for i := range n.parts {
		p := &n.parts[i]
		if p.parts == nil && p.count <= steps {
			for j := range p.count {
				n.moveRuns(packed[at+j*p.step:], mem, base+p.off+j*p.stride, p.step, steps, pack)
			}
		} else {
			for s := range steps {
				from := s*n.step + at
				p.move(packed[from:from+p.size()], mem, base+s*n.stride, 0, pack)
			}
		}
		at += p.size()
	}
}

func copyRun(packed, run []byte, pack bool) {
	if pack {
		copy(packed, run)
	} else {
		copy(run, packed)
	}
}

// moveRuns copies a run of some bytes of each of count steps. In packed they are a step apart, in
// mem a stride, the first at mem[at:].
func (n *node) moveRuns(packed, mem []byte, at, some, count int, pack bool) {
	switch {
	case count == 0:
	case n.stride < 0:
		for i := range count {
			copyRun(packed[i*n.step:][:some], mem[at+i*n.stride:][:some], pack)
		}
	case pack:
		moveStrided(packed, n.step, mem[at:], n.stride, some, count)
	default:
		moveStrided(mem[at:], n.stride, packed, n.step, some, count)
	}
}

// moveStrided copies count runs of n bytes, which are srcStep apart in src and dstStep in dst. For the
// lengths of numbers it is a loop of loads and stores: a call of copy takes several times as long.
func moveStrided(dst []byte, dstStep int, src []byte, srcStep, n, count int) {
	var to, from int
	switch n {
	case 1:
		for range count {
			dst[to] = src[from]
			to, from = to+dstStep, from+srcStep
		}
	case 2:
		for range count {
			binary.NativeEndian.PutUint16(dst[to:], binary.NativeEndian.Uint16(src[from:]))
			to, from = to+dstStep, from+srcStep
		}
	case 4:
		for range count {
			binary.NativeEndian.PutUint32(dst[to:], binary.NativeEndian.Uint32(src[from:]))
			to, from = to+dstStep, from+srcStep
		}
	case 8:
		for range count {
			binary.NativeEndian.PutUint64(dst[to:], binary.NativeEndian.Uint64(src[from:]))
			to, from = to+dstStep, from+srcStep
		}
	case 16:
		for range count {
			d, s := dst[to:to+16], src[from:from+16]
			binary.NativeEndian.PutUint64(d, binary.NativeEndian.Uint64(s))
			binary.NativeEndian.PutUint64(d[8:], binary.NativeEndian.Uint64(s[8:]))
			to, from = to+dstStep, from+srcStep
		}
	default:
		for range count {
			copy(dst[to:to+n], src[from:from+n])
			to, from = to+dstStep, from+srcStep
		}
	}
}
