package hub

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/pmi"
)

// job is a hub of the namespace "a" with ranks 0, 1 on host 0 and 2 on host 1, and
// "b" with rank 0 on host 2.
func job() *Hub {
	h := New()
	h.Add(link.Space{Name: "a", Nodes: []string{"x", "y"}, NodeOf: []uint32{0, 0, 1}}, []int{0, 0, 1})
	h.Add(link.Space{Name: "b", Nodes: []string{"x"}, NodeOf: []uint32{0}}, []int{2})
	return h
}

// take gives the hub a message and returns what it sends, in words.
func take(t *testing.T, h *Hub, from int, m link.Message) (out []string) {
	t.Helper()
	data, err := link.Pack(&m)
	if err != nil {
		t.Fatal(err)
	}
	letters, _, err := h.Take(from, data)
	if err != nil {
		t.Fatal(err)
	}
	return words(t, letters)
}

// words are the hub's letters in words.
func words(t *testing.T, letters []Letter) (out []string) {
	t.Helper()
	for _, l := range letters {
		m, err := link.Unpack(l.Data)
		if err != nil {
			t.Fatal(err)
		}
		switch m.Kind {
		case link.Answer:
			s := fmt.Sprintf("%d: answer %d", l.To, m.ID)
			switch {
			case m.Code == link.NotFound:
				s += " not found"
			case m.Code == link.Partial:
				s += " partial"
			case m.Code == link.Duplicate:
				s += " duplicate"
			case m.Code != link.OK:
				s += " refused: " + m.Text
			}
			for _, p := range m.Pairs {
				s += fmt.Sprintf(" %s=%s by %s.%d", p.Key, p.Value, p.By.Space, p.By.Rank)
			}
			if m.Status != 0 {
				s += fmt.Sprintf(" number %d", m.Status)
			}
			if len(m.Data) > 0 {
				s += " " + string(m.Data)
			}
			out = append(out, s)
		case link.Request:
			out = append(out, fmt.Sprintf("%d: request %d of %s.%d", l.To, m.ID, m.Proc.Space, m.Proc.Rank))
		case link.Setup:
			out = append(out, fmt.Sprintf("%d: meet %s at node %d", l.To, m.Server.Space.Name, m.Server.Space.Node))
		case link.Event:
			out = append(out, fmt.Sprintf("%d: event %s", l.To, m.Data))
		default:
			t.Errorf("sent kind %d", m.Kind)
		}
	}
	return out
}

func fenceOf(id uint64, data string, procs ...link.Proc) link.Message {
	return link.Message{Kind: link.Ask, Op: link.Meet, ID: id, Data: []byte(data), Procs: procs}
}

var (
	all = link.Proc{Space: "a", Rank: Wildcard}
	a0  = link.Proc{Space: "a", Rank: 0}
	a2  = link.Proc{Space: "a", Rank: 2}
	b0  = link.Proc{Space: "b", Rank: 0}
)

