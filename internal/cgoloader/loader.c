#define _GNU_SOURCE

#include "loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

volatile int loader_forked;

// What signals of faulty accesses go to: Go's handler, and the program's.
static struct fault {
	int signal;
	struct sigaction go, program;
} faults[] = {{.signal = SIGSEGV}, {.signal = SIGBUS}};

// Where the library's code lies.
static uintptr_t code_from, code_to;

static uintptr_t program_counter(const ucontext_t *c) {
#if defined __x86_64__
	return (uintptr_t)c->uc_mcontext.gregs[REG_RIP];
#elif defined __aarch64__
	return (uintptr_t)c->uc_mcontext.pc;
#else
	return code_from; // Go's
#endif
}

static void on_fault(int signal, siginfo_t *info, void *context) {
	struct fault *f = &faults[signal == SIGBUS];
	uintptr_t pc = program_counter(context);
	if (pc >= code_from && pc < code_to)
		f->go.sa_sigaction(signal, info, context);
	else if (f->program.sa_flags & SA_SIGINFO)
		f->program.sa_sigaction(signal, info, context);
	else if (f->program.sa_handler != SIG_DFL && f->program.sa_handler != SIG_IGN)
		f->program.sa_handler(signal);
	else
		sigaction(signal, &f->program, NULL); // and the access is made again
}

static void in_child(void) { loader_forked = 1; }

static int (*real_sigaction(void))(int, const struct sigaction *, struct sigaction *) {
	static int (*real)(int, const struct sigaction *, struct sigaction *);
	if (real == NULL)
		*(void **)&real = dlsym(RTLD_NEXT, "sigaction");
	return real;
}

int loader_sigaction(int signal, const struct sigaction *new, struct sigaction *old) {
	struct sigaction with;
	if (new != NULL && new->sa_handler != SIG_DFL && new->sa_handler != SIG_IGN) {
		with = *new;
		with.sa_flags |= SA_ONSTACK;
		new = &with;
	}
	return real_sigaction()(signal, new, old);
}

static int find_code(struct dl_phdr_info *info, size_t size, void *address) {
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + p->p_vaddr;
		if (p->p_type == PT_LOAD && (p->p_flags & PF_X) && from <= (uintptr_t)address && (uintptr_t)address < from + p->p_memsz) {
			code_from = from;
			code_to = from + p->p_memsz;
			return 1;
		}
	}
	return 0;
}

// The program's handlers, as they are before and are to be after.
static void give_back(const struct sigaction before[NSIG]) {
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now, was = before[s];
		if (sigaction(s, NULL, &now) != 0)
			continue;
		if (was.sa_handler != SIG_DFL && was.sa_handler != SIG_IGN)
			was.sa_flags |= SA_ONSTACK;
		if (s == SIGSEGV || s == SIGBUS) {
			struct fault *f = &faults[s == SIGBUS];
			f->go = now;
			f->program = was;
			now.sa_sigaction = on_fault;
			sigaction(s, &now, NULL);
		} else {
			sigaction(s, &was, NULL);
		}
	}
}

void *loader_open(const void *beside, const char *file, const char *symbol, char *why, size_t size) {
	Dl_info at;
	char real[PATH_MAX], path[PATH_MAX];
	const char *slash;
	// The library may have been found by a link that is elsewhere.
	if (dladdr(beside, &at) == 0 || realpath(at.dli_fname, real) == NULL || (slash = strrchr(real, '/')) == NULL) {
		snprintf(why, size, "the directory of the library is not known");
		return NULL;
	}
	if (snprintf(path, sizeof path, "%.*s/%s", (int)(slash - real), real, file) >= (int)sizeof path) {
		snprintf(why, size, "%s: the path is too long", real);
		return NULL;
	}
	struct sigaction before[NSIG];
	memset(before, 0, sizeof before);
	for (int s = 1; s < NSIG; s++)
		sigaction(s, NULL, &before[s]);
	sigset_t all, mask;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGFPE);
	sigdelset(&all, SIGILL);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	void *found = so == NULL ? NULL : dlsym(so, symbol);
	if (found == NULL)
		snprintf(why, size, "%s", dlerror());
	else if ((errno = pthread_atfork(NULL, NULL, in_child)) != 0) {
		snprintf(why, size, "pthread_atfork: %s", strerror(errno));
		found = NULL;
	}
	if (so != NULL) {
		void *init = dlsym(so, "gorun_loader_code");
		if (init != NULL)
			dl_iterate_phdr(find_code, init);
		give_back(before);
	}
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return found;
}
