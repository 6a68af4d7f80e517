package rdma

import (
	"fmt"
	"math"
)

// An Mkey is a memory key whose layout is set by a work request (mlx5dv_mkey, user memory
// registration). Its addresses are contiguous from 0, wherever the pieces of memory lie. [WRRegMkey]
// sets the layout for later requests on the same queue pair, and [WRLocalInv] removes it.
type Mkey interface {
	PD() PD
	LKey() uint32
	RKey() uint32
	Close() error
}

// An MkeyLayout is the memory of an [Mkey]. It is either a List of consecutive pieces (mlx5dv_wr_mr_list),
// or Repeat rounds, each of which takes Count bytes of every piece of Interleaved and then skips Skip
// bytes of it (mlx5dv_wr_mr_interleaved). A single interleaved piece is a strided layout.
type MkeyLayout struct {
	Access      Access
	List        []SGE
	Repeat      uint32
	Interleaved []MkeyPiece
}

// An MkeyPiece is a piece of an interleaved layout (struct mlx5dv_mr_interleaved).
type MkeyPiece struct {
	Addr  uint64 // of the first block
	Count uint32 // length of a block in bytes
	Skip  uint32 // bytes between the end of a block and the next block
	LKey  uint32
}

// Len is the length of the layout in bytes.
func (l MkeyLayout) Len() uint64 {
	var n uint64
	for _, s := range l.List {
		n += uint64(s.Length)
	}
	var round uint64
	for _, p := range l.Interleaved {
		round += uint64(p.Count)
	}
	return n + uint64(l.Repeat)*round
}

// Wrong returns why the layout is invalid for a key with so many entries,
// or "" if it is valid. It does not check the keys in the layout.
func (l *MkeyLayout) Wrong(entries int) string {
	if CheckAccess(l.Access) != nil || l.Access&^(AccessLocalWrite|AccessRemoteWrite|AccessRemoteRead|AccessRemoteAtomic) != 0 {
		return fmt.Sprintf("a layout cannot grant %v", l.Access)
	}
	if (len(l.List) == 0) == (len(l.Interleaved) == 0) || len(l.List)+len(l.Interleaved) > entries {
		return fmt.Sprintf("%d pieces in a list and %d interleaved: want 1 to %d of one kind", len(l.List), len(l.Interleaved), entries)
	}
	if l.Len() == 0 {
		return "a layout of no bytes"
	}
	// Len adds and multiplies numbers of 32 bits, and so many of them that
	// only the product may be too large.
	var round uint64
	for i := range l.Interleaved {
		round += uint64(l.Interleaved[i].Count)
	}
	if round > 0 && uint64(l.Repeat) > math.MaxInt64/round {
		return fmt.Sprintf("%d rounds of %d bytes", l.Repeat, round)
	}
	return ""
}
