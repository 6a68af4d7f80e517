/* Spawns as many copies of itself as it is told; parents and children sum over
 * the intercommunicator and over the merged one. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm parent, other, all;
	int rank, size, mine, sum, merged;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_get_parent(&parent);
	if (parent == MPI_COMM_NULL) {
		char *args[] = {"child", NULL};
		MPI_Comm_spawn(argv[0], args, argc > 1 ? atoi(argv[1]) : 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
	} else {
		other = parent;
	}
	MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &all);
	mine = parent == MPI_COMM_NULL ? 1 : 100;
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all);
	MPI_Comm_size(all, &merged);
	printf("%s %d of %d: %d in all, sum %d\n", parent == MPI_COMM_NULL ? "parent" : "child", rank, size, merged, sum);
	fflush(stdout);
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&other);
	MPI_Finalize();
	return 0;
}
