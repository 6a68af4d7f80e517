//go:build cgo && linux

package main

import (
	"errors"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rank"
)

// An access is one reading or writing of a file. It moves bytes from where they lie in memory to where they are in the file,
// or back, without another copy: one call of the system for each run of the file, which takes many runs of memory.
//
// made by begun -- start --> under way in a goroutine -- done is closed --> over: moved and err are its outcome
//
// The memory and the datatypes are its own until then; of the file it needs only what does not change.
type access struct {
	file   *file
	what   string // for errors
	writes bool
	atomic bool
	view   view
	memory flat
	from   int // the first byte of the view's data
	size   int

	done  chan struct{}
	moved int
	err   error
	parts [][]byte // of memory, for one call of the system
}

// A direction is from memory to the file, or back.
type direction bool

const (
	reads  direction = false
	writes direction = true
)

// A pointer says where in the view an access begins, and what moves on.
type pointer int

const (
	atOffset pointer = iota // at an offset of its own
	atOwn                   // at the rank's pointer
	atShared                // at the shared pointer
	inOrder                 // there, ranks in their order
)

// partsMost is how many parts of memory a call of the system takes: IOV_MAX.
const partsMost = 1024

// access checks a reading or writing, and moves the pointer on; the error is the call's. The offset is atOffset's.
func (f *frame) access(o *file, d direction, by pointer, offset int, m flat) *access {
	a := &access{file: o, what: names[f.number], writes: bool(d), atomic: o.atomic, view: o.view, memory: m, done: make(chan struct{})}
	err := a.check(by)
	etypes := 0
	if err == nil && a.size > 0 {
		etypes = a.size / o.view.etype.size
	}
	switch {
	case by == inOrder: // the others are waiting for this rank
		var failed error
		if offset, failed = o.pointer.ordered(o.comm, etypes); err == nil {
			err = failed
		}
	case err != nil:
	case by == atShared:
		offset, err = o.pointer.fetchAdd(etypes)
	case by == atOwn:
		offset = o.at
		o.at += etypes
	}
	if err == nil {
		a.from, err = o.view.from(offset, a.size)
	}
	f.failed(err)
	return a
}

func (a *access) check(by pointer) error {
	o, m := a.file, a.memory
	if _, err := operand(m.at, m.count, m.t, false); err != nil {
		return err
	}
	over, size := bits.Mul64(uint64(m.count), uint64(m.t.size))
	a.size = int(size)
	switch etype := o.view.etype.size; {
	case over != 0 || size > mostBytes:
		return wrong(c_ERR_COUNT, "%d items of %d bytes are too many", m.count, m.t.size)
	case o.view.rep == external32 && m.t.externalSize() != m.t.size:
		return wrong(c_ERR_TYPE, "the datatype has another size in external32, and is not that of the view")
	case o.mode&c_MODE_SEQUENTIAL != 0 && by < atShared:
		return errSequential
	case a.writes && o.mode&c_MODE_RDONLY != 0:
		return wrong(c_ERR_READ_ONLY, "%s is open for reading", o.name)
	case !a.writes && o.mode&c_MODE_WRONLY != 0:
		return wrong(c_ERR_ACCESS, "%s is open for writing", o.name)
	case a.size > 0 && (etype == 0 || a.size%etype != 0 || o.view.filetype.size == 0):
		return wrong(c_ERR_ARG, "%d bytes are no etypes of the view, which have %d bytes", a.size, etype)
	}
	return nil
}

// start has the access under way; then is called at its end.
func (a *access) start(then func()) {
	a.file.under.Add(1)
	go func() {
		defer a.file.under.Done()
		if a.view.rep == external32 && a.size > 0 {
			a.err = a.convert()
		} else {
			a.err = a.run()
		}
		then() // before done: a rank that waits for done looks at the request next
		close(a.done)
	}()
}

func (a *access) status() rank.Status {
	return rank.Status{Source: rank.AnySource, Tag: rank.AnyTag, Bytes: a.moved}
}

// errEnd is the file's end, which a reading stops at.
var errEnd = errors.New("the file's end")

// convert moves the data by way of its external32.
func (a *access) convert() error {
	m, stage := a.memory, make([]byte, a.size)
	if a.writes {
		native := make([]byte, a.size)
		m.gather(native)
		if err := (&portable{out: true, native: native, external: stage}).items(m.t, m.count); err != nil {
			return err
		}
	}
	a.memory = flat{addressOf(stage), len(stage), basicTypes[c_BYTE]}
	err := a.run()
	if a.writes || err != nil {
		return err
	}
	native := make([]byte, a.moved)
	p := portable{native: native, external: stage[:a.moved]}
	if err = p.items(m.t, m.count); a.moved < a.size {
		err = nil // the file has ended before
	}
	m.scatter(native[:len(native)-len(p.native)])
	return err
}

