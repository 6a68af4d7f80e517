//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// A window is MPI_Win: a window of bytes of package rank, which knows of types only in accesses.
type window struct {
	*rank.Win[byte]
	owner
	on    *comm
	base  ptr
	about *aboutWindow
	hints *info

	attached map[ptr][]byte // of a dynamic one, by where they begin
	attributes
}

var windows = newTable[*window](kindWindow)

func windowOf(h uintptr) *window {
	if w := windows.find(h); w != nil {
		return *w
	}
	return nil
}

// enterWindow makes a window C's. base: where its memory is, which it says itself if that is nil.
func (f *frame) enterWindow(to ptr, c *comm, base ptr, hints *info, w *rank.Win[byte], err error) error {
	if err != nil {
		return err
	}
	if base == nil && w.Size() > 0 {
		base = addressOf(w.Base())
	}
	h, slot := windows.enter()
	fresh := &window{Win: w, owner: owner{handle: h}, on: c, base: base, hints: hints.known(windowHints)}
	fresh.setHandler(c.handler)
	fresh.about = newAbout(w.Size(), w.DispUnit(), flavors[w.Flavor()])
	w.SetName("")
	*slot = fresh
	f.putHandle(to, h)
	return nil
}

var flavors = map[rank.Flavor]int{rank.FlavorCreate: c_WIN_FLAVOR_CREATE, rank.FlavorAllocate: c_WIN_FLAVOR_ALLOCATE, rank.FlavorShared: c_WIN_FLAVOR_SHARED, rank.FlavorDynamic: c_WIN_FLAVOR_DYNAMIC}

// sized is an error for a size or a unit that is none.
func sized(size, unit int) error {
	if size < 0 {
		return wrong(c_ERR_SIZE, "the window's size is %d", size)
	}
	if unit < 1 {
		return wrong(c_ERR_DISP, "the displacement unit is %d: expected 1 or more", unit)
	}
	return nil
}

func mpiWinCreate(f *frame, base ptr, size, unit int, hints *info, c *comm, to ptr) error {
	if err := sized(size, unit); err != nil {
		return err
	}
	if to == nil {
		return errNull
	}
	if base == nil && size > 0 {
		return wrong(c_ERR_BASE, "the window's memory is at NULL")
	}
	w, err := rank.WinCreate(never, c.Comm, memory(address(base), size), rank.WinInfo{DispUnit: unit})
	return f.enterWindow(to, c, base, hints, w, err)
}

func mpiWinAllocate(f *frame, size, unit int, hints *info, c *comm, base, to ptr) error {
	if err := sized(size, unit); err != nil {
		return err
	}
	if base == nil || to == nil {
		return errNull
	}
	w, err := rank.WinAllocate[byte](never, c.Comm, size, rank.WinInfo{DispUnit: unit})
	return f.allocated(to, base, c, hints, w, err)
}

func mpiWinAllocateShared(f *frame, size, unit int, hints *info, c *comm, base, to ptr) error {
	if err := sized(size, unit); err != nil {
		return err
	}
	if base == nil || to == nil {
		return errNull
	}
	w, err := rank.WinAllocateShared[byte](never, c.Comm, size, rank.WinInfo{DispUnit: unit})
	return f.allocated(to, base, c, hints, w, err)
}

// allocated stores a window and where its memory is.
func (f *frame) allocated(to, base ptr, c *comm, hints *info, w *rank.Win[byte], err error) error {
	if err = f.enterWindow(to, c, nil, hints, w, err); err == nil {
		f.putHandle(base, address(windowOf(f.handleAt(to)).base))
	}
	return err
}

func mpiWinCreateDynamic(f *frame, hints *info, c *comm, to ptr) error {
	if to == nil {
		return errNull
	}
	w, err := rank.WinCreateDynamic[byte](never, c.Comm)
	return f.enterWindow(to, c, nil, hints, w, err)
}

func mpiWinAttach(_ *frame, w *window, base ptr, size int) error {
	if size < 0 {
		return wrong(c_ERR_SIZE, "the size is %d", size)
	}
	if base == nil && size > 0 {
		return wrong(c_ERR_BASE, "the memory is at NULL")
	}
	mem := memory(address(base), size)
	if size > 0 {
		if err := w.Attach(mem); err != nil {
			return err
		}
	}
	if w.attached == nil {
		w.attached = map[ptr][]byte{}
	}
	w.attached[base] = mem
	return nil
}

