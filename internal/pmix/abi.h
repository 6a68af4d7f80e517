// What shim.c uses of libpmix's interface, as it is in memory: types, constants and
// functions. This is all that is compiled, so the program is the same wherever it was
// built. The library may be OpenPMIx 4.2 to 7: these parts have not changed between
// them. TestDeclarations holds this file to PMIx's own headers where these are
// installed; with ABI_REAL_HEADERS, which only that test defines, they take the
// place of the types and constants.
#ifndef GORUN_PMIX_ABI_H
#define GORUN_PMIX_ABI_H

#ifdef ABI_REAL_HEADERS

#include <pmix.h>
#include <pmix_server.h>

#else

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PMIX_MAX_KEYLEN 511
#define PMIX_MAX_NSLEN 255

typedef char pmix_nspace_t[PMIX_MAX_NSLEN + 1];
typedef char pmix_key_t[PMIX_MAX_KEYLEN + 1];
typedef int pmix_status_t;
typedef uint32_t pmix_rank_t;
typedef uint16_t pmix_data_type_t;
typedef uint8_t pmix_proc_state_t;
typedef uint8_t pmix_data_range_t;
typedef uint8_t pmix_persistence_t;
typedef uint32_t pmix_info_directives_t;

#define PMIX_RANK_WILDCARD (UINT32_MAX - 1)

// Statuses.
enum {
	PMIX_SUCCESS = 0,
	PMIX_ERROR = -1,
	PMIX_ERR_TIMEOUT = -24,
	PMIX_ERR_BAD_PARAM = -27,
	PMIX_ERR_NOMEM = -32,
	PMIX_ERR_NOT_FOUND = -46,
	PMIX_ERR_NOT_SUPPORTED = -47,
	PMIX_ERR_PARTIAL_SUCCESS = -52,
	PMIX_ERR_DUPLICATE_KEY = -53,
	PMIX_OPERATION_SUCCEEDED = -157,
};

// Types of values (pmix_data_type_t).
enum {
	PMIX_UNDEF = 0,
	PMIX_BOOL = 1,
	PMIX_STRING = 3,
	PMIX_SIZE = 4,
	PMIX_INT = 6,
	PMIX_INT32 = 9,
	PMIX_UINT16 = 13,
	PMIX_UINT32 = 14,
	PMIX_FLOAT = 16,
	PMIX_STATUS = 20,
	PMIX_VALUE = 21,
	PMIX_PROC = 22,
	PMIX_INFO = 24,
	PMIX_BYTE_OBJECT = 27,
	PMIX_PERSIST = 30,
	PMIX_DATA_RANGE = 33,
	PMIX_PROC_INFO = 38,
	PMIX_DATA_ARRAY = 39,
	PMIX_PROC_RANK = 40,
};

// Who sees an event or a published value (pmix_data_range_t), and for how long
// (pmix_persistence_t).
enum {
	PMIX_RANGE_RM = 1,
	PMIX_PERSIST_FIRST_READ = 1,
	PMIX_RANGE_LOCAL = 2,
	PMIX_RANGE_NAMESPACE = 3,
	PMIX_RANGE_PROC_LOCAL = 7,
};

typedef enum { PMIX_GROUP_CONSTRUCT, PMIX_GROUP_DESTRUCT } pmix_group_operation_t;

