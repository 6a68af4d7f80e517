// What libibverbs.so.1 (../shim) asks of the software device, which is in Go: flat structures and functions, with
// nothing of libibverbs in them but the numbers of enumerations. Objects are handles; a handle of a
// destroyed object names nothing. Functions return 0 or an errno where nothing else is said.
#ifndef GORUN_DROPIN_CALLS_H
#define GORUN_DROPIN_CALLS_H

#include <stdint.h>

typedef uint64_t gd_handle; // 0 is none

struct gd_device {
	char name[64];
	uint64_t guid;
};

struct gd_limits {
	uint64_t max_mr_size, clock_hz, guid;
	int max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_rd_atom, max_init_rd_atom;
	int max_srq, max_srq_wr, max_srq_sge, max_mw, max_ah, srq_resize, odp;
	char firmware[64];
};

struct gd_port {
	int state, max_mtu, active_mtu, gids, ethernet;
	uint32_t max_msg;
	uint16_t lid;
};

// Where datagrams or a connection go: by a GID, or by a LID alone.
struct gd_route {
	uint8_t gid[16], sgid_index, hop_limit, port, has_gid;
	uint16_t lid;
};

enum { GD_MR_PLAIN, GD_MR_IOVA, GD_MR_DMABUF };
struct gd_mr {
	int kind, fd;
	uint32_t access, lkey, rkey;
	void *addr;
	uint64_t length, iova, offset;
	gd_handle handle;
};

// A cookie is what events of the object give back.
struct gd_cq {
	int cqe, timestamps, ignore_overrun;
	gd_handle channel, handle;
	uint64_t cookie;
	const uint32_t *words[4]; // all 0: a poll would find nothing
};

struct gd_srq {
	uint32_t max_wr, max_sge, limit, num;
	int xrc;
	gd_handle xrcd, cq, handle;
	uint64_t cookie;
};

struct gd_qp {
	int type, sig_all;
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline, num;
	gd_handle send_cq, recv_cq, srq, xrcd, handle;
	uint64_t cookie;
};

struct gd_qp_attr {
	int state, mtu;
	uint32_t qkey, rq_psn, sq_psn, dest_qpn, access;
	uint16_t pkey_index;
	uint8_t sqd_notify, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port, timeout, retry_cnt, rnr_retry;
	struct gd_route route;
};

struct gd_bind {
	gd_handle mr;
	uint64_t addr, length;
	uint32_t access;
};

// Lists of scatter entries are the program's: {uint64_t addr; uint32_t length, lkey}.
struct gd_send {
	uint64_t wr_id;
	void *sg;
	uint32_t num_sge, opcode, flags;
	uint32_t imm; // in the machine's order; or the key to invalidate
	uint64_t remote_addr, compare_add, swap;
	uint32_t rkey, qpn, qkey, srqn;
	gd_handle ah, mw;
	struct gd_bind bind;
};

struct gd_recv {
	uint64_t wr_id;
	void *sg;
	uint32_t num_sge;
};

struct gd_wc {
	uint64_t wr_id, timestamp;
	uint32_t status, opcode, byte_len, imm, qpn, src_qp, flags;
};

struct gd_event {
	int type, port;
	uint64_t cookie;
};

#define GD_CALLS(X)                                                                               \
	X(devices, (struct gd_device * list, int room, int *n))                                      \
	X(open, (int device, int fd, gd_handle *ctx)) /* fd: an eventfd for asynchronous events */   \
	X(close, (gd_handle ctx)) /* with all that is left of it */                                  \
	X(query_device, (gd_handle ctx, struct gd_limits * out))                                     \
	X(query_port, (gd_handle ctx, int port, struct gd_port *out))                                \
	X(query_gid, (gd_handle ctx, int port, int index, uint8_t *gid))                             \
	X(destroy, (gd_handle object)) /* anything but a context */                                  \
	X(alloc_pd, (gd_handle ctx, gd_handle *pd))                                                  \
	X(reg_mr, (gd_handle pd, struct gd_mr * mr))                                                 \
	X(rereg_mr, (gd_handle mr, int flags, gd_handle pd, struct gd_mr *to))                       \
	X(advise_mr, (gd_handle pd, int advice, uint32_t flags, void *sg, uint32_t n))               \
	X(alloc_mw, (gd_handle pd, int type, gd_handle *mw, uint32_t *rkey))                         \
	X(bind_mw, (gd_handle qp, gd_handle mw, uint64_t wr_id, uint32_t flags, struct gd_bind *bind, uint32_t *rkey)) \
	X(create_channel, (gd_handle ctx, int fd, gd_handle *channel)) /* fd: an eventfd */          \
	X(next_cq_event, (gd_handle channel, uint64_t *cookie)) /* EAGAIN: there is none */          \
	X(create_cq, (gd_handle ctx, struct gd_cq * cq))                                             \
	X(resize_cq, (gd_handle cq, int cqe))                                                        \
	X(req_notify, (gd_handle cq, int solicited))                                                 \
	X(poll, (gd_handle cq, int room, struct gd_wc *wc, int *n))                                  \
	X(create_srq, (gd_handle pd, struct gd_srq * srq))                                           \
	X(modify_srq, (gd_handle srq, uint32_t max_wr, uint32_t limit, int mask))                    \
	X(query_srq, (gd_handle srq, struct gd_srq * out))                                           \
	X(create_qp, (gd_handle owner, struct gd_qp * qp)) /* a domain; a context for an XRC target */ \
	X(open_qp, (gd_handle ctx, gd_handle xrcd, struct gd_qp *qp))                                \
	X(modify_qp, (gd_handle qp, struct gd_qp_attr * attr, uint32_t mask))                        \
	X(query_qp, (gd_handle qp, struct gd_qp_attr * attr, struct gd_qp * init))                   \
	X(post_send, (gd_handle qp, struct gd_send * list, int n, int *taken))                       \
	X(post_recv, (gd_handle queue, struct gd_recv * list, int n, int *taken))                    \
	X(create_ah, (gd_handle pd, struct gd_route * to, gd_handle *ah))                            \
	X(open_xrcd, (gd_handle ctx, int fd, int oflags, gd_handle *xrcd))                           \
	X(next_event, (gd_handle ctx, struct gd_event * event)) /* EAGAIN: there is none */          \
	X(watch, (gd_handle ctx, int on)) /* brackets a wait for asynchronous events */              \
	X(listen, (char *socket, int size)) /* for librdmacm, as what follows: network.go */         \
	X(forget, (char *socket))                                                              \
	X(call, (char *socket, uint8_t *ip, int fd, int size)) /* fd is not the caller's any more */

struct gd_calls {
#define GD_POINTER(name, args) int(*name) args;
	GD_CALLS(GD_POINTER)
#undef GD_POINTER
};

#define GD_PROTOTYPE(name, args) int gd_##name args;
GD_CALLS(GD_PROTOTYPE)
#undef GD_PROTOTYPE

#endif
