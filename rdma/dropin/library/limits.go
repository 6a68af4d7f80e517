//go:build cgo && linux

package main

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// small are the limits of gorun-verbs --adverse SEED,limits: as few as a device can have and still be of use.
var small = rdma.DeviceAttr{MaxQP: 8, MaxQPWR: 64, MaxSGE: 2, MaxCQ: 8, MaxCQE: 256, MaxMR: 8, MaxSRQ: 2, MaxSRQWR: 64, MaxSRQSGE: 1, MaxMW: 4,
	MaxAH: 8, MaxPD: 4, MaxMRSize: 1 << 26, MaxQPRdAtom: 1, MaxQPInitRdAtom: 1}

// limits are the device's, or the small ones.
func limits(ctx rdma.Context) rdma.DeviceAttr {
	a := ctx.QueryDevice()
	if !fabric.limited {
		return a
	}
	s := small
	s.ClockHz, s.NodeGUID, s.ODP, s.SRQResize = a.ClockHz, a.NodeGUID, a.ODP, a.SRQResize
	return s
}

// fits refuses what is larger than the small limits, in pairs of what is asked for and its limit.
func fits(pairs ...int) error {
	for i := 0; fabric.limited && i < len(pairs); i += 2 {
		if pairs[i] > pairs[i+1] {
			return fmt.Errorf("%d is above the device's limit of %d: %w", pairs[i], pairs[i+1], rdma.ErrInvalid)
		}
	}
	return nil
}

// room refuses one more T of a context than the small limits allow.
func room[T any](ctx *contextOf, most int) error {
	if !fabric.limited {
		return nil
	}
	table.mu.Lock()
	defer table.mu.Unlock()
	n := 0
	for _, o := range ctx.children {
		if _, is := o.value.(T); is {
			n++
		}
	}
	if n >= most {
		return rdma.ErrNoMemory
	}
	return nil
}
