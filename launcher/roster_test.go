package launcher

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// What a roster is told, a word each, and the hosts and ranks of the next start after it:
//
//	list=a:2,b:1   these hosts are there now
//	placed=a:2     the start has so many ranks there
//	fail=a+b       the hosts fail together
//	unplaced       the job cannot be placed
func TestRosterNext(t *testing.T) {
	for _, c := range []struct {
		name, job, told, want string
	}{
		{"no failure", "a:2,b:2 np=2", "placed=a:2", "a:2,b:2"},
		{"a spare takes over", "a:2,b:2,c:2 np=4", "placed=a:2,b:2 fail=b", "a:2,c:2"},
		{"before the first placement", "a:2,b:2,c:2 np=4", "fail=b", "a:2,c:2"},
		{"two are late together", "a:2,b:2,c:2,d:2 np=4", "fail=b+c", "a:2,d:2"},
		{"no spare: all again", "a:2,b:2 np=4", "placed=a:2,b:2 fail=b", "a:2,b:2"},
		{"all slots: all again", "a:2,b:2", "fail=b", "a:2,b:2"},
		{"the spares are used up", "a:2,b:2,c:2 np=4", "placed=a:2,b:2 fail=b placed=a:2,c:2 fail=c", "a:2,b:2,c:2"},
		{"one for each CPU", "a:-1,b:-1,c:-1 np=4", "placed=a:2,b:2,c:0 fail=b", "a:1,c:1"},
		{"a number for each host", "a:1,b:1,c:1 np=4 ppn=2", "placed=a:2,b:2 fail=b", "a:1,c:1"},
		{"too few for that", "a:8,b:8 np=4 ppn=2", "placed=a:2,b:2 fail=b", "a:8,b:8"},
		{"not to be placed without it", "a:2,b:2,c:2 np=4", "placed=a:2,b:2 fail=b unplaced", "a:2,b:2,c:2"},
		{"placed by a rankfile", "a:2,b:2,c:2 np=4 file", "placed=a:2,b:2 fail=b", "a:2,b:2,c:2"},
		{"a host of nobody", "a:2,b:2 np=2", "placed=a:2 fail=x", "a:2,b:2"},

		{"as many as there are", "2:8", "list=a:2,b:3", "a:2,b:3 5"},
		{"no more than that", "2:4", "list=a:2,b:3", "a:2,b:3 4"},
		{"too few", "2:4", "list=a:1", "a:1 0"},
		{"nobody", "1:4", "list=", " 0"},
		{"one fails", "2:8", "list=a:2,b:3 placed=a:2,b:3 fail=b", "a:2 2"},
		{"two fail together", "2:8", "list=a:2,b:3,c:1 fail=b+c", "a:2 2"},
		{"too many fail", "3:8", "list=a:2,b:3 placed=a:2,b:3 fail=b", "a:2 0"},
		{"it is listed on", "2:8", "list=a:2,b:3 placed=a:2,b:3 fail=b list=a:2,b:3", "a:2 2"},
		{"it left and came", "2:8", "list=a:2,b:3 placed=a:2,b:3 fail=b list=a:2 list=a:2,b:3", "a:2,b:3 5"},
		{"hosts of the job", "2:8 a:2,b:3", "placed=a:2,b:3 fail=a", "b:3 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := tell(t, c.job, c.told)
			hosts, ranks := r.next()
			got := listHosts(hosts)
			if r.job.Elastic != nil {
				got += fmt.Sprintf(" %d", ranks)
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestRosterChanged(t *testing.T) {
	for _, c := range []struct {
		name, told, want string
	}{
		{"the same", "list=a:2,b:2 placed=a:2,b:2 list=b:2,a:2", ""},
		{"more slots", "list=a:2 placed=a:2 list=a:2,b:1", "there are hosts for 3 ranks, 2 run: a:2,b:1"},
		{"more than wanted", "list=a:4,b:2 placed=a:4,b:2 list=a:4,b:2,c:9", ""},
		{"a spare goes", "list=a:4,b:4 placed=a:4,b:2 list=a:4,b:4,c:1 list=a:4,b:4", ""},
		{"one in use goes", "list=a:2,b:2 placed=a:2,b:2 list=a:2", "host b is no longer listed"},
		{"one in use has fewer slots", "list=a:2,b:2 placed=a:2,b:2 list=a:2,b:1", "host b is listed with room for 1 ranks, 2 run there"},
		{"it had slots to spare", "list=a:4,b:4 placed=a:4,b:2 list=a:4,b:2", ""},
		{"it is listed twice", "list=a:2,b:2 placed=a:2,b:2 list=a:2,b:1,b:1", ""},
		{"another one has more", "list=a:2,b:2 placed=a:2,b:2 list=a:3,b:1", "host b is listed with room for 1 ranks, 2 run there"},
		{"one for each CPU", "list=a:-1,b:-1 placed=a:2,b:2 list=a:-1,b:-1", ""},
		{"all go", "list=a:2 placed=a:2 list=", "host a is no longer listed"},
		{"one that failed stays", "list=a:2,b:2 placed=a:2,b:2 fail=b placed=a:2 list=a:2,b:2", ""},
		{"one that failed has returned", "list=a:2,b:2 fail=b placed=a:2 list=a:2 list=a:2,b:2", "there are hosts for 4 ranks, 2 run: a:2,b:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := tell(t, "2:6", c.told).changed(); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// tell makes the roster of a job and tells it what has happened.
func tell(t *testing.T, job, told string) *roster {
	t.Helper()
	j := new(Job)
	for word := range strings.FieldsSeq(job) {
		var low, high int
		switch {
		case word == "file":
			j.Placing.RankFile = "rank 0=a"
		case scan(word, "np=%d", &j.NP), scan(word, "ppn=%d", &j.Placing.PerHost):
		case scan(word, "%d:%d", &low, &high):
			j.Elastic = &Elastic{Min: low, Max: high}
		default:
			j.Hosts = hostsOf(t, word)
		}
	}
	r := newRoster(j)
	for word := range strings.FieldsSeq(told) {
		what, value, _ := strings.Cut(word, "=")
		switch what {
		case "list":
			r.list(hostsOf(t, value))
		case "fail":
			r.failed(strings.ReplaceAll(value, "+", ", "))
		case "unplaced":
			if !r.bringBack(bad("NP", "4", "no room")) || r.bringBack(bad("NP", "4", "no room")) || r.bringBack(errors.New("other")) {
				t.Error("what is set aside is not brought back once")
			}
		case "placed":
			var p Placement
			for _, h := range hostsOf(t, value) {
				ph := PlacedHost{Name: h.Name, Slots: h.Slots}
				for range h.Slots {
					ph.Ranks = append(ph.Ranks, len(p.Ranks))
					p.Ranks = append(p.Ranks, PlacedRank{})
				}
				p.Hosts = append(p.Hosts, ph)
			}
			if p.Hosts[len(p.Hosts)-1].Slots == 0 { // of which each has two
				p.Hosts[len(p.Hosts)-1].Slots = 2
			}
			r.placed(p)
		}
	}
	return r
}

func scan(word, format string, into ...any) bool {
	n, err := fmt.Sscanf(word, format, into...)
	return err == nil && n == len(into)
}

func hostsOf(t *testing.T, list string) (hosts []Host) {
	t.Helper()
	for word := range strings.SplitSeq(list, ",") {
		name, slots, _ := strings.Cut(word, ":")
		if name == "" {
			continue
		}
		h := Host{Name: name}
		if !scan(slots, "%d", &h.Slots) {
			t.Fatalf("%q is no host", word)
		}
		hosts = append(hosts, h)
	}
	return hosts
}
