package group

import (
	"cmp"
	"crypto/sha256"
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

	Open    []string `msgpack:"open"`    // addresses that it names, where nobody has answered yet
	Knows   []byte   `msgpack:"knows"`   // the digest of those whose records it has
	Want    int      `msgpack:"want"`    // participants that there shall be; 0: not known
	Serves  int      `msgpack:"serves"`  // clients that there shall be
	Clients []client `msgpack:"clients"` // those that are here
}

// A client is one of a daemon's.
type client struct {
	ID    string `msgpack:"id"`
	Label string `msgpack:"label"`
}

func (r *record) name() string { return string(r.Kind) + " " + r.Label }

// A view is what a member knows of the participants of its group.
type view struct {
	self    string
	records map[string]*record
}

// maxMembers bounds a group, and what a peer can make this one remember.
const maxMembers = 4096

// learn takes a record of another participant, and tells whether it was news.
func (v *view) learn(r record) (bool, error) {
	if r.ID == v.self {
		return false, nil // an echo
	}
	if r.ID == "" || !r.Kind.participant() || len(r.Clients) > maxMembers || r.Kind != Daemon && len(r.Clients) > 0 {
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

// order is the participants' IDs in the order in which vectors are combined: by name, so that a run that is
// repeated gives the same bits.
func (v *view) order() []string {
	all := slices.Collect(maps.Values(v.records))
	slices.SortFunc(all, func(a, b *record) int { return cmp.Or(cmp.Compare(a.Label, b.Label), cmp.Compare(a.ID, b.ID)) })
	ids := make([]string, len(all))
	for i, r := range all {
		ids[i] = r.ID
	}
	return ids
}

// digest is that of the participants that are known.
func (v *view) digest() []byte {
	d := sha256.New()
	for _, id := range v.order() {
		fmt.Fprintf(d, "%q", id)
	}
	return d.Sum(nil)[:16]
}

// missing says what the group still waits for; nothing: it is complete.
func (v *view) missing() []string {
	var list []string
	add := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	order, all := v.order(), v.digest()
	want, open := 0, false
	for _, id := range order {
		r := v.records[id]
		want, open = max(want, r.Want), open || len(r.Open) > 0
		if len(r.Open) > 0 {
			add("no participant has answered at %s, which %s names", strings.Join(r.Open, ", "), v.label(r))
		}
		if len(r.Clients) < r.Serves {
			add("%s has %d of %d clients", v.label(r), len(r.Clients), r.Serves)
		}
		if !slices.Equal(r.Knows, all) {
			add("%s does not know of all others yet", v.label(r))
		}
	}
	switch n := len(order); {
	case n < want:
		add("%d of %d participants are here", n, want)
	case want == 0 && n == 1 && !open && order[0] == v.self && v.records[v.self].Kind == Direct:
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

// seats are the places of a complete group, by rank: its participants in order, then the clients of each; ids are those who sit there.
func (v *view) seats() (seats []Seat, ids []string) {
	order := v.order()
	for _, id := range order {
		seats, ids = append(seats, Seat{Kind: v.records[id].Kind, Label: v.records[id].Label}), append(ids, id)
	}
	for daemon, id := range order {
		for _, c := range v.records[id].Clients {
			seats, ids = append(seats, Seat{Kind: Offloaded, Label: c.Label, Daemon: daemon}), append(ids, c.ID)
		}
	}
	return seats, ids
}
