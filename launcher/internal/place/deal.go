package place

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// room is how many ranks a program gets that does not say, when others ranks
// come after it.
func (d *dealer) room(a App, others int) (int, error) {
	may, err := d.candidates(a)
	if err != nil {
		return 0, err
	}
	n := 0
	switch d.p.Map.By {
	case Seq:
		n = len(d.list) - len(d.procs)
	case Ranks:
		n = len(d.p.File) - len(d.procs)
	case PPR:
		for _, i := range may {
			for _, o := range d.hosts[i].objects {
				n += d.p.Map.N - o.used
			}
		}
	default:
		for _, i := range may {
			switch b := d.hosts[i]; {
			case b.Free && d.p.PerHost == 0:
				n += 1 // without an allocation
			default:
				n += max(0, b.Slots-b.used)
			}
		}
	}
	if n > slotsMax {
		return 0, fmt.Errorf("%d ranks are more than a job may have; say how many with -np", n)
	}
	if n -= others; n < 1 {
		return 0, fmt.Errorf("no slot is left for a program without a number of ranks, on %s; say how many with -np", d.names(may))
	}
	return n, nil
}

// candidates are the hosts that a program may run on.
func (d *dealer) candidates(a App) ([]int, error) {
	var list []int
	for i, b := range d.hosts {
		if len(a.Hosts) == 0 || slices.Contains(a.Hosts, b.Name) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("host %s is not among the hosts of the job: %s", strings.Join(a.Hosts, ", "), d.names(nil))
	}
	return list, nil
}

// names are those of hosts, of all without a list, with their slots.
func (d *dealer) names(which []int) string {
	var b strings.Builder
	n := 0
	for i, h := range d.hosts {
		if which != nil && !slices.Contains(which, i) {
			continue
		}
		if n++; n > 8 {
			b.WriteString(", ...")
			break
		}
		if n > 1 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s:%d", h.Name, h.Slots)
	}
	return b.String()
}

// deal gives a program's processes to hosts. first is its first rank.
func (d *dealer) deal(first int, a App) ([]proc, error) {
	may, err := d.candidates(a)
	if err != nil {
		return nil, err
	}
	switch d.p.Map.By {
	case Seq:
		return d.bySeq(first, a)
	case Ranks:
		return d.byFile(first, a)
	case PPR:
		return d.byPPR(a, may)
	case ByNode:
		return d.inTurn(a, may, false)
	case Objects:
		if d.p.Map.Span {
			return d.inTurn(a, may, true)
		}
	}
	return d.bySlot(a, may)
}

// give puts a process on a host, and on the next of its objects.
func (d *dealer) give(host int) (proc, error) {
	b := d.hosts[host]
	b.used++
	if len(b.objects) == 0 {
		return proc{host: host, object: -1}, nil
	}
	for range b.objects {
		i := b.next
		b.next = (b.next + 1) % len(b.objects)
		if o := &b.objects[i]; o.room < 0 || o.used < o.room || d.p.Bind.Overload {
			o.used++
			return proc{host: host, object: i}, nil
		}
	}
	total := 0
	for _, o := range b.objects {
		total += o.room
	}
	if total == 0 && d.p.Map.By == Objects {
		return proc{}, fmt.Errorf("pe=%d: no %s of host %s has so many cores; map by something larger, as slot:pe=%[1]d",
			d.p.Map.PE, d.p.Map.Kind, b.Name)
	}
	return proc{}, fmt.Errorf("pe=%d: host %s has %vs for %d such ranks and is to take more; lower pe or start fewer ranks, or let them share with --bind-to %[3]v:overload-allowed",
		d.p.Map.PE, b.Name, d.unit(), total)
}

// bySlot fills slots, host after host. Beyond them the load is kept even, and
// neighbours stay together; with PerHost the list of hosts begins again, as Hydra
// has it.
func (d *dealer) bySlot(a App, may []int) ([]proc, error) {
	counts := make([]int, len(may))
	left := a.NP
	for k, i := range may {
		b := d.hosts[i]
		counts[k] = min(max(0, b.Slots-b.used), left)
		left -= counts[k]
	}
	for ; left > 0 && d.p.PerHost == 0; left-- {
		k := d.leastLoaded(may, counts)
		if k < 0 {
			return nil, d.full(a, may)
		}
		counts[k]++
	}
	var order []int
	for k, i := range may {
		order = append(order, slices.Repeat([]int{i}, counts[k])...)
	}
	for left > 0 {
		before := left
		for k, i := range may {
			b := d.hosts[i]
			n := min(d.p.PerHost, left)
			if b.Max > 0 {
				n = min(n, b.Max-b.used-counts[k])
			}
			order = append(order, slices.Repeat([]int{i}, n)...)
			counts[k] += n
			left -= n
		}
		if left == before {
			return nil, d.full(a, may)
		}
	}
	procs := make([]proc, len(order))
	for k, i := range order {
		var err error
		if procs[k], err = d.give(i); err != nil {
			return nil, err
		}
	}
	return procs, nil
}

// leastLoaded is the host that one more rank burdens least; -1 when all are at
// their limit.
func (d *dealer) leastLoaded(may, counts []int) int {
	best := -1
	var most, of int // of the best: ranks with one more, slots
	for k, i := range may {
		b := d.hosts[i]
		n := b.used + counts[k] + 1
		if b.Max > 0 && n > b.Max {
			continue
		}
		if best < 0 || n*of < most*b.Slots {
			best, most, of = k, n, b.Slots
		}
	}
	return best
}

