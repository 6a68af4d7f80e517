// What Go calls of libmlx5, and of the verbs that only devices like mlx5 have. The
// conventions are those of shim.h.
#ifndef GORUN_VERBS_MLX5_H
#define GORUN_VERBS_MLX5_H

#include "shim.h"

// The functions of the library that a device's driver is; see MLX5_FUNCTIONS in
// mlx5.c. What is missing in an old library is 0.
typedef struct {
	uintptr_t fn[8];
	char driver[256]; // the library's path
} gv_mlx5;

typedef struct {
	uint64_t flags;
	uint32_t striding_qpts;     // bits by ibv_qp_type
	int dci_streams, striding; // the device has them, at all
} gv_mlx5_caps;

// How a queue pair is made.
enum { GV_QP_RC, GV_QP_UC, GV_QP_DCI, GV_QP_DCT };

typedef struct {
	int kind;
	int layouts; // WRRegMkey
	int atomics;
	uint64_t access_key;
	gv_handle ex, direct; // out: struct ibv_qp_ex and mlx5dv_qp_ex, of those that are posted to by functions
} gv_mlx5_qp;

// gv_mlx5_open looks at the library that the context's driver is in: 0, or
// ENODEV for that of another kind of device, or ENOENT when it cannot be found.
// ENOSYS: this program was built without the header.
int gv_mlx5_open(const gv_lib *lib, gv_handle ctx, gv_mlx5 *m);

// gv_mlx5_lacks names a function that is needed for what is asked and is not in the
// library, NULL for none. For queue pairs at all, for keys with layouts.
const char *gv_mlx5_lacks(const gv_mlx5 *m, int keys);

#define GV_MLX5_FUNCTIONS(F) \
	F(mlx5_query, (const gv_mlx5 *m, gv_handle ctx, gv_mlx5_caps *out)) \
	F(mlx5_create_qp, (const gv_mlx5 *m, gv_handle ctx, gv_qp_init *init, gv_mlx5_qp *how)) \
	F(mlx5_create_mkey, (const gv_mlx5 *m, gv_handle pd, uint16_t *entries, gv_handle *out, uint32_t *lkey, uint32_t *rkey)) \
	F(mlx5_destroy_mkey, (const gv_mlx5 *m, gv_handle mkey)) \
	F(qp_num, (gv_handle qp, uint32_t *num))
#define GV_DECLARE(name, params) int gv_##name params;
GV_MLX5_FUNCTIONS(GV_DECLARE)
#undef GV_DECLARE

// The bytes of an interleaved piece of a layout (struct mlx5dv_mr_interleaved).
typedef struct {
	uint64_t addr;
	uint32_t count, skip, lkey;
} gv_piece;

// What a request has beside libibverbs' own is in its place for windows, which such
// a request has not:
//
//	DCI         bind_mw.mw the address handle, bind_mw.rkey the target's number,
//	            bind_info.addr its access key
//	IBV_WR_DRIVER1
//	            bind_mw.mw the key, bind_mw.rkey the rounds (0: a list), bind_info.addr the
//	            pieces, bind_info.length their number, bind_info.mw_access_flags
//
// gv_mlx5_post_send posts a list as gv_post_send does. The requests of a batch are
// taken all or none by the library, so one that is refused is found by posting
// them one by one.
uint64_t gv_mlx5_post_send(gv_handle ex, gv_handle direct, uintptr_t list, uint32_t n);

#endif
