// Queue pairs of ids, and the completion queues that come with them.
#include "cm.h"

#include <fcntl.h>
#include <string.h>

// Masks of ibv_modify_qp.
enum {
	STATE = 1, ACCESS = 8, PKEY = 0x10, PORT = 0x20, QKEY = 0x40, ROUTE = 0x80, MTU = 0x100, TIMEOUT = 0x200, RETRY = 0x400, RNR_RETRY = 0x800,
	RQ_PSN = 0x1000, DEPTH = 0x2000, RNR_TIMER = 0x8000, SQ_PSN = 0x10000, RESOURCES = 0x20000, NUMBER = 0x100000,
};
enum { LOCAL_WRITE = 1, REMOTE_WRITE = 2, REMOTE_READ = 4, REMOTE_ATOMIC = 8 };
enum { QPT_XRC_SEND = IBV_QPT_XRC_SEND, QPT_XRC_RECV = IBV_QPT_XRC_RECV };

int port_state(struct ibv_context *context, struct ibv_port_attr *port) {
	struct verbs_context *v = verbs_get_ctx_op(context, query_port);
	return v == NULL ? EOPNOTSUPP : v->query_port(context, 1, port, sizeof *port);
}

int pair_limits(struct id *id, uint8_t *resources, uint8_t *depth) {
	struct ibv_device_attr a;
	int rc = id->id.verbs == NULL ? EINVAL : ibv_query_device(id->id.verbs, &a);
	if (rc != 0)
		return rc;
	*resources = (uint8_t)(a.max_qp_rd_atom > 0xfe ? 0xfe : a.max_qp_rd_atom);
	*depth = (uint8_t)(a.max_qp_init_rd_atom > 0xfe ? 0xfe : a.max_qp_init_rd_atom);
	return 0;
}

// attributes are those of a state, by what the two ends agreed on. It gives their mask.
static int attributes(struct id *id, struct ibv_qp_attr *a) {
	int state = a->qp_state, type = id->id.qp_type, both = type == QPT_RC, asks = both || type == QPT_XRC_SEND, serves = both || type == QPT_XRC_RECV;
	struct ibv_port_attr port = {.active_mtu = 5};
	if (state == QPS_INIT) {
		a->pkey_index = 0;
		a->port_num = id->id.port_num;
		a->qkey = RDMA_UDP_QKEY;
		a->qp_access_flags = REMOTE_WRITE | (id->resources != 0 ? REMOTE_READ | REMOTE_ATOMIC : 0);
		return STATE | PKEY | PORT | (type == QPT_UD ? QKEY : ACCESS);
	}
	if (state == QPS_RTR) {
		port_state(id->id.verbs, &port);
		a->ah_attr = (struct ibv_ah_attr){.grh = {.dgid = id->peer.gid, .hop_limit = 64, .traffic_class = id->tos}, .dlid = id->peer.lid, .is_global = 1, .port_num = 1};
		a->path_mtu = port.active_mtu;
		a->dest_qp_num = id->peer.qpn;
		a->rq_psn = id->peer.psn & 0xffffff;
		a->max_dest_rd_atomic = id->resources;
		a->min_rnr_timer = 12; // 0.64 ms
		return type == QPT_UD ? STATE : STATE | ROUTE | MTU | NUMBER | RQ_PSN | (serves ? RESOURCES | RNR_TIMER : 0);
	}
	a->sq_psn = id->psn & 0xffffff;
	a->timeout = id->ack_timeout != 0 ? id->ack_timeout : 14; // 67 ms
	a->retry_cnt = id->retry;
	a->rnr_retry = id->rnr;
	a->max_rd_atomic = id->depth;
	return STATE | SQ_PSN | (asks ? TIMEOUT | RETRY | RNR_RETRY | DEPTH : type == QPT_XRC_RECV ? TIMEOUT : 0);
}

int rdma_init_qp_attr(struct rdma_cm_id *id, struct ibv_qp_attr *attr, int *mask) {
	if (id->verbs == NULL || attr->qp_state < QPS_INIT || attr->qp_state > QPS_RTS)
		return fails(EINVAL);
	pthread_mutex_lock(&cm_lock);
	*mask = attributes((struct id *)id, attr);
	pthread_mutex_unlock(&cm_lock);
	return 0;
}

