// What calls mean, in any MPI: MPICH's handles are numbers of 32 bits, those of Open MPI and of the standard ABI are pointers. A parameter that is a
// handle is taken for a pointer here: it goes through a register, or a word of the stack, as it came. Only where handles lie in memory, and in MPI_Status, does
// it matter which MPI this is.
#include "record.c"

#include <limits.h>

typedef void *handle;
typedef intptr_t MPI_Aint;
typedef int64_t MPI_Count;
typedef int64_t MPI_Offset;

static struct {
	enum { UNKNOWN, MPICH, OPEN_MPI, STANDARD } kind;
	void *library; // where its functions are, if the program has it where only some of its parts see it, as Python has
	handle world, byte, comm_null;
	int proc_null;
	size_t source, length; // of MPI_Status: where its MPI_SOURCE is, how long it is
	handle world_group;
	int (*comm_group)(handle, void *), (*comm_remote_group)(handle, void *), (*comm_test_inter)(handle, int *), (*comm_rank)(handle, int *);
	int (*group_size)(handle, int *), (*group_free)(void *), (*group_translate_ranks)(handle, int, const int *, handle, int *);
	int (*type_size)(handle, MPI_Count *), (*get_elements)(const void *, handle, MPI_Count *);
} mpi;

// inside tells that this thread is in a call: what its MPI itself calls meanwhile is no call of the program.
static __thread int inside __attribute__((tls_model("initial-exec")));

// STRANGE is a function of every MPI that this library does not have, too.
#define STRANGE "PMPI_Comm_rank"

// holder is the library that has a symbol, of those that were opened out of others' sight.
static void *holder(const char *name) {
	struct link_map *map = NULL;
	void *program = dlopen(NULL, RTLD_LAZY);
	Dl_info own;
	if (program == NULL || dlinfo(program, RTLD_DI_LINKMAP, &map) != 0 || dladdr((void *)holder, &own) == 0)
		return NULL;
	dlclose(program);
	for (; map != NULL; map = map->l_next) {
		void *library = map->l_name[0] == '/' && map->l_addr != (uintptr_t)own.dli_fbase ? dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
		if (library != NULL && dlsym(library, name) != NULL)
			return library;
		if (library != NULL)
			dlclose(library);
	}
	return NULL;
}

// find is the function that the program would have called.
static void *find(const char *name) {
	void *f = dlsym(RTLD_NEXT, name);
	if (f != NULL)
		return f;
	if (mpi.library == NULL)
		mpi.library = holder(STRANGE);
	if (mpi.library != NULL)
		f = dlsym(mpi.library, name);
	void *other = f == NULL ? holder(name) : NULL;
	if (other != NULL)
		f = dlsym(other, name);
	if (f == NULL) {
		fprintf(stderr, "gorun: --profile: the program calls %s, which no library that it has loaded has\n", name);
		abort();
	}
	return f;
}

// at is a handle in memory.
static uintptr_t at(const void *handles, int i) {
	return mpi.kind == MPICH ? ((const uint32_t *)handles)[i] : ((const uintptr_t *)handles)[i];
}

static uintptr_t value(handle h) { return mpi.kind == MPICH ? (uint32_t)(uintptr_t)h : (uintptr_t)h; }

static void *variable(const char *name) {
	void *v = dlsym(RTLD_DEFAULT, name); // where the program has a copy, it is that
	return v != NULL || mpi.library == NULL ? v : dlsym(mpi.library, name);
}

// learn_mpi finds out which MPI this is.
static void learn_mpi(void) {
	Dl_info i;
	int standard = dladdr(find(STRANGE), &i) != 0 && strstr(i.dli_fname, "libmpi_abi") != NULL;
	if (standard) {
		mpi.world = (handle)0x101, mpi.byte = (handle)0x247, mpi.comm_null = (handle)0x100;
		mpi.proc_null = -3, mpi.source = 0, mpi.length = 32;
	} else if ((mpi.world = variable("ompi_mpi_comm_world")) != NULL) {
		mpi.byte = variable("ompi_mpi_byte"), mpi.comm_null = variable("ompi_mpi_comm_null");
		mpi.proc_null = -2, mpi.source = 0, mpi.length = 24;
	} else {
		mpi.world = (handle)0x44000000, mpi.byte = (handle)0x4c00010d, mpi.comm_null = (handle)0x04000000;
		mpi.proc_null = -1, mpi.source = 8, mpi.length = 20;
	}
	mpi.comm_group = find("PMPI_Comm_group"), mpi.comm_remote_group = find("PMPI_Comm_remote_group"), mpi.comm_test_inter = find("PMPI_Comm_test_inter");
	mpi.comm_rank = find(STRANGE), mpi.group_size = find("PMPI_Group_size"), mpi.group_free = find("PMPI_Group_free");
	mpi.group_translate_ranks = find("PMPI_Group_translate_ranks"), mpi.type_size = find("PMPI_Type_size_x"), mpi.get_elements = find("PMPI_Get_elements_x");
	mpi.kind = standard ? STANDARD : variable("ompi_mpi_comm_world") != NULL ? OPEN_MPI : MPICH;
}

