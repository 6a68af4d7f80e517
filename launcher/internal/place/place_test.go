package place

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/topo/topotest"
)

// hostsOf reads "a:2 b:4/8@epyc c": names, slots, limits and topologies.
func hostsOf(t testing.TB, text string) []Host {
	t.Helper()
	var hosts []Host
	for _, word := range strings.Fields(text) {
		var h Host
		word, machine, some := strings.Cut(word, "@")
		if some {
			m := topotest.Machine(t, machine)
			h.Machine = &m
		}
		h.Name, word, _ = strings.Cut(word, ":")
		if word != "" {
			if _, err := fmt.Sscanf(word, "%d/%d", &h.Slots, &h.Max); err != nil {
				if _, err := fmt.Sscanf(word, "%d", &h.Slots); err != nil {
					t.Fatalf("%q: %v", word, err)
				}
			}
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// policyOf reads "map=core:pe=2 rank=fill bind=numa perhost=2 over=no cpus=0-3".
func policyOf(text string) (Policy, error) {
	var p Policy
	p.Map.Kind = topo.Whole
	var err error
	for _, word := range strings.Fields(text) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "map":
			p.Map, err = ParseMap(value)
		case "rank":
			p.Rank, err = ParseRank(value)
		case "bind":
			if value == "openmpi" {
				p.Bind.To = DefaultOpenMPI
				break
			}
			p.Bind, err = ParseBind(value)
		case "perhost":
			_, err = fmt.Sscan(value, &p.PerHost)
		case "cpus":
			p.CPUs, err = topo.ParseSet(value)
		default:
			err = fmt.Errorf("no word %q", word)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

// where is the hosts of the ranks: "a a b".
func where(r *Result) string {
	var words []string
	for _, p := range r.Ranks {
		words = append(words, r.Shares[p.Host].Host)
	}
	return strings.Join(words, " ")
}

// bound is the CPUs of the ranks, "|" between them.
func bound(r *Result) string {
	var words []string
	for _, p := range r.Ranks {
		words = append(words, p.CPUs.String())
	}
	return strings.Join(words, " | ")
}

// placing is a case: what is placed, and where it is to be, or why it cannot.
type placing struct {
	name, hosts string
	np          int
	policy      string
	want, err   string
}

func TestWhichHost(t *testing.T) {
	const three = "aa:4 bb:4 cc:4"
	for _, c := range []placing{
		{"one host", "a:3", 3, "", "a a a", ""},
		{"two hosts, full", "a:2 b:2", 4, "", "a a b b", ""},
		{"the last is not filled", "a:2 b:2", 3, "", "a a b", ""},
		{"hosts without ranks are left out", "a:2 b:2", 1, "", "a", ""},
		{"no slots stands for one", "a b", 2, "", "a b", ""},
		{"named twice", "a:1 b:1 a:1", 3, "", "a a b", ""},
		{"huge slots", fmt.Sprintf("a:%d a:%d", math.MaxInt, math.MaxInt), 2, "", "a a", ""},
		{"all slots", "a:2 b:1", 0, "", "a a b", ""},
		{"limit stands for slots", "a:0/3", 0, "", "a a a", ""},

		// The examples of mpirun's manual page.
		{"mpirun", three, 6, "", "aa aa aa aa bb bb", ""},
		{"mpirun by node", three, 6, "map=node", "aa bb cc aa bb cc", ""},
		{"mpirun oversubscribed", three, 14, "", "aa aa aa aa aa bb bb bb bb bb cc cc cc cc", ""},
		{"mpirun with limits", "aa:4/4 bb:0/4 cc:4", 14, "", "aa aa aa aa bb bb bb bb cc cc cc cc cc cc", ""},
		{"mpirun -H aa,bb -np 8", "aa bb", 8, "", "aa aa aa aa bb bb bb bb", ""},
		{"mpirun, not allowed", three, 14, "map=slot:nooversubscribe", "", "aa (5 ranks, 4 slots), bb (5 ranks, 4 slots)"},

		{"uneven slots, beyond", "a:4 b:1", 10, "", "a a a a a a a a b b", ""},
		{"beyond the limit", "a:2/3 b:1/1", 5, "", "", "max_slots allows 4"},
		{"by node, full ones are passed by", "a:1 b:3", 4, "map=node", "a b b b", ""},
		{"by node, beyond", "a:1 b:2", 5, "map=node", "a b b a b", ""},
		{"by node, to the limit", "a:1/1 b:2", 5, "map=node", "a b b b b", ""},
		{"by node, beyond the limit", "a:1/1 b:2/2", 5, "map=node", "", "max_slots allows 3"},
		{"per host", "a:8 b:8", 4, "perhost=2", "a a b b", ""},
		{"per host, all", "a:8 b:8", 0, "perhost=2", "a a b b", ""},
		{"per host begins again", "a b", 7, "perhost=2", "a a b b a a b", ""},
		{"per host to the limit", "a:1/2 b", 5, "perhost=1", "a b a b b", ""},
		{"ppr of hosts", "a:8 b:8", 4, "map=ppr:2:node", "a a b b", ""},
		{"ppr of hosts, all", "a:8 b:8", 0, "map=ppr:3:node", "a a a b b b", ""},
		{"ppr of hosts, too many", "a:8 b:8", 5, "map=ppr:2:node", "", "ppr:2:node allows 4"},
		{"ppr beyond slots, not allowed", "a b", 4, "map=ppr:2:node:nooversubscribe", "", "a (2 ranks, 1 slot)"},
		{"seq", "a:4 b a", 0, "map=seq", "a b a", ""},
		{"seq, fewer", "a b a", 2, "map=seq", "a b", ""},
		{"seq, more", "a b", 3, "map=seq", "", "has 2"},
		{"no local", "a b", 2, "map=slot:nolocal", "a b", ""},

		{"rank by node", "a:2 b:2", 4, "rank=node", "a b a b", ""},
		{"rank by node, with a word that says so", "a:2 b:2", 4, "rank=node:SPAN", "a b a b", ""},
		{"rank by slot", "a:2 b:2", 4, "map=node rank=slot", "a a b b", ""},
		{"objects fill hosts", "a:2@xeon b:2@xeon", 4, "map=package", "a a b b", ""},
		{"objects in turn", "a:2@xeon b:2@xeon", 4, "map=package:span rank=span", "a a b b", ""},
		{"objects in turn, more", "a:4@xeon b:4@xeon", 6, "map=package:span", "a a b b a a", ""},
		{"one slot for each CPU", "a:-1@container", 0, "", strings.TrimSpace(strings.Repeat("a ", 32)), ""},

		{"no name", ":2", 1, "", "", "host 1 of the list has no name"},
		{"no hosts", "", 1, "", "", "no hosts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := placed(t, c.hosts, c.np, c.policy, c.err); c.err == "" && where(r) != c.want {
				t.Errorf("%s, np %d, %s: got %s, want %s", c.hosts, c.np, c.policy, where(r), c.want)
			}
		})
	}
}

// placed places ranks by a policy; wrong is what the error says that is expected, "" for none.
func placed(t *testing.T, hosts string, np int, policy, wrong string) *Result {
	t.Helper()
	p, err := policyOf(policy)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Place(hostsOf(t, hosts), []App{{NP: np}}, p)
	if wrong == "" && err != nil || wrong != "" && (err == nil || !strings.Contains(err.Error(), wrong)) {
		t.Fatalf("got %v, %v; want an error with %q", r, err, wrong)
	}
	return r
}

// A host has more ranks than slots when it has more than were said of it, in
// whatever way.
func TestOversubscribedHosts(t *testing.T) {
	for _, c := range []struct {
		hosts        string
		free         bool
		np           int
		policy, want string
	}{
		{"a:2 b:2", false, 4, "", "[]"},
		{"a:2 b:1", false, 6, "", "[a (4 ranks, 2 slots) b (2 ranks, 1 slot)]"},
		{"a:2", true, 3, "", "[a (3 ranks, 2 CPUs)]"},
		{"a:4", false, 4, "perhost=2", "[]"},
		{"a:1 a:3", false, 4, "perhost=1", "[]"},
		{"a:4", false, 5, "perhost=2", "[a (5 ranks, 4 slots)]"},
		{"a:1", false, 4, "perhost=4", "[]"},
		{"a:1", false, 5, "perhost=4", "[a (5 ranks, 4 slots)]"},
		{"a:4", true, 3, "perhost=1", "[]"},
		{"a:4", true, 5, "perhost=1", "[a (5 ranks, 4 CPUs)]"},
		{"a:2", true, 5, "perhost=4", "[a (5 ranks, 4 slots)]"},
		{"a b a", false, 3, "map=seq", "[]"},
	} {
		p, err := policyOf(c.policy)
		if err != nil {
			t.Fatal(err)
		}
		hosts := hostsOf(t, c.hosts)
		for i := range hosts {
			hosts[i].Free = c.free
		}
		r, err := Place(hosts, []App{{NP: c.np}}, p)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if got := fmt.Sprint(r.Over); got != c.want {
			t.Errorf("%s, np %d, %s: over %s, want %s", c.hosts, c.np, c.policy, got, c.want)
		}
	}
}

func TestNoLocal(t *testing.T) {
	p, err := policyOf("map=slot:nolocal")
	if err != nil {
		t.Fatal(err)
	}
	hosts := hostsOf(t, "a:2 b:2")
	hosts[0].Here = true
	if r, err := Place(hosts, []App{{NP: 0}}, p); err != nil || where(r) != "b b" {
		t.Errorf("got %v, %v", r, err)
	}
	if _, err := Place(hosts[:1], []App{{NP: 1}}, p); err == nil || !strings.Contains(err.Error(), "nolocal") {
		t.Errorf("got %v", err)
	}
}

func TestSeveralPrograms(t *testing.T) {
	for _, c := range []struct {
		name, hosts            string
		apps                   []App
		policy, want, nps, err string
	}{
		{"one after the other", "a:2 b:2", []App{{NP: 1}, {NP: 3}}, "", "a a b b", "[1 3]", ""},
		{"mpirun's example", "aa bb cc", []App{{NP: 1, Hosts: []string{"aa"}}, {NP: 2, Hosts: []string{"bb", "cc"}}}, "", "aa bb cc", "[1 2]", ""},
		{"the rest", "a:3 b:3", []App{{NP: 1}, {}}, "", "a a a b b b", "[1 5]", ""},
		{"the rest in the middle", "a:3 b:3", []App{{NP: 1}, {}, {NP: 2}}, "", "a a a b b b", "[1 3 2]", ""},
		{"each has its own ranks", "a:2 b:2", []App{{NP: 2}, {NP: 2}}, "rank=node", "a a b b", "[2 2]", ""},
		{"by node goes on", "a:2 b:2", []App{{NP: 1}, {NP: 2}}, "map=node", "a b a", "[1 2]", ""},
		{"two without a number", "a:3", []App{{}, {}}, "", "", "", "one program only"},
		{"nothing is left", "a:1", []App{{NP: 1}, {}}, "", "", "", "no slot is left"},
		{"no such host", "a:1", []App{{NP: 1, Hosts: []string{"z"}}}, "", "", "", "host z is not among"},
		{"seq", "a b a", []App{{NP: 1}, {NP: 2}}, "map=seq", "a b a", "[1 2]", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := policyOf(c.policy)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Place(hostsOf(t, c.hosts), c.apps, p)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, %v; want an error with %q", r, err, c.err)
				}
				return
			}
			if err != nil || where(r) != c.want || fmt.Sprint(r.NPs) != c.nps {
				t.Fatalf("got %+v, %v; want %s, %s", r, err, c.want, c.nps)
			}
		})
	}
}

