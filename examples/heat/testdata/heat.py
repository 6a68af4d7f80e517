# How a square plate warms up whose upper edge is hot.
from mpi4py import MPI
import numpy as np


def heat(comm, n, steps):
    dims = MPI.Compute_dims(comm.size, 2)
    grid = comm.Create_cart(dims)
    rows, columns = n // dims[0], n // dims[1]
    now = np.zeros((rows + 2, columns + 2))
    if grid.coords[0] == 0:
        now[0] = 1
    up, down = grid.Shift(0, 1)
    left, right = grid.Shift(1, 1)
    column = MPI.DOUBLE.Create_vector(rows, 1, columns + 2).Commit()
    at = lambda i, j: now.ravel()[i * (columns + 2) + j:]
    for _ in range(steps):
        grid.Sendrecv(now[1, 1:-1], up, 0, now[-1, 1:-1], down, 0)
        grid.Sendrecv(now[-2, 1:-1], down, 0, now[0, 1:-1], up, 0)
        grid.Sendrecv([at(1, 1), 1, column], left, 0, [at(1, columns + 1), 1, column], right, 0)
        grid.Sendrecv([at(1, columns), 1, column], right, 0, [at(1, 0), 1, column], left, 0)
        now[1:-1, 1:-1] = (now[1:-1, :-2] + now[1:-1, 2:] + now[:-2, 1:-1] + now[2:, 1:-1]) / 4
    column.Free()
    return comm.allreduce(now[1:-1, 1:-1].sum()) / n**2


if __name__ == "__main__":
    comm = MPI.COMM_WORLD
    mean = heat(comm, 96, 1000)
    if comm.rank == 0:
        print(f"mean temperature {mean:.6f}")
