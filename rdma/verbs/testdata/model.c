// A libibverbs and a libmlx5 in one, with one device, model0, that does what its
// requests say, in the memory of the process: RC, UC, XRC and DC between all contexts
// that are open, tag matching with rendezvous, keys with layouts, on-demand and dma-buf regions, re-registration,
// payload in completions. It has the layouts of the real headers, holds every call to
// what libmlx5 (rdma-core v44) and the kernel's mlx5_ib demand of it, and aborts where
// they would read what is not there. Of libmlx5 it has the errors too.
//
// A request is executed when it is posted; one that finds no receive, or nobody, is
// tried again whenever a queue is polled. Whatever is asked of the device is asked
// under one lock. A rendezvous is read in the moment when its request comes.
//
// In the environment, read at every call:
//
//	FAKE_FAIL=reg_mr:12,wr_complete:22   these calls fail with these results
//	FAKE_NOT_MLX5=1                      mlx5dv_is_supported says no
//	FAKE_SPLIT=1                         a match and its bytes are two completions
//	FAKE_REFUSE=4096                     a request for that remote address is refused
//
// -DOLD leaves out what libmlx5 has had since rdma-core v24.

#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/tm_types.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

// DEMAND is for what a caller may never do.
#define DEMAND(what)                                                                \
	do {                                                                        \
		if (!(what)) {                                                      \
			fprintf(stderr, "model.c: %s: %s\n", __func__, #what);      \
			abort();                                                    \
		}                                                                   \
	} while (0)

enum { MOST_KEYS = 4096, MOST_QPS = 1024, CQES = 4096, SGES = 16, INLINE = 1024, CARRIED = 32, OVERHEAD = 192, WQE_MAX = 1024 };

enum kind { NOTHING, REGION, LAYOUT };

// A key is a region or a layout. Its number is index<<8 and a variant that changes
// with every use.
struct key {
	union {
		struct ibv_mr mr;
		struct mlx5dv_mkey mkey;
	};
	enum kind kind;
	uint32_t number;
	struct ibv_pd *pd;
	uint8_t *mem;
	uint64_t iova, length;
	int access;
	bool on_demand;
	void *map; // of a dma-buf
	uint64_t map_size;
	// Of layouts.
	bool laid, strided;
	uint32_t rounds, pieces, room;
	struct mlx5dv_mr_interleaved piece[64];
};

struct context {
	struct verbs_context v;
	int events[2];
	int objects; // that are open
};

struct recv {
	uint64_t id;
	int n;
	struct ibv_sge sge[SGES];
	struct recv *next;
};

struct cqe {
	struct ibv_wc wc;
	int carried; // bytes of payload that the poll puts in their place
	uint8_t data[CARRIED];
	struct recv to;
	struct ibv_wc_tm_info tag;
};

struct queue {
	struct ibv_cq_ex ex; // begins as struct ibv_cq
	struct cqe ring[CQES];
	unsigned head, tail;
	int entries, pairs;
	bool extended;
	struct cqe *now; // between start_poll and end_poll
};

struct domain {
	struct ibv_pd pd;
	int objects;
};

// An inode is what domains are one by; there is one for each that no file names.
struct inode {
	dev_t dev;
	ino_t ino;
	int users;
	struct inode *next;
};
static struct inode *inodes; // of files

struct xrcd {
	struct ibv_xrcd x;
	struct inode *in;
	int objects;
};

struct shared {
	struct ibv_srq srq;
	enum ibv_srq_type type;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct recv *first, **last;
	int posted, most, sges, users;
	uint32_t num;
	// Of those that match tags. Unexpected messages are counted modulo 1<<16.
	struct tag {
		uint32_t handle;
		uint64_t id, tag, mask;
		bool live; // it may match
		struct ibv_sge sge[4];
		int n;
		struct tag *next;
	} *tags;
	uint32_t tag_count, most_tags, next_handle;
	uint16_t delivered, consumed;
};

struct wqe {
	uint64_t id;
	int op;
	unsigned flags;
	uint32_t imm;
	uint64_t raddr, cmp, swap;
	uint32_t rkey, srqn;
	int n;
	struct ibv_sge sge[SGES];
	int inlined; // bytes, less than 0 for none
	uint8_t data[INLINE];
	uint32_t dctn;
	uint64_t dckey;
	struct key *mkey; // of what sets a layout
	bool strided;
	uint32_t rounds, pieces, access;
	struct mlx5dv_mr_interleaved piece[64];
	struct wqe *next;
};

struct pair {
	struct ibv_qp_ex ex; // begins as struct ibv_qp
	struct mlx5dv_qp_ex dv;
	int dc; // mlx5dv_dc_type
	bool functions, layouts, scatter, sig_all;
	struct ibv_qp_cap cap;
	struct ibv_pd *pd;
	struct xrcd *xrcd; // until it is destroyed by who made it
	struct inode *in;
	struct ibv_qp_attr attr;
	uint64_t access_key;
	struct recv *first, **last;
	int receives, sends, opens;
	struct wqe *head, **tail;
	uint64_t since; // when the first request was first tried in vain
	unsigned tries;
	// Between wr_start and wr_complete.
	bool building;
	struct wqe *fresh, **fresh_end;
	struct wqe *now;
	int setters, error;
	int built;
};

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static struct ibv_device device = {.name = "model0"};
static struct key keys[MOST_KEYS];
static struct pair *pairs[MOST_QPS];
static struct shared *queues[MOST_QPS];
static uint32_t next_key = 1, next_num = 1;

enum { FIRST_NUM = 0x4000 };

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

#define REFUSE(e)               \
	do {                    \
		errno = (e);    \
		return NULL;    \
	} while (0)
#define FAILS(verb)                      \
	do {                             \
		int e_ = result(verb);   \
		if (e_ != 0)             \
			REFUSE(e_);      \
	} while (0)

static struct context *context_of(struct ibv_context *c) { return (struct context *)((char *)c - offsetof(struct context, v.context)); }

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Keys.

static struct key *new_key(struct ibv_pd *pd, enum kind kind) {
	for (int tries = 0; tries < MOST_KEYS; tries++) {
		uint32_t i = next_key++ % MOST_KEYS;
		struct key *k = &keys[i];
		if (i == 0 || k->kind != NOTHING)
			continue;
		uint32_t number = i << 8 | ((k->number + 1) & 0xff);
		memset(k, 0, sizeof *k);
		k->kind = kind;
		k->number = number;
		k->pd = pd;
		context_of(pd->context)->objects++;
		((struct domain *)pd)->objects++;
		return k;
	}
	REFUSE(ENOMEM);
}

static void drop_key(struct key *k) {
	if (k->map != NULL)
		munmap(k->map, k->map_size);
	context_of(k->pd->context)->objects--;
	((struct domain *)k->pd)->objects--;
	k->kind = NOTHING;
}

static struct key *find_key(uint32_t number) {
	struct key *k = &keys[number >> 8 & (MOST_KEYS - 1)];
	return k->kind != NOTHING && k->number == number ? k : NULL;
}

// move copies between a buffer and the process's memory, which a region on demand
// need not have.
static bool move_bytes(const struct key *k, uint8_t *at, uint8_t *buf, uint64_t n, bool in) {
	if (!k->on_demand) {
		memcpy(in ? at : buf, in ? buf : at, n);
		return true;
	}
	struct iovec here = {buf, n}, there = {at, n};
	ssize_t got = in ? process_vm_writev(getpid(), &here, 1, &there, 1, 0) : process_vm_readv(getpid(), &here, 1, &there, 1, 0);
	return n == 0 || got == (ssize_t)n;
}

static bool in_region(const struct key *k, struct ibv_pd *pd, uint64_t addr, uint64_t n, int need, uint8_t **at) {
	if (k == NULL || k->kind != REGION || k->pd != pd || (need & ~k->access))
		return false;
	if (addr < k->iova || n > k->length || addr - k->iova > k->length - n)
		return false;
	*at = k->mem + (addr - k->iova);
	return true;
}

// through moves bytes by a key; in is towards its memory. An atomic's bytes lie in one
// block: whole says that they do, and gives them.
static bool through(uint32_t number, struct ibv_pd *pd, uint64_t addr, uint8_t *buf, uint64_t n, int need, bool in, uint8_t **whole) {
	struct key *k = find_key(number);
	uint8_t *at;
	if (k == NULL || k->pd != pd)
		return false;
	if (k->kind == REGION) {
		if (!in_region(k, pd, addr, n, need, &at))
			return false;
		if (whole != NULL)
			*whole = at;
		return buf == NULL || move_bytes(k, at, buf, n, in);
	}
	if (!k->laid || (need & ~k->access) || n > k->length || addr > k->length - n)
		return false;
	uint64_t from = 0, end = addr + n;
	for (uint32_t round = 0; round < k->rounds && from < end; round++) {
		for (uint32_t i = 0; i < k->pieces && from < end; i++) {
			const struct mlx5dv_mr_interleaved *p = &k->piece[i];
			uint64_t size = p->bytes_count, lo = from > addr ? from : addr, hi = from + size < end ? from + size : end;
			if (lo < hi) {
				struct key *under = find_key(p->lkey);
				uint64_t place = p->addr + (uint64_t)round * ((uint64_t)p->bytes_count + p->bytes_skip) + (lo - from);
				if (!in_region(under, pd, place, hi - lo, in ? IBV_ACCESS_LOCAL_WRITE : 0, &at))
					return false;
				if (whole != NULL) {
					if (hi - lo != n)
						return false;
					*whole = at;
				}
				if (buf != NULL && !move_bytes(under, at, buf + (lo - addr), hi - lo, in))
					return false;
			}
			from += size;
		}
	}
	return true;
}

static bool scatter(struct ibv_pd *pd, const struct ibv_sge *sge, int n, uint8_t *buf, uint64_t bytes, bool in) {
	for (int i = 0; i < n; i++) {
		uint64_t part = in && bytes < sge[i].length ? bytes : sge[i].length;
		if (part > 0 && !through(sge[i].lkey, pd, sge[i].addr, buf, part, in ? IBV_ACCESS_LOCAL_WRITE : 0, in, NULL))
			return false;
		buf += part;
		bytes -= in ? part : 0;
	}
	return true;
}

static uint64_t length_of(const struct ibv_sge *sge, int n) {
	uint64_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += sge[i].length;
	return sum;
}

// Completions.

static struct cqe *complete(struct ibv_cq *to, uint64_t id, uint32_t num, int opcode, int status) {
	static struct cqe nowhere;
	struct queue *q = (struct queue *)to;
	if (q == NULL || q->head - q->tail == CQES)
		return &nowhere;
	struct cqe *e = &q->ring[q->head++ % CQES];
	memset(e, 0, offsetof(struct cqe, to));
	// Of one that failed nothing else is valid.
	e->wc = (struct ibv_wc){.wr_id = id, .status = status, .qp_num = num, .opcode = status == 0 ? opcode : 99, .byte_len = 77, .wc_flags = status == 0 ? 0 : 0x7f};
	return e;
}

static const int wc_opcodes[] = {
	[IBV_WR_RDMA_WRITE] = IBV_WC_RDMA_WRITE, [IBV_WR_RDMA_WRITE_WITH_IMM] = IBV_WC_RDMA_WRITE, [IBV_WR_SEND] = IBV_WC_SEND,
	[IBV_WR_SEND_WITH_IMM] = IBV_WC_SEND, [IBV_WR_RDMA_READ] = IBV_WC_RDMA_READ, [IBV_WR_ATOMIC_CMP_AND_SWP] = IBV_WC_COMP_SWAP,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = IBV_WC_FETCH_ADD, [IBV_WR_LOCAL_INV] = IBV_WC_LOCAL_INV, [IBV_WR_SEND_WITH_INV] = IBV_WC_SEND,
	[IBV_WR_DRIVER1] = MLX5DV_WC_UMR,
};

static void fail_pair(struct pair *p) {
	struct ibv_qp *qp = &p->ex.qp_base;
	qp->state = IBV_QPS_ERR;
	while (p->head != NULL) {
		struct wqe *w = p->head;
		p->head = w->next;
		complete(qp->send_cq, w->id, qp->qp_num, 0, IBV_WC_WR_FLUSH_ERR);
		free(w);
	}
	p->tail = &p->head;
	p->sends = 0;
	while (p->first != NULL) {
		struct recv *r = p->first;
		p->first = r->next;
		complete(qp->recv_cq, r->id, qp->qp_num, 0, IBV_WC_WR_FLUSH_ERR);
		free(r);
	}
	p->last = &p->first;
	p->receives = 0;
	p->since = p->tries = 0;
}

static void empty_pair(struct pair *p) {
	while (p->head != NULL) {
		struct wqe *w = p->head;
		p->head = w->next;
		free(w);
	}
	while (p->first != NULL) {
		struct recv *r = p->first;
		p->first = r->next;
		free(r);
	}
	p->tail = &p->head;
	p->last = &p->first;
	p->sends = p->receives = 0;
	p->since = p->tries = 0;
}

// Execution.

static void run_all(void);

enum { NOBODY = 100, NO_RECEIVE, WRONG_KEY }; // beside statuses

static struct pair *answerer(struct pair *p, const struct wqe *w, int *trouble) {
	struct ibv_qp *qp = &p->ex.qp_base;
	uint32_t num = p->dc ? w->dctn : p->attr.dest_qp_num;
	struct pair *to = num >= FIRST_NUM && num < FIRST_NUM + MOST_QPS ? pairs[num - FIRST_NUM] : NULL;
	*trouble = NOBODY;
	if (to == NULL || to->ex.qp_base.qp_num != num)
		return NULL;
	struct ibv_qp *tq = &to->ex.qp_base;
	if (p->dc) {
		if (to->dc != MLX5DV_DCTYPE_DCT || tq->state != IBV_QPS_RTR)
			return NULL;
		if (to->access_key != w->dckey) {
			*trouble = WRONG_KEY;
			return NULL;
		}
		return to;
	}
	int want = qp->qp_type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : qp->qp_type;
	if ((int)tq->qp_type != want || (tq->state != IBV_QPS_RTR && tq->state != IBV_QPS_RTS) || to->attr.dest_qp_num != qp->qp_num)
		return NULL;
	return to;
}

// die answers a request with an error, and the answerer is lost with it, unless it is
// a DCT.
static int die(struct pair *to, int status) {
	if (!to->dc)
		fail_pair(to);
	return status;
}

static struct shared *queue_of(uint32_t num) { return num >= FIRST_NUM && num < FIRST_NUM + MOST_QPS ? queues[num - FIRST_NUM] : NULL; }

static void append(struct pair *p, struct wqe *w);

// fetch reads the payload of a rendezvous through the queue pair that it came in on, and
// tells the sender that it may forget it.
static int fetch(struct pair *p, struct pair *to, struct shared *s, struct tag *t, const uint8_t *header) {
	struct ibv_rvh v;
	memcpy(&v, header + sizeof(struct ibv_tmh), sizeof v);
	uint64_t n = be32toh(v.len);
	uint8_t *buf = malloc(n + 1);
	int status = IBV_WC_SUCCESS;
	if (!(p->attr.qp_access_flags & IBV_ACCESS_REMOTE_READ))
		status = IBV_WC_REM_INV_REQ_ERR;
	else if (n > 0 && !through(be32toh(v.rkey), p->pd, be64toh(v.va), buf, n, IBV_ACCESS_REMOTE_READ, false, NULL))
		status = IBV_WC_REM_ACCESS_ERR;
	else if (!scatter(s->srq.pd, t->sge, t->n, buf, n, true))
		status = IBV_WC_LOC_PROT_ERR;
	free(buf);
	if (status == IBV_WC_SUCCESS) {
		struct wqe *fin = calloc(1, sizeof *fin);
		*fin = (struct wqe){.op = IBV_WR_SEND, .inlined = sizeof(struct ibv_tmh) + sizeof v};
		memcpy(fin->data, header, (size_t)fin->inlined);
		((struct ibv_tmh *)fin->data)->opcode = IBV_TMH_FIN;
		append(to, fin);
	}
	return status;
}

// match is deliver for a queue that matches tags.
static int match(struct pair *p, const struct wqe *w, struct pair *to, struct shared *s, uint8_t *buf, uint64_t n) {
	struct ibv_tmh h;
	struct ibv_qp *tq = &to->ex.qp_base;
	memset(&h, 0, sizeof h);
	if (n == 0 || (n < sizeof h && buf[0] != IBV_TMH_NO_TAG))
		return die(to, IBV_WC_REM_INV_REQ_ERR);
	memcpy(&h, buf, n < sizeof h ? n : sizeof h);
	bool far = h.opcode == IBV_TMH_RNDV, tagged = far || h.opcode == IBV_TMH_EAGER;
	const size_t headers = sizeof h + sizeof(struct ibv_rvh);
	if (h.opcode > IBV_TMH_EAGER || (far && (n < headers || n > 64)))
		return die(to, IBV_WC_REM_INV_REQ_ERR);
	struct ibv_wc_tm_info info = {.tag = be64toh(h.tag), .priv = be32toh(h.app_ctx)};
	struct tag **at = &s->tags;
	while (tagged && *at != NULL && !((*at)->live && ((info.tag ^ (*at)->tag) & (*at)->mask) == 0))
		at = &(*at)->next;
	if (tagged && *at != NULL) {
		struct tag *t = *at;
		int status = IBV_WC_SUCCESS;
		uint64_t bytes = n - sizeof h;
		if (far) {
			uint32_t len;
			memcpy(&len, buf + sizeof h + 12, 4);
			bytes = be32toh(len);
			uint64_t room = length_of(t->sge, t->n);
			status = bytes <= room ? fetch(p, to, s, t, buf) : n <= room ? IBV_WC_TM_RNDV_INCOMPLETE : IBV_WC_LOC_LEN_ERR;
			if (status == IBV_WC_TM_RNDV_INCOMPLETE)
				scatter(s->srq.pd, t->sge, t->n, buf, n, true);
		} else if (n - sizeof h > length_of(t->sge, t->n))
			status = IBV_WC_LOC_LEN_ERR;
		else if (!scatter(s->srq.pd, t->sge, t->n, buf + sizeof h, n - sizeof h, true))
			status = IBV_WC_LOC_PROT_ERR;
		bool split = getenv("FAKE_SPLIT") != NULL;
		struct cqe *e;
		if (split) { // it has matched
			e = complete(s->cq, t->id, tq->qp_num, IBV_WC_TM_RECV, IBV_WC_SUCCESS);
			e->wc.wc_flags = IBV_WC_TM_MATCH;
			e->tag = info;
		}
		e = complete(s->cq, t->id, tq->qp_num, IBV_WC_TM_RECV, status); // and its bytes are there
		if (status == IBV_WC_SUCCESS || status == IBV_WC_TM_RNDV_INCOMPLETE) {
			bool all = status == IBV_WC_SUCCESS;
			e->wc.opcode = IBV_WC_TM_RECV;
			e->wc.wc_flags = all ? IBV_WC_TM_DATA_VALID | (split ? 0 : IBV_WC_TM_MATCH) : 0;
			e->wc.byte_len = (uint32_t)(all ? bytes : n);
			e->tag = info;
			if (w->op == IBV_WR_SEND_WITH_IMM)
				e->wc.wc_flags |= IBV_WC_WITH_IMM, e->wc.imm_data = w->imm;
		}
		*at = t->next;
		s->tag_count--;
		free(t);
		if (status == IBV_WC_SUCCESS || status == IBV_WC_TM_RNDV_INCOMPLETE)
			return IBV_WC_SUCCESS;
		if (far && status != IBV_WC_LOC_LEN_ERR) // the sender's request has done its part
			return die(to, IBV_WC_SUCCESS);
		return die(to, status == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR);
	}
	struct recv *r = s->first;
	if (r == NULL)
		return NO_RECEIVE;
	if ((s->first = r->next) == NULL)
		s->last = &s->first;
	s->posted--;
	bool ok = n <= length_of(r->sge, r->n) && scatter(s->srq.pd, r->sge, r->n, buf, n, true);
	struct cqe *e = complete(s->cq, r->id, tq->qp_num, tagged ? IBV_WC_TM_RECV : IBV_WC_TM_NO_TAG, ok ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR);
	free(r);
	if (!ok)
		return die(to, IBV_WC_REM_INV_REQ_ERR);
	if (tagged)
		s->delivered++;
	e->wc.byte_len = (uint32_t)n;
	e->tag = info;
	if (w->op == IBV_WR_SEND_WITH_IMM)
		e->wc.wc_flags |= IBV_WC_WITH_IMM, e->wc.imm_data = w->imm;
	return IBV_WC_SUCCESS;
}

static int post_srq_ops(struct ibv_srq *srq, struct ibv_ops_wr *wr, struct ibv_ops_wr **bad) {
	struct shared *s = (struct shared *)srq;
	DEMAND(s->type == IBV_SRQT_TM);
	pthread_mutex_lock(&mu);
	int rc = result("post_srq_ops");
	for (; wr != NULL && rc == 0; wr = wr->next) {
		const int known = IBV_OPS_SIGNALED | IBV_OPS_TM_SYNC;
		DEMAND(!(wr->flags & ~known));
		if (wr->flags & IBV_OPS_TM_SYNC) {
			s->consumed = (uint16_t)wr->tm.unexpected_cnt;
			for (struct tag *t = s->tags; t != NULL && s->consumed == s->delivered; t = t->next)
				t->live = true;
		}
		int opcode = IBV_WC_TM_SYNC, status = IBV_WC_SUCCESS;
		struct tag **at = &s->tags;
		switch (wr->opcode) {
		case IBV_WR_TAG_ADD:
			opcode = IBV_WC_TM_ADD;
			if (s->tag_count == s->most_tags || wr->tm.add.num_sge > 4) {
				rc = wr->tm.add.num_sge > 4 ? EINVAL : ENOMEM;
				break;
			}
			while (*at != NULL)
				at = &(*at)->next;
			*at = calloc(1, sizeof **at);
			**at = (struct tag){.handle = wr->tm.handle = ++s->next_handle, .id = wr->tm.add.recv_wr_id, .tag = wr->tm.add.tag, .mask = wr->tm.add.mask,
				.live = s->delivered == s->consumed, .n = wr->tm.add.num_sge};
			memcpy((*at)->sge, wr->tm.add.sg_list, (size_t)wr->tm.add.num_sge * sizeof (*at)->sge[0]);
			s->tag_count++;
			break;
		case IBV_WR_TAG_DEL:
			opcode = IBV_WC_TM_DEL;
			while (*at != NULL && (*at)->handle != wr->tm.handle)
				at = &(*at)->next;
			if (*at == NULL) {
				status = IBV_WC_TM_ERR;
			} else {
				struct tag *t = *at;
				*at = t->next;
				s->tag_count--;
				free(t);
			}
			break;
		case IBV_WR_TAG_SYNC:
			break;
		}
		if (rc != 0)
			break;
		if ((wr->flags & IBV_OPS_SIGNALED) || status != IBV_WC_SUCCESS) {
			struct cqe *e = complete(s->cq, wr->wr_id, 0x123456, opcode, status);
			if (status == IBV_WC_SUCCESS && s->delivered != s->consumed)
				e->wc.wc_flags = IBV_WC_TM_SYNC_REQ;
		}
	}
	if (rc != 0)
		*bad = wr;
	run_all();
	pthread_mutex_unlock(&mu);
	return rc;
}

static int deliver(struct pair *p, const struct wqe *w, struct pair *to, uint8_t *buf, uint64_t n, int opcode) {
	struct ibv_qp *tq = &to->ex.qp_base;
	struct shared *s = (struct shared *)tq->srq;
	struct ibv_pd *pd = to->pd;
	struct ibv_cq *cq = tq->recv_cq;
	if (tq->qp_type == IBV_QPT_XRC_RECV) {
		s = queue_of(w->srqn);
		if (s == NULL || s->type != IBV_SRQT_XRC || ((struct xrcd *)s->xrcd)->in != to->in)
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		pd = s->srq.pd;
		cq = s->cq;
	}
	if (s != NULL && s->type == IBV_SRQT_TM && opcode == IBV_WC_RECV)
		return match(p, w, to, s, buf, n);
	struct recv **first = s != NULL ? &s->first : &to->first;
	struct recv *r = *first;
	if (r == NULL)
		return NO_RECEIVE;
	bool carried = to->scatter && s == NULL && opcode == IBV_WC_RECV && n > 0 && n <= CARRIED;
	int mine = IBV_WC_SUCCESS, theirs = IBV_WC_SUCCESS;
	if (opcode == IBV_WC_RECV) {
		if (n > length_of(r->sge, r->n))
			mine = IBV_WC_LOC_LEN_ERR, theirs = IBV_WC_REM_INV_REQ_ERR;
		else if (!carried && !scatter(pd, r->sge, r->n, buf, n, true))
			mine = IBV_WC_LOC_PROT_ERR, theirs = IBV_WC_REM_OP_ERR;
	}
	if ((*first = r->next) == NULL) {
		if (s != NULL)
			s->last = &s->first;
		else
			to->last = &to->first;
	}
	if (s != NULL)
		s->posted--;
	else
		to->receives--;
	struct cqe *e = complete(cq, r->id, tq->qp_num, opcode, mine);
	if (mine == IBV_WC_SUCCESS) {
		e->wc.byte_len = (uint32_t)n;
		e->wc.src_qp = p->ex.qp_base.qp_num;
		if (w->op == IBV_WR_SEND_WITH_IMM || w->op == IBV_WR_RDMA_WRITE_WITH_IMM) {
			e->wc.wc_flags = IBV_WC_WITH_IMM;
			e->wc.imm_data = w->imm;
		}
		if (carried) {
			e->carried = (int)n;
			memcpy(e->data, buf, n);
			e->to = *r;
		}
	}
	free(r);
	return mine == IBV_WC_SUCCESS ? theirs : die(to, theirs);
}

static int set_layout(struct pair *p, const struct wqe *w) {
	struct key *k = w->mkey;
	if (k->kind != LAYOUT || k->pd != p->pd)
		return IBV_WC_MW_BIND_ERR;
	k->laid = true;
	k->strided = w->strided;
	k->rounds = w->strided ? w->rounds : 1;
	k->pieces = w->pieces;
	k->access = (int)w->access;
	memcpy(k->piece, w->piece, sizeof k->piece);
	uint64_t round = 0;
	for (uint32_t i = 0; i < k->pieces; i++)
		round += k->piece[i].bytes_count;
	k->length = round * k->rounds;
	return IBV_WC_SUCCESS;
}

static int try(struct pair *p, struct wqe *w, uint32_t *bytes) {
	static uint8_t *buf;
	static uint64_t size;
	if (w->op == IBV_WR_DRIVER1)
		return set_layout(p, w);
	if (w->op == IBV_WR_LOCAL_INV) {
		struct key *k = find_key(w->imm);
		if (k == NULL || k->kind != LAYOUT || k->pd != p->pd || !k->laid)
			return IBV_WC_MW_BIND_ERR;
		k->laid = false;
		return IBV_WC_SUCCESS;
	}
	uint64_t n = w->inlined >= 0 ? (uint64_t)w->inlined : length_of(w->sge, w->n);
	if (n > size) {
		free(buf);
		buf = malloc(size = n);
	}
	bool atomic = w->op == IBV_WR_ATOMIC_CMP_AND_SWP || w->op == IBV_WR_ATOMIC_FETCH_AND_ADD;
	bool outward = w->op != IBV_WR_RDMA_READ && !atomic;
	if (w->inlined >= 0)
		memcpy(buf, w->data, n);
	else if (outward && !scatter(p->pd, w->sge, w->n, buf, n, false))
		return IBV_WC_LOC_PROT_ERR;
	if (!outward) { // where the answer goes must be there before it is asked for
		for (int i = 0; i < w->n; i++)
			if (w->sge[i].length > 0 && !through(w->sge[i].lkey, p->pd, w->sge[i].addr, NULL, w->sge[i].length, IBV_ACCESS_LOCAL_WRITE, true, NULL))
				return IBV_WC_LOC_PROT_ERR;
	}
	int trouble;
	struct pair *to = answerer(p, w, &trouble);
	if (to == NULL)
		return trouble == WRONG_KEY ? IBV_WC_REM_ACCESS_ERR : trouble;
	struct ibv_pd *pd = to->pd;
	if (to->ex.qp_base.qp_type == IBV_QPT_XRC_RECV) { // that of the queue that the request names, or of the key
		struct shared *s = queue_of(w->srqn);
		bool named = w->op == IBV_WR_RDMA_WRITE_WITH_IMM || s != NULL;
		if (named && (s == NULL || s->type != IBV_SRQT_XRC || ((struct xrcd *)s->xrcd)->in != to->in))
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		pd = s != NULL ? s->srq.pd : find_key(w->rkey) != NULL ? find_key(w->rkey)->pd : NULL;
	}
	unsigned rights = to->attr.qp_access_flags;
	*bytes = (uint32_t)n;
	switch (w->op) {
	case IBV_WR_RDMA_WRITE:
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		if (!(rights & IBV_ACCESS_REMOTE_WRITE))
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		if (n > 0 && !through(w->rkey, pd, w->raddr, NULL, n, IBV_ACCESS_REMOTE_WRITE, true, NULL))
			return die(to, IBV_WC_REM_ACCESS_ERR);
		if (n > 0 && !through(w->rkey, pd, w->raddr, buf, n, IBV_ACCESS_REMOTE_WRITE, true, NULL))
			return die(to, IBV_WC_REM_ACCESS_ERR);
		return w->op == IBV_WR_RDMA_WRITE ? IBV_WC_SUCCESS : deliver(p, w, to, buf, n, IBV_WC_RECV_RDMA_WITH_IMM);
	case IBV_WR_RDMA_READ:
		if (!(rights & IBV_ACCESS_REMOTE_READ) || (!to->dc && to->attr.max_dest_rd_atomic == 0))
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		if (n > 0 && !through(w->rkey, pd, w->raddr, buf, n, IBV_ACCESS_REMOTE_READ, false, NULL))
			return die(to, IBV_WC_REM_ACCESS_ERR);
		return scatter(p->pd, w->sge, w->n, buf, n, true) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD: {
		uint8_t *word = NULL;
		uint64_t old, fresh;
		if (!(rights & IBV_ACCESS_REMOTE_ATOMIC) || (!to->dc && to->attr.max_dest_rd_atomic == 0))
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		if (w->raddr % 8 != 0)
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		if (!through(w->rkey, pd, w->raddr, NULL, 8, IBV_ACCESS_REMOTE_ATOMIC, true, NULL))
			return die(to, IBV_WC_REM_ACCESS_ERR);
		if (!through(w->rkey, pd, w->raddr, NULL, 8, IBV_ACCESS_REMOTE_ATOMIC, true, &word))
			return die(to, IBV_WC_REM_INV_REQ_ERR);
		if (!through(w->rkey, pd, w->raddr, (uint8_t *)&old, 8, IBV_ACCESS_REMOTE_ATOMIC, false, NULL))
			return die(to, IBV_WC_REM_ACCESS_ERR);
		if (w->op == IBV_WR_ATOMIC_FETCH_AND_ADD)
			fresh = old + w->cmp;
		else
			fresh = old == w->cmp ? w->swap : old;
		if (!through(w->rkey, pd, w->raddr, (uint8_t *)&fresh, 8, IBV_ACCESS_REMOTE_ATOMIC, true, NULL))
			return die(to, IBV_WC_REM_ACCESS_ERR);
		return scatter(p->pd, w->sge, w->n, (uint8_t *)&old, 8, true) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
	}
	default:
		return deliver(p, w, to, buf, n, IBV_WC_RECV);
	}
}

static void run(struct pair *p) {
	struct ibv_qp *qp = &p->ex.qp_base;
	while (p->head != NULL && qp->state == IBV_QPS_RTS) {
		struct wqe *w = p->head;
		uint32_t bytes = 0;
		int status = try(p, w, &bytes);
		if (status == NO_RECEIVE || status == NOBODY) {
			uint64_t t = now(), wait = status == NO_RECEIVE ? 10000 : 4096ull << p->attr.timeout;
			unsigned most = status == NO_RECEIVE ? p->attr.rnr_retry : p->attr.retry_cnt;
			if (p->since == 0)
				p->since = t;
			if (t < p->since + wait)
				return;
			p->since = t;
			if (status == NO_RECEIVE && most == 7)
				return;
			if (p->tries++ < most)
				return;
			status = status == NO_RECEIVE ? IBV_WC_RNR_RETRY_EXC_ERR : IBV_WC_RETRY_EXC_ERR;
		}
		p->since = p->tries = 0;
		p->head = w->next;
		if (p->head == NULL)
			p->tail = &p->head;
		p->sends--;
		if (status != IBV_WC_SUCCESS || (w->flags & IBV_SEND_SIGNALED) || p->sig_all) {
			struct cqe *e = complete(qp->send_cq, w->id, qp->qp_num, wc_opcodes[w->op], status);
			if (status == IBV_WC_SUCCESS)
				e->wc.byte_len = bytes;
		}
		free(w);
		if (status != IBV_WC_SUCCESS)
			fail_pair(p);
	}
}

static void run_all(void) {
	for (int i = 0; i < MOST_QPS; i++)
		if (pairs[i] != NULL && pairs[i]->head != NULL)
			run(pairs[i]);
}

// Posting.

static void append(struct pair *p, struct wqe *w) {
	w->next = NULL;
	*p->tail = w;
	p->tail = &w->next;
	p->sends++;
}

static int flush_or_run(struct pair *p) {
	if (p->ex.qp_base.state == IBV_QPS_ERR)
		fail_pair(p);
	else
		run(p);
	return 0;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
	struct pair *p = (struct pair *)qp;
	pthread_mutex_lock(&mu);
	DEMAND(qp->qp_type != IBV_QPT_DRIVER); // _mlx5_post_send knows no DC
	int rc = result("post_send");
	for (; wr != NULL && rc == 0; wr = wr->next) {
		DEMAND(wr->opcode != IBV_WR_DRIVER1);
		uint64_t bytes = length_of(wr->sg_list, wr->num_sge);
		if (p->sends >= (int)p->cap.max_send_wr || wr->num_sge > (int)p->cap.max_send_sge)
			rc = ENOMEM;
		else if ((wr->send_flags & IBV_SEND_INLINE) && bytes > p->cap.max_inline_data)
			rc = ENOMEM;
		if (rc != 0)
			break;
		struct wqe *w = calloc(1, sizeof *w);
		*w = (struct wqe){.id = wr->wr_id, .op = (int)wr->opcode, .flags = wr->send_flags, .imm = wr->imm_data, .inlined = -1, .n = wr->num_sge};
		if (wr->opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
			w->raddr = wr->wr.atomic.remote_addr, w->rkey = wr->wr.atomic.rkey, w->cmp = wr->wr.atomic.compare_add, w->swap = wr->wr.atomic.swap;
		else
			w->raddr = wr->wr.rdma.remote_addr, w->rkey = wr->wr.rdma.rkey;
		if (qp->qp_type == IBV_QPT_XRC_SEND)
			w->srqn = wr->qp_type.xrc.remote_srqn;
		memcpy(w->sge, wr->sg_list, (size_t)wr->num_sge * sizeof w->sge[0]);
		if (wr->send_flags & IBV_SEND_INLINE) {
			w->inlined = 0;
			for (int i = 0; i < wr->num_sge; i++) {
				memcpy(w->data + w->inlined, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
				w->inlined += (int)wr->sg_list[i].length;
			}
		}
		append(p, w);
	}
	if (rc != 0)
		*bad = wr;
	flush_or_run(p);
	pthread_mutex_unlock(&mu);
	return rc;
}

static struct recv *copy_recv(const struct ibv_recv_wr *wr) {
	struct recv *r = calloc(1, sizeof *r);
	r->id = wr->wr_id;
	r->n = wr->num_sge;
	memcpy(r->sge, wr->sg_list, (size_t)wr->num_sge * sizeof r->sge[0]);
	return r;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	struct pair *p = (struct pair *)qp;
	pthread_mutex_lock(&mu);
	int rc = result("post_recv");
	DEMAND(qp->srq == NULL && !p->dc);
	for (; wr != NULL && rc == 0; wr = wr->next) {
		if (p->receives >= (int)p->cap.max_recv_wr || wr->num_sge > (int)p->cap.max_recv_sge)
			rc = ENOMEM;
		if (rc != 0)
			break;
		struct recv *r = copy_recv(wr);
		*p->last = r;
		p->last = &r->next;
		p->receives++;
	}
	if (rc != 0)
		*bad = wr;
	if (qp->state == IBV_QPS_ERR)
		fail_pair(p);
	run_all();
	pthread_mutex_unlock(&mu);
	return rc;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
	struct shared *s = (struct shared *)srq;
	pthread_mutex_lock(&mu);
	int rc = result("post_srq_recv");
	for (; wr != NULL && rc == 0; wr = wr->next) {
		if (wr->num_sge > s->sges)
			rc = EINVAL;
		else if (s->posted == s->most)
			rc = ENOMEM;
		if (rc != 0)
			break;
		struct recv *r = copy_recv(wr);
		*s->last = r;
		s->last = &r->next;
		s->posted++;
	}
	if (rc != 0)
		*bad = wr;
	run_all();
	pthread_mutex_unlock(&mu);
	return rc;
}

// The functions of ibv_wr_start(3), as libmlx5 has them: what is wrong is told by
// wr_complete, and then nothing of the batch was taken.

static struct pair *building(struct ibv_qp_ex *ex) {
	struct pair *p = (struct pair *)ex;
	DEMAND(p->functions && p->building);
	return p;
}

// finished: the request before must have had its setters.
static void finished(struct pair *p) { DEMAND(p->error != 0 || p->setters == 0); }

static struct wqe *builder(struct ibv_qp_ex *ex, int op, int setters) {
	struct pair *p = building(ex);
	finished(p);
	struct wqe *w = calloc(1, sizeof *w);
	*w = (struct wqe){.id = ex->wr_id, .op = op, .flags = ex->wr_flags, .inlined = -1};
	if (p->sends + p->built >= (int)p->cap.max_send_wr && p->error == 0)
		p->error = ENOMEM;
	p->built++;
	*p->fresh_end = w;
	p->fresh_end = &w->next;
	p->now = w;
	p->setters = setters + (setters > 0 && p->dc ? 1 : 0);
	return w;
}

static void wr_start(struct ibv_qp_ex *ex) {
	struct pair *p = (struct pair *)ex;
	pthread_mutex_lock(&mu);
	DEMAND(p->functions && !p->building);
	p->building = true;
	p->fresh = p->now = NULL;
	p->fresh_end = &p->fresh;
	p->error = p->built = p->setters = 0;
}

static void discard(struct pair *p) {
	while (p->fresh != NULL) {
		struct wqe *w = p->fresh;
		p->fresh = w->next;
		free(w);
	}
	p->building = false;
}

static void wr_abort(struct ibv_qp_ex *ex) {
	discard(building(ex));
	pthread_mutex_unlock(&mu);
}

static int wr_complete(struct ibv_qp_ex *ex) {
	struct pair *p = building(ex);
	finished(p);
	int rc = result("wr_complete");
	if (rc == 0)
		rc = p->error;
	// libmlx5 has another wr_complete in the states before RTS.
	if (p->ex.qp_base.state < IBV_QPS_RTS)
		rc = EINVAL;
	if (rc != 0) {
		discard(p);
	} else {
		for (struct wqe *w = p->fresh, *next; w != NULL; w = next) {
			next = w->next;
			append(p, w);
		}
		p->building = false;
		flush_or_run(p);
	}
	pthread_mutex_unlock(&mu);
	return rc;
}

static void wr_send(struct ibv_qp_ex *ex) { builder(ex, IBV_WR_SEND, 1); }
static void wr_send_imm(struct ibv_qp_ex *ex, __be32 imm) { builder(ex, IBV_WR_SEND_WITH_IMM, 1)->imm = imm; }
static void wr_send_inv(struct ibv_qp_ex *ex, uint32_t rkey) { builder(ex, IBV_WR_SEND_WITH_INV, 1)->imm = rkey; }
static void remote(struct pair *p, struct wqe *w, uint32_t rkey, uint64_t addr) {
	const char *refuse = getenv("FAKE_REFUSE");
	if (refuse != NULL && strtoull(refuse, NULL, 0) == addr && p->error == 0)
		p->error = EINVAL;
	w->rkey = rkey;
	w->raddr = addr;
}
static void wr_rdma_write(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) { remote(building(ex), builder(ex, IBV_WR_RDMA_WRITE, 1), rkey, addr); }
static void wr_rdma_write_imm(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, __be32 imm) {
	remote(building(ex), builder(ex, IBV_WR_RDMA_WRITE_WITH_IMM, 1), rkey, addr);
	building(ex)->now->imm = imm;
}
static void wr_rdma_read(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr) { remote(building(ex), builder(ex, IBV_WR_RDMA_READ, 1), rkey, addr); }
static void wr_atomic_cmp_swp(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t compare, uint64_t swap) {
	remote(building(ex), builder(ex, IBV_WR_ATOMIC_CMP_AND_SWP, 1), rkey, addr);
	building(ex)->now->cmp = compare;
	building(ex)->now->swap = swap;
}
static void wr_atomic_fetch_add(struct ibv_qp_ex *ex, uint32_t rkey, uint64_t addr, uint64_t add) {
	remote(building(ex), builder(ex, IBV_WR_ATOMIC_FETCH_AND_ADD, 1), rkey, addr);
	building(ex)->now->cmp = add;
}
static void wr_local_inv(struct ibv_qp_ex *ex, uint32_t rkey) { builder(ex, IBV_WR_LOCAL_INV, 0)->imm = rkey; }

static void wr_set_sge_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_sge *list) {
	struct pair *p = building(ex);
	DEMAND(p->setters > 0 && n <= SGES);
	if (n > p->cap.max_send_sge && p->error == 0)
		p->error = ENOMEM;
	p->setters--;
	p->now->n = (int)n;
	memcpy(p->now->sge, list, n * sizeof *list);
	DEMAND(!(p->now->flags & IBV_SEND_INLINE));
}

static void wr_set_inline_data_list(struct ibv_qp_ex *ex, size_t n, const struct ibv_data_buf *list) {
	struct pair *p = building(ex);
	DEMAND(p->setters > 0);
	p->setters--;
	p->now->inlined = 0;
	for (size_t i = 0; i < n; i++) {
		if ((size_t)p->now->inlined + list[i].length > p->cap.max_inline_data) {
			if (p->error == 0)
				p->error = ENOMEM;
			return;
		}
		memcpy(p->now->data + p->now->inlined, list[i].addr, list[i].length);
		p->now->inlined += (int)list[i].length;
	}
}

static struct pair *direct(struct mlx5dv_qp_ex *dv) {
	struct pair *p = (struct pair *)((char *)dv - offsetof(struct pair, dv));
	return building(&p->ex);
}

struct handle {
	struct ibv_ah ah;
	struct ibv_ah_attr attr;
};

static void wr_set_dc_addr(struct mlx5dv_qp_ex *dv, struct ibv_ah *ah, uint32_t dctn, uint64_t key) {
	struct pair *p = direct(dv);
	DEMAND(p->dc == MLX5DV_DCTYPE_DCI && p->setters > 0 && ah != NULL && ah->context == p->ex.qp_base.context && dctn < 1 << 24);
	p->setters--;
	p->now->dctn = dctn;
	p->now->dckey = key;
}

// Both ways to set a layout are a request whose data is the layout.
static struct wqe *layout(struct pair *p, struct mlx5dv_mkey *mkey, uint32_t access, uint32_t n, uint32_t most) {
	DEMAND(p->layouts && n > 0);
	struct wqe *w = builder(&p->ex, IBV_WR_DRIVER1, 0);
	w->mkey = (struct key *)mkey;
	w->access = access;
	w->pieces = n;
	int e = 0;
	if (!(p->ex.wr_flags & IBV_SEND_INLINE))
		e = EOPNOTSUPP;
	else if (access & ~(uint32_t)(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC))
		e = EINVAL;
	else if (n > most || n > w->mkey->room || n > 64)
		e = ENOMEM;
	if (e != 0) {
		if (p->error == 0)
			p->error = e;
		return NULL;
	}
	return w;
}

static void wr_mr_interleaved(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint32_t repeat, uint16_t n, struct mlx5dv_mr_interleaved *data) {
	struct pair *p = direct(dv);
	struct wqe *w = layout(p, mkey, access, n, (p->cap.max_inline_data + 4) / 16 - 1);
	if (w == NULL)
		return;
	w->strided = true;
	w->rounds = repeat;
	for (int i = 0; i < n; i++) {
		w->piece[i] = data[i];
		// htobe16 of both.
		w->piece[i].bytes_count &= 0xffff;
		w->piece[i].bytes_skip = ((data[i].bytes_count + data[i].bytes_skip) & 0xffff) - w->piece[i].bytes_count;
	}
}

static void wr_mr_list(struct mlx5dv_qp_ex *dv, struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n, struct ibv_sge *sge) {
	struct pair *p = direct(dv);
	struct wqe *w = layout(p, mkey, access, n, (p->cap.max_inline_data + 4) / 16);
	for (int i = 0; w != NULL && i < n; i++)
		w->piece[i] = (struct mlx5dv_mr_interleaved){.addr = sge[i].addr, .bytes_count = sge[i].length, .lkey = sge[i].lkey};
}

// Polling.

// take gives the next completion, and puts the payload that it carries where the
// receive wants it, looking at addresses alone, as libmlx5 does.
static struct cqe *take(struct queue *q) {
	if (q->tail == q->head)
		return NULL;
	struct cqe *e = &q->ring[q->tail++ % CQES];
	const uint8_t *from = e->data;
	int left = e->carried;
	for (int i = 0; i < e->to.n && left > 0; i++) {
		int part = left < (int)e->to.sge[i].length ? left : (int)e->to.sge[i].length;
		memcpy((void *)(uintptr_t)e->to.sge[i].addr, from, (size_t)part);
		from += part;
		left -= part;
	}
	return e;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc) {
	int got = 0, rc = result("poll_cq");
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&mu);
	run_all();
	for (struct cqe *e; got < n && (e = take((struct queue *)cq)) != NULL; got++)
		wc[got] = e->wc;
	pthread_mutex_unlock(&mu);
	return got;
}

static int next_poll(struct ibv_cq_ex *cq) {
	struct queue *q = (struct queue *)cq;
	if ((q->now = take(q)) == NULL)
		return ENOENT;
	cq->wr_id = q->now->wc.wr_id;
	cq->status = q->now->wc.status;
	return 0;
}
static int start_poll(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr) {
	DEMAND(attr->comp_mask == 0);
	pthread_mutex_lock(&mu);
	run_all();
	int rc = next_poll(cq);
	if (rc != 0)
		pthread_mutex_unlock(&mu);
	return rc;
}
static void end_poll(struct ibv_cq_ex *cq) { pthread_mutex_unlock(&mu); }
#define READ(type, name, field) \
	static type name(struct ibv_cq_ex *cq) { return ((struct queue *)cq)->now->wc.field; }
READ(enum ibv_wc_opcode, read_opcode, opcode)
READ(uint32_t, read_vendor_err, vendor_err)
READ(uint32_t, read_byte_len, byte_len)
READ(__be32, read_imm_data, imm_data)
READ(uint32_t, read_qp_num, qp_num)
READ(uint32_t, read_src_qp, src_qp)
READ(unsigned int, read_wc_flags, wc_flags)
static uint64_t read_completion_ts(struct ibv_cq_ex *cq) { return now(); }
static void read_tm_info(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info) { *info = ((struct queue *)cq)->now->tag; }

static int req_notify_cq(struct ibv_cq *cq, int solicited) { return EOPNOTSUPP; }

// Devices and contexts.

struct ibv_device **ibv_get_device_list(int *n) {
	FAILS("get_device_list");
	struct ibv_device **list = calloc(2, sizeof *list);
	list[0] = &device;
	*n = 1;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { free(list); }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

static int query_device_ex(struct ibv_context *ctx, const struct ibv_query_device_ex_input *in, struct ibv_device_attr_ex *a, size_t size) {
	DEMAND(size == sizeof *a);
	memset(a, 0, size);
	a->orig_attr = (struct ibv_device_attr){
		.fw_ver = "16.35.2000", .vendor_id = 0x2c9, .max_mr_size = ~0ull, .max_qp = MOST_QPS, .max_qp_wr = 1024, .max_sge = SGES, .max_sge_rd = SGES,
		.max_cq = 100, .max_cqe = CQES, .max_mr = MOST_KEYS, .max_pd = 100, .max_qp_rd_atom = 16, .max_qp_init_rd_atom = 16, .phys_port_cnt = 1,
		.atomic_cap = IBV_ATOMIC_HCA, .max_srq = 100, .max_srq_wr = 1024, .max_srq_sge = SGES, .max_ah = 1000, .device_cap_flags = IBV_DEVICE_XRC,
	};
	a->hca_core_clock = 1000000;
	// mlx5 has one scatter entry of a tag; the rules want more to look at.
	a->tm_caps = (struct ibv_tm_caps){.max_rndv_hdr_size = 64, .max_num_tags = 127, .flags = IBV_TM_CAP_RC, .max_ops = 512, .max_sge = 4};
	a->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
	a->odp_caps.per_transport_caps.rc_odp_caps = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC;
	return result("query_device");
}
int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a) { return EOPNOTSUPP; }
static int query_port(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *a, size_t size) {
	memset(a, 0, size);
	a->state = IBV_PORT_ACTIVE;
	a->max_mtu = a->active_mtu = IBV_MTU_4096;
	a->gid_tbl_len = a->pkey_tbl_len = 1;
	a->max_msg_sz = 1u << 31;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return result("query_port");
}
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *a) { return EOPNOTSUPP; }
int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid) {
	memset(gid, 7, sizeof *gid);
	return result("query_gid");
}

