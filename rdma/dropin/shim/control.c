// Objects: made, changed and destroyed.
#include "shim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

// destroyed ends an object on both sides.
static int destroyed(struct pool *pool, void *object, gd_handle handle) {
	int rc = GO(destroy, handle);
	if (rc == 0)
		pool_end(pool, object);
	return back(rc);
}

// What made() tests of an object that is to be: its parts live, and there is memory.
#define MAKE(kind, object, valid)                                   \
	struct kind *object = NULL;                                 \
	if (!(valid))                                               \
		return none(EINVAL);                                \
	if ((object = pool_make(&kind##s)) == NULL)                 \
		return none(ENOMEM);
#define MADE(kind, object, call)                                    \
	do {                                                        \
		int rc_ = (call);                                   \
		if (rc_ != 0) {                                     \
			pool_end(&kind##s, object);                 \
			return none(rc_);                           \
		}                                                   \
	} while (0)

// ---- domains and memory ----

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
	struct context *c = context_of(context);
	MAKE(domain, d, c != NULL)
	gd_handle h;
	MADE(domain, d, GO(alloc_pd, c->handle, &h));
	d->pd.context = context;
	d->handle = h;
	return &d->pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
	struct domain *d = LIVE(domain, pd);
	return d == NULL ? back(EINVAL) : destroyed(&domains, d, d->handle);
}

#define OPTIONAL_ACCESS 0x3ff00000u // what a device need not know: IBV_ACCESS_OPTIONAL_RANGE
#define HUGETLB 1u << 7             // a hint

static struct ibv_mr *reg_mr(struct ibv_pd *pd, struct gd_mr *mr, unsigned access) {
	struct domain *d = LIVE(domain, pd);
	MAKE(region, r, d != NULL)
	mr->access = access & ~OPTIONAL_ACCESS & ~(HUGETLB);
	MADE(region, r, GO(reg_mr, d->handle, mr));
	r->mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = mr->addr, .length = mr->length, .lkey = mr->lkey, .rkey = mr->rkey};
	r->handle = mr->handle;
	return &r->mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
	return reg_mr(pd, &(struct gd_mr){.kind = GD_MR_PLAIN, .addr = addr, .length = length}, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access) {
	int kind = iova == (uintptr_t)addr ? GD_MR_PLAIN : GD_MR_IOVA;
	return reg_mr(pd, &(struct gd_mr){.kind = kind, .addr = addr, .length = length, .iova = iova}, access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access) {
	return ibv_reg_mr_iova2(pd, addr, length, iova, (unsigned)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
	return reg_mr(pd, &(struct gd_mr){.kind = GD_MR_DMABUF, .offset = offset, .length = length, .iova = iova, .fd = fd}, (unsigned)access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access) {
	struct region *r = LIVE(region, mr);
	struct domain *d = LIVE(domain, pd);
	if (r == NULL || ((flags & 2) && d == NULL)) {
		errno = EINVAL;
		return -1; // IBV_REREG_MR_ERR_INPUT: the region is as it was
	}
	struct gd_mr to = {.addr = addr, .length = length, .access = (unsigned)access & ~OPTIONAL_ACCESS & ~(HUGETLB)};
	int rc = GO(rereg_mr, r->handle, flags, d == NULL ? 0 : d->handle, &to);
	mr->lkey = to.lkey;
	mr->rkey = to.rkey;
	if (rc != 0) {
		errno = rc;
		return rc == EINVAL || rc == EBUSY || rc == EOPNOTSUPP ? -1 : IBV_REREG_MR_ERR_CMD;
	}
	if (flags & 1) {
		mr->addr = addr;
		mr->length = length;
	}
	if (flags & 2)
		mr->pd = pd;
	return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
	struct region *r = LIVE(region, mr);
	return r == NULL ? back(EINVAL) : destroyed(&regions, r, r->handle);
}

int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *list, uint32_t n) {
	struct domain *d = LIVE(domain, pd);
	return d == NULL ? EINVAL : GO(advise_mr, d->handle, advice, flags, list, n);
}

struct ibv_mw *alloc_mw(struct ibv_pd *pd, int type) {
	struct domain *d = LIVE(domain, pd);
	MAKE(window, w, d != NULL)
	gd_handle h;
	MADE(window, w, GO(alloc_mw, d->handle, type, &h, &w->mw.rkey));
	w->mw.context = pd->context;
	w->mw.pd = pd;
	w->mw.type = type;
	w->handle = h;
	return &w->mw;
}

int dealloc_mw(struct ibv_mw *mw) {
	struct window *w = LIVE(window, mw);
	return w == NULL ? back(EINVAL) : destroyed(&windows, w, w->handle);
}

int bind_mw(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind) {
	struct pair *p = LIVE(pair, qp);
	struct window *w = LIVE(window, mw);
	const struct ibv_mw_bind_info *info = &bind->bind_info;
	struct region *r = LIVE(region, info->mr);
	if (p == NULL || w == NULL || (info->mr != NULL && r == NULL))
		return back(EINVAL);
	struct gd_bind to = {.mr = r == NULL ? 0 : r->handle, .addr = info->addr, .length = info->length, .access = info->mw_access_flags};
	return back(GO(bind_mw, p->handle, w->handle, bind->wr_id, bind->send_flags, &to, &mw->rkey));
}

// ---- completion queues and channels ----

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
	struct context *c = context_of(context);
	MAKE(channel, ch, c != NULL)
	int fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	gd_handle h;
	int rc = fd < 0 ? errno : GO(create_channel, c->handle, fd, &h);
	if (rc != 0 && fd >= 0)
		close(fd);
	MADE(channel, ch, rc);
	ch->channel = (struct ibv_comp_channel){.context = context, .fd = fd};
	ch->handle = h;
	return &ch->channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
	struct channel *ch = LIVE(channel, channel);
	if (ch == NULL)
		return back(EINVAL);
	int fd = ch->channel.fd, rc = destroyed(&channels, ch, ch->handle);
	if (rc == 0)
		close(fd);
	return rc;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
	struct channel *ch = LIVE(channel, channel);
	int rc = ch == NULL ? EINVAL : EAGAIN;
	uint64_t count, cookie = 0;
	while (rc == EAGAIN) { // an event whose queue is gone is passed over
		if (read(channel->fd, &count, sizeof count) != sizeof count)
			return -1;
		rc = GO(next_cq_event, ch->handle, &cookie);
	}
	if (rc != 0) {
		errno = rc;
		return -1;
	}
	struct queue *q = (struct queue *)(uintptr_t)cookie;
	pthread_mutex_lock(&q->cq.mutex);
	q->events++;
	pthread_mutex_unlock(&q->cq.mutex);
	*cq = (struct ibv_cq *)q;
	*cq_context = q->cq.cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) {
	struct queue *q = LIVE(queue, cq);
	if (q == NULL)
		return;
	pthread_mutex_lock(&q->cq.mutex);
	q->cq.comp_events_completed += n;
	pthread_cond_signal(&q->cq.cond);
	pthread_mutex_unlock(&q->cq.mutex);
}

static struct queue *create_cq(struct ibv_context *context, struct gd_cq *init, void *cq_context, struct ibv_comp_channel *channel) {
	struct context *c = context_of(context);
	struct channel *ch = LIVE(channel, channel);
	MAKE(queue, q, c != NULL && (channel == NULL || ch != NULL) && init->cqe > 0)
	init->channel = ch == NULL ? 0 : ch->handle;
	init->cookie = (uintptr_t)q;
	MADE(queue, q, GO(create_cq, c->handle, init));
	q->cq.context = context;
	q->cq.channel = channel;
	q->cq.cq_context = cq_context;
	q->cq.cqe = init->cqe;
	pthread_mutex_init(&q->cq.mutex, NULL);
	pthread_cond_init(&q->cq.cond, NULL);
	memcpy(q->words, init->words, sizeof q->words);
	set_up_polling(q);
	q->handle = init->handle;
	return q;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector) {
	if (vector != 0)
		return none(EINVAL);
	return (struct ibv_cq *)create_cq(context, &(struct gd_cq){.cqe = cqe}, cq_context, channel);
}

#define WC_KNOWN 0x1ffu // the standard fields, the completion's time and the wall clock's bit before it
#define WC_TIMESTAMP 0x80u

struct ibv_cq_ex *create_cq_ex(struct ibv_context *context, struct ibv_cq_init_attr_ex *attr) {
	int flags = attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? (int)attr->flags : 0;
	if ((attr->comp_mask & ~(uint32_t)IBV_CQ_INIT_ATTR_MASK_FLAGS) || (attr->wc_flags & ~(uint64_t)(0x7f | WC_TIMESTAMP)))
		return none(EOPNOTSUPP);
	struct gd_cq init = {.cqe = attr->cqe > 0x7fffffff ? -1 : (int)attr->cqe, .timestamps = (attr->wc_flags & WC_TIMESTAMP) != 0,
		.ignore_overrun = (flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0};
	if (attr->comp_vector != 0)
		return none(EINVAL);
	return (struct ibv_cq_ex *)create_cq(context, &init, attr->cq_context, attr->channel);
}

int ibv_resize_cq(struct ibv_cq *cq, int cqe) {
	struct queue *q = LIVE(queue, cq);
	int rc = q == NULL ? EINVAL : GO(resize_cq, q->handle, cqe);
	if (rc == 0)
		q->cq.cqe = cqe;
	return back(rc);
}

int req_notify_cq(struct ibv_cq *cq, int solicited) {
	struct queue *q = LIVE(queue, cq);
	return back(q == NULL ? EINVAL : GO(req_notify, q->handle, solicited));
}

int ibv_destroy_cq(struct ibv_cq *cq) {
	static const uint32_t busy = 1;
	struct queue *q = LIVE(queue, cq);
	if (q == NULL)
		return back(EINVAL);
	const uint32_t *words[4];
	memcpy(words, q->words, sizeof words);
	q->words[0] = &busy; // the device's words go with the queue
	for (int i = 1; i < 4; i++)
		q->words[i] = &busy;
	pthread_mutex_lock(&taking_events);
	int rc = GO(destroy, q->handle);
	pthread_mutex_unlock(&taking_events);
	if (rc != 0) {
		memcpy(q->words, words, sizeof words);
		return back(rc);
	}
	await_events(&q->cq.mutex, &q->cq.cond, &q->cq.comp_events_completed, &q->events);
	await_events(&q->cq.mutex, &q->cq.cond, &q->cq.async_events_completed, &q->async_events);
	pool_end(&queues, q);
	return 0;
}

// ---- shared receive queues, XRC domains ----

static struct ibv_srq *create_srq(struct ibv_pd *pd, struct gd_srq *init, struct ibv_srq_attr *attr, void *srq_context) {
	struct domain *d = LIVE(domain, pd);
	MAKE(shared, s, d != NULL)
	init->max_wr = attr->max_wr;
	init->max_sge = attr->max_sge;
	init->limit = attr->srq_limit;
	init->cookie = (uintptr_t)s;
	MADE(shared, s, GO(create_srq, d->handle, init));
	attr->max_wr = init->max_wr;
	attr->max_sge = init->max_sge;
	s->srq.context = pd->context;
	s->srq.srq_context = srq_context;
	s->srq.pd = pd;
	pthread_mutex_init(&s->srq.mutex, NULL);
	pthread_cond_init(&s->srq.cond, NULL);
	s->number = init->num;
	s->handle = init->handle;
	return &s->srq;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
	return create_srq(pd, &(struct gd_srq){.xrc = 0}, &attr->attr, attr->srq_context);
}

struct ibv_srq *create_srq_ex(struct ibv_context *context, struct ibv_srq_init_attr_ex *attr) {
	int type = attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE ? attr->srq_type : 0;
	struct gd_srq init = {.xrc = type == IBV_SRQT_XRC};
	(void)context;
	if (type > IBV_SRQT_XRC)
		return none(EOPNOTSUPP);
	if (init.xrc) {
		struct xrcd *x = LIVE(xrcd, attr->xrcd);
		struct queue *q = LIVE(queue, attr->cq);
		if (x == NULL || q == NULL)
			return none(EINVAL);
		init.xrcd = x->handle;
		init.cq = q->handle;
	}
	return create_srq(attr->pd, &init, &attr->attr, attr->srq_context);
}

int get_srq_num(struct ibv_srq *srq, uint32_t *num) {
	struct shared *s = LIVE(shared, srq);
	if (s == NULL)
		return EINVAL;
	*num = s->number;
	return 0;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) {
	struct shared *s = LIVE(shared, srq);
	return back(s == NULL ? EINVAL : GO(modify_srq, s->handle, attr->max_wr, attr->srq_limit, mask));
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) {
	struct shared *s = LIVE(shared, srq);
	struct gd_srq a;
	int rc = s == NULL ? EINVAL : GO(query_srq, s->handle, &a);
	if (rc == 0)
		*attr = (struct ibv_srq_attr){.max_wr = a.max_wr, .max_sge = a.max_sge, .srq_limit = a.limit};
	return back(rc);
}

int ibv_destroy_srq(struct ibv_srq *srq) {
	struct shared *s = LIVE(shared, srq);
	pthread_mutex_lock(&taking_events);
	int rc = s == NULL ? EINVAL : GO(destroy, s->handle);
	pthread_mutex_unlock(&taking_events);
	if (rc != 0)
		return back(rc);
	await_events(&srq->mutex, &srq->cond, &srq->events_completed, &s->events);
	pool_end(&shareds, s);
	return 0;
}

struct ibv_xrcd *open_xrcd(struct ibv_context *context, struct ibv_xrcd_init_attr *attr) {
	const uint32_t needed = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
	struct context *c = context_of(context);
	MAKE(xrcd, x, c != NULL && attr->comp_mask == needed)
	gd_handle h;
	MADE(xrcd, x, GO(open_xrcd, c->handle, attr->fd, attr->oflags, &h));
	x->xrcd.context = context;
	x->handle = h;
	return &x->xrcd;
}

int close_xrcd(struct ibv_xrcd *xrcd) {
	struct xrcd *x = LIVE(xrcd, xrcd);
	return x == NULL ? back(EINVAL) : destroyed(&xrcds, x, x->handle);
}

// ---- queue pairs ----

#define SEND_OPS 0x3ffu // all but TSO and what came later
#define LEAST_INLINE 44u // cards give more than is asked for, and programs rely on it: rdma_xclient asks for none and sends 16

// handle_of is the handle of an object that may be left out: 0 then, and ~0 for one that does not live.
#define handle_of(kind, pointer) ((pointer) == NULL ? 0 : LIVE(kind, pointer) == NULL ? ~(gd_handle)0 : LIVE(kind, pointer)->handle)

struct ibv_qp *create_qp_ex(struct ibv_context *context, struct ibv_qp_init_attr_ex *attr) {
	int target = attr->qp_type == IBV_QPT_XRC_RECV, ex = (attr->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
	struct context *c = context_of(context);
	struct domain *d = attr->comp_mask & IBV_QP_INIT_ATTR_PD ? LIVE(domain, attr->pd) : NULL;
	struct xrcd *x = attr->comp_mask & IBV_QP_INIT_ATTR_XRCD ? LIVE(xrcd, attr->xrcd) : NULL;
	if ((attr->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS | 4)) ||
	    ((attr->comp_mask & 4) && attr->create_flags != 0) || (ex && (attr->send_ops_flags & ~(uint64_t)SEND_OPS)) || attr->qp_type == IBV_QPT_DRIVER)
		return none(EOPNOTSUPP);
	MAKE(pair, p, c != NULL && (target ? x != NULL : d != NULL))
	struct gd_qp init = {
		.type = attr->qp_type, .sig_all = attr->sq_sig_all, .max_send_wr = attr->cap.max_send_wr, .max_recv_wr = attr->cap.max_recv_wr,
		.max_send_sge = attr->cap.max_send_sge, .max_recv_sge = attr->cap.max_recv_sge, .max_inline = attr->cap.max_inline_data < LEAST_INLINE ? LEAST_INLINE : attr->cap.max_inline_data,
		.send_cq = handle_of(queue, attr->send_cq), .recv_cq = handle_of(queue, attr->recv_cq), .srq = handle_of(shared, attr->srq),
		.xrcd = x == NULL ? 0 : x->handle, .cookie = (uintptr_t)p,
	};
	if (attr->srq != NULL) // there is no receive queue of its own
		init.max_recv_wr = init.max_recv_sge = 0;
	MADE(pair, p, GO(create_qp, target ? c->handle : d->handle, &init));
	attr->cap = (struct ibv_qp_cap){init.max_send_wr, init.max_recv_wr, init.max_send_sge, init.max_recv_sge, init.max_inline};
	struct ibv_qp *qp = &p->qp.qp_base;
	qp->context = context;
	qp->qp_context = attr->qp_context;
	qp->pd = target ? NULL : attr->pd;
	qp->send_cq = attr->send_cq;
	qp->recv_cq = attr->recv_cq;
	qp->srq = attr->srq;
	qp->qp_num = init.num;
	qp->qp_type = attr->qp_type;
	pthread_mutex_init(&qp->mutex, NULL);
	pthread_cond_init(&qp->cond, NULL);
	p->sig_all = attr->sq_sig_all;
	p->has_ex = ex;
	set_up_building(p);
	p->handle = init.handle;
	return qp;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
	if (LIVE(domain, pd) == NULL)
		return none(EINVAL);
	struct ibv_qp_init_attr_ex ex = {
		.qp_context = attr->qp_context, .send_cq = attr->send_cq, .recv_cq = attr->recv_cq, .srq = attr->srq, .cap = attr->cap, .qp_type = attr->qp_type,
		.sq_sig_all = attr->sq_sig_all, .comp_mask = IBV_QP_INIT_ATTR_PD, .pd = pd,
	};
	struct ibv_qp *qp = create_qp_ex(pd->context, &ex);
	if (qp != NULL)
		attr->cap = ex.cap;
	return qp;
}

struct ibv_qp *open_qp(struct ibv_context *context, struct ibv_qp_open_attr *attr) {
	const uint32_t needed = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
	struct context *c = context_of(context);
	struct xrcd *x = LIVE(xrcd, attr->xrcd);
	MAKE(pair, p, c != NULL && x != NULL && (attr->comp_mask & needed) == needed && attr->qp_type == IBV_QPT_XRC_RECV)
	struct gd_qp init = {.num = attr->qp_num, .cookie = (uintptr_t)p};
	MADE(pair, p, GO(open_qp, c->handle, x->handle, &init));
	p->qp.qp_base.context = context;
	p->qp.qp_base.qp_context = attr->qp_context;
	p->qp.qp_base.qp_num = init.num;
	p->qp.qp_base.qp_type = attr->qp_type;
	pthread_mutex_init(&p->qp.qp_base.mutex, NULL);
	pthread_cond_init(&p->qp.qp_base.cond, NULL);
	set_up_building(p);
	p->handle = init.handle;
	return &p->qp.qp_base;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
	struct pair *p = LIVE(pair, qp);
	return p == NULL || !p->has_ex ? NULL : &p->qp;
}

void route_of(const struct ibv_ah_attr *attr, struct gd_route *to) {
	*to = (struct gd_route){.sgid_index = attr->grh.sgid_index, .hop_limit = attr->grh.hop_limit, .port = attr->port_num,
		.has_gid = attr->is_global, .lid = attr->dlid};
	if (!attr->is_global)
		to->sgid_index = 0;
	memcpy(to->gid, attr->grh.dgid.raw, sizeof to->gid);
}

#define QP_CUR_STATE (1 << 1)
#define QP_DEST_RD_ATOMIC_AND_RNR_TIMER (1 << 17 | 1 << 15)
#define QP_KNOWN 0x13bffd

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
	struct pair *p = LIVE(pair, qp);
	if (p == NULL)
		return back(EINVAL);
	mask &= ~QP_CUR_STATE; // the device knows it
	if (mask & ~QP_KNOWN)
		return back(EOPNOTSUPP);
	// An XRC initiator receives nothing. Cards take these all the same, and ibv_xsrq_pingpong sets them.
	if (qp->qp_type == IBV_QPT_XRC_SEND && (mask & IBV_QP_STATE) && attr->qp_state == 2)
		mask &= ~QP_DEST_RD_ATOMIC_AND_RNR_TIMER;
	struct gd_qp_attr a = {
		.state = attr->qp_state, .mtu = attr->path_mtu, .qkey = attr->qkey, .rq_psn = attr->rq_psn, .sq_psn = attr->sq_psn, .dest_qpn = attr->dest_qp_num,
		.access = attr->qp_access_flags & ~OPTIONAL_ACCESS, .pkey_index = attr->pkey_index, .sqd_notify = attr->en_sqd_async_notify,
		.max_rd_atomic = attr->max_rd_atomic, .max_dest_rd_atomic = attr->max_dest_rd_atomic, .min_rnr_timer = attr->min_rnr_timer,
		.port = attr->port_num, .timeout = attr->timeout, .retry_cnt = attr->retry_cnt, .rnr_retry = attr->rnr_retry,
	};
	if (mask & IBV_QP_AV)
		route_of(&attr->ah_attr, &a.route);
	int rc = GO(modify_qp, p->handle, &a, (uint32_t)mask);
	if (rc != 0)
		return back(rc);
	if (mask & IBV_QP_AV)
		p->route = attr->ah_attr;
	if (mask & IBV_QP_STATE)
		qp->state = attr->qp_state;
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
	struct pair *p = LIVE(pair, qp);
	struct gd_qp_attr a;
	struct gd_qp q;
	(void)mask; // all are given
	int rc = p == NULL ? EINVAL : GO(query_qp, p->handle, &a, &q);
	if (rc != 0)
		return back(rc);
	struct ibv_qp_cap cap = {q.max_send_wr, q.max_recv_wr, q.max_send_sge, q.max_recv_sge, q.max_inline};
	*attr = (struct ibv_qp_attr){
		.qp_state = a.state, .cur_qp_state = a.state, .path_mtu = a.mtu, .qkey = a.qkey, .rq_psn = a.rq_psn, .sq_psn = a.sq_psn, .dest_qp_num = a.dest_qpn,
		.qp_access_flags = a.access, .cap = cap, .ah_attr = p->route, .pkey_index = a.pkey_index, .en_sqd_async_notify = a.sqd_notify,
		.max_rd_atomic = a.max_rd_atomic, .max_dest_rd_atomic = a.max_dest_rd_atomic, .min_rnr_timer = a.min_rnr_timer, .port_num = a.port,
		.timeout = a.timeout, .retry_cnt = a.retry_cnt, .rnr_retry = a.rnr_retry,
	};
	*init = (struct ibv_qp_init_attr){.qp_context = qp->qp_context, .send_cq = qp->send_cq, .recv_cq = qp->recv_cq, .srq = qp->srq, .cap = cap,
		.qp_type = qp->qp_type, .sq_sig_all = p->sig_all};
	qp->state = a.state;
	return 0;
}

static void free_building(struct pair *p) {
	free(p->list);
	free(p->bytes);
	p->list = NULL;
	p->bytes = NULL;
}

int ibv_destroy_qp(struct ibv_qp *qp) {
	struct pair *p = LIVE(pair, qp);
	pthread_mutex_lock(&taking_events);
	int rc = p == NULL ? EINVAL : GO(destroy, p->handle);
	pthread_mutex_unlock(&taking_events);
	if (rc != 0)
		return back(rc);
	await_events(&qp->mutex, &qp->cond, &qp->events_completed, &p->events);
	free_building(p);
	pool_end(&pairs, p);
	return 0;
}

// ---- address handles ----

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
	struct domain *d = LIVE(domain, pd);
	MAKE(target, t, d != NULL)
	struct gd_route route;
	gd_handle h;
	route_of(attr, &route);
	MADE(target, t, GO(create_ah, d->handle, &route, &h));
	t->context = pd->context;
	t->pd = pd;
	t->handle = h;
	return (struct ibv_ah *)t;
}

int ibv_destroy_ah(struct ibv_ah *ah) {
	struct target *t = LIVE(target, ah);
	return t == NULL ? back(EINVAL) : destroyed(&targets, t, t->handle);
}

int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh, struct ibv_ah_attr *attr) {
	memset(attr, 0, sizeof *attr);
	attr->dlid = wc->slid;
	attr->sl = wc->sl;
	attr->src_path_bits = wc->dlid_path_bits;
	attr->port_num = port;
	if (!(wc->wc_flags & 1)) // IBV_WC_GRH
		return 0;
	attr->is_global = 1;
	attr->grh.dgid = grh->sgid;
	attr->grh.hop_limit = 0xff;
	union ibv_gid own;
	for (int i = 0; ibv_query_gid(context, port, i, &own) == 0; i++)
		if (memcmp(&own, &grh->dgid, sizeof own) == 0) {
			attr->grh.sgid_index = (uint8_t)i;
			return 0;
		}
	return -1;
}

struct ibv_ah *ibv_create_ah_from_wc(struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh, uint8_t port) {
	struct ibv_ah_attr attr;
	if (LIVE(domain, pd) == NULL)
		return none(EINVAL);
	return ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) == 0 ? ibv_create_ah(pd, &attr) : NULL;
}

// ---- the end of a context ----

// The device has ended all objects of the context; their memory follows.
#define END(kind, of, also)                                                  \
	static void end_##kind(void *object, void *context) {                \
		struct kind *o = object;                                     \
		if (o->of != context)                                        \
			return;                                              \
		also;                                                        \
		pool_end(&kind##s, o);                                       \
	}
END(domain, pd.context, (void)0)
END(region, mr.context, (void)0)
END(window, mw.context, (void)0)
END(target, context, (void)0)
END(xrcd, xrcd.context, (void)0)
END(channel, channel.context, close(o->channel.fd))
END(queue, cq.context, (void)0)
END(shared, srq.context, (void)0)
END(pair, qp.qp_base.context, free_building(o))

void end_objects_of(struct ibv_context *context) {
	pool_each(&domains, end_domain, context);
	pool_each(&regions, end_region, context);
	pool_each(&windows, end_window, context);
	pool_each(&targets, end_target, context);
	pool_each(&xrcds, end_xrcd, context);
	pool_each(&channels, end_channel, context);
	pool_each(&queues, end_queue, context);
	pool_each(&shareds, end_shared, context);
	pool_each(&pairs, end_pair, context);
}
