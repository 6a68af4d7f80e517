/* Says hello from every rank, then ends as it is told:
 *   hello                 MPI_Finalize, status 0
 *   hello abort CODE      rank 1 calls MPI_Abort(CODE), the others wait for it
 *   hello exit CODE       rank 1 exits without MPI_Finalize, the others wait for it
 *   hello leave           all exit with 0 and without MPI_Finalize
 *   hello segfault        rank 1 dies of SIGSEGV, the others wait for it
 *   hello hang            rank 1 catches SIGSEGV as Open MPI does and hangs behind it
 *   hello child CODE      rank 1 has a child that says hello too and looks at how it ends; it ends with CODE */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void hang(int sig) {
	fprintf(stderr, "[host:%05d] *** Process received signal ***\n[host:%05d] Signal: Segmentation fault (%d)\n", getpid(), getpid(), sig);
	for (;;) pause();
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	int rank, size;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	printf("hello from rank %d of %d\n", rank, size);
	fflush(stdout);
	if (argc > 1) {
		int code = argc > 2 ? atoi(argv[2]) : 0;
		MPI_Barrier(MPI_COMM_WORLD);
		if (strcmp(argv[1], "leave") == 0) exit(0);
		if (strcmp(argv[1], "child") == 0) {
			int how = 0;
			if (rank == 1 && fork() == 0) {
				execl(argv[0], argv[0], NULL);
				_exit(127);
			}
			if (rank == 1) wait(&how);
			MPI_Finalize();
			printf("rank %d: %s\n", rank, how ? "its child has failed" : "well");
			return code;
		}
		if (rank != 1) {
			int never;
			MPI_Recv(&never, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		}
		if (strcmp(argv[1], "abort") == 0) MPI_Abort(MPI_COMM_WORLD, code);
		if (strcmp(argv[1], "hang") == 0) signal(SIGSEGV, hang);
		if (strcmp(argv[1], "segfault") == 0 || strcmp(argv[1], "hang") == 0) raise(SIGSEGV);
		fprintf(stderr, "rank 1 leaves\n");
		_Exit(code);
	}
	MPI_Finalize();
	return 0;
}
