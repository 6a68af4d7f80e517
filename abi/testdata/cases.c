// Cases of MPI, all in one program: it runs them one after another, in a job of any size, and ends with 0 if all hold.
// With an argument it does one of those that end the job.
#include "cases.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static void environment(void) {
	int a, b, len;
	char text[MPI_MAX_LIBRARY_VERSION_STRING];
	EQUAL(MPI_Get_version(&a, &b), MPI_SUCCESS);
	EQUAL(a, 5);
	EQUAL(b, 0);
#ifdef MPI_ABI_VERSION
	MPI_Abi_get_version(&a, &b);
	EQUAL(a, 1);
#endif
	MPI_Get_library_version(text, &len);
	CHECK(strstr(text, "gorun") != NULL);
	EQUAL(len, strlen(text));
	MPI_Get_processor_name(text, &len);
	CHECK(len > 0 && len < MPI_MAX_PROCESSOR_NAME && len == (int)strlen(text));
	MPI_Initialized(&a);
	CHECK(a);
	MPI_Finalized(&a);
	CHECK(!a);
	MPI_Query_thread(&a);
	CHECK(a >= MPI_THREAD_SINGLE && a <= MPI_THREAD_SERIALIZED);
	MPI_Is_thread_main(&a);
	CHECK(a);
	double t = MPI_Wtime();
	CHECK(MPI_Wtime() >= t && MPI_Wtick() > 0);
	int *ub, there;
	MPI_Comm_get_attr(W, MPI_TAG_UB, &ub, &there);
	CHECK(there && *ub >= 32767);
	MPI_Error_string(MPI_ERR_RANK, text, &len);
	CHECK(strstr(text, "rank") != NULL);
	EQUAL(MPI_Comm_fromint(MPI_Comm_toint(W)) == W, 1);
}

static void ring(void) {
	int next = (me + 1) % n, before = (me + n - 1) % n, got = -1, count;
	MPI_Status st;
	MPI_Request q[2];
	MPI_Irecv(&got, 1, MPI_INT, before, 3, W, &q[0]);
	MPI_Isend(&me, 1, MPI_INT, next, 3, W, &q[1]);
	MPI_Status both[2];
	EQUAL(MPI_Waitall(2, q, both), MPI_SUCCESS);
	EQUAL(got, before);
	EQUAL(both[0].MPI_SOURCE, before);
	EQUAL(both[0].MPI_TAG, 3);
	CHECK(q[0] == MPI_REQUEST_NULL && q[1] == MPI_REQUEST_NULL);
	double out[3] = {me, me + 0.5, -me}, in[5];
	EQUAL(MPI_Sendrecv(out, 3, MPI_DOUBLE, next, 1, in, 5, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, W, &st), MPI_SUCCESS);
	CHECK(in[0] == before && in[1] == before + 0.5 && in[2] == -before);
	MPI_Get_count(&st, MPI_DOUBLE, &count);
	EQUAL(count, 3);
	MPI_Count large;
	MPI_Get_count_c(&st, MPI_FLOAT, &large);
	EQUAL(large, 6);
	EQUAL(st.MPI_SOURCE, before);
	got = me;
	MPI_Sendrecv_replace(&got, 1, MPI_INT, next, 9, before, 9, W, MPI_STATUS_IGNORE);
	EQUAL(got, before);
	MPI_Recv(&got, 1, MPI_INT, MPI_PROC_NULL, 0, W, &st);
	EQUAL(st.MPI_SOURCE, MPI_PROC_NULL);
	EQUAL(st.MPI_TAG, MPI_ANY_TAG);
	MPI_Get_count(&st, MPI_INT, &count);
	EQUAL(count, 0);
}

static void modes(void) {
	int next = (me + 1) % n, got = -1, flag;
	MPI_Status st;
	MPI_Request q, r;
	char room[4096 + MPI_BSEND_OVERHEAD], *back;
	MPI_Buffer_attach(room, sizeof room);
	MPI_Bsend(&me, 1, MPI_INT, next, 1, W);
	MPI_Probe(MPI_ANY_SOURCE, 1, W, &st);
	EQUAL(st.MPI_SOURCE, (me + n - 1) % n);
	MPI_Iprobe(MPI_ANY_SOURCE, 77, W, &flag, MPI_STATUS_IGNORE);
	CHECK(!flag);
	MPI_Message m;
	MPI_Mprobe(st.MPI_SOURCE, 1, W, &m, &st);
	MPI_Mrecv(&got, 1, MPI_INT, &m, &st);
	EQUAL(got, st.MPI_SOURCE);
	CHECK(m == MPI_MESSAGE_NULL);
	int size;
	MPI_Buffer_detach(&back, &size);
	CHECK(back == room && size == sizeof room);
	MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 2, W, &q);
	MPI_Issend(&me, 1, MPI_INT, next, 2, W, &r);
	MPI_Wait(&r, MPI_STATUS_IGNORE);
	MPI_Wait(&q, &st);
	EQUAL(got, (me + n - 1) % n);
	// Persistent, twice.
	MPI_Request p[2];
	MPI_Recv_init(&got, 1, MPI_INT, MPI_ANY_SOURCE, 4, W, &p[0]);
	int out;
	MPI_Send_init(&out, 1, MPI_INT, next, 4, W, &p[1]);
	for (int i = 0; i < 2; i++) {
		out = me + 100 * i;
		MPI_Startall(2, p);
		MPI_Waitall(2, p, MPI_STATUSES_IGNORE);
		EQUAL(got, (me + n - 1) % n + 100 * i);
		CHECK(p[0] != MPI_REQUEST_NULL);
	}
	MPI_Wait(&p[0], &st);
	EQUAL(st.MPI_SOURCE, MPI_ANY_SOURCE);
	MPI_Request_free(&p[0]);
	MPI_Request_free(&p[1]);
	CHECK(p[0] == MPI_REQUEST_NULL);
	// A receive that is taken back.
	MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 55, W, &q);
	MPI_Cancel(&q);
	MPI_Wait(&q, &st);
	MPI_Test_cancelled(&st, &flag);
	CHECK(flag);
	MPI_Test(&q, &flag, MPI_STATUS_IGNORE);
	CHECK(flag);
}

// taken: a buffered message of some bytes is sent and received on a communicator.
static int taken(MPI_Comm c, int bytes) {
	static char out[5000], in[5000];
	int err = MPI_Bsend(out, bytes, MPI_CHAR, me, 8, c);
	if (err == MPI_SUCCESS)
		EQUAL(MPI_Recv(in, bytes, MPI_CHAR, me, 8, c, MPI_STATUS_IGNORE), MPI_SUCCESS);
	return err;
}

static void buffers(void) {
	static char ours[2000], theirs[3000];
	void *back;
	int size;
	MPI_Count large;
	MPI_Request q;
	MPI_Comm c;
	MPI_Comm_dup(W, &c);
	CLASS(taken(c, 1), MPI_ERR_BUFFER);
	CLASS(MPI_Comm_detach_buffer(c, &back, &size), MPI_ERR_BUFFER);
	CLASS(MPI_Comm_attach_buffer(c, ours, -1), MPI_ERR_ARG);
	EQUAL(MPI_Buffer_attach(theirs, sizeof theirs), MPI_SUCCESS);
	EQUAL(taken(c, 3000), MPI_SUCCESS);
	EQUAL(MPI_Comm_attach_buffer_c(c, ours, sizeof ours), MPI_SUCCESS);
	CLASS(MPI_Comm_attach_buffer(c, ours, sizeof ours), MPI_ERR_BUFFER);
	CLASS(taken(c, 2001), MPI_ERR_BUFFER);
	EQUAL(taken(c, 2000), MPI_SUCCESS);
	EQUAL(taken(W, 3000), MPI_SUCCESS);
	EQUAL(MPI_Comm_flush_buffer(c), MPI_SUCCESS);
	CLASS(MPI_Comm_iflush_buffer(c, NULL), MPI_ERR_ARG);
	EQUAL(MPI_Comm_iflush_buffer(c, &q), MPI_SUCCESS);
	EQUAL(MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_SUCCESS);
	CLASS(MPI_Comm_detach_buffer(c, NULL, &size), MPI_ERR_ARG);
	EQUAL(MPI_Comm_detach_buffer_c(c, &back, &large), MPI_SUCCESS);
	CHECK(back == ours && large == sizeof ours);
	EQUAL(taken(c, 3000), MPI_SUCCESS);
	EQUAL(MPI_Buffer_iflush(&q), MPI_SUCCESS);
	EQUAL(MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_SUCCESS);
	EQUAL(MPI_Buffer_flush(), MPI_SUCCESS);
	EQUAL(MPI_Buffer_detach(&back, &size), MPI_SUCCESS);
	CHECK(back == theirs && size == sizeof theirs);
	EQUAL(MPI_Comm_attach_buffer(c, MPI_BUFFER_AUTOMATIC, 0), MPI_SUCCESS);
	EQUAL(taken(c, 5000), MPI_SUCCESS);
	EQUAL(MPI_Comm_detach_buffer(c, &back, &size), MPI_SUCCESS);
	CHECK(back == MPI_BUFFER_AUTOMATIC && size == 0);
	// A communicator that is freed with a buffer and a message in it.
	int v = -1;
	EQUAL(MPI_Comm_attach_buffer(c, ours, sizeof ours), MPI_SUCCESS);
	MPI_Irecv(&v, 1, MPI_INT, (me + n - 1) % n, 1, c, &q);
	EQUAL(MPI_Bsend(&me, 1, MPI_INT, (me + 1) % n, 1, c), MPI_SUCCESS);
	MPI_Comm_free(&c);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	EQUAL(v, (me + n - 1) % n);
}

