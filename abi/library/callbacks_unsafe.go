//go:build cgo && linux

package main

/*
#include <complex.h>
#include <stdint.h>

#define EACH(type, expression) \
	do { \
		const type *a = (const void *)in; \
		type *b = (void *)inout; \
		for (int64_t i = 0; i < n; i++) \
			b[i] = expression; \
	} while (0)
#define LOCATED(name, number, place) \
	struct name { \
		number value; \
		place where; \
	}
LOCATED(long_int, long double, int);
LOCATED(two_floats, float, float);
LOCATED(two_doubles, double, double);
#define FIRST(type, beats) EACH(type, a[i].value beats b[i].value || (a[i].value == b[i].value && a[i].where < b[i].where) ? a[i] : b[i])
// The numbers are those of mpi.h.
static void call_long(int op, int sort, uintptr_t in, uintptr_t inout, int64_t n) {
	switch (sort << 8 | op) {
	case 0x121: EACH(long double, a[i] + b[i]); break;
	case 0x122: EACH(long double, a[i] < b[i] ? a[i] : b[i]); break;
	case 0x123: EACH(long double, a[i] > b[i] ? a[i] : b[i]); break;
	case 0x124: EACH(long double, a[i] * b[i]); break;
	case 0x221: EACH(long double complex, a[i] + b[i]); break;
	case 0x224: EACH(long double complex, a[i] * b[i]); break;
	case 0x338: FIRST(struct long_int, <); break;
	case 0x339: FIRST(struct long_int, >); break;
	case 0x438: FIRST(struct two_floats, <); break;
	case 0x439: FIRST(struct two_floats, >); break;
	case 0x538: FIRST(struct two_doubles, <); break;
	case 0x539: FIRST(struct two_doubles, >); break;
	}
}

// nest is shim.h's: meanwhile this thread's calls come from inside of one.
static int (*nest)(int);
static void nest_by(uintptr_t f) { nest = (int (*)(int))f; }
#define INSIDE(call) \
	do { \
		int before = nest(1 << 17); \
		call; \
		nest(before); \
	} while (0)

// foreign is shim.h's. A handle goes as the word that it is there, of which the program may read the lower half alone.
static struct foreign {
	intptr_t (*handle)(intptr_t);
	int (*code)(int), (*own_code)(int);
	int (*copy)(uintptr_t, intptr_t, int, uintptr_t, uintptr_t, void *, int *);
	int (*delete)(uintptr_t, intptr_t, int, uintptr_t, uintptr_t);
	int (*query)(uintptr_t, uintptr_t, void *);
} *foreign;
static void foreign_by(uintptr_t f) { foreign = (struct foreign *)f; }
static uintptr_t theirs(uintptr_t h) { return foreign ? (uintptr_t)foreign->handle((intptr_t)h) : h; }
static int ours(int code) { return foreign ? foreign->own_code(code) : code; }

static int call_copy(uintptr_t f, uintptr_t h, int keyval, uintptr_t extra, uintptr_t in, void *out, int *flag) {
	if (foreign)
		return foreign->copy(f, (intptr_t)h, keyval, extra, in, out, flag);
	return ((int (*)(uintptr_t, int, uintptr_t, uintptr_t, void *, int *))f)(h, keyval, extra, in, out, flag);
}
static int call_delete(uintptr_t f, uintptr_t h, int keyval, uintptr_t value, uintptr_t extra) {
	if (foreign)
		return foreign->delete(f, (intptr_t)h, keyval, value, extra);
	return ((int (*)(uintptr_t, int, uintptr_t, uintptr_t))f)(h, keyval, value, extra);
}
static int call_error(uintptr_t f, uintptr_t h, int code) {
	if (foreign)
		code = foreign->code(code);
	h = theirs(h);
	((void (*)(uintptr_t *, int *, ...))f)(&h, &code);
	return ours(code);
}
static void call_op(uintptr_t f, uintptr_t in, uintptr_t inout, int len, uintptr_t type) {
	type = theirs(type);
	INSIDE(((void (*)(uintptr_t, uintptr_t, int *, uintptr_t *))f)(in, inout, &len, &type));
}
static void call_op_c(uintptr_t f, uintptr_t in, uintptr_t inout, int64_t len, uintptr_t type) {
	type = theirs(type);
	INSIDE(((void (*)(uintptr_t, uintptr_t, int64_t *, uintptr_t *))f)(in, inout, &len, &type));
}
static int call_query(uintptr_t f, uintptr_t extra, void *status) {
	int code;
	INSIDE(code = foreign ? foreign->query(f, extra, status) : ((int (*)(uintptr_t, void *))f)(extra, status));
	return code;
}
static int call_free(uintptr_t f, uintptr_t extra) {
	int code;
	INSIDE(code = ((int (*)(uintptr_t))f)(extra));
	return ours(code);
}
static int call_cancel(uintptr_t f, uintptr_t extra, int complete) {
	int code;
	INSIDE(code = ((int (*)(uintptr_t, int))f)(extra, complete));
	return ours(code);
}
static int call_extent(uintptr_t f, uintptr_t type, intptr_t *to, uintptr_t extra) {
	return ours(((int (*)(uintptr_t, intptr_t *, uintptr_t))f)(theirs(type), to, extra));
}
*/
import "C"

