package rdma

import (
	"fmt"
	"math"
)

// An Mkey is a memory key whose layout a work request sets (mlx5dv_mkey, user
// memory registration): its addresses count from 0 without a gap, whatever the
// memory behind them looks like. WRRegMkey sets the layout; requests posted
// behind it on the same queue pair see it. WRLocalInv takes it back.
type Mkey interface {
	PD() PD
	LKey() uint32
	RKey() uint32
	Close() error
}

// An MkeyLayout is the memory behind an Mkey: either a List of pieces, one after
// the other (mlx5dv_wr_mr_list), or Repeat rounds, each of which takes Count
// bytes from every one of Interleaved and steps over Skip behind them
// (mlx5dv_wr_mr_interleaved). One interleaved piece alone is a stride.
type MkeyLayout struct {
	Access      Access
	List        []SGE
	Repeat      uint32
	Interleaved []MkeyPiece
}

// An MkeyPiece is one of the interleaved pieces (struct mlx5dv_mr_interleaved).
type MkeyPiece struct {
	Addr  uint64 // of its first block
	Count uint32 // bytes in a block
	Skip  uint32 // bytes between the end of a block and the begin of the next
	LKey  uint32
}

// Len is the number of bytes that the layout shows.
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

// Wrong says what keeps a layout from being one for a key of so many entries,
// whatever lies behind the keys that it names; "" for nothing.
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
