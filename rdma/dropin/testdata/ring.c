// Messages of 1 byte to 1 MiB around a ring of ranks, checked.
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char a[1 << 20], b[1 << 20];

int main(int argc, char **argv) {
	int rank, ranks, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
	for (int size = 1; size <= 1 << 20; size *= 4)
		for (int i = 0; i < 5; i++) {
			memset(a, rank + i + size, size);
			MPI_Sendrecv(a, size, MPI_CHAR, right, 0, b, size, MPI_CHAR, left, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			for (int k = 0; k < size; k++)
				if (b[k] != (char)(left + i + size))
					MPI_Abort(MPI_COMM_WORLD, 1);
		}
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("sum %d\n", sum);
	MPI_Finalize();
	return 0;
}
