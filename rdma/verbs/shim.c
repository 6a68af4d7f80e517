//go:build cgo

// For dlvsym.
#define _GNU_SOURCE

#include "shim.h"

#include "abi.h"
#include "result.h"

#include <dlfcn.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

#ifndef __GLIBC__
#define dlvsym(so, name, version) dlsym(so, name)
#endif

// What a driver has, for its objects.
#define OPS(object) ((object)->context->ops)

// The functions of libibverbs that are used, with their types. The library
// keeps old versions of most under the same names, for programs of before
// 2007; IBVERBS_1.1 is the one that abi.h means.
#define FUNCTIONS(X)               \
	X(get_device_list, 1)       \
	X(free_device_list, 1)      \
	X(get_device_name, 1)       \
	X(open_device, 1)           \
	X(close_device, 1)          \
	X(get_async_event, 1)       \
	X(ack_async_event, 1)       \
	X(query_device, 1)          \
	X(query_port, 1)            \
	X(query_gid, 1)             \
	X(alloc_pd, 1)              \
	X(dealloc_pd, 1)            \
	X(reg_mr, 1)                \
	X(dereg_mr, 1)              \
	X(create_comp_channel, 1)   \
	X(destroy_comp_channel, 1)  \
	X(create_cq, 1)             \
	X(resize_cq, 1)             \
	X(destroy_cq, 1)            \
	X(get_cq_event, 1)          \
	X(ack_cq_events, 1)         \
	X(create_srq, 1)            \
	X(modify_srq, 1)            \
	X(query_srq, 1)             \
	X(destroy_srq, 1)           \
	X(create_qp, 1)             \
	X(modify_qp, 1)             \
	X(query_qp, 1)              \
	X(destroy_qp, 1)            \
	X(create_ah, 1)             \
	X(destroy_ah, 1)            \
	X(rereg_mr, 0)              \
	X(reg_mr_iova, 0)           \
	X(reg_mr_iova2, 0)          \
	X(reg_dmabuf_mr, 0)

enum {
#define INDEX(name, required) FN_##name,
	FUNCTIONS(INDEX)
#undef INDEX
	FN_COUNT
};
_Static_assert(FN_COUNT <= sizeof((gv_lib){0}.fn) / sizeof(uintptr_t), "gv_lib has too few places");

// LIB(name) is the function ibv_name of the library lib.
#define LIB(name) ((__typeof__(ibv_##name) *)lib->fn[FN_##name])

// What Go writes and reads of the verbs' own structures, see wire_unsafe.go: as they
// are on a 64-bit machine.
#ifdef __LP64__
_Static_assert(sizeof(struct ibv_sge) == 16, "ibv_sge");
_Static_assert(sizeof(struct ibv_recv_wr) == 32 && offsetof(struct ibv_recv_wr, num_sge) == 24, "ibv_recv_wr");
_Static_assert(sizeof(struct ibv_send_wr) == 128 && offsetof(struct ibv_send_wr, opcode) == 28 &&
	offsetof(struct ibv_send_wr, imm_data) == 36 && offsetof(struct ibv_send_wr, wr.rdma.rkey) == 48 &&
	offsetof(struct ibv_send_wr, wr.atomic.rkey) == 64 && offsetof(struct ibv_send_wr, wr.ud.remote_qkey) == 52 &&
	offsetof(struct ibv_send_wr, qp_type.xrc.remote_srqn) == 72 && offsetof(struct ibv_send_wr, bind_mw.mw) == 80 &&
	offsetof(struct ibv_send_wr, bind_mw.bind_info.mw_access_flags) == 120, "ibv_send_wr");
_Static_assert(sizeof(struct ibv_wc) == 48 && offsetof(struct ibv_wc, wc_flags) == 36, "ibv_wc");
_Static_assert(sizeof(struct ibv_async_event) <= 24, "ibv_async_event");
#endif

