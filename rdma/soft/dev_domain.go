package soft

import (
	"fmt"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// domain is a protection domain: a number that keys and queue pairs carry.
type domain struct {
	rdma.UnsupportedPD
	ctx *context
	p   *Provider
	id  uint32

	mu       sync.Mutex // guards what follows
	children int        // keys and queue pairs
	closed   bool
}

func (d *domain) Context() rdma.Context { return d.ctx }

func (d *domain) adopt(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return &rdma.OpError{Op: op, Detail: "the protection domain is closed", Err: rdma.ErrInvalid}
	}
	d.children++
	return nil
}

func (d *domain) disown() {
	d.mu.Lock()
	d.children--
	d.mu.Unlock()
}

func (d *domain) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	if d.children > 0 {
		n := d.children
		d.mu.Unlock()
		return &rdma.OpError{Op: "dealloc_pd", Detail: fmt.Sprintf("%d of its keys and queue pairs are open: close them first", n), Err: rdma.ErrBusy}
	}
	d.closed = true
	d.mu.Unlock()
	d.ctx.disown()
	return nil
}
