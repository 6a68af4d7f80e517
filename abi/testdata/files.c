// Cases of files, in the directory that is the argument.
#define _GNU_SOURCE
#include "cases.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096];
enum { RW = MPI_MODE_RDWR | MPI_MODE_CREATE };

static MPI_File opened(int mode) {
	MPI_File f = MPI_FILE_NULL;
	EQUAL(MPI_File_open(W, path, mode, MPI_INFO_NULL, &f), MPI_SUCCESS);
	CHECK(f != MPI_FILE_NULL);
	return f;
}

static void closed(MPI_File f) {
	EQUAL(MPI_File_close(&f), MPI_SUCCESS);
	CHECK(f == MPI_FILE_NULL);
}

// gone has the file not be there, for all ranks.
static void gone(void) {
	MPI_Barrier(W);
	if (me == 0)
		unlink(path);
	MPI_Barrier(W);
}

static int count_of(MPI_Status *st, MPI_Datatype t) {
	int count = -1;
	MPI_Get_count(st, t, &count);
	return count;
}

static long long size_of(MPI_File f) {
	MPI_Offset size = -1;
	EQUAL(MPI_File_get_size(f, &size), MPI_SUCCESS);
	return size;
}

static void opens(void) {
	MPI_File f = NULL, old;
	gone();
	CLASS(MPI_File_open(W, path, MPI_MODE_RDONLY, MPI_INFO_NULL, &f), MPI_ERR_NO_SUCH_FILE);
	CHECK(f == MPI_FILE_NULL);
	CLASS(MPI_File_open(W, path, MPI_MODE_CREATE, MPI_INFO_NULL, &f), MPI_ERR_AMODE);
	CLASS(MPI_File_open(W, path, MPI_MODE_RDONLY | RW, MPI_INFO_NULL, &f), MPI_ERR_AMODE);
	CLASS(MPI_File_open(W, path, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &f), MPI_ERR_AMODE);
	CLASS(MPI_File_open(W, path, RW | MPI_MODE_SEQUENTIAL, MPI_INFO_NULL, &f), MPI_ERR_AMODE);
	CLASS(MPI_File_open(W, path, RW | 1 << 20, MPI_INFO_NULL, &f), MPI_ERR_AMODE);
	CLASS(MPI_File_open(W, "", RW, MPI_INFO_NULL, &f), MPI_ERR_BAD_FILE);
	CLASS(MPI_File_open(W, "/dev/null/x", RW, MPI_INFO_NULL, &f), MPI_ERR_BAD_FILE);
	CLASS(MPI_File_open(W, "/dev", MPI_MODE_RDWR, MPI_INFO_NULL, &f), MPI_ERR_BAD_FILE);
	CLASS(MPI_File_open(MPI_COMM_NULL, path, RW, MPI_INFO_NULL, &f), MPI_ERR_COMM);
	CLASS(MPI_File_open(W, path, RW, MPI_INFO_NULL, NULL), MPI_ERR_ARG);
	CLASS(MPI_File_delete(path, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
	if (n > 1)
		CLASS(MPI_File_open(W, path, me ? RW : RW | MPI_MODE_EXCL, MPI_INFO_NULL, &f), MPI_ERR_NOT_SAME);
	// One rank cannot open it: none does.
	CLASS(MPI_File_open(W, me == n - 1 ? "/dev/null/x" : path, RW, MPI_INFO_NULL, &f), MPI_ERR_BAD_FILE);

	gone();
	f = opened(RW | MPI_MODE_EXCL);
	CHECK(MPI_File_fromint(MPI_File_toint(f)) == f);
	CLASS(MPI_File_open(W, path, RW | MPI_MODE_EXCL, MPI_INFO_NULL, &old), MPI_ERR_FILE_EXISTS);
	int mode, size, same;
	MPI_Group g, all;
	MPI_File_get_amode(f, &mode);
	EQUAL(mode, RW | MPI_MODE_EXCL);
	MPI_File_get_group(f, &g);
	MPI_Comm_group(W, &all);
	MPI_Group_size(g, &size);
	EQUAL(size, n);
	MPI_Group_compare(g, all, &same);
	EQUAL(same, MPI_IDENT);
	MPI_Group_free(&g);
	MPI_Group_free(&all);

	EQUAL(size_of(f), 0);
	EQUAL(MPI_File_set_size(f, 1000), MPI_SUCCESS);
	EQUAL(size_of(f), 1000);
	EQUAL(MPI_File_preallocate(f, 5000), MPI_SUCCESS);
	EQUAL(size_of(f), 5000);
	EQUAL(MPI_File_preallocate(f, 10), MPI_SUCCESS);
	EQUAL(MPI_File_set_size(f, 77), MPI_SUCCESS);
	EQUAL(MPI_File_sync(f), MPI_SUCCESS);
	EQUAL(size_of(f), 77);
	CLASS(MPI_File_set_size(f, -1), MPI_ERR_ARG);
	if (n > 1)
		CLASS(MPI_File_set_size(f, me), MPI_ERR_NOT_SAME);
	CLASS(MPI_File_get_size(f, NULL), MPI_ERR_ARG);

	MPI_Info info, used;
	char value[64];
	int flag;
	MPI_Info_create(&info);
	MPI_Info_set(info, "cb_nodes", "3");
	MPI_Info_set(info, "no such hint", "1");
	EQUAL(MPI_File_set_info(f, info), MPI_SUCCESS);
	EQUAL(MPI_File_get_info(f, &used), MPI_SUCCESS);
	MPI_Info_get(used, "cb_nodes", 63, value, &flag);
	CHECK(flag && strcmp(value, "3") == 0);
	MPI_Info_get(used, "no such hint", 63, value, &flag);
	CHECK(!flag);
	MPI_Info_free(&used);
	MPI_Info_free(&info);

	// A handle that was closed is none.
	old = f;
	closed(f);
	CLASS(MPI_File_sync(old), MPI_ERR_FILE);
	CLASS(MPI_File_close(&old), MPI_ERR_FILE);
	CLASS(MPI_File_get_size(MPI_FILE_NULL, NULL), MPI_ERR_FILE);
	CLASS(MPI_File_get_size((MPI_File)W, NULL), MPI_ERR_FILE);

	f = opened(MPI_MODE_RDONLY);
	CLASS(MPI_File_set_size(f, 3), MPI_ERR_READ_ONLY);
	CLASS(MPI_File_preallocate(f, 3), MPI_ERR_READ_ONLY);
	EQUAL(MPI_File_sync(f), MPI_SUCCESS);
	closed(f);
	MPI_Offset at = -1;
	f = opened(MPI_MODE_WRONLY | MPI_MODE_APPEND);
	MPI_File_get_position(f, &at);
	EQUAL(at, 77);
	MPI_File_get_position_shared(f, &at);
	EQUAL(at, 77);
	closed(f);
	f = opened(MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE | MPI_MODE_UNIQUE_OPEN);
	closed(f);
	CHECK(access(path, F_OK) != 0);
	MPI_Barrier(W);
}

static int handled;
static MPI_File handled_file;

static void handler(MPI_File *f, int *code, ...) {
	handled++;
	handled_file = *f;
	*code = MPI_ERR_OTHER;
}

static void handlers(void) {
	MPI_Errhandler h, got;
	MPI_File f, none;
	char v = 0;
	handled = 0;
	MPI_File_get_errhandler(MPI_FILE_NULL, &got);
	CHECK(got == MPI_ERRORS_RETURN);
	MPI_File_create_errhandler(handler, &h);
	f = opened(RW);
	MPI_File_get_errhandler(f, &got);
	CHECK(got == MPI_ERRORS_RETURN);
	EQUAL(MPI_File_set_errhandler(f, h), MPI_SUCCESS);
	MPI_File_get_errhandler(f, &got);
	CHECK(got == h);
	EQUAL(MPI_File_read_at(f, -1, &v, 1, MPI_CHAR, MPI_STATUS_IGNORE), MPI_ERR_OTHER);
	EQUAL(handled, 1);
	CHECK(handled_file == f);
	MPI_File_call_errhandler(f, MPI_ERR_IO);
	EQUAL(handled, 2);
	closed(f);
	// Files begin with the handler of MPI_FILE_NULL, which has the errors of no file.
	MPI_File_set_errhandler(MPI_FILE_NULL, h);
	EQUAL(MPI_File_open(W, "/dev/null/x", RW, MPI_INFO_NULL, &none), MPI_ERR_OTHER);
	EQUAL(handled, 3);
	CHECK(handled_file == MPI_FILE_NULL);
	f = opened(RW);
	MPI_File_get_errhandler(f, &got);
	CHECK(got == h);
	MPI_Errhandler_free(&h);
	MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
	closed(f);
	CLASS(MPI_File_set_errhandler((MPI_File)W, MPI_ERRORS_RETURN), MPI_ERR_FILE);
	gone();
}

static void views(void) {
	enum { K = 50 };
	int out[2 * K], in[2 * K];
	MPI_Datatype mine, tile, t, pairs, bad;
	MPI_Offset at, disp;
	MPI_Status st;
	MPI_Aint extent;
	char rep[MPI_MAX_DATAREP_STRING];
	MPI_File f = opened(RW);
	// Rank me has the items me, n + me, 2n + me ..., behind a header of 12 bytes.
	MPI_Type_create_resized(MPI_INT, 0, n * (int)sizeof(int), &tile);
	MPI_Type_commit(&tile);
	EQUAL(MPI_File_set_view(f, 12 + 4 * me, MPI_INT, tile, "native", MPI_INFO_NULL), MPI_SUCCESS);
	for (int i = 0; i < K; i++)
		out[i] = 1000 * me + i;
	EQUAL(MPI_File_write_all(f, out, K, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), K);
	MPI_File_get_position(f, &at);
	EQUAL(at, K);
	MPI_File_get_byte_offset(f, 3, &at);
	EQUAL(at, 12 + 4 * (me + 3 * n));
	MPI_File_get_view(f, &disp, &t, &mine, rep);
	EQUAL(disp, 12 + 4 * me);
	CHECK(t == MPI_INT && mine != MPI_INT && strcmp(rep, "native") == 0);
	MPI_Type_get_extent(mine, &disp, &extent);
	EQUAL(extent, 4 * n);
	MPI_Type_free(&mine);
	MPI_Type_free(&tile); // the view goes on having it
	MPI_File_sync(f);
	MPI_Barrier(W);
	EQUAL(size_of(f), 12 + 4 * n * K);
	EQUAL(MPI_File_seek(f, -2, MPI_SEEK_END), MPI_SUCCESS);
	EQUAL(MPI_File_read(f, in, 5, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), 2);
	EQUAL(in[0], out[K - 2]);
	EQUAL(in[1], out[K - 1]);
	MPI_File_get_position(f, &at);
	EQUAL(at, K + 3); // moved on by what was asked for
	EQUAL(MPI_File_seek(f, -K - 3, MPI_SEEK_CUR), MPI_SUCCESS);
	// Every other int of memory.
	MPI_Type_vector(K, 1, 2, MPI_INT, &pairs);
	MPI_Type_commit(&pairs);
	memset(in, -1, sizeof in);
	EQUAL(MPI_File_read_all(f, in, 1, pairs, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, pairs), 1);
	for (int i = 0; i < K; i++) {
		EQUAL(in[2 * i], out[i]);
		EQUAL(in[2 * i + 1], -1);
	}
	CLASS(MPI_File_seek(f, -1, MPI_SEEK_SET), MPI_ERR_ARG);
	CLASS(MPI_File_seek(f, 0, 9), MPI_ERR_ARG);
	CLASS(MPI_File_read_at(f, 0, in, 1, MPI_CHAR, &st), MPI_ERR_ARG); // no etype
	MPI_File_get_type_extent(f, pairs, &extent);
	EQUAL(extent, 4 * (2 * K - 1));

	// All of it, as it lies in the file.
	EQUAL(MPI_File_set_view(f, 12, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_SUCCESS);
	for (int i = 0; i < n * K; i += K) {
		EQUAL(MPI_File_read(f, in, K, MPI_INT, &st), MPI_SUCCESS);
		for (int j = 0; j < K; j++)
			EQUAL(in[j], 1000 * ((i + j) % n) + (i + j) / n);
	}
	EQUAL(MPI_File_read(f, in, K, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), 0);

	// Columns of a matrix of 6 rows, a pair of columns each.
	int sizes[] = {6, 2 * n}, part[] = {6, 2}, start[] = {0, 2 * me};
	MPI_Type_create_subarray(2, sizes, part, start, MPI_ORDER_C, MPI_SHORT, &tile);
	CLASS(MPI_File_set_view(f, 0, MPI_SHORT, tile, "native", MPI_INFO_NULL), MPI_ERR_TYPE); // not committed
	MPI_Type_commit(&tile);
	EQUAL(MPI_File_set_view(f, 8, MPI_SHORT, tile, "internal", MPI_INFO_NULL), MPI_SUCCESS);
	short s[12], r[12];
	for (int i = 0; i < 12; i++)
		s[i] = 100 * me + i;
	EQUAL(MPI_File_write_at_all(f, 12, s, 12, MPI_SHORT, &st), MPI_SUCCESS); // the second matrix
	EQUAL(MPI_File_read_at_all(f, 12, r, 12, MPI_SHORT, &st), MPI_SUCCESS);
	CHECK(memcmp(r, s, sizeof s) == 0);
	EQUAL(MPI_File_read_at(f, 13, r, 3, MPI_SHORT, &st), MPI_SUCCESS);
	CHECK(memcmp(r, s + 1, 3 * sizeof *s) == 0);
	MPI_Type_free(&tile);

	CLASS(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "external64", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
	CLASS(MPI_File_set_view(f, -5, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
	CLASS(MPI_File_set_view(f, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
	CLASS(MPI_File_set_view(f, 0, MPI_INT, MPI_SHORT, "native", MPI_INFO_NULL), MPI_ERR_IO);
	int lengths[] = {1, 1}, down[] = {1, 0};
	MPI_Type_indexed(2, lengths, down, MPI_INT, &bad);
	MPI_Type_commit(&bad);
	CLASS(MPI_File_set_view(f, 0, MPI_INT, bad, "native", MPI_INFO_NULL), MPI_ERR_IO);
	MPI_Type_free(&bad);
	// Places that no file has.
	MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)1 << 50, &bad);
	MPI_Type_commit(&bad);
	EQUAL(MPI_File_set_view(f, 0, MPI_INT, bad, "native", MPI_INFO_NULL), MPI_SUCCESS);
	CLASS(MPI_File_write_at(f, 1 << 14, in, 1, MPI_INT, &st), MPI_ERR_ARG);
	CLASS(MPI_File_read_at(f, (MPI_Offset)1 << 60, in, 1, MPI_INT, &st), MPI_ERR_ARG);
	MPI_Type_free(&bad);
	MPI_Type_free(&pairs);
	closed(f);
	gone();
}

static void offsets(void) {
	struct {
		double d;
		int i;
	} two[3] = {{1.5, 1}, {2.5, 2}, {3.5, 3}}, got[3];
	char v = 'a' + me, c[4] = "....";
	int count;
	MPI_Status st;
	MPI_Count large;
	MPI_Datatype pair, whole;
	MPI_File f = opened(RW);
	EQUAL(MPI_File_write_at(f, me, &v, 1, MPI_CHAR, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_CHAR), 1);
	EQUAL(MPI_File_write_at(f, 5, NULL, 0, MPI_CHAR, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_CHAR), 0);
	MPI_File_sync(f);
	MPI_Barrier(W);
	for (int i = 0; i < n; i++) {
		EQUAL(MPI_File_read_at(f, i, c, 1, MPI_CHAR, &st), MPI_SUCCESS);
		EQUAL(c[0], 'a' + i);
	}
	CLASS(MPI_File_read_at(f, -1, c, 1, MPI_CHAR, &st), MPI_ERR_ARG);
	CLASS(MPI_File_read_at(f, 0, c, -1, MPI_CHAR, &st), MPI_ERR_COUNT);
	CLASS(MPI_File_read_at(f, 0, NULL, 1, MPI_CHAR, &st), MPI_ERR_BUFFER);
	CLASS(MPI_File_read_at(f, 0, c, 1, MPI_DATATYPE_NULL, &st), MPI_ERR_TYPE);
	CLASS(MPI_File_read_at(MPI_FILE_NULL, 0, c, 1, MPI_CHAR, &st), MPI_ERR_FILE);
	// A type with padding: its data alone, 12 bytes an item, and half of an item at the end.
	int lengths[] = {1, 1};
	MPI_Aint places[] = {0, 8};
	MPI_Datatype parts[] = {MPI_DOUBLE, MPI_INT};
	MPI_Type_create_struct(2, lengths, places, parts, &pair);
	MPI_Type_create_resized(pair, 0, sizeof two[0], &whole);
	MPI_Type_commit(&whole);
	MPI_Offset base = 100 + 1000 * me;
	EQUAL(MPI_File_write_at_c(f, base, two, 3, whole, &st), MPI_SUCCESS);
	MPI_Get_count_c(&st, whole, &large);
	EQUAL(large, 3);
	MPI_Barrier(W);
	if (me == n - 1) {
		EQUAL(size_of(f), base + 36);
		EQUAL(MPI_File_read_at(f, base + 4, got, 3, whole, &st), MPI_SUCCESS);
		EQUAL(count_of(&st, whole), MPI_UNDEFINED);
		EQUAL(MPI_File_read_at(f, base + 12, got, 3, whole, &st), MPI_SUCCESS);
		EQUAL(count_of(&st, whole), 2);
		CHECK(got[0].d == 2.5 && got[0].i == 2 && got[1].d == 3.5 && got[1].i == 3);
		EQUAL(MPI_File_read_at(f, base + 16, got, 1, MPI_DOUBLE, &st), MPI_SUCCESS);
		EQUAL(MPI_File_read_at(f, base + 24, got, 3, whole, &st), MPI_SUCCESS);
		MPI_Get_elements(&st, whole, &count);
		EQUAL(count, 2);
	}
	MPI_Barrier(W);
	// Beyond 4 GiB, sparse.
	MPI_Offset far = (5LL << 30) + 4 * me;
	EQUAL(MPI_File_write_at(f, far, &me, 1, MPI_INT, &st), MPI_SUCCESS);
	count = -1;
	EQUAL(MPI_File_read_at(f, far, &count, 1, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count, me);
	MPI_Barrier(W);
	EQUAL(size_of(f), (5LL << 30) + 4 * n);
	MPI_Type_free(&pair);
	MPI_Type_free(&whole);
	closed(f);
	f = opened(MPI_MODE_RDONLY);
	CLASS(MPI_File_write_at(f, 0, c, 1, MPI_CHAR, &st), MPI_ERR_READ_ONLY);
	closed(f);
	f = opened(MPI_MODE_WRONLY);
	CLASS(MPI_File_read_at(f, 0, c, 1, MPI_CHAR, &st), MPI_ERR_ACCESS);
	closed(f);
	gone();
}

// parts has memory in more parts than one call of the system takes, and a file in runs.
static void parts(void) {
	enum { K = 5000 };
	static short out[3 * K], in[3 * K];
	MPI_Datatype from, tile;
	MPI_Status st;
	MPI_File f = opened(RW);
	MPI_Type_vector(K, 1, 3, MPI_SHORT, &from);
	MPI_Type_commit(&from);
	MPI_Type_vector(2, 700, 700 * n, MPI_SHORT, &tile);
	MPI_Type_create_resized(tile, 0, 2 * 2 * 700 * n, &tile);
	MPI_Type_commit(&tile);
	for (int i = 0; i < 3 * K; i++)
		out[i] = i + me, in[i] = -1;
	EQUAL(MPI_File_set_view(f, 1400 * me, MPI_SHORT, tile, "native", MPI_INFO_NULL), MPI_SUCCESS);
	EQUAL(MPI_File_write_all(f, out, 1, from, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_SHORT), K);
	MPI_File_seek(f, 0, MPI_SEEK_SET);
	EQUAL(MPI_File_read_all(f, in, 1, from, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_SHORT), K);
	int wrong = 0;
	for (int i = 0; i < 3 * K; i++)
		wrong += in[i] != (i % 3 ? -1 : out[i]);
	EQUAL(wrong, 0);
	// As other runs: solid memory.
	EQUAL(MPI_File_read_at(f, 0, in, K, MPI_SHORT, &st), MPI_SUCCESS);
	for (int i = 0; i < K; i++)
		wrong += in[i] != out[3 * i];
	EQUAL(wrong, 0);
	MPI_Type_free(&from);
	MPI_Type_free(&tile);
	closed(f);
	gone();
}

static void later(void) {
	enum { K = 8 };
	int out[K], in[K], flag, index;
	MPI_Request q[K], one;
	MPI_Status st[K];
	MPI_File f = opened(RW);
	MPI_File_set_view(f, 4 * K * me, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
	for (int i = 0; i < K; i++) {
		out[i] = 100 * me + i;
		EQUAL(MPI_File_iwrite_at(f, i, &out[i], 1, MPI_INT, &q[i]), MPI_SUCCESS);
	}
	EQUAL(MPI_Waitall(K, q, st), MPI_SUCCESS);
	for (int i = 0; i < K; i++) {
		EQUAL(count_of(&st[i], MPI_INT), 1);
		CHECK(q[i] == MPI_REQUEST_NULL);
	}
	for (int i = 0; i < K; i++)
		EQUAL(MPI_File_iread(f, &in[i], 1, MPI_INT, &q[i]), MPI_SUCCESS);
	for (int i = 0; i < K; i++) {
		EQUAL(MPI_Waitany(K, q, &index, st), MPI_SUCCESS);
		EQUAL(in[index], out[index]);
	}
	in[0] = -1;
	EQUAL(MPI_File_iread_at_all(f, 0, in, K, MPI_INT, &one), MPI_SUCCESS);
	for (flag = 0; !flag;)
		EQUAL(MPI_Test(&one, &flag, st), MPI_SUCCESS);
	EQUAL(count_of(st, MPI_INT), K);
	CHECK(memcmp(in, out, sizeof in) == 0);
	MPI_File_seek(f, K, MPI_SEEK_SET);
	MPI_Barrier(W);
	EQUAL(MPI_File_iread_all(f, in, K, MPI_INT, &one), MPI_SUCCESS); // the next rank's
	EQUAL(MPI_Wait(&one, st), MPI_SUCCESS);
	EQUAL(count_of(st, MPI_INT), me == n - 1 ? 0 : K);
	if (me < n - 1)
		EQUAL(in[3], 100 * (me + 1) + 3);
	MPI_Barrier(W);
	MPI_File_seek(f, 0, MPI_SEEK_SET);
	EQUAL(MPI_File_iwrite_all(f, in, 1, MPI_INT, &one), MPI_SUCCESS);
	EQUAL(MPI_Wait(&one, st), MPI_SUCCESS);
	MPI_File_seek(f, K * (n - me) + me, MPI_SEEK_SET); // behind all of it
	EQUAL(MPI_File_iwrite(f, out, 1, MPI_INT, &one), MPI_SUCCESS);
	MPI_Request_free(&one); // MPI_File_close waits for it
	EQUAL(MPI_File_iwrite_at_all(f, 2, out, 1, MPI_INT, &one), MPI_SUCCESS);
	EQUAL(MPI_Wait(&one, MPI_STATUS_IGNORE), MPI_SUCCESS);
	CLASS(MPI_File_iread_at(f, -1, in, 1, MPI_INT, &one), MPI_ERR_ARG);
	CLASS(MPI_File_iread_at(f, 0, in, 1, MPI_INT, NULL), MPI_ERR_ARG);

	// Split ones.
	EQUAL(MPI_File_write_at_all_begin(f, 0, out, K, MPI_INT), MPI_SUCCESS);
	CLASS(MPI_File_read_all_begin(f, in, K, MPI_INT), MPI_ERR_OTHER);
	CLASS(MPI_File_read_all_end(f, in, st), MPI_ERR_OTHER);
	EQUAL(MPI_File_write_at_all_end(f, out, st), MPI_SUCCESS);
	EQUAL(count_of(st, MPI_INT), K);
	CLASS(MPI_File_write_at_all_end(f, out, st), MPI_ERR_OTHER);
	MPI_File_seek(f, 0, MPI_SEEK_SET);
	memset(in, 0, sizeof in);
	EQUAL(MPI_File_read_all_begin(f, in, K, MPI_INT), MPI_SUCCESS);
	EQUAL(MPI_File_read_all_end(f, in, st), MPI_SUCCESS);
	CHECK(memcmp(in, out, sizeof in) == 0);
	EQUAL(MPI_File_read_at_all_begin(f, 1, in, 1, MPI_INT), MPI_SUCCESS);
	EQUAL(MPI_File_read_at_all_end(f, in, MPI_STATUS_IGNORE), MPI_SUCCESS);
	EQUAL(in[0], out[1]);
	closed(f);
	f = opened(MPI_MODE_RDONLY);
	EQUAL(MPI_File_read_at(f, 4 * (K * n + me), in, 1, MPI_INT, st), MPI_SUCCESS);
	EQUAL(in[0], out[0]);
	closed(f);
	gone();
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void shared(void) {
	enum { K = 20, MOST = 64 };
	int in[K * MOST];
	MPI_Offset at;
	MPI_Status st;
	MPI_Request q;
	MPI_File f = opened(RW);
	MPI_File_set_view(f, 8, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
	// Records of all ranks, each whole and once, in whatever order.
	for (int i = 0; i < K; i++) {
		int v = 1000 * me + i;
		if (i % 2)
			EQUAL(MPI_File_write_shared(f, &v, 1, MPI_INT, &st), MPI_SUCCESS);
		else {
			EQUAL(MPI_File_iwrite_shared(f, &v, 1, MPI_INT, &q), MPI_SUCCESS);
			EQUAL(MPI_Wait(&q, &st), MPI_SUCCESS);
		}
		EQUAL(count_of(&st, MPI_INT), 1);
	}
	MPI_File_sync(f);
	MPI_Barrier(W);
	MPI_File_get_position_shared(f, &at);
	EQUAL(at, K * n);
	EQUAL(MPI_File_read_at(f, 0, in, K * n + 5, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), K * n);
	qsort(in, K * n, sizeof in[0], ascending);
	for (int i = 0; i < K * n; i++)
		EQUAL(in[i], 1000 * (i / K) + i % K);
	// In the ranks' order: rank r has r + 1 items.
	EQUAL(MPI_File_seek_shared(f, 3, MPI_SEEK_SET), MPI_SUCCESS);
	int out[MOST], mine[MOST], sum = n * (n + 1) / 2;
	for (int i = 0; i <= me; i++)
		out[i] = 10 * me + i;
	EQUAL(MPI_File_write_ordered(f, out, me + 1, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), me + 1);
	EQUAL(MPI_File_write_ordered_begin(f, out, me + 1, MPI_INT), MPI_SUCCESS);
	EQUAL(MPI_File_write_ordered_end(f, out, &st), MPI_SUCCESS);
	MPI_File_get_position_shared(f, &at);
	MPI_Barrier(W);
	EQUAL(at, 3 + 2 * sum);
	EQUAL(MPI_File_seek_shared(f, -2 * sum, MPI_SEEK_CUR), MPI_SUCCESS);
	EQUAL(MPI_File_read_at(f, 3, in, 2 * sum, MPI_INT, &st), MPI_SUCCESS);
	for (int r = 0, k = 0; r < n; r++)
		for (int i = 0; i <= r; i++, k++) {
			EQUAL(in[k], 10 * r + i);
			EQUAL(in[sum + k], 10 * r + i);
		}
	EQUAL(MPI_File_read_ordered(f, mine, me + 1, MPI_INT, &st), MPI_SUCCESS);
	CHECK(memcmp(mine, out, (me + 1) * sizeof(int)) == 0);
	EQUAL(MPI_File_read_ordered_begin(f, mine, me + 1, MPI_INT), MPI_SUCCESS);
	EQUAL(MPI_File_read_ordered_end(f, mine, &st), MPI_SUCCESS);
	CHECK(memcmp(mine, out, (me + 1) * sizeof(int)) == 0);
	EQUAL(MPI_File_seek_shared(f, -n, MPI_SEEK_END), MPI_SUCCESS);
	EQUAL(MPI_File_read_shared(f, mine, 1, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), 1);
	MPI_Barrier(W);
	EQUAL(MPI_File_iread_shared(f, mine, 1, MPI_INT, &q), MPI_SUCCESS);
	EQUAL(MPI_Wait(&q, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_INT), 0); // the end
	CLASS(MPI_File_seek_shared(f, -1, MPI_SEEK_SET), MPI_ERR_ARG);
	if (n > 1)
		CLASS(MPI_File_seek_shared(f, me, MPI_SEEK_SET), MPI_ERR_NOT_SAME);
	// A rank that has a mistake keeps the others from nothing.
	CLASS(MPI_File_write_ordered(f, out, me ? 1 : -1, MPI_INT, &st), me ? MPI_SUCCESS : MPI_ERR_COUNT);
	closed(f);
	gone();
	// One after another only.
	f = opened(MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_SEQUENTIAL);
	CLASS(MPI_File_write(f, out, 1, MPI_INT, &st), MPI_ERR_UNSUPPORTED_OPERATION);
	CLASS(MPI_File_write_at(f, 0, out, 1, MPI_INT, &st), MPI_ERR_UNSUPPORTED_OPERATION);
	CLASS(MPI_File_seek(f, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
	CLASS(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_ERR_ARG);
	EQUAL(MPI_File_write_ordered(f, "abc", 3, MPI_CHAR, &st), MPI_SUCCESS);
	EQUAL(MPI_File_set_view(f, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_SUCCESS);
	EQUAL(MPI_File_write_ordered(f, &me, 1, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(size_of(f) >= 3 * n + 4 * (me + 1), 1);
	closed(f);
	struct stat about;
	EQUAL(stat(path, &about), 0);
	EQUAL(about.st_size, 7 * n);
	gone();
}

// full has no room: on a device that is full, and in a file that may not grow.
static void full(void) {
	static char big[5000], back[5000];
	MPI_Status st;
	MPI_Request q;
	MPI_File f;
	memset(big, 'x', sizeof big);
	EQUAL(MPI_File_open(W, "/dev/full", MPI_MODE_WRONLY, MPI_INFO_NULL, &f), MPI_SUCCESS);
	CLASS(MPI_File_write_at(f, 0, big, 10, MPI_CHAR, &st), MPI_ERR_NO_SPACE);
	EQUAL(count_of(&st, MPI_CHAR), 0);
	EQUAL(MPI_File_iwrite_at(f, 0, big, 10, MPI_CHAR, &q), MPI_SUCCESS);
	CLASS(MPI_Wait(&q, &st), MPI_ERR_NO_SPACE);
	CHECK(q == MPI_REQUEST_NULL);
	EQUAL(MPI_File_write_all_begin(f, big, 10, MPI_CHAR), MPI_SUCCESS);
	CLASS(MPI_File_write_all_end(f, big, &st), MPI_ERR_NO_SPACE);
	closed(f);
	struct rlimit was, small;
	getrlimit(RLIMIT_FSIZE, &was);
	small = was;
	small.rlim_cur = 3000;
	signal(SIGXFSZ, SIG_IGN);
	f = opened(RW);
	setrlimit(RLIMIT_FSIZE, &small);
	CLASS(MPI_File_write_at(f, 0, big, sizeof big, MPI_CHAR, &st), MPI_ERR_NO_SPACE);
	EQUAL(count_of(&st, MPI_CHAR), 3000); // as much as there was room for
	CLASS(MPI_File_set_size(f, 4000), MPI_ERR_NO_SPACE);
	setrlimit(RLIMIT_FSIZE, &was);
	signal(SIGXFSZ, SIG_DFL);
	EQUAL(MPI_File_read_at(f, 0, back, sizeof back, MPI_CHAR, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, MPI_CHAR), 3000);
	CHECK(memcmp(back, big, 3000) == 0);
	closed(f);
	gone();
}

// portable: data in external32 has its high byte first in the file.
static void portable(void) {
	struct {
		int i;
		short s;
	} out[2] = {{0x01020304, 5}, {6 + me, -1}}, in[3];
	int lengths[] = {1, 1};
	MPI_Aint at[] = {0, 4}, extent;
	MPI_Datatype of[] = {MPI_INT, MPI_SHORT}, t;
	MPI_Status st;
	unsigned char raw[12];
	char rep[MPI_MAX_DATAREP_STRING];
	MPI_Offset disp;
	MPI_Type_create_struct(2, lengths, at, of, &t);
	MPI_Type_commit(&t);
	MPI_File f = opened(RW);
	EQUAL(MPI_File_set_view(f, 12 * me, MPI_BYTE, MPI_BYTE, "external32", MPI_INFO_NULL), MPI_SUCCESS);
	EQUAL(MPI_File_get_view(f, &disp, &of[0], &of[1], rep), MPI_SUCCESS);
	CHECK(strcmp(rep, "external32") == 0);
	MPI_File_get_type_extent(f, MPI_LONG, &extent);
	EQUAL(extent, 4);
	EQUAL(MPI_File_write_at_all(f, 0, out, 2, t, &st), MPI_SUCCESS);
	EQUAL(count_of(&st, t), 2);
	EQUAL(MPI_File_read_at(f, 0, raw, 12, MPI_BYTE, &st), MPI_SUCCESS);
	CHECK(memcmp(raw, "\1\2\3\4\0\5\0\0\0", 9) == 0 && raw[9] == 6 + me && raw[10] == 0xff && raw[11] == 0xff);
	memset(in, 0, sizeof in);
	MPI_Request q;
	EQUAL(MPI_File_iread_at(f, 0, in, 2, t, &q), MPI_SUCCESS);
	MPI_Wait(&q, &st);
	CHECK(in[0].i == 0x01020304 && in[0].s == 5 && in[1].i == 6 + me && in[1].s == -1);
	// The file's end is in the middle of an item.
	MPI_Barrier(W);
	EQUAL(MPI_File_set_size(f, 12 * (n - 1) + 11), MPI_SUCCESS);
	MPI_Barrier(W);
	memset(in, 0, sizeof in);
	EQUAL(MPI_File_read_at(f, 12 * (n - 1 - me), in, 3, t, &st), MPI_SUCCESS);
	CHECK(in[0].i == 0x01020304 && in[0].s == 5 && in[1].i == 6 + n - 1 && in[1].s == 0);
	long l = 0;
	CLASS(MPI_File_write_at(f, 0, &l, 1, MPI_LONG, &st), MPI_ERR_TYPE);
	CLASS(MPI_File_set_view(f, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
	CLASS(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "external64", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
	MPI_Type_free(&t);
	closed(f);
	gone();
}

// in_files has a type be as in memory, but shorts twice as wide.
static int in_files(MPI_Datatype t, MPI_Aint *extent, void *state) {
	MPI_Aint lb;
	MPI_Type_get_extent(t, &lb, extent);
	*extent *= t == MPI_SHORT ? 2 : 1;
	return *(int *)state;
}

static int converts(void *user, MPI_Datatype t, int count, void *file, MPI_Offset at, void *state) {
	(void)user, (void)t, (void)count, (void)file, (void)at, (void)state;
	return MPI_SUCCESS;
}

// representations of the program: those whose data is as in memory can be had.
static void representations(void) {
	static int state;
	int out = 7 * me, in = -1;
	char rep[MPI_MAX_DATAREP_STRING], longest[MPI_MAX_DATAREP_STRING + 1];
	MPI_Offset disp;
	MPI_Aint extent;
	MPI_Datatype e, t;
	MPI_Status st;
	CLASS(MPI_Register_datarep("native", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, in_files, &state), MPI_ERR_DUP_DATAREP);
	CLASS(MPI_Register_datarep("Mine", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, NULL, &state), MPI_ERR_ARG);
	CLASS(MPI_Register_datarep("Mine", converts, MPI_CONVERSION_FN_NULL, in_files, &state), MPI_ERR_UNSUPPORTED_DATAREP);
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = 0;
	CLASS(MPI_Register_datarep(longest, MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, in_files, &state), MPI_ERR_ARG);
	MPI_File f = opened(RW);
	CLASS(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "Mine", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
	EQUAL(MPI_Register_datarep("Mine", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, in_files, &state), MPI_SUCCESS);
	CLASS(MPI_Register_datarep("Mine", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, in_files, &state), MPI_ERR_DUP_DATAREP);
	EQUAL(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "Mine", MPI_INFO_NULL), MPI_SUCCESS);
	EQUAL(MPI_File_get_view(f, &disp, &e, &t, rep), MPI_SUCCESS);
	CHECK(strcmp(rep, "Mine") == 0 && e == MPI_INT);
	EQUAL(MPI_File_write_at_all(f, me, &out, 1, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(MPI_File_read_at_all(f, me, &in, 1, MPI_INT, &st), MPI_SUCCESS);
	EQUAL(in, out);
	MPI_File_get_type_extent(f, MPI_SHORT, &extent);
	EQUAL(extent, 4);
	CLASS(MPI_File_set_view(f, 0, MPI_SHORT, MPI_SHORT, "Mine", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
	state = MPI_ERR_OTHER;
	CLASS(MPI_File_set_view(f, 0, MPI_INT, MPI_INT, "Mine", MPI_INFO_NULL), MPI_ERR_CONVERSION);
	closed(f);
	gone();
}

// atomic: of writes to the same place one is there in the end, whole.
static void atomic(void) {
	enum { K = 20000 };
	static int out[K], in[K];
	int flag;
	MPI_Datatype gaps;
	MPI_File f = opened(RW);
	MPI_File_get_atomicity(f, &flag);
	CHECK(!flag);
	EQUAL(MPI_File_set_atomicity(f, 1), MPI_SUCCESS);
	MPI_File_get_atomicity(f, &flag);
	CHECK(flag);
	MPI_Type_create_resized(MPI_INT, 0, 8, &gaps);
	MPI_Type_commit(&gaps);
	MPI_File_set_view(f, 0, MPI_INT, gaps, "native", MPI_INFO_NULL);
	for (int i = 0; i < K; i++)
		out[i] = me;
	EQUAL(MPI_File_write_at(f, 0, out, K, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
	for (int k = 0; k < 2; k++) {
		EQUAL(MPI_File_read_at(f, 0, in, K, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
		int others = 0;
		for (int i = 1; i < K; i++)
			others += in[i] != in[0];
		EQUAL(others, 0);
		MPI_Barrier(W);
	}
	MPI_Type_free(&gaps);
	closed(f);
	gone();
}

// beside: a rank that waits for a file takes part in messages. Rank 0 holds up the others' accesses by a lock until they
// have received what it sends, which needs them; it sends synchronously.
static void beside(void) {
	int v = 7, got = -1, fd = -1;
	MPI_Request q, io;
	struct flock lock = {.l_type = F_WRLCK};
	MPI_File f = opened(RW);
	MPI_File_set_atomicity(f, 1);
	if (me == 0) {
		fd = open(path, O_RDWR);
		EQUAL(fcntl(fd, F_OFD_SETLK, &lock), 0);
	} else
		MPI_Irecv(&got, 1, MPI_INT, 0, 8, W, &q);
	MPI_Barrier(W);
	if (me == 0) {
		for (int r = 1; r < n; r++)
			MPI_Ssend(&v, 1, MPI_INT, r, 8, W);
		close(fd);
	} else {
		if (me % 2)
			EQUAL(MPI_File_write_at(f, 4 * me, &me, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
		else {
			EQUAL(MPI_File_iwrite_at(f, 4 * me, &me, 1, MPI_INT, &io), MPI_SUCCESS);
			EQUAL(MPI_Wait(&io, MPI_STATUS_IGNORE), MPI_SUCCESS);
		}
		MPI_Wait(&q, MPI_STATUS_IGNORE);
		EQUAL(got, 7);
	}
	closed(f);
	gone();
}

static const struct one cases[] = {
	{"opens", opens}, {"handlers", handlers}, {"views", views}, {"offsets", offsets}, {"parts", parts}, {"later", later},
	{"shared", shared}, {"full", full}, {"portable", portable}, {"representations", representations}, {"atomic", atomic}, {"beside", beside},
};

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	W = MPI_COMM_WORLD;
	MPI_Comm_rank(W, &me);
	MPI_Comm_size(W, &n);
	MPI_Comm_set_errhandler(W, MPI_ERRORS_RETURN);
	snprintf(path, sizeof path, "%s/file", argv[1]);
	int all = run_all(cases, sizeof cases / sizeof cases[0]);
	MPI_Finalize();
	return all != 0;
}