// pair_to brings the queue pair to a state. To be ready to receive it is told again what its peer may do, now that this is known.
int pair_to(struct id *id, int state) {
	struct ibv_qp_attr a = {.qp_state = state};
	if (state == QPS_RTR && id->id.qp_type != QPT_UD) {
		a.qp_state = QPS_INIT;
		int mask = attributes(id, &a), rc = ibv_modify_qp(id->id.qp, &a, mask);
		if (rc != 0)
			return rc;
		a = (struct ibv_qp_attr){.qp_state = state};
	}
	int mask = state == QPS_ERR ? STATE : attributes(id, &a);
	return ibv_modify_qp(id->id.qp, &a, mask);
}

// queue_for makes a completion queue with a channel of its own.
static struct ibv_cq *queue_for(struct rdma_cm_id *id, uint32_t depth, struct ibv_comp_channel **channel) {
	*channel = ibv_create_comp_channel(id->verbs);
	struct ibv_cq *cq = *channel == NULL ? NULL : ibv_create_cq(id->verbs, depth == 0 ? 1 : (int)depth, id, *channel, 0);
	if (cq == NULL && *channel != NULL) {
		int error = errno;
		ibv_destroy_comp_channel(*channel);
		*channel = NULL;
		errno = error;
	}
	return cq;
}

static void end_queues(struct rdma_cm_id *id) {
	int error = errno;
	if (id->send_cq != NULL)
		ibv_destroy_cq(id->send_cq);
	if (id->recv_cq != NULL)
		ibv_destroy_cq(id->recv_cq);
	if (id->send_cq_channel != NULL)
		ibv_destroy_comp_channel(id->send_cq_channel);
	if (id->recv_cq_channel != NULL)
		ibv_destroy_comp_channel(id->recv_cq_channel);
	id->send_cq = id->recv_cq = NULL;
	id->send_cq_channel = id->recv_cq_channel = NULL;
	errno = error;
}

static struct ibv_qp *create(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr) {
	if (attr->comp_mask == IBV_QP_INIT_ATTR_PD)
		return ibv_create_qp(attr->pd, (struct ibv_qp_init_attr *)attr); // which is how attr begins
	struct verbs_context *v = verbs_get_ctx_op(id->verbs, create_qp_ex);
	if (v == NULL)
		errno = EOPNOTSUPP;
	return v == NULL ? NULL : v->create_qp_ex(id->verbs, attr);
}

