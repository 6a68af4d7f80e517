package rank

import (
	"fmt"
	"reflect"
)

// checkElement refuses types that hold pointers and types of no bytes in a call on
// c. Plain kinds cost a load and a test; other types are looked at once a world.
func checkElement[T Element](c *Comm, op string) error {
	t := reflect.TypeFor[T]()
	if plainKind(t.Kind()) {
		return nil
	}
	if err := c.world.checkType(t); err != nil {
		return c.fail(op, -1, err)
	}
	return nil
}

// plainKind tells whether values of a kind are plain numbers or truth values.
func plainKind(k reflect.Kind) bool { return k >= reflect.Bool && k <= reflect.Complex128 }

// checkType is checkElement of types that are not plain.
func (w *World) checkType(t reflect.Type) error {
	if known, ok := w.elements.Load(t); ok {
		if known == nil {
			return nil
		}
		return known.(error)
	}
	err := refusal(t, t.String())
	if err == nil && t.Size() == 0 {
		err = badArgument("elements of type %v have no bytes", t)
	}
	if err == nil {
		w.elements.Store(t, nil)
	} else {
		w.elements.Store(t, err)
	}
	return err
}

// refusal is why values of t, which stands at path, cannot be sent; nil when they can.
func refusal(t reflect.Type, path string) error {
	switch k := t.Kind(); {
	case plainKind(k):
		return nil
	case k == reflect.Array:
		return refusal(t.Elem(), path+"[0]")
	case k == reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if err := refusal(f.Type, path+"."+f.Name); err != nil {
				return err
			}
		}
		return nil
	}
	return badArgument("%s is a %s, which means nothing to another process: elements are numbers, bool, and arrays and structs of those", path, kindName(t))
}

// kindName is a type's name, and its kind when the name does not show it.
func kindName(t reflect.Type) string {
	if t.Name() == "" || t.Name() == t.Kind().String() {
		return t.String()
	}
	return fmt.Sprintf("%v (%v)", t, t.Kind())
}
