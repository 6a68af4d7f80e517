package sim

import (
	"fmt"
	"time"
)

// Time is virtual time, in picoseconds: bytes take less than a nanosecond.
type Time int64

// Units of Time.
const (
	Nanosecond  Time = 1000
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
)

// Duration is t in whole nanoseconds.
func (t Time) Duration() time.Duration { return time.Duration(t / Nanosecond) }

// A Link is the parameters of LogGP (Alexandrov, Ionescu, Schauser, Scheiman 1995).
//
//	sender    |- Overhead -|
//	port                   |- bytes x PerByte, and Gap at least -|
//	receiver                        |- Latency behind the last byte -|- Overhead -|
type Link struct {
	Latency  Time // L, from the end of the sender's port to the receiver's
	Overhead Time // o, that a CPU takes to send a message, and to take one in
	Gap      Time // g, from one message of a port to the next
	PerByte  Time // G, that a port takes for a byte
}

// Params are what a fabric's time is made of.
type Params struct {
	// Memory is between ranks of one host. The sender's CPU is the port: it copies.
	Memory Link
	// Network is between hosts. All ranks of a host share its port, one in each direction.
	Network Link
	// Copy and Reduce are for a byte that a rank copies, or combines with another.
	Copy, Reduce Time
}

// validate says what of the parameters cannot be.
func (p *Params) validate() error {
	for _, v := range [...]Time{p.Memory.Overhead, p.Memory.Gap, p.Memory.PerByte, p.Network.Overhead, p.Network.Gap, p.Network.PerByte, p.Copy, p.Reduce} {
		if v < 0 {
			return fmt.Errorf("parameters %+v: one is negative", *p)
		}
	}
	// What happens at one host must not reach another one at the same time.
	if p.Memory.Latency < 1 || p.Network.Latency < 1 {
		return fmt.Errorf("latencies of %d and %d ps, expected 1 or more", p.Memory.Latency, p.Network.Latency)
	}
	return nil
}

// memory is what was measured between two ranks on the machine of docs/benchmarks.md:
// a cache line changes cores in 66 ns, an 8-byte all-reduce of two ranks takes 0.17 us,
// which leaves 50 ns to either side, and what another core has just written is copied at
// 18 GB/s. A CPU copies its own memory at 40 GB/s and adds floats at 43.
func memory() Params {
	return Params{Memory: Link{Latency: 66 * Nanosecond, Overhead: 50 * Nanosecond, PerByte: 55}, Copy: 25, Reduce: 23}
}

// Slingshot is hosts with one port of 200 Gb/s: L 3.7 us, o 200 ns, g 5 ns, G 0.04 ns, which
// ATLAHS simulates with (github.com/spcl/atlahs, demo/hpc/03_run_loggopsim.sh).
func Slingshot() Params {
	p := memory()
	p.Network = Link{Latency: 3700 * Nanosecond, Overhead: 200 * Nanosecond, Gap: 5 * Nanosecond, PerByte: 40}
	return p
}

// InfiniBand is that of Argonne's Tukey under MVAPICH, as netgauge measured it: L 6.78 us,
// o 1.10 us, g 1.08 us, G 0.497 ns (github.com/codes-org/codes, tests/conf/ng-mpi-tukey.dat).
func InfiniBand() Params {
	p := memory()
	p.Network = Link{Latency: 6782 * Nanosecond, Overhead: 1104 * Nanosecond, Gap: 1080 * Nanosecond, PerByte: 497}
	return p
}
