package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// What is here hands out peers' memory to the program itself (rdma.Mapper).
//
// A request marks the region before it looks at the key, so that deregistration
// waits for it. Map does not: what it gives is used long after it returned, and
// the contract leaves the end of the use to the program. It is safe all the
// same. The arena stays mapped until the provider closes, so the bytes never
// fault; and nothing of the peer's table is believed: whatever offset and length
// stand there, the bytes lie in the heap of the peer's arena, where all writes
// of peers may go.

var (
	_ rdma.Mapper     = (*context)(nil)
	_ rdma.PeerMemory = (*peer)(nil)
)

// Peer gives the memory of a peer in the segment, or the own. Under an
// Adversary it fails with ErrNotSupported: stores cannot be delayed.
func (c *context) Peer(gid rdma.GID) (rdma.PeerMemory, error) {
	fail := func(err error, detail string) (rdma.PeerMemory, error) {
		return nil, &rdma.OpError{Op: "peer", Detail: fmt.Sprintf("%v: %s", gid, detail), Err: err}
	}
	s := c.p.find(gid)
	switch {
	case s == nil:
		return fail(rdma.ErrInvalid, "the peer is not known: add its endpoint first")
	case !s.inside:
		return fail(rdma.ErrNotSupported, "the peer does not share this rank's segment")
	case c.p.cfg.Adversary != nil:
		return fail(rdma.ErrNotSupported, "the device has an adversary, which lets nothing be mapped")
	}
	return s, nil
}

// Notify rings the peer's bell, as PostSend does behind its stores. Which of
// both sides has the barrier is said at shm.Bell.
func (s *peer) Notify() { s.bell.Ring() }

const remoteAccess = rdma.AccessRemoteRead | rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic

func (s *peer) Map(addr uint64, rkey uint32, length int, access rdma.Access) ([]byte, error) {
	if length < 0 || access&^remoteAccess != 0 {
		return nil, mapError(rkey, rdma.ErrInvalid, "%d bytes for %v", length, access)
	}
	e := mapped{}
	if s.own {
		// As in translate, the owner goes by what it knows.
		if r := s.p.byKey.get(rkey >> 8); r != nil && r.key == rkey {
			e = mapped{r.addr, r.length, r.offset, uint32(r.access), r.kind}
		}
	} else {
		e = s.entry(rkey)
	}
	off, n := addr-e.addr, uint64(length)
	switch {
	case e.kind == 0:
		return nil, mapError(rkey, rdma.ErrInvalid, "the peer has no region of this key")
	case addr < e.addr || off > e.length || n > e.length-off:
		return nil, mapError(rkey, rdma.ErrInvalid, "found %d bytes at %#x, expected them within the region's %d at %#x", n, addr, e.length, e.addr)
	case uint32(access)&^e.access != 0:
		return nil, mapError(rkey, rdma.ErrInvalid, "found access %v, expected no more than the region grants, %v", access, rdma.Access(e.access))
	}
	at := e.offset + off
	switch e.kind {
	case kindSegment:
	case kindImplicit:
		if at = addr - s.base; at < uint64(len(s.arena)) {
			break
		}
		fallthrough
	default:
		return nil, mapError(rkey, rdma.ErrNotSupported, "the region is not in the segment")
	}
	var sp span
	if !s.inArena(&sp, at, n) {
		return nil, mapError(rkey, rdma.ErrInvalid, "%d bytes at %#x are not in the heap of the arena", n, addr)
	}
	return sp.mem, nil
}

// mapped is what Map needs of a region. kind is 0 when there is none.
type mapped struct {
	addr, length, offset uint64
	access, kind         uint32
}

// entry reads a line of the peer's protection table. Nothing keeps the owner
// from filling it in for another region meanwhile, so state is looked at before
// and after. The loads are atomic, and with that in order: when the second look
// finds the same key, what lies between is of its life.
func (s *peer) entry(rkey uint32) (m mapped) {
	index := uint64(rkey >> 8)
	if index >= uint64(len(s.regions)) {
		return mapped{}
	}
	e := &s.regions[index]
	live := uint64(rkey) | regionLive
	if atomic.LoadUint64(&e.state) != live {
		return mapped{}
	}
	m = mapped{atomic.LoadUint64(&e.addr), atomic.LoadUint64(&e.length), atomic.LoadUint64(&e.offset),
		atomic.LoadUint32(&e.access), atomic.LoadUint32(&e.kind)}
	if atomic.LoadUint64(&e.state) != live {
		return mapped{}
	}
	return m
}

func mapError(rkey uint32, err error, format string, args ...any) error {
	return &rdma.OpError{Op: "map", Detail: fmt.Sprintf("key %#x: ", rkey) + fmt.Sprintf(format, args...), Err: err}
}
