/* A client of PMIx that does what its arguments say, in order, and tells what came
 * of it in lines "RANK WORD...". A word with a colon is for that rank alone:
 * "0:put" is done by rank 0, with the words behind it skipped by all others.
 *
 *	put KEY TEXT         commit                  fence            collect (a fence with data)
 *	size KEY BYTES       (puts that many)        have RANK KEY    (get of such)
 *	get RANK KEY         now RANK KEY            (immediate)      soon RANK KEY  (1 s at most)
 *	job KEY              (of the namespace, by the name of the attribute)
 *	of NAMESPACE KEY     (of another one)
 *	publish KEY TEXT     own KEY TEXT            once KEY TEXT    count KEY N (a number)
 *	lookup KEY           wait KEY                patience KEY (waits 1 s)
 *	unpublish KEY        query NAME              (of its own namespace)
 *	control WHAT RANK    (kill, term, pause, resume, 10; -1: all)
 *	group NAME           numbered NAME           ungroup NAME
 *	listen               (to event 7)            tell             (it to all)   heard (waits for it)
 *	spawn N PROGRAM ARG  abort STATUS            log TEXT
 *	show TEXT            die                     stay             (until killed)
 *	await FILE           touch FILE              leave (without PMIx_Finalize)
 *	child WORDS end      (what a child that is the same rank does)
 */
#include <pmix.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { EVENT = PMIX_EXTERNAL_ERR_BASE - 7 };

static pmix_proc_t self, all;
static char **word;
static volatile int heard;

static void say(const char *format, ...) {
	char text[4096];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	printf("%u %s\n", self.rank, text);
	fflush(stdout);
}

// reason is a status in the words of libpmix 4, which 5 writes in others.
static const char *reason(pmix_status_t rc) {
	switch (rc) {
	case PMIX_SUCCESS: return "SUCCESS";
	case PMIX_ERROR: return "ERROR";
	case PMIX_ERR_NOT_FOUND: return "NOT-FOUND";
	case PMIX_ERR_NOT_SUPPORTED: return "NOT-SUPPORTED";
	case PMIX_ERR_BAD_PARAM: return "BAD-PARAM";
	case PMIX_ERR_DUPLICATE_KEY: return "DUPLICATE KEY";
	case PMIX_ERR_TIMEOUT: return "TIMEOUT";
	}
	return PMIx_Error_string(rc);
}

static void tell(const char *what, pmix_status_t rc) { say("%s: %s", what, rc == PMIX_SUCCESS || rc == PMIX_OPERATION_SUCCEEDED ? "ok" : reason(rc)); }

static const char *next(void) {
	if (*word == NULL) {
		say("arguments are missing");
		exit(30);
	}
	return *word++;
}

static void show(const char *what, const pmix_value_t *v) {
	switch (v->type) {
	case PMIX_STRING: say("%s = %s", what, v->data.string); break;
	case PMIX_BOOL: say("%s = %s", what, v->data.flag ? "true" : "false"); break;
	case PMIX_UINT32: say("%s = %u", what, v->data.uint32); break;
	case PMIX_UINT16: say("%s = %u", what, v->data.uint16); break;
	case PMIX_INT: say("%s = %d", what, v->data.integer); break;
	case PMIX_SIZE: say("%s = %zu", what, v->data.size); break;
	case PMIX_STATUS: say("%s = %s", what, reason(v->data.status)); break;
	case PMIX_FLOAT: say("%s = %s", what, v->data.fval > 0 ? "positive" : "nothing"); break;
	case PMIX_PROC_RANK: say("%s = %u", what, v->data.rank); break;
	case PMIX_BYTE_OBJECT: say("%s = %zu bytes", what, v->data.bo.size); break;
	case PMIX_PROC: say("%s = rank %u", what, v->data.proc->rank); break;
	case PMIX_DATA_ARRAY:
		for (size_t i = 0; i < v->data.darray->size; i++) {
			if (v->data.darray->type == PMIX_INFO) {
				const pmix_info_t *info = (const pmix_info_t *)v->data.darray->array + i;
				show(PMIx_Get_attribute_name((char *)info->key), &info->value);
			} else if (v->data.darray->type == PMIX_PROC_INFO) {
				const pmix_proc_info_t *p = (const pmix_proc_info_t *)v->data.darray->array + i;
				say("%s = rank %u, %s, %s, %s, %s", what, p->proc.rank, p->hostname, p->executable_name, p->pid > 1 ? "a pid" : "no pid", PMIx_Proc_state_string(p->state));
			}
		}
		break;
	default: say("%s is of type %d", what, v->type);
	}
}