static struct ibv_cq_ex *create_cq_ex(struct ibv_context *, struct ibv_cq_init_attr_ex *);
static struct ibv_srq *create_srq_ex(struct ibv_context *, struct ibv_srq_init_attr_ex *);
static int get_srq_num(struct ibv_srq *, uint32_t *);
static struct ibv_xrcd *open_xrcd(struct ibv_context *, struct ibv_xrcd_init_attr *);
static int close_xrcd(struct ibv_xrcd *);
static struct ibv_qp *create_qp_ex(struct ibv_context *, struct ibv_qp_init_attr_ex *);
static struct ibv_qp *open_qp(struct ibv_context *, struct ibv_qp_open_attr *);
static int advise_mr(struct ibv_pd *, enum ibv_advise_mr_advice, uint32_t, struct ibv_sge *, uint32_t);

struct ibv_context *ibv_open_device(struct ibv_device *d) {
	FAILS("open_device");
	struct context *c = calloc(1, sizeof *c);
	if (pipe2(c->events, O_CLOEXEC) != 0)
		return NULL;
	c->v.sz = sizeof c->v;
	struct ibv_context *ctx = &c->v.context;
	ctx->abi_compat = __VERBS_ABI_IS_EXTENDED;
	ctx->device = d;
	ctx->async_fd = c->events[0];
	ctx->ops.post_send = post_send;
	ctx->ops.post_recv = post_recv;
	ctx->ops.post_srq_recv = post_srq_recv;
	ctx->ops.poll_cq = poll_cq;
	ctx->ops.req_notify_cq = req_notify_cq;
	c->v.query_device_ex = query_device_ex;
	c->v.query_port = query_port;
	c->v.create_cq_ex = create_cq_ex;
	c->v.create_srq_ex = create_srq_ex;
	c->v.get_srq_num = get_srq_num;
	c->v.open_xrcd = open_xrcd;
	c->v.close_xrcd = close_xrcd;
	c->v.create_qp_ex = create_qp_ex;
	c->v.open_qp = open_qp;
	c->v.advise_mr = advise_mr;
	c->v.post_srq_ops = post_srq_ops;
	return ctx;
}
// What is left open would be libmlx5's leak.
int ibv_close_device(struct ibv_context *ctx) {
	struct context *c = context_of(ctx);
	if (c->objects != 0) {
		fprintf(stderr, "model.c: %d objects are left at close_device\n", c->objects);
		return EBUSY;
	}
	close(c->events[0]);
	close(c->events[1]);
	free(c);
	return result("close_device");
}
int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *e) {
	ssize_t n = read(ctx->async_fd, e, sizeof *e);
	if (n == 0)
		errno = EIO;
	return n == sizeof *e ? 0 : -1;
}
void ibv_ack_async_event(struct ibv_async_event *e) {}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx) {
	FAILS("alloc_pd");
	struct domain *d = calloc(1, sizeof *d);
	d->pd.context = ctx;
	context_of(ctx)->objects++;
	return &d->pd;
}
int ibv_dealloc_pd(struct ibv_pd *pd) {
	int rc = result("dealloc_pd");
	if (rc == 0 && ((struct domain *)pd)->objects > 0)
		rc = EBUSY;
	if (rc == 0) {
		context_of(pd->context)->objects--;
		free(pd);
	}
	return rc;
}