// Names of attributes.
#define PMIX_ADD_HOST                "pmix.addhost"
#define PMIX_ADD_HOSTFILE            "pmix.addhostfile"
#define PMIX_APPNUM                  "pmix.appnum"
#define PMIX_APPLDR                  "pmix.aldr"
#define PMIX_APP_ARGV                "pmix.app.argv"
#define PMIX_APP_INFO_ARRAY          "pmix.app.arr"
#define PMIX_APP_RANK                "pmix.apprank"
#define PMIX_APP_SIZE                "pmix.app.size"
#define PMIX_BINDTO                  "pmix.bindto"
#define PMIX_CLEANUP_IGNORE          "pmix.clnup.ignore"
#define PMIX_CLEANUP_LEAVE_TOPDIR    "pmix.clnup.lvtop"
#define PMIX_CLEANUP_RECURSIVE       "pmix.clnup.recurse"
#define PMIX_GLOBAL_RANK             "pmix.grank"
#define PMIX_GROUP_ASSIGN_CONTEXT_ID "pmix.grp.actxid"
#define PMIX_GROUP_ENDPT_DATA        "pmix.grp.endpt"
#define PMIX_GROUP_LOCAL_ONLY        "pmix.grp.lcl"
#define PMIX_GRPID                   "pmix.egid"
#define PMIX_HOST                    "pmix.host"
#define PMIX_HOSTFILE                "pmix.hostfile"
#define PMIX_HOSTNAME                "pmix.hname"
#define PMIX_JOBID                   "pmix.jobid"
#define PMIX_JOB_CTRL_ID             "pmix.jctrl.id"
#define PMIX_JOB_CTRL_KILL           "pmix.jctrl.kill"
#define PMIX_JOB_CTRL_PAUSE          "pmix.jctrl.pause"
#define PMIX_JOB_CTRL_RESUME         "pmix.jctrl.resume"
#define PMIX_JOB_CTRL_SIGNAL         "pmix.jctrl.sig"
#define PMIX_JOB_CTRL_TERMINATE      "pmix.jctrl.term"
#define PMIX_JOB_NUM_APPS            "pmix.job.napps"
#define PMIX_JOB_SIZE                "pmix.job.size"
#define PMIX_LOCALLDR                "pmix.lldr"
#define PMIX_LOCAL_PEERS             "pmix.lpeers"
#define PMIX_LOCAL_RANK              "pmix.lrank"
#define PMIX_LOCAL_SIZE              "pmix.local.size"
#define PMIX_LOG_MSG                 "pmix.log.msg"
#define PMIX_LOG_STDERR              "pmix.log.stderr"
#define PMIX_LOG_STDOUT              "pmix.log.stdout"
#define PMIX_MAPBY                   "pmix.mapby"
#define PMIX_MAX_PROCS               "pmix.max.size"
#define PMIX_NODEID                  "pmix.nodeid"
#define PMIX_NODE_MAP                "pmix.nmap"
#define PMIX_NODE_RANK               "pmix.nrank"
#define PMIX_NODE_SIZE               "pmix.node.size"
#define PMIX_NSDIR                   "pmix.nsdir"
#define PMIX_NSPACE                  "pmix.nspace"
#define PMIX_NUM_NODES               "pmix.num.nodes"
#define PMIX_PARENT_ID               "pmix.parent"
#define PMIX_PERSISTENCE             "pmix.persist"
#define PMIX_PPR                     "pmix.ppr"
#define PMIX_PROCDIR                 "pmix.pdir"
#define PMIX_PROCID                  "pmix.procid"
#define PMIX_PROC_DATA               "pmix.pdata"
#define PMIX_PROC_MAP                "pmix.pmap"
#define PMIX_QUERY_LOCAL_ONLY        "pmix.qry.local"
#define PMIX_RANGE                   "pmix.range"
#define PMIX_RANK                    "pmix.rank"
#define PMIX_RANKBY                  "pmix.rankby"
#define PMIX_REGISTER_CLEANUP        "pmix.reg.cleanup"
#define PMIX_REGISTER_CLEANUP_DIR    "pmix.reg.cleanupdir"
#define PMIX_REINCARNATION           "pmix.reinc"
#define PMIX_SERVER_NSPACE           "pmix.srv.nspace"
#define PMIX_SERVER_RANK             "pmix.srv.rank"
#define PMIX_SERVER_TMPDIR           "pmix.srvr.tmpdir"
#define PMIX_SPAWNED                 "pmix.spawned"
#define PMIX_SYSTEM_TMPDIR           "pmix.sys.tmpdir"
#define PMIX_TDIR_RMCLEAN            "pmix.tdir.rmclean"
#define PMIX_TIMEOUT                 "pmix.timeout"
#define PMIX_TMPDIR                  "pmix.tmpdir"
#define PMIX_UNIV_SIZE               "pmix.univ.size"
#define PMIX_USERID                  "pmix.euid"
#define PMIX_WAIT                    "pmix.wait"
#define PMIX_WDIR                    "pmix.wdir"

