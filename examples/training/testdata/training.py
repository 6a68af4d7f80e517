# Fits a line through points by gradient descent.
from mpi4py import MPI
import numpy as np


def points(rank, n):
    random = np.random.default_rng(rank)
    x = random.uniform(-1, 1, n)
    return x, 3 * x + 2 + random.normal(0, 0.1, n)


def train(comm, x, y, steps):
    total = comm.allreduce(len(x))
    model = comm.bcast(np.random.rand(2))
    for _ in range(steps):
        wrong = model[0] * x + model[1] - y
        sums = np.array([2 * (wrong * x).sum(), 2 * wrong.sum(), (wrong**2).sum()])
        comm.Allreduce(MPI.IN_PLACE, sums)
        model -= 0.3 * sums[:2] / total
    return model, sums[2] / total


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    model, loss = train(comm, *points(comm.rank, 10000), 200)
    if comm.rank == 0:
        print(f"y = {model[0]:.3f} x + {model[1]:.3f}, loss {loss:.5f}")
