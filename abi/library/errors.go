//go:build cgo && linux

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gorun-mpi/gorun/rank"
)

// A mistake is an error with one of MPI's classes, or with a code of the program's.
type mistake struct {
	code int
	text string
}

func (m *mistake) Error() string { return m.text }

func wrong(code int, format string, args ...any) error {
	return &mistake{code, fmt.Sprintf(format, args...)}
}

var errNull = wrong(c_ERR_ARG, "a pointer is NULL where a result is to be stored")

// badHandle is the error of a handle that names nothing.
func badHandle(class int, what string, h uintptr) error {
	switch {
	case h == 0:
		return wrong(class, "the %s is 0, which is no handle", what)
	case h < 0x400:
		return wrong(class, "the %s is a null handle or one of another kind (%#x)", what, h)
	}
	return wrong(class, "no %s has the handle %#x: it was freed, or is of another kind", what, h)
}

// classes are those of package rank in MPI's numbers.
var classes = map[rank.Class]int{
	rank.ClassSuccess: c_SUCCESS, rank.ClassBuffer: c_ERR_BUFFER, rank.ClassCount: c_ERR_COUNT, rank.ClassType: c_ERR_TYPE, rank.ClassTag: c_ERR_TAG,
	rank.ClassComm: c_ERR_COMM, rank.ClassRank: c_ERR_RANK, rank.ClassRequest: c_ERR_REQUEST, rank.ClassRoot: c_ERR_ROOT, rank.ClassGroup: c_ERR_GROUP,
	rank.ClassOp: c_ERR_OP, rank.ClassTopology: c_ERR_TOPOLOGY, rank.ClassDims: c_ERR_DIMS, rank.ClassArg: c_ERR_ARG, rank.ClassTruncate: c_ERR_TRUNCATE,
	rank.ClassOther: c_ERR_OTHER, rank.ClassIntern: c_ERR_INTERN, rank.ClassInStatus: c_ERR_IN_STATUS, rank.ClassPending: c_ERR_PENDING,
	rank.ClassKeyval: c_ERR_KEYVAL, rank.ClassNoMem: c_ERR_NO_MEM, rank.ClassInfo: c_ERR_INFO, rank.ClassProcFailed: c_ERR_PROC_ABORTED,
	rank.ClassWin: c_ERR_WIN, rank.ClassRMARange: c_ERR_RMA_RANGE, rank.ClassRMASync: c_ERR_RMA_SYNC, rank.ClassLockType: c_ERR_LOCKTYPE, rank.ClassDisp: c_ERR_DISP,
}

// codeOf is the code that C gets for an error.
func codeOf(err error) int {
	if m, ok := errors.AsType[*mistake](err); ok {
		return m.code
	}
	if err == nil {
		return c_SUCCESS
	}
	if n, ok := classes[rank.ClassOf(err)]; ok {
		return n
	}
	return c_ERR_OTHER
}

// An errhandler is what to do with errors: MPI's own, or a function of the program.
type errhandler struct {
	handle   uintptr
	function ptr
	uses     int // owners that have it
	held     int // how often the program has got it, and not freed it
}

var (
	errhandlers = newTable[*errhandler](kindErrhandler)
	fatal       = &errhandler{handle: c_ERRORS_ARE_FATAL}
	aborting    = &errhandler{handle: c_ERRORS_ABORT}
	returning   = &errhandler{handle: c_ERRORS_RETURN}
)

func errhandlerOf(h uintptr) *errhandler {
	switch h {
	case c_ERRORS_ARE_FATAL:
		return fatal
	case c_ERRORS_ABORT:
		return aborting
	case c_ERRORS_RETURN:
		return returning
	}
	if e := errhandlers.find(h); e != nil && (*e).held > 0 {
		return *e
	}
	return nil
}

