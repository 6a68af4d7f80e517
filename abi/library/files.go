//go:build cgo && linux

package main

import (
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rank"
)

// A file is MPI_File: a descriptor of each rank's own, and what the ranks share beside the data, which is the shared pointer.
//
//	files.go                    what is opened, and what is said of it
//	files_view.go               the view, pointers into it, and the shared one
//	files_access.go             how data gets from memory into the file and back
//	files_calls.go              the functions that read and write
//
// Whatever may wait for a disk runs in a goroutine, and the call that waits for it moves messages on: see aside.
type file struct {
	owner
	fd      int
	comm    *rank.Comm // a duplicate
	name    string
	mode    int // MPI_MODE_...
	hints   *info
	view    view
	at      int            // the rank's own pointer, in etypes
	pointer sharedPointer  // the shared one
	atomic  bool           // accesses exclude each other
	turn    sync.Mutex     // of this rank's accesses, where they are atomic
	under   sync.WaitGroup // accesses under way
	split   *access        // begun by the first half of a split collective
	splitBy string         // the name of both halves, without _begin and _end
}

var (
	files = newTable[*file](kindFile)
	// noFile gets the errors that are of no open file. Files begin with its handler.
	noFile = owner{handle: c_FILE_NULL, handler: returning}
	// ofFiles are the functions whose errors are noFile's where they are of no file.
	ofFiles = func() (list [len(names)]bool) {
		for i, name := range names {
			list[i] = strings.HasPrefix(name, "MPI_File_") || name == "MPI_Register_datarep"
		}
		return list
	}()
)

func fileOf(h uintptr) *file {
	if o := files.find(h); o != nil {
		return *o
	}
	return nil
}

// aside runs what may wait for a disk in a goroutine, and has messages move on meanwhile.
func aside(do func() error) (err error) {
	done := make(chan struct{})
	go func() {
		err = do()
		close(done)
	}()
	await(done)
	return err
}

// lookAfter is how often a call that waits for a disk looks after messages.
const lookAfter = time.Millisecond

// await waits for what a goroutine does. Messages move only in calls, so it makes one now and then: a probe, which takes no message.
func await(done <-chan struct{}) {
	tick := time.NewTicker(lookAfter)
	defer tick.Stop()
	for {
		if meanwhile(done, tick.C) {
			return
		}
		_, _, _ = root.Iprobe(rank.AnySource, rank.AnyTag) // the next call that the error concerns returns it
	}
}

// meanwhile lets other threads call, until done or the next tick.
func meanwhile(done <-chan struct{}, tick <-chan time.Time) (over bool) {
	if !single.Load() {
		turn.Unlock()
		defer turn.Lock()
	}
	select {
	case <-done:
		return true
	case <-tick:
		return false
	}
}

// agreed is an error on all ranks if any of them has one: that of the rank itself, or one of a class that another has.
func agreed(c *rank.Comm, err error) error {
	worst, failed := rank.AllreduceOne(never, c, int32(codeOf(err)), rank.Max)
	switch {
	case failed != nil:
		return failed
	case err == nil && worst != c_SUCCESS:
		return wrong(int(worst), "another rank has failed: %s", errorText(int(worst)))
	}
	return err
}

// same is an error on all ranks if they did not all give the same number.
func same(c *rank.Comm, what string, v int) error {
	bounds := make([]int64, 2)
	if err := rank.Allreduce(never, c, []int64{int64(v), -int64(v)}, bounds, rank.Max); err != nil {
		return err
	}
	if bounds[0] != -bounds[1] {
		return wrong(c_ERR_NOT_SAME, "%s is from %d to %d on the ranks: expected the same on all", what, -bounds[1], bounds[0])
	}
	return nil
}

// systemErrors are the classes of the system's errors; of others it is MPI_ERR_IO.
var systemErrors = map[error]int{
	unix.ENOENT: c_ERR_NO_SUCH_FILE, unix.EEXIST: c_ERR_FILE_EXISTS, unix.EACCES: c_ERR_ACCESS, unix.EPERM: c_ERR_ACCESS, unix.EROFS: c_ERR_READ_ONLY,
	unix.ENOSPC: c_ERR_NO_SPACE, unix.EFBIG: c_ERR_NO_SPACE, unix.EDQUOT: c_ERR_QUOTA, unix.ETXTBSY: c_ERR_FILE_IN_USE, unix.EBUSY: c_ERR_FILE_IN_USE,
	unix.ENAMETOOLONG: c_ERR_BAD_FILE, unix.ENOTDIR: c_ERR_BAD_FILE, unix.EISDIR: c_ERR_BAD_FILE, unix.ELOOP: c_ERR_BAD_FILE, unix.ENOMEM: c_ERR_NO_MEM,
	unix.ENOTSUP: c_ERR_UNSUPPORTED_OPERATION, unix.ENOSYS: c_ERR_UNSUPPORTED_OPERATION, unix.ESPIPE: c_ERR_UNSUPPORTED_OPERATION,
}

