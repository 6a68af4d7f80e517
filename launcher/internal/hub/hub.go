// Package hub is where the PMIx servers of a job's hosts meet: it matches fences,
// passes requests for what a process has put to the host that has it, and keeps
// published names, those of PMI-1 included. It belongs to the controller of the job.
//
// It has no I/O and no goroutine: what a host's helper asked goes in, letters to
// hosts come out (package link has the messages). Not safe for concurrent use.
//
// On one host libpmix completes all fences itself, and the hub sees published names
// and groups that want a number only. Between hosts a fence costs each host one message to the controller
// and one back: a star, because its members are known to nobody but to libpmix,
// while the trees of package gossip want all hosts in every fence.
//
// # Limits
//
// A host's question must fit a frame (link.FrameMax), and so must the answer: a
// fence whose contributions exceed it is refused, on all hosts, with the sizes.
//
// # Files
//
// Read hub.go first, then names.go.
package hub

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// Wildcard is the rank that stands for all of a namespace (pmix.Wildcard, which
// would need cgo's package).
const Wildcard = 1<<32 - 2

// firstGroup is above the numbers of groups, which are counted down: Open MPI takes
// the small ones for its own.
const firstGroup = 1 << 32

// Letter is a message for a host.
type Letter struct {
	To   int
	Data []byte
}

// Due is what is the launcher's to do, and to answer: a link.Spawn, link.Table or
// link.Control of a host, or a link.Lookup that waits for a port of another job.
type Due struct {
	Host int
	link.Message
}

// Hub is the meeting point of a job. Make it with New.
type Hub struct {
	spaces map[string]space
	meets  map[string][]*meet   // by the ranks that meet; several when some are ahead
	names  map[string]link.Pair // by where, see nameKey
	waits  []wait               // for names
	modex  map[uint64]asker     // by our number
	gone   map[int]bool         // hosts that send nothing more
	next   uint64
	groups int // numbers given to groups
	fences int // complete
	out    []Letter
}

// space is a namespace.
type space struct {
	link.Space
	hostOf []int        // by rank
	known  map[int]bool // hosts whose server knows it
}

// meet is a fence under way.
type meet struct {
	hosts  []int // that take part
	number bool  // a fence wants one
	data   map[int][]byte
	ids    map[int]uint64
}

type asker struct {
	host int
	id   uint64
	from int // the host that was asked
}

type wait struct {
	asker asker
	by    link.Proc
	keys  []string
}

// New makes the hub of a job of so many hosts.
func New() *Hub {
	return &Hub{spaces: map[string]space{}, meets: map[string][]*meet{}, names: map[string]link.Pair{}, modex: map[uint64]asker{}, gone: map[int]bool{}}
}

// Add makes a namespace known, and on which host each rank is; the servers of
// those hosts know it.
func (h *Hub) Add(s link.Space, hostOf []int) {
	known := map[int]bool{}
	for _, host := range hostOf {
		known[host] = true
	}
	h.spaces[s.Name] = space{s, hostOf, known}
}

// introduce tells a host's server of the namespaces of processes that it is about
// to meet: it answers its own for them.
func (h *Hub) introduce(to int, procs []link.Proc) {
	for _, p := range procs {
		s := h.spaces[p.Space]
		if s.known[to] {
			continue
		}
		s.known[to] = true
		foreign := s.Space
		foreign.Node = link.Elsewhere
		h.send(to, &link.Message{Kind: link.Setup, Server: &link.Server{Space: foreign}})
	}
}

// Fences is how many fences are complete: those between hosts, as libpmix completes
// those of one host itself.
func (h *Hub) Fences() int { return h.fences }

// Take takes what the helper of a host has sent, and returns what to send.
func (h *Hub) Take(from int, data []byte) (out []Letter, due *Due, err error) {
	m, err := link.Unpack(data)
	if err != nil {
		return nil, nil, err
	}
	defer func() { out, h.out = h.out, nil }()
	switch {
	case m.Kind == link.Reply:
		h.replied(from, m)
	case m.Kind != link.Ask:
		return nil, nil, fmt.Errorf("%w: kind %d for the hub", link.ErrFrame, m.Kind)
	default:
		due = h.ask(from, m)
	}
	return nil, due, nil
}

// Answer is the letter that answers a Due.
func (d *Due) Answer(m link.Message) (Letter, error) {
	m.Kind, m.ID = link.Answer, d.ID
	data, err := link.Pack(&m)
	return Letter{d.Host, data}, err
}

func (h *Hub) ask(from int, m link.Message) *Due {
	switch m.Op {
	case link.Meet:
		h.meet(from, m)
	case link.Modex:
		h.fetch(from, m)
	case link.Publish:
		h.publish(from, m)
	case link.Lookup:
		if m.Wait && !h.all(m.Proc.Space, m.Keys) && h.foreignPort(m.Keys) {
			return &Due{from, m}
		}
		h.lookup(from, m)
	case link.Unpublish:
		for _, key := range m.Keys {
			h.remove(key, m.Proc)
		}
		h.answer(from, m.ID, link.Message{})
	case link.Forget:
		h.waits = slices.DeleteFunc(h.waits, func(w wait) bool { return w.asker.host == from && w.asker.id == m.ID })
	case link.Notify:
		for to := range h.hosts() {
			if to != from {
				h.send(to, &link.Message{Kind: link.Event, Data: m.Data})
			}
		}
	case link.Spawn, link.Table, link.Control:
		return &Due{from, m}
	}
	return nil
}

// hosts are those with a rank of any namespace.
func (h *Hub) hosts() map[int]bool {
	all := map[int]bool{}
	for _, s := range h.spaces {
		for _, host := range s.hostOf {
			all[host] = true
		}
	}
	return all
}

