package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// blockLinesMax bounds the lines of one mcmd block.
const blockLinesMax = 1 << 16

// receiveLine serves one line.
func (e *Engine) receiveLine(p *peer, line []byte) {
	if p.block != "" {
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
	case finalized:
		e.violate(p, ErrOrder, fmt.Sprintf("%s after finalize", clip(cmd)))
		return
	}
	if m.Fields[0].Key == "mcmd" {
		p.block, p.lines, p.specs = cmd, 0, [2]int{1, 1}
		if cmd != "spawn" {
			e.violate(p, ErrCommand, fmt.Sprintf("mcmd=%s", clip(cmd)))
		}
		return
	}
	e.serve(p, cmd, m)
}

// serve answers a command of a rank that may send any.
func (e *Engine) serve(p *peer, cmd string, m Message) {
	switch cmd {
	case "put":
		e.put(p, m)
	case "get":
		e.get(m)
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
		e.publish(p, m)
	case "lookup_name":
		e.lookup(m)
	case "unpublish_name":
		e.unpublish(m)
	case "finalize":
		e.reply("cmd=finalize_ack")
		e.emit(p, Finalized{p.rank})
		p.state, p.finalized = finalized, true
		e.leave(p, "it has finalized")
	default:
		e.violate(p, ErrCommand, fmt.Sprintf("cmd=%s", clip(cmd)))
	}
}

func (e *Engine) init(p *peer, m Message) {
	version, ok := m.Int("pmi_version")
	rc := "0"
	if !ok || version != 1 {
		rc = "-1" // and the version that is served
	}
	p.state, p.joined = up, true
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

// InitAck reads the first line of a connection to PMI_PORT: whose it is. The
// line is then given to that rank's Receive, which answers it.
func InitAck(line []byte) (rank int, err error) {
	m, err := ParseLine(line)
	if err != nil {
		return -1, err
	}
	if id, ok := m.Int("pmiid"); m.Cmd() == "initack" && ok && id >= 0 {
		return id, nil
	}
	return -1, fmt.Errorf("%w: %q, want cmd=initack pmiid=N", ErrSyntax, clip(m.String()))
}

func (e *Engine) abort(p *peer, m Message) {
	code, ok := m.Int("exitcode")
	if !ok {
		code = 1
	}
	text, _ := m.Get("value")
	e.emit(p, Abort{p.rank, code, text})
}

// receiveBlock takes a line of an mcmd block and answers the last block of a
// spawn: this server starts no processes.
func (e *Engine) receiveBlock(p *peer, line []byte) {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if string(line) != "endcmd" {
		if p.lines++; p.lines > blockLinesMax {
			e.violate(p, ErrLimit, fmt.Sprintf("mcmd=%s has more than %d lines", p.block, blockLinesMax))
			return
		}
		for i, name := range [2]string{"totspawns=", "spawnssofar="} {
			if v, ok := bytes.CutPrefix(line, []byte(name)); ok {
				p.specs[i], _ = strconv.Atoi(string(v))
			}
		}
		return
	}
	p.block = ""
	if p.specs[1] >= p.specs[0] {
		e.reply("cmd=spawn_result rc=-1 msg=this_launcher_does_not_spawn_processes_yet")
	}
}
