// Package place decides where the ranks of a job run: on which host, in which
// order, and on which CPUs of it.
//
// [Place] is a pure function of the hosts (slots, limits and, where a policy
// asks for them, topologies), the programs and their sizes, and a [Policy]: it
// looks at no machine, keeps nothing and cannot block. [ParseMap], [ParseRank],
// [ParseBind] and [ParseRankFile] read the words of the command lines of Open
// MPI, PRRTE and Hydra, which mean the same things by the same names.
//
// # Three steps
//
//	map   every process gets a host and, mapped by an object, an object of it
//	rank  the processes of each program are numbered
//	bind  every process gets CPUs: of its object, or all those below it
//
// Mapping: the hosts' slots are filled in order. Processes beyond them are
// spread so that the hosts are evenly loaded; Max is never exceeded. "node"
// deals to hosts in turn, an object kind fills hosts and deals to the host's
// objects in turn, with ":span" to the objects of all hosts in turn, and
// ppr:N:object puts N on each. Ranking follows the mapping unless another order
// is asked for. Binding takes the objects with the fewest ranks first, so that
// ranks of an object, or of a host, get different ones while there are any.
// Only allowed CPUs count; objects without any are passed by.
//
// # Which ranks are bound when nothing is said
//
// None. Ranks mapped by an object are bound to it, since mapping has no other
// effect on one host. mpirun's own default (to cores up to two ranks, to
// packages or NUMA nodes beyond) is [DefaultOpenMPI]. It is not ours because two
// jobs of a machine are then bound to the same first cores: two one-rank jobs of
// mpirun 4.1.4 side by side on a machine with two idle CPUs are both bound to CPU
// 0. That is what people complain of in containers, continuous integration and
// shared batch nodes, where the launcher sees more CPUs than are its own; so even
// DefaultOpenMPI binds nothing where only a part of the machine may be used, or
// ranks outnumber CPUs or slots.
//
// # Files
//
// Read policy.go first, what is asked for, then place.go, which has the order: deal.go
// maps, number.go ranks, bind.go binds. bindmore.go binds ranks that come later. parse.go
// and rankfile.go read the words.
package place