// A communicator, or the window of one. Whoever keeps a pointer to it counts as its user.
struct comm {
	int size, rank, inter; // size of the group that ranks are of, which is the remote one between communicators
	int users;
	int32_t *ranks; // in the world; NULL: the same
	uint32_t id;    // the same on all its ranks, and of no other communicator of them
	uint32_t number, windows;
	struct comm *of; // of a window: its communicator
};

// A receive, or a persistent request, that is to be completed.
struct pending {
	struct comm *comm;
	int receives, persistent, active, to, tag;
	int64_t n;
	struct pending *next; // that is free
};

static struct table comms, windows, requests, alike;
static struct pending *unused;

static void leave(struct comm *c) {
	if (c == NULL || --c->users > 0)
		return;
	leave(c->of);
	free(c->ranks);
	free(c);
}

static uint32_t mixed(uint32_t a, uint32_t b) { return (a ^ b) * 16777619u; }

// learn_comm finds out who is in a communicator. Its id comes from that, and from how many of the same ranks there were before: all its ranks
// have made these in the same order.
static struct comm *learn_comm(handle h) {
	struct comm *c = calloc(1, sizeof *c);
	uintptr_t group = 0;
	if (c == NULL)
		return NULL;
	c->users = 1;
	if (mpi.comm_test_inter(h, &c->inter) != 0 || mpi.comm_rank(h, &c->rank) != 0 || (c->inter ? mpi.comm_remote_group : mpi.comm_group)(h, &group) != 0)
		return c; // of no ranks
	mpi.group_size((handle)group, &c->size);
	int *own = malloc(sizeof(int) * (size_t)(c->size + 1));
	c->ranks = malloc(sizeof(int32_t) * (size_t)(c->size + 1));
	if (own == NULL || c->ranks == NULL)
		c->size = 0;
	for (int i = 0; i < c->size; i++)
		own[i] = i;
	if (c->size > 0)
		mpi.group_translate_ranks((handle)group, c->size, own, mpi.world_group, c->ranks);
	int same = !c->inter;
	c->id = 2166136261u;
	for (int i = 0; i < c->size; i++) {
		c->id = mixed(c->id, (uint32_t)c->ranks[i]);
		same = same && c->ranks[i] == i;
	}
	if (same) {
		free(c->ranks);
		c->ranks = NULL;
	}
	free(own);
	mpi.group_free(&group);
	uint64_t *before = insert(&alike, (uint64_t)c->id + 1);
	if (before != NULL)
		c->id = mixed(c->id, (uint32_t)++*before);
	return c;
}

// comm_of is what is known of a communicator; NULL: it is none.
static struct comm *comm_of(handle h) {
	uintptr_t key = value(h);
	if (key == 0 || key == value(mpi.comm_null))
		return NULL;
	uint64_t *slot = lookup(&comms, key);
	if (slot != NULL)
		return (struct comm *)*slot;
	struct comm *c = learn_comm(h);
	if (c != NULL && (slot = insert(&comms, key)) != NULL)
		*slot = (uint64_t)c;
	return c;
}

// made notes a communicator that a call has made.
static void made(const void *comm) {
	lock();
	comm_of((handle)at(comm, 0));
	unlock();
}

static void forget(struct table *t, uintptr_t key) {
	uint64_t *slot = lookup(t, key);
	if (slot == NULL)
		return;
	struct comm *c = (struct comm *)*slot;
	drop(t, key);
	leave(c);
}

// freed notes that a communicator is about to be freed.
static void freed(const void *comm) {
	lock();
	forget(&comms, at(comm, 0));
	unlock();
}

