// What this package uses of libibverbs and libmlx5, as it is in memory: types,
// constants and functions. This is all that is compiled, so a program is the same
// wherever it was built. Both libraries keep their structures: they grow at the end
// (verbs_context at its beginning), and a mask or a size says how far.
// TestDeclarations holds this file to the libraries' own headers where these are
// installed; with ABI_REAL_HEADERS, which only that test defines, they take the place
// of the types and constants. Members that are enumerations there are int or unsigned
// here.
#ifndef GORUN_VERBS_ABI_H
#define GORUN_VERBS_ABI_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef ABI_REAL_HEADERS

#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>

// Some verbs are macros over inline functions that would link to the library.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova
#undef ibv_get_device_list

#else

// Types of events.
enum {
	IBV_EVENT_CQ_ERR = 0,
	IBV_EVENT_QP_FATAL = 1,
	IBV_EVENT_QP_REQ_ERR = 2,
	IBV_EVENT_QP_ACCESS_ERR = 3,
	IBV_EVENT_COMM_EST = 4,
	IBV_EVENT_SQ_DRAINED = 5,
	IBV_EVENT_PATH_MIG = 6,
	IBV_EVENT_PATH_MIG_ERR = 7,
	IBV_EVENT_PORT_ACTIVE = 9,
	IBV_EVENT_PORT_ERR = 10,
	IBV_EVENT_LID_CHANGE = 11,
	IBV_EVENT_PKEY_CHANGE = 12,
	IBV_EVENT_SM_CHANGE = 13,
	IBV_EVENT_SRQ_ERR = 14,
	IBV_EVENT_SRQ_LIMIT_REACHED = 15,
	IBV_EVENT_QP_LAST_WQE_REACHED = 16,
	IBV_EVENT_CLIENT_REREGISTER = 17,
	IBV_EVENT_GID_CHANGE = 18,
};

// Types of objects, and what a link is.
enum {
	IBV_QPT_XRC_SEND = 9,
	IBV_QPT_XRC_RECV = 10,
	IBV_QPT_DRIVER = 255,
};
enum {
	IBV_SRQT_XRC = 1,
	IBV_SRQT_TM = 2,
};
enum {
	IBV_MW_TYPE_1 = 1,
};
enum {
	IBV_LINK_LAYER_ETHERNET = 2,
};

// Which members of a structure count.
enum {
	IBV_CQ_INIT_ATTR_MASK_FLAGS = 1,
	IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN = 2,
};
enum {
	IBV_SRQ_INIT_ATTR_TYPE = 1,
	IBV_SRQ_INIT_ATTR_PD = 2,
	IBV_SRQ_INIT_ATTR_XRCD = 4,
	IBV_SRQ_INIT_ATTR_CQ = 8,
	IBV_SRQ_INIT_ATTR_TM = 16,
};
enum {
	IBV_QP_INIT_ATTR_PD = 1,
	IBV_QP_INIT_ATTR_XRCD = 2,
	IBV_QP_INIT_ATTR_SEND_OPS_FLAGS = 64,
};
enum {
	IBV_QP_OPEN_ATTR_NUM = 1,
	IBV_QP_OPEN_ATTR_XRCD = 2,
	IBV_QP_OPEN_ATTR_TYPE = 8,
};
enum {
	IBV_XRCD_INIT_ATTR_FD = 1,
	IBV_XRCD_INIT_ATTR_OFLAGS = 2,
};
enum {
	IBV_QP_STATE = 1,
	IBV_QP_AV = 0x80,
};

// What a queue pair can post by functions.
enum {
	IBV_QP_EX_WITH_RDMA_WRITE = 1,
	IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM = 2,
	IBV_QP_EX_WITH_SEND = 4,
	IBV_QP_EX_WITH_SEND_WITH_IMM = 8,
	IBV_QP_EX_WITH_RDMA_READ = 0x10,
	IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP = 0x20,
	IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD = 0x40,
	IBV_QP_EX_WITH_LOCAL_INV = 0x80,
	IBV_QP_EX_WITH_BIND_MW = 0x100,
	IBV_QP_EX_WITH_SEND_WITH_INV = 0x200,
};