// tools: there is nothing for a tool to see, and it is told so.
static void tools(void) {
	int num = -1, provided = -1, index = 5, len = 0;
	EQUAL(MPI_T_cvar_get_num(&num), MPI_T_ERR_NOT_INITIALIZED);
	EQUAL(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
	EQUAL(MPI_T_init_thread(12345678, &provided), MPI_T_ERR_INVALID);
	EQUAL(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided), MPI_SUCCESS);
	EQUAL(provided, MPI_THREAD_MULTIPLE);
	EQUAL(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided), MPI_SUCCESS);
	EQUAL(MPI_T_finalize(), MPI_SUCCESS);
	int (*nums[])(int *) = {MPI_T_cvar_get_num, MPI_T_pvar_get_num, MPI_T_category_get_num, MPI_T_event_get_num, MPI_T_source_get_num, MPI_T_category_changed};
	for (unsigned i = 0; i < sizeof nums / sizeof *nums; i++) {
		num = -1;
		EQUAL(nums[i](&num), MPI_SUCCESS);
		EQUAL(num, 0);
		EQUAL(nums[i](NULL), MPI_T_ERR_INVALID);
	}
	EQUAL(MPI_T_cvar_get_index("x", &index), MPI_T_ERR_INVALID_NAME);
	EQUAL(MPI_T_pvar_get_index("x", MPI_T_PVAR_CLASS_COUNTER, &index), MPI_T_ERR_INVALID_NAME);
	EQUAL(MPI_T_category_get_index("x", &index), MPI_T_ERR_INVALID_NAME);
	EQUAL(MPI_T_cvar_get_info(0, NULL, &len, &num, NULL, NULL, NULL, &len, &num, &num), MPI_T_ERR_INVALID_INDEX);
	EQUAL(MPI_T_category_get_cvars(0, 0, NULL), MPI_T_ERR_INVALID_INDEX);
	EQUAL(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &num, NULL, &len), MPI_T_ERR_INVALID_HANDLE);
	MPI_T_cvar_handle c = MPI_T_CVAR_HANDLE_NULL;
	EQUAL(MPI_T_cvar_handle_alloc(0, NULL, &c, &num), MPI_T_ERR_INVALID_INDEX);
	EQUAL(MPI_T_cvar_handle_free(&c), MPI_T_ERR_INVALID_HANDLE);
	MPI_T_pvar_session s, t, stale;
	MPI_T_pvar_handle p = MPI_T_PVAR_HANDLE_NULL;
	EQUAL(MPI_T_pvar_session_create(&s), MPI_SUCCESS);
	EQUAL(MPI_T_pvar_session_create(&t), MPI_SUCCESS);
	EQUAL(MPI_T_pvar_handle_alloc(s, 0, NULL, &p, &num), MPI_T_ERR_INVALID_INDEX);
	EQUAL(MPI_T_pvar_start(s, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
	EQUAL(MPI_T_pvar_start(s, p), MPI_T_ERR_INVALID_HANDLE);
	EQUAL(MPI_T_pvar_read(s, p, &num), MPI_T_ERR_INVALID_HANDLE);
	stale = s;
	EQUAL(MPI_T_pvar_session_free(&s), MPI_SUCCESS);
	CHECK(s == MPI_T_PVAR_SESSION_NULL);
	EQUAL(MPI_T_pvar_stop(stale, MPI_T_PVAR_ALL_HANDLES), MPI_T_ERR_INVALID_SESSION);
	EQUAL(MPI_T_pvar_session_free(&stale), MPI_T_ERR_INVALID_SESSION);
	EQUAL(MPI_T_pvar_reset(t, MPI_T_PVAR_ALL_HANDLES), MPI_SUCCESS);
	EQUAL(MPI_T_finalize(), MPI_SUCCESS); // t with it
	EQUAL(MPI_T_pvar_session_create(&s), MPI_T_ERR_NOT_INITIALIZED);
}

static void several(void) {
	enum { K = 5 };
	int in[K], out[K], order[K], index, count, flag, seen = 0;
	MPI_Request q[K], s[K];
	MPI_Status st[K];
	for (int i = 0; i < K; i++) {
		out[i] = 10 * me + i;
		MPI_Irecv(&in[i], 1, MPI_INT, (me + n - 1) % n, i, W, &q[i]);
	}
	MPI_Testany(K, q, &index, &flag, MPI_STATUS_IGNORE);
	MPI_Barrier(W);
	for (int i = 0; i < K; i++)
		MPI_Isend(&out[i], 1, MPI_INT, (me + 1) % n, i, W, &s[i]);
	if (!flag)
		MPI_Waitany(K, q, &index, &st[0]);
	CHECK(index >= 0 && index < K && q[index] == MPI_REQUEST_NULL);
	for (seen = 1; seen < K; seen += count) {
		MPI_Waitsome(K, q, &count, order, st);
		CHECK(count > 0);
		for (int i = 0; i < count; i++)
			EQUAL(st[i].MPI_TAG, order[i]);
	}
	MPI_Waitsome(K, q, &count, order, st);
	EQUAL(count, MPI_UNDEFINED);
	MPI_Waitany(K, q, &index, st);
	EQUAL(index, MPI_UNDEFINED);
	for (int i = 0; i < K; i++)
		EQUAL(in[i], 10 * ((me + n - 1) % n) + i);
	for (flag = 0; !flag;)
		MPI_Testall(K, s, &flag, st);
}

static void lengths(void) {
	for (int len = 0; len <= 1 << 20; len = len ? len * 16 : 1) {
		char *a = malloc(len + 1), *b = malloc(len + 1);
		memset(a, me + 1, len + 1);
		memset(b, 0, len + 1);
		MPI_Sendrecv(a, len, MPI_CHAR, (me + 1) % n, 0, b, len, MPI_CHAR, (me + n - 1) % n, 0, W, MPI_STATUS_IGNORE);
		for (int i = 0; i < len; i++)
			if (b[i] != (me + n - 1) % n + 1) {
				EQUAL(b[i], (me + n - 1) % n + 1);
				break;
			}
		free(a);
		free(b);
	}
}

static void types(void) {
	int size, count;
	MPI_Aint lb, extent;
	MPI_Datatype column, t, u;
	double grid[4][5], in[4];
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 5; j++)
			grid[i][j] = 100 * me + 10 * i + j;
	MPI_Type_vector(4, 1, 5, MPI_DOUBLE, &column);
	CLASS(MPI_Send(grid, 1, column, MPI_PROC_NULL, 0, W), MPI_ERR_TYPE); // not committed
	MPI_Type_commit(&column);
	MPI_Type_size(column, &size);
	EQUAL(size, 32);
	MPI_Type_get_extent(column, &lb, &extent);
	EQUAL(extent, 16 * 8);
	MPI_Status st;
	int before = (me + n - 1) % n;
	MPI_Sendrecv(&grid[0][2], 1, column, (me + 1) % n, 0, in, 4, MPI_DOUBLE, before, 0, W, &st);
	for (int i = 0; i < 4; i++)
		EQUAL(in[i], 100 * before + 10 * i + 2);
	MPI_Get_count(&st, column, &count);
	EQUAL(count, 1);
	MPI_Get_elements(&st, column, &count);
	EQUAL(count, 4);
	MPI_Type_free(&column);
	CHECK(column == MPI_DATATYPE_NULL);
	// A struct, and addresses from MPI_BOTTOM on.
	struct {
		char c;
		double d;
		int i[2];
	} s = {'a', me, {me, -me}}, r;
	memset(&r, 0, sizeof r);
	int lens[] = {1, 1, 2};
	MPI_Aint at[3], base;
	MPI_Datatype of[] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
	MPI_Get_address(&s.c, &at[0]);
	MPI_Get_address(&s.d, &at[1]);
	MPI_Get_address(&s.i, &at[2]);
	MPI_Get_address(&s, &base);
	MPI_Type_create_struct(3, lens, at, of, &t);
	MPI_Type_commit(&t);
	for (int i = 0; i < 3; i++)
		at[i] = MPI_Aint_diff(at[i], base);
	MPI_Type_create_struct(3, lens, at, of, &u);
	MPI_Type_commit(&u);
	MPI_Sendrecv(MPI_BOTTOM, 1, t, (me + 1) % n, 0, &r, 1, u, before, 0, W, &st);
	CHECK(r.c == 'a' && r.d == before && r.i[0] == before && r.i[1] == -before);
	MPI_Get_elements(&st, u, &count);
	EQUAL(count, 4);
	int ni, na, nd, how, ints[4];
	MPI_Aint addresses[3];
	MPI_Datatype list[3];
	MPI_Type_get_envelope(u, &ni, &na, &nd, &how);
	CHECK(ni == 4 && na == 3 && nd == 3 && how == MPI_COMBINER_STRUCT);
	MPI_Type_get_contents(u, 4, 3, 3, ints, addresses, list);
	CHECK(ints[0] == 3 && ints[3] == 2 && addresses[1] == at[1] && list[1] == MPI_DOUBLE);
	MPI_Type_free(&t);
	MPI_Type_free(&u);
	// Data before the origin, and items that overlap the other way round.
	int back[4] = {1, 2, 3, 4}, got[4] = {0};
	MPI_Aint minus = -8;
	int two = 2;
	MPI_Type_create_hindexed(1, &two, &minus, MPI_INT, &t);
	MPI_Type_commit(&t);
	MPI_Sendrecv(&back[2], 1, t, (me + 1) % n, 0, got, 4, MPI_INT, before, 0, W, &st);
	CHECK(got[0] == 1 && got[1] == 2 && got[2] == 0);
	MPI_Type_get_true_extent(t, &lb, &extent);
	CHECK(lb == -8 && extent == 8);
	MPI_Type_dup(t, &u);
	MPI_Type_free(&t);
	MPI_Sendrecv(got, 2, MPI_INT, (me + 1) % n, 0, &back[2], 1, u, before, 0, W, &st);
	CHECK(back[0] == 1 && back[1] == 2);
	MPI_Type_free(&u);
	// A part of a matrix, packed and unpacked.
	int sizes[] = {4, 5}, part[] = {2, 3}, from[] = {1, 1}, position = 0, room;
	MPI_Type_create_subarray(2, sizes, part, from, MPI_ORDER_C, MPI_DOUBLE, &t);
	MPI_Type_commit(&t);
	MPI_Pack_size(1, t, W, &room);
	EQUAL(room, 48);
	char packed[48];
	MPI_Pack(grid, 1, t, packed, sizeof packed, &position, W);
	EQUAL(position, 48);
	double six[6];
	position = 0;
	MPI_Unpack(packed, sizeof packed, &position, six, 6, MPI_DOUBLE, W);
	CHECK(six[0] == 100 * me + 11 && six[5] == 100 * me + 23);
	MPI_Type_free(&t);
	MPI_Type_create_resized(MPI_INT, 0, 12, &t);
	MPI_Type_get_extent(t, &lb, &extent);
	EQUAL(extent, 12);
	MPI_Type_set_name(t, "sparse");
	char text[MPI_MAX_OBJECT_NAME];
	MPI_Type_get_name(t, text, &size);
	CHECK(strcmp(text, "sparse") == 0 && size == 6);
	MPI_Type_free(&t);
	MPI_Type_get_name(MPI_INT, text, &size);
	CHECK(strcmp(text, "MPI_INT") == 0);
}

