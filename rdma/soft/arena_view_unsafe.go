package soft

import (
	"runtime"
	"runtime/debug"
	"unsafe"
)

// The sizes that the layout counts with are those of the types.
var (
	_ = [1]struct{}{}[unsafe.Sizeof(lockWord{})-lockSize]
	_ = [1]struct{}{}[unsafe.Sizeof(regionEntry{})-regionSize]
	_ = [1]struct{}{}[unsafe.Sizeof(queueContext{})-contextSize]
	_ = [1]struct{}{}[unsafe.Offsetof(queueContext{}.mark)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(queueContext{}.expect)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(queueContext{}.starved)-192]
	_ = [1]struct{}{}[unsafe.Sizeof(queueHeader{})-headerSize]
	_ = [1]struct{}{}[unsafe.Offsetof(queueHeader{}.attention)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(sharedHeader{})-sharedSize]
	_ = [1]struct{}{}[unsafe.Offsetof(sharedHeader{}.tail)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(sharedHeader{}.head)-128]
	_ = [1]struct{}{}[unsafe.Sizeof(responder{})-responderSize]
	_ = [1]struct{}{}[unsafe.Sizeof(recvSlot{})-slotHeader]
	_ = [1]struct{}{}[unsafe.Sizeof(slotSGE{})-slotSGESize]
	_ = [1]struct{}{}[unsafe.Sizeof(tagKey{})-tagKeySize]
	_ = [1]struct{}{}[unsafe.Sizeof(tagInfo{})-tagInfoSize]
	_ = [1]struct{}{}[unsafe.Sizeof(grant{})-grantSize]
	_ = [1]struct{}{}[unsafe.Sizeof(piece{})-pieceEntrySize]
	_ = [1]struct{}{}[unsafe.Sizeof(layoutHeader{})-layoutHeaderSize]
	_ = [1]struct{}{}[unsafe.Sizeof(grantHeader{})-grantHeaderSize]
)

// at views the bytes from off on as a T, which holds no pointers. It is nil
// when they do not lie inside b, or not on T's alignment.
func at[T any](b []byte, off uint64) *T {
	var t T
	if off > uint64(len(b)) || uint64(len(b))-off < uint64(unsafe.Sizeof(t)) {
		return nil
	}
	p := unsafe.Pointer(&b[off])
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		return nil
	}
	return (*T)(p)
}

// tableAt views the bytes from off on as n Ts, under the rules of at.
func tableAt[T any](b []byte, off uint64, n int) []T {
	var t T
	if n <= 0 || off > uint64(len(b)) || (uint64(len(b))-off)/uint64(unsafe.Sizeof(t)) < uint64(n) {
		return nil
	}
	p := unsafe.Pointer(&b[off])
	if uintptr(p)%unsafe.Alignof(t) != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// addressOf is the address of b's first byte, 0 for none.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// memoryAt views n bytes of this process's memory at addr, which another process
// keeps alive. The detour over a variable's bytes keeps checkptr from asking
// where the pointer came from: from another slice, by way of a number.
func memoryAt(addr uint64, n int) []byte {
	a := uintptr(addr)
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), n)
}

// word64 views b, of 8 bytes or more, as a word. It is nil off alignment.
func word64(b []byte) *uint64 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)&7 != 0 {
		return nil
	}
	return (*uint64)(p)
}

// word32 is word64 for 4 bytes.
func word32(b []byte) *uint32 {
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)&3 != 0 {
		return nil
	}
	return (*uint32)(p)
}

// guarded runs copy for memory that may not be mapped. It is false when the
// access faulted; a part may have been copied then.
func guarded(dst, src []byte) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&ok)
	copyRelease(dst, src)
	return true
}

// readable tells whether b, which may not be mapped, can be read now.
func readable(b []byte) (ok bool) {
	if len(b) == 0 {
		return true
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer recoverFault(&ok)
	sum := b[len(b)-1]
	for i := 0; i < len(b); i += pageLeast {
		sum += b[i]
	}
	runtime.KeepAlive(sum)
	return true
}

// pageLeast is what a page has at least, on any system.
const pageLeast = 4096

// recoverFault, deferred, makes ok false when an access has faulted.
func recoverFault(ok *bool) {
	r := recover()
	if r == nil {
		return
	}
	if _, fault := r.(interface{ Addr() uintptr }); !fault {
		// An address in the first page is no address fault to the
		// runtime but a nil dereference, which cannot be told apart
		// further; anything else is not ours.
		if e, isErr := r.(error); !isErr || e.Error() != nilDereference {
			panic(r)
		}
	}
	*ok = false
}

const nilDereference = "runtime error: invalid memory address or nil pointer dereference"