// How a re-registration failed.
enum {
	IBV_REREG_MR_ERR_DO_FORK_OLD = -3,
	IBV_REREG_MR_ERR_CMD = -4,
	IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW = -5,
};

// Requests.
enum {
	IBV_WR_RDMA_WRITE = 0,
	IBV_WR_RDMA_WRITE_WITH_IMM = 1,
	IBV_WR_SEND = 2,
	IBV_WR_SEND_WITH_IMM = 3,
	IBV_WR_RDMA_READ = 4,
	IBV_WR_ATOMIC_CMP_AND_SWP = 5,
	IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
	IBV_WR_LOCAL_INV = 7,
	IBV_WR_BIND_MW = 8,
	IBV_WR_SEND_WITH_INV = 9,
	IBV_WR_DRIVER1 = 11,
};
enum {
	IBV_SEND_INLINE = 8,
};

// Completions.
enum {
	IBV_WC_STANDARD_FLAGS = 0x7f,
	IBV_WC_EX_WITH_COMPLETION_TIMESTAMP = 0x80,
	IBV_WC_EX_WITH_TM_INFO = 0x400,
};
enum {
	IBV_WC_SUCCESS = 0,
	IBV_WC_TM_RNDV_INCOMPLETE = 23,
};
enum {
	IBV_WC_TM_RECV = 133,
	IBV_WC_TM_NO_TAG = 134,
};

// ---- objects ----

struct ibv_ah;
struct ibv_cq;
struct ibv_qp;
struct ibv_srq;
struct ibv_pd;
struct ibv_mw;
struct ibv_mw_bind;
struct ibv_wc;
struct ibv_send_wr;
struct ibv_recv_wr;

struct _ibv_device_ops {
	void *_dummy1, *_dummy2;
};

struct ibv_device {
	struct _ibv_device_ops _ops;
	int node_type, transport_type;
	char name[64], dev_name[64], dev_path[256], ibdev_path[256];
};

