// Devices, ports, events: what libibverbs asks a device about.
#include "shim.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define DEVICES 32

// The devices that were ever listed, each once: a program may keep a pointer after it has freed the list.
static struct device {
	struct ibv_device device;
	uint64_t guid; // in the network's order
} *devices[DEVICES];

struct ibv_device **ibv_get_device_list(int *n) {
	static pthread_mutex_t listing = PTHREAD_MUTEX_INITIALIZER;
	struct gd_device found[DEVICES];
	int count = 0, rc = load();
	memset(found, 0, sizeof found);
	if (n != NULL)
		*n = 0;
	if (rc == 0)
		rc = GO(devices, found, DEVICES, &count);
	struct ibv_device **list = rc == 0 ? calloc((size_t)count + 1, sizeof *list) : NULL;
	if (list == NULL)
		return none(rc == 0 ? ENOMEM : rc);
	pthread_mutex_lock(&listing);
	for (int i = 0; i < count; i++) {
		if (devices[i] == NULL && (devices[i] = calloc(1, sizeof *devices[i])) != NULL) {
			struct ibv_device *d = &devices[i]->device;
			d->node_type = 1; // a channel adapter
			memcpy(d->name, found[i].name, sizeof d->name);
			snprintf(d->dev_name, sizeof d->dev_name, "uverbs%d", i);
			snprintf(d->dev_path, sizeof d->dev_path, "/sys/class/infiniband_verbs/uverbs%d", i);
			snprintf(d->ibdev_path, sizeof d->ibdev_path, "/sys/class/infiniband/%s", d->name);
			devices[i]->guid = htobe64(found[i].guid);
		}
		list[i] = devices[i] == NULL ? NULL : &devices[i]->device;
	}
	pthread_mutex_unlock(&listing);
	if (n != NULL)
		*n = count;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

static int device_index(const struct ibv_device *device) {
	for (int i = 0; i < DEVICES; i++)
		if (device != NULL && devices[i] != NULL && &devices[i]->device == device)
			return i;
	return -1;
}

const char *ibv_get_device_name(struct ibv_device *device) { return device == NULL ? NULL : device->name; }
int ibv_get_device_index(struct ibv_device *device) { return device_index(device); }
uint64_t ibv_get_device_guid(struct ibv_device *device) {
	int i = device_index(device);
	return i < 0 ? 0 : devices[i]->guid;
}

// ---- contexts ----

static int query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr, size_t size) {
	struct context *c = context_of(context);
	struct gd_port p;
	if (c == NULL)
		return back(EINVAL);
	int rc = GO(query_port, c->handle, port, &p);
	if (rc != 0)
		return back(rc);
	struct ibv_port_attr a = {
		.state = p.state, .max_mtu = p.max_mtu, .active_mtu = p.active_mtu, .gid_tbl_len = p.gids, .max_msg_sz = p.max_msg,
		.pkey_tbl_len = 1, .lid = p.lid, .sm_lid = p.lid != 0, .max_vl_num = 1,
		.active_width = 2, .active_speed = 32, .phys_state = 5, .link_layer = p.ethernet ? 2 : 1, // 4X EDR, up, Ethernet or InfiniBand
	};
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

// Programs of before 2012 have the beginning of ibv_port_attr, up to flags.
int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr) {
	return query_port(context, port, (struct ibv_port_attr *)attr, offsetof(struct ibv_port_attr, port_cap_flags2));
}

static int limits(struct context *c, struct ibv_device_attr *attr, struct gd_limits *l) {
	memset(l, 0, sizeof *l);
	int rc = GO(query_device, c->handle, l);
	if (rc != 0)
		return rc;
	*attr = (struct ibv_device_attr){
		.fw_ver = "gorun", .node_guid = htobe64(l->guid), .sys_image_guid = htobe64(l->guid), .max_mr_size = l->max_mr_size, .page_size_cap = 0xfffff000,
		.max_qp = l->max_qp, .max_qp_wr = l->max_qp_wr, .max_sge = l->max_sge, .max_sge_rd = l->max_sge, .max_cq = l->max_cq, .max_cqe = l->max_cqe,
		.max_mr = l->max_mr, .max_pd = l->max_pd, .max_qp_rd_atom = l->max_rd_atom, .max_res_rd_atom = l->max_rd_atom, .max_qp_init_rd_atom = l->max_init_rd_atom,
		.atomic_cap = 2, // for all processes of the machine
		.max_mw = l->max_mw, .max_ah = l->max_ah, .max_srq = l->max_srq, .max_srq_wr = l->max_srq_wr, .max_srq_sge = l->max_srq_sge,
		.max_pkeys = 1, .phys_port_cnt = 1,
		// RC_RNR_NAK_GEN, N_NOTIFY_CQ, CURR_QP_STATE_MOD, MEM_WINDOW, XRC, MEM_MGT_EXTENSIONS, MEM_WINDOW_TYPE_2B
		.device_cap_flags = 1 << 12 | 1 << 14 | 1 << 7 | 1 << 17 | 1 << 20 | 1 << 21 | 1 << 24 | (l->srq_resize ? 1 << 13 : 0),
	};
	return 0;
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
	struct context *c = context_of(context);
	struct gd_limits l;
	return back(c == NULL ? EINVAL : limits(c, attr, &l));
}

