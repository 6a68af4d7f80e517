package wireup

import "fmt"

// A Greeting comes before the cards where the launcher does not say who shares a
// host, or where a secret must be known to open the device.
type Greeting struct {
	Host    string // for people
	Machine string // processes with the same machine can open each other's descriptors
	PID     int
	Secret  []byte // the job's, from rank 0
}

const greetingFields = 5

// Append appends the greeting in msgpack.
func (g *Greeting) Append(b []byte) []byte {
	b = appendUint(appendArray(b, greetingFields), cardVersion)
	b = appendString(b, g.Host)
	b = appendString(b, g.Machine)
	b = appendUint(b, uint64(g.PID))
	return appendBin(b, g.Secret)
}

// ParseGreeting reads a greeting. Its secret is part of b.
func ParseGreeting(b []byte) (Greeting, error) {
	u := unpacker{b: b}
	if u.array() != greetingFields || u.uint() != cardVersion || u.err != nil {
		return Greeting{}, errVersion
	}
	g := Greeting{Host: u.string(), Machine: u.string(), PID: int(u.below(1<<31 - 1)), Secret: u.bin()}
	if u.err != nil || len(u.b) > 0 {
		return Greeting{}, fmt.Errorf("greeting of %d bytes: %w", len(b), errPack)
	}
	return g, nil
}