// What every driver has, of which only the data path and windows are called here.
struct ibv_context_ops {
	void *_compat_query_device, *_compat_query_port, *_compat_alloc_pd, *_compat_dealloc_pd;
	void *_compat_reg_mr, *_compat_rereg_mr, *_compat_dereg_mr;
	struct ibv_mw *(*alloc_mw)(struct ibv_pd *pd, int type);
	int (*bind_mw)(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *bind);
	int (*dealloc_mw)(struct ibv_mw *mw);
	void *_compat_create_cq;
	int (*poll_cq)(struct ibv_cq *cq, int n, struct ibv_wc *wc);
	int (*req_notify_cq)(struct ibv_cq *cq, int solicited);
	void *_compat_cq_event, *_compat_resize_cq, *_compat_destroy_cq;
	void *_compat_create_srq, *_compat_modify_srq, *_compat_query_srq, *_compat_destroy_srq;
	int (*post_srq_recv)(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	void *_compat_create_qp, *_compat_query_qp, *_compat_modify_qp, *_compat_destroy_qp;
	int (*post_send)(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad);
	int (*post_recv)(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad);
	void *_compat_create_ah, *_compat_destroy_ah, *_compat_attach_mcast, *_compat_detach_mcast, *_compat_async_event;
};

struct ibv_context {
	struct ibv_device *device;
	struct ibv_context_ops ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

struct ibv_pd {
	struct ibv_context *context;
	uint32_t handle;
};

struct ibv_xrcd {
	struct ibv_context *context;
};

struct ibv_mr {
	struct ibv_context *context;
	struct ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle, lkey, rkey;
};

struct ibv_mw {
	struct ibv_context *context;
	struct ibv_pd *pd;
	uint32_t rkey, handle;
	int type;
};

struct ibv_comp_channel {
	struct ibv_context *context;
	int fd, refcnt;
};

struct ibv_cq {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
};

struct ibv_poll_cq_attr {
	uint32_t comp_mask;
};

struct ibv_wc_tm_info {
	uint64_t tag;
	uint32_t priv;
};

struct ibv_cq_ex {
	struct ibv_context *context;
	struct ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed;
	uint32_t comp_mask;
	int status;
	uint64_t wr_id;
	int (*start_poll)(struct ibv_cq_ex *cq, struct ibv_poll_cq_attr *attr);
	int (*next_poll)(struct ibv_cq_ex *cq);
	void (*end_poll)(struct ibv_cq_ex *cq);
	unsigned (*read_opcode)(struct ibv_cq_ex *cq);
	uint32_t (*read_vendor_err)(struct ibv_cq_ex *cq);
	uint32_t (*read_byte_len)(struct ibv_cq_ex *cq);
	uint32_t (*read_imm_data)(struct ibv_cq_ex *cq);
	uint32_t (*read_qp_num)(struct ibv_cq_ex *cq);
	uint32_t (*read_src_qp)(struct ibv_cq_ex *cq);
	unsigned (*read_wc_flags)(struct ibv_cq_ex *cq);
	uint32_t (*read_slid)(struct ibv_cq_ex *cq);
	uint8_t (*read_sl)(struct ibv_cq_ex *cq);
	uint8_t (*read_dlid_path_bits)(struct ibv_cq_ex *cq);
	uint64_t (*read_completion_ts)(struct ibv_cq_ex *cq);
	uint16_t (*read_cvlan)(struct ibv_cq_ex *cq);
	uint32_t (*read_flow_tag)(struct ibv_cq_ex *cq);
	void (*read_tm_info)(struct ibv_cq_ex *cq, struct ibv_wc_tm_info *info);
};

struct ibv_srq {
	struct ibv_context *context;
	void *srq_context;
	struct ibv_pd *pd;
	uint32_t handle;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context;
	struct ibv_pd *pd;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	uint32_t handle, qp_num;
	int state, qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

// ---- what is asked about, and what objects are made with ----

union ibv_gid {
	uint8_t raw[16];
	struct {
		uint64_t subnet_prefix, interface_id; // in the network's order
	} global;
};

struct ibv_gid_entry {
	union ibv_gid gid;
	uint32_t gid_index, port_num, gid_type, ndev_ifindex;
};

struct ibv_grh {
	uint32_t version_tclass_flow; // in the network's order
	uint16_t paylen;
	uint8_t next_hdr, hop_limit;
	union ibv_gid sgid, dgid;
};

struct ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid, sys_image_guid; // in the network's order
	uint64_t max_mr_size, page_size_cap;
	uint32_t vendor_id, vendor_part_id, hw_ver;
	int max_qp, max_qp_wr;
	unsigned device_cap_flags;
	int max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd;
	int max_qp_rd_atom, max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom;
	int atomic_cap;
	int max_ee, max_rdd, max_mw, max_raw_ipv6_qp, max_raw_ethy_qp;
	int max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach;
	int max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay, phys_port_cnt;
};

struct ibv_odp_caps {
	uint64_t general_caps;
	struct {
		uint32_t rc_odp_caps, uc_odp_caps, ud_odp_caps;
	} per_transport_caps;
};

struct ibv_tso_caps {
	uint32_t max_tso, supported_qpts;
};

struct ibv_rss_caps {
	uint32_t supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size;
	uint64_t rx_hash_fields_mask;
	uint8_t rx_hash_function;
};

struct ibv_packet_pacing_caps {
	uint32_t qp_rate_limit_min, qp_rate_limit_max, supported_qpts;
};

struct ibv_tm_caps {
	uint32_t max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge;
};

struct ibv_cq_moderation_caps {
	uint16_t max_cq_count, max_cq_period;
};

struct ibv_pci_atomic_caps {
	uint16_t fetch_add, swap, compare_swap;
};

struct ibv_device_attr_ex {
	struct ibv_device_attr orig_attr;
	uint32_t comp_mask;
	struct ibv_odp_caps odp_caps;
	uint64_t completion_timestamp_mask, hca_core_clock, device_cap_flags_ex;
	struct ibv_tso_caps tso_caps;
	struct ibv_rss_caps rss_caps;
	uint32_t max_wq_type_rq;
	struct ibv_packet_pacing_caps packet_pacing_caps;
	uint32_t raw_packet_caps;
	struct ibv_tm_caps tm_caps;
	struct ibv_cq_moderation_caps cq_mod_caps;
	uint64_t max_dm_size;
	struct ibv_pci_atomic_caps pci_atomic_caps;
	uint32_t xrc_odp_caps, phys_port_cnt_ex;
};

struct ibv_port_attr {
	int state, max_mtu, active_mtu, gid_tbl_len;
	uint32_t port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr;
	uint16_t pkey_tbl_len, lid, sm_lid;
	uint8_t lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply;
	uint8_t active_width, active_speed, phys_state, link_layer, flags;
	uint16_t port_cap_flags2;
};

struct ibv_async_event {
	union {
		struct ibv_cq *cq;
		struct ibv_qp *qp;
		struct ibv_srq *srq;
		int port_num;
	} element;
	int event_type;
};

struct ibv_global_route {
	union ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index, hop_limit, traffic_class;
};

struct ibv_ah_attr {
	struct ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl, src_path_bits, static_rate, is_global, port_num;
};

struct ibv_cq_init_attr_ex {
	uint32_t cqe;
	void *cq_context;
	struct ibv_comp_channel *channel;
	uint32_t comp_vector;
	uint64_t wc_flags;
	uint32_t comp_mask, flags;
	struct ibv_pd *parent_domain;
};

struct ibv_srq_attr {
	uint32_t max_wr, max_sge, srq_limit;
};

struct ibv_srq_init_attr {
	void *srq_context;
	struct ibv_srq_attr attr;
};

struct ibv_tm_cap {
	uint32_t max_num_tags, max_ops;
};

struct ibv_srq_init_attr_ex {
	void *srq_context;
	struct ibv_srq_attr attr;
	uint32_t comp_mask;
	int srq_type;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	struct ibv_cq *cq;
	struct ibv_tm_cap tm_cap;
};

struct ibv_xrcd_init_attr {
	uint32_t comp_mask;
	int fd, oflags;
};

struct ibv_qp_cap {
	uint32_t max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data;
};

struct ibv_qp_init_attr {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type, sq_sig_all;
};

struct ibv_rx_hash_conf {
	uint8_t rx_hash_function, rx_hash_key_len;
	uint8_t *rx_hash_key;
	uint64_t rx_hash_fields_mask;
};

struct ibv_qp_init_attr_ex {
	void *qp_context;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_srq *srq;
	struct ibv_qp_cap cap;
	int qp_type, sq_sig_all;
	uint32_t comp_mask;
	struct ibv_pd *pd;
	struct ibv_xrcd *xrcd;
	uint32_t create_flags;
	uint16_t max_tso_header;
	void *rwq_ind_tbl;
	struct ibv_rx_hash_conf rx_hash_conf;
	uint32_t source_qpn;
	uint64_t send_ops_flags;
};

struct ibv_qp_open_attr {
	uint32_t comp_mask, qp_num;
	struct ibv_xrcd *xrcd;
	void *qp_context;
	int qp_type;
};

struct ibv_qp_attr {
	int qp_state, cur_qp_state, path_mtu, path_mig_state;
	uint32_t qkey, rq_psn, sq_psn, dest_qp_num;
	unsigned qp_access_flags;
	struct ibv_qp_cap cap;
	struct ibv_ah_attr ah_attr, alt_ah_attr;
	uint16_t pkey_index, alt_pkey_index;
	uint8_t en_sqd_async_notify, sq_draining, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer;
	uint8_t port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout;
	uint32_t rate_limit;
};

// ---- requests and completions ----

struct ibv_sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct ibv_data_buf {
	void *addr;
	size_t length;
};

struct ibv_mw_bind_info {
	struct ibv_mr *mr;
	uint64_t addr, length;
	unsigned mw_access_flags;
};

struct ibv_mw_bind {
	uint64_t wr_id;
	unsigned send_flags;
	struct ibv_mw_bind_info bind_info;
};

struct ibv_send_wr {
	uint64_t wr_id;
	struct ibv_send_wr *next;
	struct ibv_sge *sg_list;
	int num_sge, opcode;
	unsigned send_flags;
	union {
		uint32_t imm_data; // in the network's order
		uint32_t invalidate_rkey;
	};
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr, compare_add, swap;
			uint32_t rkey;
		} atomic;
		struct {
			struct ibv_ah *ah;
			uint32_t remote_qpn, remote_qkey;
		} ud;
	} wr;
	union {
		struct {
			uint32_t remote_srqn;
		} xrc;
	} qp_type;
	union {
		struct {
			struct ibv_mw *mw;
			uint32_t rkey;
			struct ibv_mw_bind_info bind_info;
		} bind_mw;
	};
};

