// Package datatype describes data that lies scattered in memory, by MPI's rules: a
// type map is a sequence of (basic type, displacement), and a [Type] is such a
// sequence with bounds. It packs the bytes of a type map into one row, in the order
// of the map, and back.
//
//	memory   |aa..bbbb....aa..bbbb....|    2 items of struct(2 bytes at 0, 4 at 4), extent 12
//	packed   |aabbbbaabbbb|
//
// # Types
//
// A [Type] is immutable but for a memory of what was found out about overlaps, and
// may be used by several goroutines. Constructors check what they are given;
// nothing of the caller's is kept.
//
// Inside, a type map is a tree of nodes: a node is a number of equal steps, each of
// which is one run of bytes or a list of nodes. The constructors merge what touches:
// a vector whose stride is its block length is one run, a struct without padding
// too, and [Type.Solid] says so, so that such data is never packed at all.
//
// # Cost
//
// Pack and Unpack start anywhere in the packed bytes: a division for each level of
// the tree, a binary search in a list. From there on they cost what a hand-written
// loop over the runs costs, and never allocate.
package datatype
