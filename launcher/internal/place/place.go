package place

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// Host offers slots.
type Host struct {
	Name  string
	Slots int  // 0 stands for 1, or Max if there is one; negative: one for each CPU
	Max   int  // no more ranks than that; 0: no limit
	Free  bool // nobody has said how many slots it has: they do not fill
	Here  bool // the launcher's own machine, which NoLocal leaves out
	// Machine is needed where Policy.NeedsMachines says so.
	Machine *topo.Machine
}

// App is a program.
type App struct {
	NP    int      // 0: as many as there are slots for
	Hosts []string // names of those that it may run on; none: all
}

// Placed is where a rank runs.
type Placed struct {
	Host int // index in Result.Shares
	App  int
	CPUs topo.Set // that it is bound to; empty: it is not bound
}

// Share is what a host got: its ranks in ascending order, which need not be
// neighbours. The place of a rank in it is its local rank.
type Share struct {
	Host  string
	Ranks []int
	CPUs  []topo.Set // of each of them; nil when none is bound
}

// Result is where all ranks run.
type Result struct {
	Ranks  []Placed
	Shares []Share // hosts with ranks, in the order of the list
	Hosts  []Host  // all, each once
	NPs    []int   // of each program
	Over   []Over
	Bind   Bind // what was decided
}

// Over is a host with more ranks than slots.
type Over struct {
	Host         string
	Ranks, Slots int
	Free         bool // these are its CPUs, since nobody has said a number
}

func (o Over) String() string {
	what := "slot"
	if o.Free {
		what = "CPU"
	}
	return fmt.Sprintf("%s (%d ranks, %s)", o.Host, o.Ranks, plural(o.Slots, what))
}

