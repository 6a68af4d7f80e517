/* Says who it is after MPI_Init and stays for ten seconds, or for a moment when it
 * is given an argument. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, size;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	printf("rank %d of %d\n", rank, size);
	fflush(stdout);
	usleep(argc > 1 ? 100000 : 10000000);
	MPI_Finalize();
	return 0;
}
