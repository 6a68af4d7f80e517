package rank

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// loopback is where software devices listen when all hosts of the job are this
// machine; anywhere is for jobs that span machines.
const (
	loopback = "127.0.0.1:0"
	anywhere = ":0"
)

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
	cpus     int  // that it may run on
	largest  int  // ranks on the host that has most
	sharers  int  // ranks that share these, itself included; 0: all of the segment
	secret   []byte
	listen   string
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
	return foreignPlace(ctx, p, exchange, rank, size)
}

// gorunPlace is a rank's place as gorun tells it.
func gorunPlace(ctx context.Context, env *Environment, exchange wireup.Exchange, rank, size int) (*place, error) {
	p := &place{host: env.Host, identity: env.Job + "/" + env.Host, owned: true, watched: true,
		local: env.LocalRank, size: env.LocalSize, cpus: env.CPUs, sharers: env.CPURanks, listen: loopback}
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
		return nil, errors.New("GORUN_SEGMENT is not set, although gorun started this rank")
	}
	var err error
	if p.segment, err = shm.Open(env.SegmentFD); err != nil {
		return nil, fmt.Errorf("GORUN_SEGMENT=%d: %w", env.SegmentFD, err)
	}
	if p.segment.Ranks() < p.size {
		return nil, errors.Join(fmt.Errorf("GORUN_SEGMENT=%d has room for %d ranks, but GORUN_LOCAL_SIZE is %d", env.SegmentFD, p.segment.Ranks(), p.size), p.close())
	}
	if p.size == size {
		p.whole, p.largest = true, size
		return p, nil
	}
	// Other hosts are reached over TCP, whose secret rank 0 makes.
	own := wireup.Greeting{Host: p.host, PID: os.Getpid()}
	all, err := greet(ctx, exchange, &own, rank)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	p.secret, p.largest = all[0].Secret, largest(all, func(g *wireup.Greeting) string { return g.Host })
	return p, nil
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
// segment: the lowest of them makes it, the others open it through /proc. Who
// may not is a place of its own and reaches everybody over TCP.
func foreignPlace(ctx context.Context, p *place, exchange wireup.Exchange, rank, size int) (*place, error) {
	own := wireup.Greeting{Host: p.host, Machine: machine(), PID: os.Getpid()}
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
			p.listen = anywhere
			continue
		}
		if lowest < 0 {
			lowest = i
		}
		if i == rank {
			p.local = p.size
		}
		p.size++
	}
	p.identity = own.Machine + "/" + strconv.Itoa(lowest)
	fd := -1
	if lowest == rank {
		s, err := shm.Create(shm.DefaultGeometry(p.size, shm.Limit()))
		if err != nil {
			return nil, err
		}
		p.segment, p.owned, fd = s, true, s.FD()
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
			p.segment, p.identity, p.local = nil, "", 0
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

// machine names what processes must have in common to open each other's
// descriptors: the running kernel, its process namespace and the user.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		// Nobody is known to share it.
		return "process " + strconv.Itoa(os.Getpid()) + " " + rand.Text()
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		space = "?"
	}
	return strings.TrimSpace(string(boot)) + " " + space + " " + strconv.Itoa(os.Getuid())
}
