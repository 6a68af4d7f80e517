package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rdma"
)

// What --op names.
const (
	opTutorial = "tutorial"
	opWrite    = "write"
	opWriteImm = "write_imm"
	opRead     = "read"
	opSend     = "send"
	opAtomic   = "atomic"
)

var operations = []string{opTutorial, opWrite, opWriteImm, opRead, opSend, opAtomic}

// transports are what --qp names.
var transports = []struct {
	name string
	typ  rdma.QPType
	ops  []string
}{
	{"rc", rdma.RC, operations},
	{"uc", rdma.UC, []string{opWrite, opWriteImm, opSend}},
	{"ud", rdma.UD, []string{opSend}},
	{"xrc", rdma.XRCSend, operations},
	{"dc", rdma.DCI, operations},
}

// peerIBV is the --peer that speaks another program's protocol.
const peerIBV = "ibv_rc_pingpong"

// defaultPort is where servers listen, as rdma-core's examples do.
const defaultPort = "18515"

// tutorialPort is where the server of the tutorial with arguments listens.
const tutorialPort = "12025"

// sizeMost is the largest message of --all.
const sizeMost = 8 << 20

// atomicSize is the length of an atomic operation.
const atomicSize = 8

// params is what the command line says.
type params struct {
	launched bool // by gorun or another launcher, as two ranks

	deviceName string
	gidIndex   int // -1: the first that is set
	op, qp     string
	transport  rdma.QPType
	size       int // the largest, with all
	all        bool
	pairs      int
	both       bool // ends move data at the same time
	inline     int  // most bytes sent inline; -1: by default
	iterations int
	warmup     int
	depth      int
	mtu        int
	listen     string
	connect    string
	peer       string
	timeoutMS  int
}

