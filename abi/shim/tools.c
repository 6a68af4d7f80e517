// MPI_T, the interface for tools. There are no variables, categories and events: a tool that asks is told so, and learns that what
// it names is none. Without Go, so that all of it may be called before MPI_Init, and by any thread.

static pthread_mutex_t tools = PTHREAD_MUTEX_INITIALIZER;
static unsigned tools_users;           // under tools: how often init was called without finalize
static struct MPI_ABI_T_pvar_session { // those open, which have no handles
	MPI_T_pvar_session next;
} *tools_sessions; // under tools

// absent is the answer to a tool that names what is none.
static int absent(int code) {
	pthread_mutex_lock(&tools);
	if (tools_users == 0)
		code = MPI_T_ERR_NOT_INITIALIZED;
	pthread_mutex_unlock(&tools);
	return code;
}

static int none(int *num) {
	int code = absent(num == NULL ? MPI_T_ERR_INVALID : MPI_SUCCESS);
	if (code == MPI_SUCCESS)
		*num = 0;
	return code;
}

static int unnamed(const char *name) { return absent(name == NULL ? MPI_T_ERR_INVALID : MPI_T_ERR_INVALID_NAME); }

// place is where a session hangs, NULL for none. The caller holds tools.
static MPI_T_pvar_session *place(MPI_T_pvar_session session) {
	for (MPI_T_pvar_session *at = &tools_sessions; *at != NULL; at = &(*at)->next)
		if (*at == session)
			return at;
	return NULL;
}

// in is absent for what a session is to have.
static int in(MPI_T_pvar_session session, int code) {
	pthread_mutex_lock(&tools);
	if (tools_users == 0)
		code = MPI_T_ERR_NOT_INITIALIZED;
	else if (place(session) == NULL)
		code = MPI_T_ERR_INVALID_SESSION;
	pthread_mutex_unlock(&tools);
	return code;
}

// every succeeds for all handles of a session: there are none.
static int every(MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
	return in(session, handle == MPI_T_PVAR_ALL_HANDLES ? MPI_SUCCESS : MPI_T_ERR_INVALID_HANDLE);
}

int PMPI(T_init_thread)(int required, int *provided) {
	if (provided == NULL || required < MPI_THREAD_SINGLE || required > MPI_THREAD_MULTIPLE)
		return MPI_T_ERR_INVALID;
	pthread_mutex_lock(&tools);
	tools_users++;
	pthread_mutex_unlock(&tools);
	*provided = required;
	return MPI_SUCCESS;
}

int PMPI(T_finalize)(void) {
	int code = MPI_SUCCESS;
	pthread_mutex_lock(&tools);
	if (tools_users == 0)
		code = MPI_T_ERR_NOT_INITIALIZED;
	else if (--tools_users == 0)
		for (MPI_T_pvar_session s; (s = tools_sessions) != NULL; free(s))
			tools_sessions = s->next;
	pthread_mutex_unlock(&tools);
	return code;
}

int PMPI(T_pvar_session_create)(MPI_T_pvar_session *session) {
	int code = absent(session == NULL ? MPI_T_ERR_INVALID : MPI_SUCCESS);
	if (code != MPI_SUCCESS)
		return code;
	MPI_T_pvar_session s = malloc(sizeof *s);
	if (s == NULL)
		return MPI_T_ERR_OUT_OF_SESSIONS;
	pthread_mutex_lock(&tools);
	s->next = tools_sessions;
	*session = tools_sessions = s;
	pthread_mutex_unlock(&tools);
	return MPI_SUCCESS;
}

int PMPI(T_pvar_session_free)(MPI_T_pvar_session *session) {
	int code = absent(session == NULL ? MPI_T_ERR_INVALID : MPI_SUCCESS);
	if (code != MPI_SUCCESS)
		return code;
	pthread_mutex_lock(&tools);
	MPI_T_pvar_session *at = place(*session);
	if (at != NULL) {
		*at = (*session)->next;
		free(*session);
		*session = MPI_T_PVAR_SESSION_NULL;
	}
	pthread_mutex_unlock(&tools);
	return at == NULL ? MPI_T_ERR_INVALID_SESSION : MPI_SUCCESS;
}

int PMPI(T_category_changed)(int *update_number) { return none(update_number); }

// What they would store stays as it is.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"

// Of control variables.
int PMPI(T_cvar_get_index)(const char *name, int *cvar_index) { return unnamed(name); }
int PMPI(T_cvar_get_info)(int cvar_index, char *name, int *name_len, int *verbosity, MPI_Datatype *datatype, MPI_T_enum *enumtype, char *desc, int *desc_len, int *bind, int *scope) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_cvar_get_num)(int *num_cvar) { return none(num_cvar); }
int PMPI(T_cvar_handle_alloc)(int cvar_index, void *obj_handle, MPI_T_cvar_handle *handle, int *count) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_cvar_handle_free)(MPI_T_cvar_handle *handle) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_cvar_read)(MPI_T_cvar_handle handle, void *buf) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_cvar_write)(MPI_T_cvar_handle handle, const void *buf) { return absent(MPI_T_ERR_INVALID_HANDLE); }

