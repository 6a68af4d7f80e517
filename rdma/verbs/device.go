//go:build cgo

package verbs

import (
	"strings"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// found is what a Provider has found out.
type found struct {
	mu    sync.Mutex
	lib   *library          // nil until it was loaded
	facts map[string]*facts // by device, for all its contexts
}

// Devices returns the devices of libibverbs. An error says why that is
// not possible: ErrNoLibrary, ErrNoKernel, or the error of a verb.
func (p *Provider) Devices() ([]rdma.Device, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lib == nil {
		lib, err := load(p.cfg.Library)
		if err != nil {
			return nil, err
		}
		p.lib, p.facts = lib, make(map[string]*facts)
	}
	names, err := p.lib.deviceNames()
	if err != nil {
		return nil, err
	}
	devices := make([]rdma.Device, len(names))
	for i, name := range names {
		if p.facts[name] == nil {
			p.facts[name] = &facts{features: make(map[rdma.Feature]error)}
		}
		devices[i] = &device{name: name, lib: p.lib, facts: p.facts[name]}
	}
	return devices, nil
}

// A device is a name: libibverbs' own list lives only for the length of a call.
type device struct {
	name  string
	lib   *library
	facts *facts
}

func (d *device) Name() string { return d.name }

// facts are what probing has found out about a device. Only what is conclusive
// is kept.
type facts struct {
	mu       sync.Mutex
	inline   int // the longest inline payload, when probed
	probed   bool
	features map[rdma.Feature]error

	extMu sync.Mutex // guards what follows
	ext   *extension // nil: not looked for, or
	noExt string     // why there is none
}

// A node is what all objects of a context have in common: which programs use it and whether
// it is closed, guarded by the context's lock.
type node struct {
	users   int
	closed  bool
	parents []*node // what it stands on, and is a user of
}

// adopt counts a new object as a user of what it stands on.
func (n *node) adopt(parents ...*node) {
	n.parents = parents
	for _, p := range parents {
		p.users++
	}
}

// check is an error when something an object is to stand on is closed. The
// caller holds c.mu.
func check(op string, parents ...*node) error {
	for _, p := range parents {
		if p.closed {
			return invalid(op, "the parent object is closed")
		}
	}
	return nil
}

// alive is check for a request that names objects: the library would look into
// what is no more.
func (c *deviceContext) alive(op string, objects ...*node) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range objects {
		if n.closed {
			return invalid(op, "an object that the request names is closed")
		}
	}
	return nil
}

// shut closes an object: destroy calls the verb. A second time does nothing.
// The lock is not held meanwhile, because a verb may wait for events to be
// acknowledged or for peers.
func (c *deviceContext) shut(op string, n *node, destroy func() error) error {
	c.mu.Lock()
	switch {
	case n.closed:
		c.mu.Unlock()
		return nil
	case n.users > 0:
		users := n.users
		c.mu.Unlock()
		return busy(op, users)
	}
	n.closed = true
	c.mu.Unlock()
	err := destroy()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		n.closed = false
		return err
	}
	for _, p := range n.parents {
		p.users--
	}
	return nil
}

func busy(op string, users int) error {
	objects := "objects use it"
	if users == 1 {
		objects = "object uses it"
	}
	return &rdma.OpError{Op: op, Detail: strings.TrimSpace(itoa(users) + " " + objects), Err: rdma.ErrBusy}
}
