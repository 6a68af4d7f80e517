package wireup

import (
	"fmt"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// A Greeting comes before the cards where the launcher does not say which ranks share a
// host, or where a secret must be known to open the device.
type Greeting struct {
	Host    string // for people
	Machine string // processes with the same machine can open each other's descriptors
	PID     int
	Secret  []byte // the job's, from rank 0
}

const greetingFields = 5

// Pack gives the greeting in msgpack.
func (g *Greeting) Pack() []byte {
	w := pack.NewWriter(128)
	w.Array(greetingFields)
	w.Uint(cardVersion)
	w.String(g.Host)
	w.String(g.Machine)
	w.Uint(uint64(g.PID))
	w.Bin(g.Secret)
	return w.Bytes()
}

// ParseGreeting reads a greeting. Its secret is part of b.
func ParseGreeting(b []byte) (Greeting, error) {
	r := pack.NewReader(b)
	if r.Array() != greetingFields || r.Uint() != cardVersion || r.Err() != nil {
		return Greeting{}, errVersion
	}
	g := Greeting{Host: r.String(), Machine: r.String(), PID: int(r.Below(1 << 31)), Secret: r.Bin()}
	if err := r.End(); err != nil {
		return Greeting{}, fmt.Errorf("greeting of %d bytes: %w", len(b), err)
	}
	return g, nil
}
