/* The other side of gorun-bench: the same benchmarks, in the same loops, for an
 * MPI. cmd/gorun-bench/worker.go is its twin; change both or neither.
 *
 * Usage: bench PLAN    (or "bench init": MPI_Init, MPI_Finalize and no more)
 *
 * PLAN is a file: "limit SECONDS" after which no rank lives, "quota SECONDS"
 * after which no point is begun, "separate 0|1", "memory ordinary" if windows are
 * of the program's memory (MPI_Win_create), "sleeps 1" if the work beside
 * non-blocking calls is a sleep, and a line for each point,
 *     point INDEX BENCHMARK TYPE BYTES BUDGET_US WARMUP ITERATIONS
 * Rank 0 answers on standard output, a line for each point:
 *     point INDEX BATCH SAMPLES P10 P50 P90 P99 [COMPUTE TOTAL ALONE COMM]
 *     wrong INDEX
 * in microseconds a call, or a message; then "end". */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { OVERLAP_CALLS = 250, WINDOW = 64, TOGETHER = 16, MOST_SAMPLES = 20000, LEAST_SAMPLES = 3, TAG = 7 };

static int rank, size;

/* One point and its buffers. */
static struct point {
	int index;
	char name[32], type[16];
	long bytes, budget, warmup, iterations;
} p;
static char *in, *out; /* what the call reads and writes */
static long in_len, out_len;
static int *counts, *offsets; /* of the v-forms: equal blocks */
static MPI_Request requests[WINDOW];
static MPI_Win window;
static char *window_mem;
static int created; /* windows are of the program's memory */
static MPI_Datatype type;
static int elem; /* bytes of an element of a reduction */