import (
	"runtime"
	"unsafe"
)

// callBy takes in how shim.h calls functions of the program: its nest and its foreign.
func callBy(nest, foreign uintptr) {
	C.nest_by(C.uintptr_t(nest))
	C.foreign_by(C.uintptr_t(foreign))
}

// Functions of the program. They run on the thread that called MPI, inside of its call. Those of operations and requests run in the
// midst of what the rank does: nobody else has a turn meanwhile.

// inner is how many of those run.
var inner int

// away is for the others: threads may call meanwhile. A function in Python, say, waits for the interpreter's lock, and the thread that
// has it may wait for a turn.
func away(f func()) {
	if single.Load() || inner > 0 {
		f()
		return
	}
	turn.Unlock()
	defer turn.Lock()
	f()
}

func callCopy(function ptr, h uintptr, keyval int, extra, in ptr) (out ptr, keep bool, code int) {
	var flag C.int
	away(func() {
		code = int(C.call_copy(C.uintptr_t(uintptr(function)), C.uintptr_t(h), C.int(keyval), C.uintptr_t(uintptr(extra)), C.uintptr_t(uintptr(in)), unsafe.Pointer(&out), &flag))
	})
	return out, flag != 0, code
}

func callDelete(function ptr, h uintptr, keyval int, value, extra ptr) (code int) {
	away(func() {
		code = int(C.call_delete(C.uintptr_t(uintptr(function)), C.uintptr_t(h), C.int(keyval), C.uintptr_t(uintptr(value)), C.uintptr_t(uintptr(extra))))
	})
	return code
}

// callErrhandler gives the code that the function leaves.
func callErrhandler(function ptr, h uintptr, code int) (left int) {
	away(func() { left = int(C.call_error(C.uintptr_t(uintptr(function)), C.uintptr_t(h), C.int(code))) })
	return left
}

// callOp has inout be in op inout, for n items of a type.
func callOp(function ptr, wide bool, in, inout []byte, n int, t uintptr) {
	a, b := uintptr(addressOf(in)), uintptr(addressOf(inout))
	inner++
	if wide {
		C.call_op_c(C.uintptr_t(uintptr(function)), C.uintptr_t(a), C.uintptr_t(b), C.int64_t(n), C.uintptr_t(t))
	} else {
		C.call_op(C.uintptr_t(uintptr(function)), C.uintptr_t(a), C.uintptr_t(b), C.int(n), C.uintptr_t(t))
	}
	inner--
	runtime.KeepAlive(in)
	runtime.KeepAlive(inout)
}

// callLong has inout be in op inout, for n items of a sort that C calculates with.
func callLong(op uintptr, of sort, in, inout []byte, n int) {
	C.call_long(C.int(op), C.int(of-long+1), C.uintptr_t(uintptr(addressOf(in))), C.uintptr_t(uintptr(addressOf(inout))), C.int64_t(n))
	runtime.KeepAlive(in)
	runtime.KeepAlive(inout)
}

// callExtent gives the extent of a type in files.
func callExtent(function ptr, h uintptr, extra ptr) (extent, code int) {
	var to C.intptr_t
	away(func() {
		code = int(C.call_extent(C.uintptr_t(uintptr(function)), C.uintptr_t(h), &to, C.uintptr_t(uintptr(extra))))
	})
	return int(to), code
}

func callQuery(function, extra ptr, st *cStatus) int {
	inner++
	defer func() { inner-- }()
	return int(C.call_query(C.uintptr_t(uintptr(function)), C.uintptr_t(uintptr(extra)), unsafe.Pointer(st)))
}

func callFree(function, extra ptr) int {
	inner++
	defer func() { inner-- }()
	return int(C.call_free(C.uintptr_t(uintptr(function)), C.uintptr_t(uintptr(extra))))
}

func callCancel(function, extra ptr, complete bool) int {
	inner++
	defer func() { inner-- }()
	flag := C.int(0)
	if complete {
		flag = 1
	}
	return int(C.call_cancel(C.uintptr_t(uintptr(function)), C.uintptr_t(uintptr(extra)), flag))
}
