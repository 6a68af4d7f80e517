// Connections: requests, answers and ends.
#define _GNU_SOURCE // struct ucred, accept4
#include "cm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Why a connection is refused, in InfiniBand's numbers.
enum { GAVE_UP = 4, NO_SERVICE = 8, BY_PROGRAM = 28, BY_OPTIONS = 35 };

// What the device says in a packet of one byte: ../library/network.go.
enum { SAYS_NOBODY, SAYS_UNREACHED };

static int datagrams(const struct id *id) { return id->id.qp_type == QPT_UD; }

// data_room is how much private data a message has, which the other end gets whole, with zeros behind it.
static uint8_t data_room(const struct id *id, uint32_t kind) {
	switch (kind) {
	case REQUEST:
		return datagrams(id) ? 180 : 56;
	case REPLY:
		return datagrams(id) ? 136 : 196;
	default:
		return datagrams(id) ? 136 : 148;
	}
}

// tell sends a message that is whole but for who says it. It fits into the socket: at most two are under way.
static int tell(struct id *id, struct message *m, uint32_t kind, const void *data, size_t length) {
	struct ibv_port_attr port;
	if (length > data_room(id, kind) || (length != 0 && data == NULL))
		return EINVAL;
	if (id->id.verbs != NULL && port_state(id->id.verbs, &port) == 0)
		m->lid = port.lid;
	m->version = VERSION;
	m->kind = kind;
	m->psn = id->psn;
	m->gid = id->id.route.addr.addr.ibaddr.sgid;
	m->from = id->id.route.addr.src_storage;
	m->to = id->id.route.addr.dst_storage;
	m->length = data_room(id, kind);
	memset(m->data, 0, sizeof m->data);
	memcpy(m->data, data == NULL ? "" : data, length);
	return send(id->socket, m, sizeof *m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof *m ? 0 : errno == EPIPE ? ENOTCONN : errno;
}

// is_ours tells whether this user's process is at the other end.
static int is_ours(int socket) {
	struct ucred peer;
	socklen_t length = sizeof peer;
	return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == geteuid();
}

static void over(struct id *id) {
	unwatch_socket(id);
	id->state = OVER;
}

// refused ends what never became a connection.
static void refused(struct id *id, int status, const struct message *m) {
	over(id);
	if (id->id.qp != NULL && !datagrams(id))
		pair_to(id, QPS_ERR);
	raise_event(id, RDMA_CM_EVENT_REJECTED, status, m);
}

// ---- the end that asks ----

static int set_limits(struct id *id, const struct rdma_conn_param *p) {
	uint8_t resources, depth;
	int rc = pair_limits(id, &resources, &depth);
	if (rc != 0)
		return rc;
	if (p->responder_resources != RDMA_MAX_RESP_RES && p->responder_resources > resources)
		return EINVAL;
	if (p->initiator_depth != RDMA_MAX_INIT_DEPTH && p->initiator_depth > depth)
		return EINVAL;
	id->resources = p->responder_resources == RDMA_MAX_RESP_RES ? resources : p->responder_resources;
	id->depth = p->initiator_depth == RDMA_MAX_INIT_DEPTH ? depth : p->initiator_depth;
	return 0;
}

// call_outside has the device connect to a listener of another host. The id's own socket, and so its port, ends.
static int call_outside(struct id *id, struct sockaddr_un *name) {
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
		return errno;
	close(id->socket);
	id->socket = ends[0];
	struct sockaddr_in *to = &id->id.route.addr.dst_sin;
	return gorun_verbs_call(name->sun_path + 1, (uint8_t *)&to->sin_addr, ends[1], sizeof(struct message));
}

static int ask(struct id *id, const struct rdma_conn_param *p) {
	static const struct rdma_conn_param most = {.responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH, .retry_count = 7, .rnr_retry_count = 7};
	struct sockaddr_un name;
	socklen_t length;
	p = p == NULL ? &most : p;
	if (id->state != IDLE || id->socket < 0 || id->id.verbs == NULL || id->id.route.addr.dst_addr.sa_family == 0)
		return EINVAL;
	int rc = set_limits(id, p);
	if (rc == 0)
		rc = port_name(id, rdma_get_dst_port(&id->id), &name, &length);
	if (rc != 0)
		return rc;
	id->retry = p->retry_count > 7 ? 7 : p->retry_count;
	struct message m = {.qpn = id->id.qp != NULL ? id->id.qp->qp_num : p->qp_num, .resources = id->resources, .depth = id->depth, .flow = p->flow_control,
		.retry = id->retry, .rnr = p->rnr_retry_count > 7 ? 7 : p->rnr_retry_count, .srq = id->id.qp != NULL ? id->id.qp->srq != NULL : p->srq};
	if (p->private_data_len > data_room(id, REQUEST))
		return EINVAL;
	if (id->far) {
		if ((rc = call_outside(id, &name)) != 0)
			return rc;
	} else if (connect(id->socket, (struct sockaddr *)&name, length) != 0) {
		rc = errno;
		if (rc == EAGAIN) // nobody has taken what the listener's backlog holds
			return raise_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
		if (rc != ECONNREFUSED)
			return rc;
	}
	if (rc == ECONNREFUSED || !is_ours(id->socket)) {
		refused(id, NO_SERVICE, NULL);
		return 0;
	}
	id->state = ASKING;
	rc = tell(id, &m, REQUEST, p->private_data, p->private_data_len);
	return rc == 0 ? watch_socket(id) : rc;
}

int rdma_connect(struct rdma_cm_id *id, struct rdma_conn_param *param) {
	pthread_mutex_lock(&cm_lock);
	int rc = ask((struct id *)id, param);
	pthread_mutex_unlock(&cm_lock);
	return completed(id, rc);
}

// answered has what the other end said. Where the program made the queue pair itself it connects it, too.
static void answered(struct id *id, const struct message *m) {
	struct message ready = {0};
	id->id.route.addr.addr.ibaddr.dgid = m->gid;
	id->rnr = m->rnr;
	id->resources = m->depth < id->resources ? m->depth : id->resources;
	id->depth = m->resources < id->depth ? m->resources : id->depth;
	if (datagrams(id)) {
		over(id);
		raise_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, m);
		return;
	}
	if (id->id.qp == NULL) {
		id->state = ANSWERED;
		raise_event(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, m);
		return;
	}
	int rc = pair_to(id, QPS_RTR);
	if (rc == 0)
		rc = pair_to(id, QPS_RTS);
	if (rc == 0)
		rc = tell(id, &ready, READY, NULL, 0);
	if (rc != 0) {
		tell(id, &(struct message){.status = BY_PROGRAM}, REJECT, NULL, 0);
		pair_to(id, QPS_ERR);
		over(id);
		raise_event(id, RDMA_CM_EVENT_CONNECT_ERROR, -rc, NULL);
		return;
	}
	id->state = CONNECTED;
	raise_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, m);
}

