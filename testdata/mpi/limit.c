/* What gorun-bench holds launchers against; no MPI program.
 *
 *   limit start N PROGRAM    starts PROGRAM N times and waits for all of them:
 *                            what the kernel alone takes for a job of N ranks
 *   limit write BYTES        writes so many bytes in lines of 80 with stdio, as
 *                            programs do; the rest of a line is cut off
 *   limit echo PORT          sends back what one connection brings, 8 bytes at a time,
 *                            and polls for it; says "listens" first
 *   limit ping IP PORT N     prints the microseconds of half a round trip of 8 bytes
 *                            to an echo, the median of N */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int start(int n, char **argv) {
	int bad = 0, status;
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			execvp(argv[0], argv);
			_exit(127);
		}
		bad |= pid < 0;
	}
	while (wait(&status) > 0) bad |= status;
	return bad != 0;
}

static int write_lines(long bytes) {
	char line[80];
	memset(line, 'x', sizeof line);
	line[sizeof line - 1] = '\n';
	for (; bytes > 0; bytes -= (long)sizeof line)
		if (fwrite(line, 1, bytes < (long)sizeof line ? (size_t)bytes : sizeof line, stdout) == 0) return 1;
	return fflush(stdout) != 0;
}

/* take polls until 8 bytes are there; 0 when the other side has closed. */
static int take(int fd, char *b) {
	for (ssize_t have = 0; have < 8;) {
		ssize_t k = recv(fd, b + have, 8 - have, MSG_DONTWAIT);
		if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) return 0;
		if (k > 0) have += k;
	}
	return 1;
}

static int echo(int port) {
	int on = 1, l = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(l, (void *)&a, sizeof a) || listen(l, 1)) return perror("limit echo"), 1;
	puts("listens");
	fflush(stdout);
	int fd = accept(l, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	char b[8];
	while (take(fd, b))
		if (send(fd, b, 8, MSG_NOSIGNAL) != 8) return 1;
	return 0;
}

static int later(const void *a, const void *b) { return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b); }

static int ping(const char *ip, int port, int n) {
	int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr(ip)};
	double *us = malloc(n * sizeof *us);
	if (!us || connect(fd, (void *)&a, sizeof a)) return perror("limit ping"), 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	char b[8] = "8 bytes";
	for (int i = 0; i < n; i++) {
		struct timespec t, u;
		clock_gettime(CLOCK_MONOTONIC, &t);
		if (send(fd, b, 8, MSG_NOSIGNAL) != 8 || !take(fd, b)) return fputs("limit ping: the echo has ended\n", stderr), 1;
		clock_gettime(CLOCK_MONOTONIC, &u);
		us[i] = ((u.tv_sec - t.tv_sec) * 1e6 + (u.tv_nsec - t.tv_nsec) / 1e3) / 2;
	}
	qsort(us, n, sizeof *us, later);
	printf("%.3f\n", us[n / 2]);
	return 0;
}

int main(int argc, char **argv) {
	if (argc >= 4 && strcmp(argv[1], "start") == 0) return start(atoi(argv[2]), argv + 3);
	if (argc == 3 && strcmp(argv[1], "write") == 0) return write_lines(atol(argv[2]));
	if (argc == 3 && strcmp(argv[1], "echo") == 0) return echo(atoi(argv[2]));
	if (argc == 5 && strcmp(argv[1], "ping") == 0 && atoi(argv[4]) > 0) return ping(argv[2], atoi(argv[3]), atoi(argv[4]));
	fputs("usage: limit start N PROGRAM... | limit write BYTES | limit echo PORT | limit ping IP PORT N\n", stderr);
	return 2;
}
