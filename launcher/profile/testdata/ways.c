// Every way in which a message can come, between all ranks: each rank ends having received from each other one what that has sent.
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, BYTES = 24 };

static int rank, size;
static char out[BYTES], in[MOST][BYTES];

static void need(int holds) {
	if (!holds)
		abort();
}

// all calls do for each other rank.
#define OTHERS(i) for (int i = 0; i < size; i++) if (i != rank)

static int start(MPI_Comm comm, MPI_Request *requests, int any) {
	int n = 0;
	OTHERS(i) MPI_Irecv(in[i], BYTES, MPI_CHAR, any ? MPI_ANY_SOURCE : i, 1, comm, requests + n++);
	OTHERS(i) MPI_Isend(out, BYTES - rank, MPI_CHAR, i, 1, comm, requests + n++);
	return n;
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	const char *preload = getenv("LD_PRELOAD");
	need(argc == 1 ? preload == NULL : preload != NULL && strcmp(preload, argv[1]) == 0);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm comm;
	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Request q[2 * MOST];
	MPI_Status s[2 * MOST];
	int n, flag, index, some, indices[2 * MOST];

	MPI_Waitall(start(comm, q, 0), q, MPI_STATUSES_IGNORE);
	n = start(comm, q, 1);
	MPI_Waitall(n, q, s);
	n = start(comm, q, 0);
	for (int i = 0; i < n; i++)
		MPI_Waitany(n, q, &index, MPI_STATUS_IGNORE);
	n = start(comm, q, 1);
	for (int left = n; left > 0; left -= some)
		MPI_Waitsome(n, q, &some, indices, MPI_STATUSES_IGNORE);
	n = start(comm, q, 0);
	for (flag = 0; !flag;)
		MPI_Testall(n, q, &flag, MPI_STATUSES_IGNORE);
	n = start(comm, q, 0);
	for (int left = n; left > 0; left -= flag)
		MPI_Testany(n, q, &index, &flag, MPI_STATUS_IGNORE);
	n = start(comm, q, 0);
	for (int left = n; left > 0; left -= some)
		MPI_Testsome(n, q, &some, indices, s);
	n = start(comm, q, 1);
	for (int i = 0; i < n; i++)
		for (flag = 0; !flag;)
			MPI_Test(q + i, &flag, MPI_STATUS_IGNORE);

	n = 0;
	OTHERS(i) MPI_Recv_init(in[i], BYTES, MPI_CHAR, i, 2, comm, q + n++);
	OTHERS(i) MPI_Send_init(out, 3, MPI_CHAR, i, 2, comm, q + n++);
	for (int i = 0; i < 3; i++) {
		MPI_Startall(n, q);
		MPI_Waitall(n, q, MPI_STATUSES_IGNORE);
		MPI_Waitall(n, q, MPI_STATUSES_IGNORE); // of none that is active
	}
	for (int i = 0; i < n; i++)
		MPI_Request_free(q + i);

	n = 0;
	OTHERS(i) MPI_Isend(out, 5, MPI_CHAR, i, 3, comm, q + n++);
	for (int i = 1; i < size; i++) {
		MPI_Message m;
		if (i & 1) {
			MPI_Mprobe(MPI_ANY_SOURCE, 3, comm, &m, s);
		} else {
			for (flag = 0; !flag;)
				MPI_Improbe(MPI_ANY_SOURCE, 3, comm, &flag, &m, MPI_STATUS_IGNORE);
		}
		if (i & 2) {
			MPI_Mrecv(in[0], BYTES, MPI_CHAR, &m, MPI_STATUS_IGNORE);
		} else {
			MPI_Request r;
			MPI_Imrecv(in[0], BYTES, MPI_CHAR, &m, &r);
			MPI_Wait(&r, MPI_STATUS_IGNORE);
		}
	}
	MPI_Waitall(n, q, MPI_STATUSES_IGNORE);
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	MPI_Sendrecv(out, 7, MPI_CHAR, next, 4, in[0], BYTES, MPI_CHAR, before, 4, comm, MPI_STATUS_IGNORE);
	MPI_Sendrecv_replace(out, 7, MPI_CHAR, next, 4, before, 4, comm, MPI_STATUS_IGNORE);
	MPI_Sendrecv(out, 7, MPI_CHAR, rank + 1 < size ? rank + 1 : MPI_PROC_NULL, 4, in[0], BYTES, MPI_CHAR, rank > 0 ? rank - 1 : MPI_PROC_NULL, 4, comm, MPI_STATUS_IGNORE);

	MPI_Request never;
	MPI_Irecv(in[0], 1, MPI_CHAR, next, 99, comm, &never);
	MPI_Cancel(&never);
	MPI_Wait(&never, MPI_STATUS_IGNORE);

	// Between two halves, whose ranks are numbered each for itself.
	MPI_Comm half, between;
	MPI_Comm_split(comm, rank & 1, rank, &half);
	MPI_Intercomm_create(half, 0, comm, rank & 1 ? 0 : 1, 5, &between);
	int mine, theirs;
	MPI_Comm_rank(half, &mine);
	MPI_Comm_remote_size(between, &theirs);
	need(theirs == size / 2);
	MPI_Sendrecv(out, 9, MPI_CHAR, mine, 6, in[0], BYTES, MPI_CHAR, mine, 6, between, MPI_STATUS_IGNORE);
	MPI_Barrier(between);
	MPI_Comm_free(&between);

	// One-sided access, and collectives in place.
	MPI_Win win;
	static int memory[MOST], sums[MOST];
	MPI_Win_create(memory, sizeof memory, sizeof(int), MPI_INFO_NULL, comm, &win);
	MPI_Win_fence(0, win);
	MPI_Put(&rank, 1, MPI_INT, next, 1, 1, MPI_INT, win);
	MPI_Win_fence(0, win);
	need(memory[1] == before);
	MPI_Win_free(&win);
	sums[rank] = rank + 1;
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, sums, 1, MPI_INT, half == MPI_COMM_NULL ? half : comm);
	for (int i = 0; i < size; i++)
		need(sums[i] == i + 1);
	MPI_Gather(rank ? (void *)sums : MPI_IN_PLACE, 1, MPI_INT, sums, 1, MPI_INT, 0, comm);
	MPI_Ibarrier(half, q);
	MPI_Wait(q, MPI_STATUS_IGNORE);
	MPI_Comm_free(&half);
	MPI_Comm_free(&comm);
	MPI_Finalize();
	return 0;
}