// Regions.

// there tells whether memory can be pinned.
static bool there(uint8_t *mem, uint64_t length) {
	for (uint64_t at = 0; at < length; at += 4096 - (uintptr_t)(mem + at) % 4096) {
		uint8_t byte;
		struct iovec here = {&byte, 1}, page = {mem + at, 1};
		if (process_vm_readv(getpid(), &here, 1, &page, 1, 0) != 1)
			return false;
	}
	return true;
}

static struct ibv_mr *region(struct ibv_pd *pd, uint8_t *mem, uint64_t iova, uint64_t length, int access) {
	if ((access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) && !(access & IBV_ACCESS_LOCAL_WRITE))
		REFUSE(EINVAL);
	if (!(access & IBV_ACCESS_ON_DEMAND) && !there(mem, length))
		REFUSE(EFAULT);
	pthread_mutex_lock(&mu);
	struct key *k = new_key(pd, REGION);
	if (k != NULL) {
		k->mem = mem;
		k->iova = iova;
		k->length = length;
		k->access = access;
		k->on_demand = access & IBV_ACCESS_ON_DEMAND;
		k->mr.context = pd->context;
		k->mr.pd = pd;
		k->mr.lkey = k->mr.rkey = k->number;
	}
	pthread_mutex_unlock(&mu);
	return k == NULL ? NULL : &k->mr;
}
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access) {
	FAILS("reg_mr");
	return region(pd, addr, (uint64_t)(uintptr_t)addr, length, access);
}
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned int access) {
	FAILS("reg_mr_iova");
	return region(pd, addr, iova, length, (int)access);
}
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access) {
	FAILS("reg_dmabuf_mr");
	struct stat st;
	if (fcntl(fd, F_GETFD) < 0)
		REFUSE(EBADF);
	// A memory file stands in for a dma-buf. The rest is ib_umem_dmabuf_get's, and
	// that of the command.
	if (fcntl(fd, F_GET_SEALS) < 0 || fstat(fd, &st) != 0 || length == 0 || offset + length < offset || offset + length > (uint64_t)st.st_size ||
	    offset % 4096 != iova % 4096 || access & ~(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC))
		REFUSE(EINVAL);
	uint64_t before = offset % 4096;
	uint8_t *mem = mmap(NULL, length + before, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - before));
	if (mem == MAP_FAILED)
		return NULL;
	struct ibv_mr *mr = region(pd, mem + before, iova, length, access);
	if (mr == NULL) {
		munmap(mem, length + before);
		return NULL;
	}
	((struct key *)mr)->map = mem;
	((struct key *)mr)->map_size = length + before;
	return mr;
}
int ibv_dereg_mr(struct ibv_mr *mr) {
	int rc = result("dereg_mr");
	pthread_mutex_lock(&mu);
	if (rc == 0)
		drop_key((struct key *)mr);
	pthread_mutex_unlock(&mu);
	return rc;
}
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access) {
	int rc = result("rereg_mr");
	if (rc != 0) { // with libibverbs' own numbers: less than 0
		errno = rc < 0 ? EIO : rc;
		return rc < 0 ? rc : IBV_REREG_MR_ERR_INPUT;
	}
	struct key *k = (struct key *)mr;
	DEMAND(k->kind == REGION && (!(flags & IBV_REREG_MR_CHANGE_PD) || pd != NULL));
	if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) || ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && (length == 0 || addr == NULL)) ||
	    (access != 0 && !(flags & IBV_REREG_MR_CHANGE_ACCESS))) {
		errno = EINVAL;
		return IBV_REREG_MR_ERR_INPUT;
	}
	if (flags == 0) { // of the kernel
		errno = EINVAL;
		return IBV_REREG_MR_ERR_CMD;
	}
	if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) && !k->on_demand && !there(addr, length)) {
		k->number = 0; // it is nobody's from here on
		errno = EFAULT;
		return IBV_REREG_MR_ERR_CMD;
	}
	pthread_mutex_lock(&mu);
	if (flags & IBV_REREG_MR_CHANGE_TRANSLATION) {
		k->mem = addr;
		k->iova = (uint64_t)(uintptr_t)addr;
		k->length = length;
	}
	if (flags & IBV_REREG_MR_CHANGE_PD) {
		((struct domain *)k->pd)->objects--;
		k->pd = k->mr.pd = pd;
		((struct domain *)pd)->objects++;
	}
	if (flags & IBV_REREG_MR_CHANGE_ACCESS)
		k->access = access, k->on_demand = access & IBV_ACCESS_ON_DEMAND;
	k->number = (k->number & ~0xffu) | ((k->number + 1) & 0xff);
	k->mr.lkey = k->mr.rkey = k->number;
	pthread_mutex_unlock(&mu);
	return 0;
}
static int advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice, uint32_t flags, struct ibv_sge *sge, uint32_t n) {
	int rc = result("advise_mr");
	if (rc == 0 && (n == 0 || advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT || flags & ~(uint32_t)IBV_ADVISE_MR_FLAG_FLUSH))
		rc = EINVAL; // of the kernel, as all that follow: get_prefetchable_mr
	pthread_mutex_lock(&mu);
	for (uint32_t i = 0; i < n && rc == 0; i++) {
		uint8_t byte, *at;
		struct key *k = find_key(sge[i].lkey);
		int need = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE ? IBV_ACCESS_LOCAL_WRITE : 0;
		if (k == NULL || !k->on_demand || k->pd != pd)
			rc = ENOENT;
		else if (need & ~k->access)
			rc = EPERM;
		else if (!in_region(k, pd, sge[i].addr, sge[i].length, 0, &at))
			rc = EFAULT;
		else
			for (uint64_t at_ = 0; at_ < sge[i].length && rc == 0 && advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT; at_ += 4096)
				if (!move_bytes(k, at + at_, &byte, 1, false))
					rc = EFAULT;
	}
	pthread_mutex_unlock(&mu);
	return rc == EFAULT && !(flags & IBV_ADVISE_MR_FLAG_FLUSH) ? 0 : rc; // which others wait for
}

