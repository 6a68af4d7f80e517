//go:build cgo

#include "shim.h"

#include "abi.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// The functions of libpmix that are used: one list makes the table and fills it.
#define FUNCTIONS(X)                  \
	X(PMIx_Get_version)               \
	X(PMIx_Error_string)              \
	X(PMIx_server_init)               \
	X(PMIx_generate_regex)            \
	X(PMIx_generate_ppn)              \
	X(PMIx_server_register_nspace)    \
	X(PMIx_server_deregister_nspace)  \
	X(PMIx_server_setup_local_support) \
	X(PMIx_server_register_client)    \
	X(PMIx_server_setup_fork)         \
	X(PMIx_server_dmodex_request)     \
	X(PMIx_Notify_event)              \
	X(PMIx_Store_internal)            \
	X(PMIx_Data_pack)                 \
	X(PMIx_Data_unpack)               \
	X(PMIx_Data_load)                 \
	X(PMIx_Data_unload)               \
	X(PMIx_Value_destruct)            \
	X(PMIx_Get_attribute_string)      \
	X(PMIx_Get_attribute_name)

static struct {
#define MEMBER(name) __typeof__(&name) name;
	FUNCTIONS(MEMBER)
#undef MEMBER
} lib;

static uintptr_t owner; // of the Go side
static pmix_proc_t self; // the server as its clients know it

// What Go exports; see upcall_unsafe.go for what each gets.
extern void gorunConnected(uintptr_t owner, char *nspace, uint32_t rank);
extern void gorunFinalized(uintptr_t owner, char *nspace, uint32_t rank);
extern void gorunAbort(uintptr_t owner, void *request, char *nspace, uint32_t rank, int status, char *text);
extern void gorunFence(uintptr_t owner, void *request, int kind, gorun_proc *procs, size_t n, void *data, size_t size);
extern void gorunModex(uintptr_t owner, void *request, char *nspace, uint32_t rank);
extern void gorunModexData(uintptr_t owner, uint64_t id, int status, void *data, size_t size);
extern void gorunPublish(uintptr_t owner, void *request, char *nspace, uint32_t rank, int own, int once, size_t n, char **keys, void **values, size_t *sizes, int *texts);
extern void gorunLookup(uintptr_t owner, void *request, char *nspace, uint32_t rank, size_t n, char **keys, int wait, int timeout);
extern void gorunUnpublish(uintptr_t owner, void *request, char *nspace, uint32_t rank, size_t n, char **keys);
extern void gorunSpawn(uintptr_t owner, void *request, char *nspace, uint32_t rank, size_t n, char **words, size_t *counts);
extern void gorunNotify(uintptr_t owner, void *data, size_t size);
extern void gorunLog(uintptr_t owner, char *nspace, uint32_t rank, int stream, void *text, size_t size);
extern void gorunLogged(uintptr_t owner, void *request);
extern void gorunQuery(uintptr_t owner, void *request, gorun_query *queries, size_t n);
extern void gorunControl(uintptr_t owner, void *request, char *nspace, uint32_t rank, gorun_proc *procs, size_t n, int signal, int end);
extern void gorunGroup(uintptr_t owner, void *request, int kind, char *name, gorun_proc *procs, size_t n, int context, void *data, size_t size);

static void *library;

int gorun_pmix_open(const char *path, char *err, size_t size) {
	void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (so == NULL) {
		snprintf(err, size, "%s", dlerror());
		return -1;
	}
	*(void **)&lib.PMIx_Get_version = dlsym(so, "PMIx_Get_version");
	if (lib.PMIx_Get_version == NULL) {
		snprintf(err, size, "%s has no function PMIx_Get_version", path);
		dlclose(so);
		return -1;
	}
	library = so;
	return 0;
}

