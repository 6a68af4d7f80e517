#include "shim.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define POOL(kind) {.size = sizeof(struct kind), .handle = offsetof(struct kind, handle)}
struct pool contexts = POOL(context), domains = POOL(domain), regions = POOL(region), windows = POOL(window), targets = POOL(target),
	    xrcds = POOL(xrcd), channels = POOL(channel), queues = POOL(queue), shareds = POOL(shared), pairs = POOL(pair);

// Guards all pools.
static pthread_mutex_t pooling = PTHREAD_MUTEX_INITIALIZER;

#define FIRST_CHUNK 64
#define REST 64 // how many rest before one is used again

static char *object_at(struct pool *p, unsigned i) {
	int chunk = 0;
	unsigned begin = 0;
	while (i - begin >= (unsigned)FIRST_CHUNK << chunk)
		begin += (unsigned)FIRST_CHUNK << chunk++;
	return p->chunks[chunk] == NULL ? NULL : p->chunks[chunk] + (size_t)(i - begin) * p->size;
}

static gd_handle *handle_at(struct pool *p, void *object) { return (gd_handle *)((char *)object + p->handle); }

// index_of is where the object lies, -1 for none of the pool's.
static long index_of(struct pool *p, const void *object) {
	unsigned begin = 0;
	for (int c = 0; c < 24 && p->chunks[c] != NULL; c++) {
		size_t n = (size_t)FIRST_CHUNK << c;
		uintptr_t at = (uintptr_t)object - (uintptr_t)p->chunks[c];
		if ((uintptr_t)object >= (uintptr_t)p->chunks[c] && at < n * p->size)
			return at % p->size == 0 ? (long)(begin + at / p->size) : -1;
		begin += (unsigned)n;
	}
	return -1;
}

void *pool_make(struct pool *p) {
	pthread_mutex_lock(&pooling);
	char *object = NULL;
	if (p->ring != 0 && p->last - p->first > REST) {
		object = object_at(p, p->resting[p->first++ % p->ring]);
	} else {
		int chunk = 0;
		for (unsigned begin = 0; p->count - begin >= (unsigned)FIRST_CHUNK << chunk; chunk++)
			begin += (unsigned)FIRST_CHUNK << chunk;
		if (chunk < 24 && (p->chunks[chunk] != NULL || (p->chunks[chunk] = calloc((size_t)FIRST_CHUNK << chunk, p->size)) != NULL))
			object = object_at(p, p->count++);
	}
	pthread_mutex_unlock(&pooling);
	if (object != NULL)
		memset(object, 0, p->size);
	return object;
}

void pool_end(struct pool *p, void *object) {
	pthread_mutex_lock(&pooling);
	*handle_at(p, object) = 0;
	if (p->last - p->first == p->ring) { // full
		unsigned room = p->ring == 0 ? 128 : 2 * p->ring;
		unsigned *ring = malloc(room * sizeof *ring);
		if (ring == NULL)
			goto out; // it is not used again
		unsigned n = 0;
		for (; p->first != p->last; p->first++)
			ring[n++] = p->resting[p->first % p->ring];
		free(p->resting);
		p->resting = ring;
		p->ring = room;
		p->first = 0;
		p->last = n;
	}
	p->resting[p->last++ % p->ring] = (unsigned)index_of(p, object);
out:
	pthread_mutex_unlock(&pooling);
}

int pool_has(struct pool *p, const void *object) {
	pthread_mutex_lock(&pooling);
	int has = object != NULL && index_of(p, object) >= 0 && *handle_at(p, (void *)object) != 0;
	pthread_mutex_unlock(&pooling);
	return has;
}

void pool_each(struct pool *p, void (*f)(void *object, void *arg), void *arg) {
	for (unsigned i = 0; i < p->count; i++) {
		char *object = object_at(p, i);
		if (*handle_at(p, object) != 0)
			f(object, arg);
	}
}

struct context *context_of(struct ibv_context *context) {
	if (context == NULL)
		return NULL;
	return LIVE(context, (char *)context - offsetof(struct verbs_context, context));
}

void *none(int error) {
	errno = error;
	return NULL;
}

int back(int error) {
	if (error != 0)
		errno = error;
	return error;
}

struct gd_calls go;

int load(void) {
	static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
	static int loaded;
	int rc = 0;
	if (loader_forked)
		return forked();
	pthread_mutex_lock(&loading);
	if (!loaded) {
		char why[512];
		const struct gd_calls *found = loader_open(&contexts, "libgorun-verbs.so", "gorun_verbs_calls", why, sizeof why);
		if (found != NULL) {
			go = *found;
			loaded = 1;
		} else {
			fprintf(stderr, "gorun-verbs: the software device cannot be loaded: %s\n", why);
			rc = ENOSYS;
		}
	}
	pthread_mutex_unlock(&loading);
	return rc;
}

int forked(void) {
	static int said;
	if (!said) {
		said = 1;
		fprintf(stderr, "gorun-verbs: process was forked after the device list was read: a software device does not go on in a child; read the list after the fork\n");
	}
	return ENODEV;
}

// libibverbs waits, as here, until all events of an object are acknowledged before it destroys it.
void await_events(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged, const uint32_t *given) {
	pthread_mutex_lock(mutex);
	while (*acknowledged != *given)
		pthread_cond_wait(cond, mutex);
	pthread_mutex_unlock(mutex);
}
