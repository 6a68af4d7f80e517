package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// receiveLine serves one line.
func (e *Engine) receiveLine(p *peer, line []byte) {
	if p.spawn != nil && p.spawn.open {
		e.receiveBlock(p, line)
		return
	}
	m, err := ParseLine(line)
	if err != nil {
		kind := ErrSyntax
		if errors.Is(err, ErrLine) {
			kind = ErrLine
		}
		e.violate(p, kind, fmt.Sprintf("%q", clip(string(bytes.TrimSuffix(line, []byte("\n"))))))
		return
	}
	cmd := m.Cmd()
	if cmd == "abort" {
		e.abort(p, m)
		return
	}
	switch p.state {
	case fresh:
		if m.Fields[0].Key != "cmd" || (cmd != "init" && cmd != "initack") {
			e.violate(p, ErrOrder, fmt.Sprintf("%s before init", clip(cmd)))
			return
		}
	case inFence:
		e.violate(p, ErrOrder, fmt.Sprintf("%s while in fence %d", clip(cmd), e.epoch))
		return
	case asking:
		e.violate(p, ErrOrder, fmt.Sprintf("%s before the answer to what it asked", clip(cmd)))
		return
	case finalized:
		e.violate(p, ErrOrder, fmt.Sprintf("%s after finalize", clip(cmd)))
		return
	}
	switch {
	case m.Fields[0].Key == "mcmd" && cmd == "spawn":
		e.beginBlock(p)
		return
	case m.Fields[0].Key == "mcmd":
		e.violate(p, ErrCommand, fmt.Sprintf("mcmd=%s", clip(cmd)))
		return
	case p.spawn != nil:
		e.violate(p, ErrOrder, fmt.Sprintf("%s after %d blocks of a spawn, want the others", clip(cmd), p.spawn.blocks))
		return
	}
	e.serve(p, cmd, m)
}

// serve answers a command of a rank that may send any.
func (e *Engine) serve(p *peer, cmd string, m Message) {
	p.note(cmd)
	switch cmd {
	case "put":
		e.put(p, m)
	case "get":
		e.get(m)
	case "getbyidx":
		e.getByIndex(m)
	case "barrier_in":
		e.enter(p, fenceBarrier)
	case "gorun_allgather":
		e.receiveCard(p, m)
	case "init":
		e.init(p, m)
	case "initack":
		e.initack(p, m)
	case "get_maxes":
		e.reply("cmd=maxes kvsname_max=", strconv.Itoa(KVSNameMax), " keylen_max=", strconv.Itoa(KeyLenMax), " vallen_max=", strconv.Itoa(ValLenMax))
	case "get_my_kvsname":
		e.reply("cmd=my_kvsname kvsname=", e.kvsName)
	case "get_appnum":
		e.reply("cmd=appnum appnum=", strconv.Itoa(p.appnum))
	case "get_universe_size":
		size := e.universe
		if size <= 0 {
			size = -1
		}
		e.reply("cmd=universe_size size=", strconv.Itoa(size))
	case "publish_name":
		e.askName(p, Publish, m)
	case "lookup_name":
		e.askName(p, Lookup, m)
	case "unpublish_name":
		e.askName(p, Unpublish, m)
	case "finalize":
		e.reply("cmd=finalize_ack")
		e.finalize(p)
	default:
		e.violate(p, ErrCommand, fmt.Sprintf("cmd=%s", clip(cmd)))
	}
}

// finalize takes a rank that is through with PMI out of the job.
func (e *Engine) finalize(p *peer) {
	e.emit(p, Finalized{p.rank})
	p.state, p.finalized = finalized, true
	e.leave(p, "it has finalized")
}

// init says which version of PMI is spoken from here on.
func (e *Engine) init(p *peer, m Message) {
	version, ok := m.Int("pmi_version")
	if said, _ := m.Get(secureKey); e.secure && said != "1" {
		e.violate(p, ErrSecure, fmt.Sprintf("its library speaks PMI-%d and does not say that it encrypts what it sends to other hosts", max(version, 1)))
		return
	}
	p.joined = true
	if ok && version == 2 {
		p.state, p.wire = greeted, pmi2{}
		if !p.seated {
			e.out = append(e.out, initAnswer2...)
		}
		return
	}
	rc := "0"
	if !ok || version != 1 {
		rc = "-1" // and the version that is served
	}
	p.state = up
	e.reply("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=", rc)
}

// initack opens a connection of the PMI_PORT form.
func (e *Engine) initack(p *peer, m Message) {
	if id, ok := m.Int("pmiid"); p.state != fresh || !ok || id != p.rank {
		v, _ := m.Get("pmiid")
		e.violate(p, ErrOrder, fmt.Sprintf("initack pmiid=%s, want one as the first line with pmiid=%d", clip(v), p.rank))
		return
	}
	e.reply("cmd=initack")
	e.reply("cmd=set size=", strconv.Itoa(e.size))
	e.reply("cmd=set rank=", strconv.Itoa(p.rank))
	e.reply("cmd=set debug=0")
}

func (e *Engine) abort(p *peer, m Message) {
	code, ok := m.Int("exitcode")
	if !ok {
		code = 1
	}
	text, _ := m.Get("value")
	e.emit(p, Abort{p.rank, code, text})
}