func TestWhichCPUs(t *testing.T) {
	for _, c := range []placing{
		{"nothing said", "a@laptop", 2, "", " | ", ""},
		{"cores", "a:4@xeon", 3, "bind=core", "0,40 | 2,42 | 4,44", ""},
		{"hardware threads", "a:4@xeon", 3, "bind=hwthread", "0 | 40 | 2", ""},
		{"cores, mapped by package", "a:4@xeon", 4, "map=package bind=core", "0,40 | 1,41 | 2,42 | 3,43", ""},
		{"mapping binds", "a:4@laptop", 3, "map=core", "0-1 | 2-3 | 4-5", ""},
		{"but not where it is not wanted", "a:4@laptop", 2, "map=core bind=none", " | ", ""},
		{"nor where ranks would share", "a:4@sandbox", 5, "map=core", " |  |  |  | ", ""},
		{"efficient cores come last", "a:12@laptop", 5, "bind=core", "0-1 | 2-3 | 4-5 | 6-7 | 8", ""},
		{"shared caches", "a:12@laptop", 3, "map=l2cache:span bind=l2cache rank=slot", "0-1 | 2-3 | 4-5", ""},
		{"packages", "a:4@epyc", 3, "bind=package", "0-63,128-191 | 64-127,192-255 | 0-63,128-191", ""},
		{"numa", "a:4@epyc", 2, "map=numa", "0-15,128-143 | 16-31,144-159", ""},
		{"third-level caches of a numa node", "a:4@epyc", 3, "map=ppr:2:numa bind=l3cache", "0-7,128-135 | 8-15,136-143 | 16-23,144-151", ""},
		{"several objects", "a:4@epyc", 2, "bind=l3cache:2", "0-15,128-143 | 16-31,144-159", ""},
		{"pe", "a:4@laptop", 2, "map=slot:pe=2", "0-3 | 4-7", ""},
		{"pe of threads", "a:4@laptop", 3, "map=slot:pe=2:hwtcpus", "0-1 | 2-3 | 4-5", ""},
		{"pe in packages", "a:4@xeon", 3, "map=package:pe=2", "0,2,40,42 | 1,3,41,43 | 4,6,44,46", ""},
		{"pe, too many", "a:4@sandbox", 3, "map=slot:pe=2", "", "host a has cores for 2 such ranks"},
		{"pe, on the next host", "a:4@sandbox b:4@sandbox", 3, "map=slot:pe=2", "0-1 | 2-3 | 0-1", ""},
		{"a batch job's part", "a:4@batch", 4, "bind=core", "4,44 | 6,46 | 8,48 | 10,50", ""},
		{"the part of packages", "a:4@batch", 2, "map=package", "4,6,8,10,44,46,48,50 | 4,6,8,10,44,46,48,50", ""},
		{"only some CPUs", "a:4@xeon", 2, "cpus=0,1 bind=core", "0 | 1", ""},
		{"only some CPUs, none of them there", "a:4@batch", 2, "cpus=0,1 bind=core", "", "none of the CPUs asked for"},
		{"only some CPUs, not bound", "a:4@xeon", 3, "cpus=0,1", "0-1 | 0-1 | 0-1", ""},
		{"only some CPUs, bound to none", "a:4@xeon", 2, "cpus=0 bind=none", "0 | 0", ""},
		{"only some CPUs, mapped by more cores", "a:4@xeon", 3, "cpus=0,1 map=core", "0-1 | 0-1 | 0-1", ""},
		{"only some CPUs, not bound, not there", "a:4@batch", 2, "cpus=0,1", "", "none of the CPUs asked for"},
		{"pe of an object that has fewer", "a:4@xeon", 1, "map=core:pe=2", "", "no core of host a has so many cores; map by something larger, as slot:pe=2"},
		{"machine", "a:4@batch", 2, "bind=machine", "4,6,8,10,44,46,48,50 | 4,6,8,10,44,46,48,50", ""},
		{"no such object", "a:4@arm", 2, "bind=l3cache", "", "host a shows no l3cache; it has 80 hwthread, 80 core"},
		{"if supported", "a:4@arm", 2, "bind=l3cache:if-supported", " | ", ""},
		{"no such object to map by", "a:4@arm", 2, "map=l3cache", "", "shows no l3cache"},
		{"overload", "a:9@sandbox", 5, "bind=core", "", "2 ranks would be bound to a core of 1 CPU (0)"},
		{"overload allowed", "a:9@sandbox", 5, "bind=core:overload-allowed", "0 | 1 | 2 | 3 | 0", ""},
		{"second threads are no overload", "a:9@laptop", 14, "bind=core", "0-1 | 2-3 | 4-5 | 6-7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 | 15 | 0-1 | 2-3", ""},
		{"user lists", "a:4@laptop", 3, "bind=user:0+2,5-6", "0,2 | 5-6 | 0,2", ""},
		{"user lists of what is not there", "a:4@batch", 1, "bind=user:0", "", "CPUs 0 may not be used; those that may are 4,6,8"},
		{"pe-list", "a:4@laptop", 2, "map=pe-list=3,5", "3,5 | 3,5", ""},
		{"pe-list, ordered", "a:4@laptop", 2, "map=pe-list=3,5:ordered", "3 | 5", ""},
		{"rr", "a:4@xeon", 3, "bind=rr", "0 | 1 | 2", ""},
		{"rr in a part", "a:4@batch", 9, "bind=rr", "4 | 6 | 8 | 10 | 44 | 46 | 48 | 50 | 4", ""},

		// mpirun's defaults.
		{"mpirun, two ranks", "a:4@xeon", 2, "bind=openmpi", "0,40 | 2,42", ""},
		{"mpirun, more", "a:4@epyc", 3, "bind=openmpi", "0-15,128-143 | 16-31,144-159 | 32-47,160-175", ""},
		{"mpirun, more, no numa", "a:4@sandbox", 3, "bind=openmpi", "0-3 | 0-3 | 0-3", ""},
		{"mpirun, oversubscribed", "a:2@xeon", 3, "bind=openmpi", " |  | ", ""},
		{"mpirun in a container", "a:4@container", 2, "bind=openmpi", " | ", ""},
		{"mpirun in a batch job", "a:4@batch", 2, "bind=openmpi", " | ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := placed(t, c.hosts, c.np, c.policy, c.err); c.err == "" && bound(r) != c.want {
				t.Errorf("%s, np %d, %s: got %s, want %s", c.hosts, c.np, c.policy, bound(r), c.want)
			}
		})
	}
}

