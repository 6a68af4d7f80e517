// The data path: requests and completions become the device's, which moves the bytes.
#include "shim.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define AT_ONCE 16 // requests or completions of one call into the device

// ---- posts ----

// window_of and the like may meet an object that has ended: its handle is 0, or names nothing, and the device refuses it.
static void send_of(const struct ibv_send_wr *wr, int type, struct gd_send *to) {
	*to = (struct gd_send){.wr_id = wr->wr_id, .sg = wr->sg_list, .num_sge = (uint32_t)wr->num_sge, .opcode = (uint32_t)wr->opcode, .flags = wr->send_flags};
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_SEND_WITH_IMM:
		to->imm = ntohl(wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		to->imm = wr->invalidate_rkey;
		break;
	}
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
	case IBV_WR_RDMA_READ:
		to->remote_addr = wr->wr.rdma.remote_addr;
		to->rkey = wr->wr.rdma.rkey;
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		to->remote_addr = wr->wr.atomic.remote_addr;
		to->rkey = wr->wr.atomic.rkey;
		to->compare_add = wr->wr.atomic.compare_add;
		to->swap = wr->wr.atomic.swap;
		break;
	case IBV_WR_BIND_MW: {
		const struct ibv_mw_bind_info *b = &wr->bind_mw.bind_info;
		struct window *w = LIVE(window, wr->bind_mw.mw);
		struct region *r = LIVE(region, b->mr);
		to->num_sge = 0;
		to->mw = w == NULL ? ~(gd_handle)0 : w->handle;
		to->rkey = wr->bind_mw.rkey;
		to->bind = (struct gd_bind){b->mr == NULL ? 0 : r == NULL ? ~(gd_handle)0 : r->handle, b->addr, b->length, b->mw_access_flags};
		break;
	}
	}
	if (type == 4) { // UD
		to->ah = wr->wr.ud.ah == NULL ? 0 : ((struct target *)wr->wr.ud.ah)->handle;
		to->qpn = wr->wr.ud.remote_qpn;
		to->qkey = wr->wr.ud.remote_qkey;
	} else if (type == IBV_QPT_XRC_SEND) {
		to->srqn = wr->qp_type.xrc.remote_srqn;
	}
}

int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	struct pair *p = (struct pair *)qp;
	struct gd_send list[AT_ONCE];
	while (wr != NULL) {
		struct ibv_send_wr *next = wr;
		int n = 0, taken = 0;
		for (; next != NULL && n < AT_ONCE; next = next->next)
			send_of(next, qp->qp_type, &list[n++]);
		int rc = GO(post_send, p->handle, list, n, &taken);
		if (rc != 0) {
			for (; taken > 0; taken--)
				wr = wr->next;
			*bad = wr;
			return back(rc);
		}
		// The device remembers a window's new key, and so does libibverbs' object.
		for (; wr != next; wr = wr->next)
			if (wr->opcode == IBV_WR_BIND_MW)
				wr->bind_mw.mw->rkey = wr->bind_mw.rkey;
	}
	return 0;
}

static int post_receives(gd_handle handle, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	struct gd_recv list[AT_ONCE];
	while (wr != NULL) {
		struct ibv_recv_wr *next = wr;
		int n = 0, taken = 0;
		for (; next != NULL && n < AT_ONCE; next = next->next)
			list[n++] = (struct gd_recv){next->wr_id, next->sg_list, (uint32_t)next->num_sge};
		int rc = GO(post_recv, handle, list, n, &taken);
		if (rc != 0) {
			for (; taken > 0; taken--)
				wr = wr->next;
			*bad = wr;
			return back(rc);
		}
		wr = next;
	}
	return 0;
}

int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	return post_receives(((struct pair *)qp)->handle, wr, bad);
}

int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	return post_receives(((struct shared *)srq)->handle, wr, bad);
}

// ---- completions ----

// An initiator stores a word with release behind what it tells of. The device looks again, with the order that it needs.
static int idle(const struct queue *q) {
	return (__atomic_load_n(q->words[0], __ATOMIC_RELAXED) | __atomic_load_n(q->words[1], __ATOMIC_RELAXED) |
		__atomic_load_n(q->words[2], __ATOMIC_RELAXED) | __atomic_load_n(q->words[3], __ATOMIC_RELAXED)) == 0;
}