// wides has types that are made with counts of MPI_Count, which their contents tell apart.
static void wides(void) {
	MPI_Count ci, ca, cc, cd, sizes[2] = {4, 5}, parts[2] = {2, 3}, starts[2] = {1, 0}, counts[6];
	int what, few[2];
	MPI_Datatype wide, of;
	MPI_Type_create_subarray_c(2, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &wide);
	CLASS(MPI_Type_get_envelope(wide, &few[0], &few[0], &few[0], &what), MPI_ERR_TYPE);
	MPI_Type_get_envelope_c(wide, &ci, &ca, &cc, &cd, &what);
	CHECK(ci == 2 && ca == 0 && cc == 6 && cd == 1 && what == MPI_COMBINER_SUBARRAY);
	CLASS(MPI_Type_get_contents_c(wide, 2, 0, 5, 1, few, NULL, counts, &of), MPI_ERR_ARG);
	MPI_Type_get_contents_c(wide, 2, 0, 6, 1, few, NULL, counts, &of);
	CHECK(few[0] == 2 && few[1] == MPI_ORDER_C && counts[0] == 4 && counts[3] == 3 && counts[4] == 1 && of == MPI_INT);
	MPI_Type_free(&wide);
	MPI_Type_create_hvector_c(3, 2, 40, MPI_INT, &wide);
	MPI_Type_get_envelope_c(wide, &ci, &ca, &cc, &cd, &what);
	CHECK(ci == 0 && ca == 0 && cc == 3 && cd == 1 && what == MPI_COMBINER_HVECTOR);
	MPI_Type_get_contents_c(wide, 0, 0, 3, 1, NULL, NULL, counts, &of);
	CHECK(counts[0] == 3 && counts[1] == 2 && counts[2] == 40);
	MPI_Type_free(&wide);
	MPI_Type_contiguous(3, MPI_INT, &wide);
	MPI_Type_get_envelope_c(wide, &ci, &ca, &cc, &cd, &what);
	CHECK(ci == 1 && ca == 0 && cc == 0 && cd == 1 && what == MPI_COMBINER_CONTIGUOUS);
	MPI_Type_free(&wide);
	// Types by their precision, and pairs by their members.
	MPI_Type_create_f90_real(10, 100, &wide);
	MPI_Type_create_f90_real(10, 100, &of);
	CHECK(wide == of);
	MPI_Type_size_c(wide, &ci);
	EQUAL(ci, 8);
	MPI_Type_get_envelope(wide, &few[0], &few[1], &what, &what);
	CHECK(few[0] == 2 && few[1] == 0 && what == MPI_COMBINER_F90_REAL);
	double out = me + 0.5, in = 0;
	MPI_Sendrecv(&out, 1, wide, me, 0, &in, 1, MPI_DOUBLE, me, 0, W, MPI_STATUS_IGNORE);
	CHECK(in == out);
	CLASS(MPI_Type_create_f90_real(100, 100, &wide), MPI_ERR_ARG);
	CLASS(MPI_Type_create_f90_complex(MPI_UNDEFINED, MPI_UNDEFINED, &wide), MPI_ERR_ARG);
	MPI_Type_create_f90_complex(MPI_UNDEFINED, 200, &wide);
	MPI_Type_size_c(wide, &ci);
	EQUAL(ci, 16);
	MPI_Type_create_f90_integer(5, &wide);
	MPI_Type_size_c(wide, &ci);
	EQUAL(ci, 4);
	MPI_Type_get_value_index(MPI_INT, MPI_INT, &wide);
	CHECK(wide == MPI_2INT);
	MPI_Type_get_value_index(MPI_INT, MPI_FLOAT, &wide);
	CHECK(wide == MPI_DATATYPE_NULL);
#ifdef MPI_ABI_VERSION
	MPI_Info sizes_of;
	char size[8];
	int found, room = sizeof size;
	MPI_Abi_get_info(&sizes_of);
	MPI_Info_get_string(sizes_of, "mpi_aint_size", &room, size, &found);
	CHECK(found && atoi(size) == sizeof(MPI_Aint));
	MPI_Info_free(&sizes_of);
#endif
}