// Queues.

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx) { REFUSE(EOPNOTSUPP); }
int ibv_destroy_comp_channel(struct ibv_comp_channel *ch) { return 0; }
static struct queue *new_queue(struct ibv_context *ctx, uint32_t cqe) {
	struct queue *q = calloc(1, sizeof *q);
	struct ibv_cq *cq = ibv_cq_ex_to_cq(&q->ex);
	cq->context = ctx;
	cq->cqe = (int)cqe;
	context_of(ctx)->objects++;
	return q;
}
struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *ch, int vector) {
	FAILS("create_cq");
	return ibv_cq_ex_to_cq(&new_queue(ctx, (uint32_t)cqe)->ex);
}
static struct ibv_cq_ex *create_cq_ex(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *a) {
	FAILS("create_cq_ex");
	struct queue *q = new_queue(ctx, a->cqe);
	q->extended = true;
	q->ex.start_poll = start_poll;
	q->ex.next_poll = next_poll;
	q->ex.end_poll = end_poll;
	q->ex.read_opcode = read_opcode;
	q->ex.read_vendor_err = read_vendor_err;
	q->ex.read_byte_len = read_byte_len;
	q->ex.read_imm_data = read_imm_data;
	q->ex.read_qp_num = read_qp_num;
	q->ex.read_src_qp = read_src_qp;
	q->ex.read_wc_flags = read_wc_flags;
	if (a->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP)
		q->ex.read_completion_ts = read_completion_ts;
	if (a->wc_flags & IBV_WC_EX_WITH_TM_INFO)
		q->ex.read_tm_info = read_tm_info;
	return &q->ex;
}
int ibv_resize_cq(struct ibv_cq *cq, int cqe) { return EOPNOTSUPP; }
int ibv_destroy_cq(struct ibv_cq *cq) {
	int rc = result("destroy_cq");
	if (rc == 0 && ((struct queue *)cq)->pairs > 0)
		rc = EBUSY;
	if (rc == 0) {
		context_of(cq->context)->objects--;
		free(cq);
	}
	return rc;
}
int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **context) { return -1; }
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) {}