// win_made notes a window of a communicator, which counts its own collectives.
static void win_made(const void *win, handle comm) {
	lock();
	struct comm *c = comm_of(comm), *w = calloc(1, sizeof *w);
	uint64_t *slot = c != NULL && w != NULL ? insert(&windows, at(win, 0)) : NULL;
	if (slot != NULL) {
		*w = (struct comm){.size = c->size, .rank = c->rank, .users = 1, .of = c, .id = mixed(c->id, ~++c->windows)};
		c->users++;
		*slot = (uint64_t)w;
	} else
		free(w);
	unlock();
}

static void win_freed(const void *win) {
	lock();
	forget(&windows, at(win, 0));
	unlock();
}

static struct comm *win_of(handle win) {
	uint64_t *slot = lookup(&windows, value(win));
	return slot != NULL ? (struct comm *)*slot : NULL;
}

// in_world is a rank of a communicator in the world; below 0: it is not there.
static int in_world(const struct comm *c, int rank) {
	if (c != NULL && c->of != NULL)
		c = c->of;
	if (c == NULL || rank < 0 || rank >= c->size)
		return -1;
	return c->ranks != NULL ? c->ranks[rank] : rank;
}

// size is that of so many elements, in bytes.
static int64_t size(int64_t n, handle type) {
	MPI_Count one = 0;
	return n > 0 && mpi.type_size(type, &one) == 0 && one > 0 ? n * one : 0;
}

// sum is that of counts, which are MPI_Count in the _c forms.
static int64_t sum(const void *counts, int large, int n) {
	int64_t all = 0;
	for (int i = 0; i < n; i++)
		all += large ? ((const MPI_Count *)counts)[i] : ((const int *)counts)[i];
	return all;
}

static int64_t nth(const void *counts, int large, int i) { return large ? ((const MPI_Count *)counts)[i] : ((const int *)counts)[i]; }

static int64_t sums(const void *counts, int large, const void *types, int n) {
	int64_t all = 0;
	for (int i = 0; i < n; i++)
		all += size(nth(counts, large, i), (handle)at(types, i));
	return all;
}

static int in_place(const void *buf) { return buf == (void *)1 || buf == (void *)-1; }

// fortran is where the program has called a function for Fortran, which calls one for C.
static __thread const void *fortran __attribute__((tls_model("initial-exec")));

// python is the interpreter, if this process is one.
static struct {
	int there;
	int (*initialized)(void), (*ensure)(void), (*line)(void *);
	void (*release)(int), (*drop)(void *);
	void *(*state)(void), *(*frame)(void), *(*code)(void *), *(*attribute)(void *, const char *);
	const char *(*text)(void *);
} python;

static void learn_python(void) {
	python.initialized = dlsym(RTLD_DEFAULT, "Py_IsInitialized"), python.ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
	python.release = dlsym(RTLD_DEFAULT, "PyGILState_Release"), python.state = dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState");
	python.frame = dlsym(RTLD_DEFAULT, "PyEval_GetFrame"), python.line = dlsym(RTLD_DEFAULT, "PyFrame_GetLineNumber");
	python.code = dlsym(RTLD_DEFAULT, "PyFrame_GetCode"); // from 3.9 on
	python.attribute = dlsym(RTLD_DEFAULT, "PyObject_GetAttrString"), python.text = dlsym(RTLD_DEFAULT, "PyUnicode_AsUTF8");
	python.drop = dlsym(RTLD_DEFAULT, "Py_DecRef");
	python.there = python.initialized && python.ensure && python.release && python.state && python.frame && python.line && python.code && python.attribute && python.text && python.drop;
}

// python_site is the line of Python that calls; 0: there is none. mpi4py has given the interpreter's lock back, which is taken for that.
static unsigned python_site(const char *op) {
	if (!python.initialized() || python.state() == NULL)
		return 0;
	unsigned number = 0;
	int held = python.ensure();
	void *frame = python.frame(), *code = frame != NULL ? python.code(frame) : NULL;
	if (code != NULL) {
		int line = python.line(frame);
		uint64_t key = ((uintptr_t)code * 31 + (uint64_t)line) * 0x9e3779b97f4a7c15ULL ^ (uintptr_t)op;
		lock();
		uint64_t *known = lookup(&record.sites, key);
		number = known != NULL ? (unsigned)*known : 0;
		unlock();
		void *name = NULL, *file = NULL;
		if (known == NULL && (name = python.attribute(code, "co_name")) != NULL && (file = python.attribute(code, "co_filename")) != NULL) {
			const char *function = python.text(name), *source = python.text(file);
			lock();
			uint64_t *slot = function != NULL && source != NULL && (number = new_site(op, function, source, (unsigned long)line)) != 0 ? insert(&record.sites, key) : NULL;
			if (slot != NULL)
				*slot = number;
			unlock();
			if (slot != NULL)
				code = NULL; // it stays, so that its address is that of no other one
		}
		if (name != NULL)
			python.drop(name);
		if (file != NULL)
			python.drop(file);
		if (code != NULL)
			python.drop(code);
	}
	python.release(held);
	return number;
}

