//go:build cgo && linux

package main

import (
	"unsafe"

	"github.com/gorun-mpi/gorun/rank"
)

// A ptr is an address in C's memory.
type ptr = unsafe.Pointer

const wordsMost = 16

// inPlace is MPI_IN_PLACE.
const inPlace = uintptr(1)

// A frame is one call of C: its arguments, and what became of it. The decoders below note the first mistake in err.
type frame struct {
	words  *[wordsMost]uintptr // of C's stack
	number int                 // the line in functions.txt
	large  bool                // lists of counts and displacements are of MPI_Count and MPI_Aint
	err    error
	on     *owner // whose error handler err goes to; nil: the world's
	form   form
	batch  *batch // the requests of a call with several
	at     ptr    // where the handle of the call's request goes
	whose  *owner // whose errors are the request's
}

func (f *frame) bad(err error) {
	if f.err == nil {
		f.err = err
	}
}

// failed is bad for an error that may be nil.
func (f *frame) failed(err error) {
	if err != nil && f.err == nil {
		f.err = err
	}
}

func (f *frame) int(i int) int      { return int(f.words[i]) }
func (f *frame) word(i int) uintptr { return f.words[i] }
func (f *frame) ptr(i int) ptr      { return *(*ptr)(ptr(&f.words[i])) }

func (f *frame) comm(i int) *comm {
	c := commOf(f.words[i])
	if c == nil {
		f.bad(badHandle(c_ERR_COMM, "communicator", f.words[i]))
		return nil
	}
	f.on = &c.owner
	return c
}

func (f *frame) win(i int) *window {
	w := windowOf(f.words[i])
	if w == nil {
		f.bad(badHandle(c_ERR_WIN, "window", f.words[i]))
		return nil
	}
	f.on = &w.owner
	return w
}

func (f *frame) file(i int) *file {
	h := fileOf(f.words[i])
	if h == nil {
		f.on = &noFile
		f.bad(badHandle(c_ERR_FILE, "file", f.words[i]))
		return nil
	}
	f.on = &h.owner
	return h
}

func (f *frame) session(i int) *session {
	s := sessionOf(f.words[i])
	if s == nil {
		f.bad(badHandle(c_ERR_SESSION, "session", f.words[i]))
		return nil
	}
	f.on = &s.owner
	return s
}

// lazyType is a datatype that may not be looked at; it is nil for a bad one.
func (f *frame) lazyType(i int) *datatype { return typeOf(f.words[i]) }

func (f *frame) datatype(i int) *datatype {
	t := typeOf(f.words[i])
	if t == nil {
		f.bad(badHandle(c_ERR_TYPE, "datatype", f.words[i]))
	}
	return t
}

func (f *frame) op(i int) *operation {
	o := opOf(f.words[i])
	if o == nil {
		f.bad(badHandle(c_ERR_OP, "operation", f.words[i]))
	}
	return o
}

func (f *frame) group(i int) *groupOf {
	g := groupAt(f.words[i])
	if g == nil {
		f.bad(badHandle(c_ERR_GROUP, "group", f.words[i]))
	}
	return g
}

// info is nil for MPI_INFO_NULL.
func (f *frame) info(i int) *info {
	if f.words[i] == c_INFO_NULL {
		return nil
	}
	n := infoOf(f.words[i])
	if n == nil {
		f.bad(badHandle(c_ERR_INFO, "info object", f.words[i]))
	}
	return n
}

func (f *frame) errhandler(i int) *errhandler {
	h := errhandlerOf(f.words[i])
	if h == nil {
		f.bad(badHandle(c_ERR_ERRHANDLER, "error handler", f.words[i]))
	}
	return h
}

// request is nil for MPI_REQUEST_NULL.
func (f *frame) request(i int) *request {
	if f.words[i] == c_REQUEST_NULL {
		return nil
	}
	q := requests.find(f.words[i])
	if q == nil {
		f.bad(badHandle(c_ERR_REQUEST, "request", f.words[i]))
		return nil
	}
	f.on = q.on
	return q
}

// put stores an int where C wants it, putWide a count: an int, or an MPI_Count in _c, and putLong a word.
func (f *frame) put(at ptr, n int) {
	if at == nil {
		f.bad(errNull)
		return
	}
	*(*int32)(at) = int32(n)
}

func (f *frame) putWide(at ptr, n int) {
	switch {
	case at == nil:
		f.bad(errNull)
	case f.large:
		*(*int64)(at) = int64(n)
	case n != int(int32(n)):
		*(*int32)(at) = c_UNDEFINED
	default:
		*(*int32)(at) = int32(n)
	}
}

func (f *frame) putLong(at ptr, n int) {
	if at == nil {
		f.bad(errNull)
		return
	}
	*(*int64)(at) = int64(n)
}

func (f *frame) putBool(at ptr, yes bool) {
	n := 0
	if yes {
		n = 1
	}
	f.put(at, n)
}

