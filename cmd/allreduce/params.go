package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/cmd/allreduce/internal/group"
	"github.com/gorun-mpi/gorun/cmd/internal/doca"
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
	compute      string
}

// newParser declares the flags, for one of so many ranks; 0: by hand.
func newParser(ranks int) (*doca.Parser, *params) {
	p := &params{launched: ranks > 1, alone: ranks == 1, mode: modeDirect, seconds: 30, compute: computeCPU,
		config: group.Config{Size: defaultSize, Type: "byte", Operation: "sum", Algorithm: group.Auto}}
	c := &p.config
	parser := doca.New("allreduce", "Processes combine their vectors, and each gets the result; daemons do the work for offloaded clients.\n"+
		"Daemons and non-offloaded clients name each other with -a; an offloaded client names its daemon; ranks of gorun need no addresses.", version.Line("allreduce"))
	parser.String(&p.role, doca.Flag{Long: "role", Short: 'r', Value: "client|daemon", Mandatory: ranks == 0, Check: doca.OneOf(&p.role, roleClient, roleDaemon),
		Help: "what this process is" + map[bool]string{true: " (default: client; with -m offloaded rank 0 is the daemon)"}[ranks > 0]})
	parser.String(&p.mode, doca.Flag{Long: "mode", Short: 'm', Value: "MODE", Check: doca.OneOf(&p.mode, modeOffloaded, modeDirect),
		Help: "of a client: offloaded, its daemon does the work; or non-offloaded, it runs the algorithm itself (default non-offloaded)"})
	parser.Int(&p.listenPort, doca.Flag{Long: "listen-port", Short: 't', Value: "PORT", Check: doca.Within(&p.listenPort, 0, math.MaxUint16),
		Help: "where a daemon or a non-offloaded client is reached (default 0: any, which is printed)"})
	parser.Int(&p.port, doca.Flag{Long: "port", Short: 'p', Value: "PORT", Check: doca.Within(&p.port, 0, math.MaxUint16),
		Help: "port of addresses that have none"})
	parser.String(&p.addressList, doca.Flag{Long: "address", Short: 'a', Value: "HOST[:PORT],...", Check: p.parseAddresses,
		Help: "other participants, or the one daemon of an offloaded client; IPv6 as [fe80::1%eth0]:35001"})
	parser.Int(&p.clients, doca.Flag{Long: "num-clients", Short: 'c', Value: "N", Check: doca.Within(&p.clients, 0, 4096),
		Help: "how many offloaded clients a daemon serves (default 0: it ends at once)"})
	parser.Int(&c.Size, doca.Flag{Long: "size", Short: 's', Value: "N", Check: p.checkSize,
		Help: fmt.Sprintf("length of the vectors in elements (default %d)", defaultSize)})
	parser.String(&c.Type, doca.Flag{Long: "datatype", Short: 'd', Value: "TYPE", Check: doca.OneOf(&c.Type, group.Types()...),
		Help: "byte (unsigned), int (32 bits), float or double (default byte)"})
	parser.String(&c.Operation, doca.Flag{Long: "operation", Short: 'o', Value: "OP", Check: doca.OneOf(&c.Operation, group.Operations()...),
		Help: "sum, prod, min or max (default sum)"})
	parser.Int(&c.Batch, doca.Flag{Long: "batch-size", Short: 'b', Value: "N", Mandatory: true, Check: doca.Within(&c.Batch, 1, 1<<20),
		Help: "operations that are submitted together"})
	parser.Int(&c.Batches, doca.Flag{Long: "num-batches", Short: 'i', Value: "N", Mandatory: true, Check: doca.Within(&c.Batches, 1, 1<<20),
		Help: "number of batches"})
	parser.String(&c.Algorithm, doca.Flag{Long: "algorithm", Value: "NAME", Check: doca.OneOf(&c.Algorithm, group.Algorithms()...),
		Help: strings.Join(group.Algorithms(), ", ") + " (default auto, by size and participants)"})
	parser.String(&p.compute, doca.Flag{Long: "compute", Value: "cpu|sleep", Check: doca.OneOf(&p.compute, computeCPU, computeSleep),
		Help: "a client's load: products of a matrix and a vector, or a sleep, as where daemons have CPUs of their own (default cpu)"})
	parser.Int(&p.participants, doca.Flag{Long: "participants", Value: "N", Check: doca.Within(&p.participants, 1, 4096),
		Help: "daemons and non-offloaded clients that the group waits for (default: those that one of them names with -a)"})
	parser.String(&p.keyFile, doca.Flag{Long: "key", Value: "FILE", Check: p.loadKey,
		Help: fmt.Sprintf("file with a secret of %d bytes or more, mode 0600, the same at all members: connections are encrypted", comch.MinKey)})
	parser.Int(&p.seconds, doca.Flag{Long: "connect-timeout", Value: "SECONDS", Check: doca.Within(&p.seconds, 1, 1<<30),
		Help: "how long the group may be incomplete (default 30; a daemon that nobody has reached, and that names nobody, waits without limit)"})
	parser.Results()
	return parser, p
}

