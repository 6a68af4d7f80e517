//go:build cgo && linux

package main

/*
#include <stdlib.h>
*/
import "C"

import (
	"syscall"
	"unsafe"

	"github.com/gorun-mpi/gorun/rank"
)

func thread() int { return syscall.Gettid() }

// ownValues are the values of MPI's own attributes, of which C gets the addresses.
var ownValues *[8]int32

// The places of values.
const (
	ownTagUB = iota
	ownIO
	ownGlobal
	ownAppnum
	ownLastCode
	ownUniverse
	ownHost
	ownThere // bits of those that are there
)

// attributesOfWorld finds out MPI's own attributes, in memory of C.
func attributesOfWorld(w *rank.World) {
	if ownValues == nil {
		ownValues = (*[8]int32)(C.calloc(8, 4))
	}
	v := ownValues
	v[ownTagUB], v[ownIO] = rank.MaxTag, int32(w.Comm().Rank())
	v[ownGlobal] = 0
	if n, known, err := w.AppNum(never); err == nil && known {
		v[ownAppnum] = int32(n)
		v[ownThere] |= 1 << ownAppnum
	}
	if n, known, err := w.UniverseSize(never); err == nil && known {
		v[ownUniverse] = int32(n)
		v[ownThere] |= 1 << ownUniverse
	}
}

// ownAttribute is the address of the value of an attribute of MPI's own, nil where it has none.
func ownAttribute(keyval int) (at ptr, mine bool) {
	var i int
	switch keyval {
	case c_TAG_UB:
		i = ownTagUB
	case c_IO:
		i = ownIO
	case c_WTIME_IS_GLOBAL:
		i = ownGlobal
	case c_LASTUSEDCODE:
		i = ownLastCode
		ownValues[i] = int32(firstAdded + len(job.codes) - 1)
	case c_APPNUM, c_UNIVERSE_SIZE:
		if i = ownAppnum; keyval == c_UNIVERSE_SIZE {
			i = ownUniverse
		}
		if ownValues[ownThere]&(1<<i) == 0 {
			return nil, true
		}
	case c_HOST:
		i = ownHost
		ownValues[i] = c_PROC_NULL
	default:
		return nil, false
	}
	return unsafe.Pointer(&ownValues[i]), true
}

// An aboutWindow is memory of C with what a window's own attributes say.
type aboutWindow struct {
	size                int64
	unit, flavor, model int32
}

func newAbout(size, unit, flavor int) *aboutWindow {
	a := (*aboutWindow)(C.calloc(1, C.size_t(unsafe.Sizeof(aboutWindow{}))))
	a.size, a.unit, a.flavor, a.model = int64(size), int32(unit), int32(flavor), c_WIN_UNIFIED
	return a
}

func (a *aboutWindow) free() { C.free(unsafe.Pointer(a)) }

// ownAttribute is the value of an attribute of MPI's own: the address of the memory, or of a number.
func (w *window) ownAttribute(keyval int) (ptr, bool) {
	switch keyval {
	case c_WIN_BASE:
		return w.base, true
	case c_WIN_SIZE:
		return ptr(&w.about.size), true
	case c_WIN_DISP_UNIT:
		return ptr(&w.about.unit), true
	case c_WIN_CREATE_FLAVOR:
		return ptr(&w.about.flavor), true
	case c_WIN_MODEL:
		return ptr(&w.about.model), true
	}
	return nil, false
}