int rdma_establish(struct rdma_cm_id *rdma_id) {
	struct id *id = (struct id *)rdma_id;
	pthread_mutex_lock(&cm_lock);
	int rc = id->state == ANSWERED && rdma_id->qp == NULL ? tell(id, &(struct message){0}, READY, NULL, 0) : EINVAL;
	if (rc == 0)
		id->state = CONNECTED;
	pthread_mutex_unlock(&cm_lock);
	return rc == 0 ? 0 : fails(rc);
}

// ---- the end that is asked ----

static int listen_at(struct id *id, int backlog) {
	if (id->state != IDLE)
		return EINVAL;
	int rc = 0;
	if (id->socket < 0) {
		id->id.route.addr.src_addr.sa_family = AF_INET;
		rc = port_take(id, 0);
	}
	if (rc == 0 && listen(id->socket, backlog <= 0 ? 1024 : backlog) != 0)
		rc = errno;
	if (rc == 0)
		rc = watch_socket(id);
	if (rc == 0)
		rc = listen_outside(id);
	if (rc == 0)
		id->state = LISTENING;
	return rc;
}

int rdma_listen(struct rdma_cm_id *id, int backlog) {
	pthread_mutex_lock(&cm_lock);
	int rc = listen_at((struct id *)id, backlog);
	pthread_mutex_unlock(&cm_lock);
	return rc == 0 ? 0 : fails(rc);
}

