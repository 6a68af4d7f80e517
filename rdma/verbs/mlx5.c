//go:build cgo

// For dladdr and dlvsym.
#define _GNU_SOURCE

#include "mlx5.h"

#include "abi.h"
#include "result.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifndef __GLIBC__
#define dlvsym(so, name, version) dlsym(so, name)
#endif

// The functions of libmlx5 that are used, with the versions that abi.h
// means. mlx5_qp_to_ex is libibverbs'.
#define MLX5_FUNCTIONS(X)                           \
	X(mlx5dv_is_supported, "MLX5_1.8")           \
	X(mlx5dv_query_device, "MLX5_1.0")           \
	X(mlx5dv_create_qp, "MLX5_1.3")              \
	X(mlx5dv_qp_ex_from_ibv_qp_ex, "MLX5_1.10")  \
	X(mlx5dv_create_mkey, "MLX5_1.10")           \
	X(mlx5dv_destroy_mkey, "MLX5_1.10")          \
	X(ibv_qp_to_qp_ex, "IBVERBS_1.6")

enum {
#define INDEX(name, version) FN_##name,
	MLX5_FUNCTIONS(INDEX)
#undef INDEX
	FN_COUNT
};
_Static_assert(FN_COUNT <= sizeof((gv_mlx5){0}.fn) / sizeof(uintptr_t), "gv_mlx5 has too few places");
_Static_assert(sizeof(gv_piece) == sizeof(struct mlx5dv_mr_interleaved) &&
	offsetof(gv_piece, skip) == offsetof(struct mlx5dv_mr_interleaved, bytes_skip) &&
	offsetof(gv_piece, lkey) == offsetof(struct mlx5dv_mr_interleaved, lkey), "mlx5dv_mr_interleaved");
_Static_assert(IBV_WR_DRIVER1 == 11 && MLX5DV_WC_UMR == 135, "what mkey.go has as numbers");

#define MLX5(name) ((__typeof__(name) *)m->fn[FN_##name])

static void *function(void *so, const char *name, const char *version) {
	void *f = dlvsym(so, name, version);
	return f != NULL ? f : dlsym(so, name);
}