static struct ibv_srq *new_srq(struct ibv_pd *pd, struct ibv_srq_attr *a, enum ibv_srq_type type) {
	if (a->max_wr == 0 || a->max_wr > 1024 || a->max_sge > SGES)
		REFUSE(EINVAL);
	struct shared *s = calloc(1, sizeof *s);
	pthread_mutex_lock(&mu);
	while (queues[next_num % MOST_QPS] != NULL)
		next_num++;
	s->num = next_num % MOST_QPS;
	queues[s->num] = s;
	s->num += FIRST_NUM;
	next_num++;
	s->srq.context = pd->context;
	s->srq.pd = pd;
	s->type = type;
	s->most = (int)a->max_wr;
	s->sges = (int)a->max_sge;
	s->last = &s->first;
	((struct domain *)pd)->objects++;
	context_of(pd->context)->objects++;
	pthread_mutex_unlock(&mu);
	return &s->srq;
}
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *a) {
	FAILS("create_srq");
	return new_srq(pd, &a->attr, IBV_SRQT_BASIC);
}
static struct ibv_srq *create_srq_ex(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *a) {
	FAILS("create_srq");
	const uint32_t common = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ;
	bool tags = a->srq_type == IBV_SRQT_TM;
	DEMAND(tags || a->srq_type == IBV_SRQT_XRC);
	DEMAND(a->comp_mask == (common | (tags ? IBV_SRQ_INIT_ATTR_TM : IBV_SRQ_INIT_ATTR_XRCD)) && a->cq != NULL && a->pd->context == ctx);
	if (tags && (!((struct queue *)a->cq)->extended || a->tm_cap.max_num_tags == 0 || a->tm_cap.max_num_tags > 127 || a->tm_cap.max_ops == 0))
		REFUSE(EINVAL);
	DEMAND(!tags || ((struct queue *)a->cq)->ex.read_tm_info != NULL);
	DEMAND(tags || a->xrcd != NULL);
	struct shared *s = (struct shared *)new_srq(a->pd, &a->attr, a->srq_type);
	if (s == NULL)
		return NULL;
	s->cq = a->cq;
	s->most_tags = a->tm_cap.max_num_tags;
	if (!tags) {
		s->xrcd = a->xrcd;
		((struct xrcd *)a->xrcd)->objects++;
	}
	((struct queue *)a->cq)->pairs++;
	return &s->srq;
}
static int get_srq_num(struct ibv_srq *srq, uint32_t *num) {
	*num = ((struct shared *)srq)->num;
	return 0;
}
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask) { return result("modify_srq"); }
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a) {
	struct shared *s = (struct shared *)srq;
	*a = (struct ibv_srq_attr){.max_wr = (uint32_t)s->most, .max_sge = (uint32_t)s->sges};
	return result("query_srq");
}
int ibv_destroy_srq(struct ibv_srq *srq) {
	struct shared *s = (struct shared *)srq;
	int rc = result("destroy_srq");
	if (rc == 0 && s->users > 0)
		rc = EBUSY;
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&mu);
	while (s->first != NULL) {
		struct recv *r = s->first;
		s->first = r->next;
		free(r);
	}
	queues[s->num - FIRST_NUM] = NULL;
	((struct domain *)srq->pd)->objects--;
	context_of(srq->context)->objects--;
	if (s->xrcd != NULL)
		((struct xrcd *)s->xrcd)->objects--;
	if (s->cq != NULL)
		((struct queue *)s->cq)->pairs--;
	while (s->tags != NULL) {
		struct tag *t = s->tags;
		s->tags = t->next;
		free(t);
	}
	free(s);
	pthread_mutex_unlock(&mu);
	return 0;
}

