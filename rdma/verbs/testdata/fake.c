// A libibverbs with one device, fake0, that does no work: a request is complete
// when it is posted, and no byte moves. What goes wrong is said in the environment,
// which is read at every call:
//
//	FAKE_FAIL=reg_mr:12,poll_cq:-1   these verbs fail with these results
//	FAKE_TAKE=1                      posts take one request, the next is ENOMEM
//	FAKE_EVENT=8                     the next post raises this asynchronous event
//	FAKE_GONE=1                      the next post ends the file of the events
//	FAKE_STALE=1                     the next poll also gives a completion of no request
//	FAKE_SUM=1                       the byte_len of a request's completion is a sum over all that it says

#define _GNU_SOURCE // for pipe2

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr

enum { ENTRIES = 4096 };

struct queue {
	struct ibv_cq cq;
	struct ibv_wc wc[ENTRIES];
	unsigned head, tail;
};

struct pair {
	struct ibv_qp qp;
	int sig_all;
};

static struct ibv_device device = {.name = "fake0"};
static int events[2]; // a pipe: what get_async_event reads
static uint32_t next_num = 16;

// result is what a verb is to fail with, 0 for not.
static int result(const char *verb) {
	const char *list = getenv("FAKE_FAIL");
	size_t n = strlen(verb);
	while (list != NULL && *list != 0) {
		if (strncmp(list, verb, n) == 0 && list[n] == ':')
			return atoi(list + n + 1);
		list = strchr(list, ',');
		if (list != NULL)
			list++;
	}
	return 0;
}

// FAILS returns from a verb that gives an object.
#define FAILS(verb)                     \
	do {                            \
		int e = result(verb);   \
		if (e != 0) {           \
			errno = e;      \
			return NULL;    \
		}                       \
	} while (0)

static void raise_events(struct ibv_qp *qp) {
	const char *e = getenv("FAKE_EVENT");
	if (e != NULL && *e != 0) {
		struct ibv_async_event event = {.event_type = atoi(e)};
		if (event.event_type == IBV_EVENT_CQ_ERR)
			event.element.cq = qp->send_cq;
		else
			event.element.qp = qp;
		unsetenv("FAKE_EVENT");
		if (write(events[1], &event, sizeof event) != sizeof event)
			abort();
	}
	if (getenv("FAKE_GONE") != NULL && events[1] >= 0) {
		close(events[1]);
		events[1] = -1;
	}
}

static int complete(struct ibv_cq *to, uint64_t id, uint32_t num, int opcode, int status) {
	struct queue *q = (struct queue *)to;
	if (q->head - q->tail == ENTRIES)
		return ENOMEM;
	q->wc[q->head++ % ENTRIES] = (struct ibv_wc){.wr_id = id, .status = status, .opcode = opcode, .qp_num = num};
	return 0;
}

static uint32_t mix(uint32_t sum, uint64_t v) { return (sum ^ (uint32_t)v ^ (uint32_t)(v >> 32)) * 16777619; }

