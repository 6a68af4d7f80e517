/* Splits the world by parity and by host, sums 1 MiB in each part, and lets the
 * ranks of a host read each other's part of a shared window. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1 << 18 }; /* floats: 1 MiB */

static void sum(MPI_Comm comm, const char *what) {
	int rank, size;
	MPI_Comm_rank(comm, &rank);
	MPI_Comm_size(comm, &size);
	float *mine = malloc(N * sizeof *mine), *all = malloc(N * sizeof *all);
	for (int i = 0; i < N; i++) mine[i] = rank + i % 7;
	MPI_Allreduce(mine, all, N, MPI_FLOAT, MPI_SUM, comm);
	for (int i = 0; i < N; i++) {
		float want = size * (size - 1) / 2 + size * (i % 7);
		if (all[i] != want) {
			fprintf(stderr, "%s: element %d is %g, want %g\n", what, i, all[i], want);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
	}
	free(mine);
	free(all);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, here, local;
	MPI_Comm half, host;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	sum(half, "half");
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host);
	sum(host, "host");
	MPI_Comm_size(host, &here);
	MPI_Comm_rank(host, &local);
	MPI_Win win;
	int *mine;
	MPI_Win_allocate_shared(sizeof *mine, sizeof *mine, MPI_INFO_NULL, host, &mine, &win);
	MPI_Win_lock_all(0, win);
	*mine = 100 + local;
	MPI_Win_sync(win);
	MPI_Barrier(host);
	MPI_Win_sync(win);
	for (int r = 0; r < here; r++) {
		MPI_Aint size;
		int unit, *theirs;
		MPI_Win_shared_query(win, r, &size, &unit, &theirs);
		if (*theirs != 100 + r) {
			fprintf(stderr, "rank %d of the host holds %d, want %d\n", r, *theirs, 100 + r);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
	}
	MPI_Win_unlock_all(win);
	MPI_Win_free(&win);
	printf("rank %d shares a host with %d\n", rank, here);
	MPI_Comm_free(&half);
	MPI_Comm_free(&host);
	MPI_Finalize();
	return 0;
}