int gv_open(const char *path, gv_lib *lib, char *err, size_t size) {
#ifndef __LP64__
	snprintf(err, size, "this program was built for a 32-bit machine");
	return ENOENT;
#endif
	void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (so == NULL) {
		snprintf(err, size, "%s", dlerror());
		return ENOENT;
	}
	// IBVERBS_1.0 alone is a library of before 2007, with other structures.
	if (dlvsym(so, "ibv_open_device", "IBVERBS_1.1") == NULL && dlvsym(so, "ibv_open_device", "IBVERBS_1.0") != NULL) {
		snprintf(err, size, "%s has the interface IBVERBS_1.0, want IBVERBS_1.1", path);
		dlclose(so);
		return ENOENT;
	}
	lib->so = (uintptr_t)so;
#define FIND(name, required)                                                       \
	lib->fn[FN_##name] = (uintptr_t)dlvsym(so, "ibv_" #name, "IBVERBS_1.1");         \
	if (lib->fn[FN_##name] == 0)                                                     \
		lib->fn[FN_##name] = (uintptr_t)dlsym(so, "ibv_" #name);                 \
	if (required && lib->fn[FN_##name] == 0) {                                       \
		snprintf(err, size, "%s has no function ibv_%s", path, #name);           \
		dlclose(so);                                                             \
		return ENOENT;                                                           \
	}
	FUNCTIONS(FIND)
#undef FIND
	return 0;
}

int gv_get_device_list(const gv_lib *lib, gv_device *out, int max, int *n) {
	errno = 0;
	struct ibv_device **list = LIB(get_device_list)(n);
	if (list == NULL) {
		*n = 0;
		return why();
	}
	for (int i = 0; i < *n && i < max; i++)
		snprintf(out[i].name, sizeof out[i].name, "%s", LIB(get_device_name)(list[i]));
	LIB(free_device_list)(list);
	return 0;
}

int gv_open_device(const gv_lib *lib, const char *name, gv_context *out) {
	int n = 0, rc = ENODEV;
	errno = 0;
	struct ibv_device **list = LIB(get_device_list)(&n);
	if (list == NULL)
		return why();
	for (int i = 0; i < n; i++) {
		if (strcmp(LIB(get_device_name)(list[i]), name) != 0)
			continue;
		errno = 0;
		struct ibv_context *ctx = LIB(open_device)(list[i]);
		rc = ctx == NULL ? why() : 0;
		if (ctx != NULL)
			*out = (gv_context){(gv_handle)ctx, ctx->async_fd};
		break;
	}
	LIB(free_device_list)(list);
	return rc;
}

int gv_close_device(const gv_lib *lib, gv_handle ctx) {
	return error_of(LIB(close_device)((struct ibv_context *)ctx));
}

int gv_query_device(const gv_lib *lib, gv_handle handle, gv_device_attr *out) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	struct ibv_device_attr_ex ex;
	memset(&ex, 0, sizeof ex);
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_device_ex);
	int rc = vctx == NULL ? EOPNOTSUPP : error_of(vctx->query_device_ex(ctx, NULL, &ex, sizeof ex));
	memset(out, 0, sizeof *out);
	out->extended = rc == 0;
	if (rc == EOPNOTSUPP || rc == ENOSYS) {
		memset(&ex, 0, sizeof ex);
		rc = error_of(LIB(query_device)(ctx, &ex.orig_attr));
	}
	if (rc != 0)
		return rc;
	const struct ibv_device_attr *a = &ex.orig_attr;
	snprintf(out->fw_ver, sizeof out->fw_ver, "%.63s", a->fw_ver);
	out->node_guid = be64toh(a->node_guid);
	out->max_mr_size = a->max_mr_size;
	out->clock_khz = ex.hca_core_clock;
	out->cap_flags = (uint32_t)a->device_cap_flags;
	out->vendor_id = a->vendor_id;
	out->max_qp = a->max_qp;
	out->max_qp_wr = a->max_qp_wr;
	out->max_sge = a->max_sge;
	out->max_sge_rd = a->max_sge_rd;
	out->max_cq = a->max_cq;
	out->max_cqe = a->max_cqe;
	out->max_mr = a->max_mr;
	out->max_pd = a->max_pd;
	out->max_qp_rd_atom = a->max_qp_rd_atom;
	out->max_qp_init_rd_atom = a->max_qp_init_rd_atom;
	out->atomic_cap = a->atomic_cap;
	out->max_mw = a->max_mw;
	out->max_ah = a->max_ah;
	out->max_srq = a->max_srq;
	out->max_srq_wr = a->max_srq_wr;
	out->max_srq_sge = a->max_srq_sge;
	out->ports = a->phys_port_cnt;
	out->odp_general = ex.odp_caps.general_caps;
	out->odp_rc = ex.odp_caps.per_transport_caps.rc_odp_caps;
	out->tm_tags = ex.tm_caps.max_num_tags;
	out->tm_ops = ex.tm_caps.max_ops;
	out->tm_sge = ex.tm_caps.max_sge;
	out->tm_rndv_hdr = ex.tm_caps.max_rndv_hdr_size;
	out->tm_flags = ex.tm_caps.flags;
	return 0;
}

int gv_query_port(const gv_lib *lib, gv_handle handle, uint8_t port, gv_port_attr *out) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	struct ibv_port_attr a;
	memset(&a, 0, sizeof a);
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, query_port);
	int rc = vctx != NULL ? vctx->query_port(ctx, port, &a, sizeof a) : LIB(query_port)(ctx, port, (void *)&a);
	if (rc != 0)
		return error_of(rc);
	*out = (gv_port_attr){
		.state = a.state, .max_mtu = a.max_mtu, .active_mtu = a.active_mtu, .gid_tbl_len = a.gid_tbl_len,
		.pkey_tbl_len = a.pkey_tbl_len, .ethernet = a.link_layer == IBV_LINK_LAYER_ETHERNET,
		.max_msg_sz = a.max_msg_sz, .lid = a.lid,
	};
	return 0;
}

int gv_query_gid(const gv_lib *lib, gv_handle ctx, uint8_t port, int index, uint8_t *out) {
	union ibv_gid gid;
	errno = 0;
	int rc = LIB(query_gid)((struct ibv_context *)ctx, port, index, &gid);
	memcpy(out, gid.raw, 16);
	return error_of(rc);
}

// The event's object, whose address may be used again once the event is
// acknowledged: Go looks it up in between.
int gv_get_async_event(const gv_lib *lib, gv_handle ctx, gv_async_event *out, void *raw) {
	struct ibv_async_event *e = raw;
	errno = 0;
	if (LIB(get_async_event)((struct ibv_context *)ctx, e) != 0)
		return why();
	*out = (gv_async_event){.type = e->event_type};
	switch (e->event_type) {
	case IBV_EVENT_CQ_ERR:
		out->cq = (gv_handle)e->element.cq;
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->qp = (gv_handle)e->element.qp;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->srq = (gv_handle)e->element.srq;
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out->port = e->element.port_num;
		break;
	default:
		break;
	}
	return 0;
}

int gv_ack_async_event(const gv_lib *lib, void *raw) {
	LIB(ack_async_event)(raw);
	return 0;
}

int gv_alloc_pd(const gv_lib *lib, gv_handle ctx, gv_handle *out) {
	errno = 0;
	*out = (gv_handle)LIB(alloc_pd)((struct ibv_context *)ctx);
	return *out == 0 ? why() : 0;
}

int gv_dealloc_pd(const gv_lib *lib, gv_handle pd) {
	return error_of(LIB(dealloc_pd)((struct ibv_pd *)pd));
}

int gv_reg_mr(const gv_lib *lib, gv_handle handle, gv_mr *mr) {
	struct ibv_pd *pd = (struct ibv_pd *)handle;
	struct ibv_mr *made = NULL;
	errno = 0;
	switch (mr->kind) {
	case GV_MR_PLAIN:
		made = LIB(reg_mr)(pd, (void *)mr->addr, mr->length, (int)mr->access);
		break;
	case GV_MR_IOVA:
		if (lib->fn[FN_reg_mr_iova2] != 0)
			made = LIB(reg_mr_iova2)(pd, (void *)mr->addr, mr->length, mr->iova, mr->access);
		else if (lib->fn[FN_reg_mr_iova] != 0)
			made = LIB(reg_mr_iova)(pd, (void *)mr->addr, mr->length, mr->iova, (int)mr->access);
		else
			return EOPNOTSUPP;
		break;
	case GV_MR_DMABUF:
		if (lib->fn[FN_reg_dmabuf_mr] == 0)
			return EOPNOTSUPP;
		made = LIB(reg_dmabuf_mr)(pd, mr->offset, mr->length, mr->iova, mr->fd, (int)mr->access);
		break;
	}
	if (made == NULL)
		return why();
	mr->handle = (gv_handle)made;
	mr->lkey = made->lkey;
	mr->rkey = made->rkey;
	return 0;
}

int gv_rereg_mr(const gv_lib *lib, gv_handle handle, int flags, gv_handle pd, gv_mr *to, int *spoilt) {
	struct ibv_mr *mr = (struct ibv_mr *)handle;
	*spoilt = 0;
	if (lib->fn[FN_rereg_mr] == 0)
		return EOPNOTSUPP;
	errno = 0;
	int rc = LIB(rereg_mr)(mr, flags, (struct ibv_pd *)pd, (void *)to->addr, to->length, (int)to->access);
	to->lkey = mr->lkey;
	to->rkey = mr->rkey;
	*spoilt = rc == IBV_REREG_MR_ERR_CMD || rc == IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW;
	// The new region is valid; only a fork would not see the old memory.
	return rc == 0 || rc == IBV_REREG_MR_ERR_DO_FORK_OLD ? 0 : why();
}

int gv_dereg_mr(const gv_lib *lib, gv_handle mr) {
	return error_of(LIB(dereg_mr)((struct ibv_mr *)mr));
}

int gv_advise_mr(gv_handle handle, int advice, uint32_t flags, void *sgl, uint32_t n) {
	struct ibv_pd *pd = (struct ibv_pd *)handle;
	struct verbs_context *vctx = verbs_get_ctx_op(pd->context, advise_mr);
	if (vctx == NULL)
		return EOPNOTSUPP;
	return error_of(vctx->advise_mr(pd, advice, flags, sgl, n));
}

int gv_alloc_mw(gv_handle pd, int type, gv_handle *out, uint32_t *rkey) {
	struct ibv_pd *of = (struct ibv_pd *)pd;
	if (OPS(of).alloc_mw == NULL)
		return EOPNOTSUPP;
	errno = 0;
	struct ibv_mw *mw = OPS(of).alloc_mw(of, type);
	if (mw == NULL)
		return why();
	*out = (gv_handle)mw;
	*rkey = mw->rkey;
	return 0;
}

int gv_dealloc_mw(gv_handle handle) {
	struct ibv_mw *mw = (struct ibv_mw *)handle;
	return error_of(OPS(mw).dealloc_mw(mw));
}

// A window of type 2 has the key of its last bind by the program's hand: drivers
// find it by that key at the next one.
int gv_set_rkey_of_mw(gv_handle mw, uint32_t rkey) {
	((struct ibv_mw *)mw)->rkey = rkey;
	return 0;
}

int gv_bind_mw(gv_handle qp, gv_handle handle, const gv_bind *b, uint32_t *rkey) {
	struct ibv_mw *mw = (struct ibv_mw *)handle;
	struct ibv_mw_bind bind = {
		.wr_id = b->wr_id, .send_flags = b->send_flags,
		.bind_info = {(struct ibv_mr *)b->mr, b->addr, b->length, b->access},
	};
	// What libibverbs itself asks for.
	if (mw->type != IBV_MW_TYPE_1 || (b->mr == 0 && (b->addr != 0 || b->length != 0)))
		return EINVAL;
	if (b->mr != 0 && ((struct ibv_mr *)b->mr)->pd != mw->pd)
		return EPERM;
	// librxe reads the lkey of the region that an unbinding does not have; its
	// kernel half takes key 0 for none.
	struct ibv_mr none = {.context = mw->context, .pd = mw->pd};
	if (b->mr == 0 && b->stand_in)
		bind.bind_info.mr = &none;
	int rc = error_of(OPS(mw).bind_mw((struct ibv_qp *)qp, mw, &bind));
	*rkey = mw->rkey;
	return rc;
}

static struct ibv_ah_attr ah_attr(const gv_ah_attr *a) {
	struct ibv_ah_attr to = {
		.is_global = 1, .port_num = a->port, .dlid = a->dlid,
		.grh = {.sgid_index = a->sgid_index, .hop_limit = a->hop_limit},
	};
	memcpy(to.grh.dgid.raw, a->dgid, 16);
	return to;
}

int gv_create_ah(const gv_lib *lib, gv_handle pd, const gv_ah_attr *attr, gv_handle *out) {
	struct ibv_ah_attr a = ah_attr(attr);
	errno = 0;
	*out = (gv_handle)LIB(create_ah)((struct ibv_pd *)pd, &a);
	return *out == 0 ? why() : 0;
}

int gv_destroy_ah(const gv_lib *lib, gv_handle ah) {
	return error_of(LIB(destroy_ah)((struct ibv_ah *)ah));
}

int gv_create_comp_channel(const gv_lib *lib, gv_handle ctx, gv_handle *out, int *fd) {
	errno = 0;
	struct ibv_comp_channel *ch = LIB(create_comp_channel)((struct ibv_context *)ctx);
	if (ch == NULL)
		return why();
	*out = (gv_handle)ch;
	*fd = ch->fd;
	return 0;
}

int gv_destroy_comp_channel(const gv_lib *lib, gv_handle channel) {
	return error_of(LIB(destroy_comp_channel)((struct ibv_comp_channel *)channel));
}

// The queue stays as it is until the event is acknowledged: Go looks it up in
// between.
int gv_get_cq_event(const gv_lib *lib, gv_handle channel, gv_handle *cq) {
	struct ibv_cq *from = NULL;
	void *context = NULL;
	errno = 0;
	if (LIB(get_cq_event)((struct ibv_comp_channel *)channel, &from, &context) != 0)
		return why();
	*cq = (gv_handle)from;
	return 0;
}

int gv_ack_cq_event(const gv_lib *lib, gv_handle cq) {
	LIB(ack_cq_events)((struct ibv_cq *)cq, 1);
	return 0;
}

int gv_create_cq(const gv_lib *lib, gv_handle handle, gv_cq_init *init) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	struct ibv_cq *cq = NULL;
	errno = 0;
	if (!init->extended) {
		cq = LIB(create_cq)(ctx, init->cqe, NULL, (struct ibv_comp_channel *)init->channel, 0);
	} else {
		struct verbs_context *vctx = verbs_get_ctx_op(ctx, create_cq_ex);
		if (vctx == NULL)
			return EOPNOTSUPP;
		struct ibv_cq_init_attr_ex attr = {
			.cqe = init->cqe, .channel = (struct ibv_comp_channel *)init->channel,
			.wc_flags = IBV_WC_STANDARD_FLAGS | (init->timestamps ? IBV_WC_EX_WITH_COMPLETION_TIMESTAMP : 0) |
				(init->tags ? IBV_WC_EX_WITH_TM_INFO : 0),
		};
		if (init->ignore_overrun) {
			attr.comp_mask |= IBV_CQ_INIT_ATTR_MASK_FLAGS;
			attr.flags |= IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
		}
		struct ibv_cq_ex *ex = vctx->create_cq_ex(ctx, &attr);
		cq = (struct ibv_cq *)ex; // which begins as one
	}
	if (cq == NULL)
		return why();
	init->handle = (gv_handle)cq;
	init->cqe = cq->cqe;
	return 0;
}

int gv_resize_cq(const gv_lib *lib, gv_handle handle, int *cqe) {
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	int rc = error_of(LIB(resize_cq)(cq, *cqe));
	*cqe = cq->cqe;
	return rc;
}

int gv_req_notify_cq(gv_handle handle, int solicited) {
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	return error_of(OPS(cq).req_notify_cq(cq, solicited));
}

int gv_destroy_cq(const gv_lib *lib, gv_handle cq) {
	return error_of(LIB(destroy_cq)((struct ibv_cq *)cq));
}

int gv_create_srq(const gv_lib *lib, gv_handle handle, gv_srq_init *init) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = init->max_wr, .max_sge = init->max_sge, .srq_limit = init->limit},
	};
	struct ibv_srq *srq;
	errno = 0;
	if (!init->xrc) {
		srq = LIB(create_srq)((struct ibv_pd *)init->pd, (struct ibv_srq_init_attr *)&attr);
	} else {
		struct verbs_context *vctx = verbs_get_ctx_op(ctx, create_srq_ex);
		if (vctx == NULL)
			return EOPNOTSUPP;
		attr.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.srq_type = IBV_SRQT_XRC;
		attr.pd = (struct ibv_pd *)init->pd;
		attr.xrcd = (struct ibv_xrcd *)init->xrcd;
		attr.cq = (struct ibv_cq *)init->cq;
		srq = vctx->create_srq_ex(ctx, &attr);
	}
	if (srq == NULL)
		return why();
	init->handle = (gv_handle)srq;
	init->max_wr = attr.attr.max_wr;
	init->max_sge = attr.attr.max_sge;
	init->num = 0;
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, get_srq_num);
	if (init->xrc && vctx != NULL)
		vctx->get_srq_num(srq, &init->num);
	return 0;
}

