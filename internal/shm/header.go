package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrNotSegment is wrapped by errors about a file that is no job segment of
// this version of gorun.
var ErrNotSegment = errors.New("not a gorun segment")

const (
	magic   = "GORUNSEG"
	version = 3
	// headerFixed is where the rank entries begin. The header is written once
	// by the creator, before anybody else has the file:
	//
	//	0 magic  8 version u32  12 ranks u32  16 arena size u64  24 total size u64  32 world u32
	headerFixed = 128
	headerUsed  = 36
)

// appendTo writes the header of a layout.
func (l layout) appendTo(b []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, version)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.Ranks))
	b = binary.LittleEndian.AppendUint64(b, l.ArenaSize)
	b = binary.LittleEndian.AppendUint64(b, l.total)
	return binary.LittleEndian.AppendUint32(b, uint32(l.World))
}

// parseHeader reads a header that anybody may have written, in a file of size
// bytes. A layout without an error lies inside the file.
func parseHeader(b []byte, size int64, page uint64) (layout, error) {
	if len(b) < headerUsed || string(b[:len(magic)]) != magic {
		return layout{}, fmt.Errorf("%w: no %q at its beginning", ErrNotSegment, magic)
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != version {
		return layout{}, fmt.Errorf("%w: version %d, expected %d: all programs of a job must be built from the same gorun", ErrNotSegment, v, version)
	}
	g := Geometry{ArenaSize: binary.LittleEndian.Uint64(b[16:])}
	if n := binary.LittleEndian.Uint32(b[12:]); n <= MaxRanks {
		g.Ranks = int(n)
	} else {
		return layout{}, fmt.Errorf("%w: %d ranks, expected 1 to %d", ErrNotSegment, n, MaxRanks)
	}
	if n := binary.LittleEndian.Uint32(b[32:]); n <= MaxWorld {
		g.World = int(n)
	} else {
		return layout{}, fmt.Errorf("%w: marks for %d ranks, expected 0 to %d", ErrNotSegment, n, MaxWorld)
	}
	l, err := g.lay(page)
	if err != nil {
		return layout{}, fmt.Errorf("%w: %w", ErrNotSegment, err)
	}
	if said := binary.LittleEndian.Uint64(b[24:]); said != l.total || size < 0 || uint64(size) != l.total {
		return layout{}, fmt.Errorf("%w: its header says %d bytes, its geometry makes %d, the file has %d", ErrNotSegment, said, l.total, size)
	}
	return l, nil
}
