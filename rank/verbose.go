package rank

import (
	"fmt"
	"math/bits"
	"os"

	"github.com/gorun-mpi/gorun/coll"
)

// A narrator tells how calls go, and why so: each way at its first use. Rank 0 has
// one when Config.Verbose or the environment asks; where there is none, calls pay a
// test for nil.
type narrator struct {
	world *World
	say   func(line string)
	logs  bool // to World.log
	told  map[way]bool
}

// A way is what calls have in common that go alike.
type way struct {
	op      string
	size    int // of the team; of a message: whether it stays in the rank
	class   int // of the length in bytes: its number of bits
	kind    coll.Kind
	reached bool // a message's receiver shares memory
}

// newNarrator gives a world its narrator, or nil.
func newNarrator(w *World, cfg *Config) *narrator {
	if w.rank != 0 || !cfg.Verbose && (cfg.Environment == nil || !cfg.Environment.Verbose) {
		return nil
	}
	say := func(line string) { fmt.Fprintf(os.Stderr, "gorun: rank 0: %s\n", line) }
	logs := cfg.Verbose && cfg.Log != nil
	if logs {
		say = cfg.Log
	}
	return &narrator{world: w, say: say, logs: logs, told: make(map[way]bool)}
}

// first tells whether a way is new.
func (n *narrator) first(w way) bool {
	if n.told[w] {
		return false
	}
	n.told[w] = true
	return true
}

// collective tells of a call whose operands are bound. Lengths of one class may go
// different ways: the line is about the first.
func (n *narrator) collective(k *call) {
	a := &k.args
	bytes := a.Bytes
	for _, p := range a.Sends {
		bytes += p.N
	}
	if n.first(way{op: k.op, size: k.comm.members.Size(), class: bits.Len(uint(bytes)), kind: a.Kind}) {
		n.say(fmt.Sprintf("%s on %s: %s", k.op, k.comm.name, k.comm.team.Explain(coll.Args{Kind: a.Kind, Bytes: a.Bytes})))
	}
}

// message tells of a message of some bytes to a rank of the world.
func (n *narrator) message(c *Comm, op string, dst, to, bytes int) {
	w := n.world
	reached := to != w.rank && w.peers.Maps(to)
	self := 0
	if to == w.rank {
		self = 1
	}
	if n.first(way{op: op, size: self, class: bits.Len(uint(bytes)), reached: reached}) {
		n.say(fmt.Sprintf("%s of %d bytes to rank %d of %s: %s", op, bytes, dst, c.name, w.messages.Explain(to, bytes)))
	}
}
