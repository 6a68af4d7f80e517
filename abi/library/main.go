//go:build cgo && linux

// Library is MPI behind libmpi_abi.so.1, as a C library: handles, conversions and error classes over package rank. The C
// side (../shim) hands each call over as words; calls.go, which is generated, makes arguments of them.
//
//	shim/entries.c -- enter(number, words) --> gorun_mpi_call --> dispatch --> mpiSend(f, buf, ...) --> rank
//
// A frame is one call. Objects are in tables and handles are their numbers, so a handle that is freed, stale or of another
// kind is found out. All state is job's, and of one call at a time, on whatever thread: see turn.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {}

// never: calls of C have no context.
var never = context.Background()

// A stage is where the process is between start and end.
type stage int

const (
	outside  stage = iota // before Init
	inside                // between Init and Finalize
	finished              // after Finalize
)

// job is this process's place in its job. Sessions may come one after another, and a process can join its job once: so from
// the first session on the world stays until the process ends.
var job struct {
	stage    stage
	world    *rank.World // nil before the first of MPI_Init and MPI_Session_init, and after the end
	users    int         // who has use of it: MPI_Init, and open sessions
	sessions bool        // there was one
	left     bool        // the end was
	provided int         // the level of threads
	main     int         // the thread that called Init
	codes    []added
}

// turn is that of the program's threads (MPI_THREAD_MULTIPLE). A call begins and ends with it, and leaves it where it waits; what
// a function of the program calls, inside of a call, is of that call's turn. There are none once the process has joined its job
// for less: calls follow each other by themselves then (MPI_THREAD_SERIALIZED).
var (
	turn   rank.Turn
	single atomic.Bool
)

// early are the functions that may be called outside of Init and Finalize.
var early = func() (list [len(names)]bool) {
	may := map[string]bool{
		"MPI_Abi_get_info": true, "MPI_Abi_get_fortran_info": true, "MPI_Abi_set_fortran_info": true, "MPI_Abi_get_fortran_booleans": true, "MPI_Abi_set_fortran_booleans": true,
		"MPI_Session_init": true, "MPI_Session_create_errhandler": true,
		"MPI_Init": true, "MPI_Init_thread": true, "MPI_Initialized": true, "MPI_Finalized": true, "MPI_Get_library_version": true,
		"MPI_Remove_error_class": true, "MPI_Remove_error_code": true, "MPI_Remove_error_string": true, "MPI_Error_class": true, "MPI_Error_string": true, "MPI_Add_error_class": true, "MPI_Add_error_code": true, "MPI_Add_error_string": true,
		"MPI_Info_create": true, "MPI_Info_create_env": true, "MPI_Info_delete": true, "MPI_Info_dup": true, "MPI_Info_free": true, "MPI_Info_get": true,
		"MPI_Info_get_nkeys": true, "MPI_Info_get_nthkey": true, "MPI_Info_get_string": true, "MPI_Info_get_valuelen": true, "MPI_Info_set": true,
		"MPI_Comm_create_errhandler": true, "MPI_Errhandler_free": true, "MPI_Comm_create_keyval": true, "MPI_Comm_free_keyval": true,
		"MPI_File_create_errhandler": true, "MPI_Type_create_keyval": true, "MPI_Type_free_keyval": true,
	}
	for i, name := range names {
		list[i] = may[name]
	}
	return list
}()

// call is a call of C, and gives the error's code.
func call(f *frame) int {
	if job.users == 0 && !early[f.number] {
		when := "before MPI_Init"
		switch {
		case job.stage == finished:
			when = "after MPI_Finalize"
		case job.sessions:
			when = "while no session is open"
		}
		f.err = wrong(c_ERR_OTHER, "it was called %s", when)
	} else {
		dispatch(f, f.number)
		f.batch.giveBack()
	}
	if f.err == nil {
		return c_SUCCESS
	}
	if f.on == nil && ofFiles[f.number] && job.users > 0 {
		f.on = &noFile
	}
	return raise(f.on, names[f.number], f.err)
}

// missing is an error of no object, so that programs can ask whether there is such a function, by the handler of MPI_COMM_SELF.
func missing(name string) int {
	err := wrong(c_ERR_UNSUPPORTED_OPERATION, "it is not there yet in gorun's libmpi_abi.so.1 (docs/c.md has the list)")
	if job.users == 0 {
		abort(c_ERR_UNSUPPORTED_OPERATION, name+": "+err.Error())
	}
	return raise(nil, name, err)
}

// abort ends the job, and this process.
func abort(code int, message string) {
	if job.world != nil {
		job.world.Abort(code, message)
	}
	fmt.Fprintln(os.Stderr, message)
	if code &= 0xff; code == 0 {
		code = 1
	}
	os.Exit(code)
}
