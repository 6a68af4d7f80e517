package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/cmd/internal/argp"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// What --role and --mode name.
const (
	roleClient = "client"
	roleDaemon = "daemon"

	modeOffloaded = "offloaded"
	modeDirect    = "non-offloaded"
)

// defaultSize is what the original takes without -s.
const defaultSize = 65535

// params is what the command line says.
type params struct {
	launched bool // by gorun or another launcher, as one of several ranks
	alone    bool // as its only rank

	role, mode   string
	listenPort   int
	port         int
	addressList  string
	addresses    []string // HOST:PORT
	clients      int
	config       group.Config
	participants int
	keyFile      string
	key          []byte
	seconds      int
	output       string

	remarks []string // for the log
}

// newParser declares the flags, for one of so many ranks; 0: by hand.
func newParser(ranks int) (*argp.Parser, *params) {
	p := &params{launched: ranks > 1, alone: ranks == 1, mode: modeDirect, seconds: 30,
		config: group.Config{Size: defaultSize, Type: "byte", Operation: "sum", Algorithm: group.Auto}}
	c := &p.config
	parser := argp.New("allreduce", "Processes combine their vectors, and each gets the result; daemons do the work for offloaded clients.\n"+
		"Daemons and non-offloaded clients name each other with -a; an offloaded client names its daemon; ranks of gorun need no addresses.", version.Line("allreduce"))
	parser.OldLevels()
	one := func(name *string, of ...string) func() error {
		return func() error {
			if !slices.Contains(of, *name) {
				return fmt.Errorf("found %q, expected %s", *name, strings.Join(of, " or "))
			}
			return nil
		}
	}
	parser.String(&p.role, argp.Flag{Long: "role", Short: 'r', Value: "client|daemon", Mandatory: ranks == 0, Check: one(&p.role, roleClient, roleDaemon),
		Help: "what this process is" + map[bool]string{true: " (default: client; with -m offloaded rank 0 is the daemon)"}[ranks > 0]})
	parser.String(&p.mode, argp.Flag{Long: "mode", Short: 'm', Value: "MODE", Check: one(&p.mode, modeOffloaded, modeDirect),
		Help: "of a client: offloaded, its daemon does the work; or non-offloaded, it runs the algorithm itself (default non-offloaded)"})
	parser.Int(&p.listenPort, argp.Flag{Long: "listen-port", Short: 't', Value: "PORT", Check: func() error { return argp.Within(p.listenPort, 0, math.MaxUint16) },
		Help: "where a daemon or a non-offloaded client is reached (default 0: any, which is printed)"})
	parser.Int(&p.port, argp.Flag{Long: "port", Short: 'p', Value: "PORT", Check: func() error { return argp.Within(p.port, 0, math.MaxUint16) },
		Help: "port of addresses that have none"})
	parser.String(&p.addressList, argp.Flag{Long: "address", Short: 'a', Value: "HOST[:PORT],...", Check: p.parseAddresses,
		Help: "other participants, or the one daemon of an offloaded client; IPv6 as [fe80::1%eth0]:35001"})
	parser.Int(&p.clients, argp.Flag{Long: "num-clients", Short: 'c', Value: "N", Check: func() error { return argp.Within(p.clients, 0, 4096) },
		Help: "how many offloaded clients a daemon serves (default 0: it ends at once)"})
	parser.Int(&c.Size, argp.Flag{Long: "size", Short: 's', Value: "N", Check: p.checkSize,
		Help: fmt.Sprintf("length of the vectors in elements (default %d)", defaultSize)})
	parser.String(&c.Type, argp.Flag{Long: "datatype", Short: 'd', Value: "TYPE", Check: one(&c.Type, group.Types()...),
		Help: "byte (unsigned), int (32 bits), float or double (default byte)"})
	parser.String(&c.Operation, argp.Flag{Long: "operation", Short: 'o', Value: "OP", Check: one(&c.Operation, group.Operations()...),
		Help: "sum, prod, min or max (default sum)"})
	parser.Int(&c.Batch, argp.Flag{Long: "batch-size", Short: 'b', Value: "N", Mandatory: true, Check: func() error { return argp.Within(c.Batch, 1, 1<<20) },
		Help: "operations that are submitted together"})
	parser.Int(&c.Batches, argp.Flag{Long: "num-batches", Short: 'i', Value: "N", Mandatory: true, Check: func() error { return argp.Within(c.Batches, 1, 1<<20) },
		Help: "number of batches"})
	parser.String(&c.Algorithm, argp.Flag{Long: "algorithm", Value: "NAME", Check: one(&c.Algorithm, group.Algorithms()...),
		Help: strings.Join(group.Algorithms(), ", ") + " (default auto, by size and participants)"})
	parser.Int(&p.participants, argp.Flag{Long: "participants", Value: "N", Check: func() error { return argp.Within(p.participants, 1, 4096) },
		Help: "daemons and non-offloaded clients that the group waits for (default: those that one of them names with -a)"})
	parser.String(&p.keyFile, argp.Flag{Long: "key", Value: "FILE", Check: p.loadKey,
		Help: fmt.Sprintf("file with a secret of %d bytes or more, mode 0600, the same at all members: connections are encrypted", comch.MinKey)})
	parser.Int(&p.seconds, argp.Flag{Long: "connect-timeout", Value: "SECONDS", Check: func() error { return argp.Within(p.seconds, 1, 1<<30) },
		Help: "how long the group may be incomplete (default 30; a daemon that nobody has reached, and that names nobody, waits without limit)"})
	parser.String(&p.output, argp.Flag{Long: "output-json", Value: "FILE",
		Help: "write the results as JSON to FILE, or - for standard output (-j/--json reads parameters)"})
	return parser, p
}