int gorun_pmix_find(char *err, size_t size) {
#define FIND(name)                                                              \
	*(void **)&lib.name = dlsym(library, #name);                                \
	if (lib.name == NULL) {                                                     \
		snprintf(err, size, "this libpmix has no function %s", #name);          \
		return -1;                                                              \
	}
	FUNCTIONS(FIND)
#undef FIND
	return 0;
}

const char *gorun_pmix_library_version(void) { return lib.PMIx_Get_version(); }

const char *gorun_pmix_error(int status) { return lib.PMIx_Error_string(status); }

int gorun_pmix_status_not_found(void) { return PMIX_ERR_NOT_FOUND; }
int gorun_pmix_status_not_supported(void) { return PMIX_ERR_NOT_SUPPORTED; }
int gorun_pmix_status_partial(void) { return PMIX_ERR_PARTIAL_SUCCESS; }
int gorun_pmix_status_failed(void) { return PMIX_ERROR; }
int gorun_pmix_status_duplicate(void) { return PMIX_ERR_DUPLICATE_KEY; }
int gorun_pmix_status_timeout(void) { return PMIX_ERR_TIMEOUT; }

int gorun_mpi_try(const char *path, char *err, size_t size) {
	int (*init)(void *, void *) = NULL, (*finalize)(void) = NULL;
	void *so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (so != NULL) {
		*(void **)&init = dlsym(so, "MPI_Init");
		*(void **)&finalize = dlsym(so, "MPI_Finalize");
	}
	if (init == NULL || finalize == NULL) {
		const char *reason = dlerror();
		snprintf(err, size, "%s", reason != NULL ? reason : "it has no MPI_Init");
		return -1;
	}
	int rc = init(NULL, NULL);
	if (rc == 0 && (rc = finalize()) == 0) {
		exit(0); // MPICH since 4.2 leaves its launcher in a handler of exit, of which Go knows nothing
	}
	return rc;
}

// ---- values ----

static void set_key(pmix_info_t *info, const char *key) {
	memset(info, 0, sizeof *info);
	strncpy(info->key, key, PMIX_MAX_KEYLEN);
}

static void set_string(pmix_info_t *info, const char *key, const char *value) {
	set_key(info, key);
	info->value.type = PMIX_STRING;
	info->value.data.string = (char *)value;
}

static void set_uint32(pmix_info_t *info, const char *key, uint32_t value) {
	set_key(info, key);
	info->value.type = PMIX_UINT32;
	info->value.data.uint32 = value;
}

static void set_uint16(pmix_info_t *info, const char *key, uint16_t value) {
	set_key(info, key);
	info->value.type = PMIX_UINT16;
	info->value.data.uint16 = value;
}

static void set_flag(pmix_info_t *info, const char *key, int value) {
	set_key(info, key);
	info->value.type = PMIX_BOOL;
	info->value.data.flag = value;
}

static void set_rank(pmix_info_t *info, const char *key, uint32_t value) {
	set_key(info, key);
	info->value.type = PMIX_PROC_RANK;
	info->value.data.rank = value;
}

static void set_proc(pmix_proc_t *proc, const char *nspace, uint32_t rank) {
	memset(proc, 0, sizeof *proc);
	strncpy(proc->nspace, nspace, PMIX_MAX_NSLEN);
	proc->rank = rank;
}

// ---- waiting for libpmix ----

// A call that libpmix completes on its own thread.
typedef struct {
	pthread_mutex_t lock;
	pthread_cond_t cond;
	int over, status;
} call;

#define CALL {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0}

static void call_over(pmix_status_t status, void *data) {
	call *c = data;
	pthread_mutex_lock(&c->lock);
	c->over = 1;
	c->status = status;
	pthread_cond_signal(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

static int call_wait(call *c, pmix_status_t status) {
	if (status == PMIX_OPERATION_SUCCEEDED) {
		return 0;
	}
	if (status != PMIX_SUCCESS) {
		return status;
	}
	pthread_mutex_lock(&c->lock);
	while (!c->over) {
		pthread_cond_wait(&c->cond, &c->lock);
	}
	pthread_mutex_unlock(&c->lock);
	return c->status == PMIX_OPERATION_SUCCEEDED ? 0 : c->status;
}

// ---- upcalls ----

// What an upcall owes libpmix: one of the functions, and its argument.
typedef struct {
	pmix_op_cbfunc_t op;
	pmix_modex_cbfunc_t modex;
	pmix_lookup_cbfunc_t lookup;
	pmix_spawn_cbfunc_t spawn;
	pmix_info_cbfunc_t infos;
	void *data;
} request;

static request *new_request(void *data) {
	request *r = calloc(1, sizeof *r);
	if (r != NULL) {
		r->data = data;
	}
	return r;
}

void gorun_pmix_done(void *p, int status) {
	request *r = p;
	if (r->op != NULL) {
		r->op(status, r->data);
	} else if (r->modex != NULL) {
		r->modex(status, NULL, 0, r->data, NULL, NULL);
	} else if (r->lookup != NULL) {
		r->lookup(status, NULL, 0, r->data);
	} else if (r->spawn != NULL) {
		pmix_nspace_t none;
		memset(none, 0, sizeof none);
		r->spawn(status, none, r->data);
	} else if (r->infos != NULL) {
		r->infos(status, NULL, 0, r->data, NULL, NULL);
	}
	free(r);
}

static void release(void *data) { free(data); }

void gorun_pmix_done_data(void *p, int status, const void *data, size_t size) {
	request *r = p;
	void *copy = NULL;
	if (r->modex == NULL) {
		gorun_pmix_done(p, status);
		return;
	}
	if (size > 0) {
		copy = malloc(size);
		if (copy == NULL) {
			status = PMIX_ERR_NOMEM;
			size = 0;
		} else {
			memcpy(copy, data, size);
		}
	}
	r->modex(status, copy, size, r->data, release, copy);
	free(r);
}

void gorun_pmix_done_spawn(void *p, int status, const char *nspace) {
	request *r = p;
	pmix_nspace_t name;
	memset(name, 0, sizeof name);
	strncpy(name, nspace, PMIX_MAX_NSLEN);
	r->spawn(status, name, r->data);
	free(r);
}

// An answer's values, all in memory of their own, until libpmix has read them.
typedef struct {
	pmix_info_t *info;
	size_t n;
} answer;

static void free_answer(void *data) {
	answer *a = data;
	for (size_t i = 0; i < a->n; i++) {
		lib.PMIx_Value_destruct(&a->info[i].value);
	}
	free(a->info);
	free(a);
}

static pmix_data_array_t *new_array(pmix_data_type_t type, size_t n, size_t each) {
	pmix_data_array_t *a = calloc(1, sizeof *a);
	if (a != NULL) {
		a->type = type;
		a->size = n;
		a->array = calloc(n > 0 ? n : 1, each);
		if (a->array == NULL) {
			free(a);
			return NULL;
		}
	}
	return a;
}

static char *copy_text(const char *text) { return text[0] != 0 ? strdup(text) : NULL; }

static int fill(pmix_info_t *to, const gorun_info *from, size_t n) {
	for (size_t i = 0; i < n; i++, to++, from++) {
		pmix_value_t *v = &to->value;
		strncpy(to->key, lib.PMIx_Get_attribute_string((char *)from->key), PMIX_MAX_KEYLEN);
		switch (from->kind) {
		case GORUN_TEXT:
			v->type = PMIX_STRING;
			v->data.string = strdup(from->text);
			if (v->data.string == NULL) {
				return PMIX_ERR_NOMEM;
			}
			break;
		case GORUN_FLAG:
			v->type = PMIX_BOOL;
			v->data.flag = from->number != 0;
			break;
		case GORUN_NUMBER:
			v->type = PMIX_UINT32;
			v->data.uint32 = (uint32_t)from->number;
			break;
		case GORUN_SIZE:
			v->type = PMIX_SIZE;
			v->data.size = from->number;
			break;
		case GORUN_STATUS:
			v->type = PMIX_STATUS;
			v->data.status = (pmix_status_t)(int64_t)from->number;
			break;
		case GORUN_REAL:
			v->type = PMIX_FLOAT;
			v->data.fval = (float)from->real;
			break;
		case GORUN_BYTES:
			v->type = PMIX_BYTE_OBJECT;
			v->data.bo.bytes = malloc(from->n > 0 ? from->n : 1);
			if (v->data.bo.bytes == NULL) {
				return PMIX_ERR_NOMEM;
			}
			memcpy(v->data.bo.bytes, from->bytes, from->n);
			v->data.bo.size = from->n;
			break;
		case GORUN_LIST:
			v->data.darray = new_array(PMIX_INFO, from->n, sizeof(pmix_info_t));
			if (v->data.darray == NULL) {
				return PMIX_ERR_NOMEM;
			}
			v->type = PMIX_DATA_ARRAY;
			int rc = fill(v->data.darray->array, from->list, from->n);
			if (rc != 0) {
				return rc;
			}
			break;
		case GORUN_PROCESSES:
			v->data.darray = new_array(PMIX_PROC_INFO, from->n, sizeof(pmix_proc_info_t));
			if (v->data.darray == NULL) {
				return PMIX_ERR_NOMEM;
			}
			v->type = PMIX_DATA_ARRAY;
			pmix_proc_info_t *p = v->data.darray->array;
			for (size_t k = 0; k < from->n; k++) {
				const gorun_process *q = &from->processes[k];
				set_proc(&p[k].proc, q->nspace, q->rank);
				p[k].hostname = copy_text(q->host);
				p[k].executable_name = copy_text(q->program);
				p[k].pid = (pid_t)q->pid;
				p[k].exit_code = q->exit;
				p[k].state = (pmix_proc_state_t)q->state;
			}
			break;
		case GORUN_PROCS:
			v->data.darray = new_array(PMIX_PROC, from->n, sizeof(pmix_proc_t));
			if (v->data.darray == NULL) {
				return PMIX_ERR_NOMEM;
			}
			v->type = PMIX_DATA_ARRAY;
			for (size_t k = 0; k < from->n; k++) {
				set_proc((pmix_proc_t *)v->data.darray->array + k, from->procs[k].nspace, from->procs[k].rank);
			}
		}
	}
	return 0;
}

void gorun_pmix_done_infos(void *p, int status, const gorun_info *infos, size_t n) {
	request *r = p;
	answer *a = calloc(1, sizeof *a);
	if (a != NULL) {
		a->info = calloc(n > 0 ? n : 1, sizeof *a->info);
	}
	if (a == NULL || a->info == NULL) {
		free(a);
		gorun_pmix_done(p, PMIX_ERR_NOMEM);
		return;
	}
	a->n = n;
	int rc = fill(a->info, infos, n);
	if (rc != 0) {
		free_answer(a);
		gorun_pmix_done(p, rc);
		return;
	}
	r->infos(status, n > 0 ? a->info : NULL, n, r->data, free_answer, a);
	free(r);
}

// pack_value and unpack_value turn a value into bytes and back, in libpmix's own
// encoding.
static int pack_value(pmix_value_t *value, void **bytes, size_t *size) {
	pmix_data_buffer_t buffer;
	pmix_byte_object_t object;
	memset(&buffer, 0, sizeof buffer);
	memset(&object, 0, sizeof object);
	int rc = lib.PMIx_Data_pack(NULL, &buffer, value, 1, PMIX_VALUE);
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unload(&buffer, &object);
	}
	if (rc != PMIX_SUCCESS) {
		free(buffer.base_ptr);
		return rc;
	}
	*bytes = object.bytes;
	*size = object.size;
	return 0;
}

static int unpack_value(const void *bytes, size_t size, pmix_value_t *value) {
	pmix_data_buffer_t buffer;
	pmix_byte_object_t object;
	int32_t n = 1;
	memset(&buffer, 0, sizeof buffer);
	memset(value, 0, sizeof *value);
	object.bytes = malloc(size);
	if (object.bytes == NULL) {
		return PMIX_ERR_NOMEM;
	}
	memcpy(object.bytes, bytes, size);
	object.size = size;
	int rc = lib.PMIx_Data_load(&buffer, &object); // takes the bytes
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unpack(NULL, &buffer, value, &n, PMIX_VALUE);
	}
	free(buffer.base_ptr);
	return rc;
}

void gorun_pmix_done_lookup(void *p, int status, size_t n, const gorun_proc *procs, const char **keys, const void **values, const size_t *sizes, const int *texts) {
	request *r = p;
	pmix_pdata_t *data = calloc(n > 0 ? n : 1, sizeof *data);
	size_t have = 0;
	if (data == NULL) {
		gorun_pmix_done(p, PMIX_ERR_NOMEM);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		set_proc(&data[have].proc, procs[i].nspace, procs[i].rank);
		strncpy(data[have].key, keys[i], PMIX_MAX_KEYLEN);
		int rc = PMIX_SUCCESS;
		if (texts[i]) { // ends with a NUL
			data[have].value.type = PMIX_STRING;
			data[have].value.data.string = (char *)values[i];
		} else {
			rc = unpack_value(values[i], sizes[i], &data[have].value);
		}
		if (rc != PMIX_SUCCESS) {
			status = rc;
			continue;
		}
		have++;
	}
	r->lookup(status, data, have, r->data);
	// libpmix has copied what it wants.
	for (size_t i = 0; i < have; i++) {
		if (data[i].value.type != PMIX_STRING) {
			lib.PMIx_Value_destruct(&data[i].value);
		}
	}
	free(data);
	free(r);
}

static pmix_status_t on_connected(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data) {
	gorunConnected(owner, (char *)proc->nspace, proc->rank);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_connected_1(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cb, void *data) {
	gorunConnected(owner, (char *)proc->nspace, proc->rank);
	return PMIX_OPERATION_SUCCEEDED;
}

static pmix_status_t on_finalized(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cb, void *data) {
	gorunFinalized(owner, (char *)proc->nspace, proc->rank);
	return PMIX_OPERATION_SUCCEEDED;
}

#define REQUEST(member)                  \
	request *r = new_request(data);      \
	if (r == NULL) {                     \
		return PMIX_ERR_NOMEM;           \
	}                                    \
	r->member = cb

static pmix_status_t on_abort(const pmix_proc_t *proc, void *object, int status, const char text[], pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t cb, void *data) {
	REQUEST(op);
	gorunAbort(owner, r, (char *)proc->nspace, proc->rank, status, (char *)(text != NULL ? text : ""));
	return PMIX_SUCCESS;
}

// The kinds of fences, as Go numbers them: a connect is not met by a fence.
enum { FENCE, CONNECT, DISCONNECT, CONSTRUCT, DESTRUCT };

static gorun_proc *proc_list(const pmix_proc_t procs[], size_t n) {
	gorun_proc *list = calloc(n > 0 ? n : 1, sizeof *list);
	for (size_t i = 0; list != NULL && i < n; i++) {
		list[i].nspace = procs[i].nspace;
		list[i].rank = procs[i].rank;
	}
	return list;
}

static pmix_status_t meet(request *r, int kind, const pmix_proc_t procs[], size_t n, void *bytes, size_t size) {
	gorun_proc *list = proc_list(procs, n);
	if (list == NULL) {
		free(r);
		return PMIX_ERR_NOMEM;
	}
	gorunFence(owner, r, kind, list, n, bytes, size);
	free(list);
	return PMIX_SUCCESS;
}

static pmix_status_t on_fence(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, char *bytes, size_t size, pmix_modex_cbfunc_t cb, void *data) {
	REQUEST(modex);
	return meet(r, FENCE, procs, n, bytes, size);
}

static pmix_status_t on_connect(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cb, void *data) {
	REQUEST(op);
	return meet(r, CONNECT, procs, n, NULL, 0);
}

static pmix_status_t on_disconnect(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cb, void *data) {
	REQUEST(op);
	return meet(r, DISCONNECT, procs, n, NULL, 0);
}

static pmix_status_t on_modex(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, pmix_modex_cbfunc_t cb, void *data) {
	REQUEST(modex);
	gorunModex(owner, r, (char *)proc->nspace, proc->rank);
	return PMIX_SUCCESS;
}

static int is(const pmix_info_t *info, const char *key) { return strncmp(info->key, key, PMIX_MAX_KEYLEN) == 0; }

// directive tells keys of an info array that say how to publish, not what.
static int directive(const char *key) {
	static const char *const keys[] = {PMIX_RANGE, PMIX_PERSISTENCE, PMIX_TIMEOUT, PMIX_USERID, PMIX_GRPID, PMIX_WAIT};
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		if (strncmp(key, keys[i], PMIX_MAX_KEYLEN) == 0) {
			return 1;
		}
	}
	return 0;
}

static pmix_status_t on_publish(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data) {
	REQUEST(op);
	char **keys = calloc(n + 1, sizeof *keys);
	void **values = calloc(n + 1, sizeof *values);
	size_t *sizes = calloc(n + 1, sizeof *sizes);
	int *texts = calloc(n + 1, sizeof *texts);
	size_t have = 0;
	int rc = PMIX_ERR_NOMEM, own = 0, once = 0;
	if (keys != NULL && values != NULL && sizes != NULL && texts != NULL) {
		rc = PMIX_SUCCESS;
		for (size_t i = 0; i < n && rc == PMIX_SUCCESS; i++) {
			const pmix_value_t *v = &info[i].value;
			own |= is(&info[i], PMIX_RANGE) && v->type == PMIX_DATA_RANGE && v->data.range == PMIX_RANGE_NAMESPACE;
			once |= is(&info[i], PMIX_PERSISTENCE) && v->type == PMIX_PERSIST && v->data.persist == PMIX_PERSIST_FIRST_READ;
			if (directive(info[i].key)) {
				continue;
			}
			keys[have] = (char *)info[i].key;
			texts[have] = v->type == PMIX_STRING && v->data.string != NULL;
			if (texts[have]) {
				sizes[have] = strlen(v->data.string);
				values[have] = strdup(v->data.string);
				rc = values[have] != NULL ? PMIX_SUCCESS : PMIX_ERR_NOMEM;
			} else {
				rc = pack_value((pmix_value_t *)v, &values[have], &sizes[have]);
			}
			if (rc == PMIX_SUCCESS) {
				have++;
			}
		}
	}
	if (rc == PMIX_SUCCESS) {
		gorunPublish(owner, r, (char *)proc->nspace, proc->rank, own, once, have, keys, values, sizes, texts);
	} else {
		free(r);
	}
	for (size_t i = 0; i < have; i++) {
		free(values[i]);
	}
	free(keys);
	free(values);
	free(sizes);
	free(texts);
	return rc;
}

static size_t count(char **keys) {
	size_t n = 0;
	while (keys != NULL && keys[n] != NULL) {
		n++;
	}
	return n;
}

static pmix_status_t on_lookup(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t n, pmix_lookup_cbfunc_t cb, void *data) {
	int wait = 0, timeout = 0;
	REQUEST(lookup);
	for (size_t i = 0; i < n; i++) {
		const pmix_value_t *v = &info[i].value;
		if (is(&info[i], PMIX_WAIT)) {
			wait = 1; // for all keys, whatever number it gives
		} else if (is(&info[i], PMIX_TIMEOUT)) {
			timeout = v->type == PMIX_INT ? v->data.integer : v->type == PMIX_UINT32 ? (int)v->data.uint32 : 0;
		}
	}
	gorunLookup(owner, r, (char *)proc->nspace, proc->rank, count(keys), keys, wait, timeout);
	return PMIX_SUCCESS;
}

static pmix_status_t on_unpublish(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data) {
	REQUEST(op);
	gorunUnpublish(owner, r, (char *)proc->nspace, proc->rank, count(keys), keys);
	return PMIX_SUCCESS;
}

// hints are what a spawn may ask for, in MPI's words. Those of the job hold for all
// of its applications.
static const struct {
	const char *key, *hint;
} hints[] = {
	{PMIX_HOST, "host"},         {PMIX_HOSTFILE, "hostfile"}, {PMIX_ADD_HOST, "add-host"}, {PMIX_ADD_HOSTFILE, "add-hostfile"},
	{PMIX_WDIR, "wdir"},         {PMIX_PPR, "ppr"},           {PMIX_MAPBY, "map_by"},      {PMIX_RANKBY, "rank_by"},
	{PMIX_BINDTO, "bind_to"},
};

// hints_of adds the pairs of hint and value among infos at word[at], if word is not
// NULL, and returns how many there are.
static size_t hints_of(const pmix_info_t info[], size_t n, char **word, size_t at) {
	size_t have = 0;
	for (size_t i = 0; i < n; i++) {
		if (info[i].value.type != PMIX_STRING || info[i].value.data.string == NULL) {
			continue;
		}
		for (size_t k = 0; k < sizeof hints / sizeof *hints; k++) {
			if (is(&info[i], hints[k].key)) {
				if (word != NULL) {
					word[at + 2 * have] = (char *)hints[k].hint;
					word[at + 2 * have + 1] = info[i].value.data.string;
				}
				have++;
			}
		}
	}
	return have;
}

// on_spawn flattens the applications into words: for each the program and its
// arguments, its environment, and pairs of hints and values, with four counts:
// ranks, words of argv, words of env, hints.
static pmix_status_t on_spawn(const pmix_proc_t *proc, const pmix_info_t job[], size_t njob, const pmix_app_t apps[], size_t n, pmix_spawn_cbfunc_t cb, void *data) {
	REQUEST(spawn);
	size_t words = 0;
	for (size_t i = 0; i < n; i++) {
		words += 3 + count(apps[i].argv) + count(apps[i].env) + 2 * (njob + apps[i].ninfo);
	}
	char **word = calloc(words + 1, sizeof *word);
	size_t *counts = calloc(4 * n + 1, sizeof *counts);
	if (word == NULL || counts == NULL) {
		free(word);
		free(counts);
		free(r);
		return PMIX_ERR_NOMEM;
	}
	size_t at = 0;
	for (size_t i = 0; i < n; i++) {
		const pmix_app_t *a = &apps[i];
		size_t argc = count(a->argv), envc = count(a->env), infos = 0;
		counts[4 * i] = a->maxprocs > 0 ? (size_t)a->maxprocs : 1;
		counts[4 * i + 1] = argc > 0 ? argc : 1;
		counts[4 * i + 2] = envc;
		if (argc == 0) {
			word[at++] = a->cmd != NULL ? a->cmd : "";
		}
		for (size_t k = 0; k < argc; k++) {
			// The file to execute stands in cmd, whatever argv[0] says.
			word[at++] = k == 0 && a->cmd != NULL ? a->cmd : a->argv[k];
		}
		for (size_t k = 0; k < envc; k++) {
			word[at++] = a->env[k];
		}
		// The last one of a name counts: where the spawning process is, unless it
		// asks for another directory.
		if (a->cwd != NULL) {
			word[at++] = "wdir";
			word[at++] = a->cwd;
			infos++;
		}
		size_t more = hints_of(job, njob, word, at);
		at += 2 * more;
		infos += more;
		more = hints_of(a->info, a->ninfo, word, at);
		at += 2 * more;
		counts[4 * i + 3] = infos + more;
	}
	gorunSpawn(owner, r, (char *)proc->nspace, proc->rank, n, word, counts);
	free(word);
	free(counts);
	return PMIX_SUCCESS;
}

static pmix_status_t on_register_events(pmix_status_t *codes, size_t ncodes, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data) {
	return PMIX_OPERATION_SUCCEEDED; // libpmix itself tells what its own clients do
}

static pmix_status_t on_deregister_events(pmix_status_t *codes, size_t ncodes, pmix_op_cbfunc_t cb, void *data) {
	return PMIX_OPERATION_SUCCEEDED;
}

// on_notify passes an event of a local process on to the other nodes: code,
// range, source, and the values beside it. libpmix has told the local ones.
static pmix_status_t on_notify(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range, pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data) {
	if (range == PMIX_RANGE_LOCAL || range == PMIX_RANGE_PROC_LOCAL || range == PMIX_RANGE_RM) {
		return PMIX_OPERATION_SUCCEEDED;
	}
	pmix_data_buffer_t buffer;
	pmix_byte_object_t object;
	memset(&buffer, 0, sizeof buffer);
	memset(&object, 0, sizeof object);
	int rc = lib.PMIx_Data_pack(NULL, &buffer, &code, 1, PMIX_STATUS);
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_pack(NULL, &buffer, &range, 1, PMIX_DATA_RANGE);
	}
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_pack(NULL, &buffer, (void *)source, 1, PMIX_PROC);
	}
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_pack(NULL, &buffer, &n, 1, PMIX_SIZE);
	}
	if (rc == PMIX_SUCCESS && n > 0) {
		rc = lib.PMIx_Data_pack(NULL, &buffer, info, (int32_t)n, PMIX_INFO);
	}
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unload(&buffer, &object);
	}
	if (rc != PMIX_SUCCESS) {
		free(buffer.base_ptr);
		return rc;
	}
	gorunNotify(owner, object.bytes, object.size);
	free(object.bytes);
	return PMIX_OPERATION_SUCCEEDED;
}