// The library is the one that the device's driver is in, wherever and under
// whatever name libibverbs found it: no other libmlx5 may be asked about its
// objects.
int gv_mlx5_open(const gv_lib *lib, gv_handle handle, gv_mlx5 *m) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	Dl_info at;
	memset(m, 0, sizeof *m);
	if (dladdr((void *)ctx->ops.poll_cq, &at) == 0 || at.dli_fname == NULL)
		return ENOENT;
	snprintf(m->driver, sizeof m->driver, "%s", at.dli_fname);
	void *so = dlopen(at.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (so == NULL)
		return ENOENT;
#define FIND(name, version) \
	m->fn[FN_##name] = (uintptr_t)function(strncmp(#name, "ibv_", 4) == 0 ? (void *)lib->so : so, #name, version);
	MLX5_FUNCTIONS(FIND)
#undef FIND
	// The driver is in memory as long as its device is open: nobody needs a hold on it.
	dlclose(so);
	if (m->fn[FN_mlx5dv_is_supported] == 0 || !MLX5(mlx5dv_is_supported)(ctx->device))
		return ENODEV;
	return 0;
}

const char *gv_mlx5_lacks(const gv_mlx5 *m, int keys) {
	static const char *const names[] = {
#define NAME(name, version) #name,
		MLX5_FUNCTIONS(NAME)
#undef NAME
	};
	for (int i = 0; i < FN_COUNT; i++)
		if (m->fn[i] == 0 && (keys || (i != FN_mlx5dv_create_mkey && i != FN_mlx5dv_destroy_mkey)))
			return names[i];
	return NULL;
}

int gv_mlx5_query(const gv_mlx5 *m, gv_handle ctx, gv_mlx5_caps *out) {
	struct mlx5dv_context a;
	memset(&a, 0, sizeof a);
	a.comp_mask = MLX5DV_CONTEXT_MASK_STRIDING_RQ | MLX5DV_CONTEXT_MASK_DCI_STREAMS;
	errno = 0;
	int rc = error_of(MLX5(mlx5dv_query_device)((struct ibv_context *)ctx, &a));
	if (rc != 0)
		return rc;
	*out = (gv_mlx5_caps){
		.flags = a.flags,
		.striding = (a.comp_mask & MLX5DV_CONTEXT_MASK_STRIDING_RQ) && a.striding_rq_caps.max_single_wqe_log_num_of_strides > 0,
		.striding_qpts = a.striding_rq_caps.supported_qpts,
		.dci_streams = (a.comp_mask & MLX5DV_CONTEXT_MASK_DCI_STREAMS) && a.dci_streams_caps.max_log_num_concurent > 0,
	};
	return 0;
}

int gv_mlx5_create_qp(const gv_mlx5 *m, gv_handle handle, gv_qp_init *init, gv_mlx5_qp *how) {
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
	// Small payload that comes in a completion is copied by the library, to where
	// the addresses of the receive, or of the read, point in the process. Those of
	// regions with addresses of their own and of layouts point elsewhere.
	struct mlx5dv_qp_init_attr more = {
		.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
		.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
	};
	uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_RDMA_READ;
	if (how->atomics)
		ops |= IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	int functions = 0;
	switch (how->kind) {
	case GV_QP_DCT:
		attr.qp_type = IBV_QPT_DRIVER;
		more.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
		more.dc_init_attr.dct_access_key = how->access_key;
		break;
	case GV_QP_DCI:
		attr.qp_type = IBV_QPT_DRIVER;
		more.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_DC;
		more.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCI;
		functions = 1;
		break;
	case GV_QP_RC:
		if (how->layouts) {
			more.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS;
			more.send_ops_flags = MLX5DV_QP_EX_WITH_MR_LIST | MLX5DV_QP_EX_WITH_MR_INTERLEAVED;
			ops |= IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
			functions = 1;
		}
		break;
	}
	if (functions) {
		attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = ops;
	}
	errno = 0;
	struct ibv_qp *qp = MLX5(mlx5dv_create_qp)((struct ibv_context *)handle, &attr, &more);
	if (qp == NULL)
		return why();
	how->ex = how->direct = 0;
	if (functions) {
		struct ibv_qp_ex *ex = MLX5(ibv_qp_to_qp_ex)(qp);
		how->ex = (gv_handle)ex;
		how->direct = (gv_handle)MLX5(mlx5dv_qp_ex_from_ibv_qp_ex)(ex);
	}
	init->handle = (gv_handle)qp;
	init->num = qp->qp_num;
	init->max_send_wr = attr.cap.max_send_wr;
	init->max_recv_wr = attr.cap.max_recv_wr;
	init->max_send_sge = attr.cap.max_send_sge;
	init->max_recv_sge = attr.cap.max_recv_sge;
	init->max_inline = attr.cap.max_inline_data;
	return 0;
}

// A target has its number from RTR on.
int gv_qp_num(gv_handle qp, uint32_t *num) {
	*num = ((struct ibv_qp *)qp)->qp_num;
	return 0;
}

int gv_mlx5_create_mkey(const gv_mlx5 *m, gv_handle pd, uint16_t *entries, gv_handle *out, uint32_t *lkey, uint32_t *rkey) {
	struct mlx5dv_mkey_init_attr attr = {
		.pd = (struct ibv_pd *)pd, .create_flags = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT, .max_entries = *entries,
	};
	errno = 0;
	struct mlx5dv_mkey *key = MLX5(mlx5dv_create_mkey)(&attr);
	if (key == NULL)
		return why();
	*out = (gv_handle)key;
	*entries = attr.max_entries;
	*lkey = key->lkey;
	*rkey = key->rkey;
	return 0;
}

int gv_mlx5_destroy_mkey(const gv_mlx5 *m, gv_handle mkey) {
	errno = 0;
	return error_of(MLX5(mlx5dv_destroy_mkey)((struct mlx5dv_mkey *)mkey));
}

enum { MOST_SGES = 64 }; // more than a request of any device has

// build is one request between ibv_wr_start and ibv_wr_complete: the operation,
// then each of its setters once. What sets a layout or takes one back has none.
static int build(struct ibv_qp_ex *ex, struct mlx5dv_qp_ex *direct, const struct ibv_send_wr *wr) {
	const struct ibv_mw_bind_info *info = &wr->bind_mw.bind_info;
	ex->wr_id = wr->wr_id;
	ex->wr_flags = wr->send_flags;
	switch (wr->opcode) {
	case IBV_WR_RDMA_WRITE:
		ex->wr_rdma_write(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_WRITE_WITH_IMM:
		ex->wr_rdma_write_imm(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr, wr->imm_data);
		break;
	case IBV_WR_SEND:
		ex->wr_send(ex);
		break;
	case IBV_WR_SEND_WITH_IMM:
		ex->wr_send_imm(ex, wr->imm_data);
		break;
	case IBV_WR_SEND_WITH_INV:
		ex->wr_send_inv(ex, wr->invalidate_rkey);
		break;
	case IBV_WR_RDMA_READ:
		ex->wr_rdma_read(ex, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
		ex->wr_atomic_cmp_swp(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add, wr->wr.atomic.swap);
		break;
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		ex->wr_atomic_fetch_add(ex, wr->wr.atomic.rkey, wr->wr.atomic.remote_addr, wr->wr.atomic.compare_add);
		break;
	case IBV_WR_LOCAL_INV:
		ex->wr_local_inv(ex, wr->invalidate_rkey);
		return 0;
	case IBV_WR_BIND_MW:
		ex->wr_bind_mw(ex, wr->bind_mw.mw, wr->bind_mw.rkey, info);
		return 0;
	case IBV_WR_DRIVER1:
		ex->wr_flags |= IBV_SEND_INLINE; // the layout is in the request: mlx5dv_wr_post(3)
		if (wr->bind_mw.rkey == 0)
			direct->wr_mr_list(direct, (struct mlx5dv_mkey *)wr->bind_mw.mw, info->mw_access_flags, (uint16_t)info->length,
				(struct ibv_sge *)(uintptr_t)info->addr);
		else
			direct->wr_mr_interleaved(direct, (struct mlx5dv_mkey *)wr->bind_mw.mw, info->mw_access_flags, wr->bind_mw.rkey,
				(uint16_t)info->length, (struct mlx5dv_mr_interleaved *)(uintptr_t)info->addr);
		return 0;
	default:
		return EINVAL;
	}
	if (wr->send_flags & IBV_SEND_INLINE) {
		struct ibv_data_buf bytes[MOST_SGES];
		if (wr->num_sge > MOST_SGES)
			return EINVAL;
		for (int i = 0; i < wr->num_sge; i++)
			bytes[i] = (struct ibv_data_buf){(void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length};
		ex->wr_set_inline_data_list(ex, (size_t)wr->num_sge, bytes);
	} else {
		ex->wr_set_sge_list(ex, (size_t)wr->num_sge, wr->sg_list);
	}
	if (ex->qp_base.qp_type == IBV_QPT_DRIVER)
		direct->wr_set_dc_addr(direct, (struct ibv_ah *)wr->bind_mw.mw, wr->bind_mw.rkey, info->addr);
	return 0;
}

uint64_t gv_mlx5_post_send(gv_handle handle, gv_handle direct, uintptr_t list, uint32_t n) {
	struct ibv_qp_ex *ex = (struct ibv_qp_ex *)handle;
	const struct ibv_send_wr *wrs = (const struct ibv_send_wr *)list;
	uint32_t taken = 0, step = n; // all together, and when that fails one by one
	while (taken < n) {
		int rc = 0;
		ex->wr_start(ex);
		for (uint32_t i = 0; i < step && rc == 0; i++)
			rc = build(ex, (struct mlx5dv_qp_ex *)direct, &wrs[taken + i]);
		if (rc != 0)
			ex->wr_abort(ex);
		else
			rc = ex->wr_complete(ex);
		if (rc == 0)
			taken += step;
		else if (step == 1)
			return packed(rc, taken);
		else
			step = 1;
	}
	return n;
}
