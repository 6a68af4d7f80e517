package mpilib

import (
	"bytes"
	"encoding/binary"
	"io"
)

// ELF is what a program or a library says of itself.
type ELF struct {
	OK      bool // it is one, of this machine's word size and byte order
	Machine uint16
	Needed  []string // the libraries that it is linked with
	Soname  string
	Rpath   string // where they are looked for before LD_LIBRARY_PATH
	Go      bool   // it is a program of Go
}

// Read reads of an ELF file what can be read: package debug/elf would cost every
// gorun its start-up.
func Read(file io.ReaderAt) (e ELF) {
	const (
		ptLoad, ptDynamic, ptNote    = 1, 2, 4
		dtNull, dtNeeded, dtStrtab   = 0, 1, 5
		dtSoname, dtRpath, dtRunpath = 14, 15, 29
		headersMost, dynamicMost     = 64, 4096
		namesMost, headerSize, entry = 1 << 20, 56, 16
	)
	order := binary.LittleEndian
	var head [64]byte
	if _, err := file.ReadAt(head[:], 0); err != nil || !bytes.HasPrefix(head[:], []byte("\x7fELF\x02\x01")) {
		return e
	}
	e.OK, e.Machine = true, order.Uint16(head[18:])
	type segment struct{ kind, offset, address, size uint64 }
	segments := make([]segment, min(int(order.Uint16(head[56:])), headersMost))
	if order.Uint16(head[54:]) != headerSize {
		return e
	}
	at := int64(order.Uint64(head[32:]))
	var dynamic []byte
	for i := range segments {
		var b [headerSize]byte
		if _, err := file.ReadAt(b[:], at+int64(i)*headerSize); err != nil {
			return e
		}
		s := segment{uint64(order.Uint32(b[0:])), order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint64(b[32:])}
		segments[i] = s
		switch s.kind {
		case ptNote:
			// Its build ID: the lengths of name and text, the type, and the name.
			var note [16]byte
			if _, err := file.ReadAt(note[:], int64(s.offset)); err == nil {
				e.Go = e.Go || string(note[12:]) == "Go\x00\x00"
			}
		case ptDynamic:
			dynamic = make([]byte, min(s.size, dynamicMost*entry))
			if _, err := file.ReadAt(dynamic, int64(s.offset)); err != nil {
				return e
			}
		}
	}
	var needed []uint64
	var table, soname, rpath, runpath uint64
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
		case dtSoname:
			soname = value
		case dtRpath:
			rpath = value
		case dtRunpath:
			runpath = value
		}
	}
	for _, s := range segments {
		if s.kind != ptLoad || table < s.address || table-s.address >= s.size {
			continue
		}
		text := func(n uint64) string {
			var b [256]byte
			if n == 0 || n > namesMost {
				return ""
			}
			got, _ := file.ReadAt(b[:], int64(s.offset+(table-s.address)+n))
			return string(b[:max(0, bytes.IndexByte(b[:got], 0))])
		}
		for _, n := range needed {
			if name := text(n); name != "" {
				e.Needed = append(e.Needed, name)
			}
		}
		e.Soname = text(soname)
		if runpath == 0 { // else it is ignored
			e.Rpath = text(rpath)
		}
	}
	return e
}