static void free_infos(pmix_status_t status, void *data) { free(data); }

int gorun_pmix_deliver(const void *bytes, size_t size) {
	pmix_data_buffer_t buffer;
	pmix_byte_object_t object;
	pmix_status_t code;
	pmix_data_range_t range;
	pmix_proc_t source;
	pmix_info_t *info = NULL;
	size_t n = 0;
	int32_t one = 1;
	memset(&buffer, 0, sizeof buffer);
	object.bytes = malloc(size);
	if (object.bytes == NULL) {
		return PMIX_ERR_NOMEM;
	}
	memcpy(object.bytes, bytes, size);
	object.size = size;
	int rc = lib.PMIx_Data_load(&buffer, &object);
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unpack(NULL, &buffer, &code, &one, PMIX_STATUS);
	}
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unpack(NULL, &buffer, &range, &one, PMIX_DATA_RANGE);
	}
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unpack(NULL, &buffer, &source, &one, PMIX_PROC);
	}
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_Data_unpack(NULL, &buffer, &n, &one, PMIX_SIZE);
	}
	if (rc == PMIX_SUCCESS && n > 1000) {
		rc = PMIX_ERR_BAD_PARAM;
	}
	if (rc == PMIX_SUCCESS && n > 0) {
		int32_t many = (int32_t)n;
		info = calloc(n, sizeof *info);
		rc = info == NULL ? PMIX_ERR_NOMEM : lib.PMIx_Data_unpack(NULL, &buffer, info, &many, PMIX_INFO);
	}
	free(buffer.base_ptr);
	if (rc != PMIX_SUCCESS) {
		free(info);
		return rc;
	}
	// Only the local ones: the sender's server has told all nodes.
	rc = lib.PMIx_Notify_event(code, &source, PMIX_RANGE_LOCAL, info, n, free_infos, info);
	if (rc != PMIX_SUCCESS) {
		free(info);
	}
	return rc == PMIX_OPERATION_SUCCEEDED ? 0 : rc;
}