static uint32_t imm_of(const struct gd_wc *wc) { return wc->flags & 8 ? wc->imm : htonl(wc->imm); } // a key stands as it is

int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
	struct queue *q = (struct queue *)cq;
	struct gd_wc list[AT_ONCE];
	int got = 0, some = AT_ONCE;
	while (got < n && some == AT_ONCE) {
		if (idle(q))
			break;
		int room = n - got < AT_ONCE ? n - got : AT_ONCE;
		int rc = GO(poll, q->handle, room, list, &some);
		if (rc != 0)
			return got > 0 ? got : -rc;
		for (int i = 0; i < some; i++)
			wc[got++] = (struct ibv_wc){
				.wr_id = list[i].wr_id, .status = (int)list[i].status, .opcode = (int)list[i].opcode, .byte_len = list[i].byte_len, .imm_data = imm_of(&list[i]),
				.qp_num = list[i].qpn, .src_qp = list[i].src_qp, .wc_flags = list[i].flags,
			};
	}
	return got;
}

// ---- extended completion queues: one completion at a time ----

static int take(struct queue *q) {
	int n = 0;
	int rc = idle(q) ? 0 : GO(poll, q->handle, 1, &q->wc, &n);
	if (rc != 0)
		return rc;
	if (n == 0)
		return ENOENT;
	q->cq.status = (int)q->wc.status;
	q->cq.wr_id = q->wc.wr_id;
	return 0;
}

static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) {
	struct queue *q = (struct queue *)cq;
	if (attr->comp_mask != 0)
		return EINVAL;
	pthread_mutex_lock(&q->polling);
	int rc = take(q);
	if (rc != 0)
		pthread_mutex_unlock(&q->polling);
	return rc;
}

static int next_poll(struct ibv_cq_ex *cq) { return take((struct queue *)cq); }
static void end_poll(struct ibv_cq_ex *cq) { pthread_mutex_unlock(&((struct queue *)cq)->polling); }

#define READ(type, name, value) \
	static type read_##name(struct ibv_cq_ex *cq) { const struct gd_wc *wc = &((struct queue *)cq)->wc; (void)wc; return value; }
READ(unsigned, opcode, wc->opcode)
READ(uint32_t, vendor_err, 0)
READ(uint32_t, byte_len, wc->byte_len)
READ(uint32_t, imm_data, imm_of(wc))
READ(uint32_t, qp_num, wc->qpn)
READ(uint32_t, src_qp, wc->src_qp)
READ(unsigned, wc_flags, wc->flags)
READ(uint32_t, slid, 0)
READ(uint8_t, sl, 0)
READ(uint8_t, dlid_path_bits, 0)
READ(uint64_t, completion_ts, wc->timestamp)

void set_up_polling(struct queue *q) {
	pthread_mutex_init(&q->polling, NULL);
	struct ibv_cq_ex *cq = &q->cq;
	cq->start_poll = start_poll;
	cq->next_poll = next_poll;
	cq->end_poll = end_poll;
	cq->read_opcode = read_opcode;
	cq->read_vendor_err = read_vendor_err;
	cq->read_byte_len = read_byte_len;
	cq->read_imm_data = read_imm_data;
	cq->read_qp_num = read_qp_num;
	cq->read_src_qp = read_src_qp;
	cq->read_wc_flags = read_wc_flags;
	cq->read_slid = read_slid;
	cq->read_sl = read_sl;
	cq->read_dlid_path_bits = read_dlid_path_bits;
	cq->read_completion_ts = read_completion_ts;
}

// ---- the ibv_wr functions: a list is built between wr_start and wr_complete ----

static struct pair *of(struct ibv_qp_ex *qp) { return (struct pair *)qp; }

static void wr_start(struct ibv_qp_ex *qp) {
	struct pair *p = of(qp);
	pthread_mutex_lock(&p->building);
	p->n = p->failed = 0;
	p->used = 0;
}

