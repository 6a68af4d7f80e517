/* Published names.
 *
 *	names publish SERVICE PORT    names lookup SERVICE    names unpublish SERVICE
 *	names meet      the ranks are two groups: the first opens a port, publishes it and
 *	                accepts, the second looks it up and connects
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static void meet(int rank, int size) {
	MPI_Comm half, inter, merged;
	char port[MPI_MAX_PORT_NAME] = "";
	int first = rank < size / 2, sum, n;
	MPI_Comm_split(MPI_COMM_WORLD, first, rank, &half);
	if (rank == 0) {
		MPI_Open_port(MPI_INFO_NULL, port);
		MPI_Publish_name("meeting", MPI_INFO_NULL, port);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	if (first) {
		MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
	} else {
		MPI_Lookup_name("meeting", MPI_INFO_NULL, port);
		MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
	}
	MPI_Intercomm_merge(inter, !first, &merged);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged);
	MPI_Comm_size(merged, &n);
	printf("rank %d of %d met %d, sum %d\n", rank, size, n, sum);
	MPI_Comm_free(&merged);
	MPI_Comm_disconnect(&inter);
	if (rank == 0) {
		MPI_Unpublish_name("meeting", MPI_INFO_NULL, port);
		MPI_Close_port(port);
	}
}

int main(int argc, char **argv) {
	int rank, size, rc = 1;
	char port[MPI_MAX_PORT_NAME] = "";
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
	if (argc == 2 && !strcmp(argv[1], "meet")) {
		meet(rank, size);
	} else if (argc == 4 && !strcmp(argv[1], "publish")) {
		rc = MPI_Publish_name(argv[2], MPI_INFO_NULL, argv[3]);
		printf("%s: %s\n", argv[2], rc ? "not published" : "published");
	} else if (argc == 3 && !strcmp(argv[1], "unpublish")) {
		rc = MPI_Unpublish_name(argv[2], MPI_INFO_NULL, port);
		printf("%s: %s\n", argv[2], rc ? "not taken back" : "taken back");
	} else if (argc == 3 && !strcmp(argv[1], "lookup")) {
		rc = MPI_Lookup_name(argv[2], MPI_INFO_NULL, port);
		printf("%s: %s\n", argv[2], rc ? "not found" : port);
	} else {
		printf("usage: names publish SERVICE PORT | lookup SERVICE | unpublish SERVICE | meet\n");
	}
	fflush(stdout);
	MPI_Finalize();
	return 0;
}
