package pmi

// namesMax bounds the published services.
const namesMax = 4096

// publish serves cmd=publish_name service=S port=P; the answers of the three
// are Hydra's.
func (e *Engine) publish(p *peer, m Message) {
	service, _ := m.Get("service")
	port, _ := m.Get("port")
	_, exists := e.names[service]
	switch {
	case service == "":
		e.reply("cmd=publish_result info=ok rc=1 msg=no_service")
	case exists:
		e.reply("cmd=publish_result info=ok rc=1 msg=key_already_present")
	case len(service)+len(port) > ValLenMax:
		e.refuse(p, "publish_result", "service", service, len(service)+len(port), ValLenMax)
	case len(e.names) >= namesMax:
		e.refuse(p, "publish_result", "table_with_service", service, len(e.names), namesMax)
	default:
		e.names[service] = port
		e.reply("cmd=publish_result info=ok rc=0 msg=success")
	}
}

func (e *Engine) lookup(m Message) {
	service, _ := m.Get("service")
	if port, ok := e.names[service]; ok {
		e.reply("cmd=lookup_result port=", port, " info=ok rc=0 msg=success")
		return
	}
	e.reply("cmd=lookup_result rc=1 msg=service_not_found")
}

func (e *Engine) unpublish(m Message) {
	service, _ := m.Get("service")
	if _, ok := e.names[service]; ok {
		delete(e.names, service)
		e.reply("cmd=unpublish_result info=ok rc=0 msg=success")
		return
	}
	e.reply("cmd=unpublish_result info=ok rc=1 msg=service_not_found")
}