struct ibv_recv_wr {
	uint64_t wr_id;
	struct ibv_recv_wr *next;
	struct ibv_sge *sg_list;
	int num_sge;
};

struct ibv_wc {
	uint64_t wr_id;
	int status, opcode;
	uint32_t vendor_err, byte_len;
	union {
		uint32_t imm_data; // in the network's order
		uint32_t invalidated_rkey;
	};
	uint32_t qp_num, src_qp;
	unsigned wc_flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
};

struct ibv_ops_wr {
	uint64_t wr_id;
	struct ibv_ops_wr *next;
	int opcode, flags;
	struct {
		uint32_t unexpected_cnt, handle;
		struct {
			uint64_t recv_wr_id;
			struct ibv_sge *sg_list;
			int num_sge;
			uint64_t tag, mask;
		} add;
	} tm;
};

// A queue pair that is posted to by functions.
struct ibv_qp_ex {
	struct ibv_qp qp_base;
	uint64_t comp_mask, wr_id;
	unsigned wr_flags;
	void (*wr_atomic_cmp_swp)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint64_t compare, uint64_t swap);
	void (*wr_atomic_fetch_add)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint64_t add);
	void (*wr_bind_mw)(struct ibv_qp_ex *qp, struct ibv_mw *mw, uint32_t rkey, const struct ibv_mw_bind_info *info);
	void (*wr_local_inv)(struct ibv_qp_ex *qp, uint32_t rkey);
	void (*wr_rdma_read)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote);
	void (*wr_rdma_write)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote);
	void (*wr_rdma_write_imm)(struct ibv_qp_ex *qp, uint32_t rkey, uint64_t remote, uint32_t imm);
	void (*wr_send)(struct ibv_qp_ex *qp);
	void (*wr_send_imm)(struct ibv_qp_ex *qp, uint32_t imm);
	void (*wr_send_inv)(struct ibv_qp_ex *qp, uint32_t rkey);
	void *wr_send_tso, *wr_set_ud_addr, *wr_set_xrc_srqn, *wr_set_inline_data;
	void (*wr_set_inline_data_list)(struct ibv_qp_ex *qp, size_t n, const struct ibv_data_buf *list);
	void *wr_set_sge;
	void (*wr_set_sge_list)(struct ibv_qp_ex *qp, size_t n, const struct ibv_sge *list);
	void (*wr_start)(struct ibv_qp_ex *qp);
	int (*wr_complete)(struct ibv_qp_ex *qp);
	void (*wr_abort)(struct ibv_qp_ex *qp);
};