// place_of is the site of a call that returns to caller.
static inline unsigned place_of(const char *op, const void *caller) {
	unsigned number = python.there ? python_site(op) : 0;
	if (number == 0) {
		lock();
		number = site(op, fortran != NULL ? fortran : caller);
		unlock();
	}
	return number;
}

// begin is the begin of a call, unless nobody wants to know. caller is where it returns to.
static inline int begin(struct call *k, const char *op, const void *caller) {
	if (__builtin_expect(record.head == NULL || inside, 0))
		return 0;
	inside = 1;
	unsigned number = place_of(op, caller);
	lock();
	*k = (struct call){.e = {.start = now(), .site = (uint16_t)number, .to = -1, .from = -1}};
	record.head->since = k->e.start;
	record.head->current = (uint64_t)k->e.site + 1;
	unlock();
	return 1;
}

static inline void end(struct call *k) {
	lock();
	finish(k);
	unlock();
	inside = 0;
}

// sent notes that a call sends n bytes.
static void sent(struct call *k, handle comm, int dest, int64_t n, int tag) {
	if (dest < 0)
		return; // MPI_PROC_NULL
	lock();
	message(k, 1, in_world(comm_of(comm), dest), n, tag);
	unlock();
}

// received notes the message of a status.
static void received_by(struct call *k, const struct comm *c, const char *status) {
	int source = *(const int *)(status + mpi.source), tag = *(const int *)(status + mpi.source + sizeof(int));
	MPI_Count n = 0;
	if (source >= 0) {
		mpi.get_elements(status, mpi.byte, &n);
		message(k, 0, in_world(c, source), n < 0 ? 0 : n, tag);
	}
}

static void received(struct call *k, handle comm, const void *status) {
	lock();
	received_by(k, comm_of(comm), status);
	unlock();
}

// Room for the statuses that a program ignores.
struct room {
	int64_t small[8 * 32 / sizeof(int64_t)];
	void *large;
};

static void *asked(void *s, struct room *room, int n) {
	room->large = NULL;
	if ((uintptr_t)s > 1 || n < 0) // MPI_STATUS_IGNORE is 0, or 1 in MPICH
		return s;
	if ((size_t)n * mpi.length <= sizeof room->small)
		return room->small;
	room->large = malloc((size_t)n * mpi.length);
	return room->large != NULL ? room->large : s;
}

// pending notes a request that is to be completed.
static void pending(const void *request, struct comm *c, int receives, int persistent, int to, int64_t n, int tag) {
	uintptr_t key = at(request, 0);
	struct pending *p = unused;
	if (p != NULL)
		unused = p->next;
	else if ((p = malloc(sizeof *p)) == NULL)
		return;
	uint64_t *slot = lookup(&requests, key);
	if (slot == NULL && (slot = insert(&requests, key)) != NULL)
		*slot = 0;
	if (slot == NULL)
		return free(p);
	struct pending *old = (struct pending *)*slot;
	*p = (struct pending){c, receives, persistent, !persistent, to, tag, n, NULL};
	if (c != NULL)
		c->users++;
	*slot = (uint64_t)p;
	if (old != NULL) { // of a request that was completed where nobody saw it
		leave(old->comm);
		old->next = unused;
		unused = old;
	}
}

static void will_receive(const void *request, handle comm, int source) {
	if (source == mpi.proc_null)
		return;
	lock();
	pending(request, comm_of(comm), 1, 0, -1, 0, 0);
	unlock();
}

static void will_start(const void *request, handle comm, int receives, int peer, int64_t n, int tag) {
	if (peer == mpi.proc_null)
		return;
	lock();
	struct comm *c = comm_of(comm);
	pending(request, c, receives, 1, in_world(c, peer), n, tag);
	unlock();
}