func (p *params) checkSize() error {
	if p.config.Size < 1 {
		return fmt.Errorf("found %d, expected a vector of 1 element or more", p.config.Size)
	}
	return nil
}

func (p *params) parseAddresses() error {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the members find each other through it", p.addressList)
	}
	var err error
	p.addresses, err = parseAddresses(p.addressList, p.port, linkLocals)
	return err
}

func (p *params) loadKey() error {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the group has the job's key", p.keyFile)
	}
	var err error
	p.key, err = comch.LoadKey(p.keyFile)
	return err
}

// mostMemory bounds what a client needs for the vectors of a batch.
const mostMemory = 16 << 30

// settle judges the flags together, and fills in what depends on others.
func (p *params) settle(parser *argp.Parser) error {
	wrong := func(flag, format string, args ...any) error {
		return &argp.Error{Flag: parser.Name(flag), Reason: fmt.Sprintf(format, args...)}
	}
	remark := func(format string, args ...any) { p.remarks = append(p.remarks, fmt.Sprintf(format, args...)) }
	c := &p.config
	if bytes := c.Bytes(); bytes > group.MaxVector || bytes < c.Size || bytes > mostMemory/c.Batch {
		return wrong("size", "found %d elements of type %s in batches of %d, expected vectors of at most %d bytes, and at most %d for a batch", c.Size, c.Type, c.Batch, group.MaxVector, mostMemory)
	}
	if err := c.Validate(); err != nil {
		return &argp.Error{Reason: err.Error()}
	}
	if !parser.Given("size") {
		remark("no -s: vectors have %d elements", c.Size)
	}
	if p.role == "" && p.alone {
		p.role = roleClient
		if len(p.addresses) == 0 && p.participants == 0 {
			p.participants = 1
		}
	}
	if p.role == "" {
		return nil // under a launcher; meet decides
	}
	offloaded := p.role == roleClient && p.mode == modeOffloaded
	if offloaded && !p.launched && len(p.addresses) != 1 {
		return wrong("address", "found %d addresses, expected one: an offloaded client has one daemon", len(p.addresses))
	}
	if p.role == roleDaemon && parser.Given("mode") {
		remark("%s %s is for clients: ignored by a daemon", parser.Name("mode"), p.mode)
	}
	if p.role == roleClient && parser.Given("num-clients") {
		remark("%s %d is for daemons: ignored by a client", parser.Name("num-clients"), p.clients)
	}
	if offloaded {
		for _, flag := range []string{"listen-port", "participants"} {
			if parser.Given(flag) {
				remark("%s is for those who run the algorithm: ignored by an offloaded client", parser.Name(flag))
			}
		}
	}
	return nil
}

func (p *params) timeout() time.Duration { return time.Duration(p.seconds) * time.Second }