func mpiWinDetach(_ *frame, w *window, base ptr) error {
	mem, ok := w.attached[base]
	if !ok {
		return wrong(c_ERR_BASE, "no memory that was attached begins there")
	}
	if len(mem) > 0 {
		if err := w.Detach(mem); err != nil {
			return err
		}
	}
	delete(w.attached, base)
	return nil
}

func mpiWinFree(f *frame, at ptr) error {
	h := f.handleAt(at)
	w := windowOf(h)
	if w == nil {
		return badHandle(c_ERR_WIN, "window", h)
	}
	f.on = &w.owner
	if err := w.deleteAll(h); err != nil {
		return err
	}
	if err := w.Free(never); err != nil {
		return err
	}
	w.about.free()
	windows.leave(h)
	f.putHandle(at, c_WIN_NULL)
	return nil
}

// asserts are MPI's assertions in package rank's numbers.
func (f *frame) asserts(n int) (a rank.Assert) {
	for c, r := range map[int]rank.Assert{c_MODE_NOCHECK: rank.ModeNoCheck, c_MODE_NOSTORE: rank.ModeNoStore, c_MODE_NOPUT: rank.ModeNoPut, c_MODE_NOPRECEDE: rank.ModeNoPrecede, c_MODE_NOSUCCEED: rank.ModeNoSucceed} {
		if n&c != 0 {
			a |= r
			n &^= c
		}
	}
	if n != 0 {
		f.bad(wrong(c_ERR_ASSERT, "no assertion has the bits %#x", n))
	}
	return a
}

func mpiWinFence(f *frame, assert int, w *window) error {
	a := f.asserts(assert)
	if f.err != nil {
		return f.err
	}
	return w.Fence(never, a)
}

func mpiWinStart(f *frame, g *groupOf, assert int, w *window) error {
	a := f.asserts(assert)
	if f.err != nil {
		return f.err
	}
	return w.Start(never, g.Group, a)
}

func mpiWinPost(f *frame, g *groupOf, assert int, w *window) error {
	a := f.asserts(assert)
	if f.err != nil {
		return f.err
	}
	return w.Post(g.Group, a)
}

func mpiWinComplete(_ *frame, w *window) error { return w.Complete(never) }
func mpiWinWait(_ *frame, w *window) error     { return w.Wait(never) }

func mpiWinTest(f *frame, w *window, flag ptr) error {
	done, err := w.Test()
	f.putBool(flag, done)
	return err
}

func mpiWinLock(f *frame, kind, target, assert int, w *window) error {
	a, to := f.asserts(assert), f.peer(target, false)
	if f.err != nil {
		return f.err
	}
	switch kind {
	case c_LOCK_SHARED:
		return w.Lock(never, rank.LockShared, to, a)
	case c_LOCK_EXCLUSIVE:
		return w.Lock(never, rank.LockExclusive, to, a)
	}
	return wrong(c_ERR_LOCKTYPE, "no kind of lock has the number %d", kind)
}

func mpiWinUnlock(f *frame, target int, w *window) error {
	to := f.peer(target, false)
	if f.err != nil {
		return f.err
	}
	return w.Unlock(never, to)
}

func mpiWinLockAll(f *frame, assert int, w *window) error {
	a := f.asserts(assert)
	if f.err != nil {
		return f.err
	}
	return w.LockAll(never, a)
}

func mpiWinUnlockAll(_ *frame, w *window) error { return w.UnlockAll(never) }

func mpiWinFlush(f *frame, target int, w *window) error {
	to := f.peer(target, false)
	if f.err != nil {
		return f.err
	}
	return w.Flush(never, to)
}

func mpiWinFlushLocal(f *frame, target int, w *window) error {
	to := f.peer(target, false)
	if f.err != nil {
		return f.err
	}
	return w.FlushLocal(never, to)
}

func mpiWinFlushAll(_ *frame, w *window) error      { return w.FlushAll(never) }
func mpiWinFlushLocalAll(_ *frame, w *window) error { return w.FlushLocalAll(never) }
func mpiWinSync(_ *frame, w *window) error          { return w.Sync() }