// begin appends a request with what stands in the queue pair. It never gives NULL, for a request that cannot be is built in vain.
static struct gd_send *begin(struct ibv_qp_ex *qp, uint32_t opcode) {
	static __thread struct gd_send in_vain;
	struct pair *p = of(qp);
	if (p->n == p->room) {
		int room = p->room == 0 ? 16 : 2 * p->room;
		struct gd_send *list = realloc(p->list, (size_t)room * sizeof *list);
		if (list == NULL) {
			p->failed = ENOMEM;
			return &in_vain;
		}
		p->list = list;
		p->room = room;
	}
	struct gd_send *wr = &p->list[p->n++];
	*wr = (struct gd_send){.wr_id = qp->wr_id, .opcode = opcode, .flags = qp->wr_flags};
	return wr;
}

static struct gd_send *begin_remote(struct ibv_qp_ex *qp, uint32_t opcode, uint32_t rkey, uint64_t remote) {
	struct gd_send *wr = begin(qp, opcode);
	wr->rkey = rkey;
	wr->remote_addr = remote;
	return wr;
}

static void wr_rdma_write(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote) { begin_remote(qp, IBV_WR_RDMA_WRITE, rkey, remote); }
static void wr_rdma_read(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote) { begin_remote(qp, IBV_WR_RDMA_READ, rkey, remote); }
static void wr_rdma_write_imm(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint32_t imm) {
	begin_remote(qp, IBV_WR_RDMA_WRITE_WITH_IMM, rkey, remote)->imm = ntohl(imm);
}
static void wr_atomic_cmp_swp(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint64_t compare, uint64_t swap) {
	struct gd_send *wr = begin_remote(qp, IBV_WR_ATOMIC_CMP_AND_SWP, rkey, remote);
	wr->compare_add = compare;
	wr->swap = swap;
}
static void wr_atomic_fetch_add(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint64_t add) {
	begin_remote(qp, IBV_WR_ATOMIC_FETCH_AND_ADD, rkey, remote)->compare_add = add;
}
static void wr_send(struct ibv_qp_ex *qp) { begin(qp, IBV_WR_SEND); }
static void wr_send_imm(struct ibv_qp_ex *qp, uint32_t imm) { begin(qp, IBV_WR_SEND_WITH_IMM)->imm = ntohl(imm); }
static void wr_send_inv(struct ibv_qp_ex *qp, uint32_t rkey) { begin(qp, IBV_WR_SEND_WITH_INV)->imm = rkey; }
static void wr_local_inv(struct ibv_qp_ex *qp, uint32_t rkey) { begin(qp, IBV_WR_LOCAL_INV)->imm = rkey; }
static void wr_bind_mw(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info) {
	struct ibv_send_wr wr = {.wr_id = qp->wr_id, .opcode = IBV_WR_BIND_MW, .send_flags = qp->wr_flags, .bind_mw = {mw, rkey, *info}};
	send_of(&wr, qp->qp_base.qp_type, begin(qp, IBV_WR_BIND_MW));
	mw->rkey = rkey;
}

// last is the request that setters are about.
static struct gd_send *last(struct ibv_qp_ex *qp) {
	struct pair *p = of(qp);
	return p->failed || p->n == 0 ? NULL : &p->list[p->n - 1];
}

static void wr_set_ud_addr(struct ibv_qp_ex *qp, struct ibv_ah *ah, uint32_t qpn, uint32_t qkey) {
	struct gd_send *wr = last(qp);
	if (wr == NULL)
		return;
	wr->ah = ah == NULL ? 0 : ((struct target *)ah)->handle;
	wr->qpn = qpn;
	wr->qkey = qkey;
}

static void wr_set_xrc_srqn(struct ibv_qp_ex *qp, uint32_t srqn) {
	if (last(qp) != NULL)
		last(qp)->srqn = srqn;
}