// newParser declares the flags.
func newParser(launched bool) (*doca.Parser, *params) {
	p := &params{launched: launched, gidIndex: -1, op: opTutorial, qp: "rc", transport: rdma.RC, size: 4096, pairs: 1, inline: -1, iterations: 1000, warmup: -1,
		depth: 128, timeoutMS: 6000}
	parser := doca.New("pingpong", "Two ends write and read each other's memory over RDMA and time it. Without --connect, pingpong is the server;\n"+
		"under gorun -np 2 the ends are the two ranks. LOCAL_IP DEVICE are the tutorial's arguments, with REMOTE_IP for its client.", version.Line("pingpong"))
	parser.String(&p.deviceName, doca.Flag{Long: "device", Short: 'd', Value: "NAME", Help: "RDMA device to use (default: soft0, the software device)"})
	parser.Int(&p.gidIndex, doca.Flag{Long: "gid-index", Short: 'g', Value: "N", Check: doca.Within(&p.gidIndex, 0, math.MaxUint8),
		Help: "index in the port's GID table (default: the first valid entry)"})
	parser.String(&p.qp, doca.Flag{Long: "qp", Value: "rc|uc|ud|xrc|dc", Check: p.checkQP, Help: "transport (default rc)"})
	parser.String(&p.op, doca.Flag{Long: "op", Value: "OP", Check: doca.OneOf(&p.op, operations...),
		Help: "measure write, write_imm, read, send or atomic (default: the tutorial, one write and one read)"})
	parser.Int(&p.size, doca.Flag{Long: "size", Short: 's', Value: "BYTES", Check: doca.Within(&p.size, 1, 1<<30),
		Help: "message size in bytes (default 4096)"})
	parser.Bool(&p.all, doca.Flag{Long: "all", Short: 'a', Check: func() error {
		if parser.Given("size") {
			return errors.New("found -a beside -s, expected one size or all")
		}
		return nil
	}, Help: "measure every power of two from 2 bytes to 8 MiB"})
	parser.Int(&p.iterations, doca.Flag{Long: "iterations", Short: 'n', Value: "N", Check: doca.Within(&p.iterations, 1, 1<<30),
		Help: "number of round trips to time, and of messages for the bandwidth (default 1000)"})
	parser.Int(&p.warmup, doca.Flag{Long: "warmup", Short: 'w', Value: "N", Check: doca.Within(&p.warmup, 0, 1<<30),
		Help: "number of warm-up round trips (default: a tenth of -n)"})
	parser.Int(&p.depth, doca.Flag{Long: "depth", Value: "N", Check: doca.Within(&p.depth, 2, 1<<14),
		Help: "number of outstanding requests when measuring bandwidth (default 128)"})
	parser.Int(&p.pairs, doca.Flag{Long: "qps", Short: 'q', Value: "N", Check: doca.Within(&p.pairs, 1, 1<<10),
		Help: "number of queue pairs when measuring bandwidth, each with its --depth and its share of -n (default 1)"})
	parser.Bool(&p.both, doca.Flag{Long: "bidirectional", Short: 'b', Help: "measure the bandwidth of both directions at the same time, and print their sum"})
	parser.Int(&p.inline, doca.Flag{Long: "inline-size", Short: 'I', Value: "BYTES", Check: doca.Within(&p.inline, 0, 1<<20),
		Help: "longest message that is sent inline, copied when it is posted (default: 220, less where the device has less)"})
	parser.Int(&p.mtu, doca.Flag{Long: "mtu", Short: 'm', Value: "BYTES", Check: p.checkMTU,
		Help: "path MTU: 256, 512, 1024, 2048 or 4096 (default: the port's; 1024 with --peer)"})
	parser.String(&p.listen, doca.Flag{Long: "listen", Value: "HOST:PORT", Check: func() error { return p.checkAddress(&p.listen) },
		Help: "address where the server waits for its client (default 127.0.0.1:18515: only this machine)"})
	parser.String(&p.connect, doca.Flag{Long: "connect", Short: 'c', Value: "HOST[:PORT]", Check: func() error { return p.checkAddress(&p.connect) },
		Help: "connect to this server as its client"})
	parser.String(&p.peer, doca.Flag{Long: "peer", Value: peerIBV, Check: p.checkPeer,
		Help: "the other end is this program of rdma-core; both need the same size, iterations and MTU"})
	parser.Int(&p.timeoutMS, doca.Flag{Long: "timeout", Value: "MS", Check: doca.Within(&p.timeoutMS, 1, 1<<30),
		Help: "give up when the peer sends nothing for MS milliseconds (default 6000); a server waits for its client without limit"})
	parser.Words("[LOCAL_IP DEVICE [REMOTE_IP]]", p.takeWords)
	parser.Results()
	return parser, p
}

// takeWords takes the tutorial's arguments: an end's own address and its device, and, for the client, the server's address.
func (p *params) takeWords(words []string) error {
	switch {
	case p.launched:
		return fmt.Errorf("found the argument %q, but under a launcher the ends find each other through it", words[0])
	case len(words) < 2 || len(words) > 3:
		return fmt.Errorf("found %d arguments, expected LOCAL_IP DEVICE, and REMOTE_IP for the client", len(words))
	case p.deviceName != "" || p.listen != "" || p.connect != "":
		return fmt.Errorf("found the arguments %q beside -d, --listen or --connect, which say the same", words)
	}
	for _, ip := range append([]string{words[0]}, words[2:]...) {
		if _, err := netip.ParseAddr(ip); err != nil {
			return fmt.Errorf("found %q, expected an IP address: LOCAL_IP DEVICE [REMOTE_IP]", ip)
		}
	}
	p.deviceName = words[1]
	if len(words) == 3 {
		p.connect = net.JoinHostPort(words[2], tutorialPort)
	} else {
		p.listen = net.JoinHostPort(words[0], tutorialPort)
	}
	return nil
}

func (p *params) checkQP() error {
	names := make([]string, 0, len(transports))
	for _, t := range transports {
		if t.name == p.qp {
			p.transport = t.typ
			return nil
		}
		names = append(names, t.name)
	}
	return fmt.Errorf("found %q, expected %s", p.qp, strings.Join(names, ", "))
}

func (p *params) checkMTU() error {
	for m := rdma.MTU256; m <= rdma.MTU4096; m++ {
		if m.Bytes() == p.mtu {
			return nil
		}
	}
	return fmt.Errorf("found %d, expected 256, 512, 1024, 2048 or 4096", p.mtu)
}