// Of performance variables.
int PMPI(T_pvar_get_index)(const char *name, int var_class, int *pvar_index) { return unnamed(name); }
int PMPI(T_pvar_get_info)(int pvar_index, char *name, int *name_len, int *verbosity, int *var_class, MPI_Datatype *datatype, MPI_T_enum *enumtype, char *desc, int *desc_len, int *bind, int *readonly, int *continuous, int *atomic) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_pvar_get_num)(int *num_pvar) { return none(num_pvar); }
int PMPI(T_pvar_handle_alloc)(MPI_T_pvar_session session, int pvar_index, void *obj_handle, MPI_T_pvar_handle *handle, int *count) { return in(session, MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_pvar_handle_free)(MPI_T_pvar_session session, MPI_T_pvar_handle *handle) { return in(session, MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_pvar_read)(MPI_T_pvar_session session, MPI_T_pvar_handle handle, void *buf) { return in(session, MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_pvar_readreset)(MPI_T_pvar_session session, MPI_T_pvar_handle handle, void *buf) { return in(session, MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_pvar_reset)(MPI_T_pvar_session session, MPI_T_pvar_handle handle) { return every(session, handle); }
int PMPI(T_pvar_start)(MPI_T_pvar_session session, MPI_T_pvar_handle handle) { return every(session, handle); }
int PMPI(T_pvar_stop)(MPI_T_pvar_session session, MPI_T_pvar_handle handle) { return every(session, handle); }
int PMPI(T_pvar_write)(MPI_T_pvar_session session, MPI_T_pvar_handle handle, const void *buf) { return in(session, MPI_T_ERR_INVALID_HANDLE); }

// Of enumerations.
int PMPI(T_enum_get_info)(MPI_T_enum enumtype, int *num, char *name, int *name_len) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_enum_get_item)(MPI_T_enum enumtype, int indx, int *value, char *name, int *name_len) { return absent(MPI_T_ERR_INVALID_HANDLE); }

// Of categories.
int PMPI(T_category_get_categories)(int cat_index, int len, int indices[]) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_category_get_cvars)(int cat_index, int len, int indices[]) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_category_get_events)(int cat_index, int len, int indices[]) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_category_get_index)(const char *name, int *cat_index) { return unnamed(name); }
int PMPI(T_category_get_info)(int cat_index, char *name, int *name_len, char *desc, int *desc_len, int *num_cvars, int *num_pvars, int *num_categories) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_category_get_num)(int *num_cat) { return none(num_cat); }
int PMPI(T_category_get_num_events)(int cat_index, int *num_events) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_category_get_pvars)(int cat_index, int len, int indices[]) { return absent(MPI_T_ERR_INVALID_INDEX); }

// Of events.
int PMPI(T_event_callback_get_info)(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety, MPI_Info *info_used) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_callback_set_info)(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety, MPI_Info info) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_copy)(MPI_T_event_instance event_instance, void *buffer) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_get_index)(const char *name, int *event_index) { return unnamed(name); }
int PMPI(T_event_get_info)(int event_index, char *name, int *name_len, int *verbosity, MPI_Datatype array_of_datatypes[], MPI_Aint array_of_displacements[], int *num_elements, MPI_T_enum *enumtype, MPI_Info *info, char *desc, int *desc_len, int *bind) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_event_get_num)(int *num_events) { return none(num_events); }
int PMPI(T_event_get_source)(MPI_T_event_instance event_instance, int *source_index) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_get_timestamp)(MPI_T_event_instance event_instance, MPI_Count *event_timestamp) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_handle_alloc)(int event_index, void *obj_handle, MPI_Info info, MPI_T_event_registration *event_registration) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_event_handle_free)(MPI_T_event_registration event_registration, void *user_data, MPI_T_event_free_cb_function free_cb_function) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_handle_get_info)(MPI_T_event_registration event_registration, MPI_Info *info_used) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_handle_set_info)(MPI_T_event_registration event_registration, MPI_Info info) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_read)(MPI_T_event_instance event_instance, int element_index, void *buffer) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_register_callback)(MPI_T_event_registration event_registration, MPI_T_cb_safety cb_safety, MPI_Info info, void *user_data, MPI_T_event_cb_function event_cb_function) { return absent(MPI_T_ERR_INVALID_HANDLE); }
int PMPI(T_event_set_dropped_handler)(MPI_T_event_registration event_registration, MPI_T_event_dropped_cb_function dropped_cb_function) { return absent(MPI_T_ERR_INVALID_HANDLE); }

// Of sources of events.
int PMPI(T_source_get_info)(int source_index, char *name, int *name_len, char *desc, int *desc_len, MPI_T_source_order *ordering, MPI_Count *ticks_per_second, MPI_Count *max_ticks, MPI_Info *info) { return absent(MPI_T_ERR_INVALID_INDEX); }
int PMPI(T_source_get_num)(int *num_sources) { return none(num_sources); }
int PMPI(T_source_get_timestamp)(int source_index, MPI_Count *timestamp) { return absent(MPI_T_ERR_INVALID_INDEX); }

#pragma GCC diagnostic pop