// external: what is packed is big-endian and without gaps, and comes back.
static void external(void) {
	struct mixed {
		char c;
		long l;
		double d;
		long double q;
		struct {
			double v;
			int at;
		} pair;
		short s[3];
	} out = {'x', -5, 1.5, -0.1L, {2.5, 7}, {1, 2, -3}}, in;
	memset(&in, 0, sizeof in);
	int lengths[] = {1, 1, 1, 1, 1, 3};
	MPI_Aint at[] = {offsetof(struct mixed, c), offsetof(struct mixed, l), offsetof(struct mixed, d), offsetof(struct mixed, q), offsetof(struct mixed, pair), offsetof(struct mixed, s)};
	MPI_Datatype of[] = {MPI_CHAR, MPI_LONG, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_DOUBLE_INT, MPI_SHORT}, t, row;
	MPI_Type_create_struct(6, lengths, at, of, &t);
	MPI_Type_commit(&t);
	static const unsigned char head[] = {'x', 0xff, 0xff, 0xff, 0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0, 0xbf, 0xfb, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x99, 0x9a};
	static const unsigned char tail[] = {0x40, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 1, 0, 2, 0xff, 0xfd};
	unsigned char packed[64];
	MPI_Aint size, position = 1, wide;
	EQUAL(MPI_Pack_external_size("external32", 1, t, &size), MPI_SUCCESS);
	EQUAL(size, 1 + 4 + 8 + 16 + 12 + 6);
	EQUAL(MPI_Pack_external("external32", &out, 1, t, packed, sizeof packed, &position), MPI_SUCCESS);
	EQUAL(position, 1 + size);
	CHECK(memcmp(packed + 1, head, sizeof head) == 0);
	CHECK(memcmp(packed + 1 + 29, tail, sizeof tail) == 0);
	position = 1;
	EQUAL(MPI_Unpack_external("external32", packed, sizeof packed, &position, &in, 1, t), MPI_SUCCESS);
	EQUAL(position, 1 + size);
	CHECK(in.c == 'x' && in.l == -5 && in.d == 1.5 && in.q == -0.1L && in.pair.v == 2.5 && in.pair.at == 7 && in.s[0] == 1 && in.s[2] == -3);
	// A column of a grid, and the same with counts that are large.
	int grid[3][2] = {{1, 2}, {3, 4}, {5, 6}}, column[3];
	MPI_Type_vector(3, 1, 2, MPI_INT, &row);
	MPI_Type_commit(&row);
	MPI_Count there = 0;
	EQUAL(MPI_Pack_external_c("external32", grid, 1, row, packed, 12, &there), MPI_SUCCESS);
	EQUAL(there, 12);
	CHECK(packed[3] == 1 && packed[7] == 3 && packed[11] == 5);
	position = 0;
	EQUAL(MPI_Unpack_external("external32", packed, 12, &position, column, 3, MPI_INT), MPI_SUCCESS);
	CHECK(column[0] == 1 && column[1] == 3 && column[2] == 5);
	// Between two numbers of long double: the nearest, and of two the even one.
	static const unsigned char near[16] = {0x3f, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x80}, odd[16] = {0x3f, 0xff, 0, 0, 0, 0, 0, 0, 0, 3}, even[16] = {0x3f, 0xff, 0, 0, 0, 0, 0, 0, 0, 1}, whole[16] = {0x3f, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
	long double q;
	position = 0;
	MPI_Unpack_external("external32", near, 16, &position, &q, 1, MPI_LONG_DOUBLE);
	CHECK(q == 1 + 0x1p-63L);
	position = 0;
	MPI_Unpack_external("external32", odd, 16, &position, &q, 1, MPI_LONG_DOUBLE);
	CHECK(q == 1 + 0x1p-62L);
	position = 0;
	MPI_Unpack_external("external32", even, 16, &position, &q, 1, MPI_LONG_DOUBLE);
	CHECK(q == 1);
	position = 0;
	MPI_Unpack_external("external32", whole, 16, &position, &q, 1, MPI_LONG_DOUBLE);
	CHECK(q == 1);
	long large = 1L << 40;
	position = 0;
	CLASS(MPI_Pack_external("external32", &large, 1, MPI_LONG, packed, sizeof packed, &position), MPI_ERR_CONVERSION);
	CLASS(MPI_Pack_external("native", &large, 1, MPI_LONG, packed, sizeof packed, &position), MPI_ERR_UNSUPPORTED_DATAREP);
	CLASS(MPI_Pack_external("external32", &large, 1, MPI_LONG, packed, 3, &position), MPI_ERR_TRUNCATE);
	CLASS(MPI_Unpack_external("external32", packed, 3, &position, &large, 1, MPI_LONG), MPI_ERR_TRUNCATE);
	CLASS(MPI_Pack_external("external32", &large, -1, MPI_LONG, packed, 3, &position), MPI_ERR_COUNT);
	CLASS(MPI_Pack_external("external32", &large, 1, MPI_LONG, packed, 8, NULL), MPI_ERR_ARG);
	position = -1;
	CLASS(MPI_Pack_external("external32", &large, 1, MPI_LONG, packed, 8, &position), MPI_ERR_ARG);
	CLASS(MPI_Pack_external_size("external32", -1, MPI_LONG, &wide), MPI_ERR_COUNT);
	EQUAL(position, -1);
	MPI_Type_free(&t);
	MPI_Type_free(&row);
}

#ifdef MPI_ABI_VERSION
// fortran: what a library for Fortran says of its compiler, once.
static void fortran(void) {
	int yes = 1, no = 0, odd = -1, is = -1, got = 7;
	long wide = 0, narrow = 0;
	MPI_Info info, back;
	CLASS(MPI_Abi_get_fortran_booleans(3, &yes, &no, &is), MPI_ERR_ARG);
	EQUAL(MPI_Abi_get_fortran_booleans(4, &got, &got, &is), MPI_SUCCESS);
	CHECK(is == 0 && got == 7);
	CLASS(MPI_Abi_set_fortran_booleans(4, &odd, &no), MPI_ERR_ABI);
	CLASS(MPI_Abi_set_fortran_booleans(4, &yes, NULL), MPI_ERR_ARG);
	EQUAL(MPI_Abi_set_fortran_booleans(4, &yes, &no), MPI_SUCCESS);
	CLASS(MPI_Abi_set_fortran_booleans(4, &yes, &no), MPI_ERR_ABI);
	yes = no = 5;
	EQUAL(MPI_Abi_get_fortran_booleans(4, &yes, &no, &is), MPI_SUCCESS);
	CHECK(is == 1 && yes == 1 && no == 0);
	EQUAL(MPI_Abi_get_fortran_booleans(8, &wide, &narrow, &is), MPI_SUCCESS);
	EQUAL(is, 0);
	EQUAL(MPI_Abi_get_fortran_info(&back), MPI_SUCCESS);
	CHECK(back == MPI_INFO_NULL);
	CLASS(MPI_Abi_set_fortran_info(MPI_INFO_NULL), MPI_ERR_INFO);
	MPI_Info_create(&info);
	MPI_Info_set(info, "mpi_integer_size", "8");
	CLASS(MPI_Abi_set_fortran_info(info), MPI_ERR_ABI);
	MPI_Info_set(info, "mpi_integer_size", "4");
	EQUAL(MPI_Abi_set_fortran_info(info), MPI_SUCCESS);
	CLASS(MPI_Abi_set_fortran_info(info), MPI_ERR_ABI);
	MPI_Info_free(&info);
	EQUAL(MPI_Abi_get_fortran_info(&back), MPI_SUCCESS);
	char text[8];
	int size = sizeof text;
	MPI_Info_get_string(back, "mpi_integer_size", &size, text, &is);
	CHECK(is && strcmp(text, "4") == 0);
	MPI_Info_free(&back);
}
#endif

static void reductions(void) {
	int total = n * (n - 1) / 2, got = -1, in[3] = {me, 1, -me}, out[3];
	MPI_Allreduce(&me, &got, 1, MPI_INT, MPI_SUM, W);
	EQUAL(got, total);
	MPI_Allreduce(MPI_IN_PLACE, in, 3, MPI_INT, MPI_MAX, W);
	CHECK(in[0] == n - 1 && in[1] == 1 && in[2] == 0);
	MPI_Reduce(&me, &got, 1, MPI_INT, MPI_MIN, n - 1, W);
	if (me == n - 1)
		EQUAL(got, 0);
	struct {
		double value;
		int where;
	} a = {me == n / 2 ? -1 : me, me}, b;
	MPI_Allreduce(&a, &b, 1, MPI_DOUBLE_INT, MPI_MINLOC, W);
	CHECK(b.value == (n / 2 == 0 && n > 1 ? 0 : -1) || b.where == n / 2);
	MPI_Scan(&me, &got, 1, MPI_INT, MPI_SUM, W);
	EQUAL(got, me * (me + 1) / 2);
	got = -5;
	MPI_Exscan(&me, &got, 1, MPI_INT, MPI_SUM, W);
	EQUAL(got, me == 0 ? -5 : me * (me - 1) / 2);
	int *all = malloc(n * sizeof *all), *counts = malloc(n * sizeof *counts);
	for (int i = 0; i < n; i++)
		all[i] = i + me, counts[i] = 1;
	MPI_Reduce_scatter_block(all, &got, 1, MPI_INT, MPI_SUM, W);
	EQUAL(got, n * me + total);
	MPI_Reduce_scatter(all, &got, counts, MPI_INT, MPI_SUM, W);
	EQUAL(got, n * me + total);
	MPI_Request q;
	MPI_Iallreduce(&me, &got, 1, MPI_INT, MPI_SUM, W, &q);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	EQUAL(got, total);
	MPI_Allreduce_init(&me, &got, 1, MPI_INT, MPI_SUM, W, MPI_INFO_NULL, &q);
	for (int i = 0; i < 3; i++) {
		got = -1;
		MPI_Start(&q);
		MPI_Wait(&q, MPI_STATUS_IGNORE);
		EQUAL(got, total);
	}
	MPI_Request_free(&q);
	int one[3] = {1, 2, 3};
	out[0] = 5, out[1] = 6, out[2] = 7;
	MPI_Reduce_local(one, out, 3, MPI_INT, MPI_PROD);
	CHECK(out[0] == 5 && out[1] == 12 && out[2] == 21);
	MPI_Count c = 1;
	MPI_Allreduce_c(&me, &got, c, MPI_INT, MPI_SUM, W);
	EQUAL(got, total);
	CLASS(MPI_Allreduce(&a, &b, 1, MPI_DOUBLE, MPI_BAND, W), MPI_ERR_OP);
	CLASS(MPI_Allreduce(in, out, 1, MPI_WCHAR, MPI_SUM, W), MPI_ERR_OP);
	CLASS(MPI_Allreduce(in, out, 1, MPI_BYTE, MPI_MAX, W), MPI_ERR_OP);
	long double x = me + 0.25L, y[2];
	MPI_Allreduce(&x, y, 1, MPI_LONG_DOUBLE, MPI_SUM, W);
	CHECK(y[0] == total + n * 0.25L);
	MPI_Allreduce(&x, y, 1, MPI_LONG_DOUBLE, MPI_MAX, W);
	CHECK(y[0] == n - 0.75L);
	CLASS(MPI_Allreduce(&x, y, 1, MPI_LONG_DOUBLE, MPI_BAND, W), MPI_ERR_OP);
	struct {
		long double value;
		int where;
	} far = {me, me}, found;
	MPI_Allreduce(&far, &found, 1, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, W);
	CHECK(found.value == n - 1 && found.where == n - 1);
	MPI_Datatype two;
	// Fortran's pairs.
	float pair[2] = {me == 0 ? 2.5f : 1.5f, (float)me}, first[2] = {0, 0};
	MPI_Allreduce(pair, first, 1, MPI_2REAL, MPI_MAXLOC, W);
	CHECK(first[0] == 2.5f && first[1] == 0);
	double both[4] = {1.5, n - me, -2.5 * me, me}, least[4];
	MPI_Allreduce(both, least, 2, MPI_2DOUBLE_PRECISION, MPI_MINLOC, W);
	CHECK(least[0] == 1.5 && least[1] == 1 && least[2] == -2.5 * (n - 1) && least[3] == n - 1);
	CLASS(MPI_Allreduce(pair, first, 1, MPI_2REAL, MPI_SUM, W), MPI_ERR_OP);
	// A struct with a long double has C's padding, as one with MPI_LONG_DOUBLE_INT.
	struct pair {
		long double value;
		int index;
	};
	struct {
		struct pair pair;
		char last;
	} nested;
	MPI_Aint lower, extent, at[] = {0, offsetof(struct pair, index)};
	MPI_Datatype members[] = {MPI_LONG_DOUBLE, MPI_INT}, padded;
	int each[] = {1, 1};
	MPI_Type_create_struct(2, each, at, members, &padded);
	MPI_Type_get_extent(padded, &lower, &extent);
	EQUAL(extent, sizeof(struct pair));
	MPI_Type_free(&padded);
	members[0] = MPI_LONG_DOUBLE_INT, members[1] = MPI_CHAR;
	at[1] = (char *)&nested.last - (char *)&nested;
	MPI_Type_create_struct(2, each, at, members, &padded);
	MPI_Type_get_extent(padded, &lower, &extent);
	EQUAL(extent, sizeof nested);
	MPI_Type_free(&padded);
	MPI_Type_contiguous(2, MPI_LONG_DOUBLE, &two);
	MPI_Type_commit(&two);
	CLASS(MPI_Allreduce(y, y, 1, two, MPI_SUM, W), MPI_ERR_OP);
	MPI_Type_free(&two);
	free(all);
	free(counts);
}

// left gives the left one of two: not commutative.
static void left(void *in, void *inout, int *len, MPI_Datatype *t) {
	MPI_Aint lb, extent;
	(void)lb;
	extent = *t == MPI_INT ? sizeof(int) : 2 * sizeof(double);
	memcpy(inout, in, *len * extent);
}

static void plus(void *in, void *inout, int *len, MPI_Datatype *t) {
	(void)t;
	for (int i = 0; i < *len; i++) {
		((double *)inout)[2 * i] += ((double *)in)[2 * i];
		((double *)inout)[2 * i + 1] += 2 * ((double *)in)[2 * i + 1];
	}
}

static void operations(void) {
	MPI_Op first, add;
	int got = -1, flag;
	MPI_Op_create(left, 0, &first);
	MPI_Op_commutative(first, &flag);
	CHECK(!flag);
	int mine = me + 7;
	MPI_Allreduce(&mine, &got, 1, MPI_INT, first, W);
	EQUAL(got, 7);
	MPI_Scan(&mine, &got, 1, MPI_INT, first, W);
	EQUAL(got, 7);
	enum { K = 1000 };
	MPI_Datatype pair;
	MPI_Type_contiguous(2, MPI_DOUBLE, &pair);
	MPI_Type_commit(&pair);
	MPI_Op_create(plus, 1, &add);
	double *in = malloc(2 * K * sizeof *in), *out = malloc(2 * K * sizeof *out);
	for (int i = 0; i < K; i++)
		in[2 * i] = me, in[2 * i + 1] = 0;
	MPI_Allreduce(in, out, K, pair, add, W);
	for (int i = 0; i < K; i++)
		if (out[2 * i] != n * (n - 1) / 2) {
			EQUAL(out[2 * i], n * (n - 1) / 2);
			break;
		}
	MPI_Reduce(in, out, K, pair, first, 0, W);
	if (me == 0)
		EQUAL(out[0], 0);
	free(in);
	free(out);
	MPI_Op stale = add;
	MPI_Op_free(&add);
	CHECK(add == MPI_OP_NULL);
	CLASS(MPI_Allreduce(&me, &got, 1, MPI_INT, stale, W), MPI_ERR_OP);
	MPI_Op_free(&first);
	MPI_Type_free(&pair);
	MPI_Op own = MPI_SUM;
	CLASS(MPI_Op_free(&own), MPI_ERR_OP);
}

static void collectives(void) {
	int *a = malloc(4 * n * sizeof *a), *b = malloc(4 * n * sizeof *b), *counts = malloc(n * sizeof *counts), *displs = malloc(n * sizeof *displs), v = -1;
	MPI_Request q;
	v = me == n - 1 ? 42 : 0;
	MPI_Bcast(&v, 1, MPI_INT, n - 1, W);
	EQUAL(v, 42);
	MPI_Gather(&me, 1, MPI_INT, a, 1, MPI_INT, 0, W);
	for (int i = 0; i < n && me == 0; i++) {
		EQUAL(a[i], i);
		b[i] = 3 * i;
	}
	MPI_Scatter(b, 1, MPI_INT, &v, 1, MPI_INT, 0, W);
	EQUAL(v, 3 * me);
	if (me == 0)
		MPI_Scatter(b, 1, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, W);
	else
		MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, &v, 1, MPI_INT, 0, W);
	MPI_Allgather(&me, 1, MPI_INT, a, 1, MPI_INT, W);
	for (int i = 0; i < n; i++)
		EQUAL(a[i], i);
	memset(a, -1, n * sizeof *a);
	a[me] = me + 1;
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, a, 1, MPI_INT, W);
	for (int i = 0; i < n; i++)
		EQUAL(a[i], i + 1);
	for (int i = 0; i < n; i++)
		b[i] = 100 * me + i;
	MPI_Alltoall(b, 1, MPI_INT, a, 1, MPI_INT, W);
	for (int i = 0; i < n; i++)
		EQUAL(a[i], 100 * i + me);
	for (int i = 0; i < n; i++)
		counts[i] = i % 3, displs[i] = 3 * i;
	int mine[3] = {me, me, me};
	memset(a, -1, 4 * n * sizeof *a);
	MPI_Allgatherv(mine, me % 3, MPI_INT, a, counts, displs, MPI_INT, W);
	for (int i = 0; i < n; i++)
		for (int j = 0; j < 3; j++)
			EQUAL(a[3 * i + j], j < counts[i] ? i : -1);
	MPI_Gatherv(mine, me % 3, MPI_INT, a, counts, displs, MPI_INT, n - 1, W);
	MPI_Scatterv(a, counts, displs, MPI_INT, mine, me % 3, MPI_INT, n - 1, W);
	for (int j = 0; j < me % 3; j++)
		EQUAL(mine[j], me);
	for (int i = 0; i < n; i++)
		counts[i] = 1, displs[i] = n - 1 - i, b[n - 1 - i] = 10 * me + i;
	MPI_Alltoallv(b, counts, displs, MPI_INT, a, counts, displs, MPI_INT, W);
	for (int i = 0; i < n; i++)
		EQUAL(a[n - 1 - i], 10 * i + me);
	MPI_Datatype *types = malloc(n * sizeof *types);
	for (int i = 0; i < n; i++)
		displs[i] = 4 * i, types[i] = MPI_INT, b[i] = 10 * me + i;
	MPI_Alltoallw(b, counts, displs, types, a, counts, displs, types, W);
	for (int i = 0; i < n; i++)
		EQUAL(a[i], 10 * i + me);
	MPI_Ibcast(&v, 1, MPI_INT, 0, W, &q);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	MPI_Ialltoall(b, 1, MPI_INT, a, 1, MPI_INT, W, &q);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++)
		EQUAL(a[i], 10 * i + me);
	MPI_Ibarrier(W, &q);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	free(types);
	free(a);
	free(b);
	free(counts);
	free(displs);
}

