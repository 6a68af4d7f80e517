// What entries.c and answers.c share: the way into the library in Go.
#ifndef GORUN_ABI_SHIM_H
#define GORUN_ABI_SHIM_H

#include "../include/mpi.h"

#include <stddef.h>

// The library for programs of MPICH's ABI (../mpich) has the functions under other names, and names itself otherwise.
#ifndef PMPI
#define LIBRARY "libmpi_abi.so.1"
#define PMPI(name) PMPI_##name
#define PRAGMA(text) _Pragma(#text)
#define WEAK(name) PRAGMA(weak MPI_##name = PMPI_##name) // a tool may replace MPI_
#endif

#pragma GCC visibility push(hidden)

// A word is an argument of a call, whatever its type.
typedef intptr_t word;

// In a call's number: the counts in its lists are MPI_Count; a function of the program makes it, which runs inside of a call of
// this thread.
enum { LARGE = 1 << 16, NESTED = 1 << 17 };

// What else than a function's number enter takes. OPEN hands over where communicators are told of, whether EXIT is for, nest and foreign.
// MISSING is an error because of the function with that name, and takes nested too; THREAD says that this thread calls for the
// first time, and EXIT that the process ends.
enum { OPEN = -1, MISSING = -2, THREAD = -3, EXIT = -4 };

// The library's door, for a thread that has been through it.
typedef int (*door_fn)(int number, const word *args);
extern __thread door_fn door __attribute__((tls_model("initial-exec")));
extern __thread int nested __attribute__((tls_model("initial-exec"))); // NESTED or 0

// load opens the door for this thread, and first the library. It ends the process when that cannot be had.
door_fn load(void);

static inline int enter(int number, const word *args) {
	door_fn d = door;
	if (__builtin_expect(d == NULL, 0))
		d = load();
	return d(number | nested, args);
}

// missing is the error of a function that is not there yet.
int missing(const char *name);

// A communicator as the library tells of it, in the place that its handle's low bits name.
struct comm_told {
	word handle;
	int rank, size;
};
enum { COMMS_TOLD = 256 };

// What functions of the program are to be given and give back, where they know MPI by another ABI.
struct foreign {
	word (*handle)(word handle);
	int (*code)(int code), (*own_code)(int code); // an error's there, and back
	int (*copy)(void *function, word old, int keyval, void *extra, void *in, void *out, int *flag);
	int (*delete)(void *function, word handle, int keyval, void *value, void *extra);
	int (*query)(void *function, void *extra, MPI_Status *status);
};
extern const struct foreign *const foreign; // NULL in the library of the standard ABI

// What C can often answer itself: 0 where Go has to.
int quick_Comm_rank(MPI_Comm comm, int *rank);
int quick_Comm_size(MPI_Comm comm, int *size);
int quick_Alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr);

#pragma GCC visibility pop

#endif
