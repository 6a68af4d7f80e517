package rank

import "reflect"

// checkElement refuses types that hold pointers and types of no bytes in a call on
// c. Plain kinds cost a load and a test; other types are looked at once a world.
func checkElement[T Element](c *Comm, op string) error {
	t := reflect.TypeFor[T]()
	if plainType(t) != nil || c == nil { // without a communicator the call fails anyway
		return nil
	}
	if _, err := c.world.elementType(t); err != nil {
		return c.fail(op, -1, err)
	}
	return nil
}

// elementType is TypeFor that remembers: the types of elements are looked up in each
// call. Calls that overlap, though they will fail, may come here.
func (w *World) elementType(t reflect.Type) (*Datatype, error) {
	if d := plainType(t); d != nil {
		return d, nil
	}
	if known, ok := w.elements.Load(t); ok {
		if err, refused := known.(error); refused {
			return nil, err
		}
		return known.(*Datatype), nil
	}
	d, err := reflectType(t)
	if err != nil {
		w.elements.Store(t, err)
		return nil, err
	}
	w.elements.Store(t, d)
	return d, nil
}
