// Ids: made, given an address and a device, destroyed.
#include "cm.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct id *all; // of the process

struct id *id_make(struct channel *c, void *context, int space, int type) {
	struct id *id = calloc(1, sizeof *id);
	if (id == NULL)
		return NULL;
	id->socket = -1;
	id->id.context = context;
	id->id.ps = space;
	id->id.qp_type = type;
	id->own = c == NULL;
	id->id.channel = c == NULL ? rdma_create_event_channel() : &c->channel;
	if (id->id.channel == NULL) {
		free(id);
		return NULL;
	}
	// Queue pairs count from anywhere: what a dead one left under way is not taken for the next one's.
	static uint32_t numbers = 0x9e3779;
	id->psn = (numbers = numbers * 1664525 + 1013904223) >> 8;
	id->next = all;
	all = id;
	return id;
}

void id_free(struct id *id) {
	end_outside(id);
	unwatch_socket(id);
	struct id **at = &all;
	while (*at != id)
		at = &(*at)->next;
	*at = id->next;
	for (struct id *other = all, *next; other != NULL; other = next) {
		next = other->next;
		if (other->listener == id)
			id_free(other);
	}
	if (id->own)
		rdma_destroy_event_channel(id->id.channel);
	free(id->passive);
	free(id);
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, int space) {
	int datagrams = space == RDMA_PS_UDP || space == RDMA_PS_IPOIB;
	if (id == NULL || (!datagrams && space != RDMA_PS_TCP && space != RDMA_PS_IB))
		return fails(id == NULL ? EINVAL : EPROTONOSUPPORT);
	pthread_mutex_lock(&cm_lock);
	struct id *made = id_make((struct channel *)channel, context, space, datagrams ? QPT_UD : QPT_RC);
	pthread_mutex_unlock(&cm_lock);
	if (made == NULL)
		return fails(ENOMEM);
	*id = &made->id;
	return 0;
}

