package rank

import (
	"reflect"
	"sync"
)

// checkElement refuses types that hold pointers and types of no bytes in a call on
// c. Plain kinds cost a load and a test; other types are looked at once a world.
func checkElement[T Element](c *Comm, op string) error {
	t := reflect.TypeFor[T]()
	if plainType(t) != nil || c == nil { // without a communicator the call fails anyway
		return nil
	}
	if _, err := c.world.elements.of(t); err != nil {
		return c.fail(op, -1, err)
	}
	return nil
}

// elements are the types of elements that are not plain, by reflect.Type: *Datatype, or why they are refused.
type elements struct{ sync.Map }

// of is TypeFor that remembers: the types of elements are looked up in each
// call. Calls that overlap, though they will fail, may come here.
func (e *elements) of(t reflect.Type) (*Datatype, error) {
	if d := plainType(t); d != nil {
		return d, nil
	}
	known, ok := e.Load(t)
	if !ok {
		d, err := reflectType(t)
		if known = d; err != nil {
			known = err
		}
		e.Store(t, known)
	}
	if err, refused := known.(error); refused {
		return nil, err
	}
	return known.(*Datatype), nil
}
