// The file that this rank writes: see internal/calls. Whoever calls what is below holds the lock.
#define _GNU_SOURCE
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// A table of words by words that are not 0.
struct table {
	size_t size, used; // size is a power of two, or 0
	struct slot {
		uint64_t key, value;
	} *at;
};

static size_t slot_of(const struct table *t, uint64_t key) { return (key * 0x9e3779b97f4a7c15ULL >> 20) & (t->size - 1); }

// lookup is where a key's value is; NULL: nowhere.
static uint64_t *lookup(const struct table *t, uint64_t key) {
	if (t->used == 0)
		return NULL;
	for (size_t i = slot_of(t, key); t->at[i].key != 0; i = (i + 1) & (t->size - 1))
		if (t->at[i].key == key)
			return &t->at[i].value;
	return NULL;
}

// insert is where the value of a key is put; NULL: there is no memory.
static uint64_t *insert(struct table *t, uint64_t key) {
	if (t->used * 2 >= t->size) {
		struct table more = {.size = t->size ? t->size * 2 : 64, .used = 0, .at = NULL};
		if ((more.at = calloc(more.size, sizeof *more.at)) == NULL)
			return NULL;
		for (size_t i = 0; i < t->size; i++)
			if (t->at[i].key != 0)
				*insert(&more, t->at[i].key) = t->at[i].value;
		free(t->at);
		*t = more;
	}
	size_t i = slot_of(t, key);
	while (t->at[i].key != 0 && t->at[i].key != key)
		i = (i + 1) & (t->size - 1);
	if (t->at[i].key == 0)
		t->used++;
	t->at[i].key = key;
	return &t->at[i].value;
}

// drop takes a key out: what has been put behind it since moves up.
static void drop(struct table *t, uint64_t key) {
	uint64_t *found = lookup(t, key);
	if (found == NULL)
		return;
	size_t hole = (size_t)((struct slot *)((char *)found - offsetof(struct slot, value)) - t->at);
	for (size_t i = (hole + 1) & (t->size - 1); t->at[i].key != 0; i = (i + 1) & (t->size - 1)) {
		size_t own = slot_of(t, t->at[i].key);
		if (((i - own) & (t->size - 1)) >= ((i - hole) & (t->size - 1))) {
			t->at[hole] = t->at[i];
			hole = i;
		}
	}
	t->at[hole].key = 0;
	t->used--;
}

static struct {
	struct head *head; // NULL: nothing is recorded
	struct site *texts;
	struct sum *sums;
	uint64_t *sizes;
	struct event *ring;
	struct peer *peers;
	uint32_t size, told; // of the world; of those that are told apart
	struct table sites;  // by return address
	int threads;         // several threads may call at a time
	char busy;           // the lock, then
} record;

static void lock(void) {
	while (record.threads && __atomic_test_and_set(&record.busy, __ATOMIC_ACQUIRE))
		sched_yield();
}

static void unlock(void) {
	if (record.threads)
		__atomic_clear(&record.busy, __ATOMIC_RELEASE);
}

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// A call that is recorded.
struct call {
	struct event e;
	int used; // it has a message in it
};

