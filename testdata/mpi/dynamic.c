/* Spawns through MPICH's own PMI-1 client, to be linked with libmpich.a: MPICH
 * as Debian builds it (4.0.2, ch4:ucx) refuses MPI_Comm_spawn in the library,
 * before it asks the launcher.
 *
 *	dynamic N            spawns N of itself, which connect to rank 0 by TCP as MPI's would
 *	dynamic N PROGRAM... spawns N of a program
 *	dynamic two          spawns two programs in one call
 *	dynamic names        ranks publish a service and find it
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct {
	const char *key;
	char *val;
} PMI_keyval_t;
int PMI_Init(int *);
int PMI_Get_rank(int *);
int PMI_Get_size(int *);
int PMI_Get_universe_size(int *);
int PMI_Get_appnum(int *);
int PMI_KVS_Get_my_name(char *, int);
int PMI_KVS_Get(const char *, const char *, char *, int);
int PMI_Barrier(void);
int PMI_Publish_name(const char *, const char *);
int PMI_Lookup_name(const char *, char *);
int PMI_Unpublish_name(const char *);
int PMI_Spawn_multiple(int, const char *[], const char **[], const int[], const int[],
		       const PMI_keyval_t *[], int, const PMI_keyval_t[], int[]);
int PMI_Finalize(void);

static int rank, size, universe, app;

static void fail(const char *what) {
	perror(what);
	exit(20);
}

/* A child sends its rank + 1 and is told the sum of all. */
static void child(const char *port) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons(atoi(port))};
	int mine = rank + 1, sum, s = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(s, (struct sockaddr *)&at, sizeof at) || write(s, &mine, sizeof mine) != sizeof mine || read(s, &sum, sizeof sum) != sizeof sum)
		fail("child");
	printf("child %d of %d, program %d, universe %d: sum %d\n", rank, size, app, universe, sum);
}

static void meet(int door, int n) {
	int *s = calloc(n, sizeof *s), sum = 0, one;
	for (int i = 0; i < n; i++)
		if ((s[i] = accept(door, NULL, NULL)) < 0 || read(s[i], &one, sizeof one) != sizeof one)
			fail("accept");
		else
			sum += one;
	for (int i = 0; i < n; i++)
		if (write(s[i], &sum, sizeof sum) != sizeof sum)
			fail("write");
}

static void spawn(int argc, char **argv) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	char port[16];
	int door = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(door, (struct sockaddr *)&at, len) || listen(door, 64) || getsockname(door, (struct sockaddr *)&at, &len))
		fail("listen");
	snprintf(port, sizeof port, "%d", ntohs(at.sin_port));

	int two = !strcmp(argv[1], "two"), codes[256], own = argc == 2;
	int n[2] = {two ? 2 : atoi(argv[1]), 1}, hints[2] = {0, 0};
	const char *programs[2] = {own ? argv[0] : argv[2], argv[0]};
	const char **args[2] = {own ? NULL : (const char **)argv + 3, NULL};
	const PMI_keyval_t *infos[2] = {NULL, NULL};
	PMI_keyval_t put = {"PARENT_ROOT_PORT_NAME", port};
	for (int i = 0; i < 256; i++) codes[i] = -1;
	if (PMI_Spawn_multiple(two ? 2 : 1, programs, args, n, hints, infos, 1, &put, codes)) {
		printf("not spawned\n");
		return;
	}
	int total = two ? 3 : n[0], up = 0;
	for (int i = 0; i < total; i++) up += codes[i] == 0;
	printf("spawned %d of %d\n", up, total);
	fflush(stdout);
	if (own) meet(door, total);
}

static void names(void) {
	char port[1024];
	if (rank == 0) {
		if (PMI_Publish_name("service", "tag#0$here")) printf("not published\n");
		if (PMI_Publish_name("service", "again")) printf("published already\n");
	}
	PMI_Barrier();
	if (PMI_Lookup_name("service", port))
		printf("rank %d finds nothing\n", rank);
	else
		printf("rank %d finds %s\n", rank, port);
	PMI_Barrier();
	if (rank == size - 1 && PMI_Unpublish_name("service")) printf("not taken back\n");
	PMI_Barrier();
	if (PMI_Lookup_name("service", port)) printf("rank %d finds it no more\n", rank);
}

int main(int argc, char **argv) {
	int spawned;
	char space[256], port[1024];
	if (PMI_Init(&spawned)) return 21;
	PMI_Get_rank(&rank);
	PMI_Get_size(&size);
	PMI_Get_universe_size(&universe);
	PMI_Get_appnum(&app);
	if (spawned) {
		if (PMI_KVS_Get_my_name(space, sizeof space) || PMI_KVS_Get(space, "PARENT_ROOT_PORT_NAME", port, sizeof port))
			return 22;
		child(port);
	} else if (argc > 1 && !strcmp(argv[1], "names"))
		names();
	else if (argc > 1 && rank == 0)
		spawn(argc, argv);
	fflush(stdout);
	PMI_Barrier();
	return PMI_Finalize();
}