// checkAddress puts the default port behind a host without one.
func (p *params) checkAddress(addr *string) error {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the ends find each other through it", *addr)
	}
	if _, _, err := net.SplitHostPort(*addr); err != nil {
		*addr = net.JoinHostPort(strings.Trim(*addr, "[]"), defaultPort)
	}
	if _, _, err := net.SplitHostPort(*addr); err != nil {
		return fmt.Errorf("found %q, expected HOST:PORT: %w", *addr, err)
	}
	if p.listen != "" && p.connect != "" {
		return fmt.Errorf("found both --listen and --connect, expected one: a server or a client")
	}
	return nil
}

func (p *params) checkPeer() error {
	switch {
	case p.peer != peerIBV:
		return fmt.Errorf("found %q, expected %s", p.peer, peerIBV)
	case p.launched:
		return fmt.Errorf("%s is no rank of a launcher's: start this end without one", peerIBV)
	}
	return nil
}

// settle judges the flags together, and fills in what depends on others.
func (p *params) settle() error {
	for _, t := range transports {
		if t.typ == p.transport && !slices.Contains(t.ops, p.op) {
			if p.op == opTutorial {
				return fmt.Errorf("--qp %s needs --op %s: the tutorial reads, which %v cannot", p.qp, strings.Join(t.ops, " or "), p.transport)
			}
			return fmt.Errorf("--qp %s cannot %s: expected --op %s", p.qp, p.op, strings.Join(t.ops, " or "))
		}
	}
	more := p.all || p.both || p.pairs > 1
	if p.peer == peerIBV && (p.op != opTutorial || p.transport != rdma.RC || more) {
		return fmt.Errorf("--peer %s exchanges sends on one RC queue pair: leave out --op and --qp, and -a, -b and -q", peerIBV)
	}
	if p.op == opTutorial && more {
		return fmt.Errorf("-a, -b and -q are of a measurement: add --op %s", strings.Join(operations[1:], ", "))
	}
	if p.op == opAtomic && p.all {
		return fmt.Errorf("--op atomic has the one size of %d bytes: leave out -a", atomicSize)
	}
	if p.op == opAtomic {
		p.size = atomicSize
	}
	if p.all {
		p.size = sizeMost
	}
	if p.warmup < 0 {
		p.warmup = max(1, p.iterations/10)
	}
	p.listen = cmp.Or(p.listen, net.JoinHostPort("127.0.0.1", defaultPort))
	return nil
}

// refuse is for GORUN_SECURE=1 without a launcher: the ends have no secret that they could encrypt by.
func (p *params) refuse(parser *doca.Parser) error {
	flag := "listen"
	if p.connect != "" {
		flag = "connect"
	}
	return parser.Wrong(flag, "found GORUN_SECURE=1, and a connection by address is not encrypted: start both ends by gorun --secure -np 2, or unset GORUN_SECURE")
}

func (p *params) timeout() time.Duration { return time.Duration(p.timeoutMS) * time.Millisecond }

// task is what both ends must have said alike.
type task struct {
	Op         string `json:"op"`
	QP         string `json:"qp"`
	Size       int    `json:"size"`
	All        bool   `json:"all,omitempty"`
	Pairs      int    `json:"qps"`
	Both       bool   `json:"bidirectional,omitempty"`
	Iterations int    `json:"iterations"`
	Warmup     int    `json:"warmup"`
	Depth      int    `json:"depth"`
}

func (p *params) task() task {
	return task{p.op, p.qp, p.size, p.all, p.pairs, p.both, p.iterations, p.warmup, p.depth}
}

func (t task) String() string {
	size, both := fmt.Sprintf("--size %d", t.Size), ""
	if t.All {
		size = "--all"
	}
	if t.Both {
		both = " --bidirectional"
	}
	return fmt.Sprintf("--op %s --qp %s %s --iterations %d --warmup %d --depth %d --qps %d%s", t.Op, t.QP, size, t.Iterations, t.Warmup, t.Depth, t.Pairs, both)
}