// place is an access's target.
func (f *frame) place(w *window, target, disp, count int, t *datatype) int {
	to := f.peer(target, false)
	switch {
	case count < 0:
		f.bad(wrong(c_ERR_COUNT, "the target's count is %d", count))
	case t != nil && !t.committed:
		f.bad(wrong(c_ERR_TYPE, "the target's datatype is not committed: call MPI_Type_commit"))
	case disp < 0 && w.Flavor() != rank.FlavorDynamic && to != rank.ProcNull:
		f.bad(wrong(c_ERR_DISP, "the displacement is %d", disp))
	}
	return to
}

func mpiPut(f *frame, at ptr, n int, t *datatype, target, disp, count int, there *datatype, w *window) error {
	b, to := f.buffer(at, n, t), f.place(w, target, disp, count, there)
	if f.err != nil {
		return f.err
	}
	return w.PutTyped(b, to, disp, count, there.Datatype)
}

func mpiGet(f *frame, at ptr, n int, t *datatype, target, disp, count int, there *datatype, w *window) error {
	b, to := f.buffer(at, n, t), f.place(w, target, disp, count, there)
	if f.err != nil {
		return f.err
	}
	return w.GetTyped(b, to, disp, count, there.Datatype)
}

// combining is an operation for windows: MPI's own alone, of any type where there are no items.
func (f *frame) combining(o *operation, count int, t *datatype) rank.Op {
	if count > 0 && o.handle != c_REPLACE && o.handle != c_NO_OP && (t.opaque || !t.fits(o.handle)) {
		f.bad(wrong(c_ERR_OP, "%v is not defined for %s in windows", o.op, t.called()))
	}
	if o.function != nil {
		f.bad(wrong(c_ERR_OP, "windows take MPI's own operations alone"))
	}
	return o.op
}

func mpiAccumulate(f *frame, at ptr, n int, t *datatype, target, disp, count int, there *datatype, o *operation, w *window) error {
	b, to, op := f.buffer(at, n, t), f.place(w, target, disp, count, there), f.combining(o, count, there)
	if f.err != nil {
		return f.err
	}
	return w.AccumulateTyped(b, to, disp, count, there.Datatype, op)
}

// giver is the first operand of a get that accumulates, which MPI_NO_OP does not look at.
func (f *frame) giver(o *operation, at ptr, n int, t *datatype) rank.Buffer {
	if o.handle == c_NO_OP {
		return rank.Buffer{}
	}
	return f.buffer(at, n, t)
}

func mpiGetAccumulate(f *frame, at ptr, n int, t *datatype, result ptr, m int, rt *datatype, target, disp, count int, there *datatype, o *operation, w *window) error {
	b, r, to, op := f.giver(o, at, n, t), f.buffer(result, m, rt), f.place(w, target, disp, count, there), f.combining(o, count, there)
	if f.err != nil {
		return f.err
	}
	return w.GetAccumulateTyped(b, r, to, disp, count, there.Datatype, op)
}

func mpiFetchAndOp(f *frame, at, result ptr, t *datatype, target, disp int, o *operation, w *window) error {
	b, r, to, op := f.giver(o, at, 1, t), f.buffer(result, 1, t), f.place(w, target, disp, 1, t), f.combining(o, 1, t)
	if f.err != nil {
		return f.err
	}
	return w.GetAccumulateTyped(b, r, to, disp, 1, t.Datatype, op)
}

func mpiCompareAndSwap(f *frame, at, compare, result ptr, t *datatype, target, disp int, w *window) error {
	a, b, r, to := f.buffer(at, 1, t), f.buffer(compare, 1, t), f.buffer(result, 1, t), f.place(w, target, disp, 1, t)
	if f.err != nil {
		return f.err
	}
	return w.CompareAndSwapTyped(a, b, r, to, disp)
}

func mpiRput(f *frame, at ptr, n int, t *datatype, target, disp, count int, there *datatype, w *window, request ptr) error {
	b, to := f.buffer(at, n, t), f.place(w, target, disp, count, there)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.toWindow(request, w).started(w.RputTyped(b, to, disp, count, there.Datatype))
}

func mpiRget(f *frame, at ptr, n int, t *datatype, target, disp, count int, there *datatype, w *window, request ptr) error {
	b, to := f.buffer(at, n, t), f.place(w, target, disp, count, there)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.toWindow(request, w).started(w.RgetTyped(b, to, disp, count, there.Datatype))
}

