//go:build cgo && linux

package main

import "slices"

// A keyval is the key of attributes: what happens to a value when its object is duplicated, and when it is deleted.
type keyval struct {
	number          int
	copied, deleted ptr
	extra           ptr
	freed           bool
	holds           holder
	uses            int
}

// A holder is the kind of objects that a keyval is for.
type holder int

const (
	forComms holder = iota
	forTypes
	forWindows
)

// dup is MPI_COMM_DUP_FN and its like, no function but a number.
const dup = uintptr(1)

var keyvals = newTable[*keyval](kindKeyval)

type attribute struct {
	key    *keyval
	value  ptr
	ending bool // its function is running, which cannot delete it again
}

// attributes are those of an object, in the order in which they were set.
type attributes []attribute

// keyvalOf is a keyval; one that was freed goes on while a value has it.
func keyvalOf(n int, holds holder) (*keyval, error) {
	k := keyvals.find(uintptr(n))
	if k == nil || (*k).holds != holds {
		return nil, wrong(c_ERR_KEYVAL, "%d is no keyval of this kind, or it was freed", n)
	}
	return *k, nil
}

func (f *frame) newKeyval(copied, deleted, to, extra ptr, holds holder) error {
	if to == nil {
		return errNull
	}
	h, slot := keyvals.enter()
	*slot = &keyval{number: int(h), copied: copied, deleted: deleted, extra: extra, holds: holds}
	f.put(to, int(h))
	return nil
}

func (f *frame) freeKeyval(at ptr, holds holder) error {
	list := intsAt(at, 1)
	if list == nil {
		return errNull
	}
	k, err := keyvalOf(int(list[0]), holds)
	if err != nil {
		return err
	}
	k.freed = true // values that have it go on having it
	k.drop()
	list[0] = c_KEYVAL_INVALID
	return nil
}

func (k *keyval) drop() {
	if k.freed && k.uses == 0 {
		keyvals.leave(uintptr(k.number))
	}
}

func (a attributes) find(k *keyval) int {
	return slices.IndexFunc(a, func(o attribute) bool { return o.key == k })
}

// delete calls the key's function and removes the value, which stays where the function fails.
func (a *attributes) delete(k *keyval, h uintptr) error {
	i := a.find(k)
	switch {
	case i < 0:
		return wrong(c_ERR_KEYVAL, "the object has no attribute of this keyval")
	case (*a)[i].ending:
		return wrong(c_ERR_KEYVAL, "the attribute is being deleted")
	case k.deleted != nil:
		(*a)[i].ending = true
		code := callDelete(k.deleted, h, k.number, (*a)[i].value, k.extra)
		if i = a.find(k); i >= 0 {
			(*a)[i].ending = false
		}
		if code != c_SUCCESS {
			return &mistake{code, "the function that deletes an attribute has failed"}
		}
	}
	if i >= 0 { // the function may have deleted others
		*a = slices.Delete(*a, i, i+1)
		k.uses--
		k.drop()
	}
	return nil
}

// deleteAll deletes all, the last first.
func (a *attributes) deleteAll(h uintptr) error {
	for len(*a) > 0 {
		if err := a.delete((*a)[len(*a)-1].key, h); err != nil {
			return err
		}
	}
	return nil
}

func (a *attributes) set(k *keyval, h uintptr, value ptr) error {
	if a.find(k) >= 0 {
		if err := a.delete(k, h); err != nil {
			return err
		}
	}
	k.uses++
	*a = append(*a, attribute{key: k, value: value})
	return nil
}

// copyTo has a duplicate get what the keys' functions say.
func (a attributes) copyTo(to *attributes, h uintptr) error {
	for _, o := range slices.Clone(a) {
		value, keep, code := o.value, true, c_SUCCESS
		switch {
		case o.key.copied == nil:
			keep = false
		case address(o.key.copied) != dup:
			value, keep, code = callCopy(o.key.copied, h, o.key.number, o.key.extra, o.value)
		}
		if code != c_SUCCESS {
			return &mistake{code, "the function that copies an attribute has failed"}
		}
		if keep {
			o.key.uses++
			*to = append(*to, attribute{key: o.key, value: value})
		}
	}
	return nil
}

// get stores the value and whether there is one.
func (f *frame) get(a attributes, k *keyval, to, flag ptr) {
	i := a.find(k)
	f.putBool(flag, i >= 0)
	if i >= 0 {
		f.putHandle(to, address(a[i].value))
	}
}

func mpiCommCreateKeyval(f *frame, copied, deleted, to, extra ptr) error {
	return f.newKeyval(copied, deleted, to, extra, forComms)
}
func mpiKeyvalCreate(f *frame, copied, deleted, to, extra ptr) error {
	return f.newKeyval(copied, deleted, to, extra, forComms)
}
func mpiTypeCreateKeyval(f *frame, copied, deleted, to, extra ptr) error {
	return f.newKeyval(copied, deleted, to, extra, forTypes)
}
func mpiCommFreeKeyval(f *frame, at ptr) error { return f.freeKeyval(at, forComms) }
func mpiKeyvalFree(f *frame, at ptr) error     { return f.freeKeyval(at, forComms) }
func mpiTypeFreeKeyval(f *frame, at ptr) error { return f.freeKeyval(at, forTypes) }

func mpiCommSetAttr(_ *frame, c *comm, n int, value ptr) error {
	if n >= c_TAG_UB && n <= c_WIN_MODEL {
		return wrong(c_ERR_KEYVAL, "the attribute is MPI's own")
	}
	k, err := keyvalOf(n, forComms)
	if err != nil {
		return err
	}
	return c.attributes.set(k, c.handle, value)
}

func mpiCommGetAttr(f *frame, c *comm, n int, to, flag ptr) error {
	if to == nil || flag == nil {
		return errNull
	}
	if v, own := ownAttribute(n); own {
		f.putBool(flag, v != nil)
		if v != nil {
			f.putHandle(to, address(v))
		}
		return nil
	}
	k, err := keyvalOf(n, forComms)
	if err == nil {
		f.get(c.attributes, k, to, flag)
	}
	return err
}

func mpiCommDeleteAttr(_ *frame, c *comm, n int) error {
	if n >= c_TAG_UB && n <= c_WIN_MODEL {
		return wrong(c_ERR_KEYVAL, "the attribute is MPI's own")
	}
	k, err := keyvalOf(n, forComms)
	if err != nil {
		return err
	}
	return c.attributes.delete(k, c.handle)
}

func mpiAttrPut(f *frame, c *comm, n int, value ptr) error { return mpiCommSetAttr(f, c, n, value) }
func mpiAttrGet(f *frame, c *comm, n int, to, flag ptr) error {
	return mpiCommGetAttr(f, c, n, to, flag)
}
func mpiAttrDelete(f *frame, c *comm, n int) error { return mpiCommDeleteAttr(f, c, n) }

func mpiTypeSetAttr(_ *frame, t *datatype, n int, value ptr) error {
	k, err := keyvalOf(n, forTypes)
	if err != nil {
		return err
	}
	return t.set(k, t.handle, value)
}

func mpiTypeGetAttr(f *frame, t *datatype, n int, to, flag ptr) error {
	if to == nil || flag == nil {
		return errNull
	}
	k, err := keyvalOf(n, forTypes)
	if err == nil {
		f.get(t.attributes, k, to, flag)
	}
	return err
}

func mpiTypeDeleteAttr(_ *frame, t *datatype, n int) error {
	k, err := keyvalOf(n, forTypes)
	if err != nil {
		return err
	}
	return t.delete(k, t.handle)
}
