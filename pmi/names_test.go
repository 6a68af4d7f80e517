package pmi

// names are the services that a job's ranks have published, as a launcher keeps
// them. The zero value is empty.
type names struct{ ports map[string]string }

func (n *names) do(q NameQuery) NameAnswer {
	port, found := n.ports[q.Service]
	switch q.Op {
	case Publish:
		if found {
			return NameAnswer{Err: "key_already_present"}
		}
		if n.ports == nil {
			n.ports = make(map[string]string)
		}
		n.ports[q.Service] = q.Port
	case Lookup, Unpublish:
		if !found {
			return NameAnswer{Err: "service_not_found"}
		}
		if q.Op == Unpublish {
			delete(n.ports, q.Service)
		}
	}
	return NameAnswer{Port: port}
}
