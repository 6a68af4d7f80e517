//go:build cgo && linux

package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/rank"
)

// A session is MPI_Session: a use of the process's place in its job, with an error handler.
type session struct {
	owner
	used   *info
	buffer buffer
}

var sessions = newTable[*session](kindSession)

func sessionOf(h uintptr) *session {
	if s := sessions.find(h); s != nil {
		return *s
	}
	return nil
}

// levelNames are the levels of threads.
var levelNames = map[int]string{c_THREAD_SINGLE: "MPI_THREAD_SINGLE", c_THREAD_FUNNELED: "MPI_THREAD_FUNNELED", c_THREAD_SERIALIZED: "MPI_THREAD_SERIALIZED", c_THREAD_MULTIPLE: "MPI_THREAD_MULTIPLE"}

var levels = func() map[string]int {
	numbers := map[string]int{}
	for level, name := range levelNames {
		numbers[name] = level
	}
	return numbers
}()

func mpiSessionInit(f *frame, hints *info, e *errhandler, to ptr) error {
	f.on = &owner{handle: c_SESSION_NULL, handler: e}
	if to == nil {
		return errNull
	}
	asked, known := levels[cmp.Or(hints.value("thread_level"), levelNames[c_THREAD_MULTIPLE])]
	if !known {
		return wrong(c_ERR_INFO_VALUE, "no level of threads has the name %q", hints.value("thread_level"))
	}
	level, err := use(asked)
	if err != nil {
		return err
	}
	job.sessions = true
	h, slot := sessions.enter()
	*slot = &session{owner: owner{handle: h}, buffer: buffer{SendBuffer: job.world.NewSendBuffer(nil)}, used: &info{pairs: []pair{{"thread_level", levelNames[level]}, {"mpi_memory_alloc_kinds", "system,mpi"}}}}
	(*slot).setHandler(e)
	f.putHandle(to, h)
	return nil
}

func mpiSessionFinalize(f *frame, at ptr) error {
	h := f.handleAt(at)
	s := sessionOf(h)
	if s == nil {
		return badHandle(c_ERR_SESSION, "session", h)
	}
	f.on = &s.owner
	if err := disuse(); err != nil {
		return err
	}
	sessions.leave(h)
	f.putHandle(at, c_SESSION_NULL)
	s.handler.uses--
	s.handler.drop()
	return nil
}

func mpiSessionGetInfo(f *frame, s *session, to ptr) error {
	if to == nil {
		return errNull
	}
	f.putInfo(to, s.used.copy())
	return nil
}

// A pset is a set of processes with a name.
type pset struct {
	name  string
	group func() rank.Group
}

var psets = [...]pset{
	{"mpi://WORLD", func() rank.Group { return job.world.Comm().Group() }},
	{"mpi://SELF", func() rank.Group { return job.world.Self().Group() }},
}

// psetNamed finds a set: names differ in more than capitals.
func psetNamed(at ptr) (rank.Group, error) {
	name := text(at)
	for _, p := range psets {
		if strings.EqualFold(p.name, name) {
			return p.group(), nil
		}
	}
	return rank.Group{}, wrong(c_ERR_ARG, "no set of processes has the name %q", name)
}

func mpiSessionGetNumPsets(f *frame, _ *session, _ *info, to ptr) error {
	f.put(to, len(psets))
	return nil
}

// mpiSessionGetNthPset stores as much of a name as there is room for, and how much room it needs with its zero.
func mpiSessionGetNthPset(f *frame, _ *session, _ *info, n int, length, to ptr) error {
	room := intsAt(length, 1)
	switch {
	case room == nil:
		return errNull
	case n < 0 || n >= len(psets):
		return wrong(c_ERR_ARG, "there is no set %d of processes, but %d sets", n, len(psets))
	case room[0] < 0:
		return wrong(c_ERR_ARG, "the name's length is %d", room[0])
	case room[0] > 0:
		f.putText(to, nil, int(room[0]), psets[n].name)
	}
	room[0] = int32(len(psets[n].name) + 1)
	return nil
}

func mpiSessionGetPsetInfo(f *frame, _ *session, name, to ptr) error {
	g, err := psetNamed(name)
	if err == nil && to == nil {
		err = errNull
	}
	if err != nil {
		return err
	}
	f.putInfo(to, &info{pairs: []pair{{"mpi_size", fmt.Sprint(g.Size())}}})
	return nil
}

func mpiGroupFromSessionPset(f *frame, s *session, name, to ptr) error {
	g, err := psetNamed(name)
	return f.putGroup(to, s, g, err)
}

func mpiSessionCreateErrhandler(f *frame, function, to ptr) error {
	return mpiCommCreateErrhandler(f, function, to)
}

func mpiSessionSetErrhandler(_ *frame, s *session, e *errhandler) error {
	s.setHandler(e)
	return nil
}

func mpiSessionGetErrhandler(f *frame, s *session, to ptr) error { return s.getHandler(f, to) }

func mpiSessionCallErrhandler(_ *frame, s *session, code int) error {
	raise(&s.owner, "MPI_Session_call_errhandler", &mistake{code, errorText(code)})
	return nil
}
