//go:build cgo

package pmix

import (
	"fmt"
	"strconv"
	"strings"
)

// programs are how many ranks each application has, and its first one, in the words
// of Open MPI.
func (ns *Namespace) programs() (counts, firsts string) {
	var count, first []int
	for r := range ns.NodeOf {
		app := 0
		if ns.AppOf != nil {
			app = int(ns.AppOf[r])
		}
		for len(count) <= app {
			count, first = append(count, 0), append(first, r)
		}
		count[app]++
	}
	words := func(list []int) string { return strings.Trim(fmt.Sprint(list), "[]") }
	return words(count), words(first)
}

// check finds what Register cannot express.
func (ns *Namespace) check() error {
	switch {
	case ns.Name == "" || len(ns.Name) > 255 || strings.ContainsAny(ns.Name, "\x00;,"):
		return fmt.Errorf("namespace %q: want 1 to 255 bytes", ns.Name)
	case len(ns.NodeOf) == 0:
		return fmt.Errorf("namespace %s: no ranks", ns.Name)
	case ns.Node < -1 || ns.Node >= len(ns.Nodes):
		return fmt.Errorf("namespace %s: node %d of %d", ns.Name, ns.Node, len(ns.Nodes))
	case ns.AppOf != nil && len(ns.AppOf) != len(ns.NodeOf):
		return fmt.Errorf("namespace %s: applications of %d ranks, want %d", ns.Name, len(ns.AppOf), len(ns.NodeOf))
	}
	for i, name := range ns.Nodes {
		if name == "" || strings.ContainsAny(name, "\x00;,") {
			return fmt.Errorf("namespace %s: node %d is called %q", ns.Name, i, name)
		}
	}
	for r, n := range ns.NodeOf {
		if int(n) >= len(ns.Nodes) {
			return fmt.Errorf("namespace %s: rank %d is on node %d of %d", ns.Name, r, n, len(ns.Nodes))
		}
	}
	return nil
}

// procs are the ranks of each node as libpmix reads them: "0,1;2,3". Nodes without
// ranks are left out of both lists, since it cannot read an empty place.
func (ns *Namespace) procs() (nodes, procs string) {
	ranks := make([][]string, len(ns.Nodes))
	for r, n := range ns.NodeOf {
		ranks[n] = append(ranks[n], strconv.Itoa(r))
	}
	var names, lists []string
	for i, list := range ranks {
		if len(list) > 0 {
			names = append(names, ns.Nodes[i])
			lists = append(lists, strings.Join(list, ","))
		}
	}
	return strings.Join(names, ","), strings.Join(lists, ";")
}

// locals are each rank's number on its node, and the ranks of this one.
func (ns *Namespace) locals() (local []uint32, peers []string) {
	local = make([]uint32, len(ns.NodeOf))
	have := make([]uint32, len(ns.Nodes))
	for r, n := range ns.NodeOf {
		local[r] = have[n]
		have[n]++
		if int(n) == ns.Node {
			peers = append(peers, strconv.Itoa(r))
		}
	}
	return local, peers
}
