package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/pmi"
	"github.com/hashicorp/memberlist"
)

// Errors that callers branch on.
var (
	ErrClosed = errors.New("gossip closed")       // the node was closed meanwhile
	ErrLost   = errors.New("host lost")           // a host of the job is dead, or has left
	ErrKey    = errors.New("the job key differs") // the other host holds another key
)

// KeySize is the length of Config.Key in bytes.
const KeySize = 32

// Config is one host's place in the job.
type Config struct {
	Host   string    // name of this host, unique in the job; no blanks
	Index  int       // of this host, from 0
	Hosts  int       // of the job
	Bind   string    // IP:port to listen on, TCP and UDP; port 0: any free one; empty: 127.0.0.1:0
	Key    []byte    // the job's, KeySize random bytes
	Log    io.Writer // memberlist's log lines; nil: silent
	Fanout int       // children of a host in the tree of a fence; 0: 8

	// Dial connects to another node, in place of a plain dial, which it is where this is nil.
	Dial func(address string, limit time.Duration) (net.Conn, error)

	Transport memberlist.Transport // instead of sockets on Bind, for tests; nil: sockets

	// How fast memberlist finds dead hosts; zero: its values for local networks,
	// at which it takes 4 seconds and more. A shorter probe interval makes busy
	// hosts look dead.
	ProbeInterval, ProbeTimeout time.Duration

	circle   int           // the most hosts that memberlist keeps together; 0: circleMost
	unproven time.Duration // how long a process may take to prove the key, and to say which host it is; 0: unprovenTime
}

// A Node is one host's member of a job. Its methods are safe for concurrent use.
type Node struct {
	cfg   Config
	conns *transport
	list  *memberlist.Memberlist

	addr string

	suspects chan string
	joins    chan struct{} // holds one when seen has changed
	bereft   chan struct{} // closed when a host is lost
	closed   chan struct{}
	running  sync.WaitGroup
	branches map[int]*branch // by host: the neighbours in the tree; it never changes
	opened   atomic.Int64    // connections of the tree so far, for tests

	mu      sync.Mutex
	fences  *fences
	addrs   map[int]string // by host index, those of Needs, once Join knows them
	names   []string       // the same, once Join is complete
	seen    []bool         // by host index: it is a member
	lost    map[string]bool
	stopped bool
	waits   map[uint64]*wait // by epoch
	prober  *time.Timer      // calls probe
	probes  bool             // it is set
}

var _ pmi.Store = (*Node)(nil)

// Listen makes a node that others can join. It knows nobody yet.
func Listen(cfg Config) (*Node, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	n := &Node{
		cfg:      cfg,
		suspects: make(chan string, cfg.Hosts),
		joins:    make(chan struct{}, 1),
		seen:     make([]bool, cfg.Hosts),
		bereft:   make(chan struct{}),
		closed:   make(chan struct{}),
		fences:   newFences(cfg.Index, cfg.Hosts, cfg.Fanout),
		lost:     make(map[string]bool),
		branches: make(map[int]*branch),
		waits:    make(map[uint64]*wait),
	}
	n.prober = time.AfterFunc(time.Hour, n.probe)
	n.prober.Stop()
	for _, child := range n.fences.children() {
		n.branches[child] = newBranch(child)
	}
	if cfg.Index > 0 {
		n.branches[n.fences.parent()] = newBranch(n.fences.parent())
	}
	mc, err := n.memberConfig()
	if err == nil {
		n.list, err = memberlist.Create(mc)
	}
	if err != nil {
		if n.conns != nil {
			_ = n.conns.Shutdown()
		}
		return nil, fmt.Errorf("gossip: host %s: listen on %s: %w", cfg.Host, cfg.Bind, err)
	}
	n.addr = n.list.LocalNode().Address()
	n.conns.known(n.addr)
	return n, nil
}

func (cfg *Config) validate() error {
	cfg.Bind = cmp.Or(cfg.Bind, "127.0.0.1:0")
	cfg.Fanout = cmp.Or(cfg.Fanout, 8)
	cfg.circle = cmp.Or(cfg.circle, circleMost)
	cfg.unproven = cmp.Or(cfg.unproven, unprovenTime)
	switch {
	case cfg.Host == "" || strings.ContainsAny(cfg.Host, " \n"):
		return fmt.Errorf("gossip: Config.Host %q: want a name without blanks", cfg.Host)
	case cfg.Hosts < 1 || cfg.Index < 0 || cfg.Index >= cfg.Hosts:
		return fmt.Errorf("gossip: host %s: Config.Index %d of %d hosts", cfg.Host, cfg.Index, cfg.Hosts)
	case len(cfg.Key) != KeySize:
		return fmt.Errorf("gossip: host %s: Config.Key has %d bytes, want %d", cfg.Host, len(cfg.Key), KeySize)
	case cfg.Fanout < 0:
		return fmt.Errorf("gossip: host %s: Config.Fanout %d", cfg.Host, cfg.Fanout)
	}
	return nil
}

