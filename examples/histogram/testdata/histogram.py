# Counts how values that are spread over the ranks are distributed.
from mpi4py import MPI
import numpy as np


def histogram(comm, values, bins):
    low = comm.allreduce(values.min(), MPI.MIN)
    high = comm.allreduce(values.max(), MPI.MAX)
    own, edges = np.histogram(values, bins, (low, high))
    return edges, comm.reduce(own)


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    edges, counts = histogram(comm, np.random.default_rng(comm.rank).normal(size=100000), 20)
    if comm.rank == 0:
        for edge, n in zip(edges, counts):
            print(f"{edge:7.2f} {n:8d} {'#' * int(60 * n / counts.max())}")
