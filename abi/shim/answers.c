// The functions that do without Go, and how Go is loaded.
#define _GNU_SOURCE
#include "shim.h"

#include "../../internal/cgoloader/loader.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

__thread door_fn door;
__thread int nested;
#ifndef FOREIGN
const struct foreign *const foreign = NULL;
#endif

static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
static door_fn opened; // under loading
static volatile struct comm_told comms[COMMS_TOLD];
static volatile int stays; // in the job, though nobody has use of it: no call is under way

// Of a process that has no Go: nothing else can be done for it.
__attribute__((noreturn)) static void die(const char *why) {
	fprintf(stderr, LIBRARY " of gorun: %s\n", why);
	_exit(1);
}

static int in_child(int number, const word *args) {
	(void)number;
	(void)args;
	die("a child of fork cannot call MPI; have it start a program (exec)");
}

// nest says whether a function of the program runs inside of a call of this thread, and gives what was so before.
static int nest(int now) {
	int before = nested;
	nested = now;
	return before;
}

static void forked(void) { door = opened = in_child; }

// A program that has had sessions stays in its job until it ends. Else a handler of a signal may have called exit in the middle of
// a call, whose thread is not to enter Go again.
static void ends(void) {
	if (stays && opened != in_child)
		enter(EXIT, NULL);
}

// Go's stacks, on which calls run, stay as large as they have become: a handler of a signal that comes meanwhile, and is not for
// an alternate stack, needs room there. Go reads the setting when it is loaded.
static void *open_library(char *why, size_t size) {
	const char *was = getenv("GODEBUG");
	char *kept = was == NULL ? NULL : strdup(was), with[1024];
	snprintf(with, sizeof with, "%s%sgcshrinkstackoff=1", kept == NULL ? "" : kept, kept == NULL ? "" : ",");
	setenv("GODEBUG", with, 1);
	void *found = loader_open((const void *)load, "libgorun-mpi.so", "gorun_mpi_call", why, size);
	if (kept == NULL)
		unsetenv("GODEBUG");
	else
		setenv("GODEBUG", kept, 1);
	free(kept);
	return found;
}

door_fn load(void) {
	char why[4096];
	pthread_mutex_lock(&loading);
	if (opened == NULL) {
		door_fn d = (door_fn)open_library(why, sizeof why);
		if (d == NULL)
			die(why);
		if (pthread_atfork(NULL, NULL, forked) != 0)
			die("pthread_atfork failed");
		if (atexit(ends) != 0)
			die("atexit failed");
		word told[] = {(word)comms, (word)&stays, (word)nest, (word)foreign};
		d(OPEN, told);
		opened = d;
	}
	door = opened;
	pthread_mutex_unlock(&loading);
	if (door != in_child)
		door(THREAD, NULL);
	return door;
}

int missing(const char *name) {
	const word a[] = {(word)name, nested};
	return enter(MISSING, a);
}

static const volatile struct comm_told *told(MPI_Comm comm) {
	const volatile struct comm_told *c = &comms[(word)comm % COMMS_TOLD];
	return c->handle == (word)comm && comm != NULL ? c : NULL;
}

int quick_Comm_rank(MPI_Comm comm, int *rank) {
	const volatile struct comm_told *c = told(comm);
	return c != NULL && rank != NULL ? *rank = c->rank, 1 : 0;
}

int quick_Comm_size(MPI_Comm comm, int *size) {
	const volatile struct comm_told *c = told(comm);
	return c != NULL && size != NULL ? *size = c->size, 1 : 0;
}

double PMPI(Wtime)(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double PMPI(Wtick)(void) { return 1e-9; }

MPI_Aint PMPI(Aint_add)(MPI_Aint base, MPI_Aint disp) { return (MPI_Aint)((uintptr_t)base + (uintptr_t)disp); }
MPI_Aint PMPI(Aint_diff)(MPI_Aint addr1, MPI_Aint addr2) { return (MPI_Aint)((uintptr_t)addr1 - (uintptr_t)addr2); }

int PMPI(Abi_get_version)(int *abi_major, int *abi_minor) {
	*abi_major = MPI_ABI_VERSION;
	*abi_minor = MPI_ABI_SUBVERSION;
	return MPI_SUCCESS;
}

int PMPI(Get_version)(int *version, int *subversion) {
	*version = MPI_VERSION;
	*subversion = MPI_SUBVERSION;
	return MPI_SUCCESS;
}

int quick_Alloc_mem(MPI_Aint size, MPI_Info info, void *baseptr) {
	(void)info;
	void *mem = size < 0 || baseptr == NULL ? NULL : aligned_alloc(64, ((size_t)size + 127) & ~(size_t)63);
	if (mem == NULL)
		return 0;
	memcpy(baseptr, &mem, sizeof mem);
	return 1;
}

int PMPI(Free_mem)(void *base) {
	free(base);
	return MPI_SUCCESS;
}

int PMPI(Status_get_source)(const MPI_Status *status, int *source) { return *source = status->MPI_SOURCE, MPI_SUCCESS; }
int PMPI(Status_get_tag)(const MPI_Status *status, int *tag) { return *tag = status->MPI_TAG, MPI_SUCCESS; }
int PMPI(Status_get_error)(const MPI_Status *status, int *error) { return *error = status->MPI_ERROR, MPI_SUCCESS; }
int PMPI(Status_set_source)(MPI_Status *status, int source) { return status->MPI_SOURCE = source, MPI_SUCCESS; }
int PMPI(Status_set_tag)(MPI_Status *status, int tag) { return status->MPI_TAG = tag, MPI_SUCCESS; }
int PMPI(Status_set_error)(MPI_Status *status, int error) { return status->MPI_ERROR = error, MPI_SUCCESS; }

int PMPI(Pcontrol)(const int level, ...) {
	(void)level;
	return MPI_SUCCESS;
}

// A handle is a number of 31 bits already.
#define INTS(type) \
	int PMPI(type##_toint)(MPI_##type h) { return (int)(word)h; } \
	MPI_##type PMPI(type##_fromint)(int n) { return (MPI_##type)(word)n; }
INTS(Comm)
INTS(Errhandler)
INTS(File)
INTS(Group)
INTS(Info)
INTS(Message)
INTS(Op)
INTS(Request)
INTS(Session)
INTS(Win)

int PMPI(Type_toint)(MPI_Datatype datatype) { return (int)(word)datatype; }
MPI_Datatype PMPI(Type_fromint)(int datatype) { return (MPI_Datatype)(word)datatype; }