// on_log passes on what a process wants to be seen on the job's output: that is how
// Open MPI explains what went wrong, 5 as a text, 4 packed (help.go). It must not be answered from within.
static void on_log(const pmix_proc_t *proc, const pmix_info_t texts[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cb, void *data) {
	request *r = new_request(data);
	if (r == NULL) {
		return; // and the process is not answered
	}
	r->op = cb;
	for (size_t i = 0; i < n; i++) {
		const pmix_info_t *t = &texts[i];
		const pmix_value_t *v = &t->value;
		int stream = is(t, PMIX_LOG_STDERR) ? 2 : is(t, PMIX_LOG_STDOUT) ? 1 : 0;
		if (stream != 0 && v->type == PMIX_STRING && v->data.string != NULL) {
			gorunLog(owner, (char *)proc->nspace, proc->rank, stream, v->data.string, strlen(v->data.string));
		} else if (is(t, PMIX_LOG_MSG) && v->type == PMIX_BYTE_OBJECT) {
			gorunLog(owner, (char *)proc->nspace, proc->rank, 0, v->data.bo.bytes, v->data.bo.size);
		}
	}
	gorunLogged(owner, r);
}

static const char *name_of(const char *key) {
	// It warns of no key and returns the key itself where it knows no name.
	const char *name = lib.PMIx_Get_attribute_name((char *)key);
	return name != NULL ? name : key;
}

// on_query passes on what libpmix cannot answer from what it was told of the
// namespaces. It does not tell who asks.
static pmix_status_t on_query(pmix_proc_t *proc, pmix_query_t *queries, size_t n, pmix_info_cbfunc_t cb, void *data) {
	REQUEST(infos);
	gorun_query *list = calloc(n > 0 ? n : 1, sizeof *list);
	size_t total = 0, at = 0;
	for (size_t i = 0; i < n; i++) {
		total += count(queries[i].keys);
	}
	const char **keys = calloc(total + 1, sizeof *keys);
	if (list == NULL || keys == NULL) {
		free(list);
		free(keys);
		free(r);
		return PMIX_ERR_NOMEM;
	}
	for (size_t i = 0; i < n; i++) {
		list[i].keys = keys + at;
		list[i].n = count(queries[i].keys);
		list[i].nspace = "";
		for (size_t k = 0; k < list[i].n; k++) {
			keys[at++] = name_of(queries[i].keys[k]);
		}
		for (size_t k = 0; k < queries[i].nqual; k++) {
			const pmix_info_t *q = &queries[i].qualifiers[k];
			if (is(q, PMIX_NSPACE) && q->value.type == PMIX_STRING && q->value.data.string != NULL) {
				list[i].nspace = q->value.data.string;
			} else if (is(q, PMIX_PROCID) && q->value.type == PMIX_PROC && q->value.data.proc != NULL) {
				list[i].nspace = q->value.data.proc->nspace;
			} else if (is(q, PMIX_QUERY_LOCAL_ONLY)) {
				list[i].local = q->value.type == PMIX_UNDEF || q->value.data.flag;
			}
		}
	}
	gorunQuery(owner, r, list, n);
	free(list);
	free(keys);
	return PMIX_SUCCESS;
}

// on_job_control passes on what ends, stops or signals processes. What they ask to
// be removed at the end libpmix itself keeps, but only where this function exists.
// Checkpoints, restarts and the provision of nodes are not this launcher's.
static pmix_status_t on_job_control(const pmix_proc_t *proc, const pmix_proc_t targets[], size_t ntargets, const pmix_info_t directives[], size_t n, pmix_info_cbfunc_t cb, void *data) {
	int signal = 0, end = 0, actions = 0;
	for (size_t i = 0; i < n; i++) {
		const pmix_info_t *d = &directives[i];
		const pmix_value_t *v = &d->value;
		int on = v->type == PMIX_UNDEF || (v->type == PMIX_BOOL && v->data.flag);
		if (is(d, PMIX_JOB_CTRL_SIGNAL)) {
			signal = v->type == PMIX_INT ? v->data.integer : v->type == PMIX_INT32 ? v->data.int32 : -1;
			actions++;
		} else if (is(d, PMIX_JOB_CTRL_KILL)) {
			signal = on ? SIGKILL : signal;
			actions += on;
		} else if (is(d, PMIX_JOB_CTRL_TERMINATE)) {
			signal = on ? SIGTERM : signal;
			end = on;
			actions += on;
		} else if (is(d, PMIX_JOB_CTRL_PAUSE)) {
			signal = on ? SIGSTOP : signal;
			actions += on;
		} else if (is(d, PMIX_JOB_CTRL_RESUME)) {
			signal = on ? SIGCONT : signal;
			actions += on;
		} else if (!is(d, PMIX_JOB_CTRL_ID) && !is(d, PMIX_REGISTER_CLEANUP) && !is(d, PMIX_REGISTER_CLEANUP_DIR) &&
		           !is(d, PMIX_CLEANUP_RECURSIVE) && !is(d, PMIX_CLEANUP_IGNORE) && !is(d, PMIX_CLEANUP_LEAVE_TOPDIR)) {
			return PMIX_ERR_NOT_SUPPORTED;
		}
	}
	if (actions != 1 || signal < 0 || signal >= NSIG) {
		return PMIX_ERR_BAD_PARAM;
	}
	REQUEST(infos);
	pmix_proc_t all;
	set_proc(&all, proc->nspace, PMIX_RANK_WILDCARD);
	if (ntargets == 0) {
		targets = &all;
		ntargets = 1;
	}
	gorun_proc *list = proc_list(targets, ntargets);
	if (list == NULL) {
		free(r);
		return PMIX_ERR_NOMEM;
	}
	gorunControl(owner, r, (char *)proc->nspace, proc->rank, list, ntargets, signal, end);
	free(list);
	return PMIX_SUCCESS;
}

// on_group makes and unmakes groups whose members are not all here, or want a number
// for their group: a fence with a name.
static pmix_status_t on_group(pmix_group_operation_t op, char name[], const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_info_cbfunc_t cb, void *data) {
	int context = 0;
	void *bytes = NULL;
	size_t size = 0;
	for (size_t i = 0; i < ninfo; i++) {
		const pmix_value_t *v = &info[i].value;
		if (is(&info[i], PMIX_GROUP_ASSIGN_CONTEXT_ID)) {
			context = v->type == PMIX_UNDEF || v->data.flag;
		} else if (is(&info[i], PMIX_GROUP_ENDPT_DATA) && v->type == PMIX_BYTE_OBJECT) {
			bytes = v->data.bo.bytes;
			size = v->data.bo.size;
		} else if (is(&info[i], PMIX_GROUP_LOCAL_ONLY) && op == PMIX_GROUP_DESTRUCT && (v->type == PMIX_UNDEF || v->data.flag)) {
			// libpmix 5.0.7 (pmix_server_grpdestruct) calls again for what it is told
			// is under way, and would be answered twice.
			return PMIX_OPERATION_SUCCEEDED;
		}
	}
	REQUEST(infos);
	gorun_proc *list = proc_list(procs, n);
	if (list == NULL) {
		free(r);
		return PMIX_ERR_NOMEM;
	}
	gorunGroup(owner, r, op == PMIX_GROUP_CONSTRUCT ? CONSTRUCT : DESTRUCT, name, list, n, context, bytes, size);
	free(list);
	return PMIX_SUCCESS;
}

static void on_modex_data(pmix_status_t status, char *bytes, size_t size, void *data) {
	uint64_t *id = data;
	gorunModexData(owner, *id, status, bytes, size);
	free(id);
}

int gorun_pmix_modex(const char *nspace, uint32_t rank, uint64_t id) {
	pmix_proc_t proc;
	uint64_t *copy = malloc(sizeof *copy);
	if (copy == NULL) {
		return PMIX_ERR_NOMEM;
	}
	*copy = id;
	set_proc(&proc, nspace, rank);
	int rc = lib.PMIx_server_dmodex_request(&proc, on_modex_data, copy);
	if (rc != PMIX_SUCCESS) {
		free(copy);
	}
	return rc;
}

// ---- the server ----

int gorun_pmix_start(uintptr_t handle, const char *tmpdir, const char *host) {
	// A newer library looks at members that abi.h does not have: the room for
	// them holds nothing.
	static union {
		pmix_server_module_t m;
		void *room[128];
	} module;
	owner = handle;
	module.m.client_connected = on_connected_1;
	module.m.client_connected2 = on_connected;
	module.m.client_finalized = on_finalized;
	module.m.abort = on_abort;
	module.m.fence_nb = on_fence;
	module.m.direct_modex = on_modex;
	module.m.publish = on_publish;
	module.m.lookup = on_lookup;
	module.m.unpublish = on_unpublish;
	module.m.spawn = on_spawn;
	module.m.connect = on_connect;
	module.m.disconnect = on_disconnect;
	module.m.register_events = on_register_events;
	module.m.deregister_events = on_deregister_events;
	module.m.notify_event = on_notify;
	module.m.query = on_query;
	module.m.job_control = on_job_control;
	module.m.group = on_group;
	module.m.log = on_log;

	set_proc(&self, "SRV", 0);
	pmix_info_t info[5];
	set_string(&info[0], PMIX_SERVER_TMPDIR, tmpdir);
	set_string(&info[1], PMIX_SYSTEM_TMPDIR, tmpdir);
	set_string(&info[2], PMIX_HOSTNAME, host);
	set_key(&info[3], PMIX_SERVER_NSPACE);
	info[3].value.type = PMIX_STRING;
	info[3].value.data.string = self.nspace;
	set_rank(&info[4], PMIX_SERVER_RANK, 0);
	return lib.PMIx_server_init(&module.m, info, sizeof info / sizeof *info);
}

int gorun_pmix_ping(void) {
	static char text[] = "1";
	pmix_value_t value;
	memset(&value, 0, sizeof value);
	value.type = PMIX_STRING;
	value.data.string = text;
	return lib.PMIx_Store_internal(&self, "gorun.ping", &value);
}

// How many ranks an application has, and the first of them.
typedef struct {
	uint32_t size, leader;
} app_shape;

int gorun_pmix_register(const gorun_namespace *ns, uint32_t uid, uint32_t gid) {
	enum { JOB = 24, PROC = 12, APP = 5 };
	char *nodes = NULL, *procs = NULL;
	uint32_t leader = 0;
	int rc = lib.PMIx_generate_regex(ns->nodes, &nodes);
	if (rc == PMIX_SUCCESS) {
		rc = lib.PMIx_generate_ppn(ns->procs, &procs);
	}
	if (rc != PMIX_SUCCESS) {
		return rc;
	}
	size_t total = JOB + (size_t)ns->size + ns->app_count;
	pmix_info_t *info = calloc(total, sizeof *info);
	pmix_info_t *each = calloc((size_t)ns->size * PROC, sizeof *each);
	pmix_data_array_t *arrays = calloc((size_t)ns->size + ns->app_count, sizeof *arrays);
	pmix_info_t *apps = calloc((size_t)ns->app_count * APP, sizeof *apps);
	app_shape *shapes = calloc(ns->app_count, sizeof *shapes);
	pmix_proc_t parent;
	if (info == NULL || each == NULL || arrays == NULL || apps == NULL || shapes == NULL) {
		free(info);
		free(each);
		free(arrays);
		free(apps);
		free(shapes);
		return PMIX_ERR_NOMEM;
	}
	for (uint32_t r = ns->size; r-- > 0;) {
		if (ns->node_of[r] == ns->node) {
			leader = r;
		}
	}
	size_t n = 0;
	set_uint32(&info[n++], PMIX_UNIV_SIZE, ns->universe);
	set_uint32(&info[n++], PMIX_JOB_SIZE, ns->size);
	set_uint32(&info[n++], PMIX_MAX_PROCS, ns->universe);
	set_uint32(&info[n++], PMIX_LOCAL_SIZE, ns->local_count);
	set_uint32(&info[n++], PMIX_NODE_SIZE, ns->local_count);
	set_uint32(&info[n++], PMIX_NUM_NODES, ns->node_count);
	set_uint32(&info[n++], PMIX_JOB_NUM_APPS, ns->app_count);
	set_string(&info[n++], PMIX_JOBID, ns->nspace);
	set_string(&info[n++], "OMPI_APP_SIZES", ns->program_counts);
	set_string(&info[n++], "OMPI_FIRST_RANKS", ns->program_firsts);
	if (ns->dir[0] != 0) {
		set_string(&info[n++], PMIX_TMPDIR, ns->dir);
		set_string(&info[n++], PMIX_NSDIR, ns->own_dir);
		set_flag(&info[n++], PMIX_TDIR_RMCLEAN, 1);
	}
	set_string(&info[n++], PMIX_NODE_MAP, nodes);
	set_string(&info[n++], PMIX_PROC_MAP, procs);
	if (ns->peers[0] != 0) { // Open MPI 6 splits the list and reads its first word
		set_string(&info[n++], PMIX_LOCAL_PEERS, ns->peers);
		set_rank(&info[n++], PMIX_LOCALLDR, leader);
	}
	set_uint32(&info[n++], PMIX_NODEID, ns->node);
	set_flag(&info[n++], PMIX_SPAWNED, ns->parent[0] != 0);
	if (ns->parent[0] != 0) {
		set_proc(&parent, ns->parent, ns->parent_rank);
		set_key(&info[n], PMIX_PARENT_ID);
		info[n].value.type = PMIX_PROC;
		info[n++].value.data.proc = &parent;
	}
	for (uint32_t r = 0; r < ns->size; r++) {
		pmix_info_t *p = &each[(size_t)r * PROC];
		size_t k = 0;
		set_rank(&p[k++], PMIX_RANK, r); // must be first
		set_rank(&p[k++], PMIX_GLOBAL_RANK, r);
		set_uint16(&p[k++], PMIX_LOCAL_RANK, (uint16_t)ns->local_rank[r]);
		set_uint16(&p[k++], PMIX_NODE_RANK, (uint16_t)ns->local_rank[r]);
		set_uint32(&p[k++], PMIX_NODEID, ns->node_of[r]);
		app_shape *app = &shapes[ns->app_of[r]];
		if (app->size == 0) {
			app->leader = r;
		}
		set_uint32(&p[k++], PMIX_APPNUM, ns->app_of[r]);
		set_rank(&p[k++], PMIX_APP_RANK, app->size++);
		set_string(&p[k++], PMIX_HOSTNAME, ns->node_names[ns->node_of[r]]);
		set_uint32(&p[k++], PMIX_REINCARNATION, ns->restarts);
		if (ns->rank_dirs[r][0] != 0) {
			set_string(&p[k++], PMIX_PROCDIR, ns->rank_dirs[r]);
		}
		arrays[r].type = PMIX_INFO;
		arrays[r].size = k;
		arrays[r].array = p;
		set_key(&info[n], PMIX_PROC_DATA);
		info[n].value.type = PMIX_DATA_ARRAY;
		info[n++].value.data.darray = &arrays[r];
	}
	for (uint32_t a = 0; a < ns->app_count; a++) {
		pmix_info_t *p = &apps[(size_t)a * APP];
		pmix_data_array_t *array = &arrays[ns->size + a];
		size_t k = 0;
		set_uint32(&p[k++], PMIX_APPNUM, a); // must be first
		set_uint32(&p[k++], PMIX_APP_SIZE, shapes[a].size);
		set_rank(&p[k++], PMIX_APPLDR, shapes[a].leader);
		if (ns->app_lines[a][0] != 0) {
			set_string(&p[k++], PMIX_APP_ARGV, ns->app_lines[a]);
		}
		if (ns->app_dirs[a][0] != 0) {
			set_string(&p[k++], PMIX_WDIR, ns->app_dirs[a]);
		}
		array->type = PMIX_INFO;
		array->size = k;
		array->array = p;
		set_key(&info[n], PMIX_APP_INFO_ARRAY);
		info[n].value.type = PMIX_DATA_ARRAY;
		info[n++].value.data.darray = array;
	}
	call c = CALL;
	rc = call_wait(&c, lib.PMIx_server_register_nspace(ns->nspace, (int)ns->local_count, info, n, call_over, &c));
	if (rc == 0) {
		call d = CALL;
		rc = call_wait(&d, lib.PMIx_server_setup_local_support(ns->nspace, NULL, 0, call_over, &d));
	}
	for (uint32_t r = 0; r < ns->size && rc == 0; r++) {
		if (ns->node_of[r] == ns->node) {
			pmix_proc_t proc;
			call e = CALL;
			set_proc(&proc, ns->nspace, r);
			rc = call_wait(&e, lib.PMIx_server_register_client(&proc, uid, gid, NULL, call_over, &e));
		}
	}
	free(nodes);
	free(procs);
	free(info);
	free(each);
	free(arrays);
	free(apps);
	free(shapes);
	return rc;
}

void gorun_pmix_deregister(const char *nspace) {
	call c = CALL;
	lib.PMIx_server_deregister_nspace(nspace, call_over, &c);
	call_wait(&c, PMIX_SUCCESS);
}

int gorun_pmix_uri(const char *nspace, char *uri, size_t size) {
	static const char name[] = "PMIX_SERVER_URI";
	pmix_proc_t proc;
	char **env = NULL;
	set_proc(&proc, nspace, 0);
	int rc = lib.PMIx_server_setup_fork(&proc, &env);
	if (rc != PMIX_SUCCESS) {
		return rc;
	}
	rc = PMIX_ERR_NOT_FOUND;
	for (size_t i = 0; env != NULL && env[i] != NULL; i++) {
		char *value = strchr(env[i], '=');
		if (strncmp(env[i], name, sizeof name - 1) == 0 && value != NULL && strlen(value) < size) {
			strcpy(uri, value + 1);
			rc = PMIX_SUCCESS;
		}
		free(env[i]);
	}
	free(env);
	return rc;
}