// full is the error when no host may take another rank.
func (d *dealer) full(a App, may []int) error {
	limit := 0
	for _, i := range may {
		limit += d.hosts[i].Max
	}
	return &Error{Slots: true, Err: fmt.Errorf("%d ranks are too many: max_slots allows %d on %s", a.NP, limit, d.names(may))}
}

// inTurn deals to the hosts in turn, or to the objects of all hosts. Full ones
// are passed by, until all are.
func (d *dealer) inTurn(a App, may []int, objects bool) ([]proc, error) {
	type seat struct{ host, object int }
	var seats []seat
	for _, i := range may {
		if !objects {
			seats = append(seats, seat{i, -1})
			continue
		}
		for k := range d.hosts[i].objects {
			seats = append(seats, seat{i, k})
		}
	}
	// fits tells whether a seat takes one more: 0 within slots, 1 beyond.
	fits := func(s seat, lap int) bool {
		b := d.hosts[s.host]
		if s.object >= 0 {
			if o := b.objects[s.object]; o.room >= 0 && o.used >= o.room && !d.p.Bind.Overload {
				return false
			}
		}
		if lap == 0 {
			return b.used < b.Slots
		}
		return b.Max == 0 || b.used < b.Max
	}
	var procs []proc
	lap, vain := 0, 0
	for len(procs) < a.NP {
		if vain == len(seats) {
			if lap++; lap > 1 {
				return nil, d.full(a, may)
			}
			vain = 0
		}
		s := seats[d.turn%len(seats)]
		d.turn++
		if !fits(s, lap) {
			vain++
			continue
		}
		vain = 0
		if s.object < 0 {
			p, err := d.give(s.host)
			if err != nil {
				return nil, err
			}
			procs = append(procs, p)
			continue
		}
		b := d.hosts[s.host]
		b.used++
		b.objects[s.object].used++
		procs = append(procs, proc{host: s.host, object: s.object})
	}
	return procs, nil
}

// byPPR puts N processes on each object.
func (d *dealer) byPPR(a App, may []int) ([]proc, error) {
	var procs []proc
	for _, i := range may {
		b := d.hosts[i]
		for k := range b.objects {
			o := &b.objects[k]
			for o.used < d.p.Map.N && len(procs) < a.NP {
				if o.room >= 0 && o.used >= o.room && !d.p.Bind.Overload {
					return nil, fmt.Errorf("ppr:%d:%s:pe=%d: a %s of host %s has cores for %d such ranks", d.p.Map.N, kindWord(d.p.Map), d.p.Map.PE, kindWord(d.p.Map), b.Name, o.room)
				}
				if b.Max > 0 && b.used >= b.Max {
					return nil, d.full(a, may)
				}
				o.used++
				b.used++
				procs = append(procs, proc{host: i, object: k})
			}
		}
	}
	if len(procs) < a.NP {
		return nil, fmt.Errorf("%d ranks are too many: ppr:%d:%s allows %d here; raise its number, or start fewer", a.NP, d.p.Map.N, kindWord(d.p.Map), len(procs))
	}
	return procs, nil
}

// kindWord is the object of a ppr mapping in its own words.
func kindWord(m Map) string {
	if m.Kind.String() == "machine" {
		return "node"
	}
	return m.Kind.String()
}

// bySeq puts one process on each host of the list.
func (d *dealer) bySeq(first int, a App) ([]proc, error) {
	if first+a.NP > len(d.list) {
		return nil, fmt.Errorf("%d ranks are too many: seq puts one on each host of the list, which has %d", first+a.NP, len(d.list))
	}
	var procs []proc
	for _, i := range d.list[first : first+a.NP] {
		d.hosts[i].used++
		if b := d.hosts[i]; b.Max > 0 && b.used > b.Max {
			return nil, d.full(a, []int{i})
		}
		procs = append(procs, proc{host: i, object: -1})
	}
	return procs, nil
}

// byFile puts processes where a rankfile says.
func (d *dealer) byFile(first int, a App) ([]proc, error) {
	if first+a.NP > len(d.p.File) {
		return nil, fmt.Errorf("%d ranks are too many: the rankfile has %d", first+a.NP, len(d.p.File))
	}
	lines := make([]*Line, len(d.p.File))
	for i := range d.p.File {
		l := &d.p.File[i]
		lines[l.Rank] = l
	}
	var procs []proc
	for _, l := range lines[first : first+a.NP] {
		host, err := d.named(l.Host)
		if err != nil {
			return nil, fmt.Errorf("rankfile, rank %d: %w", l.Rank, err)
		}
		b := d.hosts[host]
		if b.used++; b.Max > 0 && b.used > b.Max {
			return nil, d.full(a, []int{host})
		}
		procs = append(procs, proc{host: host, object: -1, line: l})
	}
	return procs, nil
}

// named is the host of a name, or of +nK.
func (d *dealer) named(name string) (int, error) {
	if k, ok := strings.CutPrefix(name, "+n"); ok {
		if i, err := strconv.Atoi(k); err == nil && i >= 0 && i < len(d.hosts) {
			return i, nil
		}
	}
	for i, b := range d.hosts {
		if b.Name == name {
			return i, nil
		}
	}
	return -1, fmt.Errorf("host %s is not among the hosts of the job: %s", name, d.names(nil))
}
