package kernel

// A Pair is the element of MinLoc and MaxLoc: a value and where it is, most often
// a rank. In memory it is what C has in MPI's pair types, padding included; what
// the padding of a result holds is left open.
type Pair[V PairValue] struct {
	Value V
	Index int32
}

// PairValue is a type of which MPI has pairs.
type PairValue interface {
	int16 | int32 | int64 | float32 | float64
}

// before orders by value, a NaN before everything, and then by index.
func before[V PairValue](p, q Pair[V], less bool) bool {
	pNaN, qNaN := p.Value != p.Value, q.Value != q.Value
	if pNaN != qNaN {
		return pNaN
	}
	if pNaN || p.Value == q.Value {
		return p.Index < q.Index
	}
	return less
}

func minLoc[V PairValue](dst, a, b []byte) {
	d, x, y := operands[Pair[V]](dst, a, b)
	for i, p := range x {
		if q := y[i]; before(q, p, q.Value < p.Value) {
			p = q
		}
		d[i] = p
	}
}

func maxLoc[V PairValue](dst, a, b []byte) {
	d, x, y := operands[Pair[V]](dst, a, b)
	for i, p := range x {
		if q := y[i]; before(q, p, q.Value > p.Value) {
			p = q
		}
		d[i] = p
	}
}