// raise gives an error to its owner's handler, and returns its code: of a handler of the program, what it leaves. Errors of no owner go to
// MPI_COMM_SELF's handler where the program has set one, else to that of MPI_COMM_WORLD.
func raise(on *owner, name string, err error) int {
	code := codeOf(err)
	switch {
	case on != nil:
	case job.world == nil:
		abort(code, name+": "+err.Error())
	case self != nil && self.handler != fatal:
		on = &self.owner
	default:
		on = &base().owner
	}
	switch h := on.handler; h {
	case returning:
	case fatal, aborting:
		line := name + ": " + located(strings.TrimSpace(err.Error()))
		if job.world != nil { // else abort says it
			fmt.Fprintln(os.Stderr, line)
		}
		abort(code, line)
	default:
		return callErrhandler(h.function, on.handle, code)
	}
	return code
}

// located is an error's text with the rank, where there is one.
func located(line string) string {
	if job.world == nil {
		return line
	}
	if where := fmt.Sprintf("rank %d", job.world.Comm().Rank()); !strings.Contains(line, where) {
		return where + ": " + line
	}
	return line
}

func mpiCommCreateErrhandler(f *frame, function, to ptr) error {
	if function == nil || to == nil {
		return errNull
	}
	h, e := errhandlers.enter()
	*e = &errhandler{handle: h, function: function, held: 1}
	f.putHandle(to, h)
	return nil
}

// drop forgets an error handler when nobody has it any more.
func (e *errhandler) drop() {
	if e.function != nil && e.held == 0 && e.uses == 0 {
		errhandlers.leave(e.handle)
	}
}

func mpiErrhandlerFree(f *frame, at ptr) error {
	e := errhandlerOf(f.handleAt(at))
	if e == nil {
		return badHandle(c_ERR_ERRHANDLER, "error handler", f.handleAt(at))
	}
	if e.function != nil {
		e.held--
		e.drop()
	}
	f.putHandle(at, c_ERRHANDLER_NULL)
	return nil
}

// An owner has errors: a communicator, a window, a file or a session, with its handler.
type owner struct {
	handle  uintptr
	handler *errhandler
	pending int          // its requests
	last    func() error // what is left to do when they are over, after MPI_Comm_free
}

// less is the end of a request.
func (o *owner) less() {
	if o.pending--; o.pending == 0 && o.last != nil {
		_ = o.last() // the communicator was freed without an error, and is gone for the program
	}
}

func (o *owner) setHandler(e *errhandler) {
	old := o.handler
	e.uses++
	o.handler = e
	if old != nil {
		old.uses--
		old.drop()
	}
}

func mpiCommSetErrhandler(_ *frame, c *comm, e *errhandler) error {
	c.setHandler(e)
	return nil
}

// getHandler gives the program the handler once more, to be freed once more, also if it has freed what it had.
func (o *owner) getHandler(f *frame, to ptr) error {
	if f.putHandle(to, o.handler.handle); to != nil {
		o.handler.held++
	}
	return nil
}

func mpiCommGetErrhandler(f *frame, c *comm, to ptr) error { return c.getHandler(f, to) }

func mpiCommCallErrhandler(_ *frame, c *comm, code int) error {
	raise(&c.owner, "MPI_Comm_call_errhandler", &mistake{code, errorText(code)})
	return nil
}

// added is an error class or code of the program; those follow MPI_ERR_LASTCODE.
type added struct {
	class   int
	text    string
	removed bool
}

const firstAdded = c_ERR_LASTCODE + 1

func addCode(class int) int {
	code := firstAdded + len(job.codes)
	if class == 0 {
		class = code
	}
	job.codes = append(job.codes, added{class: class})
	return code
}

// known tells whether a code is one of MPI's or an added one.
func known(code int) bool {
	return code >= 0 && code <= c_ERR_ABI || code >= firstAdded && code < firstAdded+len(job.codes) && !job.codes[code-firstAdded].removed
}

func mpiAddErrorClass(f *frame, to ptr) error {
	f.put(to, addCode(0))
	return nil
}

func mpiAddErrorCode(f *frame, class int, to ptr) error {
	if !known(class) {
		return wrong(c_ERR_ARG, "%d is no error class", class)
	}
	f.put(to, addCode(class))
	return nil
}

