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

// start joins the job. Threads may call one after another; at the same time they may not yet.
func start(required int) error {
	switch job.stage {
	case inside:
		return wrong(c_ERR_OTHER, "MPI is initialized already")
	case finished:
		return wrong(c_ERR_OTHER, "MPI was finalized, and cannot be initialized again")
	}
	w, err := rank.Init(never, rank.Config{})
	if err != nil {
		return wrong(c_ERR_OTHER, "%v", err)
	}
	job.world, job.stage, job.provided = w, inside, min(required, c_THREAD_SERIALIZED)
	job.main = thread()
	predefine(w)
	attributesOfWorld(w)
	return nil
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
	if err := self.deleteAll(c_COMM_SELF); err != nil {
		return err
	}
	if err := world.deleteAll(c_COMM_WORLD); err != nil {
		return err
	}
	err := job.world.Finalize(never)
	if err != nil {
		return err
	}
	clear(told[:])
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