func (h *Hub) send(to int, m *link.Message) {
	data, err := link.Pack(m)
	if err != nil {
		data, err = link.Pack(&link.Message{Kind: m.Kind, ID: m.ID, Code: link.Refused, Text: err.Error()})
	}
	if err == nil {
		h.out = append(h.out, Letter{to, data})
	}
}

func (h *Hub) answer(to int, id uint64, m link.Message) {
	m.Kind, m.ID = link.Answer, id
	h.send(to, &m)
}

func (h *Hub) refuse(to int, id uint64, format string, args ...any) {
	h.answer(to, id, link.Message{Code: link.Refused, Text: fmt.Sprintf(format, args...)})
}

// meet takes a host's part of a fence.
func (h *Hub) meet(from int, m link.Message) {
	hosts, err := h.members(m.Procs)
	if err == nil && !slices.Contains(hosts, from) {
		err = fmt.Errorf("host %d is in a fence without any of its ranks", from)
	}
	if err != nil {
		h.refuse(from, m.ID, "%v", err)
		return
	}
	key := m.Text + "\x00" + signature(m.Sort, m.Procs)
	var f *meet
	for _, open := range h.meets[key] {
		if _, in := open.ids[from]; !in {
			f = open
			break
		}
	}
	if f == nil {
		f = &meet{hosts: hosts, data: map[int][]byte{}, ids: map[int]uint64{}}
		h.meets[key] = append(h.meets[key], f)
	}
	f.data[from], f.ids[from] = m.Data, m.ID
	f.number = f.number || m.Wait
	if len(f.ids) < len(f.hosts) {
		h.giveUp(key)
		return
	}
	h.drop(key, func(o *meet) bool { return o == f })
	var all []byte
	for _, host := range f.hosts {
		all = append(all, f.data[host]...)
	}
	if m.Sort == 0 { // the others are connects, groups and the like
		h.fences++
	}
	number := 0
	if f.number {
		h.groups++
		number = firstGroup - h.groups
	}
	for _, host := range f.hosts {
		h.introduce(host, m.Procs)
		h.answer(host, f.ids[host], link.Message{Data: all, Status: number})
	}
}

// Gone is told that a host sends nothing more: its ranks have ended, or its agent is
// lost. Fences, requests and lookups that wait for it fail.
func (h *Hub) Gone(host int) []Letter {
	h.gone[host] = true
	for key := range h.meets {
		h.giveUp(key)
	}
	for id, a := range h.modex {
		if a.from == host {
			h.replied(host, link.Message{ID: id, Code: link.NotFound})
		}
	}
	h.waits = slices.DeleteFunc(h.waits, func(w wait) bool { return w.asker.host == host })
	out := h.out
	h.out = nil
	return out
}

// giveUp refuses those fences of a key that a host which is gone has not entered.
func (h *Hub) giveUp(key string) {
	h.drop(key, func(f *meet) bool {
		entered := func(host int) bool { _, ok := f.ids[host]; return ok }
		missing := slices.IndexFunc(f.hosts, func(host int) bool { return h.gone[host] && !entered(host) })
		if missing < 0 {
			return false
		}
		for _, host := range f.hosts {
			if entered(host) {
				h.refuse(host, f.ids[host], "host %d is gone and has not entered the fence", f.hosts[missing])
			}
		}
		return true
	})
}

// drop removes the fences of a key that which names.
func (h *Hub) drop(key string, which func(*meet) bool) {
	if h.meets[key] = slices.DeleteFunc(h.meets[key], which); len(h.meets[key]) == 0 {
		delete(h.meets, key)
	}
}

// members are the hosts of processes, in order.
func (h *Hub) members(procs []link.Proc) ([]int, error) {
	in := map[int]bool{}
	for _, p := range procs {
		s, ok := h.spaces[p.Space]
		hostOf := s.hostOf
		switch {
		case !ok:
			return nil, fmt.Errorf("no namespace is called %q", p.Space)
		case p.Rank == Wildcard:
			for _, host := range hostOf {
				in[host] = true
			}
		case int64(p.Rank) >= int64(len(hostOf)):
			return nil, fmt.Errorf("namespace %s has %d ranks, none of number %d", p.Space, len(hostOf), p.Rank)
		default:
			in[hostOf[p.Rank]] = true
		}
	}
	if len(in) == 0 {
		return nil, fmt.Errorf("found a fence without ranks, expected at least one")
	}
	hosts := make([]int, 0, len(in))
	for host := range in {
		hosts = append(hosts, host)
	}
	slices.Sort(hosts)
	return hosts, nil
}

// signature is the same for the same processes, in whatever order they are named.
func signature(sort uint8, procs []link.Proc) string {
	names := make([]string, len(procs))
	for i, p := range procs {
		names[i] = p.Space + "\x00" + strconv.FormatUint(uint64(p.Rank), 10)
	}
	slices.Sort(names)
	return strconv.Itoa(int(sort)) + "\x00" + strings.Join(names, "\x00")
}

// fetch passes a request on to the host of the process.
func (h *Hub) fetch(from int, m link.Message) {
	hosts, err := h.members([]link.Proc{m.Proc})
	if err != nil || len(hosts) != 1 || h.gone[hosts[0]] {
		h.answer(from, m.ID, link.Message{Code: link.NotFound})
		return
	}
	h.next++
	h.modex[h.next] = asker{from, m.ID, hosts[0]}
	h.send(hosts[0], &link.Message{Kind: link.Request, ID: h.next, Proc: m.Proc})
}

func (h *Hub) replied(from int, m link.Message) {
	a, ok := h.modex[m.ID]
	if !ok || a.from != from {
		return
	}
	delete(h.modex, m.ID)
	h.answer(a.host, a.id, link.Message{Code: m.Code, Data: m.Data})
}
