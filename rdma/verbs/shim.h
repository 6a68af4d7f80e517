// What Go calls of libibverbs. Handles are libibverbs' pointers as integers, so
// that Go neither looks at nor collects them. Every function returns 0 or a
// positive errno, whatever convention the verb under it has.
#ifndef GORUN_VERBS_SHIM_H
#define GORUN_VERBS_SHIM_H

#include <stddef.h>
#include <stdint.h>

typedef uintptr_t gv_handle;

// The functions of one loaded libibverbs; see FUNCTIONS in shim.c.
typedef struct {
	uintptr_t so;
	uintptr_t fn[48];
} gv_lib;

typedef struct {
	char name[64];
} gv_device;

typedef struct {
	gv_handle handle;
	int async_fd;
} gv_context;

typedef struct {
	char fw_ver[64];
	uint64_t node_guid; // in the machine's order
	uint64_t max_mr_size, clock_khz, cap_flags;
	uint32_t vendor_id;
	int max_qp, max_qp_wr, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_qp_init_rd_atom, atomic_cap;
	int max_mw, max_ah, max_srq, max_srq_wr, max_srq_sge, ports;
	uint64_t odp_general;
	uint32_t odp_rc;
	uint32_t tm_tags, tm_ops, tm_sge, tm_rndv_hdr, tm_flags;
	int extended; // the last eight and clock_khz are known
} gv_device_attr;

typedef struct {
	int state, max_mtu, active_mtu, gid_tbl_len, pkey_tbl_len, ethernet;
	uint32_t max_msg_sz;
	uint16_t lid;
} gv_port_attr;

typedef struct {
	int type, port;
	gv_handle cq, qp, srq; // the one that the type speaks of
} gv_async_event;

// How a region is registered.
enum { GV_MR_PLAIN, GV_MR_IOVA, GV_MR_DMABUF };

typedef struct {
	int kind, fd;
	uint32_t access;
	uint64_t addr, length, iova, offset;
	gv_handle handle; // out
	uint32_t lkey, rkey;
} gv_mr;

typedef struct {
	uint64_t wr_id, addr, length;
	gv_handle mr;
	uint32_t send_flags, access;
	int stand_in; // the driver looks into mr even where there is none
} gv_bind;

typedef struct {
	uint8_t dgid[16];
	uint8_t sgid_index, hop_limit, port;
	uint16_t dlid;
} gv_ah_attr;

typedef struct {
	gv_handle channel;
	int cqe, extended, timestamps, tags, ignore_overrun;
	gv_handle handle; // out; cqe too
} gv_cq_init;

typedef struct {
	gv_handle pd, xrcd, cq;
	int xrc;
	uint32_t max_wr, max_sge, limit; // out, too
	gv_handle handle;                // out
	uint32_t num;
} gv_srq_init;

typedef struct {
	gv_handle pd, send_cq, recv_cq, srq, xrcd;
	int type, sig_all;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline; // out, too
	gv_handle handle;                                                         // out
	uint32_t num;
} gv_qp_init;

typedef struct {
	int state, mtu, sqd_notify;
	uint32_t access, dest_qpn, rq_psn, sq_psn, qkey;
	uint16_t pkey_index;
	uint8_t port, max_dest_rd_atomic, max_rd_atomic, min_rnr_timer, timeout, retry_cnt, rnr_retry;
	gv_ah_attr av;
} gv_qp_attr;

// A completion of an extended queue.
typedef struct {
	uint64_t wr_id, timestamp, tag;
	uint32_t app_ctx, status, opcode, vendor_err, byte_len, imm, qp_num, src_qp, flags;
} gv_wc_ex;

// gv_open finds libibverbs and its functions, or says in err what is missing.
int gv_open(const char *path, gv_lib *lib, char *err, size_t size);