// putHandle stores a handle; handleAt reads one.
func (f *frame) putHandle(at ptr, h uintptr) {
	if at == nil {
		f.bad(errNull)
		return
	}
	*(*uintptr)(at) = h
}

func (f *frame) handleAt(at ptr) uintptr {
	if at == nil {
		f.bad(errNull)
		return 0
	}
	return *(*uintptr)(at)
}

// wide is a list of n numbers of C, as Go has them: ints, or words in _c. It is nil for a nil list.
func (f *frame) wide(at ptr, n int) []int {
	if f.large {
		return longs(at, n)
	}
	return ints(at, n)
}

func ints(at ptr, n int) []int {
	if at == nil || n < 0 {
		return nil
	}
	list := make([]int, n)
	for i, v := range unsafe.Slice((*int32)(at), n) {
		list[i] = int(v)
	}
	return list
}

func longs(at ptr, n int) []int {
	if at == nil || n < 0 {
		return nil
	}
	list := make([]int, n)
	for i, v := range unsafe.Slice((*int64)(at), n) {
		list[i] = int(v)
	}
	return list
}

// handlesAt is a list of handles, in C's memory.
func handlesAt(at ptr, n int) []uintptr {
	if at == nil || n <= 0 {
		return nil
	}
	return unsafe.Slice((*uintptr)(at), n)
}

// intsAt is a list of ints, in C's memory.
func intsAt(at ptr, n int) []int32 {
	if at == nil || n <= 0 {
		return nil
	}
	return unsafe.Slice((*int32)(at), n)
}

// longsAt is a list of words, in C's memory.
func longsAt(at ptr, n int) []int64 {
	if at == nil || n <= 0 {
		return nil
	}
	return unsafe.Slice((*int64)(at), n)
}

// text is a C string.
func text(at ptr) string {
	if at == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(at, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(at), n))
}

// putText stores a string of at most room bytes with its zero, and its length where length is not nil.
func (f *frame) putText(at, length ptr, room int, s string) {
	if at == nil {
		f.bad(errNull)
		return
	}
	s = s[:min(len(s), room-1)]
	to := unsafe.Slice((*byte)(at), len(s)+1)
	to[copy(to, s)] = 0
	if length != nil {
		f.put(length, len(s))
	}
}

// A cStatus is MPI_Status. What it has beside the public three: the bytes, how often the last type's items they were, and
// whether the operation was cancelled.
type cStatus struct {
	source, tag, err int32
	low, high        int32 // bytes of data
	cancelled        int32
	_                [2]int32
}

func (s *cStatus) bytes() int { return int(uint64(uint32(s.low)) | uint64(uint32(s.high))<<32) }
func (s *cStatus) setBytes(n int) {
	s.low, s.high = int32(uint64(n)), int32(uint64(n)>>32)
}

// statusAt is C's status, nil for MPI_STATUS_IGNORE.
func statusAt(at ptr) *cStatus { return (*cStatus)(at) }

// statusIn is the i-th of a list, nil for MPI_STATUSES_IGNORE.
func statusIn(at ptr, i int) *cStatus {
	if at == nil {
		return nil
	}
	return (*cStatus)(unsafe.Add(at, i*int(unsafe.Sizeof(cStatus{}))))
}

// set is a status of package rank in C's terms. MPI_ERROR stays as it is, as MPI says for calls of one request.
func (s *cStatus) set(from *rank.Status) {
	if s == nil {
		return
	}
	s.source, s.tag, s.cancelled = int32(from.Source), int32(from.Tag), 0
	switch from.Source {
	case rank.ProcNull:
		s.source = c_PROC_NULL
	case rank.AnySource:
		s.source = c_ANY_SOURCE
	}
	if from.Tag == rank.AnyTag {
		s.tag = c_ANY_TAG
	}
	if from.Cancelled {
		s.cancelled = 1
	}
	s.setBytes(from.Bytes)
}

// memory is n bytes of C's from an address on; none for n 0.
func memory(at uintptr, n int) []byte {
	if n == 0 {
		return []byte{}
	}
	return unsafe.Slice((*byte)(*(*ptr)(ptr(&at))), n)
}

// address is where a buffer of C begins, offset bytes on.
func address(at ptr) uintptr { return uintptr(at) }

func advance(at ptr, n int) ptr { return unsafe.Add(at, n) }

// addressOf is where Go's or C's bytes begin, nil for none.
func addressOf(b []byte) ptr { return ptr(unsafe.SliceData(b)) }

const commsTold = 256

// A toldComm is struct comm_told of shim.h.
type toldComm struct {
	handle     uintptr
	rank, size int32
}

// told is where C reads about communicators.
var told *[commsTold]toldComm

// stays tells C that the process is in its job, though nobody has use of it.
var stays *int32

func tell(handle uintptr, rank, size int) {
	if t := &told[handle%commsTold]; t.handle == 0 {
		t.rank, t.size = int32(rank), int32(size)
		t.handle = handle
	}
}

func untell(handle uintptr) {
	if t := &told[handle%commsTold]; t.handle == handle {
		t.handle = 0
	}
}