static void get(const char *how) {
	pmix_proc_t proc = self;
	pmix_value_t *v = NULL;
	pmix_info_t info;
	int n = 1, second = 1;
	proc.rank = (pmix_rank_t)atoi(next());
	const char *key = next();
	if (!strcmp(how, "now")) {
		PMIX_INFO_LOAD(&info, PMIX_IMMEDIATE, NULL, PMIX_BOOL);
	} else if (!strcmp(how, "soon")) {
		PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &second, PMIX_INT);
	} else {
		n = 0;
	}
	pmix_status_t rc = PMIx_Get(&proc, key, n ? &info : NULL, n, &v);
	if (rc == PMIX_SUCCESS)
		show(key, v);
	else
		tell(key, rc);
}

static void job(void) {
	pmix_value_t *v = NULL;
	const char *name = next();
	const char *key = PMIx_Get_attribute_string((char *)name);
	pmix_info_t optional;
	PMIX_INFO_LOAD(&optional, PMIX_OPTIONAL, NULL, PMIX_BOOL); /* as Open MPI asks */
	pmix_status_t rc = PMIx_Get(&all, key, &optional, 1, &v);
	if (rc != PMIX_SUCCESS) rc = PMIx_Get(&self, key, &optional, 1, &v);
	if (rc == PMIX_SUCCESS)
		show(name, v);
	else
		tell(name, rc);
}

static void of(void) {
	pmix_value_t *v = NULL;
	pmix_proc_t proc = all;
	const char *space = next(), *name = next();
	PMIX_LOAD_NSPACE(proc.nspace, space);
	pmix_status_t rc = PMIx_Get(&proc, PMIx_Get_attribute_string((char *)name), NULL, 0, &v);
	if (rc == PMIX_SUCCESS)
		show(name, v);
	else
		tell(name, rc);
}

static void publish(const char *how) {
	pmix_info_t info[2];
	int n = 1, number;
	const char *key = next(), *text = next();
	PMIX_INFO_LOAD(&info[0], key, text, PMIX_STRING);
	if (!strcmp(how, "own")) {
		pmix_data_range_t range = PMIX_RANGE_NAMESPACE;
		PMIX_INFO_LOAD(&info[n++], PMIX_RANGE, &range, PMIX_DATA_RANGE);
	} else if (!strcmp(how, "once")) {
		pmix_persistence_t persist = PMIX_PERSIST_FIRST_READ;
		PMIX_INFO_LOAD(&info[n++], PMIX_PERSISTENCE, &persist, PMIX_PERSIST);
	} else if (!strcmp(how, "count")) {
		number = atoi(text);
		PMIX_INFO_LOAD(&info[0], key, &number, PMIX_INT);
	}
	tell(how, PMIx_Publish(info, n));
}

static void lookup(const char *how) {
	pmix_pdata_t found;
	pmix_info_t info[2];
	int n = 0, second = 1;
	const char *key = next();
	PMIX_PDATA_CONSTRUCT(&found);
	PMIX_LOAD_KEY(found.key, key);
	if (strcmp(how, "lookup")) PMIX_INFO_LOAD(&info[n++], PMIX_WAIT, &second, PMIX_INT);
	if (!strcmp(how, "patience")) PMIX_INFO_LOAD(&info[n++], PMIX_TIMEOUT, &second, PMIX_INT);
	pmix_status_t rc = PMIx_Lookup(&found, 1, info, n);
	if (rc == PMIX_SUCCESS)
		show(found.key, &found.value);
	else
		tell(found.key, rc);
}

