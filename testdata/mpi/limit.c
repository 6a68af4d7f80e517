/* What gorun-bench holds launchers against; no MPI program.
 *
 *   limit start N PROGRAM    starts PROGRAM N times and waits for all of them:
 *                            what the kernel alone takes for a job of N ranks
 *   limit write BYTES        writes so many bytes in lines of 80 with stdio, as
 *                            programs do; the rest of a line is cut off */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

int main(int argc, char **argv) {
	if (argc >= 4 && strcmp(argv[1], "start") == 0) return start(atoi(argv[2]), argv + 3);
	if (argc == 3 && strcmp(argv[1], "write") == 0) return write_lines(atol(argv[2]));
	fputs("usage: limit start N PROGRAM... | limit write BYTES\n", stderr);
	return 2;
}
