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
		moveRuns(packed, n.step, mem, base, n.stride, n.step, whole, pack)
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
				moveRuns(packed[at+j*p.step:], n.step, mem, base+p.off+j*p.stride, n.stride, p.step, steps, pack)
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

// moveRuns copies count runs of n bytes. In packed they are every bytes apart, in
// mem stride, the first at mem[at:].
func moveRuns(packed []byte, every int, mem []byte, at, stride, n, count int, pack bool) {
	if pack {
		gather(packed, every, mem, at, stride, n, count)
	} else {
		scatter(packed, every, mem, at, stride, n, count)
	}
}

// gather is moveRuns that packs. For the lengths of numbers it is a loop of loads
// and stores: a call of copy takes several times as long.
func gather(packed []byte, every int, mem []byte, at, stride, n, count int) {
	to := 0
	switch n {
	case 1:
		for range count {
			packed[to] = mem[at]
			to, at = to+every, at+stride
		}
	case 2:
		for range count {
			binary.NativeEndian.PutUint16(packed[to:], binary.NativeEndian.Uint16(mem[at:]))
			to, at = to+every, at+stride
		}
	case 4:
		for range count {
			binary.NativeEndian.PutUint32(packed[to:], binary.NativeEndian.Uint32(mem[at:]))
			to, at = to+every, at+stride
		}
	case 8:
		for range count {
			binary.NativeEndian.PutUint64(packed[to:], binary.NativeEndian.Uint64(mem[at:]))
			to, at = to+every, at+stride
		}
	case 16:
		for range count {
			p, m := packed[to:to+16], mem[at:at+16]
			binary.NativeEndian.PutUint64(p, binary.NativeEndian.Uint64(m))
			binary.NativeEndian.PutUint64(p[8:], binary.NativeEndian.Uint64(m[8:]))
			to, at = to+every, at+stride
		}
	default:
		for range count {
			copy(packed[to:to+n], mem[at:at+n])
			to, at = to+every, at+stride
		}
	}
}

// scatter is moveRuns that unpacks.
func scatter(packed []byte, every int, mem []byte, at, stride, n, count int) {
	from := 0
	switch n {
	case 1:
		for range count {
			mem[at] = packed[from]
			from, at = from+every, at+stride
		}
	case 2:
		for range count {
			binary.NativeEndian.PutUint16(mem[at:], binary.NativeEndian.Uint16(packed[from:]))
			from, at = from+every, at+stride
		}
	case 4:
		for range count {
			binary.NativeEndian.PutUint32(mem[at:], binary.NativeEndian.Uint32(packed[from:]))
			from, at = from+every, at+stride
		}
	case 8:
		for range count {
			binary.NativeEndian.PutUint64(mem[at:], binary.NativeEndian.Uint64(packed[from:]))
			from, at = from+every, at+stride
		}
	case 16:
		for range count {
			p, m := packed[from:from+16], mem[at:at+16]
			binary.NativeEndian.PutUint64(m, binary.NativeEndian.Uint64(p))
			binary.NativeEndian.PutUint64(m[8:], binary.NativeEndian.Uint64(p[8:]))
			from, at = from+every, at+stride
		}
	default:
		for range count {
			copy(mem[at:at+n], packed[from:from+n])
			from, at = from+every, at+stride
		}
	}
}
