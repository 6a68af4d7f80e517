// What the files of libibverbs.so.1 share: its objects, and how it calls the software device.
#ifndef GORUN_DROPIN_SHIM_H
#define GORUN_DROPIN_SHIM_H

#include "../../verbs/abi.h"
#include "../library/calls.h"
#include "../../../internal/cgoloader/loader.h"

#include <errno.h>

#pragma GCC visibility push(hidden) // what other files define is exported

// The device's functions, once load() has found them.
extern struct gd_calls go;
int load(void); // 0 or an errno, and a line on stderr

// GO(open, ...) is the device's gd_open, and in a forked child, which has none of the device's threads, an error.
#define GO(name, ...) (loader_forked ? forked() : go.name(__VA_ARGS__))
int forked(void); // says so once; ENODEV

// Objects begin as libibverbs has them and are never given back to malloc, so that one that is used after its end, or is none,
// is known. handle is 0 of one that has ended.
struct context {
	struct verbs_context v;
	gd_handle handle;
	int watched; // for asynchronous events
};
struct domain { struct ibv_pd pd; gd_handle handle; };
struct region { struct ibv_mr mr; gd_handle handle; };
struct window { struct ibv_mw mw; gd_handle handle; };
struct target { struct ibv_context *context; struct ibv_pd *pd; uint32_t number; gd_handle handle; };
struct xrcd { struct ibv_xrcd xrcd; gd_handle handle; };
struct channel { struct ibv_comp_channel channel; gd_handle handle; };
struct queue {
	struct ibv_cq_ex cq;
	void *later[8]; // that newer releases have at the end of ibv_cq_ex
	gd_handle handle;
	const uint32_t *words[4]; // all 0: nothing to poll
	uint32_t events, async_events; // handed out
	pthread_mutex_t polling; // from start_poll to end_poll
	struct gd_wc wc;
};
struct shared { struct ibv_srq srq; gd_handle handle; uint32_t events, number; };
struct pair {
	struct ibv_qp_ex qp;
	void *later[8];
	gd_handle handle;
	uint32_t events;
	int has_ex, sig_all;
	struct ibv_ah_attr route; // as it was set last
	pthread_mutex_t building; // from wr_start to wr_complete or wr_abort
	struct gd_send *list;
	int n, room, failed;
	char *bytes; // inline data and scatter lists of the requests in list
	size_t used, size;
};

// A pool has the objects of one kind.
struct pool {
	size_t size, handle; // of an object, and where its handle lies
	char *chunks[24]; // the n-th has 64 << n objects
	unsigned count; // ever made
	unsigned *resting, first, last; // ended, a ring; the oldest is used again when many are there
	unsigned ring;
};
extern struct pool contexts, domains, regions, windows, targets, xrcds, channels, queues, shareds, pairs;

void *pool_make(struct pool *p); // zeroed; NULL: no memory
void pool_end(struct pool *p, void *object); // its handle becomes 0
int pool_has(struct pool *p, const void *object); // whether it is one that lives
void pool_each(struct pool *p, void (*f)(void *object, void *arg), void *arg); // those that live

// LIVE(pair, qp) is the object behind libibverbs' pointer, NULL if it is none that lives.
#define LIVE(kind, pointer) ((struct kind *)(pool_has(&kind##s, pointer) ? (void *)(pointer) : NULL))
struct context *context_of(struct ibv_context *context);

// none gives NULL and sets errno.
void *none(int error);
// back gives what functions of libibverbs do that return 0 or an errno, which they also set.
int back(int error);

void route_of(const struct ibv_ah_attr *attr, struct gd_route *to);
void await_events(pthread_mutex_t *mutex, pthread_cond_t *cond, const uint32_t *acknowledged, const uint32_t *given);

// data.c
int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc);
int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
void set_up_polling(struct queue *q);
void set_up_building(struct pair *p);

// control.c: functions that programs call through a context
struct ibv_mw *alloc_mw(struct ibv_pd *pd, int type);
int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
int dealloc_mw(struct ibv_mw *mw);
int req_notify_cq(struct ibv_cq *cq, int solicited);
int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *list, uint32_t n);
struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr);
struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr);
struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr);
struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr);
int get_srq_num(struct ibv_srq *srq, uint32_t *num);
struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr);
int close_xrcd(struct ibv_xrcd *xrcd);
void end_objects_of(struct ibv_context *context);
extern pthread_mutex_t taking_events;
#pragma GCC visibility pop

#endif
