package wireup

import (
	"fmt"
	"net/netip"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// A Greeting comes before the cards where the launcher does not say which ranks share a
// host, or where a secret must be known to open the device.
type Greeting struct {
	Host    string // for people
	Machine string // processes with the same machine can open each other's descriptors
	Kernel  string // processes with the same kernel have CPUs of the same numbers; "": not known
	CPUs    string // those that the process may run on, as 0-3,8; "": not known
	Limit   string // processes with the same one have one quota of CPU time; "": none limits them
	PID     int
	Secret  []byte // the job's, from rank 0
	// Network has ranks that reach each other by the loopback address; Nets are the addresses
	// at which others may reach this one, with their networks.
	Network string
	Nets    []netip.Prefix
}

const greetingFields = 10

// netsMost bounds the addresses of a greeting.
const netsMost = 16

// Pack gives the greeting in msgpack.
func (g *Greeting) Pack() []byte {
	w := pack.NewWriter(128)
	w.Array(greetingFields)
	w.Uint(cardVersion)
	w.String(g.Host)
	w.String(g.Machine)
	w.String(g.Kernel)
	w.String(g.CPUs)
	w.String(g.Limit)
	w.Uint(uint64(g.PID))
	w.Bin(g.Secret)
	w.String(g.Network)
	nets := g.Nets[:min(len(g.Nets), netsMost)]
	w.Array(len(nets))
	for _, n := range nets {
		w.String(n.String())
	}
	return w.Bytes()
}

// ParseGreeting reads a greeting. Its secret is part of b.
func ParseGreeting(b []byte) (Greeting, error) {
	r := pack.NewReader(b)
	if r.Array() != greetingFields || r.Uint() != cardVersion || r.Err() != nil {
		return Greeting{}, errVersion
	}
	g := Greeting{Host: r.String(), Machine: r.String(), Kernel: r.String(), CPUs: r.String(), Limit: r.String(), PID: int(r.Below(1 << 31)), Secret: r.Bin(), Network: r.String()}
	for range min(r.Array(), netsMost) {
		n, err := netip.ParsePrefix(r.String())
		if err != nil {
			r.Fail()
		}
		g.Nets = append(g.Nets, n)
	}
	if err := r.End(); err != nil {
		return Greeting{}, fmt.Errorf("greeting of %d bytes: %w", len(b), err)
	}
	return g, nil
}