// systemError is an error of the system's in MPI's classes; nil stays nil.
func systemError(doing, name string, err error) error {
	if err == nil {
		return nil
	}
	class, ok := systemErrors[err]
	if !ok {
		class = c_ERR_IO
	}
	return wrong(class, "%s %s: %v", doing, name, err)
}

// again repeats a system call that a signal has interrupted.
func again(do func() error) error {
	for {
		if err := do(); err != unix.EINTR {
			return err
		}
	}
}

const (
	accessModes = c_MODE_RDONLY | c_MODE_WRONLY | c_MODE_RDWR
	allModes    = accessModes | c_MODE_CREATE | c_MODE_EXCL | c_MODE_DELETE_ON_CLOSE | c_MODE_UNIQUE_OPEN | c_MODE_SEQUENTIAL | c_MODE_APPEND
)

// flags are a mode of MPI's in the system's terms. Pointers are MPI's: MPI_MODE_APPEND is where they begin.
func flags(mode int) (int, error) {
	flags := unix.O_CLOEXEC
	switch mode & accessModes {
	case c_MODE_RDONLY:
		if mode&(c_MODE_CREATE|c_MODE_EXCL) != 0 {
			return 0, wrong(c_ERR_AMODE, "MPI_MODE_RDONLY excludes MPI_MODE_CREATE and MPI_MODE_EXCL")
		}
	case c_MODE_WRONLY:
		flags |= unix.O_WRONLY
	case c_MODE_RDWR:
		if mode&c_MODE_SEQUENTIAL != 0 {
			return 0, wrong(c_ERR_AMODE, "MPI_MODE_RDWR excludes MPI_MODE_SEQUENTIAL")
		}
		flags |= unix.O_RDWR
	default:
		return 0, wrong(c_ERR_AMODE, "the mode %#x has not one of MPI_MODE_RDONLY, MPI_MODE_WRONLY and MPI_MODE_RDWR", mode)
	}
	if mode&^allModes != 0 {
		return 0, wrong(c_ERR_AMODE, "no mode of files has the bits %#x", mode&^allModes)
	}
	if mode&c_MODE_CREATE != 0 {
		flags |= unix.O_CREAT
	}
	if mode&c_MODE_EXCL != 0 {
		flags |= unix.O_EXCL
	}
	return flags, nil
}

func mpiFileOpen(f *frame, on uintptr, name ptr, mode int, hints *info, to ptr) error {
	f.on = &noFile
	c := commOf(on)
	switch {
	case c == nil:
		return badHandle(c_ERR_COMM, "communicator", on)
	case c.IsInter():
		return errInter
	case to == nil:
		return errNull
	}
	f.putHandle(to, c_FILE_NULL)
	dup, err := c.Dup(never)
	if err != nil {
		return err
	}
	fresh := &file{comm: dup, name: text(name), mode: mode, hints: hints.known(fileHints), view: wholeFile(), fd: -1}
	if err := fresh.open(); err != nil {
		if fresh.fd >= 0 {
			_ = unix.Close(fresh.fd)
		}
		_ = dup.Free(never) // the file's error is told
		return err
	}
	h, slot := files.enter()
	fresh.handle, *slot = h, fresh
	fresh.setHandler(noFile.handler)
	f.putHandle(to, h)
	return nil
}

// open opens the file on all ranks or on none. Rank 0 is the first, so that the others find what it has made.
func (o *file) open() error {
	if err := same(o.comm, "the mode", o.mode); err != nil {
		return err
	}
	flags, err := flags(o.mode)
	if err == nil && o.name == "" {
		err = wrong(c_ERR_BAD_FILE, "the file's name is empty")
	}
	first := o.comm.Rank() == 0
	if err == nil && first {
		err = o.openAs(flags)
	}
	if err = agreed(o.comm, err); err != nil {
		return err
	}
	if !first {
		err = o.openAs(flags &^ (unix.O_CREAT | unix.O_EXCL))
	}
	if err == nil && o.mode&c_MODE_APPEND != 0 {
		o.at, err = o.end()
	}
	if err = agreed(o.comm, err); err != nil {
		return err
	}
	return o.pointer.open(o.comm, o.at)
}

