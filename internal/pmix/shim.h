// What Go calls of libpmix, and what libpmix calls of Go. libpmix is one server
// a process, so the shim has one too. Every function that returns int returns a
// pmix_status_t, with 0 for success.
#ifndef GORUN_PMIX_SHIM_H
#define GORUN_PMIX_SHIM_H

#include <stddef.h>
#include <stdint.h>

// A process of a namespace.
typedef struct {
	const char *nspace;
	uint32_t rank;
} gorun_proc;

// A namespace, as Namespace of the Go side has it. The arrays hold one entry a
// rank.
typedef struct {
	const char *nspace;
	const char *nodes;  // names of all nodes, separated by commas
	const char *procs;  // ranks of each node: 0,1;2,3
	const char *peers;  // ranks of this node: 2,3
	const char *parent; // namespace that spawned this one, or ""
	uint32_t parent_rank;
	uint32_t size, universe, node, node_count, app_count, local_count;
	const uint32_t *node_of, *local_rank, *app_of;
	const char **node_names;
	uint32_t restarts;
	const char *program_counts, *program_firsts; // of its applications: 2 1, 0 2
	const char *dir, *own_dir, **rank_dirs;      // "": none
	const char **app_lines, **app_dirs;          // command lines and directories by application; "": not known
} gorun_namespace;

// What is asked in one query. Keys are the names of attributes ("PMIX_QUERY_..."),
// or as they came where libpmix knows no name.
typedef struct {
	const char **keys;
	size_t n;
	const char *nspace; // "": none was named
	int local;          // this node only
} gorun_query;

// A process of a process table.
typedef struct {
	const char *nspace, *host, *program;
	uint32_t rank;
	int64_t pid;
	int32_t exit, state;
} gorun_process;

// An attribute by its name, and its value.
typedef struct gorun_info {
	const char *key;
	int kind;
	const char *text;                // TEXT
	uint64_t number;                 // FLAG, NUMBER, SIZE, STATUS
	double real;                     // REAL
	const void *bytes;               // BYTES
	const struct gorun_info *list;   // LIST
	const gorun_process *processes;  // PROCESSES
	const gorun_proc *procs;         // PROCS
	size_t n;                        // of any of these four
} gorun_info;

enum { GORUN_TEXT, GORUN_FLAG, GORUN_NUMBER, GORUN_SIZE, GORUN_STATUS, GORUN_REAL, GORUN_BYTES, GORUN_LIST, GORUN_PROCESSES, GORUN_PROCS };

// open finds libpmix, and find its functions, which the library must be of a version
// to have. They return 0, or a message in err.
int gorun_pmix_open(const char *path, char *err, size_t size);
const char *gorun_pmix_library_version(void);
int gorun_pmix_find(char *err, size_t size);
const char *gorun_pmix_error(int status);

// gorun_mpi_try is a rank of an MPI: MPI_Init and MPI_Finalize of that library, then the end
// of the process. It returns what went wrong.
int gorun_mpi_try(const char *path, char *err, size_t size);

int gorun_pmix_start(uintptr_t handle, const char *tmpdir, const char *host);
int gorun_pmix_register(const gorun_namespace *ns, uint32_t uid, uint32_t gid);
void gorun_pmix_deregister(const char *nspace);
int gorun_pmix_ping(void);

// uri writes where the server listens, as clients read it.
int gorun_pmix_uri(const char *nspace, char *uri, size_t size);

// modex asks for what a local process has put; gorunModexData gets the answer.
int gorun_pmix_modex(const char *nspace, uint32_t rank, uint64_t id);

// deliver gives an event of another node to the local processes.
int gorun_pmix_deliver(const void *data, size_t size);

// What ends an upcall: request is what the upcall was given, and is freed.
void gorun_pmix_done(void *request, int status);
void gorun_pmix_done_data(void *request, int status, const void *data, size_t size);
void gorun_pmix_done_lookup(void *request, int status, size_t n, const gorun_proc *procs, const char **keys, const void **values, const size_t *sizes, const int *texts);
void gorun_pmix_done_spawn(void *request, int status, const char *nspace);
void gorun_pmix_done_infos(void *request, int status, const gorun_info *infos, size_t n);

// The statuses that Go must know.
int gorun_pmix_status_not_found(void);
int gorun_pmix_status_not_supported(void);
int gorun_pmix_status_partial(void);
int gorun_pmix_status_failed(void);
int gorun_pmix_status_duplicate(void);
int gorun_pmix_status_timeout(void);

#endif
