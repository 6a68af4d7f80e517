package launcher

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A roster says which hosts the next start of a job has. It decides by what it was told, and asks nobody.
//
// A host that has failed is set aside. Without Job.Elastic the job needs as many ranks as before; where the others
// have too few slots for them, all hosts are tried again. With it the job takes the slots that there are, and a host
// that was not listed for a while has left: when it is listed again, it is another one.
type roster struct {
	job    *Job
	listed []Host
	aside  map[string]bool // by the job's name for a host
	slots  map[string]int  // that hosts of the last placement had
	ranks  int             // of the last placement; 0: there was none
	used   []string        // hosts of those
	on     map[string]int  // how many of them are there
}

func newRoster(job *Job) *roster {
	return &roster{job: job, listed: job.Hosts, aside: map[string]bool{}, slots: map[string]int{}}
}

// list takes the hosts that are there now.
func (r *roster) list(hosts []Host) {
	r.listed = hosts
	for name := range r.aside {
		if !r.lists(name) {
			delete(r.aside, name)
		}
	}
}

func (r *roster) lists(name string) bool { return len(r.listedAs(name)) > 0 }

// listedAs are the lines of the list that are a host's.
func (r *roster) listedAs(name string) []Host {
	return slices.DeleteFunc(slices.Clone(r.listed), func(h Host) bool { return r.job.hostName(h.Name) != name })
}

// placed notes where a start has its ranks, and tells whether the one before had them there too.
func (r *roster) placed(p Placement) (again bool) {
	ranks, used := r.ranks, r.used
	r.ranks, r.used, r.on = len(p.Ranks), nil, map[string]int{}
	for _, h := range p.Hosts {
		r.slots[h.Name] = h.Slots
		if len(h.Ranks) > 0 {
			r.used = append(r.used, h.Name)
			r.on[h.Name] = len(h.Ranks)
		}
	}
	return ranks == r.ranks && slices.Equal(used, r.used)
}

// failed sets hosts aside, if the job can do without them, and tells whether they are. It takes them as
// Cause.Host has them: several that were late are one cause.
func (r *roster) failed(names string) bool {
	some := false
	for name := range strings.SplitSeq(names, ", ") {
		if r.job.Placing.RankFile == "" && r.lists(name) {
			r.aside[name], some = true, true
		}
	}
	if some && r.job.Elastic == nil && r.room(r.rest()) < r.wanted() {
		clear(r.aside)
	}
	return some && len(r.aside) > 0
}

// bringBack has all hosts tried again where the job cannot be placed without those that are set aside.
func (r *roster) bringBack(err error) bool {
	_, is := errors.AsType[*JobError](err)
	is = is && r.job.Elastic == nil && len(r.aside) > 0
	if is {
		clear(r.aside)
	}
	return is
}

// rest are the hosts that are not set aside.
func (r *roster) rest() []Host {
	return slices.DeleteFunc(slices.Clone(r.listed), func(h Host) bool { return r.aside[r.job.hostName(h.Name)] })
}

// room is how many ranks hosts have slots for.
func (r *roster) room(hosts []Host) (n int) {
	for _, h := range hosts {
		switch {
		case r.job.Placing.PerHost > 0:
			n += r.job.Placing.PerHost
		case h.Slots < 0:
			n += max(1, r.slots[r.job.hostName(h.Name)])
		default:
			n += max(1, h.Slots)
		}
	}
	return n
}

// wanted is the number of ranks that a job without Job.Elastic has.
func (r *roster) wanted() (n int) {
	if r.ranks > 0 {
		return r.ranks
	}
	if len(r.job.Apps) == 0 {
		n = r.job.NP
	}
	for _, a := range r.job.Apps {
		n += a.NP
	}
	if n == 0 { // all slots
		return r.room(r.listed)
	}
	return n
}

// next is the hosts of the next start, and with Job.Elastic its number of ranks: 0 if there are too few slots.
func (r *roster) next() (hosts []Host, ranks int) {
	hosts = r.rest()
	if e := r.job.Elastic; e != nil {
		if ranks = min(e.Max, r.room(hosts)); ranks < e.Min {
			ranks = 0
		}
	}
	return hosts, ranks
}

// changed says why a running start should end for one with the hosts that are listed now; "": it should not.
func (r *roster) changed() string {
	for _, name := range r.used {
		if !r.lists(name) {
			return fmt.Sprintf("host %s is no longer listed", name)
		}
		if room := r.room(r.listedAs(name)); room < r.on[name] {
			return fmt.Sprintf("host %s is listed with room for %d ranks, %d run there", name, room, r.on[name])
		}
	}
	if hosts, ranks := r.next(); ranks > r.ranks {
		return fmt.Sprintf("there are hosts for %d ranks, %d run: %s", ranks, r.ranks, listHosts(hosts))
	}
	return ""
}

// String lists the hosts that are not set aside, and the others.
func (r *roster) String() string {
	var aside []string
	for name := range r.aside {
		aside = append(aside, name)
	}
	slices.Sort(aside)
	s := fmt.Sprintf("%d slots", r.room(r.rest()))
	if hosts := r.rest(); len(hosts) > 0 {
		s += " (" + listHosts(hosts) + ")"
	}
	if aside != nil {
		s += ", set aside: " + strings.Join(aside, ", ")
	}
	return s
}
