package rank

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// loopback is where software devices listen when all hosts of the job are this
// machine.
const loopback = "127.0.0.1:0"

// secretLen is the length of a job's secret for links between hosts.
const secretLen = 32

// A place is where a rank is: which host, and what it shares with which ranks there.
type place struct {
	host     string // for people
	identity string // of the segment: ranks with the same one share it
	segment  *shm.Segment
	owned    bool // the segment is ours to close
	whole    bool // all ranks of the world are known to have the segment
	watched  bool // the launcher sets the segment's dead flags
	local    int  // rank in the segment
	size     int  // ranks in the segment
	seat     int  // which of the CPUs is its own; local, unless hosts share their CPUs
	cpus     int  // that it may run on
	largest  int  // ranks on the host that has most
	together bool // another rank is in this process
	sharers  int  // ranks that share these, itself included; 0: all of the segment
	secret   []byte
	listen   string
	why      string // it is listen's address, where the rank has found that out; else ""
}

// maps tells whether the memory of the rank with a card can be mapped: ranks that share a segment see each other.
func (p *place) maps(card *wireup.Card) bool {
	return p.segment != nil && card.Place == p.identity && card.Local < p.segment.Ranks()
}

func (p *place) close() error {
	if p.segment != nil && p.owned {
		return p.segment.Close()
	}
	return nil
}

