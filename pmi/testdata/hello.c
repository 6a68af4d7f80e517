/* An MPI program that meets its peers in every way MPICH's start-up has. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, size, sum, flag, *universe;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &flag);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("rank %d of %d sum %d universe %d\n", rank, size, sum, flag ? *universe : -1);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "abort") == 0 && rank == size - 1)
        MPI_Abort(MPI_COMM_WORLD, 7);
    if (argc > 1 && strcmp(argv[1], "exit") == 0 && rank == size - 1)
        exit(0);
    if (argc > 1 && strcmp(argv[1], "spawn") == 0) {
        MPI_Comm child;
        int codes[1];
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        if (MPI_Comm_spawn("/bin/true", MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, codes) != MPI_SUCCESS)
            printf("rank %d cannot spawn\n", rank);
    }
    MPI_Finalize();
    return 0;
}