func (o *file) openAs(flags int) error {
	return systemError("open", o.name, aside(func() error {
		return again(func() (err error) {
			o.fd, err = unix.Open(o.name, flags, 0o666)
			return err
		})
	}))
}

// mpiFileClose waits for accesses that are under way. The handle is invalid afterwards, also where an error is returned.
func mpiFileClose(f *frame, at ptr) error {
	h := f.handleAt(at)
	o := fileOf(h)
	if o == nil {
		f.on = &noFile
		return badHandle(c_ERR_FILE, "file", h)
	}
	f.on = &o.owner
	if o.split != nil {
		return wrong(c_ERR_OTHER, "%s_begin has no end yet", o.splitBy)
	}
	err := aside(func() error {
		o.under.Wait()
		err := unix.Close(o.fd)
		if err == unix.EINTR { // Linux has closed it
			err = nil
		}
		return systemError("close", o.name, err)
	})
	err = agreed(o.comm, err)
	if o.mode&c_MODE_DELETE_ON_CLOSE != 0 {
		var gone error
		if o.comm.Rank() == 0 {
			gone = unlink(o.name)
		}
		if gone = agreed(o.comm, gone); err == nil {
			err = gone
		}
	}
	for _, end := range []func() error{o.pointer.close, func() error { return o.comm.Free(never) }} {
		if failed := end(); err == nil {
			err = failed
		}
	}
	files.leave(h)
	f.putHandle(at, c_FILE_NULL)
	o.handler.uses--
	o.handler.drop()
	return err
}

func unlink(name string) error {
	return systemError("delete", name, aside(func() error { return unix.Unlink(name) }))
}

func mpiFileDelete(f *frame, name ptr, _ *info) error {
	if name == nil {
		return wrong(c_ERR_BAD_FILE, "the file's name is NULL")
	}
	return unlink(text(name))
}

// byFirst has rank 0 do something to the file, and all get its error.
func (o *file) byFirst(doing string, do func() error) error {
	var err error
	if o.comm.Rank() == 0 {
		err = systemError(doing, o.name, aside(func() error { return again(do) }))
	}
	return agreed(o.comm, err)
}

// sizable is an error where the size cannot be set to n.
func (o *file) sizable(n int) error {
	switch {
	case n < 0:
		return wrong(c_ERR_ARG, "the size is %d", n)
	case o.mode&c_MODE_RDONLY != 0:
		return wrong(c_ERR_READ_ONLY, "%s is open for reading", o.name)
	case o.mode&c_MODE_SEQUENTIAL != 0:
		return errSequential
	}
	return nil
}

var errSequential = wrong(c_ERR_UNSUPPORTED_OPERATION, "MPI_MODE_SEQUENTIAL has only the shared pointer")

func mpiFileSetSize(_ *frame, o *file, n int) error {
	if err := same(o.comm, "the size", n); err != nil {
		return err
	}
	if err := o.sizable(n); err != nil {
		return err
	}
	return o.byFirst("set the size of", func() error { return unix.Ftruncate(o.fd, int64(n)) })
}

func mpiFilePreallocate(_ *frame, o *file, n int) error {
	if err := same(o.comm, "the size", n); err != nil {
		return err
	}
	if err := o.sizable(n); err != nil || n == 0 {
		return err
	}
	return o.byFirst("allocate", func() error { return unix.Fallocate(o.fd, 0, 0, int64(n)) })
}

// size is how many bytes the file has.
func (o *file) size() (int, error) {
	var st unix.Stat_t
	err := aside(func() error { return unix.Fstat(o.fd, &st) })
	return int(st.Size), systemError("look at", o.name, err)
}

func mpiFileGetSize(f *frame, o *file, to ptr) error {
	n, err := o.size()
	if err == nil {
		f.putLong(to, n)
	}
	return err
}

func mpiFileSync(_ *frame, o *file) error {
	var err error
	if o.mode&c_MODE_RDONLY == 0 {
		err = systemError("sync", o.name, aside(func() error {
			o.under.Wait()
			return again(func() error { return unix.Fsync(o.fd) })
		}))
	}
	return agreed(o.comm, err)
}

