/* Joins, makes the file that it is given, and waits for ever for a message. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Barrier(MPI_COMM_WORLD);
	FILE *f = fopen(argv[1], "w");
	if (f == NULL) return 1;
	fclose(f);
	int never;
	MPI_Recv(&never, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Finalize();
	return 0;
}
