package rank

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// FindDevices checks whether the devices that cfg names exist, without
// joining the job. It returns the error that [Init] would return, or nil. A
// program calls it to report a missing device once instead of from each rank.
func FindDevices(cfg Config) error {
	if len(cfg.Devices) > 2 {
		return badArgument("%d devices are named: expected one, or two (for the lower and the upper half of the ranks)", len(cfg.Devices))
	}
	names, err := softNames(cfg)
	if err != nil {
		return err
	}
	for _, want := range cfg.Devices {
		if slices.Contains(names, want) {
			continue
		}
		if _, _, err := namedDevice(cfg.Providers, names, want); err != nil {
			return err
		}
	}
	return nil
}

// softNames are the names of the software devices.
func softNames(cfg Config) ([]string, error) {
	env, err := cfg.environment()
	if err != nil {
		return nil, err
	}
	if len(env.Emulate) == 0 {
		return []string{"soft0"}, nil
	}
	return env.Emulate, nil
}

// namedDevice finds a device of the providers, or says what there is.
func namedDevice(providers []rdma.Provider, softNames []string, want string) (rdma.Device, rdma.Provider, error) {
	missing := &DeviceError{Name: want}
	for _, name := range softNames {
		missing.Have = append(missing.Have, name+" (soft)")
	}
	for _, p := range providers {
		devices, err := p.Devices()
		if err != nil {
			missing.Have = append(missing.Have, fmt.Sprintf("no list from %s: %v", p.Name(), err))
			continue
		}
		for _, d := range devices {
			if d.Name() == want {
				return d, p, nil
			}
			missing.Have = append(missing.Have, d.Name()+" ("+p.Name()+")")
		}
	}
	return nil, nil, missing
}

// A fabric is the device of a rank, opened, and what all connections share.
type fabric struct {
	soft     *soft.Provider // nil when the device is another provider's
	provider string
	context  rdma.Context
	port     wireup.Port
	gid      rdma.GID
	pd       rdma.PD
	all      rdma.MR // the whole address space, nil where the device cannot
	cq       rdma.CQ // of the collectives
	in       rdma.CQ // cq, and what comes of paths
	queues   []rdma.QP
	peers    *peers.Set
}

// choose is the name of the device for a rank: with two named, the lower half of
// the ranks uses the first.
func choose(devices []string, rank, size int) string {
	switch {
	case len(devices) == 0:
		return ""
	case len(devices) > 1 && rank >= (size+1)/2:
		return devices[1]
	}
	return devices[0]
}

// openFabric opens the rank's device. What was opened when it fails is closed.
func openFabric(cfg *Config, names []string, p *place, rank, size int) (f *fabric, err error) {
	f = &fabric{}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close())
			f = nil
		}
	}()
	want := choose(cfg.Devices, rank, size)
	if want == "" {
		want = names[0]
	}
	var device rdma.Device
	if slices.Contains(names, want) {
		device, err = f.openSoft(cfg, names, want, p)
	} else {
		var provider rdma.Provider
		if device, provider, err = namedDevice(cfg.Providers, names, want); err == nil {
			f.provider = provider.Name()
		}
	}
	if err != nil {
		return f, err
	}
	if f.context, err = device.Open(); err != nil {
		return f, fmt.Errorf("open %s: %w", want, err)
	}
	f.port.Attr = f.context.QueryDevice()
	attr, err := f.context.QueryPort(1)
	if err != nil {
		return f, fmt.Errorf("%s: %w", want, err)
	}
	f.port.MTU = attr.ActiveMTU
	if f.gid, err = f.context.QueryGID(1, 0); err != nil {
		return f, fmt.Errorf("%s: %w", want, err)
	}
	if f.pd, err = f.context.AllocPD(); err != nil {
		return f, fmt.Errorf("%s: %w", want, err)
	}
	if f.port.Attr.ODP {
		const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessOnDemand
		if f.all, err = f.pd.RegMR(nil, access); err != nil {
			return f, fmt.Errorf("%s: register the address space: %w", want, err)
		}
	}
	return f, nil
}

// openSoft makes the software provider of the rank's place.
func (f *fabric) openSoft(cfg *Config, names []string, want string, p *place) (rdma.Device, error) {
	sc := soft.Config{Names: names, Segment: p.segment, Rank: p.local, Host: p.identity, Secret: p.secret, Listen: p.listen}
	if p.segment == nil {
		sc.Rank, sc.Host = 0, ""
	}
	if cfg.adversary != 0 {
		sc.Adversary = &soft.Adversary{Seed: cfg.adversary}
	}
	provider, err := soft.New(sc)
	if err != nil {
		return nil, err
	}
	f.soft, f.provider = provider, provider.Name()
	devices, err := provider.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		if d.Name() == want {
			return d, nil
		}
	}
	return nil, fmt.Errorf("the software device %q is missing", want)
}

const (
	// collectiveQueue is the depth of a collective queue pair's send queue.
	collectiveQueue = 64
	// collectiveInline is the longest inline write of a collective: a small
	// block and its header need no registered memory then.
	collectiveInline = 512
)

// openCQ makes the completion queue of the collectives.
func (f *fabric) openCQ(size int) (err error) {
	f.queues = make([]rdma.QP, size)
	if size > 1 {
		if f.cq, err = f.context.CreateCQ(min(collectiveQueue*(size-1), max(f.port.Attr.MaxCQE, 2*size))); err != nil {
			return err
		}
		f.in = f.peers.CQ(f.cq)
	}
	return nil
}

// inline is the inline data of a collective queue pair.
func (f *fabric) inline() int { return min(collectiveInline, f.port.Attr.MaxInlineData) }

// queueAttr is how a queue pair for collectives is made.
func (f *fabric) queueAttr() rdma.QPInitAttr {
	return rdma.QPInitAttr{SendCQ: f.cq, RecvCQ: f.cq, Type: rdma.RC, Cap: rdma.QPCap{
		MaxSendWR: min(collectiveQueue, f.port.Attr.MaxQPWR), MaxSendSGE: 1, MaxInlineData: f.inline()}}
}

// openQueue makes the queue pair for collectives with a peer, in INIT, or the path to it.
func (f *fabric) openQueue(peer int) (rdma.QP, error) {
	qp, _, err := f.peers.Half(peer, f.queueAttr(), rdma.AccessRemoteRead|rdma.AccessRemoteWrite, f.in)
	if err == nil {
		f.queues[peer] = qp
	}
	return qp, err
}

// closeQueues destroys the collectives' queue pairs: nothing of them reaches a
// peer any more.
func (f *fabric) closeQueues() error {
	errs := []error{dc.CloseQPs(f.queues)}
	clear(f.queues)
	if f.cq != nil {
		errs = append(errs, f.cq.Close())
		f.cq = nil
	}
	return errors.Join(errs...)
}

// close closes everything in the reverse order.
func (f *fabric) close() error {
	errs := []error{f.closeQueues()}
	if f.peers != nil {
		errs = append(errs, f.peers.Close())
	}
	if f.all != nil {
		errs = append(errs, f.all.Close())
	}
	if f.pd != nil {
		errs = append(errs, f.pd.Close())
	}
	if f.context != nil {
		errs = append(errs, f.context.Close())
	}
	if f.soft != nil {
		errs = append(errs, f.soft.Close())
	}
	return errors.Join(errs...)
}