// The table of mpirun's manual page: ppr:2:socket on two hosts of two sockets.
// Bound to sockets, a rank's CPUs say which it is on.
func TestOrdersOfRanks(t *testing.T) {
	for policy, want := range map[string]string{
		"":                  "a0 a0 a1 a1 b0 b0 b1 b1",
		"rank=slot":         "a0 a0 a1 a1 b0 b0 b1 b1",
		"rank=core":         "a0 a0 a1 a1 b0 b0 b1 b1",
		"rank=fill":         "a0 a0 a1 a1 b0 b0 b1 b1",
		"rank=package":      "a0 a1 a0 a1 b0 b1 b0 b1",
		"rank=package:span": "a0 a1 b0 b1 a0 a1 b0 b1",
		"rank=span":         "a0 a1 b0 b1 a0 a1 b0 b1",
		"rank=node":         "a0 b0 a0 b0 a1 b1 a1 b1",
	} {
		p, err := policyOf("map=ppr:2:package " + policy)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Place(hostsOf(t, "a:4@xeon b:4@xeon"), []App{{}}, p)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, rank := range r.Ranks {
			got = append(got, r.Shares[rank.Host].Host+fmt.Sprint(rank.CPUs.First()))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: got %s, want %s", policy, strings.Join(got, " "), want)
		}
	}
}