// called takes one who asks for a connection.
static void called(struct id *listener) {
	int s = accept4(listener->socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (s < 0)
		return;
	struct id *id = is_ours(s) ? id_make((struct channel *)listener->id.channel, listener->id.context, listener->id.ps, listener->id.qp_type) : NULL;
	if (id == NULL) {
		close(s);
		return;
	}
	id->socket = s;
	id->listener = listener;
	id->state = CALLED;
	id->tos = listener->tos;
	id->ack_timeout = listener->ack_timeout;
	if (watch_socket(id) != 0)
		id_free(id);
}

// asked has a request. Its answer says how much of it is granted.
static void asked(struct id *id, const struct message *m) {
	struct rdma_addr *a = &id->id.route.addr;
	a->src_storage = m->to;
	a->dst_storage = m->from;
	if (!takes(id->listener, &m->to) || id_device(id) != 0) {
		tell(id, &(struct message){.status = NO_SERVICE}, REJECT, NULL, 0);
		id_free(id);
		return;
	}
	a->addr.ibaddr.dgid = m->gid;
	id->resources = m->depth;
	id->depth = m->resources;
	id->retry = m->retry;
	id->rnr = m->rnr;
	id->state = ASKED;
	if (raise_event(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, m) != 0)
		id_free(id);
}

static int answer(struct id *id, const struct rdma_conn_param *p) {
	uint8_t resources, depth;
	if (id->state != ASKED)
		return EINVAL;
	int rc = pair_limits(id, &resources, &depth);
	if (rc != 0)
		return rc;
	id->resources = id->resources < resources ? id->resources : resources;
	id->depth = id->depth < depth ? id->depth : depth;
	if (p != NULL && p->responder_resources != RDMA_MAX_RESP_RES)
		id->resources = p->responder_resources;
	if (p != NULL && p->initiator_depth != RDMA_MAX_INIT_DEPTH)
		id->depth = p->initiator_depth;
	struct message m = {.resources = id->resources, .depth = id->depth, .rnr = p == NULL || p->rnr_retry_count > 7 ? 7 : p->rnr_retry_count,
		.flow = p == NULL ? 0 : p->flow_control, .retry = id->retry, .qkey = RDMA_UDP_QKEY,
		.qpn = id->id.qp != NULL ? id->id.qp->qp_num : p == NULL ? 0 : p->qp_num, .srq = id->id.qp != NULL ? id->id.qp->srq != NULL : p != NULL && p->srq};
	if (p != NULL && p->private_data_len > data_room(id, REPLY))
		return EINVAL;
	if (id->id.qp != NULL && !datagrams(id)) {
		rc = pair_to(id, QPS_RTR);
		if (rc == 0)
			rc = pair_to(id, QPS_RTS);
	}
	if (rc == 0)
		rc = tell(id, &m, REPLY, p == NULL ? NULL : p->private_data, p == NULL ? 0 : p->private_data_len);
	if (rc == 0 && datagrams(id))
		over(id);
	else if (rc == 0)
		id->state = ACCEPTED;
	return rc;
}

int rdma_accept(struct rdma_cm_id *id, struct rdma_conn_param *param) {
	pthread_mutex_lock(&cm_lock);
	int rc = answer((struct id *)id, param);
	pthread_mutex_unlock(&cm_lock);
	return rc == 0 && id->qp_type == QPT_UD ? 0 : completed(id, rc);
}

static int reject(struct id *id, uint32_t status, const void *data, uint8_t length) {
	pthread_mutex_lock(&cm_lock);
	int rc = id->state == ASKED || id->state == ANSWERED ? tell(id, &(struct message){.status = status}, REJECT, data, length) : EINVAL;
	if (rc == 0)
		over(id);
	pthread_mutex_unlock(&cm_lock);
	return rc == 0 ? 0 : fails(rc);
}

int rdma_reject(struct rdma_cm_id *id, const void *data, uint8_t length) { return reject((struct id *)id, BY_PROGRAM, data, length); }
int rdma_reject_ece(struct rdma_cm_id *id, const void *data, uint8_t length) { return reject((struct id *)id, BY_OPTIONS, data, length); }

int rdma_get_request(struct rdma_cm_id *listener, struct rdma_cm_id **id) {
	struct id *l = (struct id *)listener;
	struct rdma_cm_event *event;
	if (l->state != LISTENING || !l->own)
		return fails(EINVAL);
	if (rdma_get_cm_event(listener->channel, &event) != 0)
		return -1;
	if (rdma_migrate_id(event->id, NULL) == 0) {
		struct ibv_qp_init_attr attr;
		if (l->passive != NULL)
			attr = *l->passive;
		if (l->passive == NULL || rdma_create_qp(event->id, listener->pd, &attr) == 0) {
			*id = event->id;
			(*id)->event = event;
			return 0;
		}
	}
	int error = errno;
	struct rdma_cm_id *none = event->id;
	rdma_ack_cm_event(event);
	rdma_destroy_id(none);
	return fails(error);
}

// ---- both ----

// ended is what the end of the other side's socket means.
static void ended(struct id *id) {
	switch (id->state) {
	case CALLED:
		id_free(id);
		return;
	case CONNECTED:
		over(id);
		raise_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
		return;
	default: // its process is gone, or it has destroyed the id
		refused(id, id->state == ASKING ? BY_PROGRAM : GAVE_UP, NULL);
	}
}

void advance(struct id *id) {
	struct message m;
	if (id->state == LISTENING) {
		called(id);
		return;
	}
	ssize_t n = recv(id->socket, &m, sizeof m, MSG_DONTWAIT | MSG_TRUNC);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n == 1 && id->state == ASKING && *(uint8_t *)&m == SAYS_UNREACHED)
		over(id), raise_event(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, NULL);
	else if (n == 1 && id->state == ASKING)
		refused(id, NO_SERVICE, NULL);
	else if (n != sizeof m || m.version != VERSION || m.length > sizeof m.data)
		ended(id);
	else if (m.kind == REQUEST && id->state == CALLED)
		id->peer = m, asked(id, &m);
	else if (m.kind == REPLY && id->state == ASKING)
		id->peer = m, answered(id, &m);
	else if (m.kind == READY && id->state == ACCEPTED)
		id->state = CONNECTED, raise_event(id, RDMA_CM_EVENT_ESTABLISHED, 0, NULL);
	else if (m.kind == REJECT && id->state != CALLED)
		refused(id, (int)m.status, &m);
	else
		ended(id);
}

int rdma_disconnect(struct rdma_cm_id *rdma_id) {
	struct id *id = (struct id *)rdma_id;
	pthread_mutex_lock(&cm_lock);
	if (id->state == ACCEPTED)
		advance(id); // the program may not have asked for the event
	int connected = id->state == CONNECTED, rc = connected || id->state == OVER ? 0 : EINVAL;
	if (rc == 0 && rdma_id->qp != NULL)
		rc = pair_to(id, QPS_ERR);
	if (rc == 0 && connected) {
		over(id);
		rc = raise_event(id, RDMA_CM_EVENT_DISCONNECTED, 0, NULL);
	}
	pthread_mutex_unlock(&cm_lock);
	return connected || rc != 0 ? completed(rdma_id, rc) : 0;
}

int rdma_notify(struct rdma_cm_id *id, int event) {
	(void)event; // IBV_EVENT_COMM_EST: the message that establishes is never lost
	return id == NULL ? fails(EINVAL) : 0;
}
