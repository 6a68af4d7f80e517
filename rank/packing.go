package rank

import "math/bits"

// A packing is memory for the packed data of one buffer, of a power of two bytes.
type packing struct {
	mem  []byte
	next *packing
}

// packings are recycled packings, by the logarithm of their length.
type packings struct {
	free [64]*packing
	kept int // bytes
}

const (
	// packingLeast is the logarithm of the shortest packing.
	packingLeast = 6
	// packingsMost is how many bytes are kept for later.
	packingsMost = 64 << 20
)

// get gives memory of at least n bytes.
func (s *packings) get(n int) *packing {
	class := packingLeast
	if n > 1<<packingLeast {
		class = bits.Len(uint(n - 1))
	}
	p := s.free[class]
	if p == nil {
		return &packing{mem: make([]byte, 1<<class)}
	}
	s.free[class], p.next = p.next, nil
	s.kept -= len(p.mem)
	return p
}

// put takes memory back; nil is nothing.
func (s *packings) put(p *packing) {
	if p == nil || s.kept+len(p.mem) > packingsMost {
		return
	}
	class := bits.Len(uint(len(p.mem))) - 1
	p.next, s.free[class] = s.free[class], p
	s.kept += len(p.mem)
}

// outgoing is a buffer's data as one run of bytes: its own memory, or a copy in p.
func (s *packings) outgoing(b *Buffer) (data []byte, p *packing) {
	if b.solid() {
		return b.bytes(), nil
	}
	p = s.get(b.size())
	data = p.mem[:b.size()]
	b.core().Pack(data, b.mem, 0)
	return data, p
}

// incoming is a run of bytes for a buffer's data: its own memory, or one in p that
// arrived moves to where it belongs.
func (s *packings) incoming(b *Buffer) (data []byte, p *packing) {
	if b.solid() {
		return b.bytes(), nil
	}
	p = s.get(b.size())
	return p.mem[:b.size()], p
}

// arrived ends what incoming began, when n bytes have come.
func (s *packings) arrived(b *Buffer, p *packing, n int) {
	if p != nil {
		b.core().Unpack(b.mem, p.mem[:n], 0)
		s.put(p)
	}
}