func TestRankFiles(t *testing.T) {
	for _, c := range []struct {
		name, text       string
		np               int
		hosts, cpus, err string
	}{
		{"the manual's", "rank 0=a slot=1:0-2\nrank 1=b slot=0:0,1\nrank 2=b slot=1-2\n", 0, "a b b", "1,3,5,41,43,45 | 0,2,40,42 | 2,4,42,44", ""},
		{"comments, relative hosts, any place", "# x\nrank 1=+n0\n\nrank 0 = +n1 slot=p7 # y\n", 2, "b a", "7 | ", ""},
		{"all of a package", "rank 0=a slot=1:*\n", 1, "a", topo.SetOf(odds()...).String(), ""},
		{"two packages", "rank 0=a slot=0-1:0\nrank 1=a slot=0:1;1:2\n", 2, "a a", "0-1,40-41 | 2,5,42,45", ""},
		{"fewer ranks", "rank 0=a slot=0\nrank 1=b slot=0\n", 1, "a", "0,40", ""},
		{"more ranks", "rank 0=a slot=0\n", 2, "", "", "the rankfile has 1"},
		{"no such host", "rank 0=z slot=0\n", 1, "", "", "rank 0: host z is not among the hosts of the job: a:1, b:1"},
		{"no such package", "rank 0=a slot=2:0\n", 1, "", "", "there is no such package: the machine has 2"},
		{"no such core", "rank 0=a slot=1:99\n", 1, "", "", "there is no core 99: there are 20"},
		{"no such CPU", "rank 0=a slot=p500\n", 1, "", "", "CPUs 500 may not be used"},
		{"a gap", "rank 0=a slot=0\nrank 2=a slot=0\n", 1, "", "", "rank 1 has no line"},
		{"twice", "rank 0=a slot=0\nrank 0=a slot=0\n", 1, "", "", "line 2"},
		{"no lines", "#\n", 1, "", "", "no line"},
		{"nonsense", "rank=x\n", 1, "", "", "line 1"},
		{"slots of nonsense", "rank 0=a slot=a:b\n", 1, "", "", "line 1"},
		{"a word behind the host", "rank 0=a cores=1\n", 1, "", "", "slot=SLOTS"},
		{"Open MPI's other forms", "rank 0=a slots=1\nrank 1=a slot=core2\nrank 2=a slot=0, 1\nrank 3=a\tslot = 0:core1-2\n", 4, "a a a a", "2,42 | 4,44 | 0,2,40,42 | 2,4,42,44", ""},
		{"no core behind the word", "rank 0=a slot=core\n", 1, "", "", "want cores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines, err := ParseRankFile(c.text)
			var r *Result
			if err == nil {
				r, err = Place(hostsOf(t, "a@xeon b@xeon"), []App{{NP: c.np}}, Policy{Map: Map{By: Ranks}, File: lines})
			}
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("got %v, %v; want an error with %q", r, err, c.err)
				}
				return
			}
			if err != nil || where(r) != c.hosts || bound(r) != c.cpus {
				t.Errorf("got %v, %+v, want %s, %s", err, r, c.hosts, c.cpus)
			}
		})
	}
}