int gv_modify_srq(const gv_lib *lib, gv_handle srq, uint32_t max_wr, uint32_t limit, int mask) {
	struct ibv_srq_attr attr = {.max_wr = max_wr, .srq_limit = limit};
	return error_of(LIB(modify_srq)((struct ibv_srq *)srq, &attr, mask));
}

int gv_query_srq(const gv_lib *lib, gv_handle srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit) {
	struct ibv_srq_attr attr = {0};
	int rc = error_of(LIB(query_srq)((struct ibv_srq *)srq, &attr));
	*max_wr = attr.max_wr;
	*max_sge = attr.max_sge;
	*limit = attr.srq_limit;
	return rc;
}

int gv_destroy_srq(const gv_lib *lib, gv_handle srq) {
	return error_of(LIB(destroy_srq)((struct ibv_srq *)srq));
}

int gv_open_xrcd(gv_handle ctx, int fd, int oflags, gv_handle *out) {
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags,
	};
	struct verbs_context *vctx = verbs_get_ctx_op((struct ibv_context *)ctx, open_xrcd);
	if (vctx == NULL)
		return EOPNOTSUPP;
	errno = 0;
	*out = (gv_handle)vctx->open_xrcd((struct ibv_context *)ctx, &attr);
	return *out == 0 ? why() : 0;
}

