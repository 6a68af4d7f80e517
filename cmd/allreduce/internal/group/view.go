package group

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A record is what one participant says of itself, as the others pass it on.
type record struct {
	ID      string `msgpack:"id"`
	Version uint64 `msgpack:"version"` // a later one has a higher number
	Kind    Kind   `msgpack:"kind"`
	Label   string `msgpack:"label"`
	Order   int    `msgpack:"order"`
	Place   Place  `msgpack:"place"`

	Open    []string `msgpack:"open"`   // addresses that it names, where nobody has answered yet
	Joined  []string `msgpack:"joined"` // participants that it is connected with
	Want    int      `msgpack:"want"`   // participants that there shall be; 0: not known
	Serves  int      `msgpack:"serves"` // clients that there shall be
	Clients int      `msgpack:"clients"`
}

func (r *record) name() string { return string(r.Kind) + " " + r.Label }

// A view is what a participant knows of its group, itself included.
type view struct {
	self    string
	records map[string]*record
}

// maxMembers bounds a group, and what a peer can make this one remember.
const maxMembers = 4096

// maxContributions bounds the vectors of a group: those of the clients of all its members.
const maxContributions = maxMembers * 1024

// learn takes a record of another participant, and tells whether it was news.
func (v *view) learn(r record) (bool, error) {
	if r.ID == v.self {
		return false, nil // an echo
	}
	if r.ID == "" || !r.Kind.participant() {
		return false, fmt.Errorf("%w: a record without a name", errFrame)
	}
	if old := v.records[r.ID]; old != nil && old.Version >= r.Version {
		return false, nil
	}
	v.records[r.ID] = &r
	if len(v.records) > maxMembers {
		return false, fmt.Errorf("%w: more than %d members", errFrame, maxMembers)
	}
	return true, nil
}

// order is the members' IDs in the order in which vectors are combined: by rank, then by
// name, so that a run that is repeated gives the same bits.
func (v *view) order() []string {
	all := slices.Collect(maps.Values(v.records))
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.Label, b.Label), cmp.Compare(a.ID, b.ID))
	})
	ids := make([]string, len(all))
	for i, r := range all {
		ids[i] = r.ID
	}
	return ids
}

// missing says what the group still waits for; nothing: it is complete.
func (v *view) missing() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	order := v.order()
	want, open := 0, false
	for i, id := range order {
		r := v.records[id]
		want, open = max(want, r.Want), open || len(r.Open) > 0
		if len(r.Open) > 0 {
			add("no participant has answered at %s, which %s names", strings.Join(r.Open, ", "), v.label(r))
		}
		if r.Clients < r.Serves {
			add("%s has %d of %d clients", v.label(r), r.Clients, r.Serves)
		}
		if slices.ContainsFunc(r.Joined, func(id string) bool { return v.records[id] == nil }) {
			add("%s is connected with one that has not told what it waits for", v.label(r))
		}
		for _, other := range order[:i] {
			if o := v.records[other]; !slices.Contains(r.Joined, other) || !slices.Contains(o.Joined, id) {
				add("%s and %s are not connected", v.label(o), v.label(r))
			}
		}
	}
	switch n := len(order); {
	case n < want:
		add("%d of %d participants are here", n, want)
	case want == 0 && n == 1 && !open && v.records[v.self].Kind == Direct:
		add("no other participant is here, and -a names none")
	}
	return list
}

func (v *view) label(r *record) string {
	if r.ID == v.self {
		return "this " + string(r.Kind)
	}
	return r.name()
}

// tooMany says that there are more participants than some member wants.
func (v *view) tooMany() error {
	for _, id := range v.order() {
		if r := v.records[id]; r.Want > 0 && r.Want < len(v.records) {
			return fmt.Errorf("%d participants have come, but %s wants %d (--participants)", len(v.records), v.label(r), r.Want)
		}
	}
	return nil
}

// contributions is the number of vectors that an operation combines.
func (v *view) contributions() int {
	n := 0
	for _, r := range v.records {
		if r.Kind == Daemon {
			n += r.Clients
		} else {
			n++
		}
	}
	return n
}
