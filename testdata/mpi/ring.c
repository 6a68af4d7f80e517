/* A token goes round all ranks; each adds its number, and rank 0 checks the sum. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, size, token = 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	int next = (rank + 1) % size, last = (rank + size - 1) % size;
	for (int round = 0; round < 100 && size > 1; round++) {
		if (rank > 0) MPI_Recv(&token, 1, MPI_INT, last, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		token += rank;
		MPI_Send(&token, 1, MPI_INT, next, round, MPI_COMM_WORLD);
		if (rank == 0) MPI_Recv(&token, 1, MPI_INT, last, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	}
	if (rank == 0) {
		int want = size > 1 ? 100 * (size * (size - 1) / 2) : 0;
		if (token != want) {
			fprintf(stderr, "the token is %d, want %d\n", token, want);
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		printf("the token went round %d ranks\n", size);
	}
	MPI_Finalize();
	return 0;
}
