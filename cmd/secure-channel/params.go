package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

// What --role names.
const (
	roleHost = "host"
	roleDPU  = "dpu"
)

// params is what the command line says.
type params struct {
	launched bool // by gorun or another launcher, as one of several ranks

	size, count int
	pci, rep    string
	role        string
	forever     bool
	buffer      int // 0: as long as the messages
	queue       int
	name        string
	listen      string
	connect     string
	keyFile     string
	key         []byte
	clients     int
	seconds     int

	device string // that pci names
	meets  string // the representor by which both ends know the device, or the device where it has none
}

// newParser declares the flags.
func newParser(launched bool) (*doca.Parser, *params) {
	p := &params{launched: launched, queue: comch.DefaultQueue, clients: 1, seconds: 30}
	parser := doca.New("secure-channel", "A host and a DPU send each other messages over a channel that nobody else can join, read or forge.\n"+
		"On one host both ends name the same device, or devices with the same representor; between hosts use --listen, --connect and --key; gorun -np 2 connects its ranks.", version.Line("secure-channel"))
	parser.Int(&p.size, doca.Flag{Long: "msg-size", Short: 's', Value: "BYTES", Mandatory: true, Check: p.checkSize,
		Help: fmt.Sprintf("bytes of each message that this end sends, 1 to %d", comch.MaxMessage)})
	parser.Int(&p.count, doca.Flag{Long: "num-msgs", Short: 'n', Value: "N", Mandatory: true, Check: p.checkCount,
		Help: "number of messages that this end sends"})
	parser.String(&p.pci, doca.Flag{Long: "pci-addr", Short: 'p', Value: "DEVICE", Mandatory: true,
		Help: "local device: its PCI address or its name; gorun-info devices lists them"})
	parser.String(&p.rep, doca.Flag{Long: "rep-pci", Short: 'r', Value: "REPRESENTOR", Check: p.checkRep,
		Help: "representor of the host, on the DPU: gorun-info devices --representors lists them"})
	parser.String(&p.role, doca.Flag{Long: "role", Value: "host|dpu", Check: doca.OneOf(&p.role, roleHost, roleDPU),
		Help: "which end this is (default: dpu with --rep-pci, else host; under a launcher rank 0 is the DPU)"})
	parser.Bool(&p.forever, doca.Flag{Long: "forever", Help: "do not end by itself: print the totals after Ctrl-C"})
	parser.Int(&p.buffer, doca.Flag{Long: "buffer-size", Value: "BYTES", Check: doca.Within(&p.buffer, comch.MinBuffer, comch.MaxBuffer),
		Help: fmt.Sprintf("bytes of a slot of the send queue, %d to %d; longer messages take several (default: the message size)", comch.MinBuffer, comch.MaxBuffer)})
	parser.Int(&p.queue, doca.Flag{Long: "queue-size", Value: "N", Check: doca.Within(&p.queue, 1, comch.MaxQueue),
		Help: fmt.Sprintf("slots of the send queue (default %d); a full one holds the sender up", comch.DefaultQueue)})
	parser.String(&p.name, doca.Flag{Long: "name", Value: "NAME", Check: p.checkName,
		Help: "name of the channel, where a host has several; the same at both ends, whatever their devices (default: GORUN_CHANNEL)"})
	parser.String(&p.listen, doca.Flag{Long: "listen", Value: "ADDR:PORT", Check: func() error { return p.checkAddress(p.listen) },
		Help: "DPU: address where hosts of other machines connect; needs --key"})
	parser.String(&p.connect, doca.Flag{Long: "connect", Value: "ADDR:PORT", Check: func() error { return p.checkAddress(p.connect) },
		Help: "host: address of a DPU on another machine; needs --key"})
	parser.String(&p.keyFile, doca.Flag{Long: "key", Value: "FILE", Check: p.loadKey,
		Help: fmt.Sprintf("file with a secret of %d bytes or more, mode 0600, the same at both ends", comch.MinKey)})
	parser.Int(&p.clients, doca.Flag{Long: "clients", Value: "N", Check: doca.Within(&p.clients, 1, 1<<16),
		Help: "DPU: number of hosts to serve before it ends (default 1; under a launcher all other ranks)"})
	parser.Int(&p.seconds, doca.Flag{Long: "connect-timeout", Value: "SECONDS", Check: doca.Within(&p.seconds, 1, 1<<30),
		Help: "how long an end waits for the other one to come (default 30; with --forever a DPU waits without limit)"})
	parser.Results()
	return parser, p
}

func (p *params) checkSize() error {
	if p.size < 1 || p.size > comch.MaxMessage {
		return fmt.Errorf("%s: found %d, expected 1 to %d bytes", saidSize, p.size, comch.MaxMessage)
	}
	return nil
}

func (p *params) checkCount() error {
	if p.count < 1 {
		return fmt.Errorf("%s: found %d, expected 1 to %d", saidCount, p.count, math.MaxInt32)
	}
	if p.count > math.MaxInt32 {
		return fmt.Errorf("found %d, expected 1 to %d", p.count, math.MaxInt32)
	}
	return nil
}

func (p *params) checkRep() error {
	if p.rep == "" {
		return errors.New(`found "", expected a representor`)
	}
	return nil
}

func (p *params) checkName() error {
	if p.name == "" || len(p.name) > 255 {
		return fmt.Errorf("found %d bytes, expected a name of 1 to 255", len(p.name))
	}
	return nil
}

func (p *params) checkAddress(address string) error {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the ends find each other through it", address)
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("found %q, expected ADDR:PORT: %w", address, err)
	}
	return nil
}

func (p *params) loadKey() (err error) {
	if p.launched {
		return fmt.Errorf("found %q, but under a launcher the channel has the job's key", p.keyFile)
	}
	p.key, err = comch.LoadKey(p.keyFile)
	return err
}

// settle judges the flags together, and fills in what depends on others.
func (p *params) settle(parser *doca.Parser) error {
	if p.role == roleHost && p.rep != "" {
		return parser.Wrong("rep-pci", "found %q, but a host has no representors: leave it out, or start the DPU's end with --role dpu", p.rep)
	}
	if p.role == "" && p.rep != "" {
		p.role = roleDPU
	}
	if p.role == "" && !p.launched {
		p.role = roleHost
	}
	switch {
	case p.listen != "" && p.connect != "":
		return parser.Wrong("connect", "found --listen as well, expected one: a DPU listens, a host connects")
	case p.listen != "" && p.role == roleHost:
		return parser.Wrong("listen", "found %q, but this end is the host's, which connects: give --role dpu, or --connect", p.listen)
	case p.connect != "" && p.role == roleDPU:
		return parser.Wrong("connect", "found %q, but this end is the DPU's, which listens: give --role host, or --listen", p.connect)
	case p.key == nil && p.listen != "":
		return parser.Wrong("listen", needKey)
	case p.key == nil && p.connect != "":
		return parser.Wrong("connect", needKey)
	case p.launched && p.clients != 1:
		return parser.Wrong("clients", "found %d, but under a launcher the DPU serves all other ranks", p.clients)
	case p.clients != 1 && p.role == roleHost:
		return parser.Wrong("clients", "found %d, but a host has one DPU: give --role dpu", p.clients)
	}
	p.buffer = cmp.Or(p.buffer, max(p.size, comch.MinBuffer))
	return nil
}

const needKey = "a channel between hosts needs a key that both ends know: make one by (umask 77; head -c 32 /dev/urandom | base64 >FILE), copy it to the other host by a way that is safe, as scp -p, and give both ends --key FILE"

func (p *params) timeout() time.Duration { return time.Duration(p.seconds) * time.Second }
