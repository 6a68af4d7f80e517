package rank

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/meeting"
)

// Members are the processes of a world that no launcher starts. Each is told the addresses of all, and which is its own.
type Members struct {
	// Addresses are those of the members by rank, the same list for all members. The first is HOST:PORT, where rank 0
	// listens and the others meet it; each may have an address of its own for that. Of the others the port does not matter, and may be missing: members of other hosts
	// reach a member at its host, if that is an IP address or a name of its own host. Else it finds an address by itself.
	Addresses []string
	// Rank is this member's rank, its place in Addresses.
	Rank int
	// Listener is where rank 0 listens, if not at its address. Join closes it.
	Listener net.Listener
	// Key is a secret of 16 random bytes or more that all members know. It lets in nobody else; with Config.Secure it
	// also encrypts what goes to other hosts. nil: on one host the members belong to one user, says the kernel; of other hosts
	// everybody is let in, so the network must be trusted.
	Key []byte
	// Timeout is how long members may be missing; 0 is 30 s. It begins with Join.
	Timeout time.Duration
}

const (
	joinTimeout = 30 * time.Second
	joinKeyMin  = 16
)

// Join makes a world of members that no launcher has started, in place of [Init]. All members call it,
// in any order, and it returns when all have; [Members.Timeout] later it fails with an error that names
// those that are missing. Members of one host share memory, as under a launcher. A member that dies is known to the others of its host at
// once, and to those of other hosts when a connection ends. Abort ends this member alone, hence calls of the
// others. Config.Offload needs gorun.
func Join(ctx context.Context, m Members, cfg Config) (*World, error) {
	fail := func(err error) (*World, error) {
		return nil, &Error{Op: "join", Rank: m.Rank, Peer: -1, Err: err}
	}
	env, err := cfg.environment()
	if err != nil {
		return fail(err)
	}
	env.PMI, env.Gorun, env.Job, env.SegmentFD, env.Foreign = nil, false, "", -1, ""
	err = m.check(env.Secure)
	env.Secure = env.Secure || m.Key != nil && cfg.Secure != nil
	cfg.Environment = &env
	if err == nil {
		err = cfg.checkSecure()
	}
	if err == nil {
		cfg.Tuning, err = cfg.tuning(&env)
	}
	if err == nil {
		err = FindDevices(cfg)
	}
	if err == nil && m.Rank == 0 && m.Listener == nil {
		if m.Listener, err = net.Listen("tcp", m.Addresses[0]); err != nil {
			err = fmt.Errorf("%w: the first address is where rank 0 listens: a free port of an address of its host", err)
		}
	}
	if err != nil {
		return fail(err)
	}
	listed := ""
	if env.Interface == "" {
		listed = m.network()
		env.Interface = listed
	}
	met, err := meeting.Meet(ctx, meeting.Config{Addresses: m.Addresses, Rank: m.Rank, Listener: m.Listener, Key: m.Key, Timeout: cmp.Or(m.Timeout, joinTimeout), Log: cfg.Log})
	if err != nil {
		return fail(err)
	}
	return join(ctx, cfg, joined{met, listed != ""}, m.Rank, len(m.Addresses), wait.Config{})
}

// check judges the arguments. secure: the environment asks for encryption.
func (m *Members) check(secure bool) error {
	switch n := len(m.Addresses); {
	case n == 0:
		return badArgument("no addresses: expected that of each member")
	case m.Rank < 0 || m.Rank >= n:
		return badArgument("found rank %d, expected 0 to %d, the place of this member in the list of %d addresses", m.Rank, n-1, n)
	case m.Key != nil && len(m.Key) < joinKeyMin:
		return badArgument("found a key of %d bytes, expected %d random ones or more", len(m.Key), joinKeyMin)
	case secure && m.Key == nil:
		return badArgument("no key: GORUN_SECURE=1 asks for encryption, which needs one")
	}
	if _, port, err := net.SplitHostPort(m.Addresses[0]); err != nil || port == "" {
		return badArgument("found the first address %q, expected HOST:PORT, where rank 0 listens", m.Addresses[0])
	}
	return nil
}

// network is this member's address as [Environment].Interface has it; "": it is to be found.
func (m *Members) network() string {
	host, _, err := net.SplitHostPort(m.Addresses[m.Rank])
	if err != nil {
		host = m.Addresses[m.Rank] // without a port
	}
	all, err := net.LookupHost(host)
	here, _ := reach.Here()
	for _, text := range all {
		a, bad := netip.ParseAddr(text)
		for _, own := range here {
			if err == nil && bad == nil && own.Prefix.Addr() == a.Unmap() && !a.IsLoopback() {
				return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()).String()
			}
		}
	}
	return ""
}

// joined is a rank that has met the others by their addresses. Nobody ends the job: the others notice the end of
// this process.
type joined struct {
	*meeting.Meeting
	listed bool // other hosts reach it at its address in the list
}

func (joined) Abort(code int, message string) { alone{}.Abort(code, message) }
func (joined) Finalize() error                { return nil }
