package p2p

// A table gives operations numbers that can travel in a work request or in a
// message and come back: a small index and a generation, so that a number that
// is stale or made up finds nothing.
type table[T any] struct {
	rows []row[T]
	free []uint16
}

type row[T any] struct {
	generation uint8
	value      *T
}

// noNumber is no number of a table.
const noNumber = ^uint32(0)

// add gives v a number of 24 bits; false: there are too many.
func (t *table[T]) add(v *T) (uint32, bool) {
	var i uint16
	if n := len(t.free); n > 0 {
		i = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		if len(t.rows) == 1<<16 {
			return 0, false
		}
		i = uint16(len(t.rows))
		t.rows = append(t.rows, row[T]{})
	}
	t.rows[i].value = v
	return uint32(t.rows[i].generation)<<16 | uint32(i), true
}

// get is what number stands for, nil when for nothing.
func (t *table[T]) get(number uint32) *T {
	i := int(number & 0xffff)
	if i >= len(t.rows) || uint32(t.rows[i].generation) != number>>16 {
		return nil
	}
	return t.rows[i].value
}

// replace lets a number stand for another value.
func (t *table[T]) replace(number uint32, v *T) { t.rows[number&0xffff].value = v }

// remove frees a number.
func (t *table[T]) remove(number uint32) {
	r := &t.rows[number&0xffff]
	r.value = nil
	r.generation++
	t.free = append(t.free, uint16(number))
}