static int counts;

static void counted(MPI_Comm *c, int *code, ...) { counts += *c == MPI_COMM_NULL && *code != MPI_SUCCESS; }

static void communicators(void) {
	MPI_Comm half, dup, none, node;
	MPI_Group all, some, back;
	int r, size, flag, result, list[] = {0};
	char text[MPI_MAX_OBJECT_NAME];
	MPI_Comm_split(W, me % 2, -me, &half);
	MPI_Comm_size(half, &size);
	EQUAL(size, (n + 1 - me % 2) / 2);
	MPI_Comm_rank(half, &r);
	int sum, want = 0;
	for (int i = me % 2; i < n; i += 2)
		want += i;
	MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, half);
	EQUAL(sum, want);
	MPI_Comm_dup(half, &dup);
	MPI_Comm_compare(half, dup, &result);
	EQUAL(result, MPI_CONGRUENT);
	MPI_Comm_compare(half, half, &result);
	EQUAL(result, MPI_IDENT);
	MPI_Comm_set_name(dup, "my own");
	MPI_Comm_get_name(dup, text, &size);
	CHECK(strcmp(text, "my own") == 0);
	MPI_Comm_get_name(MPI_COMM_WORLD, text, &size);
	CHECK(strcmp(text, "MPI_COMM_WORLD") == 0);
	MPI_Comm stale = dup;
	MPI_Comm_free(&dup);
	CHECK(dup == MPI_COMM_NULL);
	CLASS(MPI_Comm_rank(stale, &r), MPI_ERR_COMM);
	CLASS(MPI_Barrier(stale), MPI_ERR_COMM);
	MPI_Comm_free(&half);
	MPI_Comm_split(W, me == 0 ? MPI_UNDEFINED : 1, 0, &none);
	CHECK((none == MPI_COMM_NULL) == (me == 0));
	if (me != 0)
		MPI_Comm_free(&none);
	MPI_Comm_split_type(W, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &size);
	EQUAL(size, n);
	MPI_Comm_free(&node);
	MPI_Info shared;
	MPI_Info_create(&shared);
	MPI_Info_set(shared, "mpi_hw_resource_type", "mpi_shared_memory");
	MPI_Comm_split_type(W, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, shared, &node);
	int together = 0;
	CHECK(node != MPI_COMM_NULL && MPI_Comm_size(node, &together) == MPI_SUCCESS && together == n);
	MPI_Comm_free(&node);
	MPI_Info_free(&shared);
	MPI_Comm_group(W, &all);
	MPI_Group_incl(all, 1, list, &some);
	MPI_Group_size(some, &size);
	EQUAL(size, 1);
	MPI_Group_rank(some, &r);
	EQUAL(r, me == 0 ? 0 : MPI_UNDEFINED);
	MPI_Group_difference(all, all, &back);
	CHECK(back == MPI_GROUP_EMPTY);
	MPI_Group_union(some, all, &back);
	MPI_Group_compare(back, all, &result);
	EQUAL(result, MPI_IDENT);
	MPI_Group_free(&back);
	int in[] = {0, MPI_PROC_NULL, n - 1}, out[3];
	MPI_Group_translate_ranks(all, 3, in, some, out);
	CHECK(out[0] == 0 && out[1] == MPI_PROC_NULL && out[2] == (n == 1 ? 0 : MPI_UNDEFINED));
	MPI_Comm_create(W, some, &none);
	CHECK((none != MPI_COMM_NULL) == (me == 0));
	if (me == 0)
		MPI_Comm_free(&none);
	MPI_Comm_create_group(W, all, 3, &dup);
	MPI_Comm_test_inter(dup, &flag);
	CHECK(!flag);
	MPI_Comm_free(&dup);
	MPI_Group_free(&all);
	MPI_Group_free(&some);
	MPI_Request q;
	MPI_Comm_idup(W, &dup, &q);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	MPI_Barrier(dup);
	MPI_Comm_free(&dup);
	// A communicator is freed before what is under way on it is over.
	int late = -1;
	MPI_Comm_dup(W, &dup);
	MPI_Irecv(&late, 1, MPI_INT, (me + n - 1) % n, 0, dup, &q);
	MPI_Send(&me, 1, MPI_INT, (me + 1) % n, 0, dup);
	MPI_Comm_free(&dup);
	MPI_Wait(&q, MPI_STATUS_IGNORE);
	EQUAL(late, (me + n - 1) % n);
	// Communicators of groups, which have the handler that is named.
	MPI_Errhandler returns;
	MPI_Comm_group(W, &all);
	MPI_Errhandler counting;
	MPI_Comm_create_errhandler(counted, &counting);
	CLASS(MPI_Comm_create_from_group(all, "of all", MPI_INFO_NULL, counting, NULL), MPI_ERR_ARG);
	CLASS(MPI_Intercomm_create_from_groups(all, n, all, 0, "of all", MPI_INFO_NULL, counting, &dup), MPI_ERR_RANK);
	EQUAL(counts, 2);
	MPI_Errhandler_free(&counting);
	MPI_Comm_create_from_group(all, "of all", MPI_INFO_NULL, MPI_ERRORS_RETURN, &dup);
	MPI_Comm_get_errhandler(dup, &returns);
	CHECK(returns == MPI_ERRORS_RETURN && MPI_Barrier(dup) == MPI_SUCCESS);
	MPI_Comm_free(&dup);
	if (n < 2) {
		MPI_Group_free(&all);
		return;
	}
	int ranges[2][1][3] = {{{0, n / 2 - 1, 1}}, {{n / 2, n - 1, 1}}}, high = me >= n / 2, remote;
	MPI_Group sides[2];
	MPI_Group_range_incl(all, 1, ranges[0], &sides[0]);
	MPI_Group_range_incl(all, 1, ranges[1], &sides[1]);
	MPI_Intercomm_create_from_groups(sides[high], 0, sides[!high], 0, "halves", MPI_INFO_NULL, MPI_ERRORS_RETURN, &dup);
	MPI_Comm_remote_size(dup, &remote);
	EQUAL(remote, high ? n / 2 : n - n / 2);
	CLASS(MPI_Send(&me, 1, MPI_INT, remote, 0, dup), MPI_ERR_RANK);
	MPI_Comm_free(&dup);
	MPI_Group_free(&sides[0]);
	MPI_Group_free(&sides[1]);
	MPI_Group_free(&all);
	// Two groups that talk.
	MPI_Comm between, merged;
	MPI_Comm_split(W, me % 2, me, &half);
	MPI_Intercomm_create(half, 0, W, 1 - me % 2, 12, &between);
	MPI_Comm_test_inter(between, &flag);
	CHECK(flag);
	MPI_Comm_remote_size(between, &size);
	EQUAL(size, (n + me % 2) / 2);
	MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, between);
	for (want = 0, r = 1 - me % 2; r < n; r += 2)
		want += r;
	EQUAL(sum, want);
	int v = me == 0 ? 77 : 0;
	MPI_Bcast(&v, 1, MPI_INT, me % 2 ? 0 : me == 0 ? MPI_ROOT : MPI_PROC_NULL, between);
	// A rank without a part in it may name any type.
	int others = -1;
	EQUAL(MPI_Reduce(&me, &others, me % 2 || me == 0, me % 2 || me == 0 ? MPI_INT : MPI_BYTE, MPI_SUM, me % 2 ? 0 : me == 0 ? MPI_ROOT : MPI_PROC_NULL, between), MPI_SUCCESS);
	EQUAL(others, me == 0 ? (n / 2) * (n / 2) : -1); // 1 + 3 + ...
	EQUAL(v, me % 2 || me == 0 ? 77 : 0);
	MPI_Intercomm_merge(between, me % 2, &merged);
	MPI_Comm_size(merged, &size);
	EQUAL(size, n);
	MPI_Comm_free(&merged);
	MPI_Comm_free(&between);
	MPI_Comm_free(&half);
}

static int copied, deleted;

static int copy(MPI_Comm c, int k, void *extra, void *in, void *out, int *flag) {
	(void)c, (void)k;
	copied++;
	*(void **)out = (char *)in + (long)extra;
	*flag = 1;
	return MPI_SUCCESS;
}