// memberConfig is memberlist's configuration for local networks, which is also
// the fastest on loopback, without compression, which only costs time here.
func (n *Node) memberConfig() (*memberlist.Config, error) {
	mc := memberlist.DefaultLANConfig()
	mc.Name = strconv.Itoa(n.cfg.Index) + ":" + n.cfg.Host
	mc.SecretKey = n.cfg.Key
	mc.EnableCompression = false
	mc.Delegate = delegate{n}
	mc.Events = delegate{n}
	if n.cfg.ProbeInterval > 0 {
		mc.ProbeInterval = n.cfg.ProbeInterval
	}
	if n.cfg.ProbeTimeout > 0 {
		mc.ProbeTimeout = n.cfg.ProbeTimeout
	}
	mc.Logger = log.New(cmp.Or(n.cfg.Log, io.Discard), "", 0)

	under := n.cfg.Transport
	if under == nil {
		host, port, err := net.SplitHostPort(n.cfg.Bind)
		if err != nil {
			return nil, err
		}
		if net.ParseIP(host) == nil {
			return nil, fmt.Errorf("%q is not an IP address", host)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return nil, err
		}
		mc.BindAddr, mc.BindPort, mc.AdvertisePort = host, int(number), int(number)
		if under, err = listen(mc); err != nil {
			return nil, err
		}
	}
	server, client := n.secrets()
	n.conns = &transport{Transport: under, dials: under.DialTimeout, timeout: mc.TCPTimeout, unproven: n.cfg.unproven, prover: prover{n.cfg.Key}, server: server, client: client, climbed: n.climbed}
	if n.cfg.Dial != nil {
		n.conns.dials = n.cfg.Dial
	}
	n.conns.start()
	mc.Transport = n.conns
	return mc, nil
}

// Addr is where other hosts reach this one: IP:port.
func (n *Node) Addr() string { return n.addr }

func (n *Node) nameLocked(host int) string {
	if n.names != nil {
		return "host " + n.names[host]
	}
	if n.addrs[host] == "" {
		return fmt.Sprintf("host %d", host)
	}
	return fmt.Sprintf("host %d at %s", host, n.addrs[host])
}

// Lost says that a host is gone, which its owner alone decides: all fences that are not
// complete end, and Join does. why is what the error says of it.
func (n *Node) Lost(host, why string) {
	n.mu.Lock()
	defer n.leave()
	if n.stopped || n.lost[host] || host == n.cfg.Host {
		return
	}
	if len(n.lost) == 0 {
		close(n.bereft)
	}
	n.lost[host] = true
	n.fences.lose(fmt.Errorf("%w: %s: %s", ErrLost, host, why))
}

// loss is why the fences end, after bereft.
func (n *Node) loss() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return fmt.Errorf("gossip: join: %w", n.fences.failed)
}

// Suspects tells the names of hosts that memberlist takes for dead. It errs where a host is
// short of CPUs, or the network loses packets: a suspect's fences go on, and are complete
// when it answers. The channel is never closed; what nobody takes is dropped.
func (n *Node) Suspects() <-chan string { return n.suspects }

// suspect notes that memberlist takes a host for dead.
func (n *Node) suspect(host string) {
	select {
	case n.suspects <- host:
	default:
	}
}

// Close ends the node and its fences in progress, and waits for its goroutines, but for those of
// a dial under way: two of it live until the other host answers or memberlist's TCPTimeout, 10 s, is over, and
// close what comes of it. The others suspect it after a while.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.stopped {
		n.mu.Unlock()
		return nil
	}
	n.stopped = true
	n.prober.Stop()
	n.leave()
	close(n.closed)
	n.conns.closeAll()
	err := n.list.Shutdown()
	n.running.Wait()
	return err
}

// sendLocked has sent what the fences want sent. mu is held.
func (n *Node) sendLocked() {
	for _, o := range n.fences.take() {
		if waits := n.branches[o.to].put(o); !waits {
			n.fences.sent(o)
		}
	}
}

// repair sends again what a connection to the parent that has ended may have taken with it.
func (n *Node) repair() {
	n.mu.Lock()
	defer n.leave()
	n.fences.reconnected()
}

// receive takes a message out of a push-pull.
func (n *Node) receive(b []byte) {
	if m, err := parseMessage(b, n.cfg.Hosts); err == nil {
		n.take(m)
	}
}

// take takes a message.
func (n *Node) take(m message) {
	n.mu.Lock()
	defer n.leave()
	if n.stopped {
		return
	}
	n.fences.receive(m)
}