// room gives n bytes that stay until the post. What sg and scatter entries say of earlier ones are offsets until then: see wr_complete.
static void *room(struct pair *p, size_t n) {
	n = (n + 15) & ~(size_t)15;
	if (p->size - p->used < n) {
		size_t size = 2 * (p->size + n);
		char *bytes = realloc(p->bytes, size);
		if (bytes == NULL) {
			p->failed = ENOMEM;
			return NULL;
		}
		p->bytes = bytes;
		p->size = size;
	}
	p->used += n;
	return p->bytes + p->used - n;
}

static void wr_set_sge_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list) {
	struct gd_send *wr = last(qp);
	void *to;
	if (wr == NULL || (to = room(of(qp), n * sizeof *list)) == NULL)
		return;
	memcpy(to, list, n * sizeof *list);
	wr->sg = (void *)((char *)to - of(qp)->bytes);
	wr->num_sge = (uint32_t)n;
}

static void wr_set_sge(struct ibv_qp_ex *qp, uint32_t lkey, uint64_t addr, uint32_t length) {
	wr_set_sge_list(qp, 1, &(struct ibv_sge){addr, length, lkey});
}

// Inline data is copied at once, behind a scatter entry that names it.
static void wr_set_inline_data_list(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *list) {
	size_t total = 0;
	char *to;
	for (size_t i = 0; i < n; i++)
		total += list[i].length;
	struct gd_send *wr = last(qp);
	if (wr == NULL || (to = room(of(qp), sizeof(struct ibv_sge) + total)) == NULL)
		return;
	wr->flags |= IBV_SEND_INLINE;
	wr->sg = (void *)(to - of(qp)->bytes);
	wr->num_sge = 1;
	*(struct ibv_sge *)to = (struct ibv_sge){.length = (uint32_t)total};
	to += sizeof(struct ibv_sge);
	for (size_t i = 0; i < n; to += list[i++].length)
		memcpy(to, list[i].addr, list[i].length);
}

static void wr_set_inline_data(struct ibv_qp_ex *qp, void *addr, size_t length) {
	wr_set_inline_data_list(qp, 1, &(struct ibv_data_buf){addr, length});
}

// All of the list is posted or, but for a list that the device refuses in its middle, nothing.
static int wr_complete(struct ibv_qp_ex *qp) {
	struct pair *p = of(qp);
	int rc = p->failed, taken;
	for (int i = 0; i < p->n && rc == 0; i++) {
		struct gd_send *wr = &p->list[i];
		if (wr->num_sge == 0)
			continue;
		struct ibv_sge *sg = (struct ibv_sge *)(p->bytes + (uintptr_t)wr->sg);
		wr->sg = sg;
		if (wr->flags & IBV_SEND_INLINE && sg->addr == 0)
			sg->addr = (uintptr_t)(sg + 1);
	}
	if (rc == 0 && p->n > 0)
		rc = GO(post_send, p->handle, p->list, p->n, &taken);
	pthread_mutex_unlock(&p->building);
	return rc;
}

static void wr_abort(struct ibv_qp_ex *qp) { pthread_mutex_unlock(&of(qp)->building); }

void set_up_building(struct pair *p) {
	struct ibv_qp_ex *qp = &p->qp;
	pthread_mutex_init(&p->building, NULL);
	qp->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
	qp->wr_atomic_fetch_add = wr_atomic_fetch_add;
	qp->wr_bind_mw = wr_bind_mw;
	qp->wr_local_inv = wr_local_inv;
	qp->wr_rdma_read = wr_rdma_read;
	qp->wr_rdma_write = wr_rdma_write;
	qp->wr_rdma_write_imm = wr_rdma_write_imm;
	qp->wr_send = wr_send;
	qp->wr_send_imm = wr_send_imm;
	qp->wr_send_inv = wr_send_inv;
	qp->wr_set_ud_addr = wr_set_ud_addr;
	qp->wr_set_xrc_srqn = wr_set_xrc_srqn;
	qp->wr_set_inline_data = wr_set_inline_data;
	qp->wr_set_inline_data_list = wr_set_inline_data_list;
	qp->wr_set_sge = wr_set_sge;
	qp->wr_set_sge_list = wr_set_sge_list;
	qp->wr_start = wr_start;
	qp->wr_complete = wr_complete;
	qp->wr_abort = wr_abort;
}
