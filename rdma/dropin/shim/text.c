// What libibverbs has beside devices: names, rates, and functions that need no device.
#include "shim.h"

#include <signal.h>
#include <string.h>

#define NAME(names, i) ((unsigned)(i) < sizeof names / sizeof *names && names[i] != NULL ? names[i] : "unknown")

const char *ibv_wc_status_str(int status) {
	static const char *const names[] = {
		"success", "local length error", "local QP operation error", "local EE context operation error", "local protection error",
		"Work Request Flushed Error", "memory management operation error", "bad response error", "local access error", "remote invalid request error",
		"remote access error", "remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded", "local RDD violation error",
		"remote invalid RD request", "aborted error", "invalid EE context number", "invalid EE context state", "fatal error", "response timeout error",
		"general error", "TM error", "TM software rendezvous",
	};
	return NAME(names, status);
}

const char *ibv_event_type_str(int type) {
	static const char *const names[] = {
		"CQ error", "local work queue catastrophic error", "invalid request local work queue error", "local access violation work queue error",
		"communication established", "send queue drained", "path migrated", "path migration request error", "local catastrophic error", "port active",
		"port error", "LID change", "P_Key change", "SM change", "SRQ catastrophic error", "SRQ limit reached", "last WQE reached", "client reregistration",
		"GID table change", "WQ fatal",
	};
	return NAME(names, type);
}

const char *ibv_node_type_str(int type) {
	static const char *const names[] = {NULL, "InfiniBand channel adapter", "InfiniBand switch", "InfiniBand router", "iWARP NIC", "usNIC", "usNIC UDP", "unspecified"};
	return NAME(names, type);
}

const char *ibv_port_state_str(int state) {
	static const char *const names[] = {"no state change (NOP)", "down", "init", "armed", "active", "active defer"};
	return NAME(names, state);
}

// Rates: enum ibv_rate, multiples of 2.5 Gbit/s, Mbit/s.
static const struct { int rate, mult, mbps; } rates[] = {
	{2, 1, 2500}, {5, 2, 5000}, {3, 4, 10000}, {6, 8, 20000}, {4, 12, 30000}, {7, 16, 40000}, {8, 24, 60000}, {9, 32, 80000}, {10, 48, 120000},
	{11, 6, 14062}, {12, 24, 56250}, {13, 48, 112500}, {14, 72, 168750}, {15, 10, 25781}, {16, 40, 103125}, {17, 80, 206250}, {18, 120, 309375},
	{19, 11, 28125}, {20, 20, 50000}, {21, 160, 400000}, {22, 240, 600000}, {23, 320, 800000}, {24, 480, 1200000},
};

#define LOOK(from, to, otherwise)                                        \
	for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)        \
		if (rates[i].from == value)                              \
			return rates[i].to;                              \
	return otherwise;
int ibv_rate_to_mult(int value) { LOOK(rate, mult, -1) }
int mult_to_ibv_rate(int value) { LOOK(mult, rate, 0) }
int ibv_rate_to_mbps(int value) { LOOK(rate, mbps, -1) }
int mbps_to_ibv_rate(int value) { LOOK(mbps, rate, 0) }

const char *ibv_get_sysfs_path(void) { return "/sys"; }

// There is nothing of the devices in /sys.
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size) {
	(void)dir, (void)file, (void)buf, (void)size;
	errno = ENOENT;
	return -1;
}

// Registered memory stays the parent's: a fork takes nothing away.
int ibv_fork_init(void) { return 0; }
int ibv_is_fork_initialized(void) { return 2; } // IBV_FORK_UNNEEDED
int ibv_dontfork_range(void *base, size_t size) { (void)base, (void)size; return 0; }
int ibv_dofork_range(void *base, size_t size) { (void)base, (void)size; return 0; }
// Bytes of a message may land in any order.
int ibv_query_qp_data_in_order(struct ibv_qp *qp, int op, uint32_t flags) { (void)qp, (void)op, (void)flags; return 0; }

// Drivers of libibverbs that come with a program register themselves. They find no device.
void verbs_register_driver_34(const void *ops) { (void)ops; }

// In front of the C library's, for the program that this library is in: see internal/cgoloader.
int sigaction(int signal, const struct sigaction *new, struct sigaction *old) { return loader_sigaction(signal, new, old); }

void (*signal(int number, void (*handler)(int)))(int) {
	struct sigaction new = {.sa_flags = SA_RESTART}, old;
	new.sa_handler = handler;
	return loader_sigaction(number, &new, &old) == 0 ? old.sa_handler : SIG_ERR;
}