static struct pending *pending_of(uintptr_t key) {
	uint64_t *slot = lookup(&requests, key);
	return slot != NULL ? (struct pending *)*slot : NULL;
}

static void gone(uintptr_t key) {
	struct pending *p = pending_of(key);
	if (p == NULL)
		return;
	drop(&requests, key);
	leave(p->comm);
	p->next = unused;
	unused = p;
}

// given_up notes that a request is freed or cancelled.
static void given_up(const void *request) {
	lock();
	gone(at(request, 0));
	unlock();
}

static void started(struct call *k, const void *array, int n) {
	lock();
	for (int i = 0; i < n; i++) {
		struct pending *p = pending_of(at(array, i));
		if (p == NULL)
			continue;
		p->active = 1;
		if (!p->receives)
			message(k, 1, p->to, p->n, p->tag);
	}
	unlock();
}

// keys are handles of requests, which a call is about to overwrite.
struct keys {
	uintptr_t small[32], *at;
	int n; // 0: none of them is of interest
};

static void remember(struct keys *keys, const void *array, int n) {
	keys->n = 0;
	keys->at = keys->small;
	lock();
	if (requests.used > 0 && n > 0 && ((size_t)n <= sizeof keys->small / sizeof *keys->small || (keys->at = malloc(sizeof *keys->at * (size_t)n)) != NULL)) {
		keys->n = n;
		for (int i = 0; i < n; i++)
			keys->at[i] = at(array, i);
	}
	unlock();
}

// completed notes that the i-th of them is.
static void completed(struct call *k, struct keys *keys, int i, const char *status) {
	if (i < 0 || i >= keys->n)
		return;
	lock();
	struct pending *p = pending_of(keys->at[i]);
	if (p != NULL && p->active) {
		p->active = 0;
		if (p->receives && (uintptr_t)status > 1)
			received_by(k, p->comm, status);
		if (!p->persistent)
			gone(keys->at[i]);
	}
	unlock();
}

static void all_completed(struct call *k, struct keys *keys, const char *statuses) {
	for (int i = 0; i < keys->n; i++)
		completed(k, keys, i, (uintptr_t)statuses > 1 ? statuses + (size_t)i * mpi.length : statuses);
}

static void some_completed(struct call *k, struct keys *keys, int n, const int *indices, const char *statuses) {
	for (int i = 0; i < n; i++)
		completed(k, keys, indices[i], (uintptr_t)statuses > 1 ? statuses + (size_t)i * mpi.length : statuses);
}

static void forget_keys(struct keys *keys) {
	if (keys->at != keys->small)
		free(keys->at);
}

// A matched message is a key of its own: handles of messages and of requests may be alike.
static const uint64_t MATCHED = 1ULL << 63;

static void matched(const void *message, handle comm) {
	lock();
	struct comm *c = comm_of(comm);
	uint64_t *slot = c != NULL ? insert(&requests, at(message, 0) | MATCHED) : NULL;
	if (slot != NULL) {
		*slot = (uint64_t)c;
		c->users++; // it stays
	}
	unlock();
}

static struct comm *matched_comm(uintptr_t message) {
	lock();
	uint64_t *slot = lookup(&requests, message | MATCHED);
	struct comm *c = slot != NULL ? (struct comm *)*slot : NULL;
	drop(&requests, message | MATCHED);
	unlock();
	return c;
}

// members is a communicator whose ranks all are in a collective; NULL: it is between two of them.
static struct comm *members(handle comm) {
	lock();
	struct comm *c = comm_of(comm);
	unlock();
	return c != NULL && !c->inter && c->size > 0 ? c : NULL;
}

static struct comm *members_of_win(handle win) {
	lock();
	struct comm *c = win_of(win);
	unlock();
	return c;
}

// collective notes a collective with so many bytes out and in.
static void collective(struct call *k, struct comm *c, int begun, int64_t out, int64_t in) {
	if (c == NULL)
		return;
	lock();
	struct sum *s = &record.sums[k->e.site];
	s->out += (uint64_t)out, s->in += (uint64_t)in;
	count_size(out > in ? out : in);
	k->e.kind = begun ? BEGUN : COLLECTIVE, k->e.group = c->id, k->e.sent = ++c->number, k->e.out = narrow(out), k->e.in = narrow(in);
	unlock();
}

