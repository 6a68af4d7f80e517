package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/cmd/internal/cards"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// A meeting is what this process needs to become a member of the group.
type meeting struct {
	options  group.Options
	launcher *pmi.Client // nil: started by hand
}

// close ends the meeting; err is the run's so far.
func (m *meeting) close(err error) error {
	if m.launcher == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, m.launcher.Close()) // for the launcher this rank has failed
	}
	return m.launcher.Finalize()
}

// meet finds out what this process is, and where the others are.
func (a *app) meet(ctx context.Context) (*meeting, error) {
	if a.launched {
		return a.meetLaunched(ctx)
	}
	m := &meeting{options: a.options()}
	for _, address := range a.addresses {
		m.options.Addresses = append(m.options.Addresses, []string{address})
	}
	return m, a.listen(m)
}

// options are those that the command line gives.
func (a *app) options() group.Options {
	o := group.Options{Config: a.config, Kind: group.Direct, Participants: a.participants, Key: a.key, Name: "allreduce", Timeout: a.timeout(), Log: a.Log, SDK: a.SDK}
	switch {
	case a.role == roleDaemon:
		o.Kind, o.Clients = group.Daemon, a.clients
	case a.mode == modeOffloaded:
		o.Kind = group.Offloaded
	}
	return o
}

// listen opens the port of a participant, on all interfaces.
func (a *app) listen(m *meeting) error {
	if m.options.Kind == group.Offloaded {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(a.listenPort)))
	if err != nil {
		return fmt.Errorf("cannot listen on port %d (-t): %w", a.listenPort, err)
	}
	m.options.Listener = l
	a.Log.Infof("listening on port %d", l.Addr().(*net.TCPAddr).Port)
	return nil
}

const saidComplete = "the group is complete: %d participants, %d vectors an operation, algorithm %s"

// serve is a daemon's run.
func (a *app) serve(ctx context.Context, m *meeting) error {
	g, err := group.Form(ctx, m.options)
	if err != nil {
		return err
	}
	a.Log.Infof(saidComplete, g.Members(), g.Contributions(), g.Algorithm())
	start := time.Now()
	operations, err := g.Serve()
	took := time.Since(start)
	if closed := g.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	r := &service{task: newTask(roleDaemon, &a.config, g), Clients: a.clients, Operations: operations, Seconds: took.Seconds()}
	r.write(a.Out)
	return a.WriteResults(r)
}

// A card is what a rank tells the others, in msgpack.
type card struct {
	Role    string      `msgpack:"role"`
	Mode    string      `msgpack:"mode"`
	Clients int         `msgpack:"clients"`
	Host    string      `msgpack:"host"`
	Secret  []byte      `msgpack:"secret"` // of the job, from rank 0
	Place   group.Place `msgpack:"place"`  // in the second round, of a participant
}

// meetLaunched meets the other ranks through the launcher. In the first round each rank says what
// it is, and rank 0 gives the key, which so is the job's; in the second the
// participants say where they listen. Cards travel where only the job's processes are.
func (a *app) meetLaunched(ctx context.Context) (*meeting, error) {
	client, err := pmi.DialContext(ctx, a.env.Server())
	if err != nil {
		return nil, err
	}
	m := &meeting{launcher: client}
	if err := a.meetRanks(ctx, m); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return m, nil
}

func (a *app) meetRanks(ctx context.Context, m *meeting) error {
	client := m.launcher
	hostname, _ := os.Hostname()
	own := card{Role: a.role, Mode: a.mode, Clients: a.clients, Host: a.env.Job + "/" + a.env.Host + "/" + hostname}
	if client.Rank() == 0 {
		own.Secret = make([]byte, 32)
		rand.Read(own.Secret)
	}
	all, err := cards.Gather(ctx, client, "allreduce", own)
	if err != nil {
		return err
	}
	parts, err := arrange(all)
	if err != nil {
		return err
	}
	if a.key = all[0].Secret; len(a.key) < comch.MinKey {
		return errors.New("rank 0 gave no key")
	}
	mine := parts[client.Rank()]
	a.role, a.mode, a.clients, a.participants = mine.role, mine.mode, mine.clients, 0
	for _, p := range parts {
		if p.participant() {
			a.participants++
		}
	}
	m.options = a.options()
	m.options.Order = client.Rank()
	if err := a.listen(m); err != nil {
		return err
	}
	second := card{}
	if m.options.Listener != nil {
		if second.Place, err = group.Here(m.options.Listener); err != nil {
			return errors.Join(err, m.options.Listener.Close())
		}
	}
	if all, err = cards.Gather(ctx, client, "allreduce", second); err != nil {
		if m.options.Listener != nil {
			err = errors.Join(err, m.options.Listener.Close())
		}
		return err
	}
	for i, p := range parts {
		// Of two participants the later one dials.
		if mine.participant() && p.participant() && i < client.Rank() || !mine.participant() && i == mine.daemon {
			addresses := all[i].Place.Addresses()
			if len(addresses) == 0 {
				return fmt.Errorf("rank %d, of another host, has no address that this one reaches: its interfaces have link-local and loopback addresses only", i)
			}
			m.options.Addresses = append(m.options.Addresses, addresses)
		}
	}
	return nil
}

// A part is what a rank is in the group.
type part struct {
	role, mode string
	daemon     int // of an offloaded client: its daemon's rank
	clients    int // of a daemon
}

func (p *part) participant() bool { return p.role == roleDaemon || p.mode == modeDirect }

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
			near, nearest := all[d].Host == all[i].Host, best >= 0 && all[best].Host == all[i].Host
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