static int delete(MPI_Comm c, int k, void *value, void *extra) {
	(void)c, (void)k, (void)extra;
	deleted++;
	return value == (void *)13 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static int itself(MPI_Comm c, int k, void *value, void *extra) {
	(void)value, (void)extra;
	int class = -1;
	MPI_Error_class(MPI_Comm_delete_attr(c, k), &class);
	return class == MPI_ERR_KEYVAL ? MPI_SUCCESS : MPI_ERR_OTHER;
}

// freeing frees communicators in another order on each rank, with operations under way that complete nevertheless.
static void freeing(void) {
	MPI_Comm a, b, c;
	MPI_Request q[2], p[2], all;
	int next = (me + 1) % n, before = (me + n - 1) % n, other = me ^ 1, got = -1, word = me, sum = -1;
	MPI_Comm_dup(W, &a);
	MPI_Comm_dup(W, &b);
	// A rank's first free comes before the message that the other rank waits for between its own.
	MPI_Comm_free(me % 2 ? &a : &b);
	if (me % 2)
		MPI_Send(&me, 1, MPI_INT, other, 5, W);
	else if (other < n) {
		MPI_Recv(&got, 1, MPI_INT, other, 5, W, MPI_STATUS_IGNORE);
		EQUAL(got, other);
	}
	MPI_Comm_free(me % 2 ? &b : &a);
	CHECK(a == MPI_COMM_NULL && b == MPI_COMM_NULL);
	// A message is sent on a communicator that its receiver has freed, and a reduction goes on in it.
	MPI_Comm_dup(W, &c);
	MPI_Irecv(&got, 1, MPI_INT, before, 6, c, &q[0]);
	MPI_Iallreduce(&me, &sum, 1, MPI_INT, MPI_SUM, c, &all);
	MPI_Recv_init(&word, 1, MPI_INT, before, 7, c, &p[0]);
	MPI_Send_init(&me, 1, MPI_INT, next, 7, c, &p[1]);
	if (me % 2 == 0)
		MPI_Comm_free(&c);
	MPI_Sendrecv(&me, 1, MPI_INT, before, 8, &word, 1, MPI_INT, next, 8, W, MPI_STATUS_IGNORE);
	if (me % 2) {
		MPI_Isend(&me, 1, MPI_INT, next, 6, c, &q[1]);
		MPI_Comm_free(&c);
	} else
		q[1] = MPI_REQUEST_NULL;
	for (int i = 0; i < 2; i++) {
		MPI_Startall(2, p);
		MPI_Waitall(2, p, MPI_STATUSES_IGNORE);
		EQUAL(word, before);
	}
	if (before % 2 == 0)
		MPI_Cancel(&q[0]); // nobody sends it
	EQUAL(MPI_Waitall(2, q, MPI_STATUSES_IGNORE), MPI_SUCCESS);
	if (before % 2)
		EQUAL(got, before);
	MPI_Wait(&all, MPI_STATUS_IGNORE);
	EQUAL(sum, n * (n - 1) / 2);
	MPI_Request_free(&p[0]);
	MPI_Request_free(&p[1]);
	// A request that is freed before its communicator is still sent.
	MPI_Comm_dup(W, &c);
	MPI_Isend(&me, 1, MPI_INT, next, 9, c, &q[1]);
	MPI_Request_free(&q[1]);
	MPI_Recv(&got, 1, MPI_INT, before, 9, c, MPI_STATUS_IGNORE);
	EQUAL(got, before);
	MPI_Comm_free(&c);
	// Their memory comes back: more than fit at once.
	for (int i = 0; i < 2000; i++) {
		MPI_Comm_dup(W, &c);
		MPI_Comm_free(&c);
	}
}

static void attributes(void) {
	int k, k2, flag; // the value 13 cannot be deleted
	void *value;
	MPI_Comm dup, again;
	copied = deleted = 0;
	MPI_Comm_create_keyval(copy, delete, &k, (void *)1);
	MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &k2, NULL);
	MPI_Comm_dup(W, &dup);
	MPI_Comm_get_attr(dup, k, &value, &flag);
	CHECK(!flag);
	MPI_Comm_set_attr(dup, k, (void *)40);
	MPI_Comm_set_attr(dup, k2, &k);
	MPI_Comm_set_attr(dup, k, (void *)41);
	EQUAL(deleted, 1);
	MPI_Comm_dup(dup, &again);
	EQUAL(copied, 1);
	MPI_Comm_get_attr(again, k, &value, &flag);
	CHECK(flag && value == (void *)42);
	MPI_Comm_get_attr(again, k2, &value, &flag);
	CHECK(flag && value == &k);
	MPI_Comm_free(&again);
	EQUAL(deleted, 2);
	MPI_Comm_set_attr(dup, k, (void *)13);
	CLASS(MPI_Comm_delete_attr(dup, k), MPI_ERR_OTHER);
	MPI_Comm_get_attr(dup, k, &value, &flag);
	CHECK(flag);
	CLASS(MPI_Comm_delete_attr(dup, 12345), MPI_ERR_KEYVAL);
	MPI_Comm_free_keyval(&k);
	EQUAL(k, MPI_KEYVAL_INVALID);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &k, NULL);
	int stale = k;
	MPI_Comm_free_keyval(&k);
	CLASS(MPI_Comm_set_attr(W, stale, NULL), MPI_ERR_KEYVAL);
	MPI_Comm_free_keyval(&k2);
	MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, itself, &k, NULL); // deletes itself
	MPI_Comm_set_attr(W, k, NULL);
	EQUAL(MPI_Comm_delete_attr(W, k), MPI_SUCCESS);
	MPI_Comm_get_attr(W, k, &value, &flag);
	CHECK(!flag);
	MPI_Comm_free_keyval(&k);
	MPI_Comm_set_errhandler(dup, MPI_ERRORS_RETURN);
	CLASS(MPI_Comm_free(&dup), MPI_ERR_OTHER);
}

static void topologies(void) {
	int dims[2] = {0, 0}, periods[2] = {1, 0}, coords[2], from, to, r, kind, size;
	MPI_Comm grid, row, graph;
	MPI_Dims_create(n, 2, dims);
	EQUAL(dims[0] * dims[1], n);
	MPI_Cart_create(W, 2, dims, periods, 0, &grid);
	MPI_Topo_test(grid, &kind);
	EQUAL(kind, MPI_CART);
	MPI_Topo_test(W, &kind);
	EQUAL(kind, MPI_UNDEFINED);
	MPI_Cart_coords(grid, me, 2, coords);
	MPI_Cart_rank(grid, coords, &r);
	EQUAL(r, me);
	MPI_Cart_shift(grid, 1, 1, &from, &to);
	EQUAL(to, coords[1] + 1 < dims[1] ? me + 1 : MPI_PROC_NULL);
	int around[4], mine = me;
	for (int i = 0; i < 4; i++)
		around[i] = -1;
	MPI_Neighbor_allgather(&mine, 1, MPI_INT, around, 1, MPI_INT, grid);
	EQUAL(around[2], from == MPI_PROC_NULL ? -1 : from);
	EQUAL(around[3], to == MPI_PROC_NULL ? -1 : to);
	int keep[] = {0, 1};
	MPI_Cart_sub(grid, keep, &row);
	MPI_Comm_size(row, &size);
	EQUAL(size, dims[1]);
	MPI_Comm_free(&row);
	MPI_Comm_free(&grid);
	int next = (me + 1) % n, before = (me + n - 1) % n, in, out, weighted;
	EQUAL(MPI_Dist_graph_create_adjacent(W, 0, NULL, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph), MPI_SUCCESS);
	CLASS(MPI_Neighbor_allgather(&me, 1, MPI_INT, NULL, 0, MPI_INT, graph), MPI_ERR_TOPOLOGY); // the other end does not name the edge
	MPI_Comm_free(&graph);
	MPI_Dist_graph_create_adjacent(W, 1, &before, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
	MPI_Dist_graph_neighbors_count(graph, &in, &out, &weighted);
	CHECK(in == 1 && out == 1 && !weighted);
	r = -1;
	MPI_Neighbor_alltoall(&me, 1, MPI_INT, &r, 1, MPI_INT, graph);
	EQUAL(r, before);
	MPI_Comm_free(&graph);
	int *index = malloc(n * sizeof *index), *edges = malloc(n * sizeof *edges);
	for (int i = 0; i < n; i++)
		index[i] = i + 1, edges[i] = (i + 1) % n;
	MPI_Graph_create(W, n, index, edges, 0, &graph);
	MPI_Graph_neighbors_count(graph, me, &size);
	EQUAL(size, 1);
	MPI_Graph_neighbors(graph, me, 1, &r);
	EQUAL(r, next);
	MPI_Comm_free(&graph);
	free(index);
	free(edges);
	CLASS(MPI_Cart_coords(W, 0, 2, coords), MPI_ERR_TOPOLOGY);
}

static void windows(void) {
	MPI_Win w;
	int *mem, next = (me + 1) % n, before = (me + n - 1) % n, got = -1, one = 1, flag, *unit, *flavor;
	MPI_Aint *size, was_size;
	void *base;
	MPI_Win_allocate(4 * sizeof(int), sizeof(int), MPI_INFO_NULL, W, &mem, &w);
	for (int i = 0; i < 4; i++)
		mem[i] = 0;
	MPI_Win_fence(0, w);
	MPI_Put(&me, 1, MPI_INT, next, 1, 1, MPI_INT, w);
	MPI_Accumulate(&one, 1, MPI_INT, 0, 3, 1, MPI_INT, MPI_SUM, w);
	MPI_Win_fence(0, w);
	EQUAL(mem[1], before);
	EQUAL(mem[3], me == 0 ? n : 0);
	MPI_Get(&got, 1, MPI_INT, next, 1, 1, MPI_INT, w);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, w);
	EQUAL(got, me);
	MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, w);
	MPI_Fetch_and_op(&one, &got, MPI_INT, 0, 2, MPI_SUM, w);
	MPI_Win_unlock(0, w);
	CHECK(got >= 0 && got < n);
	MPI_Barrier(W);
	int zero = 0, other = 100 + me, was = -1;
	MPI_Win_lock_all(0, w);
	MPI_Compare_and_swap(&other, &zero, &was, MPI_INT, 0, 0, w);
	MPI_Win_flush_all(w);
	MPI_Win_unlock_all(w);
	int first = was == 0, firsts;
	MPI_Allreduce(&first, &firsts, 1, MPI_INT, MPI_SUM, W);
	EQUAL(firsts, 1);
	MPI_Win_get_attr(w, MPI_WIN_BASE, &base, &flag);
	CHECK(flag && base == mem);
	MPI_Win_get_attr(w, MPI_WIN_SIZE, &size, &flag);
	CHECK(flag && *size == 16);
	MPI_Win_get_attr(w, MPI_WIN_DISP_UNIT, &unit, &flag);
	MPI_Win_get_attr(w, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
	CHECK(*unit == 4 && *flavor == MPI_WIN_FLAVOR_ALLOCATE);
	MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN);
	CLASS(MPI_Put(&me, 1, MPI_INT, n, 1, 1, MPI_INT, w), MPI_ERR_RANK);
	CLASS(MPI_Win_lock(17, 0, 0, w), MPI_ERR_LOCKTYPE);
	MPI_Win_lock(MPI_LOCK_SHARED, next, 0, w);
	MPI_Get_accumulate(NULL, 0, MPI_DATATYPE_NULL, &got, 1, MPI_INT, next, 1, 1, MPI_INT, MPI_NO_OP, w);
	MPI_Win_unlock(next, w);
	EQUAL(got, me);
	// What no epoch allows, and what lies outside.
	CLASS(MPI_Win_unlock(next, w), MPI_ERR_RMA_SYNC);
	CLASS(MPI_Win_complete(w), MPI_ERR_RMA_SYNC);
	CLASS(MPI_Get(&got, 1, MPI_INT, next, 1, 1, MPI_INT, w), MPI_ERR_RMA_SYNC);
	MPI_Win_lock(MPI_LOCK_SHARED, next, 0, w);
	CLASS(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, w), MPI_ERR_RMA_SYNC);
	CLASS(MPI_Get(&got, 1, MPI_INT, next, 4, 1, MPI_INT, w), MPI_ERR_RMA_RANGE);
	MPI_Win open = w;
	CLASS(MPI_Win_free(&open), MPI_ERR_RMA_SYNC);
	MPI_Win_unlock(next, w);
	MPI_Win_shared_query(w, 0, &was_size, &flag, &base);
	CHECK(was_size == 0 && base == NULL); // it was not made by MPI_Win_allocate_shared
	MPI_Win stale = w;
	MPI_Win_free(&w);
	CHECK(w == MPI_WIN_NULL);
	CLASS(MPI_Win_fence(0, stale), MPI_ERR_WIN);
	// Memory of the program, and a group of ranks.
	int own[2] = {-1, -1};
	MPI_Group all, to, from;
	MPI_Win_create(own, sizeof own, 1, MPI_INFO_NULL, W, &w);
	MPI_Comm_group(W, &all);
	MPI_Group_incl(all, 1, &next, &to);
	MPI_Group_incl(all, 1, &before, &from);
	MPI_Win_post(from, 0, w);
	MPI_Win_start(to, 0, w);
	MPI_Put(&me, 1, MPI_INT, next, 4, 1, MPI_INT, w);
	MPI_Win_complete(w);
	MPI_Win_wait(w);
	EQUAL(own[1], before);
	MPI_Group_free(&all);
	MPI_Group_free(&to);
	MPI_Group_free(&from);
	MPI_Win_free(&w);
	int *shared, *theirs;
	MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, W, &shared, &w);
	MPI_Win_fence(0, w);
	*shared = 5 * me;
	MPI_Win_fence(0, w);
	MPI_Aint bytes;
	MPI_Win_shared_query(w, next, &bytes, &flag, &theirs);
	CHECK(*theirs == 5 * next && bytes == sizeof(int));
	MPI_Win_fence(0, w);
	MPI_Win_free(&w);
	CLASS(MPI_Win_create(NULL, 8, 1, MPI_INFO_NULL, MPI_COMM_NULL, &w), MPI_ERR_COMM);
}