// create makes the record. It returns 0, else the reason why there is none is in errno.
static int create(const char *path, int rank, int size, int64_t begin) {
	record.size = (uint32_t)size;
	record.told = size > RANKS_MOST ? 0 : (uint32_t)size;
	size_t n = sizeof(struct head) + SITES * (sizeof(struct site) + sizeof(struct sum)) + SIZES * sizeof(uint64_t) + RING * sizeof(struct event) + record.told * sizeof(struct peer);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -1;
	char *mem = MAP_FAILED;
	int bad = posix_fallocate(fd, 0, (off_t)n); // a store into a hole of a full disk would kill the rank
	if (bad == 0 && (mem = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		bad = errno;
	close(fd);
	if (bad != 0) {
		unlink(path);
		errno = bad;
		return -1;
	}
	struct head *h = (struct head *)mem;
	record.texts = (struct site *)(h + 1);
	record.sums = (struct sum *)(record.texts + SITES);
	record.sizes = (uint64_t *)(record.sums + SITES);
	record.ring = (struct event *)(record.sizes + SIZES);
	record.peers = (struct peer *)(record.ring + RING);
	h->version = VERSION, h->size = record.told, h->rank = (uint32_t)rank, h->begin = begin, h->sites = 1;
	record.texts[0].length = (uint64_t)sprintf(record.texts[0].text, "further calls\n\n\n");
	h->magic = MAGIC;
	record.head = h;
	return 0;
}

// last are the last bytes of a text, which say more.
static const char *last(const char *text, size_t most) {
	size_t n = strlen(text);
	return text + (n > most ? n - most : 0);
}

// new_site is the site with a text; 0: there are too many.
static unsigned new_site(const char *op, const char *function, const char *file, unsigned long line) {
	struct site s = {0};
	int n = snprintf(s.text, sizeof s.text, "%s\n%s\n%s:%lu\n", op, last(function, 60), last(file, 120), line);
	s.length = (uint64_t)n;
	uint64_t sites = record.head->sites;
	for (uint64_t i = 1; i < sites; i++)
		if (record.texts[i].length == s.length && memcmp(record.texts[i].text, s.text, s.length) == 0)
			return (unsigned)i;
	if (sites == SITES)
		return 0;
	record.texts[sites] = s;
	__atomic_store_n(&record.head->sites, sites + 1, __ATOMIC_RELEASE);
	return (unsigned)sites;
}

// site is where the program has called. The host, which reads the record, finds the line: a file without a function is the program's or a
// library's, and its line is that address in it. A return address is behind its call.
static unsigned site(const char *op, const void *caller) {
	uint64_t *known = lookup(&record.sites, (uintptr_t)caller);
	if (known != NULL)
		return (unsigned)*known;
	Dl_info i;
	struct link_map *map = NULL;
	char program[256];
	const char *file = "";
	uintptr_t at = (uintptr_t)caller - 1;
	if (dladdr1(caller, &i, (void **)&map, RTLD_DL_LINKMAP) != 0) {
		file = i.dli_fname;
		at -= (uintptr_t)i.dli_fbase;
		ssize_t n;
		if (map != NULL && map->l_name[0] == 0 && (n = readlink("/proc/self/exe", program, sizeof program - 1)) > 0) {
			program[n] = 0;
			file = program;
		}
	}
	unsigned number = new_site(op, "", file, at);
	uint64_t *slot = number != 0 ? insert(&record.sites, (uintptr_t)caller) : NULL;
	if (slot != NULL)
		*slot = number;
	return number;
}

static uint32_t narrow(int64_t n) { return n < 0 ? 0 : n > UINT32_MAX ? UINT32_MAX : (uint32_t)n; }

static void count_size(int64_t n) {
	int class = n <= 0 ? 0 : 64 - __builtin_clzll((unsigned long long)n);
	record.sizes[class < SIZES ? class : SIZES - 1]++;
}

static void put(const struct event *e) {
	struct head *h = record.head;
	record.ring[h->events % RING] = *e;
	__atomic_store_n(&h->events, h->events + 1, __ATOMIC_RELEASE);
}

// arrived makes an event of the message that the call has so far: it has another one.
static void arrived(struct call *k) {
	struct event e = k->e;
	e.kind = ARRIVED, e.start = now(), e.took = 0;
	put(&e);
	k->e.to = k->e.from = -1;
	k->e.out = k->e.in = 0;
}

// message notes that a call sends to a rank of the world, or has received from one.
static void message(struct call *k, int out, int64_t with, int64_t n, int tag) {
	struct sum *s = &record.sums[k->e.site];
	*(out ? &s->out : &s->in) += (uint64_t)n;
	count_size(n);
	uint32_t number = UINT32_MAX;
	if (with >= 0 && with < record.told) {
		struct peer *p = &record.peers[with];
		uint64_t *count = out ? &p->sent : &p->got;
		number = (uint32_t)*count;
		++*count;
		*(out ? &p->sent_bytes : &p->got_bytes) += (uint64_t)n;
	}
	if (k->used && (out ? k->e.to : k->e.from) >= 0)
		arrived(k);
	k->e.kind = MESSAGE, k->e.group = (uint32_t)tag, k->used = 1;
	if (out)
		k->e.to = (int32_t)with, k->e.out = narrow(n), k->e.sent = number;
	else
		k->e.from = (int32_t)with, k->e.in = narrow(n), k->e.got = number;
}

// part notes that a call has bytes for one rank of the world.
static void part(int64_t to, int64_t n) {
	if (to >= 0 && to < record.told)
		record.peers[to].sent_bytes += (uint64_t)n;
}

enum { NEAR = 20000 }; // how close calls of one site that only ask are taken for one event

static void finish(struct call *k) {
	struct head *h = record.head;
	int64_t at = now();
	k->e.took = at - k->e.start;
	struct sum *s = &record.sums[k->e.site];
	s->count++;
	s->total += k->e.took;
	if (k->e.took > s->longest)
		s->longest = k->e.took;
	if (h->since == k->e.start)
		h->current = 0;
	if (h->events > 0 && k->e.kind == OTHER) {
		struct event *e = &record.ring[(h->events - 1) % RING];
		if (e->kind == OTHER && e->site == k->e.site && k->e.start - e->start - e->took < NEAR) {
			e->took = at - e->start;
			return;
		}
	}
	put(&k->e);
}
