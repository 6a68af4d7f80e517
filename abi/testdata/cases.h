// What programs of cases share: where they are, what they check with, and how they run all of them.
#include <mpi.h>

#ifndef MPI_ABI_VERSION // MPICH's mpi.h, and gorun's library for it: what came with MPI 4.1 and 5.0 is not in the one of MPICH 4.0
#define MPI_BUFFER_AUTOMATIC ((void *)-2)
#define MPI_COMM_TYPE_RESOURCE_GUIDED 4
#define MPI_ERR_ABI 81
#define MPI_Comm_toint(comm) (comm)
#define MPI_Comm_fromint(comm) (comm)
#define MPI_Session_toint(session) (session)
#define MPI_Session_fromint(session) (session)
#define MPI_File_toint MPI_File_c2f
#define MPI_File_fromint MPI_File_f2c
#endif

#include <stdio.h>

static int me, n, failures;
static const char *name;

#define CHECK(what) \
	do { \
		if (!(what)) { \
			failures++; \
			fprintf(stderr, "rank %d: %s: line %d: not %s\n", me, name, __LINE__, #what); \
		} \
	} while (0)
#define EQUAL(have, want) \
	do { \
		long long h_ = (long long)(have), w_ = (long long)(want); \
		if (h_ != w_) { \
			failures++; \
			fprintf(stderr, "rank %d: %s: line %d: %s is %lld, want %lld\n", me, name, __LINE__, #have, h_, w_); \
		} \
	} while (0)
// CLASS: a call fails with an error of a class.
#define CLASS(call, want) \
	do { \
		int class_ = -1; \
		MPI_Error_class(call, &class_); \
		EQUAL(class_, want); \
	} while (0)

static MPI_Comm W; // MPI_COMM_WORLD with errors returned

struct one {
	const char *name;
	void (*run)(void);
};

// run_all runs cases one after another on all ranks, and tells whether any has failed.
static int run_all(const struct one *cases, unsigned many) {
	int all = 0;
	for (unsigned i = 0; i < many; i++) {
		name = cases[i].name;
		cases[i].run();
		MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, W);
		if (me == 0)
			printf("%s %s\n", all ? "bad" : "ok", name), fflush(stdout);
	}
	if (me == 0 && !all)
		printf("all cases hold\n");
	return all;
}
