package pmi

import (
	"fmt"
	"strconv"
	"strings"
)

// receiveFrame serves a command of PMI-2.
func (e *Engine) receiveFrame(p *peer, m Message) {
	cmd := m.Cmd()
	thread, _ := m.Get("thrid")
	switch {
	case cmd == "abort":
		e.abort2(p, m)
		return
	case p.state == greeted && cmd != "fullinit":
		e.violate(p, ErrOrder, fmt.Sprintf("%s before fullinit", clip(cmd)))
		return
	case p.state == finalized:
		e.violate(p, ErrOrder, fmt.Sprintf("%s after finalize", clip(cmd)))
		return
	}
	p.note(cmd)
	if e.serveNow(p, cmd, thread, m) {
		return
	}
	if p.state != up {
		kept := m.size()
		for _, l := range p.later {
			kept += l.size()
		}
		if len(p.later) == waitersMax || kept > spawnBytesMax {
			e.violate(p, ErrLimit, fmt.Sprintf("%s, with %d commands before it that wait for an answer", clip(cmd), len(p.later)))
			return
		}
		p.later = append(p.later, m)
		return
	}
	e.serveLater(p, cmd, thread, m)
}

// serveNow answers the commands that nobody need be waited for; false if m is none.
func (e *Engine) serveNow(p *peer, cmd, thread string, m Message) bool {
	key, _ := m.Get("key")
	switch cmd {
	case "fullinit":
		e.fullinit(p, m)
	case "job-getid":
		e.respond(p, cmd, thread, "jobid", e.kvsName, "rc", "0")
	case "info-getjobattr":
		value, found := e.jobAttr(key)
		e.found(p, cmd, thread, value, found)
	case "info-putnodeattr":
		e.putNodeAttr(p, thread, m)
	case "info-getnodeattr":
		e.getNodeAttr(p, thread, m)
	case "kvs-put":
		value, _ := m.Get("value")
		if why := e.keep(key, value); why != "" {
			e.deny(p, cmd, thread, fmt.Sprintf("rank %d: %s", p.rank, why))
			break
		}
		e.respond(p, cmd, thread, "rc", "0")
	case "kvs-get":
		if job, _ := m.Get("jobid"); job != "" && job != e.kvsName {
			e.deny(p, cmd, thread, fmt.Sprintf("job %s is not this one, %s: jobs do not read each other's keys", clip(job), e.kvsName))
			break
		}
		value, found := e.store.all[key]
		e.found(p, cmd, thread, value, found)
	case "job-connect", "job-disconnect":
		e.deny(p, cmd, thread, "jobs do not read each other's keys; MPI_Comm_connect goes by ports")
	case "kvs-fence", "finalize", "spawn", "name-publish", "name-lookup", "name-unpublish":
		return false
	default:
		e.deny(p, clip(cmd), thread, fmt.Sprintf("unknown command %q", clip(cmd)))
	}
	return true
}

// serveLater serves the commands after which a rank waits, or is through.
func (e *Engine) serveLater(p *peer, cmd, thread string, m Message) {
	p.thread = thread
	switch cmd {
	case "kvs-fence":
		e.enter(p, fenceBarrier)
	case "finalize":
		e.respond(p, cmd, thread, "rc", "0")
		e.finalize(p)
	case "spawn":
		apps, preset, why := spawnOf(m)
		if why != "" {
			e.deny(p, cmd, thread, why)
			return
		}
		p.state = asking
		e.emit(p, Spawn{Rank: p.rank, Apps: apps, Preset: preset})
	default:
		e.askName2(p, cmd, thread, m)
	}
}

// found answers what asks for a value.
func (e *Engine) found(p *peer, cmd, thread, value string, found bool) {
	if !found {
		e.respond(p, cmd, thread, "found", "FALSE", "rc", "0")
		return
	}
	e.respond(p, cmd, thread, "found", "TRUE", "value", value, "rc", "0")
}

// fullinit tells a rank its number. Values of truth are what all clients can read:
// pmiverbose is a number for MPICH's since 4.1, and TRUE or FALSE before.
func (e *Engine) fullinit(p *peer, m Message) {
	if p.state != greeted {
		e.violate(p, ErrOrder, "fullinit a second time")
		return
	}
	for _, key := range []string{"pmirank", "srcid"} { // Slurm's client says srcid
		if n, ok := m.Int(key); ok && n >= 0 && n != p.rank {
			e.violate(p, ErrOrder, fmt.Sprintf("fullinit %s=%d, want %d", key, n, p.rank))
			return
		}
	}
	p.state = up
	pairs := []string{"pmi-version", "2", "pmi-subversion", "0", "rank", strconv.Itoa(p.rank), "size", strconv.Itoa(e.size), "appnum", strconv.Itoa(p.appnum)}
	if e.spawner != "" {
		pairs = append(pairs, "spawner-jobid", e.spawner)
	}
	e.respond(p, "fullinit", "", append(pairs, "debugged", "FALSE", "pmiverbose", "FALSE", "rc", "0")...)
}