// parts notes bytes of an exchange for each rank; types are handles, or all elements are of one type.
static int64_t parts(const struct comm *c, const void *counts, int large, int64_t one, const void *types) {
	int64_t all = 0;
	lock();
	for (int i = 0; i < c->size; i++) {
		int64_t n = types != NULL ? size(nth(counts, large, i), (handle)at(types, i)) : nth(counts, large, i) * one;
		part(in_world(c, i), n);
		all += n;
	}
	unlock();
	return all;
}

// moved notes bytes of one-sided access.
static void moved(struct call *k, handle win, int target, int out, int64_t n) {
	lock();
	struct sum *s = &record.sums[k->e.site];
	*(out ? &s->out : &s->in) += (uint64_t)n;
	count_size(n);
	*(out ? &k->e.out : &k->e.in) = narrow(n);
	if (out)
		part(in_world(win_of(win), target), n);
	unlock();
}

// unload takes this library out of what the process starts: it is no rank.
static void unload(void) {
	Dl_info i;
	const char *list = getenv("LD_PRELOAD");
	static char rest[PATH_MAX * 4];
	if (list == NULL || strlen(list) >= sizeof rest || dladdr((void *)unload, &i) == 0)
		return;
	size_t n = 0;
	for (const char *p = list; *p != 0;) {
		size_t length = strcspn(p, ": ");
		if (length > 0 && (length != strlen(i.dli_fname) || memcmp(p, i.dli_fname, length) != 0)) {
			if (n > 0)
				rest[n++] = ':';
			memcpy(rest + n, p, length);
			n += length;
		}
		p += length + (p[length] != 0);
	}
	rest[n] = 0;
	if (n > 0)
		setenv("LD_PRELOAD", rest, 1);
	else
		unsetenv("LD_PRELOAD");
}

// The file that GORUN_PROFILE names, and when the first call began.
static char path[PATH_MAX];
static int64_t first;

// initializing is the begin of MPI_Init. What the process starts from now on has no part in the record, nor has gorun's own MPI below.
static void initializing(void) {
	const char *file = getenv("GORUN_PROFILE");
	inside = 1;
	unload();
	if (file == NULL || strlen(file) >= sizeof path || record.head != NULL)
		return;
	strcpy(path, file);
	unsetenv("GORUN_PROFILE");
	first = now();
}

// initialized is its end.
static void initialized(const char *op, const void *caller, int bad) {
	inside = 0;
	if (bad || path[0] == 0 || record.head != NULL)
		return;
	int rank = 0, n = 0, level = 0;
	learn_mpi();
	int (*comm_size)(handle, int *) = find("PMPI_Comm_size"), (*query_thread)(int *) = find("PMPI_Query_thread");
	uintptr_t group = 0;
	if (mpi.comm_rank(mpi.world, &rank) != 0 || comm_size(mpi.world, &n) != 0 || mpi.comm_group(mpi.world, &group) != 0 || query_thread(&level) != 0)
		return;
	mpi.world_group = (handle)group;
	record.threads = level == 3 || level == 4096; // MPI_THREAD_MULTIPLE: the standard ABI has other numbers
	if (create(path, rank, n, first) != 0) {
		if (errno != EEXIST) // of a program that this process ran before
			fprintf(stderr, "gorun: rank %d: its calls are not recorded: %s\n", rank, strerror(errno));
		return;
	}
	learn_python();
	struct call k = {.e = {.start = first, .site = (uint16_t)place_of(op, caller), .to = -1, .from = -1}};
	comm_of(mpi.world);
	finish(&k);
}

// finalizing is the begin of MPI_Finalize, and finalized its end.
static void finalizing(void) {
	uintptr_t group = (uintptr_t)mpi.world_group;
	mpi.group_free(&group);
}

static void finalized(void) {
	if (record.head != NULL) {
		record.head->current = 0;
		record.head->end = now();
		record.head = NULL;
	}
}

// FORTRAN is an entry for Fortran, whose arguments are all words; what is behind the last of them is handed on, and nobody looks at it.
#define FORTRAN(name) \
	void name(intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f, intptr_t g, intptr_t h, intptr_t i, intptr_t j, \
		intptr_t k, intptr_t l, intptr_t m, intptr_t n, intptr_t o, intptr_t p, intptr_t q, intptr_t r) { \
		static void (*next)(intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, \
			intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t, intptr_t); \
		if (next == NULL) \
			next = find(#name); \
		const void *outer = fortran; \
		fortran = inside ? outer : __builtin_return_address(0); \
		next(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r); \
		fortran = outer; \
	}
