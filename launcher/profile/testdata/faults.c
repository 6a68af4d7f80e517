// Programs with a fault each: those of faults_test.go in C. The unit of work is the second argument, in microseconds.
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 6 };

static int rank, size, unit;
static char piece[1 << 20];

// work takes time, as far as others can see: it needs no CPU, of which a busy machine has none.
static void work(int n) { usleep((useconds_t)(n * unit)); }

static void late(void) {
	if (rank == 2)
		work(6);
	MPI_Barrier(MPI_COMM_WORLD);
}

static void twice(void) {
	double own[8] = {0}, sum[8];
	for (int i = 0; i < STEPS; i++) {
		work(rank == 1 ? 4 : 2);
		MPI_Allreduce(own, sum, 8, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	}
}

static void serial(void) {
	for (int i = 0; i < STEPS; i++)
		for (int to = 1; to < size; to++) {
			if (rank == 0) {
				MPI_Send(piece, sizeof piece, MPI_BYTE, to, 0, MPI_COMM_WORLD);
				MPI_Recv(piece, 1, MPI_BYTE, to, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
			} else if (rank == to) {
				MPI_Recv(piece, sizeof piece, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
				work(1);
				MPI_Send(piece, 1, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
			}
		}
}

static void hot(void) {
	int send[64], recv[64], sat[64], rat[64];
	static char in[4 << 20];
	for (int i = 0; i < size; i++) {
		send[i] = i == 3 ? 1 << 20 : 1;
		recv[i] = rank == 3 ? 1 << 20 : 1;
		sat[i] = 0;
		rat[i] = i ? rat[i - 1] + recv[i - 1] : 0;
	}
	for (int i = 0; i < 100 * STEPS; i++)
		MPI_Alltoallv(piece, send, sat, MPI_BYTE, in, recv, rat, MPI_BYTE, MPI_COMM_WORLD);
}

// Its communicator numbers ranks from the last on.
static void order(void) {
	MPI_Comm back;
	MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &back);
	char c[64] = {0};
	for (int i = 0; i < STEPS; i++) {
		if (rank > 0) {
			if (rank == 1)
				work(4);
			MPI_Send(c, 1, MPI_CHAR, size - 1, 0, back);
			if (rank != 1)
				work(4);
			continue;
		}
		MPI_Request requests[64];
		for (int from = 1; from < size; from++)
			MPI_Irecv(c + from, 1, MPI_CHAR, size - 1 - from, 0, back, requests + from);
		for (int from = 1; from < size; from++)
			MPI_Wait(requests + from, MPI_STATUS_IGNORE);
	}
	MPI_Comm_free(&back);
}

static void die(void *in, void *inout, int *n, MPI_Datatype *type) {
	(void)in, (void)inout, (void)n, (void)type;
	if (rank == 0)
		kill(getpid(), SIGKILL);
}

// Rank 0 is killed within a call.
static void stays(void) {
	if (rank == 0)
		pause();
	MPI_Barrier(MPI_COMM_WORLD);
}

static void killed(void) {
	MPI_Op op;
	int own = 1, all;
	MPI_Op_create(die, 1, &op);
	MPI_Send(&own, 1, MPI_INT, rank ^ 1, 7, MPI_COMM_WORLD);
	MPI_Recv(&all, 1, MPI_INT, rank ^ 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	MPI_Allreduce(&own, &all, 1, MPI_INT, op, MPI_COMM_WORLD);
}

static int less(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

// What three calls take that bring a message of 8 bytes to its sender: the median of batches that are shorter than a time slice, in nanoseconds.
static void cost(void) {
	enum { BATCHES = 1001, TURNS = 100 };
	static double took[BATCHES];
	char in[8], out[8] = {0};
	for (int i = 0; i < BATCHES; i++) {
		double began = MPI_Wtime();
		for (int j = 0; j < TURNS; j++) {
			MPI_Request r;
			MPI_Irecv(in, 8, MPI_CHAR, rank, 0, MPI_COMM_WORLD, &r);
			MPI_Send(out, 8, MPI_CHAR, rank, 0, MPI_COMM_WORLD);
			MPI_Wait(&r, MPI_STATUS_IGNORE);
		}
		took[i] = (MPI_Wtime() - began) * 1e9 / TURNS;
	}
	qsort(took, BATCHES, sizeof *took, less);
	printf("%.0f\n", took[BATCHES / 2]);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	unit = argc > 2 ? atoi(argv[2]) : 0;
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"late", late}, {"twice", twice}, {"serial", serial}, {"hot", hot}, {"order", order}, {"killed", killed}, {"stays", stays}, {"cost", cost}};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(argv[1], all[i].name) == 0)
			all[i].run();
	MPI_Finalize();
	return 0;
}