func odds() []int {
	var list []int
	for c := 1; c < 80; c += 2 {
		list = append(list, c)
	}
	return list
}

func TestParseRefusesUnknownWords(t *testing.T) {
	for _, c := range []struct{ what, text, err string }{
		{"map", "sockets", "want slot, node"},
		{"map", "board", "the kernel shows no boards"},
		{"map", "dist:mlx5_0", "where devices are"},
		{"map", "l4cache", "third level"},
		{"map", "ppr", "want ppr:N:OBJECT"},
		{"map", "ppr:0:core", "1 or more"},
		{"map", "ppr:2:slot", `"slot": want hwthread`},
		{"map", "core:pe=0", "pe=2"},
		{"map", "core:spam", "want pe=N"},
		{"map", "core:2", "--bind-to core:2"},
		{"map", "core:file=x", "rankfile"},
		{"map", "core:ordered", "pe-list"},
		{"map", "pe-list=x", "CPU numbers"},
		{"rank", "board", "no boards"},
		{"rank", "x", "want slot"},
		{"rank", "slot:span", "modifier"},
		{"bind", "sockets", "want none"},
		{"bind", "gpu0", "devices"},
		{"bind", "core:x", "overload-allowed"},
		{"bind", "none:2", "overload-allowed"},
		{"bind", "user", "user:0+2"},
		{"bind", "user:0,x", "CPU numbers"},
	} {
		var err error
		switch c.what {
		case "map":
			_, err = ParseMap(c.text)
		case "rank":
			_, err = ParseRank(c.text)
		case "bind":
			_, err = ParseBind(c.text)
		}
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %q: got %v, want an error with %q", c.what, c.text, err, c.err)
		}
	}
}

