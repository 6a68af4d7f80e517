package sim

import "github.com/gorun-mpi/gorun/coll"

// An op is a step as the clock sees it. Steps that a CPU does by itself are one op in a row.
type op struct {
	verb    verb
	signal  bool  // of a put: and a message
	channel int32 // number among the member's channels
	n       int   // bytes; of local, picoseconds
	step    int32 // of the plan; what moves data looks there
}

type verb uint8

const (
	local   verb = iota // compute, for n ps
	send                // a message with n bytes
	put                 // n bytes, and a message if signal
	get                 // n bytes of the peer's memory
	await               // the next message
	release             // the message that is held
	flush               // until all puts are done and what was got is here
)

// A program is the plan of one member.
type program struct {
	ops     []op
	peers   []int32 // of each channel
	scratch int
	steps   []coll.Step // where data is moved
	count   coll.Counters
}

// compile makes a member's program. The operands are ordinary memory, so a fork goes on where
// memory is not mapped. With data each step stays by itself.
func (f *fabric) compile(rank int, data bool) program {
	var p program
	numbers := make(map[int32]int32)
	channel := func(peer int32) int32 {
		i, ok := numbers[peer]
		if !ok {
			i = int32(len(p.peers))
			numbers[peer], p.peers = i, append(p.peers, peer)
		}
		return i
	}
	steps, scratch := f.plans.Steps(f.call, rank)
	p.scratch = scratch
	next := 0
	for i, s := range steps {
		if f.compiled++; i < next {
			continue
		}
		if data {
			p.steps = append(p.steps, s)
		}
		add := func(v verb, n int) {
			o := op{verb: v, signal: s.Signal, n: n, step: int32(len(p.steps) - 1)}
			if v != local {
				o.channel = channel(s.Peer)
			} else if last := len(p.ops) - 1; !data && last >= 0 && p.ops[last].verb == local {
				p.ops[last].n += n
				return
			}
			p.ops = append(p.ops, o)
		}
		c := &p.count
		switch s.Verb {
		case coll.VerbSend:
			add(send, s.N)
			if c.Signals++; s.N > 0 {
				c.Puts++
				c.PutBytes += uint64(s.N)
			}
		case coll.VerbExpose:
			n := coll.DescriptorBytes
			if s.Pair {
				n *= 2
			}
			add(send, n)
			c.Descriptors++
		case coll.VerbPut:
			add(put, s.N)
			c.Puts++
			c.PutBytes += uint64(s.N)
			if s.Signal {
				c.Signals++
			}
		case coll.VerbGet:
			add(get, s.N)
			c.Gets++
			c.GetBytes += uint64(s.N)
		case coll.VerbAwait:
			add(await, 0)
		case coll.VerbTake, coll.VerbLearn:
			add(await, 0)
			add(release, 0)
		case coll.VerbRelease:
			add(release, 0)
		case coll.VerbFlush:
			add(flush, 0)
		case coll.VerbCopy:
			add(local, s.N*int(f.cfg.Copy))
			if s.A.Operand == coll.OperandSlot {
				c.UnpackBytes += uint64(s.N)
			} else {
				c.CopyBytes += uint64(s.N)
			}
			if s.Release {
				s.Peer = s.A.Peer
				add(release, 0)
			}
		case coll.VerbReduce:
			add(local, s.N*int(f.cfg.Reduce))
			c.Reductions++
			c.ReduceBytes += uint64(s.N)
			if s.Release {
				if s.Peer = s.A.Peer; s.B.Operand == coll.OperandSlot {
					s.Peer = s.B.Peer
				}
				add(release, 0)
			}
		case coll.VerbFork:
			next = s.To
		case coll.VerbEnd:
			return p
		}
	}
	return p
}
