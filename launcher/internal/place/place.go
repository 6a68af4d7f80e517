// Package place decides where the ranks of a job run.
//
// It is a pure function of the job's size and the hosts' slots: it looks at no
// machine, keeps nothing and cannot block.
package place

import (
	"fmt"
	"strings"
)

// Host offers slots.
type Host struct {
	Name  string
	Slots int // 0 stands for 1
}

// Share is what a host got: its ranks in ascending order, which need not be
// neighbours.
type Share struct {
	Host  string
	Ranks []int
}

// OneHost gives all ranks to one host.
func OneHost(name string, np int) []Share { return []Share{{name, count(0, np)}} }

// count is n ranks from first on.
func count(first, n int) []int {
	ranks := make([]int, n)
	for i := range ranks {
		ranks[i] = first + i
	}
	return ranks
}

// BySlot fills the hosts' slots in order, so that neighbouring ranks share a
// host. Hosts named twice are one host with the slots of both, at the place of
// the first. Hosts that get no rank are left out.
func BySlot(np int, hosts []Host) ([]Share, error) {
	if np < 1 {
		return nil, fmt.Errorf("%d ranks: want 1 or more", np)
	}
	var merged []Host
	index := make(map[string]int, len(hosts))
	for i, h := range hosts {
		switch {
		case h.Name == "":
			return nil, fmt.Errorf("host %d of the list has no name", i+1)
		case h.Slots < 0:
			return nil, fmt.Errorf("host %s offers %d slots: want 1 or more", h.Name, h.Slots)
		case h.Slots == 0:
			h.Slots = 1
		}
		k, seen := index[h.Name]
		if !seen {
			k = len(merged)
			index[h.Name] = k
			merged = append(merged, Host{Name: h.Name})
		}
		// Nobody needs more slots than ranks, and sums of huge ones overflow.
		merged[k].Slots = min(np, merged[k].Slots+min(np, h.Slots))
	}
	var shares []Share
	first := 0
	for _, h := range merged {
		n := min(h.Slots, np-first)
		if n == 0 {
			break
		}
		shares = append(shares, Share{h.Name, count(first, n)})
		first += n
	}
	if first < np {
		return nil, fmt.Errorf("%d ranks need %d slots, but there are %d: %s; give the hosts more slots (name:slots) or start fewer ranks",
			np, np, first, list(merged))
	}
	return shares, nil
}

// list names the hosts and their slots.
func list(hosts []Host) string {
	var b strings.Builder
	for i, h := range hosts {
		if i == 8 {
			fmt.Fprintf(&b, ", and %d more hosts", len(hosts)-i)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s:%d", h.Name, h.Slots)
	}
	return b.String()
}