// ---- the end of what a driver has beside ibv_context_ops ----

struct verbs_context {
	int (*query_port)(struct ibv_context *ctx, uint8_t port, struct ibv_port_attr *attr, size_t size);
	int (*advise_mr)(struct ibv_pd *pd, int advice, uint32_t flags, struct ibv_sge *list, uint32_t n);
	void *alloc_null_mr, *read_counters, *attach_counters_point_flow, *create_counters, *destroy_counters;
	void *reg_dm_mr, *alloc_dm, *free_dm, *modify_flow_action_esp, *destroy_flow_action, *create_flow_action_esp;
	void *modify_qp_rate_limit, *alloc_parent_domain, *dealloc_td, *alloc_td, *modify_cq;
	int (*post_srq_ops)(struct ibv_srq *srq, struct ibv_ops_wr *op, struct ibv_ops_wr **bad);
	void *destroy_rwq_ind_table, *create_rwq_ind_table, *destroy_wq, *modify_wq, *create_wq, *query_rt_values;
	struct ibv_cq_ex *(*create_cq_ex)(struct ibv_context *ctx, struct ibv_cq_init_attr_ex *attr);
	void *priv;
	int (*query_device_ex)(struct ibv_context *ctx, const void *input, struct ibv_device_attr_ex *attr, size_t size);
	void *ibv_destroy_flow, *ABI_placeholder2, *ibv_create_flow, *ABI_placeholder1;
	struct ibv_qp *(*open_qp)(struct ibv_context *ctx, struct ibv_qp_open_attr *attr);
	struct ibv_qp *(*create_qp_ex)(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr);
	int (*get_srq_num)(struct ibv_srq *srq, uint32_t *num);
	struct ibv_srq *(*create_srq_ex)(struct ibv_context *ctx, struct ibv_srq_init_attr_ex *attr);
	struct ibv_xrcd *(*open_xrcd)(struct ibv_context *ctx, struct ibv_xrcd_init_attr *attr);
	int (*close_xrcd)(struct ibv_xrcd *xrcd);
	uint64_t _ABI_placeholder3;
	size_t sz; // of the whole structure as the library has it
	struct ibv_context context;
};

