package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/rank"
)

// meet makes this process a member of the group, which is complete then.
func (a *app) meet(ctx context.Context) (*group.Session, error) {
	if a.launched {
		return group.Launched(ctx, func(cfg rank.Config) (*rank.World, error) {
			env := *a.env
			env.Secure = true // what goes to other hosts is encrypted, with the job's secret
			cfg.Environment = &env
			return rank.Init(ctx, cfg)
		}, func(w *rank.World) ([]group.Seat, error) { return a.seats(ctx, w) }, &a.config, a.Log)
	}
	o := group.Options{Config: a.config, Kind: group.Direct, Addresses: a.addresses, Participants: a.participants, Key: a.key, Name: "allreduce", Timeout: a.timeout(), Environment: a.env, Log: a.Log, SDK: a.SDK}
	switch {
	case a.role == roleDaemon:
		o.Kind, o.Clients = group.Daemon, a.clients
	case a.mode == modeOffloaded:
		o.Kind = group.Offloaded
		return group.Form(ctx, o)
	}
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(a.listenPort))) // on all interfaces
	if err != nil {
		return nil, fmt.Errorf("cannot listen on port %d (-t): %w", a.listenPort, err)
	}
	o.Listener = l
	a.Log.Infof("listening on port %d", l.Addr().(*net.TCPAddr).Port)
	return group.Form(ctx, o)
}

const saidComplete = "the group is complete: %d participants, %d vectors an operation, algorithm %s"

// serve is a daemon's run.
func (a *app) serve(s *group.Session) (*service, error) {
	a.Log.Infof(saidComplete, s.Members(), s.Contributions(), s.Algorithm())
	start := time.Now()
	operations, err := s.Serve()
	return &service{task: newTask(roleDaemon, &a.config, s), Clients: a.clients, Operations: operations, Seconds: time.Since(start).Seconds()}, err
}

// A card is what a rank tells the others, in msgpack.
type card struct {
	Role    string       `msgpack:"role"`
	Mode    string       `msgpack:"mode"`
	Clients int          `msgpack:"clients"`
	Config  group.Config `msgpack:"config"`
	host    string
}

// cardMost is the room for a card.
const cardMost = 512

// seats tells the other ranks of a launcher what this one is, and gives all their parts.
func (a *app) seats(ctx context.Context, w *rank.World) ([]group.Seat, error) {
	c := w.Comm()
	packed, err := pack.Marshal(card{Role: a.role, Mode: a.mode, Clients: a.clients, Config: a.config})
	if err != nil {
		return nil, err
	}
	own, blocks := make([]byte, cardMost), make([]byte, cardMost*c.Size())
	binary.LittleEndian.PutUint16(own, uint16(copy(own[2:], packed)))
	if err := rank.Allgather(ctx, c, own, blocks); err != nil {
		return nil, err
	}
	all := make([]card, c.Size())
	for i := range all {
		block := blocks[i*cardMost:][:cardMost]
		if err := pack.Unmarshal(block[2:][:min(binary.LittleEndian.Uint16(block), cardMost-2)], &all[i]); err != nil {
			return nil, fmt.Errorf("rank %d is no allreduce of this version: %w", i, err)
		}
		if err := group.Differ(&a.config, fmt.Sprint("rank ", c.Rank()), &all[i].Config, fmt.Sprint("rank ", i)); err != nil {
			return nil, err
		}
		all[i].host = w.HostOf(i)
	}
	parts, err := arrange(all)
	if err != nil {
		return nil, err
	}
	mine := parts[c.Rank()]
	a.role, a.mode, a.clients = mine.role, mine.mode, mine.clients
	seats := make([]group.Seat, len(parts))
	for i, p := range parts {
		seats[i] = group.Seat{Kind: p.kind(), Label: fmt.Sprint("rank ", i), Daemon: max(p.daemon, 0)}
	}
	return seats, nil
}

// A part is what a rank is in the group.
type part struct {
	role, mode string
	daemon     int // of an offloaded client: its daemon's rank
	clients    int // of a daemon
}

func (p *part) kind() group.Kind {
	switch {
	case p.role == roleDaemon:
		return group.Daemon
	case p.mode == modeDirect:
		return group.Direct
	}
	return group.Offloaded
}

// arrange gives each rank its part: all ranks come to the same result. A rank without -r is a
// client; where there are offloaded clients and no daemon, rank 0 is the daemon. An offloaded
// client goes to a daemon of its host where there is one, then to the one with
// the fewest clients.
func arrange(all []card) ([]part, error) {
	parts := make([]part, len(all))
	var daemons, offloaded []int
	for i, c := range all {
		parts[i] = part{role: c.Role, mode: c.Mode, daemon: -1}
		if c.Role == "" {
			parts[i].role = roleClient
		}
		switch {
		case c.Role == roleDaemon:
			daemons = append(daemons, i)
		case c.Mode == modeOffloaded:
			offloaded = append(offloaded, i)
		}
	}
	if len(daemons) == 0 && len(offloaded) > 0 {
		if all[0].Role != "" || all[0].Mode != modeOffloaded {
			return nil, fmt.Errorf("rank %d is an offloaded client, and no rank is a daemon: start one with -r daemon", offloaded[0])
		}
		parts[0].role, daemons, offloaded = roleDaemon, []int{0}, offloaded[1:]
	}
	room := func(d int) bool { return all[d].Clients == 0 || parts[d].clients < all[d].Clients }
	for _, i := range offloaded {
		best := -1
		for _, d := range daemons {
			near, nearest := all[d].host == all[i].host, best >= 0 && all[best].host == all[i].host
			if room(d) && (best < 0 || near && !nearest || near == nearest && parts[d].clients < parts[best].clients) {
				best = d
			}
		}
		if best < 0 {
			return nil, fmt.Errorf("rank %d is an offloaded client, and no daemon has room for it: raise -c, or leave it out", i)
		}
		parts[i].daemon = best
		parts[best].clients++
	}
	for _, d := range daemons {
		switch n := parts[d].clients; {
		case all[d].Clients > n:
			return nil, fmt.Errorf("rank %d is a daemon of %d clients (-c), and %d are there for it", d, all[d].Clients, n)
		case n == 0:
			return nil, fmt.Errorf("rank %d is a daemon, and no rank is its client: start some with -r client -m offloaded", d)
		}
	}
	return parts, nil
}