// Whatever is asked for, a placement is one: every rank has a host, no limit is
// exceeded, and the CPUs are allowed ones, shared only where that was allowed.
func TestEveryPlacement(t *testing.T) {
	machines := map[string]*topo.Machine{}
	for _, name := range topotest.Names(t) {
		m := topotest.Machine(t, name)
		machines[name] = &m
	}
	names := topotest.Names(t)
	maps := []string{"", "slot", "node", "core", "hwthread", "l1cache", "l2cache", "l3cache", "numa", "package", "numa:span", "core:span", "ppr:1:core", "ppr:2:numa", "ppr:3:node", "core:pe=2", "slot:pe=3", "numa:pe=4", "node:pe=2:hwtcpus"}
	ranks := []string{"", "slot", "node", "fill", "span", "core", "numa", "package:span"}
	binds := []string{"", "none", "hwthread", "core", "l2cache", "l3cache", "numa", "package", "machine", "core:2", "core:overload-allowed", "l3cache:if-supported", "openmpi"}
	placed := 0
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		var hosts []Host
		for i := range 1 + r.IntN(4) {
			h := Host{Name: string(rune('a' + i)), Slots: r.IntN(20), Machine: machines[names[r.IntN(len(names))]]}
			if r.IntN(3) == 0 {
				h.Max = max(1, h.Slots) + r.IntN(4)
			}
			hosts = append(hosts, h)
		}
		apps := make([]App, 1+r.IntN(3))
		for i := range apps {
			apps[i].NP = 1 + r.IntN(20)
		}
		if r.IntN(4) == 0 {
			apps[r.IntN(len(apps))].NP = 0
		}
		words := "map=" + maps[r.IntN(len(maps))] + " rank=" + ranks[r.IntN(len(ranks))] + " bind=" + binds[r.IntN(len(binds))]
		if r.IntN(5) == 0 {
			words += " perhost=3"
		}
		p, err := policyOf(words)
		if err != nil {
			t.Fatal(err)
		}
		result, err := Place(hosts, apps, p)
		if err != nil {
			continue // it says why; that these are right is the tables' matter
		}
		placed++
		fail := func(format string, args ...any) {
			t.Fatalf("seed %d: %s, hosts %+v, apps %+v: %s", seed, words, hosts, apps, fmt.Sprintf(format, args...))
		}
		sum := 0
		for i, n := range result.NPs {
			if apps[i].NP != 0 && n != apps[i].NP || n < 1 {
				fail("program %d got %d ranks", i, n)
			}
			for rank := sum; rank < sum+n; rank++ {
				if result.Ranks[rank].App != i {
					fail("rank %d is of program %d, want %d", rank, result.Ranks[rank].App, i)
				}
			}
			sum += n
		}
		if sum != len(result.Ranks) {
			fail("%d ranks, want %d", len(result.Ranks), sum)
		}
		seen := map[int]bool{}
		for i, s := range result.Shares {
			h := struct {
				Host  Host
				Ranks []int
			}{hosts[strings.Index("abcd", s.Host)], s.Ranks}
			if len(h.Ranks) == 0 || h.Host.Max > 0 && len(h.Ranks) > h.Host.Max {
				fail("host %s has %d ranks, limit %d", h.Host.Name, len(h.Ranks), h.Host.Max)
			}
			before := -1
			users := map[int]int{}
			for _, rank := range h.Ranks {
				if seen[rank] || rank <= before || result.Ranks[rank].Host != i {
					fail("host %s has ranks %v", h.Host.Name, h.Ranks)
				}
				seen[rank], before = true, rank
				cpus := result.Ranks[rank].CPUs
				if !h.Host.Machine.Allowed.Contains(cpus) {
					fail("rank %d is bound to %s, allowed is %s", rank, cpus, h.Host.Machine.Allowed)
				}
				if result.Bind.To == BindNone && cpus.Len() > 0 && p.Map.PE == 0 {
					fail("rank %d is bound to %s", rank, cpus)
				}
				for _, c := range cpus.List() {
					users[c]++
				}
			}
			// Ranks of a set of CPUs are not more than these.
			if b := result.Bind; b.To == BindObject && !b.Overload && len(users) > 0 {
				if len(h.Ranks) > len(users) {
					fail("host %s: %d ranks share %d CPUs", h.Host.Name, len(h.Ranks), len(users))
				}
				if kind := b.Kind; b.Count == 0 && p.Map.PE == 0 && kind == topo.Thread || p.Map.PE > 0 {
					for c, n := range users {
						if n > 1 {
							fail("host %s: CPU %d is given to %d ranks", h.Host.Name, c, n)
						}
					}
				}
			}
		}
		if len(seen) != sum {
			fail("%d ranks have a host, want %d", len(seen), sum)
		}
	}
	if placed < 400 {
		t.Errorf("only %d of the random jobs could be placed", placed)
	}
}

func FuzzWords(f *testing.F) {
	for _, s := range []string{"core:pe=2", "ppr:2:socket,span", "user:0+1,2", "pe-list=0-3:ordered", "package:span", "none", "rank 0=a slot=0:1-2,p3"} {
		f.Add(s)
	}
	m := topotest.Machine(f, "batch")
	f.Fuzz(func(t *testing.T, text string) {
		hosts := []Host{{Name: "a", Slots: 4, Machine: &m}}
		var p Policy
		var err error
		if p.Map, err = ParseMap(text); err == nil {
			_, _ = Place(hosts, []App{{NP: 3}}, p)
		}
		p = Policy{Map: Map{Kind: topo.Whole}}
		if p.Rank, err = ParseRank(text); err == nil {
			_, _ = Place(hosts, []App{{NP: 3}}, p)
		}
		p.Rank = Rank{}
		if p.Bind, err = ParseBind(text); err == nil {
			_, _ = Place(hosts, []App{{NP: 3}}, p)
		}
		if lines, err := ParseRankFile(text); err == nil {
			_, _ = Place(hosts, []App{{}}, Policy{Map: Map{By: Ranks}, File: lines})
		}
	})
}