static void query(void) {
	pmix_query_t q;
	pmix_info_t *results = NULL;
	size_t n = 0;
	bool yes = true;
	const char *name = next();
	PMIX_QUERY_CONSTRUCT(&q);
	PMIX_ARGV_APPEND(n, q.keys, PMIx_Get_attribute_string((char *)name));
	PMIX_QUERY_QUALIFIERS_CREATE(&q, 2);
	PMIX_INFO_LOAD(&q.qualifiers[0], PMIX_NSPACE, self.nspace, PMIX_STRING);
	PMIX_INFO_LOAD(&q.qualifiers[1], PMIX_QUERY_REFRESH_CACHE, &yes, PMIX_BOOL);
	n = 0;
	pmix_status_t rc = PMIx_Query_info(&q, 1, &results, &n);
	if (rc != PMIX_SUCCESS) tell(name, rc);
	for (size_t i = 0; i < n; i++) show(name, &results[i].value);
}

static void control(void) {
	pmix_proc_t to = self;
	pmix_info_t what, *results = NULL;
	size_t n = 0;
	const char *how = next();
	int rank = atoi(next()), sig = atoi(how);
	to.rank = rank < 0 ? PMIX_RANK_WILDCARD : (pmix_rank_t)rank;
	if (sig)
		PMIX_INFO_LOAD(&what, PMIX_JOB_CTRL_SIGNAL, &sig, PMIX_INT);
	else
		PMIX_INFO_LOAD(&what, !strcmp(how, "kill") ? PMIX_JOB_CTRL_KILL : !strcmp(how, "term") ? PMIX_JOB_CTRL_TERMINATE : !strcmp(how, "pause") ? PMIX_JOB_CTRL_PAUSE : !strcmp(how, "resume") ? PMIX_JOB_CTRL_RESUME : PMIX_JOB_CTRL_RESTART, NULL, PMIX_BOOL);
	tell(how, PMIx_Job_control(&to, 1, &what, 1, &results, &n));
}

static void group(const char *how) {
	pmix_info_t info[1], *results = NULL;
	size_t n = 0;
	const char *name = next();
	if (!strcmp(how, "ungroup")) {
		tell(how, PMIx_Group_destruct(name, NULL, 0));
		return;
	}
	PMIX_INFO_LOAD(&info[0], PMIX_GROUP_ASSIGN_CONTEXT_ID, NULL, PMIX_BOOL);
	pmix_status_t rc = PMIx_Group_construct(name, &all, 1, info, strcmp(how, "group") ? 1 : 0, &results, &n);
	tell(how, rc);
	for (size_t i = 0; rc == PMIX_SUCCESS && i < n; i++)
		if (PMIX_CHECK_KEY(&results[i], PMIX_GROUP_CONTEXT_ID)) show("number", &results[i].value);
}