typedef struct {
	char *bytes;
	size_t size;
} pmix_byte_object_t;

typedef struct {
	pmix_nspace_t nspace;
	pmix_rank_t rank;
} pmix_proc_t;

typedef struct {
	pmix_proc_t proc;
	char *hostname;
	char *executable_name;
	pid_t pid;
	int exit_code;
	pmix_proc_state_t state;
} pmix_proc_info_t;

typedef struct {
	pmix_data_type_t type;
	size_t size;
	void *array;
} pmix_data_array_t;

typedef struct {
	char *base_ptr, *pack_ptr, *unpack_ptr;
	size_t bytes_allocated, bytes_used;
} pmix_data_buffer_t;

typedef struct {
	char *envar, *value;
	char separator;
} pmix_envar_t;

typedef struct {
	pmix_data_type_t type;
	union {
		bool flag;
		char *string;
		size_t size;
		int integer;
		int32_t int32;
		uint16_t uint16;
		uint32_t uint32;
		float fval;
		pmix_status_t status;
		pmix_rank_t rank;
		pmix_proc_t *proc;
		pmix_byte_object_t bo;
		pmix_persistence_t persist;
		pmix_data_range_t range;
		pmix_data_array_t *darray;
		pmix_envar_t envar; // the largest
	} data;
} pmix_value_t;

typedef struct {
	pmix_key_t key;
	pmix_info_directives_t flags;
	pmix_value_t value;
} pmix_info_t;

typedef struct {
	pmix_proc_t proc;
	pmix_key_t key;
	pmix_value_t value;
} pmix_pdata_t;

typedef struct {
	char *cmd;
	char **argv, **env;
	char *cwd;
	int maxprocs;
	pmix_info_t *info;
	size_t ninfo;
} pmix_app_t;

typedef struct {
	char **keys;
	pmix_info_t *qualifiers;
	size_t nqual;
} pmix_query_t;

// How libpmix, or this program, is told that something is over.
typedef void (*pmix_release_cbfunc_t)(void *data);
typedef void (*pmix_op_cbfunc_t)(pmix_status_t status, void *data);
typedef void (*pmix_modex_cbfunc_t)(pmix_status_t status, const char *bytes, size_t size, void *data, pmix_release_cbfunc_t release, void *released);
typedef void (*pmix_spawn_cbfunc_t)(pmix_status_t status, pmix_nspace_t nspace, void *data);
typedef void (*pmix_lookup_cbfunc_t)(pmix_status_t status, pmix_pdata_t found[], size_t n, void *data);
typedef void (*pmix_info_cbfunc_t)(pmix_status_t status, pmix_info_t *info, size_t n, void *data, pmix_release_cbfunc_t release, void *released);
typedef void (*pmix_dmodex_response_fn_t)(pmix_status_t status, char *bytes, size_t size, void *data);

