// Package sim runs collectives of many thousand ranks in one process: the plans that package
// coll compiles for them, selected by its tables, on a fabric with a virtual clock. It tells
// how long a call would take, and what it costs in messages and memory.
//
// Read params.go first, the model of time; then program.go, what a plan becomes here;
// fabric.go, which runs it; and symmetry.go, by which 64 ranks stand for 65,536.
// docs/scale.md has what came of it.
//
// The times are the model's, not a machine's: every host has one link to a network without
// congestion, ranks of a host do not share the bandwidth of its memory, and no rank is late.
// The memory of the calls is ordinary memory, not registered.
//
// A run is deterministic: all times are whole picoseconds, and what happens at the same time
// happens in an order that depends on the hosts' distance only.
package sim
