#define _GNU_SOURCE 1
/* Says where a rank is: its program, whom it shares memory with, and its CPUs. */
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, *app, known, in, of, sum;
    cpu_set_t cpus;
    MPI_Comm near;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &known);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &near);
    MPI_Comm_rank(near, &in);
    MPI_Comm_size(near, &of);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    sched_getaffinity(0, sizeof cpus, &cpus);
    printf("rank %d of %d, program %d, %d of %d on %s, %d CPUs, sum %d\n", rank, size, known ? *app : -1, in, of,
           getenv("GORUN_HOST"), CPU_COUNT(&cpus), sum);
    MPI_Comm_free(&near);
    MPI_Finalize();
    return 0;
}