func mpiAddErrorString(_ *frame, code int, s ptr) error {
	if err := own(code); err != nil {
		return err
	}
	job.codes[code-firstAdded].text = text(s)
	return nil
}

// own is an error for a code that the program has not added, or has removed.
func own(code int) error {
	if code < firstAdded || !known(code) {
		return wrong(c_ERR_ARG, "the program has not added the error code %d", code)
	}
	return nil
}

func mpiRemoveErrorString(_ *frame, code int) error {
	if err := own(code); err != nil {
		return err
	}
	job.codes[code-firstAdded].text = ""
	return nil
}

// remove forgets a code. The last ones are given again.
func remove(code int) {
	job.codes[code-firstAdded].removed = true
	for n := len(job.codes); n > 0 && job.codes[n-1].removed; n-- {
		job.codes = job.codes[:n-1]
	}
}

func mpiRemoveErrorCode(_ *frame, code int) error {
	if err := own(code); err != nil {
		return err
	}
	switch c := job.codes[code-firstAdded]; {
	case c.class == code:
		return wrong(c_ERR_ARG, "%d is an error class", code)
	case c.text != "":
		return wrong(c_ERR_ARG, "the error code %d has a string: remove it first", code)
	}
	remove(code)
	return nil
}

func mpiRemoveErrorClass(_ *frame, class int) error {
	if err := own(class); err != nil {
		return err
	}
	for i, c := range job.codes {
		if code := firstAdded + i; c.class == class && !c.removed && code != class {
			return wrong(c_ERR_ARG, "the error code %d is of this class: remove it first", code)
		}
	}
	switch c := job.codes[class-firstAdded]; {
	case c.class != class:
		return wrong(c_ERR_ARG, "%d is no error class", class)
	case c.text != "":
		return wrong(c_ERR_ARG, "the error class %d has a string: remove it first", class)
	}
	remove(class)
	return nil
}

func mpiErrorClass(f *frame, code int, to ptr) error {
	switch {
	case !known(code):
		return wrong(c_ERR_ARG, "%d is no error code", code)
	case code >= firstAdded:
		code = job.codes[code-firstAdded].class
	}
	f.put(to, code)
	return nil
}

func mpiErrorString(f *frame, code int, to, length ptr) error {
	if !known(code) {
		return wrong(c_ERR_ARG, "%d is no error code", code)
	}
	f.putText(to, length, c_MAX_ERROR_STRING, errorText(code))
	return nil
}

// texts are what the classes mean.
var texts = [...]string{
	"no error", "invalid buffer", "invalid count", "invalid datatype", "invalid tag", "invalid communicator", "invalid rank", "invalid request",
	"invalid root", "invalid group", "invalid operation", "invalid topology", "invalid dimension", "invalid argument", "unknown error",
	"the message is longer than the buffer", "another error", "internal error", "the request is pending", "the error is in the status",
	"permission denied", "invalid access mode", "invalid assertion", "invalid file name", "invalid base address", "a conversion failed",
	"invalid displacement", "the data representation exists already", "the file exists already", "the file is in use", "invalid file handle",
	"invalid info key", "no such info key", "invalid info value", "invalid info object", "input or output failed", "invalid keyval", "invalid lock type",
	"invalid service name", "out of memory", "an argument is not the same on all processes", "no space left", "no such file", "invalid port",
	"quota exceeded", "read-only file", "memory cannot be attached", "conflicting accesses to a window", "outside of the window",
	"memory cannot be shared", "wrong synchronisation of a window", "invalid service", "invalid size", "a program could not be started",
	"unsupported data representation", "unsupported operation", "invalid window", "wrong flavor of a window", "a process has ended",
	"the value is too large", "invalid session", "invalid error handler", "wrong ABI",
}

func errorText(code int) string {
	if code >= firstAdded && known(code) {
		return job.codes[code-firstAdded].text
	}
	if code < 0 || code >= len(texts) {
		return fmt.Sprintf("error code %d", code)
	}
	return texts[code]
}