// An Error is why a job cannot be placed.
type Error struct {
	Bind  bool // it can, but not be bound as was asked for
	Slots bool // the hosts have not enough of them
	Err   error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap is Err.
func (e *Error) Unwrap() error { return e.Err }

// Place places the ranks of a job. It panics where NeedsMachines is true and a
// host has none.
func Place(hosts []Host, apps []App, p Policy) (*Result, error) {
	r, err := run(hosts, apps, p)
	if e := (*Error)(nil); err != nil && !errors.As(err, &e) {
		err = &Error{Err: err}
	}
	return r, err
}

func run(hosts []Host, apps []App, p Policy) (*Result, error) {
	if p.Map.By == Ranks && len(p.File) == 0 {
		return nil, errors.New("rankfile: no file was given; write --rankfile FILE, or rankfile:file=FILE")
	}
	if p.Map.By == MapOpenMPI {
		p.Map.By, p.Map.Kind = mapOpenMPI(hosts, apps)
	}
	d, err := newDealer(hosts, p)
	if err != nil {
		return nil, err
	}
	r := &Result{}
	free := -1
	for i, a := range apps {
		if a.NP != 0 {
			continue
		}
		if free >= 0 {
			return nil, errors.New("the number of ranks may be left out of one program only")
		}
		free = i
	}
	first := 0
	for i, a := range apps {
		if a.NP == 0 {
			others := 0
			for _, b := range apps[i+1:] {
				others += b.NP
			}
			if a.NP, err = d.room(a, others); err != nil {
				return nil, err
			}
		}
		procs, err := d.deal(first, a)
		if err != nil {
			return nil, err
		}
		number(procs, p.Rank, d)
		for _, pr := range procs {
			pr.app = i
			d.procs = append(d.procs, pr)
		}
		r.NPs = append(r.NPs, a.NP)
		first += a.NP
	}
	r.Over = d.over()
	if len(r.Over) > 0 && p.Map.Over == No {
		var names []string
		for _, o := range r.Over {
			names = append(names, o.String())
		}
		return nil, &Error{Slots: true, Err: fmt.Errorf("more ranks than slots on %s, and oversubscription is not allowed; give more slots (name:slots), or start fewer ranks",
			strings.Join(names, ", "))}
	}
	if r.Bind, err = d.bind(); err != nil {
		return nil, &Error{Bind: true, Err: err}
	}
	d.fill(r)
	return r, nil
}

// mapOpenMPI is mpirun's mapping when nothing is said.
func mapOpenMPI(hosts []Host, apps []App) (By, topo.Kind) {
	np, kind := 0, topo.NUMA
	for _, a := range apps {
		np += a.NP
	}
	for _, h := range hosts {
		if np == 0 && !h.Free {
			np += max(1, h.Slots)
		}
		if len(h.Machine.Objects(kind)) == 0 {
			kind = topo.Package
		}
	}
	if np <= 2 {
		return BySlot, topo.Whole
	}
	return Objects, kind
}

// proc is a process that has a host. Its place in the list is its rank.
type proc struct {
	host   int // index in dealer.hosts
	object int // index in the host's objects; -1: none
	app    int
	line   *Line // of a rankfile
	cpus   topo.Set
}

// dealer is the state of placing.
type dealer struct {
	p     Policy
	hosts []*bin
	list  []int // of Seq: hosts in the order of the list
	procs []proc
	turn  int // where ByNode goes on
}

// bin is a host with what it has been dealt.
type bin struct {
	Host
	own     int // its slots, where PerHost has put others in their place
	used    int
	objects []object
	next    int // object to deal to
}

// object is an object of a host with CPUs that may be used.
type object struct {
	cpus topo.Set
	used int
	room int // ranks, as PE says; -1: any number
}

// newDealer merges the hosts and finds their objects.
func newDealer(hosts []Host, p Policy) (*dealer, error) {
	d := &dealer{p: p}
	index := make(map[string]int, len(hosts))
	for i, h := range hosts {
		switch {
		case h.Name == "":
			return nil, fmt.Errorf("host %d of the list has no name", i+1)
		case h.Max < 0:
			return nil, fmt.Errorf("host %s: max_slots is %d: want 1 or more", h.Name, h.Max)
		case p.Map.NoLocal && h.Here:
			continue
		case h.Slots < 0:
			h.Slots = p.cpus(h.Machine).Len()
		case h.Slots == 0:
			h.Slots = max(1, h.Max)
		}
		h.Slots = min(h.Slots, slotsMax)
		own := h.Slots
		if p.PerHost > 0 {
			h.Slots = p.PerHost
		}
		k, seen := index[h.Name]
		if !seen {
			k = len(d.hosts)
			index[h.Name] = k
			d.hosts = append(d.hosts, &bin{Host: h, own: own})
		} else if b := d.hosts[k]; p.PerHost > 0 {
			b.own = min(b.own+own, slotsMax)
		} else {
			b.Slots = min(b.Slots+h.Slots, slotsMax)
			if b.Max > 0 && h.Max > 0 {
				b.Max += h.Max
			} else {
				b.Max = 0
			}
			b.Free = b.Free && h.Free
		}
		d.list = append(d.list, k)
	}
	for _, b := range d.hosts {
		if b.Max > 0 && b.Slots > b.Max {
			b.Slots = b.Max
		}
	}
	if len(d.hosts) == 0 {
		if p.Map.NoLocal && len(hosts) > 0 {
			return nil, errors.New("nolocal leaves no host: all are this machine")
		}
		return nil, errors.New("there are no hosts")
	}
	if p.Map.By == Objects || p.Map.By == PPR || p.Map.PE > 0 {
		for _, b := range d.hosts {
			if err := d.findObjects(b); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// slotsMax is more than any job has ranks, and sums of it fit.
const slotsMax = 1 << 20

// cpus are those of a machine that ranks may be bound to.
func (p *Policy) cpus(m *topo.Machine) topo.Set {
	if p.CPUs != nil {
		return m.Allowed.And(p.CPUs)
	}
	return m.Allowed
}

// findObjects are the objects of a host that ranks are dealt to.
func (d *dealer) findObjects(b *bin) error {
	m, kind := b.Machine, d.p.Map.Kind
	if d.p.Map.By != Objects && d.p.Map.By != PPR {
		kind = topo.Whole
	}
	if m == nil && kind == topo.Whole && d.p.Map.PE == 0 {
		b.objects = []object{{room: -1}}
		return nil
	}
	all := d.p.cpus(m)
	objects := m.Objects(kind)
	if len(objects) == 0 {
		return fmt.Errorf("host %s shows no %s; it has %s", b.Name, kind, shows(m))
	}
	for _, o := range objects {
		if s := o.CPUs.And(all); s.Len() > 0 {
			b.objects = append(b.objects, object{cpus: s, room: -1})
		}
	}
	if len(b.objects) == 0 {
		return fmt.Errorf("host %s: none of the CPUs asked for may be used; those are %s", b.Name, m.Allowed)
	}
	if d.p.Map.PE > 0 {
		total := 0
		for i := range b.objects {
			b.objects[i].room = len(d.units(m, b.objects[i].cpus)) / d.p.Map.PE
			total += b.objects[i].room
		}
		b.Slots = max(1, min(b.Slots, total))
	}
	return nil
}

// unit is what PE counts.
func (d *dealer) unit() topo.Kind {
	if d.p.Map.Threads || d.p.Bind.To == BindObject && d.p.Bind.Kind == topo.Thread {
		return topo.Thread
	}
	return topo.Core
}

// units are those inside of a set.
func (d *dealer) units(m *topo.Machine, within topo.Set) []topo.Set {
	return objectsIn(m, d.unit(), within)
}

// objectsIn are the CPUs of a kind's objects inside of a set, where they have any.
func objectsIn(m *topo.Machine, k topo.Kind, within topo.Set) []topo.Set {
	var list []topo.Set
	for _, o := range m.Objects(k) {
		if s := o.CPUs.And(within); s.Len() > 0 {
			list = append(list, s)
		}
	}
	return list
}

// shows names the kinds of objects that a machine has.
func shows(m *topo.Machine) string {
	var names []string
	for k := range topo.Whole {
		if n := len(m.Objects(k)); n > 0 {
			names = append(names, fmt.Sprintf("%d %s", n, k))
		}
	}
	return strings.Join(names, ", ")
}

// over names the hosts that have more ranks than slots.
func (d *dealer) over() []Over {
	var list []Over
	if d.p.Map.By == Seq || d.p.Map.By == Ranks {
		return nil // every rank was told its host
	}
	for _, b := range d.hosts {
		slots, free := b.Slots, b.Free
		if d.p.PerHost > 0 { // says how ranks are dealt; there may be slots for more
			slots, free = max(slots, b.own), free && b.own >= slots
		}
		if b.used > slots {
			list = append(list, Over{b.Name, b.used, slots, free})
		}
	}
	return list
}

// fill makes the result of the processes.
func (d *dealer) fill(r *Result) {
	at, has := make([]int, len(d.hosts)), make([]int, len(d.hosts)) // its share; its ranks
	for _, p := range d.procs {
		has[p.host]++
	}
	for i, b := range d.hosts {
		if has[i] > 0 {
			at[i] = len(r.Shares)
			r.Shares = append(r.Shares, Share{Host: b.Name})
		}
		r.Hosts = append(r.Hosts, b.Host)
	}
	r.Ranks = make([]Placed, len(d.procs))
	for rank, p := range d.procs {
		k := at[p.host]
		r.Ranks[rank] = Placed{Host: k, App: p.app, CPUs: p.cpus}
		r.Shares[k].Ranks = append(r.Shares[k].Ranks, rank)
		r.Shares[k].CPUs = append(r.Shares[k].CPUs, p.cpus)
	}
	for i := range r.Shares {
		if s := &r.Shares[i]; !slices.ContainsFunc(s.CPUs, func(c topo.Set) bool { return c.Len() > 0 }) {
			s.CPUs = nil
		}
	}
}