int rdma_destroy_id(struct rdma_cm_id *rdma_id) {
	if (rdma_id == NULL)
		return fails(EINVAL);
	struct id *id = (struct id *)rdma_id;
	if (rdma_id->event != NULL)
		rdma_ack_cm_event(rdma_id->event);
	pthread_mutex_lock(&cm_lock);
	drop_events(id);
	id_free(id);
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

int rdma_migrate_id(struct rdma_cm_id *rdma_id, struct rdma_event_channel *channel) {
	struct id *id = (struct id *)rdma_id;
	struct rdma_event_channel *own = channel == NULL ? rdma_create_event_channel() : NULL;
	if (channel == NULL && own == NULL)
		return -1;
	if (rdma_id->event != NULL)
		rdma_ack_cm_event(rdma_id->event);
	rdma_id->event = NULL;
	pthread_mutex_lock(&cm_lock);
	struct rdma_event_channel *before = id->own ? rdma_id->channel : NULL, *to = channel == NULL ? own : channel;
	int rc = move_to(id, (struct channel *)to);
	for (struct id *other = all; other != NULL; other = other->next)
		if (other->listener == id && rc == 0)
			rc = move_to(other, (struct channel *)to);
	id->own = own != NULL;
	pthread_mutex_unlock(&cm_lock);
	if (before != NULL)
		rdma_destroy_event_channel(before);
	return rc == 0 ? 0 : fails(rc);
}

// completed waits for the event of an operation, where the program has no channel to wait on.
int completed(struct rdma_cm_id *id, int rc) {
	if (rc != 0)
		return fails(rc);
	if (!((struct id *)id)->own)
		return 0;
	if (id->event != NULL)
		rdma_ack_cm_event(id->event);
	id->event = NULL;
	if (rdma_get_cm_event(id->channel, &id->event) != 0)
		return -1;
	if (id->event->event == RDMA_CM_EVENT_REJECTED)
		return fails(ECONNREFUSED);
	return id->event->status == 0 ? 0 : fails(id->event->status < 0 ? -id->event->status : id->event->status);
}

// ---- devices ----

// The contexts of all ids, opened when one needs them and never closed.
static struct ibv_context **contexts;
static struct ibv_pd *domain; // what an id has where its program makes none

static int open_devices(int *count) {
	static int n;
	if (contexts == NULL) {
		struct ibv_device **list = ibv_get_device_list(&n);
		if (list == NULL)
			return errno;
		contexts = calloc((size_t)n + 1, sizeof *contexts);
		int opened = 0;
		for (int i = 0; contexts != NULL && i < n; i++)
			if ((contexts[opened] = ibv_open_device(list[i])) != NULL)
				opened++;
		n = opened;
		ibv_free_device_list(list);
	}
	if (contexts == NULL)
		return ENOMEM;
	*count = n;
	return n == 0 ? ENODEV : 0;
}

struct ibv_context **rdma_get_devices(int *n) {
	int count = 0;
	pthread_mutex_lock(&cm_lock);
	int rc = open_devices(&count);
	struct ibv_context **list = rc == 0 ? calloc((size_t)count + 1, sizeof *list) : NULL;
	if (list != NULL)
		memcpy(list, contexts, (size_t)count * sizeof *list);
	pthread_mutex_unlock(&cm_lock);
	if (n != NULL)
		*n = list == NULL ? 0 : count;
	if (list == NULL)
		errno = rc == 0 ? ENOMEM : rc;
	return list;
}

void rdma_free_devices(struct ibv_context **list) { free(list); }

// Every address is that of the first device: all devices of a process have the same port.
int id_device(struct id *id) {
	int n, rc = id->id.verbs != NULL ? 0 : open_devices(&n);
	if (rc != 0 || id->id.verbs != NULL)
		return rc;
	if (domain == NULL && (domain = ibv_alloc_pd(contexts[0])) == NULL)
		return errno;
	struct rdma_ib_addr *a = &id->id.route.addr.addr.ibaddr;
	if (ibv_query_gid(contexts[0], 1, 0, &a->sgid) != 0)
		return errno;
	a->pkey = 0xffff;
	id->id.verbs = contexts[0];
	id->id.port_num = 1;
	id->id.pd = domain;
	return 0;
}

// ---- addresses and ports ----

static uint16_t *port_of(struct sockaddr_storage *a) {
	return a->ss_family == AF_INET6 ? &((struct sockaddr_in6 *)a)->sin6_port : &((struct sockaddr_in *)a)->sin_port;
}

uint16_t rdma_get_src_port(struct rdma_cm_id *id) { return *port_of(&id->route.addr.src_storage); }
uint16_t rdma_get_dst_port(struct rdma_cm_id *id) { return *port_of(&id->route.addr.dst_storage); }

static socklen_t length_of(const struct sockaddr *a) {
	return a->sa_family == AF_INET ? sizeof(struct sockaddr_in) : a->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : 0;
}

static int is_any(const struct sockaddr_storage *a) {
	return a->ss_family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&((struct sockaddr_in6 *)a)->sin6_addr)
					: ((struct sockaddr_in *)a)->sin_addr.s_addr == INADDR_ANY;
}

int takes(const struct id *listener, const struct sockaddr_storage *to) {
	const struct sockaddr_storage *at = &listener->id.route.addr.src_storage;
	if (is_any(at) || at->ss_family != to->ss_family)
		return is_any(at);
	return at->ss_family == AF_INET6 ? memcmp(&((struct sockaddr_in6 *)at)->sin6_addr, &((struct sockaddr_in6 *)to)->sin6_addr, 16) == 0
					 : ((struct sockaddr_in *)at)->sin_addr.s_addr == ((struct sockaddr_in *)to)->sin_addr.s_addr;
}

