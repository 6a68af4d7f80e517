// What is destroyed twice, in the wrong order, while in use, or is none.
#include "../../verbs/abi.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;

#define WANT(call, error)                                                                         \
	do {                                                                                      \
		int got_ = (call);                                                                \
		if (got_ != (error))                                                              \
			failed = 1, printf("line %d: %s gave %d, want %d\n", __LINE__, #call, got_, error); \
	} while (0)
#define WANT_NULL(call, error)                                                                    \
	do {                                                                                      \
		errno = 0;                                                                        \
		if ((call) != NULL || errno != (error))                                           \
			failed = 1, printf("line %d: %s: errno %d, want NULL and %d\n", __LINE__, #call, errno, error); \
	} while (0)

int main(void) {
	static char memory[4096];
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list == NULL || n < 1)
		return printf("no device\n"), 1;
	struct ibv_context *ctx = ibv_open_device(list[0]);
	ibv_free_device_list(list);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, channel, 0);
	struct ibv_srq_init_attr si = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &si);
	struct ibv_qp_init_attr qi = {.send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = 2, .cap = {.max_send_wr = 8, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qi);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, 7);
	if (!ctx || !pd || !channel || !cq || !srq || !qp || !mr)
		return printf("an object could not be made\n"), 1;

	// In use.
	WANT(ibv_dealloc_pd(pd), EBUSY);
	WANT(ibv_destroy_cq(cq), EBUSY);
	WANT(ibv_destroy_srq(srq), EBUSY);
	WANT(ibv_destroy_comp_channel(channel), EBUSY);

	// None, and foreign ones.
	struct ibv_pd none;
	memset(&none, 0, sizeof none);
	none.context = ctx;
	WANT(ibv_dealloc_pd(NULL), EINVAL);
	WANT(ibv_dealloc_pd(&none), EINVAL);
	WANT(ibv_dealloc_pd((struct ibv_pd *)cq), EINVAL);
	WANT(ibv_dereg_mr((struct ibv_mr *)8), EINVAL);
	WANT(ibv_destroy_qp(NULL), EINVAL);
	WANT(ibv_close_device(NULL), EINVAL);
	WANT_NULL(ibv_alloc_pd(NULL), EINVAL);
	WANT_NULL(ibv_reg_mr(&none, memory, 8, 0), EINVAL);
	WANT_NULL(ibv_reg_mr(pd, NULL, 8, 0), EINVAL);
	WANT_NULL(ibv_reg_mr(pd, memory, 8, 2), EINVAL); // remote write without local write
	WANT_NULL(ibv_create_cq(ctx, 0, NULL, NULL, 0), EINVAL);
	WANT_NULL(ibv_create_cq(ctx, 16, NULL, (struct ibv_comp_channel *)pd, 0), EINVAL);
	WANT_NULL(ibv_open_device((struct ibv_device *)pd), ENODEV);
	qi.send_cq = NULL;
	WANT_NULL(ibv_create_qp(pd, &qi), EINVAL);
	struct ibv_qp_attr qa = {.qp_state = 3};
	WANT(ibv_modify_qp(qp, &qa, IBV_QP_STATE), EINVAL);
	struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad = NULL;
	WANT(ctx->ops.post_send(qp, &wr, &bad), EINVAL);
	if (bad != &wr)
		failed = 1, printf("the bad request is %p\n", (void *)bad);
	wr.opcode = 77;
	WANT(ctx->ops.post_send(qp, &wr, &bad), EINVAL);

	// Twice.
	WANT(ibv_destroy_qp(qp), 0);
	WANT(ibv_destroy_qp(qp), EINVAL);
	WANT(ctx->ops.post_send(qp, &wr, &bad), EINVAL);
	WANT(ibv_destroy_srq(srq), 0);
	WANT(ibv_destroy_srq(srq), EINVAL);
	WANT(ibv_destroy_cq(cq), 0);
	WANT(ibv_destroy_cq(cq), EINVAL);
	struct ibv_wc wc;
	WANT(ctx->ops.poll_cq(cq, 1, &wc), -EINVAL);
	WANT(ibv_destroy_comp_channel(channel), 0);
	WANT(ibv_destroy_comp_channel(channel), EINVAL);
	WANT(ibv_dereg_mr(mr), 0);
	WANT(ibv_dereg_mr(mr), EINVAL);
	WANT(ibv_dealloc_pd(pd), 0);
	WANT(ibv_dealloc_pd(pd), EINVAL);

	// A device that is closed takes what is left with it.
	pd = ibv_alloc_pd(ctx);
	mr = ibv_reg_mr(pd, memory, sizeof memory, 7);
	WANT(ibv_close_device(ctx), 0);
	WANT(ibv_close_device(ctx), EINVAL);
	WANT(ibv_dereg_mr(mr), EINVAL);
	if (!failed)
		printf("all is well\n");
	return failed;
}
