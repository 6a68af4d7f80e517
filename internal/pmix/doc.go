// Package pmix is a PMIx server, which is how the ranks of Open MPI programs
// meet their launcher: libpmix behind Go types. It is for the helper program
// gorun-pmix, which gorun starts when a rank first connects; nothing else needs
// cgo or libpmix.
//
// # Types
//
// [Probe] tells whether there is a libpmix that this build can use. [Start]
// makes the [Server] of this process, which answers processes of the
// [Namespace]s that Register is given. Their questions to the launcher come
// to the server's [Handler]; one that takes longer to answer is a [Request].
//
// # What processes may ask for
//
// Fences, puts and gets, connect and disconnect, spawn, abort, published names,
// events, groups (construct and destruct come to the Handler where they are not of
// one node alone; invite, join and leave are events among processes), queries, the
// ending, stopping and signalling of processes, and texts for the job's output:
// Open MPI explains by these what went wrong. libpmix answers the rest by
// PMIX_ERR_NOT_SUPPORTED, as its interface asks for where a host lacks a function:
//
//   - IOF (PMIx_IOF_pull, push): the output of all ranks, spawned ones included, goes
//     to the launcher's own, which renders it, and its input is dealt by --stdin. Only
//     tools that would be launchers themselves ask for it; neither Open MPI 4 nor 5
//     does.
//   - allocation, checkpoint and restart, provision of nodes, credentials, process
//     monitoring, fabrics, tools: there is no scheduler and no fabric manager behind
//     this server, and a debugger attaches to processes.
//
// # Built without, run without
//
// No header of PMIx is needed to build: abi.h declares what is used of libpmix, and a
// test compares it with the real headers where these are installed. [Probe] and
// [Start] look for the library, its version and each function (dlopen, dlsym). They
// take versions 4.2 to 7, between which these declarations are the same. The error
// for a missing one names it and what to install. Without cgo the package
// compiles and says so.
//
// # Ownership
//
// Handler methods copy what they keep: no memory of C is given to them. A Request
// must be answered exactly once, from any goroutine; a second answer panics.
//
// # What may block
//
// Handler methods run on libpmix's only thread: while one runs no process is
// served, so they must not block for long. Connected and Finalized return before
// the process itself goes on, so that what they tell the launcher is there before
// anything that the process does next. Register and Ping wait for that thread.
//
// # What dies when
//
// Nothing is ever taken down but with the process: libpmix can deadlock when it
// is told to forget clients that it has rejected, so the helper exits, or is
// killed, with its server running.
package pmix
