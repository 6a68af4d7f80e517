// Cases of sessions: alone, in turns, several at once, and beside MPI_Init. It ends with 0 if all hold.
#include "cases.h"

#include <stdlib.h>
#include <string.h>

static int handled;

static void handler(MPI_Session *of, int *code, ...) {
	(void)of, (void)code;
	handled++;
}

static MPI_Session begin(void) {
	MPI_Session fresh = MPI_SESSION_NULL;
	EQUAL(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &fresh), MPI_SUCCESS);
	CHECK(fresh != MPI_SESSION_NULL);
	return fresh;
}

static MPI_Comm comm_of(MPI_Session of, const char *set, const char *tag) {
	MPI_Group g = MPI_GROUP_NULL;
	MPI_Comm c = MPI_COMM_NULL;
	EQUAL(MPI_Group_from_session_pset(of, set, &g), MPI_SUCCESS);
	EQUAL(MPI_Comm_create_from_group(g, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &c), MPI_SUCCESS);
	MPI_Group_free(&g);
	return c;
}

// use has the ranks of a communicator add themselves up.
static void use(MPI_Comm c) {
	int size = 0, sum = 0, one = 1, flag = 0, *ub;
	MPI_Comm_size(c, &size);
	EQUAL(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c), MPI_SUCCESS);
	EQUAL(sum, size);
	MPI_Comm_get_attr(c, MPI_TAG_UB, &ub, &flag);
	CHECK(flag && *ub >= 32767);
}

static MPI_Session s; // the one that cases are about

static void sets(void) {
	int many = 0, flag, size;
	MPI_Info info;
	EQUAL(MPI_Session_get_num_psets(s, MPI_INFO_NULL, &many), MPI_SUCCESS);
	CHECK(many >= 2);
	for (int i = 0; i < many; i++) {
		char set[MPI_MAX_PSET_NAME_LEN], value[16];
		int len = 0;
		EQUAL(MPI_Session_get_nth_pset(s, MPI_INFO_NULL, i, &len, NULL), MPI_SUCCESS);
		int need = len;
		EQUAL(MPI_Session_get_nth_pset(s, MPI_INFO_NULL, i, &len, set), MPI_SUCCESS);
		EQUAL(len, need);
		EQUAL(strlen(set) + 1, need);
		CHECK(i > 1 || strcmp(set, i ? "mpi://SELF" : "mpi://WORLD") == 0);
		EQUAL(MPI_Session_get_pset_info(s, set, &info), MPI_SUCCESS);
		len = sizeof value;
		MPI_Info_get_string(info, "mpi_size", &len, value, &flag);
		MPI_Group g;
		MPI_Group_from_session_pset(s, set, &g);
		MPI_Group_size(g, &size);
		CHECK(flag && atoi(value) == size);
		MPI_Group_free(&g);
		MPI_Info_free(&info);
		len = 4;
		MPI_Session_get_nth_pset(s, MPI_INFO_NULL, i, &len, set);
		CHECK(len == need && strcmp(set, "mpi") == 0);
	}
	CLASS(MPI_Session_get_nth_pset(s, MPI_INFO_NULL, many, &size, NULL), MPI_ERR_ARG);
	CLASS(MPI_Session_get_nth_pset(s, MPI_INFO_NULL, -1, &size, NULL), MPI_ERR_ARG);
	char value[32];
	size = sizeof value;
	EQUAL(MPI_Session_get_info(s, &info), MPI_SUCCESS);
	MPI_Info_get_string(info, "thread_level", &size, value, &flag);
	CHECK(flag && strcmp(value, "MPI_THREAD_MULTIPLE") == 0);
	MPI_Info_free(&info);
}

static void mistakes(void) {
	MPI_Session null = MPI_SESSION_NULL;
	MPI_Group g;
	MPI_Info info;
	MPI_Errhandler h, was;
	CLASS(MPI_Group_from_session_pset(s, "mpi://nothing", &g), MPI_ERR_ARG);
	CLASS(MPI_Group_from_session_pset(s, NULL, &g), MPI_ERR_ARG);
	CLASS(MPI_Group_from_session_pset(s, "mpi://SELF", NULL), MPI_ERR_ARG);
	CLASS(MPI_Session_get_pset_info(s, "mpi://nothing", &info), MPI_ERR_ARG);
	CLASS(MPI_Session_get_num_psets(s, MPI_INFO_NULL, NULL), MPI_ERR_ARG);
	CLASS(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, NULL), MPI_ERR_ARG);
	MPI_Info_create(&info);
	MPI_Info_set(info, "thread_level", "MPI_THREAD_OTHER");
	CLASS(MPI_Session_init(info, MPI_ERRORS_RETURN, &null), MPI_ERR_INFO_VALUE);
	MPI_Info_free(&info);
	MPI_Session_create_errhandler(handler, &h);
	MPI_Session_set_errhandler(s, h);
	MPI_Session_get_errhandler(s, &was);
	CHECK(was == h);
	handled = 0;
	MPI_Session_call_errhandler(s, MPI_ERR_OTHER);
	EQUAL(handled, 1);
	CLASS(MPI_Session_get_pset_info(s, "x", &info), MPI_ERR_ARG);
	EQUAL(handled, 2);
	MPI_Errhandler_free(&h);
	MPI_Session_set_errhandler(s, MPI_ERRORS_RETURN);
	CHECK(MPI_Session_fromint(MPI_Session_toint(s)) == s);
}

