package soft

import "github.com/gorun-mpi/gorun/rdma"

// domain is a protection domain: a number that keys and queue pairs carry.
type domain struct {
	rdma.UnsupportedPD
	family // of keys and queue pairs
	ctx    *context
	p      *Provider
	id     uint32
}

func (d *domain) Context() rdma.Context { return d.ctx }

func (d *domain) Close() error {
	before, err := d.end("dealloc_pd", "of its keys and queue pairs are open")
	if err == nil && !before {
		d.ctx.disown()
	}
	return err
}