static void dynamic(void) {
	MPI_Win w;
	MPI_Aint there[n], here;
	int room[4] = {-1}, none;
	MPI_Win_create_dynamic(MPI_INFO_NULL, W, &w);
	MPI_Win_set_errhandler(w, MPI_ERRORS_RETURN);
	EQUAL(MPI_Win_attach(w, room, sizeof room), MPI_SUCCESS);
	EQUAL(MPI_Win_attach(w, &none, 0), MPI_SUCCESS);
	CLASS(MPI_Win_attach(w, NULL, 8), MPI_ERR_BASE);
	MPI_Get_address(room, &here);
	MPI_Allgather(&here, 1, MPI_AINT, there, 1, MPI_AINT, W);
	MPI_Win_fence(0, w);
	MPI_Put(&me, 1, MPI_INT, (me + 1) % n, there[(me + 1) % n], 1, MPI_INT, w);
	MPI_Win_fence(0, w);
	EQUAL(room[0], (me + n - 1) % n);
	EQUAL(MPI_Win_detach(w, &none), MPI_SUCCESS);
	EQUAL(MPI_Win_detach(w, room), MPI_SUCCESS);
	CLASS(MPI_Win_detach(w, room), MPI_ERR_BASE);
	MPI_Win_free(&w);
}

static int queries, freed;

static int query(void *extra, MPI_Status *st) {
	queries++;
	MPI_Status_set_elements(st, MPI_INT, *(int *)extra);
	MPI_Status_set_cancelled(st, 0);
	st->MPI_SOURCE = 7;
	st->MPI_TAG = 8;
	return MPI_SUCCESS;
}

static int release(void *extra) {
	(void)extra;
	freed++;
	return MPI_SUCCESS;
}

static int cancels[2];

