// Cases of threads that call at the same time: MPI_THREAD_MULTIPLE. It ends with 0 if all hold.
#include "cases.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4 };

static int left, right;
static MPI_Comm own[THREADS]; // a communicator of each thread's

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;

// each runs f in all threads, with their numbers.
static void each(void *(*f)(void *)) {
	pthread_t all[THREADS];
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&all[i], NULL, f, (void *)i) != 0)
			abort();
	for (int i = 0; i < THREADS; i++)
		pthread_join(all[i], NULL);
}

// messages go round, each thread's with its tag: all but one may wait in a receive whenever one sends.
static void *message(void *arg) {
	int i = (int)(long)arg, many = (int[]){1, 100, 4000, 40000}[i];
	int *buf = malloc(sizeof *buf * (unsigned)many);
	MPI_Status st;
	for (int round = 0; round < 30; round++) {
		buf[0] = buf[many - 1] = 1000 * i + round;
		if (me == 0) {
			MPI_Send(buf, many, MPI_INT, right, i, W);
			buf[0] = buf[many - 1] = -1;
		}
		MPI_Recv(buf, many, MPI_INT, left, i, W, &st);
		EQUAL(buf[0], 1000 * i + round);
		EQUAL(buf[many - 1], 1000 * i + round);
		EQUAL(st.MPI_TAG, i);
		if (me != 0)
			MPI_Send(buf, many, MPI_INT, right, i, W);
	}
	free(buf);
	return NULL;
}
static void messages(void) { each(message); }

// requests of each thread are in lists of its own.
static void *request(void *arg) {
	enum { MANY = 12 };
	int i = (int)(long)arg, in[MANY], out[MANY], where[MANY];
	MPI_Request of[2 * MANY];
	MPI_Status st[2 * MANY];
	for (int round = 0; round < 30; round++) {
		for (int k = 0; k < MANY; k++) {
			out[k] = 10000 * i + 100 * round + k;
			MPI_Irecv(&in[k], 1, MPI_INT, left, 100 * i + k, W, &of[k]);
			MPI_Isend(&out[k], 1, MPI_INT, right, 100 * i + k, W, &of[MANY + k]);
		}
		int done = 0, at = 0;
		switch (round % 3) {
		case 0:
			EQUAL(MPI_Waitall(2 * MANY, of, st), MPI_SUCCESS);
			for (int k = 0; k < MANY; k++)
				EQUAL(st[k].MPI_TAG, 100 * i + k);
			break;
		case 1:
			for (; done < 2 * MANY; done++) {
				EQUAL(MPI_Waitany(2 * MANY, of, &at, st), MPI_SUCCESS);
				if (at < MANY)
					EQUAL(st[0].MPI_TAG, 100 * i + at);
			}
			break;
		default:
			MPI_Waitall(MANY, of + MANY, MPI_STATUSES_IGNORE);
			for (; done < MANY; done += at) {
				EQUAL(MPI_Waitsome(MANY, of, &at, where, st), MPI_SUCCESS);
				for (int k = 0; k < at; k++)
					EQUAL(st[k].MPI_TAG, 100 * i + where[k]);
			}
		}
		for (int k = 0; k < MANY; k++)
			EQUAL(in[k], out[k]);
	}
	return NULL;
}
static void requests(void) { each(request); }

// matched: of messages that any thread may take each is taken by one.
static int taken[THREADS * 10];
static void *match(void *arg) {
	int i = (int)(long)arg;
	for (int k = 0; k < 10; k++) {
		int v = 10 * i + k, got = -1;
		MPI_Send(&v, 1, MPI_INT, right, 7, W);
		MPI_Message m;
		MPI_Mprobe(left, 7, W, &m, MPI_STATUS_IGNORE);
		MPI_Mrecv(&got, 1, MPI_INT, &m, MPI_STATUS_IGNORE);
		pthread_mutex_lock(&counting);
		if (got >= 0 && got < 10 * THREADS)
			taken[got]++;
		pthread_mutex_unlock(&counting);
	}
	return NULL;
}
static void matched(void) {
	each(match);
	for (int i = 0; i < 10 * THREADS; i++)
		EQUAL(taken[i], 1);
}

// An operation of the program's, which calls from inside of a call.
static void add(void *in, void *inout, int *len, MPI_Datatype *type) {
	int size = 0;
	MPI_Type_size(*type, &size);
	for (int i = 0; i < *len && size == sizeof(int); i++)
		((int *)inout)[i] += ((int *)in)[i];
}
static MPI_Op adds;

