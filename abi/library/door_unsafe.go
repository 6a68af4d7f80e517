//go:build cgo && linux

package main

// The words of a call are intptr_t.

import "C"

import "unsafe"

// What shim.h says of numbers.
const (
	large     = 1 << 16
	nested    = 1 << 17
	openDoor  = -1
	isMissing = -2
	newThread = -3
	atExit    = -4
)

// gorun_mpi_call is the library's door. The words are C's, and valid during the call.
//
//export gorun_mpi_call
func gorun_mpi_call(number C.int, words unsafe.Pointer) C.int {
	w := (*[wordsMost]uintptr)(words)
	switch number {
	case openDoor:
		told = (*[commsTold]toldComm)(*(*unsafe.Pointer)(unsafe.Pointer(&w[0])))
		stays = (*int32)(*(*unsafe.Pointer)(unsafe.Pointer(&w[1])))
		callBy(w[2], w[3])
		return 0
	case newThread:
		deepen(stackDepth)
		return 0
	case atExit:
		if !single.Load() {
			turn.Lock()
			defer turn.Unlock()
		}
		goodbye()
		return 0
	case isMissing:
		if w[1] == 0 && !single.Load() {
			turn.Lock()
			defer turn.Unlock()
		}
		return C.int(missing(text(*(*ptr)(unsafe.Pointer(&w[0])))))
	}
	f := frame{words: w, number: int(number) &^ (large | nested), large: number&large != 0}
	if number&nested != 0 || single.Load() {
		return C.int(call(&f))
	}
	turn.Lock()
	code := call(&f)
	turn.Unlock()
	return C.int(code)
}

// stackDepth is for how many steps deepen goes: 512 KiB.
const stackDepth = 512

// deepen has the stack of this thread's calls be so large from now on: shim/answers.c says why.
//
//go:noinline
func deepen(n int) byte {
	var room [1024]byte
	room[n%len(room)] = byte(n)
	if n > 0 {
		room[0] += deepen(n - 1)
	}
	return room[n%len(room)/2]
}
