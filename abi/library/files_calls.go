//go:build cgo && linux

package main

// The functions that read and write differ in the direction, in where they begin, and in when they are over. Those
// in which all ranks take part wait for no other rank, but for those in the ranks' order: MPI asks for no more.

// Blocking ones.

func mpiFileRead(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, reads, atOwn, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileReadAll(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, reads, atOwn, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileReadAt(f *frame, o *file, offset int, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, reads, atOffset, offset, flat{at, n, t}).settle(f, status)
}

func mpiFileReadAtAll(f *frame, o *file, offset int, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, reads, atOffset, offset, flat{at, n, t}).settle(f, status)
}

func mpiFileReadOrdered(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, reads, inOrder, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileReadShared(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, reads, atShared, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileWrite(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, writes, atOwn, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileWriteAll(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, writes, atOwn, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileWriteAt(f *frame, o *file, offset int, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, writes, atOffset, offset, flat{at, n, t}).settle(f, status)
}

func mpiFileWriteAtAll(f *frame, o *file, offset int, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, writes, atOffset, offset, flat{at, n, t}).settle(f, status)
}

func mpiFileWriteOrdered(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, writes, inOrder, 0, flat{at, n, t}).settle(f, status)
}

func mpiFileWriteShared(f *frame, o *file, at ptr, n int, t *datatype, status ptr) error {
	return f.access(o, writes, atShared, 0, flat{at, n, t}).settle(f, status)
}

// With requests.

func mpiFileIread(f *frame, o *file, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, reads, atOwn, 0, flat{at, n, t}).launch(f, request)
}

func mpiFileIreadAll(f *frame, o *file, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, reads, atOwn, 0, flat{at, n, t}).launch(f, request)
}

func mpiFileIreadAt(f *frame, o *file, offset int, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, reads, atOffset, offset, flat{at, n, t}).launch(f, request)
}

func mpiFileIreadAtAll(f *frame, o *file, offset int, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, reads, atOffset, offset, flat{at, n, t}).launch(f, request)
}

func mpiFileIreadShared(f *frame, o *file, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, reads, atShared, 0, flat{at, n, t}).launch(f, request)
}

func mpiFileIwrite(f *frame, o *file, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, writes, atOwn, 0, flat{at, n, t}).launch(f, request)
}

func mpiFileIwriteAll(f *frame, o *file, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, writes, atOwn, 0, flat{at, n, t}).launch(f, request)
}

func mpiFileIwriteAt(f *frame, o *file, offset int, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, writes, atOffset, offset, flat{at, n, t}).launch(f, request)
}

func mpiFileIwriteAtAll(f *frame, o *file, offset int, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, writes, atOffset, offset, flat{at, n, t}).launch(f, request)
}

func mpiFileIwriteShared(f *frame, o *file, at ptr, n int, t *datatype, request ptr) error {
	return f.access(o, writes, atShared, 0, flat{at, n, t}).launch(f, request)
}

// In two halves.

func mpiFileReadAllBegin(f *frame, o *file, at ptr, n int, t *datatype) error {
	return f.access(o, reads, atOwn, 0, flat{at, n, t}).divide(f)
}

func mpiFileReadAllEnd(f *frame, o *file, _, status ptr) error { return f.unite(o, status) }

func mpiFileReadAtAllBegin(f *frame, o *file, offset int, at ptr, n int, t *datatype) error {
	return f.access(o, reads, atOffset, offset, flat{at, n, t}).divide(f)
}

func mpiFileReadAtAllEnd(f *frame, o *file, _, status ptr) error { return f.unite(o, status) }

func mpiFileReadOrderedBegin(f *frame, o *file, at ptr, n int, t *datatype) error {
	return f.access(o, reads, inOrder, 0, flat{at, n, t}).divide(f)
}

func mpiFileReadOrderedEnd(f *frame, o *file, _, status ptr) error { return f.unite(o, status) }

func mpiFileWriteAllBegin(f *frame, o *file, at ptr, n int, t *datatype) error {
	return f.access(o, writes, atOwn, 0, flat{at, n, t}).divide(f)
}

func mpiFileWriteAllEnd(f *frame, o *file, _, status ptr) error { return f.unite(o, status) }

func mpiFileWriteAtAllBegin(f *frame, o *file, offset int, at ptr, n int, t *datatype) error {
	return f.access(o, writes, atOffset, offset, flat{at, n, t}).divide(f)
}

func mpiFileWriteAtAllEnd(f *frame, o *file, _, status ptr) error { return f.unite(o, status) }

func mpiFileWriteOrderedBegin(f *frame, o *file, at ptr, n int, t *datatype) error {
	return f.access(o, writes, inOrder, 0, flat{at, n, t}).divide(f)
}

func mpiFileWriteOrderedEnd(f *frame, o *file, _, status ptr) error { return f.unite(o, status) }
