// The record of a rank's calls as internal/calls has it: layout_unsafe.go there is the same in Go.
#ifndef GORUN_ABI_PROFILE_RECORD_H
#define GORUN_ABI_PROFILE_RECORD_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum { VERSION = 1, SITES = 512, RING = 1 << 14, SIZES = 40, TEXT = 240, RANKS_MOST = 1 << 20 };
#define MAGIC 0x31534c4c4143524fULL

enum { OTHER, MESSAGE, COLLECTIVE, BEGUN, ARRIVED }; // kinds of events

struct head {
	uint64_t magic;
	uint32_t version, size, rank, concurrent;
	int64_t begin, end;
	uint64_t events, current;
	int64_t since;
	uint64_t sites;
	char rest[4096 - 80];
};

struct site {
	uint64_t length;
	char text[TEXT];
};

struct sum {
	uint64_t count, out, in;
	int64_t total, longest;
};

struct peer {
	uint64_t sent, sent_bytes, got, got_bytes;
};

struct event {
	int64_t start, took;
	uint16_t site;
	uint8_t kind, unused;
	uint32_t group;
	int32_t to, from;
	uint32_t out, in, sent, got;
};

static_assert(sizeof(struct head) == 4088 && offsetof(struct head, begin) == 24 && offsetof(struct head, sites) == 64, "header");
static_assert(sizeof(struct site) == 248 && sizeof(struct sum) == 40 && sizeof(struct peer) == 32, "site, sum, peer");
static_assert(sizeof(struct event) == 48 && offsetof(struct event, group) == 20 && offsetof(struct event, got) == 44, "event");

#endif
