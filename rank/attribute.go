package rank

import (
	"errors"
	"slices"
)

// A Keyval is the key of an attribute: a value that a program keeps with a
// communicator (MPI_Comm_create_keyval) or a window (MPI_Win_create_keyval),
// for example a library's state. Attributes are local to the rank.
type Keyval[V any] struct {
	copied  func(old *Comm, value V) (V, bool, error)
	deleted func(c *Comm, value V) error
}

// A Holder has attributes: a [Comm] or a [Win]. The callbacks of a
// [Keyval] get the communicator, or the window's internal communicator.
type Holder interface{ holder() *Comm }

func (c *Comm) holder() *Comm   { return c }
func (w *window) holder() *Comm { return w.comm }

// held is the communicator of a holder, nil of nothing.
func held(h Holder) *Comm {
	if h == nil {
		return nil
	}
	return h.holder()
}

// NewKeyval makes a new key. When [Comm.Dup] duplicates old, copied returns the value for the
// duplicate, or false for none; a nil copied copies nothing (MPI_COMM_NULL_COPY_FN). deleted
// is called with a value that is replaced or deleted, or whose communicator or window is
// freed; it may be nil. The call (Dup, Free, Set or Delete) returns an error of either.
func NewKeyval[V any](copied func(old *Comm, value V) (V, bool, error), deleted func(c *Comm, value V) error) *Keyval[V] {
	return &Keyval[V]{copied: copied, deleted: deleted}
}

// CopyValue is an argument for [NewKeyval]: the duplicate gets the value itself (MPI_COMM_DUP_FN).
func CopyValue[V any](_ *Comm, value V) (V, bool, error) { return value, true, nil }

// attribute is a value under its name.
type attribute interface {
	of(key any) bool
	copy(old *Comm) (attribute, bool, error)
	delete(c *Comm) error
}

type kept[V any] struct {
	key   *Keyval[V]
	value V
}

func (a *kept[V]) of(key any) bool { return key == any(a.key) }

func (a *kept[V]) copy(old *Comm) (attribute, bool, error) {
	if a.key.copied == nil {
		return nil, false, nil
	}
	v, ok, err := a.key.copied(old, a.value)
	if !ok || err != nil {
		return nil, false, err
	}
	return &kept[V]{a.key, v}, true, nil
}

func (a *kept[V]) delete(c *Comm) error {
	if a.key.deleted == nil {
		return nil
	}
	return a.key.deleted(c, a.value)
}

// find is where the value under a name is, -1 for nowhere.
func (c *Comm) find(key any) int {
	for i, a := range c.attributes {
		if a.of(key) {
			return i
		}
	}
	return -1
}

// usable is an error for a communicator that cannot hold attributes.
func (k *Keyval[V]) usable(c *Comm) error {
	if k == nil {
		return badClass(ClassKeyval, "the keyval is nil")
	}
	if err := c.exists(); err != nil {
		return err
	}
	if c.freed || c.making {
		return c.unusable()
	}
	return nil
}

// Set sets the value of this key (MPI_Comm_set_attr, MPI_Win_set_attr) and replaces an earlier one.
func (k *Keyval[V]) Set(h Holder, value V) error {
	c := held(h)
	if err := k.usable(c); err != nil {
		return c.fail("set_attr", -1, err)
	}
	if i := c.find(k); i >= 0 {
		if err := c.attributes[i].delete(c); err != nil {
			return c.fail("set_attr", -1, err)
		}
	}
	fresh := &kept[V]{k, value}
	if i := c.find(k); i >= 0 { // anew: the callback may have set or deleted others
		c.attributes[i] = fresh
	} else {
		c.attributes = append(c.attributes, fresh)
	}
	return nil
}

// Get returns the value of this key, and whether there is one (MPI_Comm_get_attr, MPI_Win_get_attr).
func (k *Keyval[V]) Get(h Holder) (value V, found bool) {
	c := held(h)
	if k.usable(c) != nil {
		return value, false
	}
	i := c.find(k)
	if i < 0 {
		return value, false
	}
	return c.attributes[i].(*kept[V]).value, true
}

// Delete deletes the value of this key (MPI_Comm_delete_attr, MPI_Win_delete_attr).
func (k *Keyval[V]) Delete(h Holder) error {
	c := held(h)
	const op = "delete_attr"
	if err := k.usable(c); err != nil {
		return c.fail(op, -1, err)
	}
	i := c.find(k)
	if i < 0 {
		return c.fail(op, -1, badClass(ClassKeyval, "the communicator or window has no attribute of this keyval"))
	}
	a := c.attributes[i]
	if err := a.delete(c); err != nil {
		return c.fail(op, -1, err)
	}
	// The callback may have set or deleted others.
	c.attributes = slices.DeleteFunc(c.attributes, func(o attribute) bool { return o == a })
	return nil
}

// copyAttributes gives d what the attributes of c say.
func (c *Comm) copyAttributes(d *Comm) error {
	for _, a := range slices.Clone(c.attributes) { // callbacks may set and delete
		fresh, ok, err := a.copy(c)
		if err != nil {
			return err
		}
		if ok {
			d.attributes = append(d.attributes, fresh)
		}
	}
	return nil
}

// deleteAttributes deletes all, the last first.
func (c *Comm) deleteAttributes() error {
	var errs []error
	for len(c.attributes) > 0 {
		last := len(c.attributes) - 1
		a := c.attributes[last]
		c.attributes = c.attributes[:last] // before the callback, which may look
		errs = append(errs, a.delete(c))
	}
	return errors.Join(errs...)
}
