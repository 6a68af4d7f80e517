package peers

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// DeviceConfig says which device a rank opens.
type DeviceConfig struct {
	Name      string          // of the device
	Providers []rdma.Provider // beside the software devices
	Soft      soft.Config     // the software devices; Names has at least one
	// Missing is the error for a device that does not exist beside those that do, as "name (provider)".
	Missing func(have []string) error
}

// A Device is the device of a rank, opened, with what all its connections need.
type Device struct {
	Name, Provider string
	Context        rdma.Context
	Port           wireup.Port
	GID            rdma.GID
	PD             rdma.PD
	All            rdma.MR        // the whole address space, nil where the device cannot
	Silence        time.Duration  // of the software device's configuration
	soft           *soft.Provider // nil when the device is another provider's
}

// Find finds the device in the lists of the providers. It is nil, which is no error, for a
// software device: those are listed once they are opened.
func (cfg *DeviceConfig) Find() (rdma.Device, rdma.Provider, error) {
	if slices.Contains(cfg.Soft.Names, cfg.Name) {
		return nil, nil, nil
	}
	var have []string
	for _, name := range cfg.Soft.Names {
		have = append(have, name+" (soft)")
	}
	for _, p := range cfg.Providers {
		devices, err := p.Devices()
		if err != nil {
			have = append(have, fmt.Sprintf("no list from %s: %v", p.Name(), err))
			continue
		}
		for _, d := range devices {
			if d.Name() == cfg.Name {
				return d, p, nil
			}
			have = append(have, d.Name()+" ("+p.Name()+")")
		}
	}
	return nil, nil, cfg.Missing(have)
}

// OpenDevice opens a device. When it fails it closes what it has opened.
func OpenDevice(cfg DeviceConfig) (d *Device, err error) {
	d = &Device{Name: cfg.Name}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
			d = nil
		}
	}()
	device, provider, err := cfg.Find()
	if err != nil {
		return d, err
	}
	if device == nil {
		if d.soft, err = soft.New(cfg.Soft); err != nil {
			return d, err
		}
		d.Silence = cfg.Soft.Silence
		cfg.Providers, cfg.Soft.Names = []rdma.Provider{d.soft}, nil
		if device, provider, err = cfg.Find(); err != nil {
			return d, err
		}
	}
	d.Provider = provider.Name()
	if d.Context, err = device.Open(); err != nil {
		return d, fmt.Errorf("open %s: %w", d.Name, err)
	}
	if err := d.prepare(); err != nil {
		return d, fmt.Errorf("%s: %w", d.Name, err)
	}
	return d, nil
}

func (d *Device) prepare() (err error) {
	d.Port.Attr = d.Context.QueryDevice()
	attr, err := d.Context.QueryPort(1)
	if err != nil {
		return err
	}
	d.Port.MTU = attr.ActiveMTU
	if d.GID, err = d.Context.QueryGID(1, 0); err != nil {
		return err
	}
	if d.PD, err = d.Context.AllocPD(); err != nil {
		return err
	}
	if d.Port.Attr.ODP {
		const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessOnDemand
		if d.All, err = d.PD.RegMR(nil, access); err != nil {
			return fmt.Errorf("register the address space: %w", err)
		}
	}
	return nil
}

// Close closes everything in the reverse order.
func (d *Device) Close() error {
	return errors.Join(Close(d.All), Close(d.PD), Close(d.Context), Close(d.soft))
}

// Close closes what there is: not nil, which an object is that was not made.
func Close[T interface {
	comparable
	Close() error
}](c T) error {
	var none T
	if c == none {
		return nil
	}
	return c.Close()
}