// is_here tells whether a socket of this machine can have the address.
static int is_here(const struct sockaddr_storage *address) {
	struct sockaddr_storage a = *address;
	*port_of(&a) = 0;
	int s = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0), rc = s < 0 ? errno : 0;
	if (rc == 0 && bind(s, (struct sockaddr *)&a, length_of((struct sockaddr *)&a)) != 0)
		rc = errno;
	if (s >= 0)
		close(s);
	return rc == 0;
}

int port_name(struct id *id, uint16_t port, struct sockaddr_un *name, socklen_t *length) {
	const char *fabric = getenv("GORUN_VERBS_FABRIC");
	*name = (struct sockaddr_un){.sun_family = AF_UNIX};
	int n = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "gorun-verbs/%u/%s/cm/%d/%u", geteuid(), fabric == NULL ? "" : fabric, id->id.ps, ntohs(port));
	if (n < 0 || n >= (int)sizeof name->sun_path - 1)
		return ENAMETOOLONG;
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
	return 0;
}

#define FIRST_FREE 32768 // the kernel's own, and so many
#define FREE 28232

int port_take(struct id *id, uint16_t wanted) {
	struct sockaddr_un name;
	socklen_t length;
	int rc = 0, s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (s < 0)
		return errno;
	for (uint32_t i = 0, from = (uint32_t)getpid() * 64; i < FREE; i++) {
		uint16_t port = wanted != 0 ? wanted : htons((uint16_t)(FIRST_FREE + (from + i) % FREE));
		rc = port_name(id, port, &name, &length);
		if (rc == 0 && bind(s, (struct sockaddr *)&name, length) != 0)
			rc = errno;
		if (rc == 0)
			*port_of(&id->id.route.addr.src_storage) = port;
		if (rc != EADDRINUSE || wanted != 0)
			break;
	}
	if (rc != 0)
		close(s);
	else
		id->socket = s;
	return rc;
}

static int bind_to(struct id *id, const struct sockaddr *address) {
	socklen_t length = address == NULL ? 0 : length_of(address);
	struct sockaddr_storage *to = &id->id.route.addr.src_storage;
	if (length == 0)
		return address == NULL ? EINVAL : EAFNOSUPPORT;
	if (id->state != IDLE || id->socket >= 0)
		return EINVAL;
	*to = (struct sockaddr_storage){0};
	memcpy(to, address, length);
	if (!is_here(to))
		return EADDRNOTAVAIL;
	int rc = is_any(to) ? 0 : id_device(id);
	return rc == 0 ? port_take(id, *port_of(to)) : rc;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *address) {
	pthread_mutex_lock(&cm_lock);
	int rc = bind_to((struct id *)id, address);
	pthread_mutex_unlock(&cm_lock);
	return rc == 0 ? 0 : fails(rc);
}

// ---- other hosts ----

// outside gives the address by which other hosts reach this one, where they do: the device's GIDs have it.
static int outside(struct in_addr *address) {
	const char *key = getenv("GORUN_VERBS_KEY");
	union ibv_gid gid;
	int n;
	if (key == NULL || *key == 0 || open_devices(&n) != 0 || ibv_query_gid(contexts[0], 1, 0, &gid) != 0)
		return 0;
	memcpy(address, gid.raw + 4, sizeof *address);
	return 1;
}

int listen_outside(struct id *id) {
	const struct sockaddr_storage *at = &id->id.route.addr.src_storage;
	struct sockaddr_un name;
	socklen_t length;
	struct in_addr here;
	if (!outside(&here) || !(is_any(at) || (at->ss_family == AF_INET && ((struct sockaddr_in *)at)->sin_addr.s_addr == here.s_addr)))
		return 0;
	int rc = port_name(id, rdma_get_src_port(&id->id), &name, &length);
	if (rc == 0)
		rc = gorun_verbs_listen(name.sun_path + 1, sizeof(struct message));
	id->far = rc == 0;
	return rc;
}

void end_outside(struct id *id) {
	struct sockaddr_un name;
	socklen_t length;
	if (id->far && id->state == LISTENING && port_name(id, rdma_get_src_port(&id->id), &name, &length) == 0)
		gorun_verbs_forget(name.sun_path + 1);
}

