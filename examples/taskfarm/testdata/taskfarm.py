# Counts primes: rank 0 has the tasks, and the other ranks work on them.
from collections import Counter
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor


def prime(n):
    d = 2
    while d * d <= n:
        if n % d == 0:
            return False
        d += 1
    return n > 1


def work(span):
    return sum(map(prime, range(*span))), MPI.COMM_WORLD.rank


def count(comm, n, tasks):
    with MPICommExecutor(comm, root=0) as pool:
        if pool is None:
            return None
        spans = [(i * n // tasks, (i + 1) * n // tasks) for i in range(tasks)]
        results = list(pool.map(work, spans))
        return sum(p for p, _ in results), Counter(r for _, r in results)


if __name__ == "__main__":
    done = count(MPI.COMM_WORLD, 1000000, 100)
    if done:
        print(f"{done[0]} primes; tasks by rank: {dict(done[1])}")