func mpiFileGetGroup(f *frame, o *file, to ptr) error {
	return f.putGroup(to, nil, o.comm.Group(), nil)
}

func mpiFileGetAmode(f *frame, o *file, to ptr) error {
	f.put(to, o.mode)
	return nil
}

func mpiFileSetAtomicity(_ *frame, o *file, flag int) error {
	if err := same(o.comm, "the flag", flag); err != nil {
		return err
	}
	o.atomic = flag != 0
	return nil
}

func mpiFileGetAtomicity(f *frame, o *file, to ptr) error {
	f.putBool(to, o.atomic)
	return nil
}

func mpiFileSetInfo(_ *frame, o *file, hints *info) error {
	o.setHints(hints)
	return agreed(o.comm, nil)
}

// setHints keeps the hints that MPI knows, beside those that are there.
func (o *file) setHints(hints *info) {
	for _, p := range hints.known(fileHints).pairs {
		o.hints.set(p.key, p.value)
	}
}

func mpiFileGetInfo(f *frame, o *file, to ptr) error {
	f.putInfo(to, o.hints.copy())
	return nil
}

func mpiFileCreateErrhandler(f *frame, function, to ptr) error {
	return mpiCommCreateErrhandler(f, function, to)
}

// ownerAt is a file's, or that of MPI_FILE_NULL.
func (f *frame) ownerAt(h uintptr) *owner {
	f.on = &noFile
	if o := fileOf(h); o != nil {
		f.on = &o.owner
	} else if h != c_FILE_NULL {
		f.bad(badHandle(c_ERR_FILE, "file", h))
	}
	return f.on
}

func mpiFileSetErrhandler(f *frame, h uintptr, e *errhandler) error {
	if o := f.ownerAt(h); f.err == nil {
		o.setHandler(e)
	}
	return f.err
}

func mpiFileGetErrhandler(f *frame, h uintptr, to ptr) error {
	if o := f.ownerAt(h); f.err == nil {
		return o.getHandler(f, to)
	}
	return f.err
}

func mpiFileCallErrhandler(f *frame, h uintptr, code int) error {
	if o := f.ownerAt(h); f.err == nil {
		raise(o, "MPI_File_call_errhandler", &mistake{code, errorText(code)})
	}
	return f.err
}

// external32 is MPI's own representation: see external.go.
const external32 = "external32"

// A dataRep is a representation of data in files: MPI's own, of which "internal" may be anything, and is native, and those of
// the program.
type dataRep struct{ extent, state ptr } // MPI_Datarep_extent_function; nil: MPI's own

var dataReps = map[string]dataRep{"native": {}, "internal": {}, external32: {}}

// mpiRegisterDatarep takes a representation whose data is in files as it is in memory: without functions that convert.
func mpiRegisterDatarep(_ *frame, name, reads, writes, extent, state ptr) error {
	s := text(name)
	switch _, has := dataReps[s]; {
	case has:
		return wrong(c_ERR_DUP_DATAREP, "there is a data representation %q", s)
	case s == "" || len(s) >= c_MAX_DATAREP_STRING:
		return wrong(c_ERR_ARG, "the name has %d bytes: expected 1 to %d", len(s), c_MAX_DATAREP_STRING-1)
	case extent == nil:
		return wrong(c_ERR_ARG, "the function that tells extents is NULL")
	case reads != nil || writes != nil:
		return wrong(c_ERR_UNSUPPORTED_DATAREP, "no function converts data: expected MPI_CONVERSION_FN_NULL twice, for data as it is in memory")
	}
	dataReps[s] = dataRep{extent, state}
	return nil
}

// extentOf is a type's extent in files.
func (d dataRep) extentOf(t *datatype) (int, error) {
	if _, extent := t.Extent(); d.extent == nil {
		return extent, nil
	}
	extent, code := callExtent(d.extent, t.handle, d.state)
	if code != c_SUCCESS {
		return 0, wrong(c_ERR_CONVERSION, "the function that tells extents gives %d", code)
	}
	return extent, nil
}

// fits is an error where the program says that a type has another extent in files than in memory.
func (d dataRep) fits(t *datatype) error {
	_, want := t.Extent()
	got, err := d.extentOf(t)
	if err == nil && got != want {
		err = wrong(c_ERR_UNSUPPORTED_DATAREP, "a type has an extent of %d bytes in files and of %d in memory, and nothing converts them", got, want)
	}
	return err
}