int gv_close_xrcd(gv_handle handle) {
	struct ibv_xrcd *xrcd = (struct ibv_xrcd *)handle;
	struct verbs_context *vctx = verbs_get_ctx_op(xrcd->context, close_xrcd);
	return vctx == NULL ? EOPNOTSUPP : error_of(vctx->close_xrcd(xrcd));
}

int gv_create_qp(const gv_lib *lib, gv_handle handle, gv_qp_init *init) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = (struct ibv_cq *)init->send_cq, .recv_cq = (struct ibv_cq *)init->recv_cq,
		.srq = (struct ibv_srq *)init->srq, .qp_type = init->type, .sq_sig_all = init->sig_all,
		.cap = {
			.max_send_wr = init->max_send_wr, .max_recv_wr = init->max_recv_wr,
			.max_send_sge = init->max_send_sge, .max_recv_sge = init->max_recv_sge,
			.max_inline_data = init->max_inline,
		},
		.comp_mask = IBV_QP_INIT_ATTR_PD, .pd = (struct ibv_pd *)init->pd,
	};
	struct ibv_qp *qp;
	errno = 0;
	if (init->type == IBV_QPT_XRC_RECV || init->type == IBV_QPT_XRC_SEND) {
		struct verbs_context *vctx = verbs_get_ctx_op(ctx, create_qp_ex);
		if (vctx == NULL)
			return EOPNOTSUPP;
		if (init->type == IBV_QPT_XRC_RECV) {
			attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
			attr.xrcd = (struct ibv_xrcd *)init->xrcd;
		}
		qp = vctx->create_qp_ex(ctx, &attr);
	} else {
		// The extended structure begins as the other one does.
		qp = LIB(create_qp)((struct ibv_pd *)init->pd, (struct ibv_qp_init_attr *)&attr);
	}
	if (qp == NULL)
		return why();
	init->handle = (gv_handle)qp;
	init->num = qp->qp_num;
	init->max_send_wr = attr.cap.max_send_wr;
	init->max_recv_wr = attr.cap.max_recv_wr;
	init->max_send_sge = attr.cap.max_send_sge;
	init->max_recv_sge = attr.cap.max_recv_sge;
	init->max_inline = attr.cap.max_inline_data;
	return 0;
}