// run moves the data. Runs of the file that touch are one.
func (a *access) run() error {
	if a.atomic {
		unlock, err := a.lock()
		if err != nil {
			return err
		}
		defer unlock()
	}
	at, length := 0, 0
	err := a.view.runs(a.from, a.size, func(off, n int) error {
		if at+length != off {
			if err := a.move(at, length); err != nil {
				return err
			}
			at, length = off, 0
		}
		length += n
		return nil
	})
	if err == nil {
		err = a.move(at, length)
	}
	if err == errEnd {
		return nil
	}
	return systemError(a.what, a.file.name, err)
}

// move moves the next length bytes of data, which are one run of the file from at on.
func (a *access) move(at, length int) error {
	end := at + length
	flush := func() error {
		err := a.transfer(end-length, a.parts)
		a.parts = a.parts[:0]
		return err
	}
	some := 0 // bytes in parts
	err := a.memory.t.Runs(a.moved, length, func(off, n int) error {
		a.parts = append(a.parts, memory(address(a.memory.at)+uintptr(off), n))
		if some += n; len(a.parts) < partsMost {
			return nil
		}
		err := flush()
		length, some = length-some, 0
		return err
	})
	if err != nil || len(a.parts) == 0 {
		return err
	}
	return flush()
}

// transfer moves parts of memory to or from one place of the file, in as many calls as the system takes for it.
func (a *access) transfer(at int, parts [][]byte) error {
	call := unix.Preadv
	if a.writes {
		call = unix.Pwritev
	}
	for len(parts) > 0 {
		n := 0
		err := again(func() (err error) {
			n, err = call(a.file.fd, parts, int64(at))
			return err
		})
		switch {
		case err != nil:
			return err
		case n == 0 && a.writes:
			return unix.EIO // it takes nothing, and does not say why
		case n == 0:
			return errEnd
		}
		a.moved += n
		at += n
		for len(parts) > 0 && n >= len(parts[0]) {
			n -= len(parts[0])
			parts = parts[1:]
		}
		if n > 0 {
			parts[0] = parts[0][n:]
		}
	}
	return nil
}

// lock excludes other atomic accesses: those of this rank, and those of others by a lock of the system's on the whole file.
func (a *access) lock() (unlock func(), err error) {
	o := a.file
	o.turn.Lock()
	as := unix.Flock_t{Type: unix.F_RDLCK}
	if a.writes {
		as.Type = unix.F_WRLCK
	}
	if err := again(func() error { return unix.FcntlFlock(uintptr(o.fd), unix.F_OFD_SETLKW, &as) }); err != nil {
		o.turn.Unlock()
		return nil, systemError("lock", o.name, err)
	}
	return func() {
		as.Type = unix.F_UNLCK
		_ = unix.FcntlFlock(uintptr(o.fd), unix.F_OFD_SETLK, &as) // which the close of the file does at the latest
		o.turn.Unlock()
	}, nil
}

// settle carries an access out.
func (a *access) settle(f *frame, status ptr) error {
	if f.err != nil {
		return f.err
	}
	a.start(func() {})
	return a.over(status)
}

// over waits for an access, and stores what became of it.
func (a *access) over(status ptr) error {
	await(a.done)
	st := a.status()
	statusAt(status).set(&st)
	return a.err
}

// launch starts an access with a request.
func (a *access) launch(f *frame, to ptr) error {
	if f.err != nil || to == nil {
		return f.orNull()
	}
	g, q, err := root.StartGeneral(rank.GeneralCalls{Query: func() (rank.Status, error) { return a.status(), a.err }})
	if err != nil {
		return err
	}
	a.start(g.Complete)
	f.at, f.whose = to, &a.file.owner
	if err := f.started(q, nil); err != nil {
		return err
	}
	requests.find(f.handleAt(to)).access = a
	return nil
}

// divide is the first half of a split collective.
func (a *access) divide(f *frame) error {
	o := a.file
	if o.split != nil {
		f.bad(wrong(c_ERR_OTHER, "%s_begin has no end yet", o.splitBy))
	}
	if f.err != nil {
		return f.err
	}
	o.split, o.splitBy = a, strings.TrimSuffix(names[f.number], "_begin")
	a.start(func() {})
	return nil
}

// unite is the second half.
func (f *frame) unite(o *file, status ptr) error {
	a, by := o.split, strings.TrimSuffix(names[f.number], "_end")
	if a == nil || o.splitBy != by {
		return wrong(c_ERR_OTHER, "%s_begin was not called", by)
	}
	o.split, o.splitBy = nil, ""
	return a.over(status)
}