static double now(void) { /* microseconds */
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

/* The contents: byte i of what rank `from` has for rank `to`; element i of rank
 * `from` in a reduction. */
static unsigned char byte_of(int from, int to, long i) { return (unsigned char)(from * 131 + to * 29 + i * 7 + (i >> 8) + 1); }
/* Sums of small elements fit into a byte: some MPIs saturate there. */
static long element_of(int from, long i) { return (i * 7 + from * 13) % (elem == 1 ? 2 : 101) + 1; }

static void set_element(char *mem, long i, long v) {
	if (type == MPI_FLOAT) ((float *)mem)[i] = (float)v;
	else if (type == MPI_DOUBLE) ((double *)mem)[i] = (double)v;
	else if (type == MPI_INT) ((int *)mem)[i] = (int)v;
	else if (type == MPI_LONG) ((long *)mem)[i] = v;
	else ((signed char *)mem)[i] = (signed char)v;
}

static int is_element(const char *mem, long i, long v) {
	char want[16];
	set_element(want, 0, v);
	return memcmp(mem + i * elem, want, elem) == 0;
}

static int wrong(const char *what, long i) {
	fprintf(stderr, "gorun-bench: rank %d: %s of %ld bytes: %s %ld is wrong\n", rank, p.name, p.bytes, what, i);
	return 0;
}

/* sum is element i of the reduction over ranks first..last-1. */
static long sum(int first, int last, long i) {
	long v = 0;
	for (int r = first; r < last; r++) v += element_of(r, i);
	return v;
}

static int check_elements(const char *mem, long n, long base, int first, int last) {
	for (long i = 0; i < n; i++)
		if (!is_element(mem, i, sum(first, last, base + i))) return wrong("element", i);
	return 1;
}

static int check_block(const char *mem, int from, int to) {
	for (long i = 0; i < p.bytes; i++)
		if ((unsigned char)mem[i] != byte_of(from, to, i)) return wrong("byte", i);
	return 1;
}

static void fill_block(char *mem, int from, int to) {
	for (long i = 0; i < p.bytes; i++) mem[i] = (char)byte_of(from, to, i);
}

/* Set-ups: how much memory, and what is in it. */
static void need(long send, long recv) { in_len = send, out_len = recv; }
static void setup_none(void) { need(0, 0); }
static void setup_pair(void) { need(p.bytes, p.bytes); }
static void setup_one_all(void) { need(p.bytes, p.bytes * size); }
static void setup_all_one(void) { need(p.bytes * size, p.bytes); }
static void setup_together(void) { need(p.bytes * TOGETHER, p.bytes * TOGETHER); }
static void setup_all_all(void) { need(p.bytes * size, p.bytes * size); }

static void fill_none(void) {}
static void fill_pair(void) { fill_block(in, rank, 0); }
static void fill_bcast(void) { if (rank == 0) fill_block(out, 0, 0); }
static void fill_blocks(void) { for (int r = 0; r < size; r++) fill_block(in + r * p.bytes, rank, r); }
static void fill_elements(void) { for (long i = 0; i < in_len / elem; i++) set_element(in, i, element_of(rank, i)); }

/* Steps: the calls that are timed. */
#define N ((int)p.bytes)
#define COUNT ((int)(p.bytes / elem))
#define WORLD MPI_COMM_WORLD
static void step_barrier(void) { MPI_Barrier(WORLD); }
static void step_bcast(void) { MPI_Bcast(out, N, MPI_BYTE, 0, WORLD); }
static void step_reduce(void) { MPI_Reduce(in, out, COUNT, type, MPI_SUM, 0, WORLD); }
static void step_allreduce(void) { MPI_Allreduce(in, out, COUNT, type, MPI_SUM, WORLD); }
static void step_scan(void) { MPI_Scan(in, out, COUNT, type, MPI_SUM, WORLD); }
static void step_exscan(void) { MPI_Exscan(in, out, COUNT, type, MPI_SUM, WORLD); }
static void step_reduce_scatter(void) { MPI_Reduce_scatter_block(in, out, COUNT, type, MPI_SUM, WORLD); }
static void step_gather(void) { MPI_Gather(in, N, MPI_BYTE, out, N, MPI_BYTE, 0, WORLD); }
static void step_scatter(void) { MPI_Scatter(in, N, MPI_BYTE, out, N, MPI_BYTE, 0, WORLD); }
static void step_allgather(void) { MPI_Allgather(in, N, MPI_BYTE, out, N, MPI_BYTE, WORLD); }
static void step_alltoall(void) { MPI_Alltoall(in, N, MPI_BYTE, out, N, MPI_BYTE, WORLD); }
static void step_gatherv(void) { MPI_Gatherv(in, N, MPI_BYTE, out, counts, offsets, MPI_BYTE, 0, WORLD); }
static void step_scatterv(void) { MPI_Scatterv(in, counts, offsets, MPI_BYTE, out, N, MPI_BYTE, 0, WORLD); }
static void step_allgatherv(void) { MPI_Allgatherv(in, N, MPI_BYTE, out, counts, offsets, MPI_BYTE, WORLD); }
static void step_alltoallv(void) { MPI_Alltoallv(in, counts, offsets, MPI_BYTE, out, counts, offsets, MPI_BYTE, WORLD); }

static void start_ibcast(void) { MPI_Ibcast(out, N, MPI_BYTE, 0, WORLD, requests); }
static void start_iallreduce(void) { MPI_Iallreduce(in, out, COUNT, type, MPI_SUM, WORLD, requests); }
static void start_ialltoall(void) { MPI_Ialltoall(in, N, MPI_BYTE, out, N, MPI_BYTE, WORLD, requests); }
static void start_together(void) {
	for (int i = 0; i < TOGETHER; i++) MPI_Iallreduce(in + i * p.bytes, out + i * p.bytes, COUNT, type, MPI_SUM, WORLD, &requests[i]);
}
static void (*start)(void);
static void finish(void) {
	if (start == start_together) MPI_Waitall(TOGETHER, requests, MPI_STATUSES_IGNORE);
	else MPI_Wait(requests, MPI_STATUS_IGNORE);
}
static void step_wait(void) { start(); finish(); }

static void step_latency(void) {
	if (rank == 0) {
		MPI_Send(in, N, MPI_BYTE, 1, TAG, WORLD);
		MPI_Recv(out, N, MPI_BYTE, 1, TAG, WORLD, MPI_STATUS_IGNORE);
	} else if (rank == 1) {
		MPI_Recv(out, N, MPI_BYTE, 0, TAG, WORLD, MPI_STATUS_IGNORE);
		MPI_Send(in, N, MPI_BYTE, 0, TAG, WORLD);
	}
}

/* The lower half of the ranks sends to the upper half: a window of messages,
 * then an empty answer. */
static void step_window(void) {
	int half = size / 2;
	if (rank < half) {
		for (int i = 0; i < WINDOW; i++) MPI_Isend(in, N, MPI_BYTE, rank + half, TAG, WORLD, &requests[i]);
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		MPI_Recv(NULL, 0, MPI_BYTE, rank + half, TAG, WORLD, MPI_STATUS_IGNORE);
	} else {
		for (int i = 0; i < WINDOW; i++) MPI_Irecv(out, N, MPI_BYTE, rank - half, TAG, WORLD, &requests[i]);
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		MPI_Send(NULL, 0, MPI_BYTE, rank - half, TAG, WORLD);
	}
}

/* Both ways at once; receives are posted first, as OSU does. */
static MPI_Request both[2 * WINDOW];
static void step_bibw(void) {
	int peer = rank < size / 2 ? rank + size / 2 : rank - size / 2;
	for (int i = 0; i < WINDOW; i++) MPI_Irecv(out, N, MPI_BYTE, peer, TAG, WORLD, &both[i]);
	for (int i = 0; i < WINDOW; i++) MPI_Isend(in, N, MPI_BYTE, peer, TAG, WORLD, &both[WINDOW + i]);
	MPI_Waitall(2 * WINDOW, both, MPI_STATUSES_IGNORE);
}

/* One-sided: rank 0 is the origin and rank 1 the target. */
static void put(void) { MPI_Put(in, N, MPI_BYTE, 1, 0, N, MPI_BYTE, window); }
static void step_put(void) { if (rank == 0) { put(); MPI_Win_flush(1, window); } }
static void step_get(void) { if (rank == 0) { MPI_Get(out, N, MPI_BYTE, 1, 0, N, MPI_BYTE, window); MPI_Win_flush(1, window); } }
static void step_put_bw(void) {
	if (rank != 0) return;
	for (int i = 0; i < WINDOW; i++) put();
	MPI_Win_flush(1, window);
}
static void step_get_bw(void) {
	if (rank != 0) return;
	for (int i = 0; i < WINDOW; i++) MPI_Get(out, N, MPI_BYTE, 1, 0, N, MPI_BYTE, window);
	MPI_Win_flush(1, window);
}
static void step_accumulate(void) {
	if (rank == 0) { MPI_Accumulate(in, COUNT, type, 1, 0, COUNT, type, MPI_REPLACE, window); MPI_Win_flush(1, window); }
}

/* Checks: every byte of the result. */
static int check_none(void) { return 1; }
static int check_bcast(void) { return check_block(out, 0, 0); }
static int check_allreduce(void) { return check_elements(out, COUNT, 0, 0, size); }
static int check_together(void) { return check_elements(out, (long)TOGETHER * COUNT, 0, 0, size); }
static int check_reduce(void) { return rank != 0 || check_allreduce(); }
static int check_scan(void) { return check_elements(out, COUNT, 0, 0, rank + 1); }
static int check_exscan(void) { return rank == 0 || check_elements(out, COUNT, 0, 0, rank); }
static int check_reduce_scatter(void) { return check_elements(out, COUNT, (long)rank * COUNT, 0, size); }
static int check_scatter(void) { return check_block(out, 0, rank); }
static int check_allgather(void) {
	for (int r = 0; r < size; r++)
		if (!check_block(out + r * p.bytes, r, 0)) return 0;
	return 1;
}
static int check_gather(void) { return rank != 0 || check_allgather(); }
static int check_alltoall(void) {
	for (int r = 0; r < size; r++)
		if (!check_block(out + r * p.bytes, r, rank)) return 0;
	return 1;
}
static int check_latency(void) { return rank > 1 || check_block(out, 1 - rank, 0); }
static int check_window(void) { return rank < size / 2 || check_block(out, rank - size / 2, 0); }
static int check_bibw(void) { return check_block(out, rank < size / 2 ? rank + size / 2 : rank - size / 2, 0); }
static int check_put(void) {
	MPI_Barrier(WORLD);
	if (rank == 1) MPI_Win_sync(window);
	return rank != 1 || check_block(window_mem, 0, 0);
}
static int check_get(void) { return rank != 0 || check_block(out, 1, 0); }
static int check_accumulate(void) {
	MPI_Barrier(WORLD);
	if (rank == 1) MPI_Win_sync(window);
	return rank != 1 || check_elements(window_mem, COUNT, 0, 0, 1);
}

/* How a benchmark is timed. */
enum {
	MEET = 1,     /* a barrier before each call, where asked for; all ranks count */
	HALF = 2,     /* a call is a round trip */
	PER_MESSAGE = 4, /* a call is a window of messages of each pair */
	BOTH_WAYS = 8,
	SENDERS = 16, /* only the lower half of the ranks counts; else all */
	ORIGIN = 32,  /* only rank 0 counts */
	OVERLAP = 64,
	IN_WINDOW = 128 /* needs a window */
};

static const struct benchmark {
	const char *name;
	int how;
	void (*setup)(void), (*fill)(void), (*step)(void);
	int (*check)(void);
	void (*start)(void), (*block)(void); /* of a non-blocking call: its first half, and the blocking call */
} benchmarks[] = {
	{"latency", HALF | ORIGIN, setup_pair, fill_pair, step_latency, check_latency, 0},
	{"bw", PER_MESSAGE | SENDERS, setup_pair, fill_pair, step_window, check_window, 0},
	{"bibw", PER_MESSAGE | BOTH_WAYS | SENDERS, setup_pair, fill_pair, step_bibw, check_bibw, 0},
	{"mr", PER_MESSAGE | SENDERS, setup_pair, fill_pair, step_window, check_window, 0},
	{"barrier", 0, setup_none, fill_none, step_barrier, check_none, 0},
	{"bcast", MEET, setup_pair, fill_bcast, step_bcast, check_bcast, 0},
	{"reduce", MEET, setup_pair, fill_elements, step_reduce, check_reduce, 0},
	{"allreduce", MEET, setup_pair, fill_elements, step_allreduce, check_allreduce, 0},
	{"gather", MEET, setup_one_all, fill_pair, step_gather, check_gather, 0},
	{"scatter", MEET, setup_all_one, fill_blocks, step_scatter, check_scatter, 0},
	{"allgather", MEET, setup_one_all, fill_pair, step_allgather, check_allgather, 0},
	{"alltoall", MEET, setup_all_all, fill_blocks, step_alltoall, check_alltoall, 0},
	{"reduce_scatter", MEET, setup_all_one, fill_elements, step_reduce_scatter, check_reduce_scatter, 0},
	{"scan", MEET, setup_pair, fill_elements, step_scan, check_scan, 0},
	{"exscan", MEET, setup_pair, fill_elements, step_exscan, check_exscan, 0},
	{"gatherv", MEET, setup_one_all, fill_pair, step_gatherv, check_gather, 0},
	{"scatterv", MEET, setup_all_one, fill_blocks, step_scatterv, check_scatter, 0},
	{"allgatherv", MEET, setup_one_all, fill_pair, step_allgatherv, check_allgather, 0},
	{"alltoallv", MEET, setup_all_all, fill_blocks, step_alltoallv, check_alltoall, 0},
	{"ibcast", MEET | OVERLAP, setup_pair, fill_bcast, step_wait, check_bcast, start_ibcast, step_bcast},
	{"iallreduce", MEET | OVERLAP, setup_pair, fill_elements, step_wait, check_allreduce, start_iallreduce, step_allreduce},
	{"iallreduce_x16", MEET | OVERLAP, setup_together, fill_elements, step_wait, check_together, start_together, step_wait},
	{"ialltoall", MEET | OVERLAP, setup_all_all, fill_blocks, step_wait, check_alltoall, start_ialltoall, step_alltoall},
	{"put", ORIGIN | IN_WINDOW, setup_pair, fill_pair, step_put, check_put, 0},
	{"get", ORIGIN | IN_WINDOW, setup_pair, fill_pair, step_get, check_get, 0},
	{"put_bw", ORIGIN | PER_MESSAGE | IN_WINDOW, setup_pair, fill_pair, step_put_bw, check_put, 0},
	{"get_bw", ORIGIN | PER_MESSAGE | IN_WINDOW, setup_pair, fill_pair, step_get_bw, check_get, 0},
	{"accumulate", ORIGIN | IN_WINDOW, setup_pair, fill_elements, step_accumulate, check_accumulate, 0},
};
static const struct benchmark *b;
static int separate;

/* calls makes k calls and gives the time spent in them: each by itself behind a
 * barrier, or all together. */
static double calls(long k) {
	if (!separate || !(b->how & MEET)) {
		double t = now();
		for (long i = 0; i < k; i++) b->step();
		return now() - t;
	}
	double spent = 0;
	for (long i = 0; i < k; i++) {
		MPI_Barrier(WORLD);
		double t = now();
		b->step();
		spent += now() - t;
	}
	return spent;
}

/* warm_up calls until a tenth of the budget is spent, or as often as asked, and
 * gives all ranks rank 0's time a call, barriers included. */
static double warm_up(void) {
	long chunk = p.warmup > 0 ? p.warmup : 1;
	double least = 1e12;
	for (;;) {
		double t = now();
		calls(chunk);
		double state[2] = {(now() - t) / chunk, 0};
		if (state[0] < least) least = state[0];
		state[1] = p.warmup >= 0 || state[0] * chunk * 10 >= p.budget;
		state[0] = least;
		MPI_Bcast(state, 2, MPI_DOUBLE, 0, WORLD);
		if (state[1] != 0) return least = state[0];
		chunk *= 4;
	}
}

/* work computes without looking at the clock. */
static volatile double sink = 1;
static double per_round; /* microseconds */
/* The compiler may not compute it before the clock is read. */
static __attribute__((noinline)) void work(long rounds) {
	double x = sink;
	for (long i = 0; i < rounds; i++) x = x * 0.999999 + 0.000001;
	sink = x;
}
static void calibrate(void) {
	double best = 1e9;
	for (int i = 0; i < 5; i++) {
		double t = now();
		work(100000);
		double each = (now() - t) / 100000;
		if (each < best) best = each;
	}
	per_round = best;
}

static int by_value(const void *x, const void *y) {
	double a = *(const double *)x, c = *(const double *)y;
	return (a > c) - (a < c);
}

/* The smallest sample that at least so large a part of all does not exceed. */
static double quantile(const double *sorted, long n, int percent) {
	long i = (n * percent + 99) / 100 - 1;
	return sorted[i < 0 ? 0 : i];
}

/* average makes, on rank 0, the ranks' samples into their mean over the ranks
 * that count, sorted. */
static void average(double *samples, double *sums, long n) {
	int counting = b->how & ORIGIN ? 1 : b->how & SENDERS ? size / 2 : size;
	if (rank >= counting) memset(samples, 0, n * sizeof *samples);
	MPI_Reduce(samples, sums, (int)n, MPI_DOUBLE, MPI_SUM, 0, WORLD);
	double scale = 1.0 / counting;
	if (b->how & HALF) scale /= 2;
	if (b->how & PER_MESSAGE) scale /= WINDOW * (b->how & ORIGIN ? 1 : size / 2) * (b->how & BOTH_WAYS ? 2 : 1);
	for (long i = 0; i < n; i++) sums[i] *= scale;
	if (rank == 0) qsort(sums, n, sizeof *sums, by_value);
}

/* compute is work that takes so many rounds on this CPU, or a sleep of so many microseconds. */
static int sleeps;
static void compute(long rounds, double us) {
	struct timespec t = {0, (long)(us * 1000)};
	while (t.tv_nsec >= 1000000000) t.tv_sec++, t.tv_nsec -= 1000000000;
	if (sleeps) nanosleep(&t, NULL);
	else work(rounds);
}

/* overlapped is the same calls with work of the same length between start and
 * wait, the work alone, and the blocking calls: medians over the calls, of the
 * means over the ranks. */
enum { COMPUTED, TOTAL, ALONE, COMM, PHASES };
static void overlapped(double pure, long n, double *medians) {
	long rounds = (long)(pure / per_round) + 1;
	double *spent = malloc(2 * PHASES * n * sizeof *spent), *all = spent + PHASES * n;
	for (long i = 0; i < n; i++) {
		MPI_Barrier(WORLD);
		double t = now();
		b->block();
		spent[COMM * n + i] = now() - t;
	}
	for (long i = 0; i < n; i++) {
		MPI_Barrier(WORLD);
		double t = now();
		compute(rounds, pure);
		spent[ALONE * n + i] = now() - t;
	}
	for (long i = 0; i < n; i++) {
		MPI_Barrier(WORLD);
		double t = now();
		b->start();
		double begun = now();
		compute(rounds, pure);
		spent[COMPUTED * n + i] = now() - begun;
		finish();
		spent[TOTAL * n + i] = now() - t;
	}
	MPI_Reduce(spent, all, (int)(PHASES * n), MPI_DOUBLE, MPI_SUM, 0, WORLD);
	for (int k = 0; k < PHASES; k++) {
		qsort(all + k * n, n, sizeof *all, by_value);
		medians[k] = quantile(all + k * n, n, 50) / size;
	}
	free(spent);
}

/* slice is how many samples to take next; rank 0 says. A guess may be wrong, and
 * ranks that outnumber the CPUs become a thousand times slower from one call to
 * the next, so the time is spent in small pieces. */
static long slice(long n, long batch, double each, double spent) {
	long more;
	if (p.iterations > 0) {
		more = (p.iterations + batch - 1) / batch - n;
	} else {
		double left = p.budget - spent, piece = left / 2 < p.budget / 16.0 ? left / 2 : p.budget / 16.0;
		more = left < p.budget * 0.1 ? 0 : (long)(piece / (each * batch)) + 1;
	}
	if (n + more < LEAST_SAMPLES) more = n == 0 ? 1 : LEAST_SAMPLES - n;
	if (n + more > MOST_SAMPLES) more = MOST_SAMPLES - n;
	MPI_Bcast(&more, 1, MPI_LONG, 0, WORLD);
	return more;
}

static void measure(void) {
	double *samples = malloc(MOST_SAMPLES * sizeof *samples), *sums = malloc(MOST_SAMPLES * sizeof *sums);
	double each = warm_up();
	if (each < 0.001) each = 0.001;
	long batch = each < 1 ? (long)(5 / each) + 1 : 1;
	double wanted = p.iterations > 0 ? p.iterations : p.budget / each; /* calls */
	if (wanted > (double)batch * MOST_SAMPLES) batch = (long)(wanted / MOST_SAMPLES) + 1;
	long n = 0, more;
	MPI_Barrier(WORLD);
	for (double begun = now(), last = begun; (more = slice(n, batch, each, now() - begun)) > 0; n += more) {
		for (long i = n; i < n + more; i++) samples[i] = calls(batch) / batch;
		each = (now() - last) / (more * batch), last = now();
	}
	average(samples, sums, n);
	double median = quantile(sums, n, 50), medians[PHASES];
	if (b->how & OVERLAP) {
		double pure = median;
		MPI_Bcast(&pure, 1, MPI_DOUBLE, 0, WORLD);
		overlapped(pure, batch * n < OVERLAP_CALLS ? batch * n : OVERLAP_CALLS, medians);
	}
	int good = b->check(), all_good;
	MPI_Reduce(&good, &all_good, 1, MPI_INT, MPI_MIN, 0, WORLD);
	if (rank == 0 && !all_good) printf("wrong %d\n", p.index);
	else if (rank == 0) {
		printf("point %d %ld %ld %.6f %.6f %.6f %.6f", p.index, batch, n,
			quantile(sums, n, 10), median, quantile(sums, n, 90), quantile(sums, n, 99));
		if (b->how & OVERLAP) printf(" %.6f %.6f %.6f %.6f", medians[COMPUTED], medians[TOTAL], medians[ALONE], medians[COMM]);
		printf("\n");
	}
	fflush(stdout);
	free(samples), free(sums);
}

static void *buffer(long n) {
	void *mem = NULL;
	if (posix_memalign(&mem, 4096, n > 0 ? n : 1) != 0) {
		fprintf(stderr, "gorun-bench: rank %d: no memory for %ld bytes\n", rank, n);
		MPI_Abort(WORLD, 1);
	}
	return mem;
}

/* spoil overwrites the results, so that what is found right later was made right later. */
static void spoil(void) {
	memset(out, 0x5a, out_len);
	if (b->how & IN_WINDOW && strncmp(p.name, "get", 3)) memset(window_mem, 0x5a, p.bytes), MPI_Win_sync(window);
	if (b->fill == fill_bcast) fill_bcast();
	MPI_Barrier(WORLD);
}

/* run verifies one call and then times many. */
static void run(void) {
	elem = 1, type = MPI_SIGNED_CHAR;
	if (!strcmp(p.type, "float")) type = MPI_FLOAT, elem = sizeof(float);
	else if (!strcmp(p.type, "double")) type = MPI_DOUBLE, elem = sizeof(double);
	else if (!strcmp(p.type, "int")) type = MPI_INT, elem = sizeof(int);
	else if (!strcmp(p.type, "long")) type = MPI_LONG, elem = sizeof(long);
	start = b->start;
	b->setup();
	in = buffer(in_len), out = buffer(out_len);
	memset(in, 0, in_len);
	for (int r = 0; r < size; r++) counts[r] = N, offsets[r] = r * N;
	b->fill();
	if (b->how & IN_WINDOW) {
		/* Whole pages: of a window of 8 bytes MPICH 4.0.2 (ch4:ucx, Debian 12) shows
		 * the ranks different memory, and a put is never seen at its target. */
		long pages = (p.bytes + 4095) / 4096 * 4096;
		if (created) window_mem = buffer(pages), MPI_Win_create(window_mem, pages, 1, MPI_INFO_NULL, WORLD, &window);
		else MPI_Win_allocate(pages, 1, MPI_INFO_NULL, WORLD, &window_mem, &window);
		if (!strncmp(b->name, "get", 3)) fill_block(window_mem, rank, 0);
		MPI_Win_lock_all(0, window);
		MPI_Win_sync(window);
	}
	spoil();
	b->step();
	int good = b->check(), all_good;
	MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, WORLD);
	if (all_good) spoil(), measure();
	else if (rank == 0) printf("wrong %d\n", p.index), fflush(stdout);
	if (b->how & IN_WINDOW) {
		MPI_Win_unlock_all(window);
		MPI_Win_free(&window);
		if (created) free(window_mem);
	}
	free(in), free(out);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	if (argc == 2 && !strcmp(argv[1], "init")) return MPI_Finalize();
	MPI_Comm_rank(WORLD, &rank);
	MPI_Comm_size(WORLD, &size);
	FILE *plan = argc == 2 ? fopen(argv[1], "r") : NULL;
	if (!plan) {
		fprintf(stderr, "gorun-bench: rank %d: no plan\n", rank);
		MPI_Abort(WORLD, 1);
	}
	counts = malloc(size * sizeof *counts), offsets = malloc(size * sizeof *offsets);
	calibrate();
	char line[256], memory[16], version[MPI_MAX_LIBRARY_VERSION_STRING];
	int len, limit;
	double quota = 1e9, begun = now();
	MPI_Get_library_version(version, &len);
	version[strcspn(version, "\n")] = 0;
	if (rank == 0) printf("version %s\n", version);
	while (fgets(line, sizeof line, plan)) {
		if (sscanf(line, "limit %d", &limit) == 1) alarm(limit); /* nobody outlives a lost launcher */
		if (sscanf(line, "quota %lf", &quota) == 1) continue;
		if (sscanf(line, "separate %d", &separate) == 1) continue;
		if (sscanf(line, "memory %15s", memory) == 1) { created = !strcmp(memory, "ordinary"); continue; }
		/* Or the kernel adds 50 us to every sleep, to wake several threads at once. */
		if (sscanf(line, "sleeps %d", &sleeps) == 1) { prctl(PR_SET_TIMERSLACK, 1); continue; }
		if (sscanf(line, "point %d %31s %15s %ld %ld %ld %ld", &p.index, p.name, p.type, &p.bytes, &p.budget, &p.warmup, &p.iterations) != 7) continue;
		b = NULL;
		for (unsigned i = 0; i < sizeof benchmarks / sizeof *benchmarks; i++)
			if (!strcmp(benchmarks[i].name, p.name)) b = &benchmarks[i];
		if (!b) {
			fprintf(stderr, "gorun-bench: no benchmark %s\n", p.name);
			MPI_Abort(WORLD, 1);
		}
		int go = now() - begun < quota * 1e6;
		MPI_Bcast(&go, 1, MPI_INT, 0, WORLD);
		if (!go) break;
		run();
	}
	if (rank == 0) printf("end\n"), fflush(stdout);
	MPI_Finalize();
	return 0;
}
