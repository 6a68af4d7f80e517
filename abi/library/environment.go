//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

func mpiInit(_ *frame, _, _ ptr) error { return start(c_THREAD_SINGLE) }

func mpiInitThread(f *frame, _, _ ptr, required int, to ptr) error {
	if required < c_THREAD_SINGLE || required > c_THREAD_MULTIPLE {
		return wrong(c_ERR_ARG, "no level of threads has the number %d", required)
	}
	if err := start(required); err != nil {
		return err
	}
	f.put(to, job.provided)
	return nil
}

// start joins the job.
func start(required int) error {
	switch job.stage {
	case inside:
		return wrong(c_ERR_OTHER, "MPI is initialized already")
	case finished:
		return wrong(c_ERR_OTHER, "MPI was finalized, and cannot be initialized again")
	}
	level, err := use(required)
	if err != nil {
		return err
	}
	job.stage, job.provided = inside, level
	job.main = thread()
	predefine(job.world)
	return nil
}

// use has the process be in its job for one user more, and gives the level of threads. The first user decides whether there are turns.
func use(required int) (level int, err error) {
	if job.left {
		return 0, wrong(c_ERR_OTHER, "this process has left its job in MPI_Finalize; a session that it has had before, or still has then, keeps it there")
	}
	if job.world == nil {
		w, err := rank.Init(never, rank.Config{Concurrent: required == c_THREAD_MULTIPLE, Turn: &turn})
		if err != nil {
			return 0, wrong(c_ERR_OTHER, "%v", err)
		}
		job.world = w
		single.Store(required < c_THREAD_MULTIPLE)
		root = &comm{Comm: w.Comm(), owner: owner{handle: c_COMM_NULL, handler: fatal}, named: true}
		attributesOfWorld(w)
	}
	job.users++
	*stays = 0
	if single.Load() {
		required = min(required, c_THREAD_SERIALIZED)
	}
	return required, nil
}

// disuse is the end of a user. The last one leaves the job, unless there was a session, after which another may come.
func disuse() (err error) {
	switch last := job.users == 1; {
	case last && !job.sessions:
		err = leave()
	case last:
		clear(told[:])
		fallthrough
	default:
		err = job.world.FlushBuffer(never)
	}
	if err != nil {
		return err
	}
	if job.users--; job.users == 0 && job.world != nil {
		*stays = 1
	}
	return nil
}

func leave() error {
	if err := job.world.Finalize(never); err != nil {
		return err
	}
	clear(told[:])
	job.world, root, job.left = nil, nil, true
	return nil
}

// goodbye is the end of a process that stays in its job: it leaves it.
func goodbye() {
	if err := leave(); err != nil {
		abort(codeOf(err), "at the end of the process: "+located(err.Error()))
	}
}

func mpiInitialized(f *frame, to ptr) error {
	f.putBool(to, job.stage != outside)
	return nil
}

func mpiFinalized(f *frame, to ptr) error {
	f.putBool(to, job.stage == finished)
	return nil
}

// mpiFinalize first deletes the attributes of MPI_COMM_SELF, whose functions may still communicate.
func mpiFinalize(*frame) error {
	if job.stage != inside {
		return wrong(c_ERR_OTHER, "MPI is not initialized, or it was finalized already")
	}
	if err := self.deleteAll(c_COMM_SELF); err != nil {
		return err
	}
	if err := world.deleteAll(c_COMM_WORLD); err != nil {
		return err
	}
	if err := disuse(); err != nil {
		return err
	}
	untell(c_COMM_WORLD)
	untell(c_COMM_SELF)
	world, self, job.stage = nil, nil, finished
	return nil
}

func mpiQueryThread(f *frame, to ptr) error {
	f.put(to, job.provided)
	return nil
}

func mpiIsThreadMain(f *frame, to ptr) error {
	f.putBool(to, thread() == job.main)
	return nil
}

func mpiAbort(f *frame, c *comm, code int) error {
	abort(code, "MPI_Abort was called")
	return nil
}

func mpiGetLibraryVersion(f *frame, to, length ptr) error {
	f.putText(to, length, c_MAX_LIBRARY_VERSION_STRING, rank.LibraryVersion()+", the standard ABI 1.0 of MPI 5.0")
	return nil
}

func mpiGetProcessorName(f *frame, to, length ptr) error {
	f.putText(to, length, c_MAX_PROCESSOR_NAME, job.world.ProcessorName())
	return nil
}

// mpiAllocMem has the errors of MPI_Alloc_mem, which C does otherwise.
func mpiAllocMem(_ *frame, size int, _ *info, to ptr) error {
	if to == nil {
		return errNull
	}
	if size < 0 {
		return wrong(c_ERR_ARG, "the size is %d", size)
	}
	return wrong(c_ERR_NO_MEM, "there are no %d bytes", size)
}

// mpiAbiGetInfo has the sizes of the types that an ABI may choose.
func mpiAbiGetInfo(f *frame, to ptr) error {
	f.putInfo(to, &info{pairs: []pair{{"mpi_aint_size", "8"}, {"mpi_count_size", "8"}, {"mpi_offset_size", "8"}}})
	return nil
}

// mpiGetHwResourceInfo tells of no resource of hardware.
func mpiGetHwResourceInfo(f *frame, to ptr) error {
	f.putInfo(to, &info{})
	return nil
}
