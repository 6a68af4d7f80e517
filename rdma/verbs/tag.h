// Tag matching: the verbs that only devices with it have. Conventions as in shim.h.
#ifndef GORUN_VERBS_TAG_H
#define GORUN_VERBS_TAG_H

#include "shim.h"

// An operation on the list of tags. Flags are libibverbs'.
typedef struct {
	uint64_t wr_id, recv_wr_id, tag, mask;
	uintptr_t sgl;
	uint32_t handle; // of one that adds: out
	uint32_t unexpected;
	int32_t opcode, flags, num_sge, reserved;
} gv_op;

#define GV_TAG_FUNCTIONS(F) \
	F(create_tm_srq, (gv_handle ctx, gv_srq_init *init, uint32_t tags, uint32_t ops))
#define GV_DECLARE(name, params) int gv_##name params;
GV_TAG_FUNCTIONS(GV_DECLARE)
#undef GV_DECLARE

// gv_post_srq_ops posts an array of up to GV_MOST_OPS operations; the result is as
// that of gv_post_send.
enum { GV_MOST_OPS = 64 };
uint64_t gv_post_srq_ops(gv_handle srq, uintptr_t list, uint32_t n);

#endif
