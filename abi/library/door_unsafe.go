//go:build cgo && linux

package main

// The words of a call are intptr_t.

import "C"

import "unsafe"

// What shim.h says of numbers.
const (
	large     = 1 << 16
	openDoor  = -1
	isMissing = -2
)

// gorun_mpi_call is the library's door. The words are C's, and valid during the call.
//
//export gorun_mpi_call
func gorun_mpi_call(number C.int, words unsafe.Pointer) C.int {
	w := (*[wordsMost]uintptr)(words)
	switch number {
	case openDoor:
		told = (*[commsTold]toldComm)(*(*unsafe.Pointer)(unsafe.Pointer(&w[0])))
		return 0
	case isMissing:
		missing(text(*(*ptr)(unsafe.Pointer(&w[0]))))
	}
	f := frame{words: w, number: int(number) &^ large, large: number&large != 0}
	return C.int(call(&f))
}