static int query_device_ex(struct ibv_context *context, const void *input, struct ibv_device_attr_ex *attr, size_t size) {
	(void)input;
	struct context *c = context_of(context);
	struct ibv_device_attr_ex a;
	struct gd_limits l;
	if (c == NULL)
		return back(EINVAL);
	memset(&a, 0, sizeof a);
	int rc = limits(c, &a.orig_attr, &l);
	if (rc != 0)
		return back(rc);
	a.phys_port_cnt_ex = 1;
	a.device_cap_flags_ex = a.orig_attr.device_cap_flags;
	if (l.clock_hz != 0) {
		a.completion_timestamp_mask = ~(uint64_t)0;
		a.hca_core_clock = l.clock_hz / 1000;
	}
	if (l.odp) {
		a.odp_caps.general_caps = 3; // on demand, and all of the address space
		a.odp_caps.per_transport_caps.rc_odp_caps = 0x3f; // SEND, RECV, WRITE, READ, ATOMIC, SRQ_RECV
		a.odp_caps.per_transport_caps.uc_odp_caps = 0x27;
		a.odp_caps.per_transport_caps.ud_odp_caps = 0x23;
		a.xrc_odp_caps = 0x3f;
	}
	memset(attr, 0, size);
	memcpy(attr, &a, size < sizeof a ? size : sizeof a);
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
	int index = device_index(device);
	if (index < 0)
		return none(ENODEV);
	struct context *c = pool_make(&contexts);
	int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	int rc = c == NULL ? ENOMEM : fd < 0 ? errno : 0;
	gd_handle handle = 0;
	if (rc == 0)
		rc = GO(open, index, fd, &handle);
	if (rc != 0) {
		if (fd >= 0)
			close(fd);
		if (c != NULL)
			pool_end(&contexts, c);
		return none(rc);
	}
	// What is NULL here is not supported, and libibverbs' inline functions say so.
	c->v = (struct verbs_context){
		.query_port = query_port, .query_device_ex = query_device_ex, .advise_mr = advise_mr, .create_cq_ex = create_cq_ex, .create_qp_ex = create_qp_ex,
		.open_qp = open_qp, .create_srq_ex = create_srq_ex, .get_srq_num = get_srq_num, .open_xrcd = open_xrcd, .close_xrcd = close_xrcd,
		.sz = sizeof c->v,
		.context = {
			.device = device, .cmd_fd = -1, .async_fd = fd, .num_comp_vectors = 1, .abi_compat = __VERBS_ABI_IS_EXTENDED,
			.ops = {.alloc_mw = alloc_mw, .bind_mw = bind_mw, .dealloc_mw = dealloc_mw, .poll_cq = poll_cq, .req_notify_cq = req_notify_cq,
				.post_srq_recv = post_srq_recv, .post_send = post_send, .post_recv = post_recv},
		},
	};
	pthread_mutex_init(&c->v.context.mutex, NULL);
	c->handle = handle;
	return &c->v.context;
}

int ibv_close_device(struct ibv_context *context) {
	struct context *c = context_of(context);
	if (c == NULL)
		return back(EINVAL);
	if (c->watched)
		GO(watch, c->handle, 0);
	c->watched = 0;
	int rc = GO(close, c->handle);
	if (rc != 0)
		return back(rc);
	end_objects_of(context);
	close(context->async_fd);
	pool_end(&contexts, c);
	return 0;
}

// ---- tables of the port ----