// abort2 takes the words of both kinds of clients.
func (e *Engine) abort2(p *peer, m Message) {
	code, ok := m.Int("exitcode")
	if !ok {
		code = 1
	}
	text, _ := m.Get("message")
	if old, ok := m.Get("msg"); ok {
		text = old
	}
	e.emit(p, Abort{p.rank, code, text})
}

// jobAttr is what is known of the job.
func (e *Engine) jobAttr(key string) (value string, found bool) {
	switch key {
	case "universeSize":
		return strconv.Itoa(e.universe), e.universe > 0
	case "hasNameServ":
		return "TRUE", true
	}
	value, found = e.store.all[key]
	return value, found
}

// askName2 passes on what concerns published names.
func (e *Engine) askName2(p *peer, cmd, thread string, m Message) {
	op := map[string]NameOp{"name-publish": Publish, "name-lookup": Lookup, "name-unpublish": Unpublish}[cmd]
	name, _ := m.Get("name")
	port, _ := m.Get("port")
	switch {
	case name == "" || op == Publish && port == "":
		e.deny(p, cmd, thread, "no name, or no port")
		return
	case strings.ContainsAny(name+port, "\n"):
		e.deny(p, cmd, thread, "a newline in a name or a port")
		return
	case len(name)+len(port) > ValLenMax:
		e.deny(p, cmd, thread, fmt.Sprintf("name and port have %d bytes, the limit is %d", len(name)+len(port), ValLenMax))
		return
	}
	p.state, p.asked = asking, op
	e.emit(p, Name{p.rank, NameQuery{op, name, port}})
}

// spawnOf reads a spawn:
//
//	ncmds=N  preputcount=N ppkey0=K ppval0=V ...
//	subcmd=PROGRAM maxprocs=N argc=N argv0=A ... infokeycount=N infokey0=K infoval0=V ...
//
// with as many subcmd as ncmds says; why is set when it is none.
func spawnOf(m Message) (apps []SpawnApp, preset map[string]string, why string) {
	fail := func(format string, args ...any) ([]SpawnApp, map[string]string, string) {
		return nil, nil, fmt.Sprintf(format, args...)
	}
	if len(m.Fields) > spawnLinesMax {
		return fail("%d fields, the limit is %d", len(m.Fields), spawnLinesMax)
	}
	head, rest := m, []Field(nil)
	for i, f := range m.Fields {
		if f.Key == "subcmd" {
			head.Fields, rest = m.Fields[:i], m.Fields[i:]
			break
		}
	}
	preput, ok := head.pairs("preputcount", "ppkey", "ppval")
	if !ok {
		return fail("preputcount is not the number of its keys and values")
	}
	preset = make(map[string]string)
	for _, kv := range preput {
		if len(kv[0]) > KeyLenMax || len(kv[1]) > ValLenMax || strings.ContainsAny(kv[0]+kv[1], "\n") {
			return fail("ppkey %s: a key of %d bytes at most and a value of %d, without a newline, are expected", clip(kv[0]), KeyLenMax, ValLenMax)
		}
		preset[kv[0]] = kv[1]
	}
	for len(rest) > 0 {
		end := 1
		for end < len(rest) && rest[end].Key != "subcmd" {
			end++
		}
		part := Message{rest[:end]}
		rest = rest[end:]
		app := SpawnApp{Program: part.Fields[0].Value}
		if app.N, ok = part.Int("maxprocs"); !ok || app.N < 1 || app.N > 1<<20 || app.Program == "" {
			return fail("subcmd=%s: found no maxprocs of 1 to %d beside a program", clip(app.Program), 1<<20)
		}
		for _, f := range part.Fields {
			if numbered(f.Key, "argv") {
				app.Args = append(app.Args, f.Value)
			}
		}
		if n, some := part.Int("argc"); some && n != len(app.Args) || !some && app.Args != nil {
			return fail("subcmd=%s: argc is not the number of its arguments, %d", clip(app.Program), len(app.Args))
		}
		if app.Info, ok = part.pairs("infokeycount", "infokey", "infoval"); !ok {
			return fail("subcmd=%s: infokeycount is not the number of its keys and values", clip(app.Program))
		}
		apps = append(apps, app)
	}
	if n, _ := head.Int("ncmds"); n != len(apps) || n == 0 {
		return fail("ncmds=%d with %d subcmd", n, len(apps))
	}
	return apps, preset, ""
}

// pairs are the numbered keys and values, as many as count says.
func (m Message) pairs(count, key, value string) (pairs [][2]string, ok bool) {
	var keys, values []string
	for _, f := range m.Fields {
		switch {
		case numbered(f.Key, key):
			keys = append(keys, f.Value)
		case numbered(f.Key, value):
			values = append(values, f.Value)
		}
	}
	n, some := m.Int(count)
	if len(keys) != len(values) || some && n != len(keys) || !some && keys != nil {
		return nil, false
	}
	for i := range keys {
		pairs = append(pairs, [2]string{keys[i], values[i]})
	}
	return pairs, true
}

// numbered tells whether key is the word and a number.
func numbered(key, word string) bool {
	n, ok := strings.CutPrefix(key, word)
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// size is the bytes of keys and values.
func (m Message) size() int {
	n := 0
	for _, f := range m.Fields {
		n += len(f.Key) + len(f.Value)
	}
	return n
}
