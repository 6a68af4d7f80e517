/* A client of PMI-2 without an MPI, by Slurm's libpmi2: all its calls.
 *
 *	pmi2            attributes, keys, names and a spawn of two copies
 *	pmi2 abort      rank 1 aborts
 *	pmi2 lonely     waits for an attribute of the host that no rank puts
 */
#include <slurm/pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

#define CHECK(what)                                                            \
	do {                                                                   \
		if (!(what)) {                                                 \
			printf("rank %d: wrong: %s\n", rank, #what);           \
			fflush(stdout);                                        \
			exit(1);                                               \
		}                                                              \
	} while (0)

static void keys(const char *job) {
	char key[64], value[1024], want[1024];
	int n;
	snprintf(key, sizeof key, "key-%d", rank);
	snprintf(value, sizeof value, "a = b; of rank %d;;", rank);
	CHECK(PMI2_KVS_Put(key, value) == PMI2_SUCCESS);
	CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
	for (int r = 0; r < size; r++) {
		snprintf(key, sizeof key, "key-%d", r);
		snprintf(want, sizeof want, "a = b; of rank %d;;", r);
		CHECK(PMI2_KVS_Get(r % 2 ? job : NULL, r, key, value, sizeof value, &n) == PMI2_SUCCESS);
		CHECK(!strcmp(value, want) && n == (int) strlen(want));
	}
	CHECK(PMI2_KVS_Get(job, PMI2_ID_NULL, "nobody's", value, sizeof value, &n) != PMI2_SUCCESS || n == 0);
	memset(value, 'v', sizeof value);
	value[1023] = 0;
	CHECK(PMI2_KVS_Put("long", value) == PMI2_SUCCESS);
	CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
}

/* The first of the host's ranks puts an attribute that the others wait for. */
static void attributes(void) {
	char value[1024];
	int found, n, local[64];
	CHECK(PMI2_Info_GetNodeAttrIntArray("localRanks", local, 64, &n, &found) == PMI2_SUCCESS && found && n >= 1);
	CHECK(PMI2_Info_GetNodeAttr("early", value, sizeof value, &found, 0) == PMI2_SUCCESS && !found);
	if (rank == local[0])
		CHECK(PMI2_Info_PutNodeAttr("host", "is ours") == PMI2_SUCCESS);
	CHECK(PMI2_Info_GetNodeAttr("host", value, sizeof value, &found, 1) == PMI2_SUCCESS);
	CHECK(found && !strcmp(value, "is ours"));
	CHECK(PMI2_Info_GetJobAttr("universeSize", value, sizeof value, &found) == PMI2_SUCCESS && found && atoi(value) >= size);
	CHECK(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found) == PMI2_SUCCESS && found);
	CHECK(!strncmp(value, "(vector,", 8));
	CHECK(PMI2_Info_GetJobAttr("nothing", value, sizeof value, &found) == PMI2_SUCCESS && !found);
}

static void names(void) {
	char port[1024];
	if (rank == 0)
		CHECK(PMI2_Nameserv_publish("service", NULL, "port; 1") == PMI2_SUCCESS);
	CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
	CHECK(PMI2_Nameserv_lookup("service", NULL, port, sizeof port) == PMI2_SUCCESS && !strcmp(port, "port; 1"));
	CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
	if (rank == 0)
		CHECK(PMI2_Nameserv_unpublish("service", NULL) == PMI2_SUCCESS);
	CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
	CHECK(PMI2_Nameserv_lookup("service", NULL, port, sizeof port) != PMI2_SUCCESS);
	CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
}

static void spawn(const char *self) {
	const char *commands[] = {self}, *args[] = {"child", "a; b", NULL}, **argvs[] = {args};
	int counts[] = {2}, processes[] = {2}, errors[2] = {-1, -1};
	struct MPID_Info preput = {.key = "parent", .value = "a; parent"}, *list = &preput;
	const struct MPID_Info **preputs = (const struct MPID_Info **) &list;
	char job[1024] = "";
	CHECK(PMI2_Job_Spawn(1, commands, counts, argvs, processes, NULL, NULL, 1, preputs, job, sizeof job, errors) == PMI2_SUCCESS);
	CHECK(errors[0] == 0 && errors[1] == 0 && job[0]);
}

int main(int argc, char **argv) {
	int spawned, appnum, n;
	char job[1024], value[1024];
	if (PMI2_Init(&spawned, &size, &rank, &appnum) != PMI2_SUCCESS)
		return 1;
	CHECK(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS && job[0]);
	if (argc > 1 && !strcmp(argv[1], "abort")) {
		if (rank == 1)
			PMI2_Abort(1, "enough; of this");
		PMI2_KVS_Fence();
	} else if (argc > 1 && !strcmp(argv[1], "lonely")) {
		CHECK(PMI2_Info_GetNodeAttr("nobody's", value, sizeof value, &n, 1) == PMI2_SUCCESS && !n);
		CHECK(PMI2_KVS_Fence() == PMI2_SUCCESS);
	} else if (argc > 1 && !strcmp(argv[1], "child")) {
		CHECK(spawned && !strcmp(argv[2], "a; b"));
		CHECK(PMI2_KVS_Get(job, PMI2_ID_NULL, "parent", value, sizeof value, &n) == PMI2_SUCCESS && !strcmp(value, "a; parent"));
		keys(job);
	} else {
		CHECK(!spawned);
		attributes();
		keys(job);
		names();
		if (rank == 0)
			spawn(argv[0]);
	}
	printf("%s %d of %d, program %d, is fine\n", spawned ? "child" : "rank", rank, size, appnum);
	fflush(stdout);
	return PMI2_Finalize() != PMI2_SUCCESS;
}