int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
	struct context *c = context_of(context);
	int rc = c == NULL ? EINVAL : GO(query_gid, c->handle, port, index, gid->raw);
	return back(rc) == 0 ? 0 : -1;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry, uint32_t flags, size_t size) {
	struct ibv_gid_entry e = {.gid_index = index, .port_num = port}; // of type InfiniBand
	if (flags != 0 || port > 255)
		return back(EINVAL);
	if (ibv_query_gid(context, (uint8_t)port, (int)index, &e.gid) != 0)
		return errno;
	memset(entry, 0, size);
	memcpy(entry, &e, size < sizeof e ? size : sizeof e);
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max, uint32_t flags, size_t size) {
	size_t n = 0;
	if (flags != 0)
		return -back(EINVAL);
	while (n < max && _ibv_query_gid_ex(context, 1, (uint32_t)n, (struct ibv_gid_entry *)((char *)entries + n * size), 0, size) == 0)
		n++;
	return (ssize_t)n;
}

int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned index, int *type) {
	union ibv_gid gid;
	*type = 0; // InfiniBand
	return ibv_query_gid(context, port, (int)index, &gid);
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey) {
	if (context_of(context) == NULL || port != 1 || index != 0) {
		errno = EINVAL;
		return -1;
	}
	*pkey = 0xffff;
	return 0;
}

int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, uint16_t pkey) {
	return context_of(context) != NULL && port == 1 && pkey == 0xffff ? 0 : -1;
}

// ---- asynchronous events ----

// An event names an object by its cookie, which is its address here.
static uint32_t *async_count(const struct ibv_async_event *e, pthread_mutex_t **mutex, pthread_cond_t **cond, uint32_t **acknowledged) {
	void *object = e->element.qp;
	struct pair *p;
	struct queue *q;
	struct shared *s;
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		if ((q = LIVE(queue, object)) == NULL)
			return NULL;
		*mutex = &q->cq.mutex, *cond = &q->cq.cond, *acknowledged = &q->cq.async_events_completed;
		return &q->async_events;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		if ((s = LIVE(shared, object)) == NULL)
			return NULL;
		*mutex = &s->srq.mutex, *cond = &s->srq.cond, *acknowledged = &s->srq.events_completed;
		return &s->events;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		if ((p = LIVE(pair, object)) == NULL)
			return NULL;
		*mutex = &p->qp.qp_base.mutex, *cond = &p->qp.qp_base.cond, *acknowledged = &p->qp.qp_base.events_completed;
		return &p->events;
	}
	return NULL;
}

// taking_events has an event counted before its object can go: a destroy that comes later waits for its acknowledgement, and
// one that came before has taken the event out.
pthread_mutex_t taking_events = PTHREAD_MUTEX_INITIALIZER;

// take_event takes the next event and counts it.
static int take_event(struct context *c, struct ibv_async_event *event) {
	struct gd_event e;
	pthread_mutex_lock(&taking_events);
	int rc = GO(next_event, c->handle, &e);
	if (rc == 0) {
		event->event_type = e.type;
		event->element.qp = (struct ibv_qp *)(uintptr_t)e.cookie;
		if (e.cookie == 0)
			event->element.port_num = e.port;
		pthread_mutex_t *mutex;
		pthread_cond_t *cond;
		uint32_t *acknowledged, *given = async_count(event, &mutex, &cond, &acknowledged);
		if (given != NULL) {
			pthread_mutex_lock(mutex);
			++*given;
			pthread_mutex_unlock(mutex);
		}
	}
	pthread_mutex_unlock(&taking_events);
	return rc;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
	struct context *c = context_of(context);
	int rc;
	if (c == NULL) {
		errno = EINVAL;
		return -1;
	}
	do {
		uint64_t count;
		if ((rc = GO(watch, c->handle, 1)) == 0) {
			rc = read(context->async_fd, &count, sizeof count) == sizeof count ? 0 : errno;
			if (rc == EAGAIN && !c->watched)
				c->watched = 1; // the program waits for the descriptor: the device looks for events from now on
			else
				GO(watch, c->handle, 0);
		}
		if (rc == 0)
			rc = take_event(c, event); // EAGAIN: its object is gone
		else
			break;
	} while (rc == EAGAIN);
	if (rc != 0) {
		errno = rc;
		return -1;
	}
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) {
	pthread_mutex_t *mutex;
	pthread_cond_t *cond;
	uint32_t *acknowledged;
	if (async_count(event, &mutex, &cond, &acknowledged) == NULL)
		return;
	pthread_mutex_lock(mutex);
	++*acknowledged;
	pthread_cond_signal(cond);
	pthread_mutex_unlock(mutex);
}

// ---- for librdmacm.so.1, between hosts ----

int gorun_verbs_listen(char *socket, int size) { return GO(listen, socket, size); }
int gorun_verbs_forget(char *socket) { return loader_forked ? 0 : go.forget(socket); }
int gorun_verbs_call(char *socket, uint8_t *ip, int fd, int size) { return GO(call, socket, ip, fd, size); }
