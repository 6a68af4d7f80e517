package pmi

// NameOp is an operation on a published name.
type NameOp uint8

// Operations on names.
const (
	Publish NameOp = iota
	Lookup
	Unpublish
)

// NameQuery is a rank's operation on the published names of its job.
type NameQuery struct {
	Op      NameOp
	Service string
	Port    string // with Publish
}

// DaemonService is the service that ranks of gorun look up for the daemon of started collectives of their host, which
// gorun starts then if it does not run. The port is the number of its threads.
const DaemonService = "gorun:daemon"

// NameAnswer is the result of a NameQuery.
type NameAnswer struct {
	Err  string // the reason of a failure in one word; "": success
	Port string // with Lookup
}

// askName serves publish_name service=S port=P, lookup_name and unpublish_name.
// The table is the owner's, since it is one for all hosts.
func (e *Engine) askName(p *peer, op NameOp, m Message) {
	service, _ := m.Get("service")
	port, _ := m.Get("port")
	switch {
	case op != Publish:
	case service == "":
		e.answerName(op, NameAnswer{Err: "no_service"})
		return
	case len(service)+len(port) > ValLenMax:
		e.refuse(p, "publish_result", "service", service, len(service)+len(port), ValLenMax)
		return
	}
	p.state, p.asked = asking, op
	e.emit(p, Name{p.rank, NameQuery{op, service, port}})
}

// NameDone answers the [Name] of a rank.
func (e *Engine) NameDone(rank int, a NameAnswer) []Event {
	p := e.peer(rank)
	if p.state != asking {
		return nil // it has gone
	}
	p.state = up
	p.wire.named(e, p, p.asked, a)
	p.wire.freed(e, p)
	return e.take(p)
}

// answerName gives the answer in Hydra's words.
func (e *Engine) answerName(op NameOp, a NameAnswer) {
	switch {
	case op == Lookup && a.Err != "":
		e.reply("cmd=lookup_result rc=1 msg=", word(a.Err))
	case op == Lookup:
		e.reply("cmd=lookup_result port=", a.Port, " info=ok rc=0 msg=success")
	case a.Err != "":
		e.reply("cmd=", [...]string{Publish: "publish", Unpublish: "unpublish"}[op], "_result info=ok rc=1 msg=", word(a.Err))
	default:
		e.reply("cmd=", [...]string{Publish: "publish", Unpublish: "unpublish"}[op], "_result info=ok rc=0 msg=success")
	}
}
