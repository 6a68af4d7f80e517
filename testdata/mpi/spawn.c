/* Spawns as many copies of itself as it is told; parents and children sum over
 * the merged communicator, and count who shares their host.
 *
 *	spawn N            all end together
 *	spawn N outlive    children go on until parent 0 has ended */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Whether a process has ended: it is a zombie, or gone. */
static int ended(int pid) {
	char path[64], state = 'Z';
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *f = fopen(path, "r");
	if (f != NULL) {
		if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1) state = 'Z';
		fclose(f);
	}
	return state == 'Z';
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm parent, other, all, host;
	int rank, size, mine, sum, merged, here, first = getpid();
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_get_parent(&parent);
	if (parent == MPI_COMM_NULL) {
		char *args[] = {"child", argc > 2 ? argv[2] : NULL, NULL};
		MPI_Comm_spawn(argv[0], args, argc > 1 ? atoi(argv[1]) : 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
	} else {
		other = parent;
	}
	MPI_Intercomm_merge(other, parent != MPI_COMM_NULL, &all);
	mine = parent == MPI_COMM_NULL ? 1 : 100;
	MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, all);
	MPI_Comm_size(all, &merged);
	MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
	MPI_Comm_size(host, &here);
	MPI_Comm_free(&host);
	printf("%s %d of %d: %d in all, sum %d, %d on this host\n", parent == MPI_COMM_NULL ? "parent" : "child", rank, size, merged, sum, here);
	fflush(stdout);
	MPI_Bcast(&first, 1, MPI_INT, 0, all);
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&other);
	if (parent != MPI_COMM_NULL && argc > 2 && !strcmp(argv[2], "outlive")) {
		while (!ended(first)) usleep(10000);
		MPI_Barrier(MPI_COMM_WORLD);
	}
	MPI_Finalize();
	if (parent != MPI_COMM_NULL && argc > 2) printf("child %d outlives its parents\n", rank);
	return 0;
}