// findPlace learns the rank's place from gorun, or finds out with the others
// under another launcher.
func findPlace(ctx context.Context, env *Environment, exchange wireup.Exchange, rank, size int) (*place, error) {
	if env.Gorun {
		return gorunPlace(ctx, env, exchange, rank, size)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	p := &place{host: host, size: 1, cpus: env.CPUs, listen: loopback}
	if p.cpus == 0 {
		p.cpus = topo.CPUs()
	}
	if size == 1 {
		return p, nil
	}
	return foreignPlace(ctx, p, env.Interface, exchange, rank, size)
}

// gorunPlace is a rank's place as gorun tells it.
func gorunPlace(ctx context.Context, env *Environment, exchange wireup.Exchange, rank, size int) (*place, error) {
	p := &place{host: env.Host, identity: env.Job + "/" + env.Host, owned: true, watched: true,
		local: env.LocalRank, seat: env.LocalRank, size: env.LocalSize, cpus: env.CPUs, sharers: env.CPURanks, listen: loopback}
	if env.Address != "" {
		at, err := netip.ParseAddr(env.Address)
		if err != nil {
			return nil, fmt.Errorf("GORUN_ADDRESS: %w", err)
		}
		p.listen = netip.AddrPortFrom(at, 0).String()
	}
	if p.cpus == 0 {
		p.cpus = topo.CPUs()
	}
	if env.SegmentFD < 0 {
		// gorun may make no memory that processes share, and has said so.
		p.alone()
	} else if err := p.share(env.SegmentFD); err != nil {
		return nil, err
	} else if p.size == size {
		p.whole, p.largest = true, size
		return p, nil
	}
	// The others are reached over TCP, whose secret rank 0 makes.
	own := wireup.Greeting{Host: p.host, Kernel: bootID(), CPUs: topo.Allowed().String(), Limit: limit(), PID: os.Getpid()}
	all, err := greet(ctx, exchange, &own, rank)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.secret, p.largest = all[0].Secret, largest(all, func(g *wireup.Greeting) string { return g.Host })
	p.shareCPUs(all, rank)
	return p, nil
}

// share opens the segment that the launcher hands on.
func (p *place) share(fd int) (err error) {
	if p.segment, err = shm.Open(fd); err != nil {
		return fmt.Errorf("GORUN_SEGMENT=%d: %w", fd, err)
	}
	if p.segment.Ranks() < p.size {
		return errors.Join(fmt.Errorf("GORUN_SEGMENT=%d has room for %d ranks, but GORUN_LOCAL_SIZE is %d", fd, p.segment.Ranks(), p.size), p.close())
	}
	return nil
}

// alone makes the rank a place of its own, which reaches everybody over TCP.
func (p *place) alone() { p.segment, p.identity, p.local, p.owned = nil, "", 0, false }

// shareCPUs takes note of ranks on other hosts that run on the CPUs of this one: hosts
// may be agents, containers or namespaces of one machine. Without it a rank of each
// would want the same CPU. Ranks that the launcher has bound are left to it, and containers
// with CPUs or a quota of their own share nothing.
func (p *place) shareCPUs(all []wireup.Greeting, rank int) {
	own := &all[rank]
	if own.Kernel == "" || p.sharers != 0 && p.sharers != p.size {
		return
	}
	mine, _ := topo.ParseSet(own.CPUs)
	before, sharers := 0, 0
	for i := range all {
		if g := &all[i]; g.Kernel != own.Kernel || g.Limit != own.Limit || g.CPUs != own.CPUs && !meet(mine, g.CPUs) {
			continue
		}
		if sharers++; i < rank {
			before++
		}
	}
	if sharers > p.size {
		p.seat, p.sharers = before, sharers
		if sharers > p.cpus {
			// Neighbours get the same CPU: a rank yields to those of its own session or control
			// group, while one of another host keeps the CPU for a whole slice of time.
			p.seat = before * p.cpus / sharers
		}
	}
}

// meet tells whether CPUs are among those of a greeting. Where either are not known they are.
func meet(mine topo.Set, theirs string) bool {
	s, err := topo.ParseSet(theirs)
	return err != nil || mine.Len() == 0 || s.Len() == 0 || mine.And(s).Len() > 0
}

// limit names the quota of CPU time that this process has, with others perhaps; "": none limits it.
func limit() string {
	at := topo.Limit()
	if at != "" {
		at = namespace("cgroup") + " " + at
	}
	return at
}

// largest is how many ranks the place has that has most.
func largest(all []wireup.Greeting, place func(*wireup.Greeting) string) (most int) {
	count := make(map[string]int)
	for i := range all {
		at := place(&all[i])
		count[at]++
		most = max(most, count[at])
	}
	return most
}

// greet exchanges greetings; rank 0's carries a secret that it makes.
func greet(ctx context.Context, exchange wireup.Exchange, own *wireup.Greeting, rank int) ([]wireup.Greeting, error) {
	if rank == 0 {
		own.Secret = make([]byte, secretLen)
		if _, err := rand.Read(own.Secret); err != nil {
			return nil, fmt.Errorf("job secret: %w", err)
		}
	}
	cards, err := exchange.AllGather(ctx, own.Pack())
	if err != nil {
		return nil, fmt.Errorf("exchange of host names: %w", err)
	}
	all := make([]wireup.Greeting, len(cards))
	for i, card := range cards {
		if all[i], err = wireup.ParseGreeting(card); err != nil {
			return nil, fmt.Errorf("rank %d: %w", i, err)
		}
	}
	if len(all[0].Secret) != secretLen {
		return nil, fmt.Errorf("rank 0 sent a secret of %d bytes, expected %d", len(all[0].Secret), secretLen)
	}
	return all, nil
}

// foreignPlace finds the ranks of this machine under a launcher that gives no
// segment: the lowest of them makes it, the others open it through /proc. A rank that
// may not is a place of its own and reaches everybody over TCP. chosen is what the user says
// of the network between hosts.
func foreignPlace(ctx context.Context, p *place, chosen string, exchange wireup.Exchange, rank, size int) (*place, error) {
	here, err := reach.Here()
	if err != nil {
		here = nil // sandboxes without netlink: ranks of one machine need none
	}
	own := wireup.Greeting{Host: p.host, Machine: machine(), Kernel: bootID(), CPUs: topo.Allowed().String(), Limit: limit(), PID: os.Getpid(), Network: network(p.host)}
	for _, a := range reach.Outer(here) {
		own.Nets = append(own.Nets, a.Prefix)
	}
	all, err := greet(ctx, exchange, &own, rank)
	if err != nil {
		return nil, err
	}
	if len(all) != size {
		return nil, fmt.Errorf("exchange of host names: got %d in a job of %d ranks", len(all), size)
	}
	p.secret, p.size = all[0].Secret, 0
	p.largest = largest(all, func(g *wireup.Greeting) string { return g.Machine })
	lowest := -1
	for i := range all {
		if all[i].Machine != own.Machine {
			continue
		}
		if lowest < 0 {
			lowest = i
		}
		if i == rank {
			p.local, p.seat = p.size, p.size
		} else if all[i].PID == own.PID {
			p.together = true
		}
		p.size++
	}
	if p.listen, p.why, err = listenAt(&own, all, here, chosen); err != nil {
		return nil, err
	}
	p.identity = own.Machine + "/" + strconv.Itoa(lowest)
	p.shareCPUs(all, rank)
	fd := -1
	if lowest == rank {
		s, err := shm.Create(shm.DefaultGeometry(p.size, shm.Limit()))
		switch {
		case err == nil:
			p.segment, p.owned, fd = s, true, s.FD()
		case errors.Is(err, errors.ErrUnsupported):
			p.alone()
		default:
			return nil, err
		}
	}
	// All take part, whether their host has a segment or not.
	cards, err := exchange.AllGather(ctx, strconv.AppendInt(nil, int64(fd), 10))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("exchange of segments: %w", err), p.close())
	}
	if lowest != rank {
		if fd, err = strconv.Atoi(string(cards[lowest])); err == nil && fd >= 0 {
			p.segment, err = shm.OpenPeer(all[lowest].PID, fd)
		}
		if err != nil || p.segment == nil || p.segment.Ranks() != p.size {
			if err := p.close(); err != nil {
				return p, err
			}
			p.alone()
		}
		p.owned = p.segment != nil
	}
	if p.size < size {
		return p, nil
	}
	// Each may have failed to open it.
	have := []byte{0}
	if p.segment != nil {
		have[0] = 1
	}
	if cards, err = exchange.AllGather(ctx, have); err != nil {
		return nil, errors.Join(fmt.Errorf("exchange of segments: %w", err), p.close())
	}
	p.whole = !slices.ContainsFunc(cards, func(card []byte) bool { return !bytes.Equal(card, []byte{1}) })
	return p, nil
}