// buffers: a session's buffer is its communicators', and those that are made of them.
static void buffers(void) {
	static char ours[2000], out[3000], in[3000];
	void *back;
	int size, rank;
	MPI_Request q;
	MPI_Comm c = comm_of(s, "mpi://WORLD", "buffers"), d;
	MPI_Comm_rank(c, &rank);
	CLASS(MPI_Bsend(out, 1, MPI_CHAR, rank, 1, c), MPI_ERR_BUFFER);
	CLASS(MPI_Session_detach_buffer(s, &back, &size), MPI_ERR_BUFFER);
	EQUAL(MPI_Session_attach_buffer(s, ours, sizeof ours), MPI_SUCCESS);
	CLASS(MPI_Session_attach_buffer(s, ours, sizeof ours), MPI_ERR_BUFFER);
	MPI_Comm_dup(c, &d);
	MPI_Comm both[] = {c, d};
	for (int i = 0; i < 2; i++) {
		CLASS(MPI_Bsend(out, 2001, MPI_CHAR, rank, 1, both[i]), MPI_ERR_BUFFER);
		EQUAL(MPI_Bsend(out, 2000, MPI_CHAR, rank, 1, both[i]), MPI_SUCCESS);
		EQUAL(MPI_Recv(in, 2000, MPI_CHAR, rank, 1, both[i], MPI_STATUS_IGNORE), MPI_SUCCESS);
		EQUAL(MPI_Session_flush_buffer(s), MPI_SUCCESS);
	}
	EQUAL(MPI_Comm_attach_buffer(d, MPI_BUFFER_AUTOMATIC, 0), MPI_SUCCESS);
	EQUAL(MPI_Bsend(out, 3000, MPI_CHAR, rank, 1, d), MPI_SUCCESS);
	EQUAL(MPI_Recv(in, 3000, MPI_CHAR, rank, 1, d, MPI_STATUS_IGNORE), MPI_SUCCESS);
	EQUAL(MPI_Session_iflush_buffer(s, &q), MPI_SUCCESS);
	EQUAL(MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_SUCCESS);
	EQUAL(MPI_Session_detach_buffer(s, &back, &size), MPI_SUCCESS);
	CHECK(back == ours && size == sizeof ours);
	MPI_Comm_free(&c);
	MPI_Comm_free(&d);
}

static void reaches(void) { use(W); }

static const struct one cases[] = {{"reaches", reaches}, {"sets", sets}, {"mistakes", mistakes}, {"buffers", buffers}};

// world has the ranks of all cases be those of a communicator.
static void world(MPI_Comm c) {
	W = c;
	MPI_Comm_rank(c, &me);
	MPI_Comm_size(c, &n);
	run_all(cases, sizeof cases / sizeof cases[0]);
	name = "after";
}

static void alone(void) {
	int flag;
	name = "alone";
	for (int turn = 0; turn < 3; turn++) {
		s = begin();
		MPI_Initialized(&flag);
		CHECK(!flag);
		MPI_Comm c = comm_of(s, "mpi://WORLD", "a"), d;
		world(c);
		MPI_Comm_dup(c, &d);
		use(d);
		MPI_Comm_free(&d);
		// A second one meanwhile, which outlives the first.
		MPI_Session other = begin();
		CHECK(other != s);
		MPI_Comm_free(&c);
		EQUAL(MPI_Session_finalize(&s), MPI_SUCCESS);
		CHECK(s == MPI_SESSION_NULL);
		c = comm_of(other, turn ? "MPI://self" : "mpi://WORLD", "b");
		use(c);
		MPI_Comm_free(&c);
		EQUAL(MPI_Session_finalize(&other), MPI_SUCCESS);
	}
}

// beside has sessions before MPI_Init, during, and after MPI_Finalize.
static void beside(void) {
	int flag;
	name = "beside";
	MPI_Session before = begin(), during;
	MPI_Comm b = comm_of(before, "mpi://WORLD", "b");
	use(b);
	MPI_Init(NULL, NULL);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	s = during = begin();
	world(MPI_COMM_WORLD);
	MPI_Comm c = comm_of(during, "mpi://WORLD", "c");
	use(c);
	MPI_Session stale = before, null = MPI_SESSION_NULL;
	MPI_Comm_free(&b);
	MPI_Session_finalize(&before);
	CLASS(MPI_Session_finalize(&stale), MPI_ERR_SESSION);
	CLASS(MPI_Session_finalize(&null), MPI_ERR_SESSION);
	CLASS(MPI_Session_get_num_psets(stale, MPI_INFO_NULL, &flag), MPI_ERR_SESSION);
	MPI_Finalize();
	MPI_Finalized(&flag);
	CHECK(flag);
	use(c);
	MPI_Comm_free(&c);
	MPI_Session_finalize(&during);
	during = begin();
	c = comm_of(during, "mpi://WORLD", "d");
	use(c);
	MPI_Comm_free(&c);
	MPI_Session_finalize(&during);
}

static void end(const char *how) {
	if (strcmp(how, "over") == 0) { // leaves the job with MPI_Finalize
		MPI_Init(NULL, NULL);
		MPI_Finalize();
	}
	MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &s);
	if (strcmp(how, "fatal") == 0)
		MPI_Group_from_session_pset(s, "x", &(MPI_Group){0});
	if (strcmp(how, "world") == 0)
		MPI_Barrier(MPI_COMM_WORLD);
	MPI_Session_finalize(&s);
	if (strcmp(how, "closed") == 0)
		MPI_Group_size(MPI_GROUP_EMPTY, &n);
	exit(3);
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	if (strcmp(argv[1], "alone") == 0)
		alone();
	else if (strcmp(argv[1], "beside") == 0)
		beside();
	else
		end(argv[1]);
	if (failures == 0)
		fprintf(stderr, "rank %d: all cases hold\n", me);
	return failures != 0;
}