#define GV_FUNCTIONS(F) \
	F(get_device_list, (const gv_lib *lib, gv_device *out, int max, int *n)) \
	F(open_device, (const gv_lib *lib, const char *name, gv_context *out)) \
	F(close_device, (const gv_lib *lib, gv_handle ctx)) \
	F(query_device, (const gv_lib *lib, gv_handle ctx, gv_device_attr *out)) \
	F(query_port, (const gv_lib *lib, gv_handle ctx, uint8_t port, gv_port_attr *out)) \
	F(query_gid, (const gv_lib *lib, gv_handle ctx, uint8_t port, int index, uint8_t *gid)) \
	F(get_async_event, (const gv_lib *lib, gv_handle ctx, gv_async_event *out, void *raw)) \
	F(ack_async_event, (const gv_lib *lib, void *raw)) \
	F(alloc_pd, (const gv_lib *lib, gv_handle ctx, gv_handle *out)) \
	F(dealloc_pd, (const gv_lib *lib, gv_handle pd)) \
	F(reg_mr, (const gv_lib *lib, gv_handle pd, gv_mr *mr)) \
	F(rereg_mr, (const gv_lib *lib, gv_handle mr, int flags, gv_handle pd, gv_mr *to, int *spoilt)) \
	F(dereg_mr, (const gv_lib *lib, gv_handle mr)) \
	F(advise_mr, (gv_handle pd, int advice, uint32_t flags, void *sgl, uint32_t n)) \
	F(alloc_mw, (gv_handle pd, int type, gv_handle *out, uint32_t *rkey)) \
	F(dealloc_mw, (gv_handle mw)) \
	F(set_rkey_of_mw, (gv_handle mw, uint32_t rkey)) \
	F(bind_mw, (gv_handle qp, gv_handle mw, const gv_bind *bind, uint32_t *rkey)) \
	F(create_ah, (const gv_lib *lib, gv_handle pd, const gv_ah_attr *attr, gv_handle *out)) \
	F(destroy_ah, (const gv_lib *lib, gv_handle ah)) \
	F(create_comp_channel, (const gv_lib *lib, gv_handle ctx, gv_handle *out, int *fd)) \
	F(destroy_comp_channel, (const gv_lib *lib, gv_handle channel)) \
	F(get_cq_event, (const gv_lib *lib, gv_handle channel, gv_handle *cq)) \
	F(ack_cq_event, (const gv_lib *lib, gv_handle cq)) \
	F(create_cq, (const gv_lib *lib, gv_handle ctx, gv_cq_init *init)) \
	F(resize_cq, (const gv_lib *lib, gv_handle cq, int *cqe)) \
	F(req_notify_cq, (gv_handle cq, int solicited)) \
	F(destroy_cq, (const gv_lib *lib, gv_handle cq)) \
	F(create_srq, (const gv_lib *lib, gv_handle ctx, gv_srq_init *init)) \
	F(modify_srq, (const gv_lib *lib, gv_handle srq, uint32_t max_wr, uint32_t limit, int mask)) \
	F(query_srq, (const gv_lib *lib, gv_handle srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)) \
	F(destroy_srq, (const gv_lib *lib, gv_handle srq)) \
	F(open_xrcd, (gv_handle ctx, int fd, int oflags, gv_handle *out)) \
	F(close_xrcd, (gv_handle xrcd)) \
	F(create_qp, (const gv_lib *lib, gv_handle ctx, gv_qp_init *init)) \
	F(open_qp, (gv_handle ctx, uint32_t num, gv_handle xrcd, gv_handle *out)) \
	F(modify_qp, (const gv_lib *lib, gv_handle qp, const gv_qp_attr *attr, int mask)) \
	F(query_qp_state, (const gv_lib *lib, gv_handle qp, int *state)) \
	F(destroy_qp, (const gv_lib *lib, gv_handle qp))

#define GV_DECLARE(name, params) int gv_##name params;
GV_FUNCTIONS(GV_DECLARE)
#undef GV_DECLARE

// The data path. A list is an array of the verbs' own requests whose next
// pointers the caller has set. What is returned is how many were taken, with
// the errno of the first that was not in the upper half.
uint64_t gv_post_send(gv_handle qp, uintptr_t list, uint32_t n);
uint64_t gv_post_recv(gv_handle qp, uintptr_t list, uint32_t n);
uint64_t gv_post_srq_recv(gv_handle srq, uintptr_t list, uint32_t n);

// How many completions were moved to list, an array of struct ibv_wc, or less
// than 0.
int gv_poll_cq(gv_handle cq, uintptr_t list, int n);
int gv_poll_cq_ex(gv_handle cq, uintptr_t list, int n, int timestamps, int tags); // of gv_wc_ex

#endif