static int cancel(void *extra, int complete) {
	(void)extra;
	return ++cancels[complete] > 1 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void general(void) {
	int flag, count, items = 5, index, done[2];
	MPI_Request q, two[2];
	MPI_Status st, both[2];
	MPI_Grequest_start(query, release, cancel, &items, &q);
	MPI_Test(&q, &flag, &st);
	CHECK(!flag);
	CLASS(MPI_Cancel(&q), MPI_SUCCESS);
	CLASS(MPI_Cancel(&q), MPI_ERR_OTHER);
	MPI_Grequest_complete(q);
	CLASS(MPI_Cancel(&q), MPI_SUCCESS);
	CHECK(cancels[0] == 2 && cancels[1] == 1 && queries == 0);
	MPI_Wait(&q, &st);
	MPI_Get_count(&st, MPI_INT, &count);
	CHECK(count == 5 && st.MPI_SOURCE == 7 && st.MPI_TAG == 8 && queries == 1 && freed == 1);
	CLASS(MPI_Grequest_complete(MPI_REQUEST_NULL), MPI_ERR_REQUEST);
	st.MPI_ERROR = MPI_ERR_OTHER;
	MPI_Request_get_status_any(1, &q, &index, &flag, &st);
	CHECK(flag && index == MPI_UNDEFINED && st.MPI_ERROR == MPI_SUCCESS && st.MPI_SOURCE == MPI_ANY_SOURCE);
	// A message in four parts, twice.
	int out[8], in[8], next = (me + 1) % n, before = (me + n - 1) % n;
	MPI_Psend_init(out, 4, 2, MPI_INT, next, 6, W, MPI_INFO_NULL, &two[0]);
	MPI_Precv_init(in, 4, 2, MPI_INT, before, 6, W, MPI_INFO_NULL, &two[1]);
	for (int round = 0; round < 2; round++) {
		MPI_Startall(2, two);
		for (int i = 0; i < 8; i++)
			out[i] = 100 * me + i + round;
		MPI_Pready_range(1, 3, two[0]);
		MPI_Request_get_status_any(1, two, &index, &flag, &st); // the first part is missing
		CHECK(!flag);
		MPI_Pready(0, two[0]);
		MPI_Waitall(2, two, both);
		for (int i = 0; i < 8; i++)
			EQUAL(in[i], 100 * before + i + round);
	}
	MPI_Request_get_status_all(2, two, &flag, both);
	CHECK(flag);
	MPI_Request_get_status_some(2, two, &count, done, both);
	EQUAL(count, MPI_UNDEFINED);
	MPI_Request_free(&two[0]);
	MPI_Request_free(&two[1]);
}

static void infos(void) {
	MPI_Info a, b;
	char text[64];
	int flag, size = sizeof text, keys;
	MPI_Info_create(&a);
	MPI_Info_set(a, "file", "x");
	MPI_Info_set(a, "host", "here");
	MPI_Info_set(a, "file", "yy");
	MPI_Info_get_nkeys(a, &keys);
	EQUAL(keys, 2);
	MPI_Info_dup(a, &b);
	MPI_Info_delete(a, "file");
	MPI_Info_get_string(b, "file", &size, text, &flag);
	CHECK(flag && size == 3 && strcmp(text, "yy") == 0);
	MPI_Info_get_nthkey(b, 1, text);
	CHECK(strcmp(text, "host") == 0);
	MPI_Info_get_string(a, "file", &size, text, &flag);
	CHECK(!flag);
	CLASS(MPI_Info_delete(a, "file"), MPI_ERR_INFO_NOKEY);
	MPI_Info stale = a;
	MPI_Info_free(&a);
	MPI_Info_free(&b);
	CLASS(MPI_Info_set(stale, "a", "b"), MPI_ERR_INFO);
}

static int handled, handled_class;

static void handler(MPI_Comm *c, int *code, ...) {
	(void)c;
	handled++;
	MPI_Error_class(*code, &handled_class);
}

static void mistakes(void) {
	int v = 0, flag;
	MPI_Request q = MPI_REQUEST_NULL;
	MPI_Comm null = MPI_COMM_NULL, odd = (MPI_Comm)0x12345678;
	MPI_Datatype t = MPI_DATATYPE_NULL;
	CLASS(MPI_Send(&v, 1, MPI_INT, n, 0, W), MPI_ERR_RANK);
	CLASS(MPI_Send(&v, 1, MPI_INT, -2, 0, W), MPI_ERR_RANK);
	CLASS(MPI_Send(&v, 1, MPI_INT, MPI_ANY_SOURCE, 0, W), MPI_ERR_RANK);
	CLASS(MPI_Send(&v, 1, MPI_INT, 0, -1, W), MPI_ERR_TAG);
	CLASS(MPI_Send(&v, 1, MPI_INT, 0, MPI_ANY_TAG, W), MPI_ERR_TAG);
	CLASS(MPI_Send(&v, -1, MPI_INT, 0, 0, W), MPI_ERR_COUNT);
	CLASS(MPI_Send(NULL, 1, MPI_INT, 0, 0, W), MPI_ERR_BUFFER);
	CLASS(MPI_Send(&v, 1, t, 0, 0, W), MPI_ERR_TYPE);
	CLASS(MPI_Send(&v, 1, (MPI_Datatype)W, 0, 0, W), MPI_ERR_TYPE);
	CLASS(MPI_Send(&v, 1, MPI_INT, 0, 0, null), MPI_ERR_COMM);
	CLASS(MPI_Send(&v, 1, MPI_INT, 0, 0, odd), MPI_ERR_COMM);
	CLASS(MPI_Send(&v, 1, MPI_INT, 0, 0, NULL), MPI_ERR_COMM);
	CLASS(MPI_Comm_rank(null, &v), MPI_ERR_COMM);
	CLASS(MPI_Comm_rank(W, NULL), MPI_ERR_ARG);
	CLASS(MPI_Isend(&v, 1, MPI_INT, 0, 0, W, NULL), MPI_ERR_ARG);
	CLASS(MPI_Bcast(&v, 1, MPI_INT, n, W), MPI_ERR_ROOT);
	CLASS(MPI_Bcast(&v, 1, MPI_INT, -1, W), MPI_ERR_ROOT);
	CLASS(MPI_Allreduce(&v, &flag, 1, MPI_INT, MPI_OP_NULL, W), MPI_ERR_OP);
	CLASS(MPI_Allreduce(&v, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, W), MPI_ERR_BUFFER);
	CLASS(MPI_Type_free(&t), MPI_ERR_TYPE);
	t = MPI_INT;
	CLASS(MPI_Type_free(&t), MPI_ERR_TYPE);
	CLASS(MPI_Type_contiguous(-1, MPI_INT, &t), MPI_ERR_COUNT);
	CLASS(MPI_Type_vector(1, -1, 1, MPI_INT, &t), MPI_ERR_ARG);
	CLASS(MPI_Type_commit(NULL), MPI_ERR_ARG);
	CLASS(MPI_Start(&q), MPI_ERR_REQUEST);
	CLASS(MPI_Cancel(&q), MPI_ERR_REQUEST);
	q = (MPI_Request)0x28000123;
	CLASS(MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
	CLASS(MPI_Test(&q, &flag, MPI_STATUS_IGNORE), MPI_ERR_REQUEST);
	CLASS(MPI_Waitall(-1, &q, MPI_STATUSES_IGNORE), MPI_ERR_COUNT);
	MPI_Comm own = MPI_COMM_WORLD;
	CLASS(MPI_Comm_free(&own), MPI_ERR_COMM);
	CLASS(MPI_Comm_split(W, -5, 0, &own), MPI_ERR_ARG);
	CLASS(MPI_Group_size(MPI_GROUP_NULL, &v), MPI_ERR_GROUP);
	CLASS(MPI_Error_class(99999, &v), MPI_ERR_ARG);
	char port[MPI_MAX_PORT_NAME];
	CLASS(MPI_Open_port(MPI_INFO_NULL, port), MPI_ERR_UNSUPPORTED_OPERATION);
	// Too long a message.
	int two[2] = {1, 2};
	MPI_Irecv(&v, 1, MPI_INT, me, 0, W, &q);
	MPI_Send(two, 2, MPI_INT, me, 0, W);
	CLASS(MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
	// A handler of the program, and codes of its own.
	MPI_Errhandler h, was;
	MPI_Comm dup;
	MPI_Comm_dup(W, &dup);
	MPI_Comm_create_errhandler(handler, &h);
	MPI_Comm_set_errhandler(dup, h);
	MPI_Errhandler_free(&h);
	CHECK(h == MPI_ERRHANDLER_NULL);
	handled = 0;
	CLASS(MPI_Send(&v, 1, MPI_INT, n, 0, dup), MPI_ERR_RANK);
	EQUAL(handled, 1);
	EQUAL(handled_class, MPI_ERR_RANK);
	// Errors of a message and of a request go to their communicator's handler.
	MPI_Message message;
	MPI_Send(&v, 1, MPI_INT, me, 0, dup);
	MPI_Mprobe(me, 0, dup, &message, MPI_STATUS_IGNORE);
	CLASS(MPI_Mrecv(&v, -1, MPI_INT, &message, MPI_STATUS_IGNORE), MPI_ERR_COUNT);
	EQUAL(handled, 2);
	CLASS(MPI_Imrecv(&v, 0, MPI_INT, &message, &q), MPI_SUCCESS);
	CLASS(MPI_Wait(&q, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE);
	EQUAL(handled, 3);
	MPI_Recv_init(&v, 1, MPI_INT, me, 0, dup, &q);
	CLASS(MPI_Pready(0, q), MPI_ERR_REQUEST);
	EQUAL(handled, 4);
	MPI_Request_free(&q);
	handled = 1;
	// Those of no object go to the handler of MPI_COMM_SELF.
	void *mem;
	MPI_Errhandler old;
	MPI_Comm_create_errhandler(handler, &h);
	// Each call that gives a handler is to be freed.
	MPI_Errhandler once, again;
	MPI_Comm_get_errhandler(dup, &once);
	MPI_Comm_get_errhandler(dup, &again);
	EQUAL(MPI_Errhandler_free(&once), MPI_SUCCESS);
	EQUAL(MPI_Errhandler_free(&again), MPI_SUCCESS);
	CHECK(once == MPI_ERRHANDLER_NULL && again == MPI_ERRHANDLER_NULL);
	MPI_Comm_get_errhandler(MPI_COMM_SELF, &old);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, h);
	CLASS(MPI_Alloc_mem(-1, MPI_INFO_NULL, &mem), MPI_ERR_ARG);
	EQUAL(handled, 2);
	CLASS(MPI_Alloc_mem((MPI_Aint)1 << 60, MPI_INFO_NULL, &mem), MPI_ERR_NO_MEM);
	EQUAL(handled_class, MPI_ERR_NO_MEM);
	MPI_Comm_set_errhandler(MPI_COMM_SELF, old);
	MPI_Errhandler_free(&h);
	handled = 1;
	int class, code, len;
	char text[MPI_MAX_ERROR_STRING];
	MPI_Add_error_class(&class);
	MPI_Add_error_code(class, &code);
	CHECK(class > MPI_ERR_LASTCODE && code > class);
	MPI_Add_error_string(code, "mine");
	MPI_Error_string(code, text, &len);
	CHECK(strcmp(text, "mine") == 0);
	CLASS(MPI_Remove_error_class(class), MPI_ERR_ARG); // it has a code
	MPI_Comm_call_errhandler(dup, code);
	EQUAL(handled, 2);
	EQUAL(handled_class, class);
	CLASS(MPI_Remove_error_code(code), MPI_ERR_ARG); // it has a string
	MPI_Remove_error_string(code);
	CLASS(MPI_Remove_error_code(code), MPI_SUCCESS);
	CLASS(MPI_Remove_error_class(class), MPI_SUCCESS);
	CLASS(MPI_Error_class(code, &v), MPI_ERR_ARG);
	MPI_Comm_get_errhandler(W, &was);
	CHECK(was == MPI_ERRORS_RETURN);
	MPI_Comm_free(&dup);
}

static void many(void) {
	enum { K = 3000 };
	static MPI_Request q[2 * K];
	static int in[K], out[K];
	for (int i = 0; i < K; i++) {
		out[i] = i;
		MPI_Irecv(&in[i], 1, MPI_INT, (me + n - 1) % n, 5, W, &q[i]);
	}
	for (int i = 0; i < K; i++)
		MPI_Isend(&out[i], 1, MPI_INT, (me + 1) % n, 5, W, &q[K + i]);
	MPI_Waitall(2 * K, q, MPI_STATUSES_IGNORE);
	for (int i = 0; i < K; i++)
		if (in[i] != i) {
			EQUAL(in[i], i);
			break;
		}
}

// steady makes many calls of those that programs make most, of which none may allocate: abi_test.go looks at Go's collector.
static void steady(void) {
	int next = (me + 1) % n, before = (me + n - 1) % n, in, sum, flag;
	double a[64] = {0}, b[64];
	MPI_Request q[2];
	MPI_Status st[2];
	for (int i = 0; i < 20000; i++) {
		MPI_Irecv(&in, 1, MPI_INT, before, 1, W, &q[0]);
		MPI_Isend(&i, 1, MPI_INT, next, 1, W, &q[1]);
		MPI_Waitall(2, q, st);
		EQUAL(in, i);
		MPI_Sendrecv(a, 64, MPI_DOUBLE, next, 2, b, 64, MPI_DOUBLE, before, 2, W, st);
		MPI_Get_count(st, MPI_DOUBLE, &in);
		MPI_Allreduce(&me, &sum, 1, MPI_INT, MPI_SUM, W);
		MPI_Bcast(&in, 1, MPI_INT, 0, W);
		MPI_Iprobe(MPI_ANY_SOURCE, 9, W, &flag, MPI_STATUS_IGNORE);
		MPI_Irecv(&in, 1, MPI_INT, before, 3, W, &q[0]);
		MPI_Send(&i, 1, MPI_INT, next, 3, W);
		for (flag = 0; !flag;)
			MPI_Test(&q[0], &flag, st);
	}
}

static const struct one cases[] = {
	{"environment", environment}, {"ring", ring}, {"modes", modes}, {"buffers", buffers}, {"tools", tools}, {"several", several}, {"lengths", lengths}, {"types", types}, {"wides", wides}, {"external", external},
#ifdef MPI_ABI_VERSION
	{"fortran", fortran},
#endif
	{"reductions", reductions}, {"operations", operations}, {"collectives", collectives}, {"communicators", communicators}, {"freeing", freeing},
	{"attributes", attributes}, {"topologies", topologies}, {"windows", windows}, {"dynamic", dynamic}, {"general", general}, {"infos", infos}, {"mistakes", mistakes}, {"many", many},
};

static volatile int ticks;

// tick needs 64 KiB of whatever stack it runs on.
static void tick(int signal) {
	volatile char room[64 << 10];
	(void)signal;
	for (unsigned i = 0; i < sizeof room; i += 512)
		room[i] = 1;
	ticks++;
}

// interrupted makes calls while signals come, whose handler is not for an alternate stack.
static void interrupted(void) {
	struct sigaction a = {.sa_handler = tick, .sa_flags = SA_RESTART};
	struct itimerval t = {{0, 1000}, {0, 1000}};
	sigaction(SIGPROF, &a, NULL);
	setitimer(ITIMER_PROF, &t, NULL);
	for (int v = 0; ticks < 200;)
		MPI_Sendrecv_replace(&v, 1, MPI_INT, 0, 0, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
	printf("200 signals\n");
	fflush(stdout);
	exit(3);
}

static void leave(int signal) {
	(void)signal;
	exit(9);
}

// end does one of the things that end a job.
static void end(const char *how) {
	if (strcmp(how, "before") == 0)
		MPI_Barrier(MPI_COMM_WORLD);
	MPI_Init(NULL, NULL);
	if (strcmp(how, "twice") == 0)
		MPI_Init(NULL, NULL);
	if (strcmp(how, "signals") == 0)
		interrupted();
	if (strcmp(how, "handler") == 0) {
		signal(SIGPROF, leave);
		struct itimerval t = {{0, 1000}, {0, 1000}};
		setitimer(ITIMER_PROF, &t, NULL);
		for (int v = 0;;)
			MPI_Sendrecv_replace(&v, 1, MPI_INT, 0, 0, 0, 0, MPI_COMM_SELF, MPI_STATUS_IGNORE);
	}
	if (strcmp(how, "fork") == 0) {
		int status = 0;
		if (fork() == 0)
			MPI_Barrier(MPI_COMM_WORLD);
		wait(&status);
		MPI_Finalize();
		exit(WEXITSTATUS(status) + 4);
	}
	if (strcmp(how, "missing") == 0)
		MPI_Close_port("");
	if (strcmp(how, "fatal") == 0)
		MPI_Send(NULL, 0, MPI_INT, 99, 0, MPI_COMM_WORLD);
	if (strcmp(how, "abort") == 0)
		MPI_Abort(MPI_COMM_WORLD, 7);
	if (strcmp(how, "segfault") == 0)
		*(volatile int *)8 = 1;
	MPI_Comm kept;
	MPI_Comm_dup(MPI_COMM_WORLD, &kept);
	MPI_Finalize();
	if (strcmp(how, "later") == 0)
		MPI_Comm_rank(kept, &me);
	MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv) {
	if (argc > 1 && strcmp(argv[1], "steady") != 0)
		end(argv[1]);
	MPI_Init(&argc, &argv);
	W = MPI_COMM_WORLD;
	MPI_Comm_rank(W, &me);
	MPI_Comm_size(W, &n);
	MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);
	if (argc > 1 && strcmp(argv[1], "steady") == 0) {
		name = "steady";
		steady();
		MPI_Finalize();
		return failures != 0;
	}
	int all = run_all(cases, sizeof cases / sizeof cases[0]);
	MPI_Finalize();
	return all != 0;
}
