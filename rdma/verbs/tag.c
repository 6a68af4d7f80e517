//go:build cgo

#include "tag.h"

#include "abi.h"
#include "result.h"

int gv_create_tm_srq(gv_handle handle, gv_srq_init *init, uint32_t tags, uint32_t ops) {
	struct ibv_context *ctx = (struct ibv_context *)handle;
	struct verbs_context *vctx = verbs_get_ctx_op(ctx, create_srq_ex);
	if (vctx == NULL)
		return EOPNOTSUPP;
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = init->max_wr, .max_sge = init->max_sge, .srq_limit = init->limit},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM,
		.srq_type = IBV_SRQT_TM, .pd = (struct ibv_pd *)init->pd, .cq = (struct ibv_cq *)init->cq,
		.tm_cap = {.max_num_tags = tags, .max_ops = ops},
	};
	errno = 0;
	struct ibv_srq *srq = vctx->create_srq_ex(ctx, &attr);
	if (srq == NULL)
		return why();
	init->handle = (gv_handle)srq;
	init->max_wr = attr.attr.max_wr;
	init->max_sge = attr.attr.max_sge;
	init->num = 0;
	return 0;
}

uint64_t gv_post_srq_ops(gv_handle handle, uintptr_t list, uint32_t n) {
	struct ibv_srq *srq = (struct ibv_srq *)handle;
	struct verbs_context *vctx = verbs_get_ctx_op(srq->context, post_srq_ops);
	struct ibv_ops_wr wrs[GV_MOST_OPS], *bad = NULL;
	gv_op *ops = (gv_op *)list;
	if (vctx == NULL)
		return packed(EOPNOTSUPP, 0);
	if (n > GV_MOST_OPS)
		return packed(EINVAL, 0);
	for (uint32_t i = 0; i < n; i++) {
		const gv_op *op = &ops[i];
		wrs[i] = (struct ibv_ops_wr){
			.wr_id = op->wr_id, .next = i + 1 < n ? &wrs[i + 1] : NULL, .opcode = op->opcode, .flags = op->flags,
			.tm = {
				.unexpected_cnt = op->unexpected, .handle = op->handle,
				.add = {.recv_wr_id = op->recv_wr_id, .sg_list = (struct ibv_sge *)op->sgl, .num_sge = op->num_sge, .tag = op->tag, .mask = op->mask},
			},
		};
	}
	int rc = vctx->post_srq_ops(srq, wrs, &bad);
	uint64_t taken = result(rc, (uintptr_t)wrs, bad, sizeof wrs[0], n);
	for (uint32_t i = 0; i < (uint32_t)taken; i++)
		ops[i].handle = wrs[i].tm.handle;
	return taken;
}
