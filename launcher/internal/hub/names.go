package hub

import (
	"regexp"
	"slices"
	"strconv"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/pmi"
)

// Published names are one table for all ranks of a job, whichever protocol they
// speak: a service that an MPICH program publishes with PMI-1 is found by Open MPI's
// MPI_Lookup_name, and the other way about. PMI-1 knows texts alone. A value that is
// no text keeps its name from being published again, and PMI-1 does not find it.
//
// A name may be for the ranks of one namespace only (PMIX_RANGE_NAMESPACE); these see
// it before one of the same name that is for all. All other ranges are the job's, and
// every name stays until it is taken back or the job ends, but for those that are
// gone with their first reading: no rank of a job outlives it for long.

// namesMax bounds the table.
const namesMax = 4096

// nameKey is where a name stands in the table.
func nameKey(space, key string) string { return space + "\x00" + key }

// get finds what the ranks of a namespace see under a name, and where it stands.
func (h *Hub) get(space, key string) (p link.Pair, at string, found bool) {
	for _, at := range [...]string{nameKey(space, key), nameKey("", key)} {
		if p, found := h.names[at]; found {
			return p, at, true
		}
	}
	return link.Pair{}, "", false
}

// remove takes back a name that a process has published, or a rank of PMI-1: these
// take back what anybody has published, and are not told apart.
func (h *Hub) remove(key string, by link.Proc) {
	for _, at := range [...]string{nameKey(by.Space, key), nameKey("", key)} {
		if p, found := h.names[at]; found && (p.By == by || p.By.Space == "" || by.Space == "") {
			delete(h.names, at)
			return
		}
	}
}

// publish takes names, all or none.
func (h *Hub) publish(from int, m link.Message) {
	at := make([]string, len(m.Pairs))
	for i, p := range m.Pairs {
		if p.Own {
			at[i] = p.By.Space
		}
		at[i] = nameKey(at[i], p.Key)
		if _, there := h.names[at[i]]; there {
			h.answer(from, m.ID, link.Message{Code: link.Duplicate})
			return
		}
	}
	if len(h.names)+len(m.Pairs) > namesMax {
		h.refuse(from, m.ID, "%d names are published, the limit is %d", len(h.names), namesMax)
		return
	}
	for i, p := range m.Pairs {
		h.names[at[i]] = p
	}
	h.answer(from, m.ID, link.Message{})
	h.wake()
}

// A Wait is a process that waits for names.
type Wait struct {
	link.Proc
	Missing []string
}

// Waits are those that wait, and for what.
func (h *Hub) Waits() (list []Wait) {
	for _, w := range h.waits {
		missing := slices.DeleteFunc(slices.Clone(w.keys), func(key string) bool {
			_, _, found := h.get(w.by.Space, key)
			return found
		})
		list = append(list, Wait{w.by, missing})
	}
	return list
}

// wake answers those that have waited for names that are there now.
func (h *Hub) wake() {
	h.waits = slices.DeleteFunc(h.waits, func(w wait) bool {
		if !h.all(w.by.Space, w.keys) {
			return false
		}
		h.answer(w.asker.host, w.asker.id, link.Message{Pairs: h.read(w.by.Space, w.keys)})
		return true
	})
}

func (h *Hub) all(space string, keys []string) bool {
	return !slices.ContainsFunc(keys, func(key string) bool {
		_, _, found := h.get(space, key)
		return !found
	})
}

// read is what there is under the names, some of which are gone with that.
func (h *Hub) read(space string, keys []string) (found []link.Pair) {
	for _, key := range keys {
		if p, at, ok := h.get(space, key); ok {
			found = append(found, p)
			if p.Once {
				delete(h.names, at)
			}
		}
	}
	return found
}

// acceptKey is what a rank of Open MPI waits for that connects to a port: another rank publishes it, which accepts there.
var acceptKey = regexp.MustCompile(`^(\d+)\.\d+:\d+:accept$`)

// foreignPort tells whether one of the keys is that of a port which another job has opened, where no rank of this one ever
// accepts. A port begins with a number that Open MPI makes of the namespace of the rank that opened it: a hash of its name
// without bit 15 in 4.1, and in 5 and 6 the hash's halves by XOR above 16 bits of their own (opal_pmix_convert_nspace).
func (h *Hub) foreignPort(keys []string) bool {
	return slices.ContainsFunc(keys, func(key string) bool {
		m := acceptKey.FindStringSubmatch(key)
		if m == nil {
			return false
		}
		job, err := strconv.ParseUint(m[1], 10, 32)
		if err != nil {
			return false
		}
		for name := range h.spaces {
			if hash := oneAtATime(name); (uint32(job)^hash)&^(1<<15) == 0 || uint16(job>>16) == uint16(hash>>16)^uint16(hash) {
				return false
			}
		}
		return true
	})
}

// oneAtATime is Jenkins's hash of that name.
func oneAtATime(s string) (hash uint32) {
	for _, b := range []byte(s) {
		hash += uint32(b)
		hash += hash << 10
		hash ^= hash >> 6
	}
	hash += hash << 3
	hash ^= hash >> 11
	return hash + hash<<15
}

func (h *Hub) lookup(from int, m link.Message) {
	if m.Wait && !h.all(m.Proc.Space, m.Keys) {
		h.waits = append(h.waits, wait{asker{host: from, id: m.ID}, m.Proc, m.Keys})
		return
	}
	found := h.read(m.Proc.Space, m.Keys)
	code := link.OK
	switch {
	case len(found) == 0:
		code = link.NotFound
	case len(found) < len(m.Keys):
		code = link.Partial
	}
	h.answer(from, m.ID, link.Message{Code: code, Pairs: found})
}

// Name serves a rank of PMI-1, and returns what to send to those that have waited for
// its name.
func (h *Hub) Name(q pmi.NameQuery) (pmi.NameAnswer, []Letter) {
	p, at, found := h.get("", q.Service)
	switch {
	case q.Op != pmi.Publish && (!found || !p.Text):
		return pmi.NameAnswer{Err: "service_not_found"}, nil
	case q.Op == pmi.Unpublish:
		h.remove(q.Service, link.Proc{})
	case q.Op == pmi.Lookup && p.Once:
		delete(h.names, at)
	case q.Op == pmi.Lookup:
	case found:
		return pmi.NameAnswer{Err: "key_already_present"}, nil
	case len(h.names) >= namesMax:
		return pmi.NameAnswer{Err: "too_many_services"}, nil
	default:
		p = link.Pair{Key: q.Service, Value: []byte(q.Port), Text: true}
		h.names[nameKey("", q.Service)] = p
		h.wake()
	}
	out := h.out
	h.out = nil
	return pmi.NameAnswer{Port: string(p.Value)}, out
}
