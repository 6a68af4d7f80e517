//go:build cgo && linux

// Library is the software device behind libibverbs.so.1, as a C library: handles, conversions, and how
// processes meet. calls.h says what it offers; it knows no type of libibverbs.
package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/dropin"
	"github.com/gorun-mpi/gorun/rdma/dropin/meet"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/soft/softtls"
)

func main() {}

// fabric is this process's place among others, from the first list of devices to its end.
var fabric struct {
	sync.Mutex
	member  *meet.Member
	devices []rdma.Device
	known   sync.Map // rdma.GID that the provider knows
	limited bool     // by limits
	network *network // nil: this machine is all that is reached
	once    sync.Once
}

// devices joins the fabric, once. After a failure the next call tries again.
func devices() ([]rdma.Device, error) {
	fabric.Lock()
	defer fabric.Unlock()
	if fabric.devices != nil {
		return fabric.devices, nil
	}
	m, err := meet.Join(os.Getenv("GORUN_VERBS_FABRIC"))
	if err != nil {
		return nil, err
	}
	devices, err := settle(m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	fabric.member, fabric.devices = m, devices
	return devices, nil
}

// settle opens the devices in the member's place, and tells the others of them.
func settle(m *meet.Member) ([]rdma.Device, error) {
	trouble, err := dropin.ParseTrouble(os.Getenv("GORUN_VERBS_ADVERSE"))
	if err != nil {
		return nil, fmt.Errorf("GORUN_VERBS_ADVERSE: %w", err)
	}
	var adversary *soft.Adversary
	if trouble != nil {
		adversary = &soft.Adversary{Seed: trouble.Seed, Losses: trouble.Errors, Flaps: trouble.Link}
		fabric.limited = trouble.Limits
	}
	n, err := newNetwork()
	if err != nil {
		return nil, err
	}
	fabric.network = n
	names := strings.Split(cmp.Or(os.Getenv("GORUN_VERBS_DEVICES"), "soft0"), ",")
	config := soft.Config{Names: names, Segment: m.Segment(), Rank: m.Rank(), Host: "gorun-verbs",
		Numbers: soft.Numbers{Block: m.Block(), Blocks: meet.Blocks}, Adversary: adversary}
	if n != nil {
		config.Secret, config.Secure, config.Located = n.key, softtls.Handshake, true
		config.Listen, config.Ports, config.Unreached = netip.AddrPortFrom(n.address, 0).String(), n.ports.String(), unreached
	}
	p, err := soft.New(config)
	if err != nil {
		return nil, err
	}
	list, err := p.Devices()
	if err == nil {
		err = announce(m, list[0])
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return list, nil
}

func announce(m *meet.Member, d rdma.Device) error {
	ctx, err := d.Open()
	if err != nil {
		return err
	}
	var gids [2]rdma.GID
	for i := range gids {
		if gids[i], err = ctx.QueryGID(1, i); err != nil {
			break
		}
		fabric.known.Store(gids[i], true)
	}
	return errors.Join(err, m.Announce(gids, ctx.(rdma.Endpointer).Endpoint()), ctx.Close())
}

// behind is the GID behind a route, of which the provider knows the endpoint from now on.
func behind(ctx rdma.Context, gid rdma.GID, hasGID bool, lid uint16) (rdma.GID, error) {
	var card meet.Card
	var found bool
	if hasGID {
		if _, known := fabric.known.Load(gid); known {
			return gid, nil
		}
		card, found = fabric.member.ByGID(gid)
	} else {
		card, found = fabric.member.ByLID(lid)
		gid = card.GIDs[0]
	}
	if !found {
		return gid, elsewhere(ctx, gid, hasGID, lid)
	}
	if err := ctx.(rdma.Endpointer).AddEndpoint(gid, card.Endpoint); err != nil {
		return gid, err
	}
	fabric.known.Store(card.GIDs[0], true)
	fabric.known.Store(card.GIDs[1], true)
	return gid, nil
}

// elsewhere has the provider know a GID of another host. Its error is said once, since the program gets a number.
func elsewhere(ctx rdma.Context, gid rdma.GID, hasGID bool, lid uint16) error {
	err := fmt.Errorf("nobody on this machine has GID %v: programs on several hosts find each other with gorun-verbs --key: %w", gid, rdma.ErrInvalid)
	switch {
	case hasGID && fabric.network != nil:
		if err = ctx.(rdma.Endpointer).AddEndpoint(gid, nil); err == nil {
			fabric.known.Store(gid, true)
			return nil
		}
	case !hasGID:
		err = fmt.Errorf("nobody has LID %d: a program that reaches other hosts goes by GIDs, as ibv_rc_pingpong -g 0 does: %w", lid, rdma.ErrInvalid)
	}
	fabric.once.Do(func() { fmt.Fprintf(os.Stderr, "gorun-verbs: %v\n", err) })
	return err
}

// unreached says why requests to a peer tell a timeout.
func unreached(peer rdma.GID, err error) {
	fmt.Fprintf(os.Stderr, "gorun-verbs: no connection to the process with GID %v: %v; it may have ended, or have another --key\n", peer, err)
}
