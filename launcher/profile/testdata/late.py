# Rank 1 comes late to a reduction.
import sys
import time

from mpi4py import MPI


def reduce(comm):
    if comm.rank == 1:
        time.sleep(float(sys.argv[1]))
    comm.allreduce(comm.rank)
    comm.Barrier()


for _ in range(6):
    reduce(MPI.COMM_WORLD)
