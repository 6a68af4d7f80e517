//go:build cgo && linux

package main

import (
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A handle is an object's number in the table, with the number of times that this was given before above it.
type handle uint64

const (
	handleBits  = 32
	chunkBits   = 10
	chunksMost  = 1 << 12
	objectsMost = chunksMost << chunkBits
)

// An object is what a handle names.
type object struct {
	handle handle
	value  any
	of     *contextOf // whose it is; nil for a context
	end    func() error
}

// table maps handles to objects. A look takes no lock.
var table struct {
	chunks [chunksMost]atomic.Pointer[[1 << chunkBits]atomic.Pointer[object]]

	mu    sync.Mutex // guards what follows, and all stores
	used  uint64
	free  []uint64 // oldest first
	lives []uint32
}

// enter gives a handle to a new object: 0 where there are too many. end destroys the object.
func enter(value any, of *contextOf, end func() error) handle {
	table.mu.Lock()
	defer table.mu.Unlock()
	var i uint64
	if len(table.free) > 1<<chunkBits {
		i, table.free = table.free[0], table.free[1:]
	} else if i = table.used; i < objectsMost {
		table.used++
		table.lives = append(table.lives, 0)
	} else {
		return 0
	}
	table.lives[i]++
	o := &object{handle: handle(table.lives[i])<<handleBits | handle(i), value: value, of: of, end: end}
	chunk := &table.chunks[i>>chunkBits]
	if chunk.Load() == nil {
		chunk.Store(new([1 << chunkBits]atomic.Pointer[object]))
	}
	chunk.Load()[i&(1<<chunkBits-1)].Store(o)
	if of != nil {
		of.children[o.handle] = o
	}
	return o.handle
}

// find gives the object of a handle, nil for none.
func find(h handle) *object {
	i := uint64(h) & (1<<handleBits - 1)
	if i >= objectsMost {
		return nil
	}
	chunk := table.chunks[i>>chunkBits].Load()
	if chunk == nil {
		return nil
	}
	if o := chunk[i&(1<<chunkBits-1)].Load(); o != nil && o.handle == h {
		return o
	}
	return nil
}

// get gives a handle's object if it is a T.
func get[T any](h handle) (value T, ok bool) {
	if o := find(h); o != nil {
		value, ok = o.value.(T)
	}
	return value, ok
}

// destroy ends an object and its handle; an error leaves both as they are. Of two calls at a time one finds nothing.
func (o *object) destroy() error {
	if err := o.end(); err != nil {
		return err
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	i := uint64(o.handle) & (1<<handleBits - 1)
	slot := &table.chunks[i>>chunkBits].Load()[i&(1<<chunkBits-1)]
	if !slot.CompareAndSwap(o, nil) {
		return rdma.ErrInvalid
	}
	table.free = append(table.free, i)
	if o.of != nil {
		delete(o.of.children, o.handle)
	}
	return nil
}

// A contextOf is an opened device with all that was made of it.
type contextOf struct {
	rdma.Context
	children map[handle]*object // guarded by table.mu

	mu   sync.Mutex // guards what follows
	home rdma.PD    // where the program has none; made when first needed
}

// domain is the domain of an XRC target, which has none in libibverbs: the program's first, whose memory peers then
// reach through the target.
func (c *contextOf) domain() (rdma.PD, error) {
	table.mu.Lock()
	first, oldest := domainOf{}, ^handle(0)
	for h, o := range c.children {
		if d, ok := o.value.(domainOf); ok && h&(1<<handleBits-1) < oldest {
			first, oldest = d, h&(1<<handleBits-1)
		}
	}
	table.mu.Unlock()
	if first.PD != nil {
		return first.PD, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.home == nil {
		pd, err := c.AllocPD()
		if err != nil {
			return nil, err
		}
		c.home = pd
	}
	return c.home, nil
}

// leave destroys what is left, as the kernel does when a program closes a device, and closes the context. What others
// still use is tried again after them.
func (c *contextOf) leave() error {
	for progress := true; progress; {
		table.mu.Lock()
		left := make([]*object, 0, len(c.children))
		for _, o := range c.children {
			left = append(left, o)
		}
		table.mu.Unlock()
		progress = false
		for _, o := range left {
			if o.destroy() == nil {
				progress = true
			}
		}
	}
	c.mu.Lock()
	home := c.home
	c.home = nil
	c.mu.Unlock()
	if home != nil {
		if err := home.Close(); err != nil {
			return err
		}
	}
	return c.Close()
}
