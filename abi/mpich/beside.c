// What MPICH's ABI has beside the standard one for C: functions that MPI has removed, data, extensions, and values of its own.

static inline MPI_Datatype our_TYPE(int v) {
	return (MPI_Datatype)(types[TYPE_AT(v)].theirs == v && types[TYPE_AT(v)].ours ? types[TYPE_AT(v)].ours : made(v));
}

// peers is how many types a list of MPI_Alltoallw has.
static long peers(int comm) {
	int inter = 0, n = 0;
	MPI_Comm c = our_COMM(comm);
	if (comm == theirs[(word)MPI_COMM_NULL] || PMPI(Comm_test_inter)(c, &inter) != MPI_SUCCESS)
		return 0;
	return (inter ? PMPI(Comm_remote_size)(c, &n) : PMPI(Comm_size)(c, &n)) == MPI_SUCCESS ? n : 0;
}

// neighbours is how many a rank sends to, or receives from.
static long neighbours(int comm, int out) {
	int topology = MPI_UNDEFINED, n = 0, to = 0, weighted;
	MPI_Comm c = our_COMM(comm);
	if (comm == theirs[(word)MPI_COMM_NULL] || PMPI(Topo_test)(c, &topology) != MPI_SUCCESS)
		return 0;
	switch (topology) {
	case MPI_CART:
		PMPI(Cartdim_get)(c, &n);
		return 2 * n;
	case MPI_GRAPH:
		PMPI(Comm_rank)(c, &to);
		PMPI(Graph_neighbors_count)(c, to, &n);
		return n;
	case MPI_DIST_GRAPH:
		PMPI(Dist_graph_neighbors_count)(c, &n, &to, &weighted);
		return out ? to : n;
	}
	return 0;
}

// Of attributes whose values are constants a program gets the place of one of its own.
static void value_of_comm(int keyval, void *value, int flag) {
	static int last, io, host;
	if (!flag)
		return;
	int **at = value;
	switch (our_KEYVAL(keyval)) {
	case MPI_LASTUSEDCODE:
		last = their_CODE(**at);
		*at = &last;
		break;
	case MPI_IO:
		io = their_RANK(**at);
		*at = &io;
		break;
	case MPI_HOST:
		host = their_RANK(**at);
		*at = &host;
	}
}

static void value_of_win(int keyval, void *value, int flag) {
	static int flavors[] = {1, 2, 3, 4}, models[] = {2, 1}; // MPI_WIN_FLAVOR_CREATE and on; MPI_WIN_UNIFIED, MPI_WIN_SEPARATE
	if (flag && our_KEYVAL(keyval) == MPI_WIN_CREATE_FLAVOR)
		*(int **)value = &flavors[**(int **)value - MPI_WIN_FLAVOR_CREATE];
	else if (flag && our_KEYVAL(keyval) == MPI_WIN_MODEL)
		*(int **)value = &models[**(int **)value - MPI_WIN_UNIFIED];
}

static void detached(void *buffer) {
	if (*(void **)buffer == MPI_BUFFER_AUTOMATIC)
		*(void **)buffer = AUTOMATIC;
}

// contents translates the constants among the integers that a type was made with.
static void contents(int type, int *integers) {
	MPI_Count ints = 0, addresses, counts, types;
	int combiner = 0;
	if (PMPI(Type_get_envelope_c)(our_TYPE(type), &ints, &addresses, &counts, &types, &combiner) != MPI_SUCCESS)
		return;
	int *order = integers + ints - 1;
	if (combiner == MPI_COMBINER_SUBARRAY || combiner == MPI_COMBINER_DARRAY)
		*order = their_ORDER(*order);
	if (combiner != MPI_COMBINER_DARRAY)
		return;
	for (int n = integers[2], i = 0; i < n; i++) {
		order[i - 3 * n] = their_DISTRIB(order[i - 3 * n]);
		order[i - 2 * n] = their_DARG(order[i - 2 * n]);
	}
}

THEIR(int, Address, (void *location, MPI_Aint *address)) { return their_Get_address(location, address); }
THEIR(int, Errhandler_create, (void *function, int *errhandler)) { return their_Comm_create_errhandler(function, errhandler); }
THEIR(int, Errhandler_get, (int comm, int *errhandler)) { return their_Comm_get_errhandler(comm, errhandler); }
THEIR(int, Errhandler_set, (int comm, int errhandler)) { return their_Comm_set_errhandler(comm, errhandler); }
THEIR(int, Type_hvector, (int count, int blocklength, MPI_Aint stride, int oldtype, int *newtype)) { return their_Type_create_hvector(count, blocklength, stride, oldtype, newtype); }
THEIR(int, Type_hindexed, (int count, int *blocklengths, MPI_Aint *displacements, int oldtype, int *newtype)) {
	return their_Type_create_hindexed(count, blocklengths, displacements, oldtype, newtype);
}
THEIR(int, Type_struct, (int count, int *blocklengths, MPI_Aint *displacements, int *oldtypes, int *newtype)) {
	return their_Type_create_struct(count, blocklengths, displacements, oldtypes, newtype);
}
THEIR(int, Type_extent, (int type, MPI_Aint *extent)) {
	MPI_Aint lb;
	return their_Type_get_extent(type, &lb, extent);
}
THEIR(int, Type_lb, (int type, MPI_Aint *lb)) {
	MPI_Aint extent;
	return their_Type_get_extent(type, lb, &extent);
}
THEIR(int, Type_ub, (int type, MPI_Aint *ub)) {
	MPI_Aint lb, extent;
	int code = their_Type_get_extent(type, &lb, &extent);
	*ub = lb + extent;
	return code;
}

