// How functions of the program are called, and what MPICH's library for Fortran takes from its one for C: functions and data that only they share.

// Functions of the program are called as they know MPI: of another language by the proxies that its library has given for their keyval.
typedef int copy_proxy(void *function, int old, int keyval, void *extra, int type, void *in, void **out, int *flag);
typedef int delete_proxy(void *function, int handle, int keyval, int type, void *value, void *extra);
static struct proxies {
	int keyval, type; // of the values
	copy_proxy *copy;
	delete_proxy *delete;
	struct proxies *next;
} *proxies; // under proxying; they are few, and stay
static pthread_mutex_t proxying = PTHREAD_MUTEX_INITIALIZER;

static struct proxies proxies_of(int keyval) {
	struct proxies found = {.keyval = keyval};
	pthread_mutex_lock(&proxying);
	for (struct proxies *p = proxies; p != NULL; p = p->next)
		if (p->keyval == keyval)
			found = *p;
	pthread_mutex_unlock(&proxying);
	return found;
}

static void set_proxies(struct proxies set) {
	pthread_mutex_lock(&proxying);
	struct proxies *p = proxies;
	while (p != NULL && p->keyval != set.keyval)
		p = p->next;
	if (p == NULL && set.copy != NULL) {
		if ((p = malloc(sizeof *p)) == NULL)
			die("no memory for a keyval");
		set.next = proxies;
		proxies = p;
	} else if (p != NULL)
		set.next = p->next;
	if (p != NULL)
		*p = set;
	pthread_mutex_unlock(&proxying);
}

static void plain_keyval(int keyval) { set_proxies((struct proxies){.keyval = keyval}); }

static void value_type(int keyval, int type) {
	struct proxies p = proxies_of(keyval);
	p.type = type;
	if (p.copy != NULL)
		set_proxies(p);
}

static int copy_attribute(void *function, word old, int keyval, void *extra, void *in, void *out, int *flag) {
	struct proxies p = proxies_of(keyval);
	if (p.copy != NULL)
		return our_CODE(p.copy(function, their_int(old), keyval, extra, p.type, in, out, flag));
	return our_CODE(((int (*)(int, int, void *, void *, void *, int *))function)(their_int(old), keyval, extra, in, out, flag));
}

static int delete_attribute(void *function, word handle, int keyval, void *value, void *extra) {
	struct proxies p = proxies_of(keyval);
	if (p.delete != NULL)
		return our_CODE(p.delete(function, their_int(handle), keyval, p.type, value, extra));
	return our_CODE(((int (*)(int, int, void *, void *))function)(their_int(handle), keyval, value, extra));
}

static int query(void *function, void *extra, MPI_Status *status) {
	struct status s;
	their_status(&s, status);
	int code = ((int (*)(void *, struct status *))function)(extra, &s);
	our_status(status, &s);
	return our_CODE(code);
}
static const struct foreign of_mpich = {their_word, their_CODE, our_CODE, copy_attribute, delete_attribute, query};
const struct foreign *const foreign = &of_mpich;

// What MPICH's library for Fortran takes from its one for C.
#define INTERNAL(result, name, args) \
	__attribute__((visibility("default"))) result name args; \
	result name args

enum { POINTER, ADDRESS_INT, FORTRAN_INT = 3 }; // types of values

INTERNAL(void, MPII_Keyval_set_proxy, (int keyval, copy_proxy *copy, delete_proxy *delete)) {
	set_proxies((struct proxies){.keyval = keyval, .type = ADDRESS_INT, .copy = copy, .delete = delete});
}
INTERNAL(int, MPII_Comm_set_attr, (int comm, int keyval, void *value, int type)) {
	value_type(keyval, type);
	return their_Comm_set_attr(comm, keyval, value);
}
INTERNAL(int, MPII_Type_set_attr, (int datatype, int keyval, void *value, int type)) {
	value_type(keyval, type);
	return their_Type_set_attr(datatype, keyval, value);
}
INTERNAL(int, MPII_Win_set_attr, (int win, int keyval, void *value, int type)) {
	value_type(keyval, type);
	return their_Win_set_attr(win, keyval, value);
}
// MPI's own values come as numbers, where C gets their addresses. Their keyvals are the even numbers behind C's odd ones.
static int keyval_of_c(int keyval) { return keyval >= 0x64000000 && keyval < 0x68000000 && keyval % 2 == 0 ? keyval - 1 : keyval; }
INTERNAL(int, MPII_Comm_get_attr, (int comm, int keyval, void *value, int *flag, int type)) {
	keyval = keyval_of_c(keyval);
	int code = their_Comm_get_attr(comm, keyval, value, flag);
	if (code == 0 && *flag && type != POINTER && our_KEYVAL(keyval) != keyval)
		*(intptr_t *)value = **(int **)value;
	return code;
}
INTERNAL(int, MPII_Type_get_attr, (int datatype, int keyval, void *value, int *flag, int type)) {
	(void)type;
	return their_Type_get_attr(datatype, keyval, value, flag);
}
INTERNAL(int, MPII_Win_get_attr, (int win, int keyval, void *value, int *flag, int type)) {
	keyval = keyval_of_c(keyval);
	int code = their_Win_get_attr(win, keyval, value, flag), ours = our_KEYVAL(keyval);
	if (code == 0 && *flag && type != POINTER && ours != keyval && ours != MPI_WIN_BASE)
		*(intptr_t *)value = ours == MPI_WIN_SIZE ? **(MPI_Aint **)value : **(int **)value;
	return code;
}
INTERNAL(void, MPII_Grequest_set_lang_f77, (int request)) {
	(void)request;
	die("MPI_Grequest_start is not there yet for programs in Fortran");
}

// Where Fortran's constants are: its library compares addresses.
static int ignored[5], all_ignored[5];
DATA(int *, MPI_F_STATUS_IGNORE) = ignored;
DATA(int *, MPI_F_STATUSES_IGNORE) = all_ignored;
DATA(struct status, MPIR_F08_MPI_STATUS_IGNORE_OBJ);
DATA(struct status, MPIR_F08_MPI_STATUSES_IGNORE_OBJ);
DATA(struct status *, MPI_F08_STATUS_IGNORE) = &data_MPIR_F08_MPI_STATUS_IGNORE_OBJ;
DATA(struct status *, MPI_F08_STATUSES_IGNORE) = &data_MPIR_F08_MPI_STATUSES_IGNORE_OBJ;
DATA(int, MPIR_F08_MPI_IN_PLACE);
DATA(int, MPIR_F08_MPI_BOTTOM);

// The library for Fortran has these too, empty, and its own are found first.
DATA(int *, MPIR_C_MPI_UNWEIGHTED);
DATA(int *, MPIR_C_MPI_WEIGHTS_EMPTY);
__attribute__((constructor)) static void weights(void) {
	data_MPIR_C_MPI_UNWEIGHTED = MPI_UNWEIGHTED;
	data_MPIR_C_MPI_WEIGHTS_EMPTY = MPI_WEIGHTS_EMPTY;
}
DATA(int, MPIR_fortran_true) = 1;
DATA(int, MPIR_fortran_false);