static struct ibv_xrcd *open_xrcd(struct ibv_context *ctx, struct ibv_xrcd_init_attr *a) {
	FAILS("open_xrcd");
	DEMAND(a->comp_mask == (IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS));
	struct stat st = {0};
	struct inode *in = NULL;
	if (a->oflags & ~(O_CREAT | O_EXCL)) // ib_uverbs_open_xrcd has these
		REFUSE(EINVAL);
	if (a->fd >= 0) {
		if (fstat(a->fd, &st) != 0)
			REFUSE(EBADF);
		for (in = inodes; in != NULL && (in->dev != st.st_dev || in->ino != st.st_ino); in = in->next)
			;
		if (in == NULL && !(a->oflags & O_CREAT))
			REFUSE(EAGAIN);
		if (in != NULL && (a->oflags & O_EXCL))
			REFUSE(EINVAL);
	}
	if (in == NULL) {
		in = calloc(1, sizeof *in);
		*in = (struct inode){.dev = st.st_dev, .ino = st.st_ino, .next = inodes};
		if (a->fd >= 0)
			inodes = in;
	}
	in->users++;
	struct xrcd *x = calloc(1, sizeof *x);
	x->x.context = ctx;
	x->in = in;
	context_of(ctx)->objects++;
	return &x->x;
}
static int close_xrcd(struct ibv_xrcd *xrcd) {
	struct xrcd *x = (struct xrcd *)xrcd;
	if (x->objects > 0)
		return EBUSY;
	context_of(xrcd->context)->objects--;
	if (--x->in->users == 0) {
		for (struct inode **at = &inodes; *at != NULL; at = &(*at)->next)
			if (*at == x->in) {
				*at = x->in->next;
				break;
			}
		free(x->in);
	}
	free(x);
	return 0;
}