// What libpmix asks its host for. Later versions have more functions at the end.
typedef struct {
	pmix_status_t (*client_connected)(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*client_finalized)(const pmix_proc_t *proc, void *object, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*abort)(const pmix_proc_t *proc, void *object, int status, const char text[], pmix_proc_t procs[], size_t n, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*fence_nb)(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, char *bytes, size_t size, pmix_modex_cbfunc_t cb, void *data);
	pmix_status_t (*direct_modex)(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, pmix_modex_cbfunc_t cb, void *data);
	pmix_status_t (*publish)(const pmix_proc_t *proc, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*lookup)(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t n, pmix_lookup_cbfunc_t cb, void *data);
	pmix_status_t (*unpublish)(const pmix_proc_t *proc, char **keys, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*spawn)(const pmix_proc_t *proc, const pmix_info_t job[], size_t njob, const pmix_app_t apps[], size_t n, pmix_spawn_cbfunc_t cb, void *data);
	pmix_status_t (*connect)(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*disconnect)(const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*register_events)(pmix_status_t *codes, size_t ncodes, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*deregister_events)(pmix_status_t *codes, size_t ncodes, pmix_op_cbfunc_t cb, void *data);
	void *listener;
	pmix_status_t (*notify_event)(pmix_status_t code, const pmix_proc_t *source, pmix_data_range_t range, pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
	pmix_status_t (*query)(pmix_proc_t *proc, pmix_query_t *queries, size_t n, pmix_info_cbfunc_t cb, void *data);
	void *tool_connected;
	void (*log)(const pmix_proc_t *proc, const pmix_info_t texts[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_op_cbfunc_t cb, void *data);
	void *allocate;
	pmix_status_t (*job_control)(const pmix_proc_t *proc, const pmix_proc_t targets[], size_t ntargets, const pmix_info_t directives[], size_t n, pmix_info_cbfunc_t cb, void *data);
	void *monitor, *get_credential, *validate_credential, *iof_pull, *push_stdin;
	pmix_status_t (*group)(pmix_group_operation_t op, char name[], const pmix_proc_t procs[], size_t n, const pmix_info_t info[], size_t ninfo, pmix_info_cbfunc_t cb, void *data);
	void *fabric;
	pmix_status_t (*client_connected2)(const pmix_proc_t *proc, void *object, pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
} pmix_server_module_t;

#endif

// The functions, found at run time. With the real headers these are declared twice,
// and a compiler refuses two that differ.
const char *PMIx_Get_version(void);
const char *PMIx_Error_string(pmix_status_t status);
pmix_status_t PMIx_server_init(pmix_server_module_t *module, pmix_info_t info[], size_t n);
pmix_status_t PMIx_generate_regex(const char *names, char **regex);
pmix_status_t PMIx_generate_ppn(const char *ranks, char **ppn);
pmix_status_t PMIx_server_register_nspace(const pmix_nspace_t nspace, int local, pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
void PMIx_server_deregister_nspace(const pmix_nspace_t nspace, pmix_op_cbfunc_t cb, void *data);
pmix_status_t PMIx_server_setup_local_support(const pmix_nspace_t nspace, pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
pmix_status_t PMIx_server_register_client(const pmix_proc_t *proc, uid_t uid, gid_t gid, void *object, pmix_op_cbfunc_t cb, void *data);
pmix_status_t PMIx_server_setup_fork(const pmix_proc_t *proc, char ***env);
pmix_status_t PMIx_server_dmodex_request(const pmix_proc_t *proc, pmix_dmodex_response_fn_t cb, void *data);
pmix_status_t PMIx_Notify_event(pmix_status_t status, const pmix_proc_t *source, pmix_data_range_t range, const pmix_info_t info[], size_t n, pmix_op_cbfunc_t cb, void *data);
pmix_status_t PMIx_Store_internal(const pmix_proc_t *proc, const char key[], pmix_value_t *value);
pmix_status_t PMIx_Data_pack(const pmix_proc_t *target, pmix_data_buffer_t *buffer, void *from, int32_t n, pmix_data_type_t type);
pmix_status_t PMIx_Data_unpack(const pmix_proc_t *source, pmix_data_buffer_t *buffer, void *to, int32_t *n, pmix_data_type_t type);
pmix_status_t PMIx_Data_load(pmix_data_buffer_t *buffer, pmix_byte_object_t *bytes);
pmix_status_t PMIx_Data_unload(pmix_data_buffer_t *buffer, pmix_byte_object_t *bytes);
void PMIx_Value_destruct(pmix_value_t *value);
const char *PMIx_Get_attribute_string(const char *name);
const char *PMIx_Get_attribute_name(const char *key);

#endif