// A name may have 255 bytes here, and 127 there.
THEIR(int, Get_processor_name, (char *name, int *length)) {
	char whole[MPI_MAX_PROCESSOR_NAME];
	int n = 0, code = PMPI(Get_processor_name)(name == NULL ? NULL : whole, length == NULL ? NULL : &n);
	if (code == MPI_SUCCESS) {
		*length = n < 127 ? n : 127;
		memcpy(name, whole, (size_t)*length);
		name[*length] = 0;
	}
	return their_CODE(code);
}

THEIR(int, Pcontrol, (const int level, ...)) {
	(void)level;
	return 0;
}

// A handle for Fortran is the one for C, but for files. MPICH 4.2 made functions of what were macros.
#define HANDLE(kind) \
	THEIR(int, kind##_c2f, (int h)) { return h; } \
	THEIR(int, kind##_f2c, (int h)) { return h; } \
	THEIR(int, kind##_toint, (int h)) { return h; } \
	THEIR(int, kind##_fromint, (int h)) { return h; }
HANDLE(Comm)
HANDLE(Errhandler)
HANDLE(Group)
HANDLE(Info)
HANDLE(Message)
HANDLE(Op)
HANDLE(Request)
HANDLE(Session)
HANDLE(Type)
HANDLE(Win)
THEIR(int, File_c2f, (void *file)) { return (int)(word)file; }
THEIR(void *, File_f2c, (int file)) { return (void *)(word)file; }
THEIR(int, File_toint, (void *file)) { return (int)(word)file; }
THEIR(void *, File_fromint, (int file)) { return (void *)(word)file; }

// A status is the same in all languages.
#define STATUS(name) \
	THEIR(int, name, (const struct status *from, struct status *to)) { \
		*to = *from; \
		return 0; \
	}
STATUS(Status_c2f)
STATUS(Status_f2c)
STATUS(Status_c2f08)
STATUS(Status_f082c)
STATUS(Status_f082f)
STATUS(Status_f2f08)

DATA(const void *const, MPI_T_PVAR_ALL_HANDLES) = MPI_T_PVAR_ALL_HANDLES;
DATA(int *const, MPI_UNWEIGHTED) = MPI_UNWEIGHTED;
DATA(int *const, MPI_WEIGHTS_EMPTY) = MPI_WEIGHTS_EMPTY;

// MPICH's extensions.
#define EXTENSION(name, args) THEIR_X(name, args, MPIX_##name, PMPIX_##name)
#define THEIR_X(name, args, weak, strong) \
	__asm__(".weak " #weak "\n.set " #weak ", " #strong); \
	__attribute__((visibility("default"))) int extension_##name args __asm__(#strong); \
	int extension_##name args
EXTENSION(Delete_error_class, (int class)) { return their_Remove_error_class(class); }
EXTENSION(Delete_error_code, (int code)) { return their_Remove_error_code(code); }
EXTENSION(Delete_error_string, (int code)) { return their_Remove_error_string(code); }
EXTENSION(GPU_query_support, (int type, int *is)) { return (void)type, *is = 0; }
EXTENSION(Query_cuda_support, (void)) { return 0; }
EXTENSION(Query_hip_support, (void)) { return 0; }
EXTENSION(Query_ze_support, (void)) { return 0; }

// Those that are not there. MPICH's library for Fortran names them all, and is not loaded where one is lacking.
#define MISSING(name) EXTENSION(name, (void)) { return their_CODE(missing("MPIX_" #name)); }
MISSING(Comm_revoke) MISSING(Comm_shrink) MISSING(Comm_agree) MISSING(Comm_failure_ack) MISSING(Comm_failure_get_acked) MISSING(Comm_get_failed) MISSING(Comm_get_stream) MISSING(Comm_test_threadcomm)
MISSING(Allreduce_enqueue) MISSING(Allreduce_enqueue_c) MISSING(Send_enqueue) MISSING(Send_enqueue_c) MISSING(Recv_enqueue) MISSING(Recv_enqueue_c) MISSING(Isend_enqueue) MISSING(Isend_enqueue_c) MISSING(Irecv_enqueue) MISSING(Irecv_enqueue_c)
MISSING(Wait_enqueue) MISSING(Waitall_enqueue) MISSING(Stream_create) MISSING(Stream_free) MISSING(Stream_comm_create) MISSING(Stream_comm_create_multiplex) MISSING(Stream_progress) MISSING(Stream_send) MISSING(Stream_send_c)
MISSING(Stream_recv) MISSING(Stream_recv_c) MISSING(Stream_isend) MISSING(Stream_isend_c) MISSING(Stream_irecv) MISSING(Stream_irecv_c) MISSING(Threadcomm_init) MISSING(Threadcomm_start) MISSING(Threadcomm_finish) MISSING(Threadcomm_free)
MISSING(Start_progress_thread) MISSING(Stop_progress_thread) MISSING(Info_set_hex) MISSING(Request_is_complete) MISSING(Op_create_x) MISSING(Comm_create_errhandler_x) MISSING(File_create_errhandler_x) MISSING(Session_create_errhandler_x) MISSING(Win_create_errhandler_x)