static void *collective(void *arg) {
	int i = (int)(long)arg;
	for (int round = 0; round < 40; round++) {
		int one[100], sum[100], last = round + i;
		for (int k = 0; k < 100; k++)
			one[k] = i + k;
		EQUAL(MPI_Allreduce(one, sum, 100, MPI_INT, round % 2 ? adds : MPI_SUM, own[i]), MPI_SUCCESS);
		EQUAL(sum[99], n * (i + 99));
		MPI_Request q;
		MPI_Ibcast(&last, 1, MPI_INT, 0, own[i], &q);
		MPI_Wait(&q, MPI_STATUS_IGNORE);
		EQUAL(last, round + i);
	}
	return NULL;
}
static void collectives(void) {
	MPI_Op_create(add, 1, &adds);
	each(collective);
	MPI_Op_free(&adds);
}

// makers: communicators that are made at the same time are apart. Their attributes' functions call, too.
static int copied(MPI_Comm of, int key, void *extra, void *in, void *out, int *flag) {
	int size = 0;
	(void)key, (void)extra;
	MPI_Comm_size(of, &size);
	MPI_Request none = MPI_REQUEST_NULL;
	MPI_Waitall(1, &none, MPI_STATUSES_IGNORE);
	*(void **)out = in;
	*flag = size == n;
	return MPI_SUCCESS;
}
static int key;
static void *maker(void *arg) {
	int i = (int)(long)arg;
	for (int round = 0; round < 8; round++) {
		MPI_Comm d = MPI_COMM_NULL;
		MPI_Group g;
		switch ((i + round) % 3) {
		case 0:
			EQUAL(MPI_Comm_dup(own[i], &d), MPI_SUCCESS);
			int there = 0;
			void *value = NULL;
			MPI_Comm_get_attr(d, key, &value, &there);
			CHECK(there && value == &own[i]);
			break;
		case 1:
			EQUAL(MPI_Comm_split(own[i], 0, me, &d), MPI_SUCCESS);
			break;
		default:
			MPI_Comm_group(own[i], &g);
			EQUAL(MPI_Comm_create_group(own[i], g, round, &d), MPI_SUCCESS);
			MPI_Group_free(&g);
		}
		int in = -1, out = 100 * i + round, size = 0, sum = 0;
		MPI_Comm_size(d, &size);
		EQUAL(size, n);
		MPI_Sendrecv(&out, 1, MPI_INT, right, 0, &in, 1, MPI_INT, left, 0, d, MPI_STATUS_IGNORE);
		EQUAL(in, out);
		MPI_Allreduce(&out, &sum, 1, MPI_INT, MPI_SUM, d);
		EQUAL(sum, n * out);
		MPI_Comm_free(&d);
	}
	return NULL;
}
static void makers(void) {
	MPI_Comm_create_keyval(copied, MPI_COMM_NULL_DELETE_FN, &key, NULL);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_set_attr(own[i], key, &own[i]);
	each(maker);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_delete_attr(own[i], key);
	MPI_Comm_free_keyval(&key);
}

// interpreters: a function of the program waits for a lock, which another thread has in a call: as Python's do.
static pthread_mutex_t interpreter = PTHREAD_MUTEX_INITIALIZER;
static int deleted(MPI_Comm of, int which, void *value, void *extra) {
	(void)of, (void)which, (void)extra;
	pthread_mutex_lock(&interpreter);
	++*(int *)value;
	pthread_mutex_unlock(&interpreter);
	return MPI_SUCCESS;
}
static void *interpret(void *arg) {
	int i = (int)(long)arg, there = 0, deletions = 0;
	void *value;
	for (int round = 0; round < 100; round++) {
		MPI_Comm_set_attr(own[i], key, &deletions);
		pthread_mutex_lock(&interpreter);
		MPI_Comm_get_attr(own[i], key, &value, &there);
		CHECK(there && value == &deletions);
		pthread_mutex_unlock(&interpreter);
		MPI_Comm_delete_attr(own[i], key);
	}
	EQUAL(deletions, 100);
	return NULL;
}
static void interpreters(void) {
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, deleted, &key, NULL);
	each(interpret);
	MPI_Comm_free_keyval(&key);
}