func TestTranscripts(t *testing.T) {
	type step struct {
		from int
		m    link.Message // the zero Message: nothing more comes from there
		want string
	}
	pub := func(id uint64, key, value string) link.Message {
		return link.Message{Kind: link.Ask, Op: link.Publish, ID: id, Proc: a0, Pairs: []link.Pair{{Key: key, Value: []byte(value), By: a0}}}
	}
	look := func(id uint64, wait bool, keys ...string) link.Message {
		return link.Message{Kind: link.Ask, Op: link.Lookup, ID: id, Keys: keys, Wait: wait}
	}
	for name, steps := range map[string][]step{
		"a fence gives everybody all in the order of hosts": {
			{1, fenceOf(7, "Y", all), ""},
			{0, fenceOf(3, "X", all), "0: answer 3 XY, 1: answer 7 XY"},
		},
		"a host that is ahead waits in the next one": {
			{0, fenceOf(1, "p", all), ""},
			{0, fenceOf(2, "q", all), ""},
			{1, fenceOf(1, "P", all), "0: answer 1 pP, 1: answer 1 pP"},
			{1, fenceOf(2, "Q", all), "0: answer 2 qQ, 1: answer 2 qQ"},
		},
		"fences of others do not meet": {
			{0, fenceOf(1, "all", all), ""},
			{0, fenceOf(2, "two", a0, a2), ""},
			{1, fenceOf(1, "TWO", a2, a0), "0: answer 2 twoTWO, 1: answer 1 twoTWO"},
		},
		"a connect is no fence": {
			{0, fenceOf(1, "", all), ""},
			{1, link.Message{Kind: link.Ask, Op: link.Meet, Sort: 1, ID: 1, Procs: []link.Proc{all}}, ""},
		},
		"a fence of one host is over": {
			{1, fenceOf(5, "me", a2), "1: answer 5 me"},
		},
		"strangers are introduced before they meet, once": {
			{2, fenceOf(1, "b", a0, b0), ""},
			{0, fenceOf(1, "a", a0, b0), "0: meet b at node -1, 0: answer 1 ab, 2: meet a at node -1, 2: answer 1 ab"},
			{0, fenceOf(2, "c", a0, b0), ""},
			{2, fenceOf(2, "d", a0, b0), "0: answer 2 cd, 2: answer 2 cd"},
		},
		"a fence that a host has not entered ends with the host": {
			{0, fenceOf(1, "x", all), ""},
			{1, link.Message{}, "0: answer 1 refused: host 1 is gone and has not entered the fence"},
			{0, fenceOf(2, "y", all), "0: answer 2 refused: host 1 is gone and has not entered the fence"},
			{0, fenceOf(3, "z", a0), "0: answer 3 z"},
		},
		"a fence that a host has entered goes on without it": {
			{1, fenceOf(7, "Y", all), ""},
			{1, link.Message{}, ""},
			{0, fenceOf(3, "X", all), "0: answer 3 XY, 1: answer 7 XY"},
		},
		"what a process of a lost host has put is not found": {
			{0, link.Message{Kind: link.Ask, Op: link.Modex, ID: 9, Proc: a2}, "1: request 1 of a.2"},
			{1, link.Message{}, "0: answer 9 not found"},
			{0, link.Message{Kind: link.Ask, Op: link.Modex, ID: 10, Proc: a2}, "0: answer 10 not found"},
		},
		"fences that cannot be": {
			{0, fenceOf(1, "", link.Proc{Space: "c"}), `0: answer 1 refused: no namespace is called "c"`},
			{0, fenceOf(2, "", link.Proc{Space: "a", Rank: 3}), "0: answer 2 refused: namespace a has 3 ranks, none of number 3"},
			{0, fenceOf(3, ""), "0: answer 3 refused: found a fence without ranks, expected at least one"},
			{0, fenceOf(4, "", a2), "0: answer 4 refused: host 0 is in a fence without any of its ranks"},
		},
		"what a process has put": {
			{0, link.Message{Kind: link.Ask, Op: link.Modex, ID: 9, Proc: a2}, "1: request 1 of a.2"},
			{0, link.Message{Kind: link.Reply, ID: 1, Data: []byte("forged")}, ""},
			{1, link.Message{Kind: link.Reply, ID: 1, Data: []byte("card")}, "0: answer 9 card"},
			{1, link.Message{Kind: link.Reply, ID: 1, Data: []byte("again")}, ""},
			{0, link.Message{Kind: link.Ask, Op: link.Modex, ID: 10, Proc: link.Proc{Space: "a", Rank: 44}}, "0: answer 10 not found"},
		},
		"published names": {
			{0, look(1, false, "k"), "0: answer 1 not found"},
			{1, look(1, true, "k", "l"), ""},
			{0, pub(2, "k", "v"), "0: answer 2"},
			{0, pub(3, "k", "w"), "0: answer 3 duplicate"},
			{1, look(2, false, "k", "l"), "1: answer 2 partial k=v by a.0"},
			{0, pub(4, "l", "u"), "0: answer 4, 1: answer 1 k=v by a.0 l=u by a.0"},
			{1, link.Message{Kind: link.Ask, Op: link.Unpublish, ID: 3, Proc: a2, Keys: []string{"k"}}, "1: answer 3"},
			{1, look(4, false, "k"), "1: answer 4 k=v by a.0"},
			{0, link.Message{Kind: link.Ask, Op: link.Unpublish, ID: 5, Proc: a0, Keys: []string{"k", "none"}}, "0: answer 5"},
			{1, look(6, false, "k"), "1: answer 6 not found"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := job()
			for i, s := range steps {
				var out []string
				if s.m.Kind == 0 {
					out = words(t, h.Gone(s.from))
				} else {
					out = take(t, h, s.from, s.m)
				}
				if got := strings.Join(out, ", "); got != s.want {
					t.Errorf("step %d: got %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

func TestEventsReachAllOtherHosts(t *testing.T) {
	got := take(t, job(), 1, link.Message{Kind: link.Ask, Op: link.Notify, Data: []byte("e")})
	want := map[string]bool{"0: event e": true, "2: event e": true}
	if len(got) != 2 || !want[got[0]] || !want[got[1]] || got[0] == got[1] {
		t.Errorf("got %q, want %v", got, want)
	}
}

// What is the launcher's is given out, and answered by it.
func TestHubHandsOverWhatIsTheLaunchers(t *testing.T) {
	for _, m := range []link.Message{
		{Kind: link.Ask, Op: link.Spawn, ID: 4, Proc: a2, Apps: []link.App{{Argv: []string{"p", "x"}, Env: []string{"A=1"}, NP: 2}}},
		{Kind: link.Ask, Op: link.Table, ID: 5},
		{Kind: link.Ask, Op: link.Lookup, ID: 7, Proc: a2, Wait: true, Keys: []string{"305419896.0:99:accept"}},
		{Kind: link.Ask, Op: link.Control, ID: 6, Proc: a2, Procs: []link.Proc{all}, Status: 9, Wait: true},
	} {
		data, err := link.Pack(&m)
		if err != nil {
			t.Fatal(err)
		}
		out, due, err := job().Take(1, data)
		want := &Due{1, m}
		if err != nil || len(out) > 0 || !reflect.DeepEqual(due, want) {
			t.Fatalf("got %v, %+v, %v, want %+v", out, due, err, want)
		}
		l, err := due.Answer(link.Message{Jobs: []link.Job{{Name: "a"}}})
		if err != nil || l.To != 1 {
			t.Fatalf("op %d: got %+v, %v", m.Op, l, err)
		}
		if a, err := link.Unpack(l.Data); err != nil || a.Kind != link.Answer || a.ID != m.ID || len(a.Jobs) != 1 {
			t.Errorf("op %d: got %+v, %v", m.Op, a, err)
		}
	}
}

// Both protocols see one table of names.
func TestNamesOfBothProtocols(t *testing.T) {
	h := job()
	publish := func(p link.Pair) []string {
		p.By = a0
		return take(t, h, 0, link.Message{Kind: link.Ask, Op: link.Publish, ID: 1, Proc: a0, Pairs: []link.Pair{p}})
	}
	look := func(from int, by link.Proc, wait bool, key string) []string {
		return take(t, h, from, link.Message{Kind: link.Ask, Op: link.Lookup, ID: 9, Proc: by, Wait: wait, Keys: []string{key}})
	}
	name := func(op pmi.NameOp, service, port, want string, letters int) {
		t.Helper()
		a, out := h.Name(pmi.NameQuery{Op: op, Service: service, Port: port})
		if a.Port+a.Err != want || len(out) != letters {
			t.Errorf("op %d of %s: got %+v and %d letters, want %s and %d", op, service, a, len(out), want, letters)
		}
	}
	want := func(got []string, want ...string) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	name(pmi.Lookup, "s", "", "service_not_found", 0)
	want(publish(link.Pair{Key: "s", Value: []byte("port"), Text: true}), "0: answer 1")
	name(pmi.Lookup, "s", "", "port", 0)
	name(pmi.Publish, "s", "other", "key_already_present", 0)
	name(pmi.Unpublish, "s", "", "port", 0)
	want(look(1, a2, false, "s"), "1: answer 9 not found")

	// One that waits is told by the other protocol's rank.
	want(look(1, a2, true, "t"))
	name(pmi.Publish, "t", "there", "there", 1)
	want(look(1, b0, false, "t"), "1: answer 9 t=there by .0")
	want(publish(link.Pair{Key: "t", Value: []byte("x"), Text: true}), "0: answer 1 duplicate")
	want(take(t, h, 1, link.Message{Kind: link.Ask, Op: link.Unpublish, ID: 2, Proc: a2, Keys: []string{"t"}}), "1: answer 2")
	name(pmi.Lookup, "t", "", "service_not_found", 0)

	// What is no text is not for PMI-1, but it is there.
	want(publish(link.Pair{Key: "n", Value: []byte{1}}), "0: answer 1")
	name(pmi.Lookup, "n", "", "service_not_found", 0)
	name(pmi.Publish, "n", "x", "key_already_present", 0)
	name(pmi.Unpublish, "n", "", "service_not_found", 0)

	// A namespace's own, beside one for all.
	want(publish(link.Pair{Key: "o", Value: []byte("own"), Text: true, Own: true}), "0: answer 1")
	want(look(1, b0, false, "o"), "1: answer 9 not found")
	name(pmi.Lookup, "o", "", "service_not_found", 0)
	name(pmi.Publish, "o", "all", "all", 0)
	want(look(1, b0, false, "o"), "1: answer 9 o=all by .0")
	want(look(1, a2, false, "o"), "1: answer 9 o=own by a.0")

	// And one that is gone when it was read.
	want(publish(link.Pair{Key: "f", Value: []byte("once"), Text: true, Once: true}), "0: answer 1")
	want(look(1, a2, false, "f"), "1: answer 9 f=once by a.0")
	want(look(1, a2, false, "f"), "1: answer 9 not found")

	// A port of this job by Open MPI 4.1 and by 5, and what is none, are waited for. Without waiting, a port of another job is a name like others.
	for _, key := range []string{"3392050242.3:7:accept", "14352795.0:7:accept", "1584136192.0:7:accept", "2168455169.0:7:accept",
		"305419896.0:99:connect", "305419896.0:accept", "9305419896.0:99:accept"} {
		want(look(1, a2, true, key))
		want(h.waits[len(h.waits)-1].keys, key)
	}
	want(look(1, a2, false, "305419896.0:99:accept"), "1: answer 9 not found")
	want(publish(link.Pair{Key: "305419896.0:99:accept", Value: []byte("x"), Text: true}), "0: answer 1")
	want(look(1, a2, true, "305419896.0:99:accept"), "1: answer 9 305419896.0:99:accept=x by a.0")

	// A wait that was given up.
	want(look(1, a2, true, "later"))
	want(take(t, h, 1, link.Message{Kind: link.Ask, Op: link.Forget, ID: 9}))
	name(pmi.Publish, "later", "x", "x", 0)

	for i := 0; ; i++ {
		a, _ := h.Name(pmi.NameQuery{Op: pmi.Publish, Service: fmt.Sprint(i), Port: "p"})
		if a.Err == "too_many_services" {
			break
		}
		if i > namesMax {
			t.Fatal("there is no limit")
		}
	}
	if got := publish(link.Pair{Key: "more"}); len(got) != 1 || !strings.Contains(got[0], "refused: 4096 names are published") {
		t.Errorf("got %q", got)
	}
}

// A group is a fence with a name, and gets a number where a member wants one.
func TestGroups(t *testing.T) {
	h := job()
	group := func(from int, id uint64, name string, number bool) []string {
		m := fenceOf(id, name, all)
		m.Sort, m.Text, m.Wait = 3, name, number
		return take(t, h, from, m)
	}
	if got := append(group(0, 1, "g", false), group(0, 2, "h", false)...); got != nil {
		t.Errorf("got %q of one host", got)
	}
	if got, want := group(1, 1, "h", true), []string{"0: answer 2 number 4294967295 hh", "1: answer 1 number 4294967295 hh"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := group(1, 2, "g", false), []string{"0: answer 1 gg", "1: answer 2 gg"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	group(0, 3, "i", true)
	if got, want := group(1, 3, "i", true), []string{"0: answer 3 number 4294967294 ii", "1: answer 3 number 4294967294 ii"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHubRefusesForgedMessages(t *testing.T) {
	for _, m := range []link.Message{{Kind: link.Ready}, {Kind: link.Ping}} {
		data, err := link.Pack(&m)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := job().Take(0, data); err == nil {
			t.Errorf("kind %d: got no error", m.Kind)
		}
	}
	if _, _, err := job().Take(0, []byte("nonsense")); err == nil {
		t.Error("got no error")
	}
}

// A fence whose contributions do not fit a frame is refused everywhere, and no
// host waits for ever.
func TestHubRefusesAFenceBeyondAFrame(t *testing.T) {
	h := job()
	half := strings.Repeat("x", link.FrameMax/2+1)
	take(t, h, 0, fenceOf(1, half, all))
	got := take(t, h, 1, fenceOf(1, half, all))
	if len(got) != 2 || !strings.HasPrefix(got[0], "0: answer 1 refused: ") || !strings.HasPrefix(got[1], "1: answer 1 refused: ") {
		t.Errorf("got %.80q", got)
	}
}
