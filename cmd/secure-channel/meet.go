package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// A meeting is how this end meets its peers: a host has a channel, a DPU a listener for
// clients of which there are so many.
type meeting struct {
	conn     *comch.Conn
	listener *comch.Listener
	clients  int
	launcher *pmi.Client // nil: started by hand
}

func (m *meeting) close() error {
	var errs []error
	if m.listener != nil {
		errs = append(errs, m.listener.Close())
	}
	if m.launcher != nil {
		errs = append(errs, m.launcher.Finalize())
	}
	return errors.Join(errs...)
}

// config is the channel of this end.
func (a *app) config(name string) comch.Config {
	ends := 1
	if a.role == roleDPU {
		ends = a.clients
	}
	cpus := cmp.Or(a.env.CPUs, topo.CPUs())
	return comch.Config{
		Name: name, Key: a.key, Buffer: a.buffer, Queue: a.queue,
		// Each end is a goroutine that waits, and so is its peer.
		Crowded: 2*ends > cpus || a.forever, Shared: ends > 1 || a.forever,
		Log: func(line string) { a.SDK.Warn(line) },
	}
}

// channelName is the channel's on this host: its own name, else that of the representor. A host and its DPU see
// one device at different addresses, and both have its representor.
func (a *app) channelName() string {
	if a.name != "" {
		return "secure-channel\x00\x00" + a.name
	}
	return "secure-channel\x00" + a.meets
}

// meet makes the channel, or the listener. A host waits for its DPU, for as long as
// --connect-timeout says.
func (a *app) meet(ctx context.Context) (*meeting, error) {
	if a.launched {
		return a.meetLaunched(ctx)
	}
	m := &meeting{clients: a.clients}
	var err error
	switch {
	case a.role == roleDPU && a.listen != "":
		m.listener, err = comch.ListenTLS(a.config(a.name), a.listen)
	case a.role == roleDPU:
		m.listener, err = comch.Listen(a.config(a.channelName()))
	default:
		name := a.channelName()
		if a.connect != "" {
			name = a.name // devices of two hosts have names of their own
		}
		m.conn, err = a.dial(ctx, name, a.connect)
	}
	if err != nil {
		return nil, a.explain(err)
	}
	if m.listener != nil {
		a.Log.Info(saidListening)
		if a.listen != "" {
			a.Log.Infof("listening at %s", m.listener.Addr())
		}
	}
	return m, nil
}

// explain adds what to try.
func (a *app) explain(err error) error {
	if errors.Is(err, comch.ErrTaken) {
		return fmt.Errorf("%s: another DPU end serves %s already: give this channel a --name, at both ends", saidNoListen, a.device)
	}
	if a.role == roleDPU && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", saidNoListen, err)
	}
	return err
}

// dial connects to the DPU's end: by address if there is one, else by name.
func (a *app) dial(ctx context.Context, name, address string) (*comch.Conn, error) {
	within, cancel := context.WithTimeoutCause(ctx, a.timeout(), errLate)
	defer cancel()
	a.Log.Debug("connecting to the DPU")
	var conn *comch.Conn
	var err error
	where := "on " + a.device
	if address != "" {
		where = "at " + address
		conn, err = comch.DialTLS(within, a.config(name), address)
	} else {
		conn, err = comch.Dial(within, a.config(name))
	}
	switch {
	case err == nil:
		a.Log.Info(saidConnected)
		return conn, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case within.Err() != nil:
		return nil, fmt.Errorf("%s: none has come %s within %v (--connect-timeout): start it%s with %s", saidNoConnect, where, a.timeout(), a.asWhom(), a.dpuCommand())
	}
	return nil, fmt.Errorf("%s: %w", saidNoConnect, err)
}

// asWhom is part of what the user may have missed: on one host each user has channels of its own.
func (a *app) asWhom() string {
	if a.connect != "" || a.listen != "" {
		return ""
	}
	return fmt.Sprintf(", as user %d,", os.Geteuid())
}

// dpuCommand and hostCommand are what the user may have forgotten to start.
func (a *app) dpuCommand() string {
	command := fmt.Sprintf("secure-channel --role dpu -p %s -s %d -n %d", a.pci, a.size, a.count)
	if a.connect != "" {
		command += fmt.Sprintf(" --key %s --listen %s", a.keyFile, a.connect)
	}
	return command + a.nameFlag()
}

