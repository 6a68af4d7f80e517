// Loads a Go library into a program of another language when it is first needed, so that the program does not notice.
//
//   - Signals: Go's runtime takes handlers when it is loaded. The program gets its own back, but for SIGSEGV and SIGBUS,
//     which go to Go only when Go's code has raised them. Go's threads block all other signals, so those of the process
//     reach the program's threads. A thread of the program that is in Go runs on a small stack, so
//     its handlers must run on another: those that exist get SA_ONSTACK here, and loader_sigaction adds it to later ones.
//   - The library stays to the end of the process (RTLD_NODELETE): Go's threads cannot be ended.
//   - A child of fork has none of Go's threads. loader_forked tells, and nothing of the library may be called then.
#ifndef GORUN_CGOLOADER_H
#define GORUN_CGOLOADER_H

#include <signal.h>
#include <stddef.h>

#pragma GCC visibility push(hidden)

// loader_open gives a symbol of the library `file` beside the library or program that has the address `beside`.
// NULL: the reason is in why.
void *loader_open(const void *beside, const char *file, const char *symbol, char *why, size_t size);

// 1 in a child that was forked after loader_open.
extern volatile int loader_forked;

// sigaction for programs that the library is in; a library exports it as sigaction.
int loader_sigaction(int signal, const struct sigaction *new, struct sigaction *old);

#pragma GCC visibility pop

#endif
