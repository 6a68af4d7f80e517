package pmi

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// A codec is a version of the wire as the engine speaks it with one rank: how the
// rank's bytes become commands, and what the answers look like. What commands do
// is the engine's. A rank begins with PMI-1; cmd=init says which version follows.
type codec interface {
	// receive takes what it can of the bytes of a rank, and returns the rest. It
	// keeps an unfinished command in the peer.
	receive(e *Engine, p *peer, data []byte) (rest []byte)
	// fenced answers a rank whose fence is complete. result is the answer of
	// PMI-1, which all its readers share.
	fenced(e *Engine, p *peer, result []byte)
	spawned(e *Engine, p *peer, a SpawnAnswer)
	named(e *Engine, p *peer, op NameOp, a NameAnswer)
	// freed is called when the rank no longer waits for a fence or the owner.
	freed(e *Engine, p *peer)
}

// pmi1 is lines, and bytes of cards that follow them.
type pmi1 struct{}

func (pmi1) receive(e *Engine, p *peer, data []byte) []byte {
	if p.need > 0 {
		n := min(p.need, len(data))
		p.card = append(p.card, data[:n]...)
		if p.need -= n; p.need == 0 {
			e.enter(p, fenceCards)
		}
		return data[n:]
	}
	end := bytes.IndexByte(data, '\n')
	if end < 0 {
		end = len(data) - 1
	}
	if len(p.partial)+end+1 > LineMax {
		e.violate(p, ErrLine, fmt.Sprintf("%q and more, the limit is %d bytes", clip(string(append(p.partial, data...))), LineMax))
		return nil
	}
	line := data[:end+1]
	data = data[end+1:]
	if line[end] != '\n' || len(p.partial) > 0 {
		p.partial = append(p.partial, line...)
		line = p.partial
	}
	if line[len(line)-1] == '\n' {
		e.receiveLine(p, line)
		p.partial = p.partial[:0]
	}
	return data
}

func (pmi1) fenced(e *Engine, p *peer, result []byte) {
	e.events = append(e.events, Reply{p.rank, result})
}

func (pmi1) spawned(e *Engine, _ *peer, a SpawnAnswer) { e.answerSpawn(a) }

func (pmi1) named(e *Engine, _ *peer, op NameOp, a NameAnswer) { e.answerName(op, a) }

func (pmi1) freed(*Engine, *peer) {}

// pmi2 is commands with their length before them. A rank's threads may each have
// one under way, which its thread's id tells apart (thrid, if the client sends
// any). What can be answered is answered at once; while the rank is in a fence or
// waits for the owner, commands that would have it wait for another thing are kept
// until it is free.
type pmi2 struct{}

// waitersMax bounds what the threads of one rank ask for at the same time.
const waitersMax = 256

func (pmi2) receive(e *Engine, p *peer, data []byte) []byte {
	need := lengthDigits
	if len(p.partial) >= lengthDigits {
		n, err := frameLength(p.partial[:lengthDigits])
		if err != nil {
			e.violate(p, ErrFrame, strings.TrimPrefix(err.Error(), ErrFrame.Error()+": "))
			return nil
		}
		need += n
	}
	n := min(need-len(p.partial), len(data))
	p.partial = append(p.partial, data[:n]...)
	if len(p.partial) == need && need > lengthDigits {
		m, err := ParseFrame(p.partial[lengthDigits:])
		p.partial = p.partial[:0]
		if err != nil {
			e.violate(p, ErrFrame, strings.TrimPrefix(err.Error(), ErrFrame.Error()+": "))
			return nil
		}
		e.receiveFrame(p, m)
	}
	return data[n:]
}

func (pmi2) fenced(e *Engine, p *peer, _ []byte) {
	e.respond(p, "kvs-fence", p.thread, "rc", "0")
	e.flush(p)
}

func (pmi2) spawned(e *Engine, p *peer, a SpawnAnswer) {
	failed := 0
	pairs := []string{"jobid", a.Job, "nerrs", strconv.Itoa(len(a.Codes))}
	for i, c := range a.Codes {
		pairs = append(pairs, "err"+strconv.Itoa(i), strconv.Itoa(c))
		if c != 0 {
			failed++
		}
	}
	switch {
	case a.Err != "":
		e.deny(p, "spawn", p.thread, a.Err)
	case failed > 0: // clients look at no err0, err1, ... and would take all to run
		e.deny(p, "spawn", p.thread, fmt.Sprintf("%d of %d processes do not run", failed, len(a.Codes)))
	default:
		if a.Job == "" {
			pairs = pairs[2:] // MPICH since 4.1 takes no empty values
		}
		e.respond(p, "spawn", p.thread, append([]string{"rc", "0"}, pairs...)...)
	}
}

func (pmi2) named(e *Engine, p *peer, op NameOp, a NameAnswer) {
	cmd := [...]string{Publish: "name-publish", Lookup: "name-lookup", Unpublish: "name-unpublish"}[op]
	switch {
	case a.Err != "":
		e.deny(p, cmd, p.thread, a.Err)
	case op == Lookup: // MPICH reads port since 4.1, and value before
		e.respond(p, cmd, p.thread, "port", a.Port, "value", a.Port, "found", "TRUE", "rc", "0")
	default:
		e.respond(p, cmd, p.thread, "rc", "0")
	}
}

func (pmi2) freed(e *Engine, p *peer) {
	for p.state == up && len(p.later) > 0 {
		m := p.later[0]
		p.later = p.later[1:]
		e.receiveFrame(p, m)
	}
	if p.state == violated {
		e.forget(p)
	}
}

// respond answers a command of PMI-2 with pairs of key and value, behind the id of
// the thread that has sent it.
func (e *Engine) respond(p *peer, cmd, thread string, pairs ...string) {
	m := NewMessage(cmd + "-response")
	if thread != "" {
		m.Fields = append(m.Fields, Field{"thrid", thread})
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		m.Fields = append(m.Fields, Field{pairs[i], pairs[i+1]})
	}
	e.out = m.AppendFrame(e.out)
}

// deny answers a command of PMI-2 that cannot be done.
func (e *Engine) deny(p *peer, cmd, thread, why string) {
	e.respond(p, cmd, thread, "rc", "1", "errmsg", strings.ReplaceAll(clipTo(why, reasonMax), ";", ","))
}