func (p *params) checkSize() error {
	if p.config.Size < 1 {
		return fmt.Errorf("found %d, expected a vector of 1 element or more", p.config.Size)
	}
	return nil
}

func (p *params) parseAddresses() (err error) {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the members find each other through it", p.addressList)
	}
	p.addresses, err = parseAddresses(p.addressList, p.port, linkLocals)
	return err
}

func (p *params) loadKey() (err error) {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the group has the job's key", p.keyFile)
	}
	p.key, err = comch.LoadKey(p.keyFile)
	return err
}

// mostMemory bounds what a client needs for the vectors of a batch.
const mostMemory = 16 << 30

// settle judges the flags together, and fills in what depends on others. secure: connections are to be encrypted.
func (p *params) settle(parser *doca.Parser, secure bool) error {
	c := &p.config
	if bytes := c.Bytes(); bytes > group.MaxVector || bytes < c.Size || bytes > mostMemory/c.Batch {
		return parser.Wrong("size", "found %d elements of type %s in batches of %d, expected vectors of at most %d bytes, and at most %d for a batch", c.Size, c.Type, c.Batch, group.MaxVector, mostMemory)
	}
	if err := c.Validate(); err != nil {
		return &doca.Error{Reason: err.Error()}
	}
	if !parser.Given("size") {
		parser.Note("no -s: vectors have %d elements", c.Size)
	}
	if p.launched && parser.Given("listen-port") {
		parser.Note("%s has no effect under a launcher, through which the members find each other", parser.Name("listen-port"))
	}
	if p.role == "" && p.alone {
		p.role = roleClient
		if len(p.addresses) == 0 && p.participants == 0 {
			p.participants, secure = 1, false // it is the whole group
		}
	}
	if secure && !p.launched && p.key == nil {
		return parser.Wrong("key", "not given, expected a file: GORUN_SECURE=1 asks for encryption, and members that are started by address have no other key; unset it to go without")
	}
	if p.role == "" {
		return nil // under a launcher; meet decides
	}
	offloaded := p.role == roleClient && p.mode == modeOffloaded
	if p.alone && p.role == roleClient && !offloaded && len(p.addresses) == 0 && p.participants == 0 && !parser.Given("listen-port") {
		return parser.Wrong("address", "not given to the only rank, which has no other participant: gorun -np 2 starts two, and -t has it wait for others at a port")
	}
	if offloaded && !p.launched && len(p.addresses) != 1 {
		return parser.Wrong("address", "found %d addresses, expected one: an offloaded client has one daemon", len(p.addresses))
	}
	if p.role == roleDaemon && parser.Given("mode") {
		parser.Note("%s %s is for clients: ignored by a daemon", parser.Name("mode"), p.mode)
	}
	if p.role == roleClient && parser.Given("num-clients") {
		parser.Note("%s %d is for daemons: ignored by a client", parser.Name("num-clients"), p.clients)
	}
	if offloaded {
		for _, flag := range []string{"listen-port", "participants"} {
			if parser.Given(flag) {
				parser.Note("%s is for those who run the algorithm: ignored by an offloaded client", parser.Name(flag))
			}
		}
	}
	return nil
}

func (p *params) timeout() time.Duration { return time.Duration(p.seconds) * time.Second }