// Queue pairs.

static uint32_t new_number(struct pair *p) {
	while (pairs[next_num % MOST_QPS] != NULL)
		next_num++;
	uint32_t i = next_num++ % MOST_QPS;
	pairs[i] = p;
	return FIRST_NUM + i;
}

static size_t align_to(size_t n, size_t a) { return (n + a - 1) / a * a; }

// make is mlx5_calc_send_wqe and what follows it: what the caller asked for, and what
// it gets in a->cap.
static struct pair *make(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a, int dc) {
	size_t size = OVERHEAD + (dc ? 48 : 0) + a->cap.max_send_sge * 16;
	size_t with = a->cap.max_inline_data > 0 ? OVERHEAD + (dc ? 48 : 0) + align_to(4 + a->cap.max_inline_data, 16) : 0;
	if (with > size)
		size = with;
	if (a->cap.max_send_wr > 0) {
		if (size > WQE_MAX || a->cap.max_send_wr > 1024 || a->cap.max_recv_wr > 1024)
			REFUSE(EINVAL);
		a->cap.max_inline_data = (uint32_t)(align_to(size, 64) - OVERHEAD - (dc ? 48 : 0) - 4);
	}
	struct pair *p = calloc(1, sizeof *p);
	p->cap = a->cap;
	p->dc = dc;
	p->sig_all = a->sq_sig_all;
	p->pd = a->pd;
	p->tail = &p->head;
	p->last = &p->first;
	struct ibv_qp *qp = &p->ex.qp_base;
	qp->context = ctx;
	qp->pd = a->pd;
	qp->send_cq = a->send_cq;
	qp->recv_cq = a->recv_cq;
	qp->srq = a->srq;
	qp->qp_type = a->qp_type;
	qp->state = IBV_QPS_RESET;
	pthread_mutex_lock(&mu);
	if (dc != MLX5DV_DCTYPE_DCT)
		qp->qp_num = new_number(p);
	context_of(ctx)->objects++;
	if (a->pd != NULL)
		((struct domain *)a->pd)->objects++;
	if (a->send_cq != NULL)
		((struct queue *)a->send_cq)->pairs++;
	if (a->recv_cq != NULL)
		((struct queue *)a->recv_cq)->pairs++;
	if (a->srq != NULL)
		((struct shared *)a->srq)->users++;
	pthread_mutex_unlock(&mu);
	return p;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a) {
	FAILS("create_qp");
	DEMAND(a->send_cq != NULL && a->recv_cq != NULL && a->qp_type != IBV_QPT_DRIVER);
	struct ibv_qp_init_attr_ex ex = {.pd = pd};
	memcpy(&ex, a, sizeof *a);
	struct pair *p = make(pd->context, &ex, 0);
	if (p == NULL)
		return NULL;
	// What libmlx5 does when it is not told otherwise.
	p->scatter = a->qp_type == IBV_QPT_RC || a->qp_type == IBV_QPT_UC;
	a->cap = ex.cap;
	return &p->ex.qp_base;
}
static struct ibv_qp *create_qp_ex(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a) {
	FAILS("create_qp");
	DEMAND(a->qp_type == IBV_QPT_XRC_SEND || a->qp_type == IBV_QPT_XRC_RECV);
	DEMAND(a->comp_mask == (a->qp_type == IBV_QPT_XRC_SEND ? IBV_QP_INIT_ATTR_PD : IBV_QP_INIT_ATTR_XRCD));
	DEMAND(a->qp_type == IBV_QPT_XRC_SEND ? a->send_cq != NULL : a->xrcd != NULL);
	if (a->qp_type == IBV_QPT_XRC_RECV)
		a->pd = NULL, a->send_cq = a->recv_cq = NULL;
	struct pair *p = make(ctx, a, 0);
	if (p == NULL)
		return NULL;
	if (a->qp_type == IBV_QPT_XRC_RECV) {
		p->xrcd = (struct xrcd *)a->xrcd;
		p->in = p->xrcd->in;
		p->xrcd->objects++;
	}
	return &p->ex.qp_base;
}

// An opened queue pair is another handle of it.
struct opened {
	struct ibv_qp qp;
	struct pair *of;
	struct xrcd *xrcd;
};
static struct pair *pair_of(struct ibv_qp *qp) { return qp->qp_context == &device ? ((struct opened *)qp)->of : (struct pair *)qp; }

static struct ibv_qp *open_qp(struct ibv_context *ctx, struct ibv_qp_open_attr *a) {
	FAILS("open_qp");
	DEMAND(a->comp_mask == (IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE) && a->qp_type == IBV_QPT_XRC_RECV);
	struct xrcd *x = (struct xrcd *)a->xrcd;
	struct pair *p = a->qp_num >= FIRST_NUM && a->qp_num < FIRST_NUM + MOST_QPS ? pairs[a->qp_num - FIRST_NUM] : NULL;
	if (p == NULL || p->in != x->in)
		REFUSE(EINVAL);
	struct opened *o = calloc(1, sizeof *o);
	o->qp = p->ex.qp_base;
	o->qp.qp_context = &device;
	o->qp.context = ctx;
	o->of = p;
	o->xrcd = x;
	p->opens++;
	x->objects++;
	context_of(ctx)->objects++;
	return &o->qp;
}

