// What entries.c takes from MPICH's ABI into the standard one, and gives back: handles that are ints, its status, and the values of its constants.
#ifndef GORUN_ABI_MPICH_WORDS_H
#define GORUN_ABI_MPICH_WORDS_H

// The functions of the standard ABI, under names of their own and for this unit alone.
#define PMPI(name) abi_##name
#define WEAK(name)
#define LIBRARY "libmpich.so.12"
#define FOREIGN
#include "../shim/entries.c"

// THEIR is a function of MPICH's ABI under both names, the one that a tool may replace weak. C knows it by another: mpi.h has declared them.
#define THEIR(result, name, args) \
	__asm__(".weak MPI_" #name "\n.set MPI_" #name ", PMPI_" #name); \
	__attribute__((visibility("default"))) result their_##name args __asm__("PMPI_" #name); \
	result their_##name args

// DATA is a variable of the library that its mpi.h declares.
#define DATA(type, name) \
	extern type data_##name __asm__(#name) __attribute__((visibility("default"))); \
	type data_##name

enum { HANDLES = 0x400, NOTHING = -1000000, DISPLACEMENT_CURRENT = -54278278 };
#define IN_PLACE ((void *)-1)
#define AUTOMATIC ((void *)-2)
#define STATUS_IGNORE ((struct status *)1)

struct status {
	int low, high_and_cancelled; // bytes of data; a bit says whether it was cancelled
	int MPI_SOURCE, MPI_TAG, MPI_ERROR;
};

static const int theirs[HANDLES];

// An object that the program has made has our handle with the upper bit: so it is no constant of MPICH's.
static inline word made(int v) { return v < 0 ? v & 0x7fffffff : HANDLES - 1; }

static inline int their_int(word h) { return (uintptr_t)h < HANDLES ? theirs[h] : (int)(h | 1u << 31); }
#define their_handle(h) their_int((word)(h))

// Files alone are pointers in MPICH's ABI: their handles are ours.
enum { FILES = 11 << 27 }; // kindFile in library/table.go
static word their_word(word h) { return (h & 0xf << 27) == FILES ? h : their_int(h); }
static inline MPI_File our_FILE(void *f) { return f == NULL ? MPI_FILE_NULL : (MPI_File)f; }
static inline void *their_FILE(MPI_File f) { return f == MPI_FILE_NULL ? NULL : f; }

// The type's number is in the low bits, and those that are pairs have the upper bit.
#define TYPE_AT(v) (((v) & 0x7f) | ((v) < 0 ? 0x80 : 0))
static inline MPI_Datatype our_TYPE(int v);

// Errors of the program's own lie beyond the last code; MPICH has no class for some of ours.
enum { THEIR_LAST = 0x3fffffff, THEIR_OTHER = 15 };
static inline int our_code(int v) { return v > THEIR_LAST ? v - THEIR_LAST + MPI_ERR_LASTCODE : v == 0 ? 0 : NOTHING; }
static inline int their_code(int v) { return v > MPI_ERR_LASTCODE ? v - MPI_ERR_LASTCODE + THEIR_LAST : v == 0 ? 0 : THEIR_OTHER; }

static inline int our_RANK(int v);
static inline int their_RANK(int v);
static inline int our_TAG(int v);
static inline int their_TAG(int v);
static inline int our_CODE(int v);
static inline int their_CODE(int v);

static inline int real(const struct status *s) { return s != STATUS_IGNORE && s != NULL; }

static void our_status(MPI_Status *to, const struct status *from) {
	*to = (MPI_Status){our_RANK(from->MPI_SOURCE), our_TAG(from->MPI_TAG), our_CODE(from->MPI_ERROR), {from->low, (int)((unsigned)from->high_and_cancelled >> 1), from->high_and_cancelled & 1}};
}

static void their_status(struct status *to, const MPI_Status *from) {
	*to = (struct status){from->MPI_internal[0], (int)((unsigned)from->MPI_internal[1] << 1 | (from->MPI_internal[2] & 1)), their_RANK(from->MPI_SOURCE), their_TAG(from->MPI_TAG), their_CODE(from->MPI_ERROR)};
}

static inline const void *in_place(const void *buffer) { return buffer == IN_PLACE ? MPI_IN_PLACE : buffer; }
#define in_place(buffer) ((void *)in_place(buffer))

// A LIST of the standard ABI is as long as one of MPICH's, and empty where that is not there. DONE gives its room back.
#define LIST(type, list, length) \
	type list##_few[32], *list##_ = NULL; \
	long list##_n = (length); \
	if ((void *)(uintptr_t)(list) == NULL || list##_n < 0) \
		list##_n = 0; \
	else if (list##_n <= 32) \
		list##_ = list##_few; \
	else if ((list##_ = malloc((size_t)list##_n * sizeof *list##_)) == NULL) \
		die("no memory for a list of handles")
#define DONE(list) \
	if (list##_ != list##_few) \
		free(list##_)

// MPIR_Dup_fn stands for the copy that keeps the value.
__attribute__((visibility("default"))) int MPIR_Dup_fn(int old, int keyval, void *extra, void *in, void *out, int *flag) {
	(void)old, (void)keyval, (void)extra;
	*(void **)out = in;
	*flag = 1;
	return 0;
}
static inline void *our_copy(void *function) { return function == (void *)MPIR_Dup_fn ? (void *)MPI_DUP_FN : function; }

static long peers(int comm);
static long neighbours(int comm, int out);
static void value_of_comm(int keyval, void *value, int flag);
static void value_of_win(int keyval, void *value, int flag);
static void plain_keyval(int keyval);
static void detached(void *buffer);
static void contents(int type, int *integers);

#endif