int gv_open_qp(gv_handle ctx, uint32_t num, gv_handle xrcd, gv_handle *out) {
	struct ibv_qp_open_attr attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = num, .xrcd = (struct ibv_xrcd *)xrcd, .qp_type = IBV_QPT_XRC_RECV,
	};
	struct verbs_context *vctx = verbs_get_ctx_op((struct ibv_context *)ctx, open_qp);
	if (vctx == NULL)
		return EOPNOTSUPP;
	errno = 0;
	*out = (gv_handle)vctx->open_qp((struct ibv_context *)ctx, &attr);
	return *out == 0 ? why() : 0;
}

int gv_modify_qp(const gv_lib *lib, gv_handle qp, const gv_qp_attr *a, int mask) {
	struct ibv_qp_attr attr = {
		.qp_state = a->state, .path_mtu = a->mtu, .qkey = a->qkey, .rq_psn = a->rq_psn, .sq_psn = a->sq_psn,
		.dest_qp_num = a->dest_qpn, .qp_access_flags = a->access, .pkey_index = a->pkey_index,
		.en_sqd_async_notify = a->sqd_notify, .max_rd_atomic = a->max_rd_atomic,
		.max_dest_rd_atomic = a->max_dest_rd_atomic, .min_rnr_timer = a->min_rnr_timer, .port_num = a->port,
		.timeout = a->timeout, .retry_cnt = a->retry_cnt, .rnr_retry = a->rnr_retry,
	};
	if (mask & IBV_QP_AV)
		attr.ah_attr = ah_attr(&a->av);
	return error_of(LIB(modify_qp)((struct ibv_qp *)qp, &attr, mask));
}