// sum_of is over what a device reads of a request.
static uint32_t sum_of(const struct ibv_send_wr *wr) {
	uint32_t sum = mix(mix(2166136261, wr->opcode), wr->send_flags);
	for (int i = 0; i < wr->num_sge; i++) {
		const struct ibv_sge *s = &wr->sg_list[i];
		if (wr->send_flags & IBV_SEND_INLINE)
			for (uint32_t k = 0; k < s->length; k++)
				sum = mix(sum, ((const uint8_t *)s->addr)[k]);
		else
			sum = mix(mix(mix(sum, s->addr), s->length), s->lkey);
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		sum = mix(sum, ntohl(wr->imm_data));
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_READ:
		return mix(mix(sum, wr->wr.rdma.remote_addr), wr->wr.rdma.rkey);
	case IBV_WR_SEND_WITH_IMM:
		return mix(sum, ntohl(wr->imm_data));
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		return mix(mix(mix(mix(sum, wr->wr.atomic.remote_addr), wr->wr.atomic.compare_add), wr->wr.atomic.swap), wr->wr.atomic.rkey);
	default:
		return sum;
	}
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	static const int opcodes[] = {IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND, IBV_WC_SEND, IBV_WC_RDMA_READ, IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD};
	int take = getenv("FAKE_TAKE") != NULL ? atoi(getenv("FAKE_TAKE")) : -1;
	int rc = result("post_send"), sums = getenv("FAKE_SUM") != NULL;
	if (getenv("FAKE_EVENT") != NULL || getenv("FAKE_GONE") != NULL)
		raise_events(qp);
	for (; wr != NULL; wr = wr->next) {
		if (rc == 0 && take-- == 0)
			rc = ENOMEM;
		if (rc == 0 && ((wr->send_flags & IBV_SEND_SIGNALED) || ((struct pair *)qp)->sig_all))
			rc = complete(qp->send_cq, wr->wr_id, qp->qp_num, opcodes[wr->opcode % 7], IBV_WC_SUCCESS);
		if (rc == 0 && sums) {
			struct queue *q = (struct queue *)qp->send_cq;
			q->wc[(q->head - 1) % ENTRIES].byte_len = sum_of(wr);
		}
		if (rc != 0) {
			*bad = wr;
			return rc;
		}
	}
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	int rc = result("post_recv");
	for (; wr != NULL; wr = wr->next) {
		if (rc == 0)
			rc = complete(qp->recv_cq, wr->wr_id, qp->qp_num, IBV_WC_RECV, IBV_WC_SUCCESS);
		if (rc != 0) {
			*bad = wr;
			return rc;
		}
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
	struct queue *q = (struct queue *)cq;
	int got = 0, rc = result("poll_cq");
	if (rc != 0)
		return rc;
	if (getenv("FAKE_STALE") != NULL && n > 0) {
		unsetenv("FAKE_STALE");
		wc[got++] = (struct ibv_wc){.wr_id = 0xdeadbeefdeadbeef};
	}
	while (got < n && q->tail != q->head)
		wc[got++] = q->wc[q->tail++ % ENTRIES];
	return got;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited) { return result("req_notify_cq"); }

struct ibv_device **ibv_get_device_list(int *n) {
	FAILS("get_device_list");
	struct ibv_device **list = calloc(2, sizeof *list);
	list[0] = &device;
	*n = 1;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

struct ibv_context *ibv_open_device(struct ibv_device *d) {
	FAILS("open_device");
	struct ibv_context *ctx = calloc(1, sizeof *ctx);
	if (pipe2(events, O_CLOEXEC) != 0)
		return NULL;
	ctx->device = d;
	ctx->async_fd = events[0];
	ctx->ops.post_send = post_send;
	ctx->ops.post_recv = post_recv;
	ctx->ops.poll_cq = poll_cq;
	ctx->ops.req_notify_cq = req_notify_cq;
	return ctx;
}
int ibv_close_device(struct ibv_context *ctx) {
	close(events[0]);
	if (events[1] >= 0)
		close(events[1]);
	free(ctx);
	return result("close_device");
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *e) {
	ssize_t n = read(ctx->async_fd, e, sizeof *e);
	if (n == 0)
		errno = EIO;
	return n == sizeof *e ? 0 : -1;
}
void ibv_ack_async_event(struct ibv_async_event *e) {}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a) {
	*a = (struct ibv_device_attr){
		.fw_ver = "1.2", .max_mr_size = 1 << 30, .max_qp = 100, .max_qp_wr = 1024, .max_sge = 8, .max_sge_rd = 8, .max_cq = 100,
		.max_cqe = ENTRIES, .max_mr = 100, .max_pd = 10, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .phys_port_cnt = 1,
		.atomic_cap = IBV_ATOMIC_HCA,
	};
	return result("query_device");
}
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *to) {
	struct ibv_port_attr *a = (struct ibv_port_attr *)to;
	a->state = IBV_PORT_ACTIVE;
	a->max_mtu = a->active_mtu = IBV_MTU_4096;
	a->gid_tbl_len = a->pkey_tbl_len = 1;
	a->max_msg_sz = 1u << 31;
	return result("query_port");
}
int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid) {
	memset(gid, 7, sizeof *gid);
	return result("query_gid");
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx) {
	FAILS("alloc_pd");
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = ctx;
	return pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd) {
	int rc = result("dealloc_pd");
	if (rc == 0)
		free(pd);
	return rc;
}
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
	FAILS("reg_mr");
	struct ibv_mr *mr = calloc(1, sizeof *mr);
	mr->pd = pd;
	mr->lkey = mr->rkey = 0x1234;
	return mr;
}
int ibv_dereg_mr(struct ibv_mr *mr) {
	int rc = result("dereg_mr");
	if (rc == 0)
		free(mr);
	return rc;
}
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx) {
	errno = EOPNOTSUPP;
	return NULL;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *ch) { return 0; }
struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector) {
	FAILS("create_cq");
	struct queue *q = calloc(1, sizeof *q);
	q->cq.context = ctx;
	q->cq.cqe = cqe;
	return &q->cq;
}
int ibv_resize_cq(struct ibv_cq *cq, int cqe) { return result("resize_cq"); }
int ibv_destroy_cq(struct ibv_cq *cq) {
	int rc = result("destroy_cq");
	if (rc == 0)
		free(cq);
	return rc;
}
int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context) { return -1; }
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) {}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
	errno = EOPNOTSUPP;
	return NULL;
}
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask) { return EOPNOTSUPP; }
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr) { return EOPNOTSUPP; }
int ibv_destroy_srq(struct ibv_srq *srq) { return EOPNOTSUPP; }

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
	FAILS("create_qp");
	if (attr->cap.max_inline_data > 128) {
		errno = EINVAL;
		return NULL;
	}
	struct pair *p = calloc(1, sizeof *p);
	p->qp.context = pd->context;
	p->qp.send_cq = attr->send_cq;
	p->qp.recv_cq = attr->recv_cq;
	p->qp.qp_num = next_num++;
	p->sig_all = attr->sq_sig_all;
	return &p->qp;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
	int rc = result("modify_qp");
	if (rc == 0 && (mask & IBV_QP_STATE))
		qp->state = attr->qp_state;
	return rc;
}
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init) {
	attr->qp_state = qp->state;
	return result("query_qp");
}
int ibv_destroy_qp(struct ibv_qp *qp) {
	int rc = result("destroy_qp");
	if (rc == 0)
		free(qp);
	return rc;
}
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
	FAILS("create_ah");
	return calloc(1, sizeof(struct ibv_ah));
}
int ibv_destroy_ah(struct ibv_ah *ah) {
	free(ah);
	return 0;
}
