package host

import (
	"bytes"
	"encoding/binary"
	"io"
)

// readELF tells which libraries an ELF program of this machine's size and byte
// order is linked with, and whether it is one of Go, as far as that can be read:
// package debug/elf would cost every gorun its start-up.
func readELF(file io.ReaderAt) (names []string, goes bool) {
	const (
		ptLoad, ptDynamic, ptNote    = 1, 2, 4
		dtNull, dtNeeded, dtStrtab   = 0, 1, 5
		headersMost, dynamicMost     = 64, 4096
		namesMost, headerSize, entry = 1 << 20, 56, 16
	)
	order := binary.LittleEndian
	var head [64]byte
	if _, err := file.ReadAt(head[:], 0); err != nil || !bytes.HasPrefix(head[:], []byte("\x7fELF\x02\x01")) {
		return nil, false
	}
	type segment struct{ kind, offset, address, size uint64 }
	segments := make([]segment, min(int(order.Uint16(head[56:])), headersMost))
	if order.Uint16(head[54:]) != headerSize {
		return nil, false
	}
	at := int64(order.Uint64(head[32:]))
	var dynamic []byte
	for i := range segments {
		var b [headerSize]byte
		if _, err := file.ReadAt(b[:], at+int64(i)*headerSize); err != nil {
			return nil, false
		}
		s := segment{uint64(order.Uint32(b[0:])), order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint64(b[32:])}
		segments[i] = s
		switch s.kind {
		case ptNote:
			// Its build ID: the lengths of name and text, the type, and the name.
			var note [16]byte
			if _, err := file.ReadAt(note[:], int64(s.offset)); err == nil {
				goes = goes || string(note[12:]) == "Go\x00\x00"
			}
		case ptDynamic:
			dynamic = make([]byte, min(s.size, dynamicMost*entry))
			if _, err := file.ReadAt(dynamic, int64(s.offset)); err != nil {
				return nil, goes
			}
		}
	}
	var needed []uint64
	var table uint64
	for ; len(dynamic) >= entry; dynamic = dynamic[entry:] {
		tag, value := order.Uint64(dynamic), order.Uint64(dynamic[8:])
		if tag == dtNull {
			break
		}
		switch tag {
		case dtNeeded:
			needed = append(needed, value)
		case dtStrtab:
			table = value
		}
	}
	for _, s := range segments {
		if s.kind != ptLoad || table < s.address || table-s.address >= s.size {
			continue
		}
		for _, n := range needed {
			var b [256]byte
			if n > namesMost {
				continue
			}
			got, _ := file.ReadAt(b[:], int64(s.offset+(table-s.address)+n))
			if end := bytes.IndexByte(b[:got], 0); end > 0 {
				names = append(names, string(b[:end]))
			}
		}
	}
	return names, goes
}
