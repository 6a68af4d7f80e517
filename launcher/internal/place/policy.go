package place

import (
	"slices"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// By is what processes are dealt to.
type By uint8

// The ways to deal. With Objects, PPR and their Kind.
const (
	BySlot By = iota
	ByNode
	Objects
	PPR    // Map.N on each object of a kind
	Seq    // one on each host of the list, as it stands
	Ranks  // as a rankfile says
	Listed // by slot; bound to the CPUs of Policy.Map.CPUs
	// MapOpenMPI is what mpirun does when nothing is said: by slot up to two ranks,
	// by NUMA node beyond.
	MapOpenMPI
)

// Map says how processes are mapped.
type Map struct {
	By      By
	Kind    topo.Kind // of Objects and PPR; topo.Whole is a host
	N       int       // of PPR
	PE      int       // cores, or threads, of each rank; 0: as Bind says
	Threads bool      // count hardware threads where Open MPI counts cores
	Span    bool
	NoLocal bool
	Ordered bool     // of Listed: each rank gets one of the CPUs
	CPUs    topo.Set // of Listed
	Over    Tri      // oversubscription
}

// Tri is a wish that may not be there.
type Tri uint8

// Answers that a Tri holds.
const (
	Unsaid Tri = iota
	Yes
	No
)

// Rank says how processes are numbered.
type Rank struct {
	By   RankBy
	Kind topo.Kind // of RankObject
	Span bool      // of RankObject
}

// RankBy is an order of numbers.
type RankBy uint8

// The orders.
const (
	RankMapped RankBy = iota // as they were mapped
	RankSlot                 // host after host
	RankNode                 // hosts in turn
	RankFill                 // object after object
	RankSpan                 // the objects of all hosts in turn
	RankObject               // the objects of a kind of a host in turn
)

// Bind says what ranks are bound to.
type Bind struct {
	To          BindTo
	Kind        topo.Kind  // of BindObject
	Count       int        // objects for each rank; 0 stands for 1
	Overload    bool       // more ranks than CPUs may share an object
	IfSupported bool       // else not bound where the machine has no such object
	Lists       []topo.Set // of BindLists, for the ranks of a host in turn; none: each CPU, by number
	Listed      bool       // to the CPUs that Policy.CPUs must name; see Order
}

// BindTo is what a rank is bound to.
type BindTo uint8

// Objects to bind to.
const (
	BindDefault BindTo = iota // see the package comment
	DefaultOpenMPI
	BindNone
	BindObject
	BindLists
)

// Policy is everything that a command line may say.
type Policy struct {
	Map     Map
	Rank    Rank
	Bind    Bind
	PerHost int      // slots of each host, whatever its own; 0: its own
	CPUs    topo.Set // no others are used; empty: all
	File    []Line   // of a rankfile, with By Ranks
}

// NeedsMachines tells whether Place needs the hosts' topologies.
func (p *Policy) NeedsMachines(hosts []Host) bool {
	switch {
	case p.Map.By == Objects, p.Map.By == PPR && p.Map.Kind != topo.Whole, p.Map.By == Listed, p.Map.By == MapOpenMPI, p.Map.PE > 0,
		p.Bind.To == BindObject, p.Bind.To == BindLists, p.Bind.To == DefaultOpenMPI, p.CPUs != nil:
		return true
	}
	return slices.ContainsFunc(p.File, func(l Line) bool { return l.Slots != "" }) ||
		slices.ContainsFunc(hosts, func(h Host) bool { return h.Slots < 0 })
}
