// Signals and forks of a program into which the device's Go runtime comes.
#define _GNU_SOURCE
#include "../../verbs/abi.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed;
static void fail(const char *what) { failed = 1, printf("%s\n", what); }
static volatile sig_atomic_t caught;
static void on_signal(int s) { caught = s; }

int main(void) {
	signal(SIGUSR1, on_signal);
	signal(SIGURG, on_signal);
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list == NULL)
		return printf("no device\n"), 1;
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now;
		if (sigaction(s, NULL, &now) != 0)
			continue;
		int mine = s == SIGUSR1 || s == SIGURG;
		if (mine && (now.sa_handler != on_signal || !(now.sa_flags & SA_ONSTACK)))
			fail("a handler of the program is gone, or runs on a stack of Go's");
		if (!mine && s != SIGSEGV && s != SIGBUS && now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN)
			fail(strsignal(s));
	}
	signal(SIGALRM, on_signal);
	struct sigaction later;
	if (sigaction(SIGALRM, NULL, &later) != 0 || !(later.sa_flags & SA_ONSTACK))
		fail("a later handler runs on a stack of Go's");
	kill(getpid(), SIGUSR1);
	if (caught != SIGUSR1)
		fail("the program's thread did not get the signal");

	// A child without exec gets an error, and does not hang; its parent goes on.
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		fclose(stderr); // the line that says why
		errno = 0;
		_exit(ibv_open_device(list[0]) == NULL && errno == ENODEV ? 0 : 1);
	}
	int status;
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("a child that was forked used the device");
	struct ibv_context *ctx = ibv_open_device(list[0]);
	if (ctx == NULL || ibv_close_device(ctx) != 0)
		fail("the parent cannot open the device");

	// A crash of the program is the program's: it dies by its signal, and says nothing of Go.
	fflush(stdout);
	child = fork();
	if (child == 0) {
		*(volatile int *)8 = 1;
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child || !WIFSIGNALED(status) || WTERMSIG(status) != SIGSEGV)
		fail("a program that crashed did not die by SIGSEGV");
	if (!failed)
		printf("all is well\n");
	return failed;
}