int gv_query_qp_state(const gv_lib *lib, gv_handle qp, int *state) {
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	memset(&attr, 0, sizeof attr);
	int rc = error_of(LIB(query_qp)((struct ibv_qp *)qp, &attr, IBV_QP_STATE, &init));
	*state = attr.qp_state;
	return rc;
}

int gv_destroy_qp(const gv_lib *lib, gv_handle qp) {
	return error_of(LIB(destroy_qp)((struct ibv_qp *)qp));
}

uint64_t gv_post_send(gv_handle handle, uintptr_t list, uint32_t n) {
	struct ibv_qp *qp = (struct ibv_qp *)handle;
	struct ibv_send_wr *bad = NULL;
	int rc = OPS(qp).post_send(qp, (struct ibv_send_wr *)list, &bad);
	return result(rc, list, bad, sizeof *bad, n);
}

uint64_t gv_post_recv(gv_handle handle, uintptr_t list, uint32_t n) {
	struct ibv_qp *qp = (struct ibv_qp *)handle;
	struct ibv_recv_wr *bad = NULL;
	int rc = OPS(qp).post_recv(qp, (struct ibv_recv_wr *)list, &bad);
	return result(rc, list, bad, sizeof *bad, n);
}

uint64_t gv_post_srq_recv(gv_handle handle, uintptr_t list, uint32_t n) {
	struct ibv_srq *srq = (struct ibv_srq *)handle;
	struct ibv_recv_wr *bad = NULL;
	int rc = OPS(srq).post_srq_recv(srq, (struct ibv_recv_wr *)list, &bad);
	return result(rc, list, bad, sizeof *bad, n);
}

