// Package lines finds the line of a source that an address of a program or library comes from.
package lines

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// A Finder keeps what it has read of files until it is closed.
type Finder struct{ files map[string]*object }

// object is a file; elf is nil where it cannot be read.
type object struct {
	elf     *elf.File
	file    *os.File
	dwarf   *dwarf.Data // nil: it was built without -g
	symbols []elf.Symbol
	base    uint64
}

// Find is the function at an offset of a file as it lies in memory, and the line of the source, where the file knows them: else the file itself, and
// line 0. A function that is nowhere named is the offset.
func (f *Finder) Find(path string, offset uint64) (function, source string, line int) {
	o := f.files[path]
	if o == nil {
		if f.files == nil {
			f.files = make(map[string]*object)
		}
		o = open(path)
		f.files[path] = o
	}
	function, source = fmt.Sprintf("%#x", offset), path
	if o.elf == nil {
		return function, source, 0
	}
	at := o.base + offset
	if i, found := slices.BinarySearchFunc(o.symbols, at, func(s elf.Symbol, at uint64) int {
		if s.Value <= at {
			return -1
		}
		return 1
	}); !found && i > 0 && at < o.symbols[i-1].Value+max(o.symbols[i-1].Size, 1) {
		function = o.symbols[i-1].Name
	}
	if o.dwarf == nil {
		return function, source, 0
	}
	r := o.dwarf.Reader()
	unit, err := r.SeekPC(at)
	if err != nil {
		return function, source, 0
	}
	table, err := o.dwarf.LineReader(unit)
	var entry dwarf.LineEntry
	if err != nil || table == nil || table.SeekPC(at, &entry) != nil || entry.File == nil {
		return function, source, 0
	}
	return function, entry.File.Name, entry.Line
}

// Close closes the files.
func (f *Finder) Close() error {
	var err error
	for _, o := range f.files {
		if o.file != nil {
			err = errors.Join(err, o.file.Close())
		}
	}
	f.files = nil
	return err
}

func open(path string) *object {
	o := new(object)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return o
	}
	o.file = file
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return o
	}
	if o.elf, err = elf.NewFile(file); err != nil {
		o.elf = nil
		return o
	}
	for _, p := range o.elf.Progs { // the first one lies where the file does
		if p.Type == elf.PT_LOAD {
			o.base = p.Vaddr &^ (max(p.Align, 1) - 1)
			break
		}
	}
	o.symbols, _ = o.elf.Symbols()
	more, _ := o.elf.DynamicSymbols()
	o.symbols = slices.DeleteFunc(append(o.symbols, more...), func(s elf.Symbol) bool {
		return elf.ST_TYPE(s.Info) != elf.STT_FUNC || s.Value == 0
	})
	slices.SortStableFunc(o.symbols, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	if o.dwarf, err = o.elf.DWARF(); err != nil {
		o.dwarf = nil
	}
	return o
}
