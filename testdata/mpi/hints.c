/* Spawns copies of itself with the hints KEY=VALUE that it is given, two programs of
 * two processes each if a "+" stands between their hints, else one; each says where
 * it is. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm parent, other;
	MPI_Comm_get_parent(&parent);
	if (parent == MPI_COMM_NULL) {
		MPI_Info info[2];
		char *programs[2] = {argv[0], argv[0]};
		int count = 1, two[2] = {2, 2}, codes[4];
		MPI_Info_create(&info[0]);
		MPI_Info_create(&info[1]);
		for (int i = 1; i < argc; i++) {
			char *value = strchr(argv[i], '=');
			if (value == NULL) {
				count = 2;
				continue;
			}
			*value = 0;
			MPI_Info_set(info[count - 1], argv[i], value + 1);
		}
		MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
		int rc = MPI_Comm_spawn_multiple(count, programs, MPI_ARGVS_NULL, two, info, 0, MPI_COMM_WORLD, &other, codes);
		if (rc != MPI_SUCCESS) {
			printf("not spawned\n");
			MPI_Finalize();
			return 0;
		}
	} else {
		char dir[4096];
		int rank;
		MPI_Comm_rank(MPI_COMM_WORLD, &rank);
		printf("child %d on %s in %s with %s\n", rank, getenv("GORUN_HOST"), getcwd(dir, sizeof dir), getenv("HINT") != NULL ? getenv("HINT") : "nothing");
		fflush(stdout);
		other = parent;
	}
	MPI_Comm_disconnect(&other);
	MPI_Finalize();
	return 0;
}