// The steps of mlx5_ib: modify_dci_qp_is_ok, mlx5_ib_modify_dct.
static bool dc_step_ok(struct pair *p, struct ibv_qp_attr *a, int mask) {
	int from = p->ex.qp_base.state, to = (int)a->qp_state;
	if (!(mask & IBV_QP_STATE))
		return false;
	mask &= ~IBV_QP_STATE;
	if (p->dc == MLX5DV_DCTYPE_DCT) {
		if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
			return mask == (IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT);
		if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
			return mask == (IBV_QP_MIN_RNR_TIMER | IBV_QP_AV | IBV_QP_PATH_MTU);
		return false;
	}
	if (to == IBV_QPS_RESET || (to == IBV_QPS_ERR && from != IBV_QPS_RESET))
		return mask == 0;
	if (from == IBV_QPS_RESET && to == IBV_QPS_INIT)
		return mask == (IBV_QP_PKEY_INDEX | IBV_QP_PORT);
	if (from == IBV_QPS_INIT && to == IBV_QPS_INIT)
		return !(mask & ~(IBV_QP_PKEY_INDEX | IBV_QP_PORT));
	if (from == IBV_QPS_INIT && to == IBV_QPS_RTR)
		return (mask & IBV_QP_PATH_MTU) && !(mask & ~(IBV_QP_PATH_MTU | IBV_QP_PKEY_INDEX | IBV_QP_AV));
	const int rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_SQ_PSN;
	if (from == IBV_QPS_RTR && to == IBV_QPS_RTS)
		return (mask & rts) == rts && !(mask & ~(rts | IBV_QP_MIN_RNR_TIMER));
	return from == IBV_QPS_RTS && to == IBV_QPS_RTS && !(mask & ~IBV_QP_MIN_RNR_TIMER);
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask) {
	int rc = result("modify_qp");
	struct pair *p = pair_of(qp);
	pthread_mutex_lock(&mu);
	if (rc == 0 && p->dc && !dc_step_ok(p, a, mask))
		rc = EINVAL;
	if (rc == 0) {
		struct ibv_qp_attr *to = &p->attr;
		if (mask & IBV_QP_ACCESS_FLAGS)
			to->qp_access_flags = a->qp_access_flags;
		if (mask & IBV_QP_DEST_QPN)
			to->dest_qp_num = a->dest_qp_num;
		if (mask & IBV_QP_TIMEOUT)
			to->timeout = a->timeout;
		if (mask & IBV_QP_RETRY_CNT)
			to->retry_cnt = a->retry_cnt;
		if (mask & IBV_QP_RNR_RETRY)
			to->rnr_retry = a->rnr_retry;
		if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
			to->max_dest_rd_atomic = a->max_dest_rd_atomic;
		if (mask & IBV_QP_STATE) {
			p->ex.qp_base.state = a->qp_state;
			if (p->dc == MLX5DV_DCTYPE_DCT && a->qp_state == IBV_QPS_RTR)
				p->ex.qp_base.qp_num = new_number(p);
			if (a->qp_state == IBV_QPS_RESET) {
				memset(to, 0, sizeof *to);
				// Its completions go with it.
				struct ibv_cq *cqs[] = {p->ex.qp_base.send_cq, p->ex.qp_base.recv_cq};
				for (int i = 0; i < 2; i++) {
					struct queue *q = (struct queue *)cqs[i];
					unsigned keep = 0, n = q == NULL ? 0 : q->head - q->tail;
					for (unsigned j = 0; j < n; j++) {
						struct cqe *e = &q->ring[(q->tail + j) % CQES];
						if (e->wc.qp_num != p->ex.qp_base.qp_num)
							q->ring[(q->tail + keep++) % CQES] = *e;
					}
					if (q != NULL)
						q->head = q->tail + keep;
				}
				empty_pair(p);
			}
			if (a->qp_state == IBV_QPS_ERR)
				fail_pair(p);
		}
		run_all();
	}
	pthread_mutex_unlock(&mu);
	return rc;
}
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init) {
	struct pair *p = pair_of(qp);
	// mlx5_ib_dct_query_qp
	if (p->dc == MLX5DV_DCTYPE_DCT && p->ex.qp_base.state != IBV_QPS_RTR)
		return EINVAL;
	pthread_mutex_lock(&mu);
	run_all();
	a->qp_state = p->ex.qp_base.state;
	pthread_mutex_unlock(&mu);
	return result("query_qp");
}
int ibv_destroy_qp(struct ibv_qp *qp) {
	int rc = result("destroy_qp");
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&mu);
	struct pair *p = pair_of(qp);
	context_of(qp->context)->objects--;
	if (qp->qp_context == &device) {
		((struct opened *)qp)->xrcd->objects--;
		free(qp);
		p->opens--;
	} else {
		if (p->pd != NULL)
			((struct domain *)p->pd)->objects--;
		if (qp->send_cq != NULL)
			((struct queue *)qp->send_cq)->pairs--;
		if (qp->recv_cq != NULL)
			((struct queue *)qp->recv_cq)->pairs--;
		if (qp->srq != NULL)
			((struct shared *)qp->srq)->users--;
		if (p->xrcd != NULL)
			p->xrcd->objects--;
		qp->context = NULL;
	}
	if (p->opens == 0 && p->ex.qp_base.context == NULL) {
		empty_pair(p);
		if (p->ex.qp_base.qp_num != 0)
			pairs[p->ex.qp_base.qp_num - FIRST_NUM] = NULL;
		free(p);
	}
	pthread_mutex_unlock(&mu);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr) {
	FAILS("create_ah");
	struct handle *h = calloc(1, sizeof *h);
	h->ah.context = pd->context;
	h->ah.pd = pd;
	h->attr = *attr;
	((struct domain *)pd)->objects++;
	context_of(pd->context)->objects++;
	return &h->ah;
}
int ibv_destroy_ah(struct ibv_ah *ah) {
	((struct domain *)ah->pd)->objects--;
	context_of(ah->context)->objects--;
	free(ah);
	return 0;
}

struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
	struct pair *p = (struct pair *)qp;
	return p->functions ? &p->ex : NULL;
}

// libmlx5.

bool mlx5dv_is_supported(struct ibv_device *d) {
	DEMAND(d == &device);
	return getenv("FAKE_NOT_MLX5") == NULL;
}

int mlx5dv_query_device(struct ibv_context *ctx, struct mlx5dv_context *a) {
	int rc = result("mlx5dv_query_device");
	uint64_t known = MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_DCI_STREAMS;
	a->comp_mask &= known;
	a->striding_rq_caps = (struct mlx5dv_striding_rq_caps){6, 13, 9, 16, 1 << IBV_QPT_RAW_PACKET};
	a->dci_streams_caps = (struct mlx5dv_dci_streams_caps){4, 4};
	return rc;
}

struct ibv_qp *mlx5dv_create_qp(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *a, struct mlx5dv_qp_init_attr *m) {
	FAILS("mlx5dv_create_qp");
	const uint64_t ops = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE |
		IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
	const uint64_t known = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS | MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
	bool functions = a->comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, is_dc = m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_DC;
	int dc = is_dc ? (int)m->dc_init_attr.dc_type : 0;
	DEMAND((a->comp_mask & IBV_QP_INIT_ATTR_PD) && a->pd != NULL && a->pd->context == ctx);
	DEMAND(a->send_cq != NULL && a->recv_cq != NULL);
	DEMAND(is_dc == (a->qp_type == IBV_QPT_DRIVER));
	if ((a->comp_mask & ~(uint32_t)(IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS)) || (m->comp_mask & ~known) ||
	    (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS && m->create_flags & ~MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE))
		REFUSE(EINVAL);
	if (functions && (a->send_ops_flags & ~ops))
		REFUSE(EOPNOTSUPP);
	if (dc == MLX5DV_DCTYPE_DCT && (functions || a->srq == NULL || (m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS)))
		REFUSE(EINVAL);
	if (dc == MLX5DV_DCTYPE_DCI && (a->cap.max_recv_wr > 0 || a->srq != NULL))
		REFUSE(EINVAL);
	if (dc == MLX5DV_DCTYPE_DCI)
		DEMAND(functions && !(a->send_ops_flags & (IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV)));
	uint64_t special = m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS ? m->send_ops_flags : 0;
	if (special && (a->qp_type != IBV_QPT_RC || !functions || special & ~(uint64_t)(MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED)))
		REFUSE(EOPNOTSUPP);
	struct pair *p = make(ctx, a, dc);
	if (p == NULL)
		return NULL;
	p->functions = functions;
	p->layouts = special != 0;
	p->access_key = dc == MLX5DV_DCTYPE_DCT ? m->dc_init_attr.dct_access_key : 0;
	p->scatter = (a->qp_type == IBV_QPT_RC || a->qp_type == IBV_QPT_UC) &&
		!(m->comp_mask & MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS && m->create_flags & MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE);
	if (functions) {
		struct ibv_qp_ex *ex = &p->ex;
		ex->wr_start = wr_start;
		ex->wr_complete = wr_complete;
		ex->wr_abort = wr_abort;
		ex->wr_send = wr_send;
		ex->wr_send_imm = wr_send_imm;
		ex->wr_send_inv = wr_send_inv;
		ex->wr_rdma_write = wr_rdma_write;
		ex->wr_rdma_write_imm = wr_rdma_write_imm;
		ex->wr_rdma_read = wr_rdma_read;
		ex->wr_atomic_cmp_swp = wr_atomic_cmp_swp;
		ex->wr_atomic_fetch_add = wr_atomic_fetch_add;
		ex->wr_local_inv = wr_local_inv;
		ex->wr_set_sge_list = wr_set_sge_list;
		ex->wr_set_inline_data_list = wr_set_inline_data_list;
		p->dv.wr_set_dc_addr = wr_set_dc_addr;
		p->dv.wr_mr_interleaved = wr_mr_interleaved;
		p->dv.wr_mr_list = wr_mr_list;
	}
	return &p->ex.qp_base;
}

struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *ex) { return &((struct pair *)ex)->dv; }

#ifndef OLD
struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *a) {
	FAILS("mlx5dv_create_mkey");
	if (a->create_flags != MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT)
		REFUSE(EOPNOTSUPP);
	DEMAND(a->max_entries > 0);
	a->max_entries = (uint16_t)align_to(a->max_entries, 4);
	pthread_mutex_lock(&mu);
	struct key *k = new_key(a->pd, LAYOUT);
	if (k != NULL) {
		k->number &= ~0xffu; // mlx5dv keys have no variant
		k->room = a->max_entries;
		k->mkey.lkey = k->mkey.rkey = k->number;
	}
	pthread_mutex_unlock(&mu);
	return k == NULL ? NULL : &k->mkey;
}
int mlx5dv_destroy_mkey(struct mlx5dv_mkey *mkey) {
	int rc = result("mlx5dv_destroy_mkey");
	pthread_mutex_lock(&mu);
	if (rc == 0)
		drop_key((struct key *)mkey);
	pthread_mutex_unlock(&mu);
	return rc;
}
#endif