func mpiRaccumulate(f *frame, at ptr, n int, t *datatype, target, disp, count int, there *datatype, o *operation, w *window, request ptr) error {
	b, to, op := f.buffer(at, n, t), f.place(w, target, disp, count, there), f.combining(o, count, there)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.toWindow(request, w).started(w.RaccumulateTyped(b, to, disp, count, there.Datatype, op))
}

func mpiRgetAccumulate(f *frame, at ptr, n int, t *datatype, result ptr, m int, rt *datatype, target, disp, count int, there *datatype, o *operation, w *window, request ptr) error {
	b, r, to, op := f.giver(o, at, n, t), f.buffer(result, m, rt), f.place(w, target, disp, count, there), f.combining(o, count, there)
	if f.err != nil || request == nil {
		return f.orNull()
	}
	return f.toWindow(request, w).started(w.RgetAccumulateTyped(b, r, to, disp, count, there.Datatype, op))
}

func (f *frame) toWindow(at ptr, w *window) *frame {
	f.at, f.whose = at, &w.owner
	return f
}

func mpiWinSharedQuery(f *frame, w *window, r int, size, unit, base ptr) error {
	of := f.peer(r, false)
	if f.err != nil {
		return f.err
	}
	if w.Flavor() != rank.FlavorShared {
		f.putLong(size, 0)
		f.putWide(unit, w.DispUnit())
		f.putHandle(base, 0)
		return nil
	}
	mem, err := w.Query(of)
	if err != nil {
		return err
	}
	f.putLong(size, len(mem))
	f.putWide(unit, w.DispUnit())
	f.putHandle(base, address(addressOf(mem)))
	return nil
}

func mpiWinGetGroup(f *frame, w *window, to ptr) error { return f.putGroup(to, nil, w.Group(), nil) }

func mpiWinSetName(_ *frame, w *window, name ptr) error {
	if name == nil {
		return errNull
	}
	s := text(name)
	w.SetName(s[:min(len(s), c_MAX_OBJECT_NAME-1)])
	return nil
}

func mpiWinGetName(f *frame, h uintptr, to, length ptr) error {
	w := windowOf(h)
	if h == c_WIN_NULL {
		f.putText(to, length, c_MAX_OBJECT_NAME, "MPI_WIN_NULL")
		return nil
	}
	if w == nil {
		return badHandle(c_ERR_WIN, "window", h)
	}
	f.putText(to, length, c_MAX_OBJECT_NAME, w.Name())
	return nil
}

func mpiWinSetInfo(_ *frame, w *window, hints *info) error {
	w.hints = hints.known(windowHints)
	return nil
}

func mpiWinGetInfo(f *frame, w *window, to ptr) error {
	f.putInfo(to, w.hints.copy())
	return nil
}

func mpiWinCreateErrhandler(f *frame, function, to ptr) error {
	return mpiCommCreateErrhandler(f, function, to)
}

func mpiWinSetErrhandler(_ *frame, w *window, e *errhandler) error {
	w.setHandler(e)
	return nil
}

func mpiWinGetErrhandler(f *frame, w *window, to ptr) error { return w.getHandler(f, to) }

func mpiWinCallErrhandler(_ *frame, w *window, code int) error {
	raise(&w.owner, "MPI_Win_call_errhandler", &mistake{code, errorText(code)})
	return nil
}

func mpiWinCreateKeyval(f *frame, copied, deleted, to, extra ptr) error {
	return f.newKeyval(copied, deleted, to, extra, forWindows)
}
func mpiWinFreeKeyval(f *frame, at ptr) error { return f.freeKeyval(at, forWindows) }

func mpiWinSetAttr(_ *frame, w *window, n int, value ptr) error {
	k, err := keyvalOf(n, forWindows)
	if err != nil {
		return err
	}
	return w.attributes.set(k, w.handle, value)
}

func mpiWinGetAttr(f *frame, w *window, n int, to, flag ptr) error {
	if to == nil || flag == nil {
		return errNull
	}
	if v, ok := w.ownAttribute(n); ok {
		f.putBool(flag, true)
		f.putHandle(to, address(v))
		return nil
	}
	k, err := keyvalOf(n, forWindows)
	if err == nil {
		f.get(w.attributes, k, to, flag)
	}
	return err
}

func mpiWinDeleteAttr(_ *frame, w *window, n int) error {
	k, err := keyvalOf(n, forWindows)
	if err != nil {
		return err
	}
	return w.attributes.delete(k, w.handle)
}