// listenAt is where a rank under a foreign launcher listens for those of other machines, and why
// there: at the address in the network that the user names, else the one in a network with most
// of the other hosts, else the one from which packets go to another host.
func listenAt(own *wireup.Greeting, all []wireup.Greeting, here []reach.Address, chosen string) (listen, why string, err error) {
	var hosts []string
	var others [][]netip.Prefix
	for i := range all {
		if g := &all[i]; g.Network != own.Network && !slices.Contains(hosts, g.Network) {
			hosts, others = append(hosts, g.Network), append(others, g.Nets)
		}
	}
	at := func(a netip.Addr) string { return netip.AddrPortFrom(a, 0).String() }
	if chosen != "" {
		a, err := reach.Named(here, interfaceVar, chosen)
		return at(a), interfaceVar + " is " + chosen, err
	}
	if len(hosts) == 0 {
		return loopback, "", nil
	}
	if a, n := reach.Shared(own.Nets, others); n > 0 {
		return at(a), fmt.Sprintf("%d of %d other hosts have an address in its network", n, len(hosts)), nil
	}
	for _, p := range slices.Concat(others...) {
		if a, ok := reach.Toward(p.Addr().String()); ok {
			return at(a), "the route to " + p.Addr().String() + " begins there", nil
		}
	}
	first, err := reach.First(here, interfaceVar+"=NAME or CIDR")
	return at(first.Prefix.Addr()), "it is that of the first of the interfaces, " + first.Interface, err
}

// bootID names the running kernel, "" where it is not known.
func bootID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot))
}

// machine names what processes must have in common to open each other's
// descriptors: the running kernel, its process namespace and the user.
func machine() string {
	boot := bootID()
	if boot == "" {
		// Nobody is known to share it.
		return "process " + strconv.Itoa(os.Getpid()) + " " + rand.Text()
	}
	return boot + " " + namespace("pid") + " " + strconv.Itoa(os.Getuid())
}

// network names what processes have in common that reach each other by the loopback address:
// the running kernel, or the host's name where that does not show, and its network namespace.
func network(host string) string { return cmp.Or(bootID(), host) + " " + namespace("net") }

func namespace(kind string) string {
	space, err := os.Readlink("/proc/self/ns/" + kind)
	if err != nil {
		return "?"
	}
	return space
}