static MPI_Win win;
static void *access_window(void *arg) {
	int i = (int)(long)arg, one = 1;
	for (int round = 0; round < 50; round++) {
		int before = -1;
		MPI_Fetch_and_op(&one, &before, MPI_INT, right, 0, MPI_SUM, win);
		MPI_Win_flush(right, win);
		CHECK(before >= 0 && before < 50 * THREADS);
		MPI_Put(&round, 1, MPI_INT, right, 1 + i, 1, MPI_INT, win);
		MPI_Win_flush(right, win);
	}
	return NULL;
}
static void windows(void) {
	int *mem;
	MPI_Win_allocate((1 + THREADS) * (MPI_Aint)sizeof *mem, sizeof *mem, MPI_INFO_NULL, W, &mem, &win);
	memset(mem, 0, (1 + THREADS) * sizeof *mem);
	MPI_Barrier(W);
	MPI_Win_lock_all(0, win);
	each(access_window);
	MPI_Win_unlock_all(win);
	MPI_Barrier(W);
	EQUAL(mem[0], 50 * THREADS);
	for (int i = 0; i < THREADS; i++)
		EQUAL(mem[1 + i], 49);
	MPI_Win_free(&win);
}

// general: one thread waits for what another one completes.
static int queried(void *extra, MPI_Status *st) {
	(void)extra;
	MPI_Status_set_elements(st, MPI_BYTE, 5);
	MPI_Status_set_cancelled(st, 0);
	return MPI_SUCCESS;
}
static int freed(void *extra) { return ++*(int *)extra, MPI_SUCCESS; }
static int never_cancelled(void *extra, int complete) { return (void)extra, (void)complete, MPI_SUCCESS; }
static MPI_Request pending;
static void *completes(void *arg) { return (void)arg, MPI_Grequest_complete(pending), NULL; }
static void general(void) {
	int many = 0, freeings = 0;
	for (int round = 0; round < 10; round++) {
		pthread_t t;
		MPI_Status st;
		MPI_Grequest_start(queried, freed, never_cancelled, &freeings, &pending);
		MPI_Request mine = pending;
		pthread_create(&t, NULL, completes, NULL);
		MPI_Wait(&mine, &st);
		MPI_Get_elements(&st, MPI_BYTE, &many);
		EQUAL(many, 5);
		pthread_join(t, NULL);
	}
	EQUAL(freeings, 10);
}

// mistakes: each thread's handler hears of its own.
static int heard[THREADS];
static void hears(MPI_Comm *of, int *code, ...) {
	char text[MPI_MAX_ERROR_STRING];
	int len = 0;
	MPI_Error_string(*code, text, &len);
	for (int i = 0; i < THREADS; i++)
		if (*of == own[i])
			heard[i] += len > 0;
}
static void *mistake(void *arg) {
	int i = (int)(long)arg;
	for (int round = 0; round < 20; round++)
		CLASS(MPI_Send(&i, 1, MPI_INT, n, 0, own[i]), MPI_ERR_RANK);
	return NULL;
}
static void mistakes(void) {
	MPI_Errhandler h;
	MPI_Comm_create_errhandler(hears, &h);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_set_errhandler(own[i], h);
	MPI_Errhandler_free(&h);
	each(mistake);
	for (int i = 0; i < THREADS; i++) {
		EQUAL(heard[i], 20);
		MPI_Comm_set_errhandler(own[i], MPI_ERRORS_RETURN);
	}
}

static void *whether_main(void *arg) {
	int yes = 1;
	(void)arg;
	MPI_Is_thread_main(&yes);
	EQUAL(yes, 0);
	return NULL;
}
static void mains(void) {
	int yes = 0, level = 0;
	MPI_Is_thread_main(&yes);
	EQUAL(yes, 1);
	MPI_Query_thread(&level);
	EQUAL(level, MPI_THREAD_MULTIPLE);
	each(whether_main);
}

// Whether MPI is over any thread may ask at any time.
static void *asks(void *arg) {
	int over = 0;
	(void)arg;
	while (!over)
		MPI_Finalized(&over);
	for (int i = 0; i < 10000; i++)
		MPI_Finalized(&over);
	return NULL;
}

int main(int argc, char **argv) {
	int level = 0;
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	W = MPI_COMM_WORLD;
	name = "level";
	EQUAL(level, MPI_THREAD_MULTIPLE);
	MPI_Comm_rank(W, &me);
	MPI_Comm_size(W, &n);
	left = (me + n - 1) % n, right = (me + 1) % n;
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_dup(W, &own[i]);
	static const struct one all[] = {
		{"mains", mains}, {"messages", messages}, {"requests", requests}, {"matched", matched}, {"collectives", collectives},
		{"makers", makers}, {"interpreters", interpreters}, {"windows", windows}, {"general", general}, {"mistakes", mistakes},
	};
	int bad = run_all(all, sizeof all / sizeof *all);
	for (int i = 0; i < THREADS; i++)
		MPI_Comm_free(&own[i]);
	pthread_t asking[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&asking[i], NULL, asks, NULL);
	MPI_Finalize();
	for (int i = 0; i < 2; i++)
		pthread_join(asking[i], NULL);
	return bad != 0;
}
