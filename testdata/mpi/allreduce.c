/* Sums a vector over all ranks, checks every element on every rank and lets
 * rank 0 say so: short vectors, long ones, and many calls in a row. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, size, calls = 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int n = 1; n <= 1 << 16; n *= 16) {
		double *mine = malloc(n * sizeof *mine), *sum = malloc(n * sizeof *sum);
		for (int round = 0; round < 5; round++) {
			for (int i = 0; i < n; i++) mine[i] = rank + i + round;
			MPI_Allreduce(mine, sum, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
			for (int i = 0; i < n; i++) {
				double want = size * (size - 1) / 2.0 + (double)size * (i + round);
				if (sum[i] != want) {
					fprintf(stderr, "rank %d: element %d of %d is %g, want %g\n", rank, i, n, sum[i], want);
					MPI_Abort(MPI_COMM_WORLD, 2);
				}
			}
			calls++;
		}
		free(mine);
		free(sum);
	}
	if (rank == 0) printf("%d allreduces on %d ranks are right\n", calls, size);
	MPI_Finalize();
	return 0;
}
