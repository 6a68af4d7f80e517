# Sorts numbers that are spread over the ranks.
from mpi4py import MPI
import numpy as np


def sample_sort(comm, keys):
    n = comm.size
    keys.sort()
    samples = np.sort(np.concatenate(comm.allgather(keys[np.arange(n) * len(keys) // n])))
    begins = np.searchsorted(keys, samples[n::n])
    parts = comm.alltoall(np.split(keys, begins))
    return np.sort(np.concatenate(parts))


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    keys = np.random.default_rng(comm.rank).integers(0, 2**63 - 1, 1000000)
    sorted_keys = sample_sort(comm, keys)
    print(f"rank {comm.rank} has {len(sorted_keys)} keys")