// domain_of_shared gives the XRC domain of ids whose program opens none.
static struct ibv_xrcd *domain_of_shared(struct rdma_cm_id *id) {
	static struct ibv_xrcd *xrcd;
	struct verbs_context *v = verbs_get_ctx_op(id->verbs, open_xrcd);
	struct ibv_xrcd_init_attr attr = {.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	pthread_mutex_lock(&cm_lock);
	if (xrcd == NULL && v != NULL)
		xrcd = v->open_xrcd(id->verbs, &attr);
	pthread_mutex_unlock(&cm_lock);
	if (v == NULL)
		errno = EOPNOTSUPP;
	return xrcd;
}

int rdma_create_qp_ex(struct rdma_cm_id *id, struct ibv_qp_init_attr_ex *attr) {
	if (id == NULL || attr == NULL || id->qp != NULL || id->verbs == NULL)
		return fails(EINVAL);
	if (!(attr->comp_mask & IBV_QP_INIT_ATTR_PD) || attr->pd == NULL) {
		attr->comp_mask |= IBV_QP_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (attr->pd->context != id->verbs)
		return fails(EINVAL);
	if (attr->qp_type == QPT_XRC_RECV && (!(attr->comp_mask & IBV_QP_INIT_ATTR_XRCD) || attr->xrcd == NULL)) {
		if ((attr->xrcd = domain_of_shared(id)) == NULL)
			return -1;
		attr->comp_mask |= IBV_QP_INIT_ATTR_XRCD;
	}
	if (attr->srq == NULL)
		attr->srq = id->srq;
	if (attr->send_cq == NULL && id->send_cq == NULL && attr->cap.max_send_wr != 0)
		id->send_cq = queue_for(id, attr->cap.max_send_wr, &id->send_cq_channel);
	if (attr->recv_cq == NULL && id->recv_cq == NULL && attr->cap.max_recv_wr != 0)
		id->recv_cq = queue_for(id, attr->cap.max_recv_wr, &id->recv_cq_channel);
	attr->send_cq = attr->send_cq != NULL ? attr->send_cq : id->send_cq;
	attr->recv_cq = attr->recv_cq != NULL ? attr->recv_cq : id->recv_cq;
	id->qp = create(id, attr); // which says that a queue is missing
	if (id->qp == NULL) {
		end_queues(id);
		return -1;
	}
	id->qp_type = id->qp->qp_type;
	id->pd = attr->pd;
	pthread_mutex_lock(&cm_lock);
	int rc = pair_to((struct id *)id, QPS_INIT);
	for (int state = QPS_RTR; rc == 0 && id->qp_type == QPT_UD && state <= QPS_RTS; state++)
		rc = pair_to((struct id *)id, state);
	pthread_mutex_unlock(&cm_lock);
	if (rc == 0)
		return 0;
	rdma_destroy_qp(id);
	return fails(rc);
}

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
	struct ibv_qp_init_attr_ex a = {0};
	if (id == NULL || attr == NULL)
		return fails(EINVAL);
	memcpy(&a, attr, sizeof *attr);
	a.comp_mask = IBV_QP_INIT_ATTR_PD;
	a.pd = pd != NULL ? pd : id->pd;
	if (a.pd == NULL)
		return fails(EINVAL);
	int rc = rdma_create_qp_ex(id, &a);
	memcpy(attr, &a, sizeof *attr);
	return rc;
}

void rdma_destroy_qp(struct rdma_cm_id *id) {
	if (id->qp != NULL)
		ibv_destroy_qp(id->qp);
	id->qp = NULL;
	end_queues(id);
}

int rdma_create_srq_ex(struct rdma_cm_id *id, struct ibv_srq_init_attr_ex *attr) {
	if (id == NULL || attr == NULL || id->srq != NULL || id->verbs == NULL)
		return fails(EINVAL);
	if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_PD)) {
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_PD;
		attr->pd = id->pd;
	}
	if (attr->comp_mask & IBV_SRQ_INIT_ATTR_TYPE && attr->srq_type == IBV_SRQT_XRC) {
		attr->xrcd = attr->comp_mask & IBV_SRQ_INIT_ATTR_XRCD && attr->xrcd != NULL ? attr->xrcd : domain_of_shared(id);
		if (!(attr->comp_mask & IBV_SRQ_INIT_ATTR_CQ) || attr->cq == NULL)
			attr->cq = id->recv_cq = queue_for(id, attr->attr.max_wr, &id->recv_cq_channel);
		if (attr->xrcd == NULL || attr->cq == NULL)
			return -1;
		attr->comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
	}
	struct verbs_context *v = verbs_get_ctx_op(id->verbs, create_srq_ex);
	if (attr->comp_mask == IBV_SRQ_INIT_ATTR_PD)
		id->srq = ibv_create_srq(attr->pd, (struct ibv_srq_init_attr *)attr); // which is how attr begins
	else if (v != NULL)
		id->srq = v->create_srq_ex(id->verbs, attr);
	else
		errno = EOPNOTSUPP;
	if (id->srq == NULL)
		return -1;
	id->pd = attr->pd;
	return 0;
}

int rdma_create_srq(struct rdma_cm_id *id, struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
	struct ibv_srq_init_attr_ex a = {0};
	if (id == NULL || attr == NULL)
		return fails(EINVAL);
	memcpy(&a, attr, sizeof *attr);
	a.comp_mask = IBV_SRQ_INIT_ATTR_PD | (id->qp_type == QPT_XRC_RECV ? IBV_SRQ_INIT_ATTR_TYPE : 0);
	a.srq_type = IBV_SRQT_XRC; // where the mask says so
	a.pd = pd != NULL ? pd : id->pd;
	if (a.pd == NULL)
		return fails(EINVAL);
	int rc = rdma_create_srq_ex(id, &a);
	memcpy(attr, &a, sizeof *attr);
	return rc;
}

void rdma_destroy_srq(struct rdma_cm_id *id) {
	if (id->srq != NULL)
		ibv_destroy_srq(id->srq);
	id->srq = NULL;
	if (id->qp == NULL)
		end_queues(id);
}