func (a *app) hostCommand(m *meeting) string {
	command := fmt.Sprintf("secure-channel --role host -p %s -s %d -n %d", a.pci, a.size, a.count)
	if a.listen != "" {
		command += fmt.Sprintf(" --key %s --connect %s", a.keyFile, m.listener.Addr())
	}
	return command + a.nameFlag()
}

func (a *app) nameFlag() string {
	if a.name == "" {
		return ""
	}
	return " --name " + a.name
}

// A card is what a rank tells the others, in msgpack.
type card struct {
	Role    string `msgpack:"role"`
	Host    string `msgpack:"host"`
	Secret  []byte `msgpack:"secret"`  // of the job, from rank 0
	Address string `msgpack:"address"` // where a DPU listens for other hosts
}

// meetLaunched meets the other ranks through the launcher: one is the DPU. In the first
// round each rank says what it is, and rank 0 gives the key, which so is the job's;
// in the second the DPU says where it listens. Cards travel where only the job's processes
// are.
func (a *app) meetLaunched(ctx context.Context) (*meeting, error) {
	client, err := pmi.DialContext(ctx, a.env.Server())
	if err != nil {
		return nil, err
	}
	m := &meeting{launcher: client, clients: client.Size() - 1}
	if err := a.meetRanks(ctx, m); err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (a *app) meetRanks(ctx context.Context, m *meeting) error {
	client := m.launcher
	hostname, _ := os.Hostname()
	own := card{Role: a.role, Host: a.env.Job + "/" + a.env.Host + "/" + hostname}
	if client.Rank() == 0 {
		own.Secret = make([]byte, 32)
		rand.Read(own.Secret)
	}
	all, err := gather(ctx, client, own)
	if err != nil {
		return err
	}
	dpu, err := roles(all)
	if err != nil {
		return err
	}
	if a.key = all[0].Secret; len(a.key) < comch.MinKey {
		return errors.New("rank 0 gave no key")
	}
	a.role, a.clients = roleHost, m.clients
	if client.Rank() == dpu {
		a.role = roleDPU
	}
	// With one end on another host all use the listener that it can reach.
	elsewhere := slices.ContainsFunc(all, func(c card) bool { return c.Host != all[dpu].Host })
	// A name that only this job knows.
	name := fmt.Sprintf("secure-channel\x00%s\x00%x", a.name, sha256.Sum256(a.key))
	second := card{}
	if a.role == roleDPU {
		if elsewhere {
			m.listener, err = comch.ListenTLS(a.config(name), ":0")
		} else {
			m.listener, err = comch.Listen(a.config(name))
		}
		if err == nil && elsewhere {
			second.Address, err = reachable(m.listener.Addr())
		}
	}
	if err != nil {
		return a.explain(err)
	}
	if all, err = gather(ctx, client, second); err != nil {
		return err
	}
	if a.role == roleDPU {
		a.Log.Info(saidListening)
		return nil
	}
	m.conn, err = a.dial(ctx, name, all[dpu].Address)
	return err
}

// gather is every rank's card, by rank. All ranks call it; it blocks until they have.
func gather(ctx context.Context, client *pmi.Client, own card) ([]card, error) {
	b, err := pack.Marshal(own)
	if err != nil {
		return nil, err
	}
	packed, err := client.AllGather(ctx, b)
	all := make([]card, len(packed))
	for i, b := range packed {
		if err := pack.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("rank %d is no secure-channel of this version: %w", i, err)
		}
	}
	return all, err
}

// roles finds the DPU: the one rank that says so, else rank 0.
func roles(all []card) (dpu int, err error) {
	dpu = -1
	for i, c := range all {
		if c.Role != roleDPU {
			continue
		}
		if dpu >= 0 {
			return 0, fmt.Errorf("ranks %d and %d are both the DPU: expected --role dpu for one of them and --role host for the other", dpu, i)
		}
		dpu = i
	}
	if dpu < 0 {
		if all[0].Role == roleHost {
			return 0, errors.New("no rank is the DPU: start one with --role dpu")
		}
		dpu = 0
	}
	return dpu, nil
}

// reachable is the address that other hosts use for a listener at a port of all
// interfaces.
func reachable(listens string) (string, error) {
	_, port, err := net.SplitHostPort(listens)
	if err != nil {
		return "", err
	}
	// No packet is sent: the kernel says which address it would use towards others.
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return net.JoinHostPort("127.0.0.1", port), nil // a machine without a network
	}
	defer conn.Close()
	host, _, err := net.SplitHostPort(conn.LocalAddr().String())
	return net.JoinHostPort(host, port), err
}