// away says that an address is out of reach.
static int away(struct id *id, const struct sockaddr *to) {
	char text[INET6_ADDRSTRLEN] = "";
	const void *host = to->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)to)->sin_addr : &((const struct sockaddr_in6 *)to)->sin6_addr;
	fprintf(stderr, "gorun-verbs: %s is no address of this machine: programs on several hosts reach each other by IPv4, with gorun-verbs --key\n",
		inet_ntop(to->sa_family, host, text, sizeof text));
	return raise_event(id, RDMA_CM_EVENT_ADDR_ERROR, -EHOSTUNREACH, NULL);
}

// resolve takes an address of this machine, or where there is a network one of IPv4, which is tried when it is connected to.
static int resolve(struct id *id, const struct sockaddr *from, const struct sockaddr *to) {
	socklen_t length = to == NULL ? 0 : length_of(to);
	struct rdma_addr *a = &id->id.route.addr;
	if (length == 0 || (from != NULL && length_of(from) == 0))
		return to == NULL ? EINVAL : EAFNOSUPPORT;
	if (id->state != IDLE)
		return EINVAL;
	int rc = from == NULL || id->socket >= 0 ? 0 : bind_to(id, from);
	if (rc != 0)
		return rc;
	a->dst_storage = (struct sockaddr_storage){0};
	memcpy(&a->dst_storage, to, length);
	struct sockaddr_storage route = a->dst_storage; // from where
	if (!is_here(&a->dst_storage)) {
		if (to->sa_family != AF_INET || !outside(&((struct sockaddr_in *)&route)->sin_addr))
			return away(id, to);
		id->far = 1;
	}
	if (id->socket < 0 || is_any(&a->src_storage)) {
		uint16_t port = id->socket < 0 ? 0 : *port_of(&a->src_storage);
		a->src_storage = route;
		*port_of(&a->src_storage) = port;
	}
	rc = id_device(id);
	if (rc == 0 && id->socket < 0)
		rc = port_take(id, 0);
	return rc == 0 ? raise_event(id, RDMA_CM_EVENT_ADDR_RESOLVED, 0, NULL) : rc;
}

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to, int timeout_ms) {
	(void)timeout_ms; // nothing takes time here
	pthread_mutex_lock(&cm_lock);
	int rc = resolve((struct id *)id, from, to);
	pthread_mutex_unlock(&cm_lock);
	return completed(id, rc);
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
	(void)timeout_ms;
	pthread_mutex_lock(&cm_lock);
	int known = ((struct id *)id)->state == IDLE && id->verbs != NULL && id->route.addr.dst_addr.sa_family != 0;
	int rc = known ? raise_event((struct id *)id, RDMA_CM_EVENT_ROUTE_RESOLVED, 0, NULL) : EINVAL;
	pthread_mutex_unlock(&cm_lock);
	return completed(id, rc);
}

int rdma_set_option(struct rdma_cm_id *rdma_id, int level, int option, void *value, size_t length) {
	struct id *id = (struct id *)rdma_id;
	if (level != RDMA_OPTION_ID)
		return fails(ENOSYS); // RDMA_OPTION_IB: there are no path records
	size_t size = option == RDMA_OPTION_ID_TOS || option == RDMA_OPTION_ID_ACK_TIMEOUT ? 1 : sizeof(int);
	if (value == NULL || length != size || option < 0 || option > RDMA_OPTION_ID_ACK_TIMEOUT)
		return fails(option < 0 || option > RDMA_OPTION_ID_ACK_TIMEOUT ? ENOSYS : EINVAL);
	if (option == RDMA_OPTION_ID_TOS)
		id->tos = *(uint8_t *)value;
	if (option == RDMA_OPTION_ID_ACK_TIMEOUT)
		id->ack_timeout = *(uint8_t *)value;
	return 0; // REUSEADDR, AFONLY: a port is one listener's, for every address of it
}