// A library of before 2012 has no more than ibv_context.
#define __VERBS_ABI_IS_EXTENDED ((void *)UINTPTR_MAX)

// verbs_get_ctx_op is the context of a driver that has the function, or NULL.
#define verbs_get_ctx_op(ctx, op)                                                              \
	({                                                                                     \
		struct ibv_context *c_ = (ctx);                                                \
		struct verbs_context *v_ = NULL;                                               \
		if (c_->abi_compat == __VERBS_ABI_IS_EXTENDED)                                 \
			v_ = (struct verbs_context *)((char *)c_ - offsetof(struct verbs_context, context)); \
		v_ != NULL && v_->sz >= sizeof *v_ - offsetof(struct verbs_context, op) && v_->op != NULL ? v_ : NULL; \
	})

// ---- libmlx5 ----

enum {
	MLX5DV_CONTEXT_MASK_STRIDING_RQ = 4,
	MLX5DV_CONTEXT_MASK_DCI_STREAMS = 0x800,
};
enum {
	MLX5DV_DCTYPE_DCT = 1,
	MLX5DV_DCTYPE_DCI = 2,
};
enum {
	MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT = 1,
};
enum {
	MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE = 8,
};
enum {
	MLX5DV_QP_EX_WITH_MR_INTERLEAVED = 1,
	MLX5DV_QP_EX_WITH_MR_LIST = 2,
};
enum {
	MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS = 1,
	MLX5DV_QP_INIT_ATTR_MASK_DC = 2,
	MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS = 4,
};
enum {
	MLX5DV_WC_UMR = 0x87,
};