int gv_poll_cq(gv_handle handle, uintptr_t list, int n) {
	struct ibv_cq *cq = (struct ibv_cq *)handle;
	return OPS(cq).poll_cq(cq, n, (struct ibv_wc *)list);
}

int gv_poll_cq_ex(gv_handle handle, uintptr_t list, int n, int timestamps, int tags) {
	struct ibv_cq_ex *cq = (struct ibv_cq_ex *)handle; // begins as struct ibv_cq
	struct ibv_poll_cq_attr attr = {0};
	int rc = cq->start_poll(cq, &attr);
	if (rc == ENOENT)
		return 0;
	int got = 0;
	while (rc == 0) {
		gv_wc_ex *wc = (gv_wc_ex *)list + got++;
		wc->wr_id = cq->wr_id;
		wc->status = cq->status;
		wc->vendor_err = cq->read_vendor_err(cq);
		wc->qp_num = cq->read_qp_num(cq);
		wc->opcode = wc->byte_len = wc->imm = wc->src_qp = wc->flags = 0;
		wc->timestamp = wc->tag = wc->app_ctx = 0;
		// A rendezvous that software has to finish tells of itself too.
		if (cq->status == IBV_WC_SUCCESS || cq->status == IBV_WC_TM_RNDV_INCOMPLETE) {
			wc->opcode = cq->read_opcode(cq);
			wc->byte_len = cq->read_byte_len(cq);
			wc->flags = cq->read_wc_flags(cq);
			wc->imm = cq->read_imm_data(cq);
			wc->src_qp = cq->read_src_qp(cq);
			if (timestamps)
				wc->timestamp = cq->read_completion_ts(cq);
			if (tags && (wc->opcode == IBV_WC_TM_RECV || wc->opcode == IBV_WC_TM_NO_TAG)) {
				struct ibv_wc_tm_info info = {0};
				cq->read_tm_info(cq, &info);
				wc->tag = info.tag;
				wc->app_ctx = info.priv;
			}
		}
		if (got == n)
			break;
		rc = cq->next_poll(cq);
	}
	if (got > 0)
		cq->end_poll(cq);
	return rc == 0 || rc == ENOENT ? got : -error_of(rc);
}
