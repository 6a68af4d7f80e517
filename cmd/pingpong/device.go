package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/soft/softtls"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// An opened is a device's context, with what has to be closed behind it.
type opened struct {
	rdma.Context
	provider string
	behind   []io.Closer
}

func (o *opened) Close() error { return errors.Join(o.Context.Close(), o.closeBehind()) }

func (o *opened) closeBehind() error {
	var errs []error
	for _, c := range o.behind {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// checkDevice tells whether there is a device of that name, "" for any, before anybody is waited for.
func checkDevice(env *rank.Environment, name string) error {
	if name == "" {
		return nil
	}
	if err := rank.FindDevices(rank.Config{Environment: env, Devices: []string{name}, Providers: []rdma.Provider{verbs.New(verbs.Config{})}}); err != nil {
		return fmt.Errorf("-d: %w", err)
	}
	return nil
}

// openDevice opens the device of that name, "" for the first there is.
func openDevice(env *rank.Environment, name string, secret []byte) (*opened, error) {
	cfg := soft.Config{Names: env.Emulate, Secret: secret}
	if env.Secure {
		cfg.Secure = softtls.Handshake
	}
	o := &opened{}
	if env.SegmentFD >= 0 {
		segment, err := shm.Open(env.SegmentFD)
		if err != nil {
			return nil, fmt.Errorf("GORUN_SEGMENT=%d: %w", env.SegmentFD, err)
		}
		cfg.Segment, cfg.Rank, cfg.Host = segment, env.LocalRank, env.Job+"/"+env.Host
		o.behind = append(o.behind, segment)
	}
	provider, err := soft.New(cfg)
	if err != nil {
		return nil, errors.Join(err, o.closeBehind())
	}
	o.behind = append([]io.Closer{provider}, o.behind...)
	var missing error // why a provider has no devices
	for _, pr := range []rdma.Provider{provider, verbs.New(verbs.Config{})} {
		devices, err := pr.Devices()
		missing = errors.Join(missing, err)
		for _, d := range devices {
			if name != "" && d.Name() != name {
				continue
			}
			o.provider = pr.Name()
			if o.Context, err = d.Open(); err != nil {
				return nil, errors.Join(err, o.closeBehind())
			}
			return o, nil
		}
	}
	err = fmt.Errorf("-d: device %s is gone: %w", name, errors.Join(rdma.ErrNoDevice, missing))
	return nil, errors.Join(err, o.closeBehind())
}