struct mlx5dv_context {
	uint8_t version;
	uint64_t flags, comp_mask;
	struct {
		uint32_t max_num, supported_format;
	} cqe_comp_caps;
	struct {
		uint32_t sw_parsing_offloads, supported_qpts;
	} sw_parsing_caps;
	struct {
		uint32_t min_single_stride_log_num_of_bytes, max_single_stride_log_num_of_bytes;
		uint32_t min_single_wqe_log_num_of_strides, max_single_wqe_log_num_of_strides, supported_qpts;
	} striding_rq_caps;
	uint32_t tunnel_offloads_caps, max_dynamic_bfregs;
	uint64_t max_clock_info_update_nsec;
	uint32_t flow_action_flags, dc_odp_caps;
	void *hca_core_clock;
	uint8_t num_lag_ports;
	struct {
		uint64_t block_size;
		uint32_t block_prot;
		uint16_t t10dif_bg, crc_type;
	} sig_caps;
	struct {
		uint8_t max_log_num_concurent, max_log_num_errored;
	} dci_streams_caps;
	size_t max_wr_memcpy_length;
	struct {
		uint16_t failed_selftests;
		uint8_t crypto_engines, wrapped_import_method, log_max_num_deks;
		uint32_t flags;
	} crypto_caps;
};

struct mlx5dv_qp_init_attr {
	uint64_t comp_mask;
	uint32_t create_flags;
	struct {
		int dc_type;
		union {
			uint64_t dct_access_key;
		};
	} dc_init_attr;
	uint64_t send_ops_flags;
};

struct mlx5dv_mkey_init_attr {
	struct ibv_pd *pd;
	uint32_t create_flags;
	uint16_t max_entries;
};

struct mlx5dv_mkey {
	uint32_t lkey, rkey;
};

struct mlx5dv_mr_interleaved {
	uint64_t addr;
	uint32_t bytes_count, bytes_skip, lkey;
};

struct mlx5dv_qp_ex {
	uint64_t comp_mask;
	void (*wr_set_dc_addr)(struct mlx5dv_qp_ex *qp, struct ibv_ah *ah, uint32_t dctn, uint64_t key);
	void (*wr_mr_interleaved)(struct mlx5dv_qp_ex *qp, struct mlx5dv_mkey *mkey, uint32_t access, uint32_t rounds, uint16_t n,
		struct mlx5dv_mr_interleaved *list);
	void (*wr_mr_list)(struct mlx5dv_qp_ex *qp, struct mlx5dv_mkey *mkey, uint32_t access, uint16_t n, struct ibv_sge *list);
};

#endif

// The functions, found at run time. With the real headers these are declared twice,
// and a compiler refuses two that differ.
struct ibv_device **ibv_get_device_list(int *n);
void ibv_free_device_list(struct ibv_device **list);
const char *ibv_get_device_name(struct ibv_device *device);
struct ibv_context *ibv_open_device(struct ibv_device *device);
int ibv_close_device(struct ibv_context *ctx);
int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *event);
void ibv_ack_async_event(struct ibv_async_event *event);
int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr);
struct _compat_ibv_port_attr; // the beginning of ibv_port_attr
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *attr);
int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid);
struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx);
int ibv_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access);
struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, int access);
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t length, uint64_t iova, unsigned access);
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access);
int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr, size_t length, int access);
int ibv_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx);
int ibv_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *cq_context, struct ibv_comp_channel *channel, int vector);
int ibv_resize_cq(struct ibv_cq *cq, int cqe);
int ibv_destroy_cq(struct ibv_cq *cq);
int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n);
struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr);
int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask);
int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *attr);
int ibv_destroy_srq(struct ibv_srq *srq);
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr);
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init);
int ibv_destroy_qp(struct ibv_qp *qp);
struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp);
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *attr);
int ibv_destroy_ah(struct ibv_ah *ah);

bool mlx5dv_is_supported(struct ibv_device *device);
int mlx5dv_query_device(struct ibv_context *ctx, struct mlx5dv_context *attr);
struct ibv_qp *mlx5dv_create_qp(struct ibv_context *ctx, struct ibv_qp_init_attr_ex *attr, struct mlx5dv_qp_init_attr *more);
struct mlx5dv_qp_ex *mlx5dv_qp_ex_from_ibv_qp_ex(struct ibv_qp_ex *qp);
struct mlx5dv_mkey *mlx5dv_create_mkey(struct mlx5dv_mkey_init_attr *attr);
int mlx5dv_destroy_mkey(struct mlx5dv_mkey *mkey);

#endif
