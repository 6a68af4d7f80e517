/* Times MPI_Alltoall of BYTES per peer: prints the median, over all calls, of
 * the slowest rank's mean time per call in batches, in microseconds.
 * Usage: alltoall BYTES ITERATIONS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 50 };

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, size;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int bytes = argc > 1 ? atoi(argv[1]) : 8;
	int batches = (argc > 2 ? atoi(argv[2]) : 1000) / BATCH;
	if (bytes < 1 || batches < 1) {
		if (rank == 0) fprintf(stderr, "usage: alltoall BYTES ITERATIONS (at least %d)\n", BATCH);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	char *send = calloc(size, bytes), *recv = calloc(size, bytes);
	double *times = malloc(batches * sizeof *times);
	for (int k = 0; k < size * bytes; k++) send[k] = (char)(rank + k);
	for (int b = -1; b < batches; b++) { /* batch -1 warms up */
		MPI_Barrier(MPI_COMM_WORLD);
		double start = MPI_Wtime();
		for (int i = 0; i < BATCH; i++)
			MPI_Alltoall(send, bytes, MPI_CHAR, recv, bytes, MPI_CHAR, MPI_COMM_WORLD);
		double mine = (MPI_Wtime() - start) * 1e6 / BATCH, slowest;
		MPI_Allreduce(&mine, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
		if (b >= 0) times[b] = slowest;
	}
	for (int peer = 0; peer < size; peer++)
		for (int k = 0; k < bytes; k++)
			if (recv[peer * bytes + k] != (char)(peer + rank * bytes + k)) {
				fprintf(stderr, "rank %d: wrong byte %d from rank %d\n", rank, k, peer);
				MPI_Abort(MPI_COMM_WORLD, 1);
			}
	qsort(times, batches, sizeof *times, by_value);
	if (rank == 0) printf("%.3f\n", times[batches / 2]);
	MPI_Finalize();
	return 0;
}