static void on_event(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t n, pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data) {
	heard = 1 + (int)source->rank;
	if (done != NULL) done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static volatile int done;
static void over(pmix_status_t status, void *data) { done = status == PMIX_SUCCESS ? 1 : status; }
static void registered(pmix_status_t status, size_t id, void *data) { done = status == PMIX_SUCCESS ? 1 : status; }
static void until(volatile int *flag) {
	for (int i = 0; i < 20000 && !*flag; i++) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

static void fence(const char *how) {
	pmix_info_t info;
	PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, NULL, PMIX_BOOL);
	tell(how, PMIx_Fence(NULL, 0, &info, strcmp(how, "fence") ? 1 : 0));
}

static void spawn(void) {
	pmix_app_t app;
	pmix_nspace_t space;
	PMIX_APP_CONSTRUCT(&app);
	app.maxprocs = atoi(next());
	app.cmd = strdup(next());
	char *args[] = {app.cmd, (char *)next(), NULL};
	app.argv = args;
	tell("spawn", PMIx_Spawn(NULL, 0, &app, 1, space));
}

int main(int argc, char **argv) {
	pmix_status_t rc = PMIx_Init(&self, NULL, 0);
	if (rc != PMIX_SUCCESS) {
		printf("PMIx_Init: %s\n", PMIx_Error_string(rc));
		return 31;
	}
	all = self;
	all.rank = PMIX_RANK_WILDCARD;
	for (word = argv + 1; *word != NULL;) {
		const char *how = next(), *colon = strchr(how, ':');
		if (colon != NULL) {
			int mine = strtoul(how, NULL, 10) == self.rank;
			how = colon + 1;
			if (!mine) {
				/* The words of this one are those up to the next with a colon, or "-". */
				while (*word != NULL && strcmp(*word, "-") && strchr(*word, ':') == NULL) word++;
				continue;
			}
		}
		if (!strcmp(how, "-"))
			continue;
		else if (!strcmp(how, "put")) {
			pmix_value_t v;
			const char *key = next(), *text = next();
			PMIX_VALUE_LOAD(&v, text, PMIX_STRING);
			tell(how, PMIx_Put(PMIX_GLOBAL, key, &v));
		} else if (!strcmp(how, "size")) {
			pmix_value_t v = {.type = PMIX_BYTE_OBJECT};
			const char *key = next();
			v.data.bo.size = strtoul(next(), NULL, 10);
			v.data.bo.bytes = calloc(1, v.data.bo.size + 1);
			tell(how, PMIx_Put(PMIX_GLOBAL, key, &v));
		} else if (!strcmp(how, "commit"))
			tell(how, PMIx_Commit());
		else if (!strcmp(how, "fence") || !strcmp(how, "collect"))
			fence(how);
		else if (!strcmp(how, "get") || !strcmp(how, "now") || !strcmp(how, "soon"))
			get(how);
		else if (!strcmp(how, "of"))
			of();
		else if (!strcmp(how, "job"))
			job();
		else if (!strcmp(how, "publish") || !strcmp(how, "own") || !strcmp(how, "once") || !strcmp(how, "count"))
			publish(how);
		else if (!strcmp(how, "lookup") || !strcmp(how, "wait") || !strcmp(how, "patience"))
			lookup(how);
		else if (!strcmp(how, "unpublish")) {
			char *keys[] = {(char *)next(), NULL};
			tell(how, PMIx_Unpublish(keys, NULL, 0));
		} else if (!strcmp(how, "query"))
			query();
		else if (!strcmp(how, "control"))
			control();
		else if (!strcmp(how, "group") || !strcmp(how, "numbered") || !strcmp(how, "ungroup"))
			group(how);
		else if (!strcmp(how, "listen")) {
			pmix_status_t code = EVENT;
			done = 0;
			PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, registered, NULL);
			until(&done);
			tell(how, done == 1 ? PMIX_SUCCESS : PMIX_ERROR);
		} else if (!strcmp(how, "tell")) {
			tell(how, PMIx_Notify_event(EVENT, &self, PMIX_RANGE_GLOBAL, NULL, 0, over, NULL));
		} else if (!strcmp(how, "heard")) {
			until(&heard);
			say("heard of rank %d", heard - 1);
		} else if (!strcmp(how, "spawn"))
			spawn();
		else if (!strcmp(how, "abort")) {
			int status = atoi(next());
			PMIx_Abort(status, "as the test wants", NULL, 0);
			exit(32);
		} else if (!strcmp(how, "log")) {
			pmix_info_t info;
			const char *text = next();
			PMIX_INFO_LOAD(&info, PMIX_LOG_STDERR, text, PMIX_STRING);
			tell(how, PMIx_Log(&info, 1, NULL, 0));
		} else if (!strcmp(how, "show"))
			say("%s", next());
		else if (!strcmp(how, "await")) {
			for (const char *file = next(); access(file, F_OK);) nanosleep(&(struct timespec){0, 1000000}, NULL);
		} else if (!strcmp(how, "touch"))
			fclose(fopen(next(), "w"));
		else if (!strcmp(how, "leave"))
			_exit(0);
		else if (!strcmp(how, "child")) {
			char **end = word;
			while (*end != NULL && strcmp(*end, "end")) end++;
			if (fork() == 0) {
				*end = NULL;
				*--word = argv[0];
				execv(argv[0], word);
				_exit(35);
			}
			int status;
			wait(&status);
			say("child: %d", status);
			word = *end == NULL ? end : end + 1;
		} else if (!strcmp(how, "die"))
			raise(SIGKILL);
		else if (!strcmp(how, "stay"))
			for (;;) pause();
		else {
			say("unknown: %s", how);
			exit(33);
		}
	}
	rc = PMIx_Finalize(NULL, 0);
	return rc == PMIX_SUCCESS ? 0 : 34;
}
