// Connections of librdmacm: both ends are in this process, each with a channel of its own.
#include "../cm/cma.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id, void *context, int space);

static int failed;

#define CHECK(what)                                                                     \
	do {                                                                            \
		if (!(what))                                                            \
			failed = 1, printf("line %d: not so: %s (errno %d)\n", __LINE__, #what, errno); \
	} while (0)
#define FAILS(call, error)                                                              \
	do {                                                                            \
		errno = 0;                                                              \
		if ((call) != -1 || errno != (error))                                   \
			failed = 1, printf("line %d: %s: errno %d, want %d\n", __LINE__, #call, errno, error); \
	} while (0)

// next is the channel's next event, which must be of that kind.
static struct rdma_cm_event *next_of(int line, struct rdma_event_channel *c, int kind) {
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	struct rdma_cm_event *e;
	if (poll(&p, 1, 20000) != 1 || rdma_get_cm_event(c, &e) != 0)
		printf("line %d: no event, want %d\n", line, kind), exit(1);
	if (e->event != kind)
		printf("line %d: event %d of status %d, want %d\n", line, e->event, e->status, kind), exit(1);
	return e;
}
#define NEXT(c, kind) next_of(__LINE__, c, RDMA_CM_EVENT_##kind)
#define PASS(c, kind) rdma_ack_cm_event(NEXT(c, kind))

static struct rdma_event_channel *here, *there; // who listens, who calls
static struct sockaddr_in address;

static struct rdma_cm_id *caller(void *context) {
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(there, &id, context, RDMA_PS_TCP) == 0);
	CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 1000) == 0);
	PASS(there, ADDR_RESOLVED);
	CHECK(rdma_resolve_route(id, 1000) == 0);
	PASS(there, ROUTE_RESOLVED);
	return id;
}

static struct rdma_cm_id *listener(int backlog) {
	struct rdma_cm_id *id;
	CHECK(rdma_create_id(here, &id, "listener", RDMA_PS_TCP) == 0);
	CHECK(rdma_bind_addr(id, (struct sockaddr *)&address) == 0 && rdma_listen(id, backlog) == 0);
	address.sin_port = rdma_get_src_port(id);
	return id;
}

static void give_pair(struct rdma_cm_id *id) {
	struct ibv_qp_init_attr a = {.qp_type = 2, .sq_sig_all = 1, .cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	CHECK(rdma_create_qp(id, NULL, &a) == 0);
}

// polled is the next completion of a queue.
static struct ibv_wc polled(struct ibv_cq *cq) {
	struct ibv_wc wc;
	while (cq->context->ops.poll_cq(cq, 1, &wc) == 0)
		;
	return wc;
}

static void connections(void) {
	struct rdma_cm_id *l = listener(8), *c = caller("caller");
	struct rdma_conn_param ask = {.private_data = "hello", .private_data_len = 5, .responder_resources = 3, .initiator_depth = 2, .retry_count = 5, .rnr_retry_count = 6};
	give_pair(c);
	FAILS(rdma_accept(c, NULL), EINVAL);
	FAILS(rdma_disconnect(c), EINVAL);
	ask.private_data_len = 57;
	FAILS(rdma_connect(c, &ask), EINVAL); // InfiniBand's request has room for 56
	ask.private_data_len = 5;
	CHECK(rdma_connect(c, &ask) == 0);
	FAILS(rdma_connect(c, &ask), EINVAL);

	// What the caller may have under way, the other end has to keep.
	struct rdma_cm_event *e = NEXT(here, CONNECT_REQUEST);
	struct rdma_conn_param *p = &e->param.conn;
	CHECK(e->listen_id == l && strcmp(e->id->context, "listener") == 0 && e->id->verbs != NULL && e->id->channel == here);
	CHECK(p->private_data_len == 56 && memcmp(p->private_data, "hello\0\0", 7) == 0);
	CHECK(p->responder_resources == 2 && p->initiator_depth == 3 && p->retry_count == 5 && p->rnr_retry_count == 6 && p->qp_num == c->qp->qp_num);
	CHECK(rdma_get_dst_port(c) == address.sin_port && rdma_get_dst_port(e->id) == rdma_get_src_port(c) && rdma_get_src_port(c) != 0);
	struct rdma_cm_id *s = e->id;
	rdma_ack_cm_event(e);
	give_pair(s);
	CHECK(rdma_accept(s, &(struct rdma_conn_param){.private_data = "welcome", .private_data_len = 7, .responder_resources = RDMA_MAX_RESP_RES, .initiator_depth = RDMA_MAX_INIT_DEPTH}) == 0);
	e = NEXT(there, ESTABLISHED);
	CHECK(e->id == c && e->param.conn.private_data_len == 196 && strcmp(e->param.conn.private_data, "welcome") == 0 && e->param.conn.qp_num == s->qp->qp_num);
	rdma_ack_cm_event(e);
	PASS(here, ESTABLISHED);
	CHECK(memcmp(&c->route.addr.addr.ibaddr.dgid, &s->route.addr.addr.ibaddr.sgid, 16) == 0);

	// A message passes, in both of an id's own queues.
	static char from[16] = "a message", to[16];
	struct ibv_mr *out = ibv_reg_mr(c->pd, from, sizeof from, 0), *in = ibv_reg_mr(s->pd, to, sizeof to, 1);
	struct ibv_sge got = {(uintptr_t)to, sizeof to, in->lkey}, sent = {(uintptr_t)from, sizeof from, out->lkey};
	struct ibv_recv_wr r = {.sg_list = &got, .num_sge = 1}, *bad_r;
	struct ibv_send_wr w = {.sg_list = &sent, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad_w;
	CHECK(s->verbs->ops.post_recv(s->qp, &r, &bad_r) == 0 && c->verbs->ops.post_send(c->qp, &w, &bad_w) == 0);
	CHECK(polled(c->send_cq).status == IBV_WC_SUCCESS && polled(s->recv_cq).status == IBV_WC_SUCCESS && strcmp(to, from) == 0);

	// Both learn of the end, once; who was told may end it, too.
	CHECK(rdma_disconnect(c) == 0);
	PASS(there, DISCONNECTED);
	PASS(here, DISCONNECTED);
	CHECK(rdma_disconnect(s) == 0 && rdma_disconnect(c) == 0);
	fcntl(here->fd, F_SETFL, O_NONBLOCK);
	FAILS(rdma_get_cm_event(here, &e), EAGAIN);
	fcntl(here->fd, F_SETFL, 0);
	CHECK(ibv_dereg_mr(out) == 0 && ibv_dereg_mr(in) == 0);
	rdma_destroy_ep(c);
	rdma_destroy_ep(s);
	CHECK(rdma_destroy_id(l) == 0);
}

static void refusals(void) {
	struct rdma_cm_event *e;
	struct rdma_cm_id *l = listener(1), *c = caller(NULL), *other;

	// By the program, with a reason.
	CHECK(rdma_connect(c, NULL) == 0);
	e = NEXT(here, CONNECT_REQUEST);
	CHECK(rdma_reject(e->id, "full", 4) == 0);
	FAILS(rdma_accept(e->id, NULL), EINVAL);
	CHECK(rdma_destroy_id(e->id) == 0); // before its event, which is the listener's
	rdma_ack_cm_event(e);
	e = NEXT(there, REJECTED);
	CHECK(e->status == 28 && e->param.conn.private_data_len == 148 && strcmp(e->param.conn.private_data, "full") == 0);
	rdma_ack_cm_event(e);
	rdma_destroy_id(c);

	// The port has one listener.
	CHECK(rdma_create_id(here, &other, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_bind_addr(other, (struct sockaddr *)&address), EADDRINUSE);
	FAILS(rdma_resolve_route(other, 1000), EINVAL);
	FAILS(rdma_connect(other, NULL), EINVAL);
	rdma_destroy_id(other);

	// A listener that takes nobody has as many wait as its backlog says.
	struct rdma_cm_id *many[8];
	int waiting = 0;
	for (; waiting < 8; waiting++) {
		many[waiting] = caller(NULL);
		CHECK(rdma_connect(many[waiting], NULL) == 0);
		struct pollfd p = {.fd = there->fd, .events = POLLIN};
		if (poll(&p, 1, 0) == 1)
			break;
	}
	e = NEXT(there, UNREACHABLE);
	CHECK(waiting > 0 && waiting < 8 && e->id == many[waiting] && e->status == -ETIMEDOUT);
	rdma_ack_cm_event(e);
	rdma_destroy_id(many[waiting]);

	// One who gives up before it is answered: the request comes, and then that it is over.
	rdma_destroy_id(many[0]);
	e = NEXT(here, CONNECT_REQUEST);
	CHECK(e->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	other = e->id;
	rdma_ack_cm_event(e);
	do { // the others' requests come meanwhile
		CHECK(rdma_get_cm_event(here, &e) == 0);
		if (e->event == RDMA_CM_EVENT_REJECTED)
			CHECK(e->id == other && e->status == 4);
		int over = e->event == RDMA_CM_EVENT_REJECTED;
		if (!over)
			rdma_destroy_id(e->id);
		rdma_ack_cm_event(e);
		if (over)
			break;
	} while (1);
	rdma_destroy_id(other);

	// A listener that goes, with and without callers that it has not seen.
	c = caller(NULL);
	CHECK(rdma_connect(c, NULL) == 0);
	CHECK(rdma_destroy_id(l) == 0);
	for (int i = 1; i <= waiting; i++) {
		e = NEXT(there, REJECTED);
		CHECK(e->status == 28);
		rdma_ack_cm_event(e);
	}
	for (int i = 1; i < waiting; i++)
		rdma_destroy_id(many[i]);
	rdma_destroy_id(c);
	c = caller(NULL);
	CHECK(rdma_connect(c, NULL) == 0);
	e = NEXT(there, REJECTED);
	CHECK(e->status == 8); // nobody is there
	rdma_ack_cm_event(e);
	rdma_destroy_id(c);

	// Of one address alone.
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	address.sin_port = 0;
	l = listener(1);
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	c = caller(NULL);
	CHECK(rdma_connect(c, NULL) == 0);
	fcntl(here->fd, F_SETFL, O_NONBLOCK);
	FAILS(rdma_get_cm_event(here, &e), EAGAIN); // it sees the caller, and lets it go
	fcntl(here->fd, F_SETFL, 0);
	e = NEXT(there, REJECTED);
	CHECK(e->status == 8);
	rdma_ack_cm_event(e);
	rdma_destroy_id(c);
	rdma_destroy_id(l);

	// An address that no software device has.
	struct sockaddr_in far = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xc0000201)}; // of documents
	CHECK(rdma_create_id(there, &c, NULL, RDMA_PS_TCP) == 0);
	FAILS(rdma_bind_addr(c, (struct sockaddr *)&far), EADDRNOTAVAIL);
	fflush(stdout);
	CHECK(rdma_resolve_addr(c, NULL, (struct sockaddr *)&far, 1000) == 0);
	e = NEXT(there, ADDR_ERROR);
	CHECK(e->status == -EHOSTUNREACH);
	rdma_ack_cm_event(e);
	rdma_destroy_id(c);
	FAILS(rdma_create_id(there, &c, NULL, 7), EPROTONOSUPPORT);
	address.sin_port = 0;
}

// A program that does its queue pair itself establishes the connection itself.
static void by_hand(void) {
	struct rdma_cm_id *l = listener(8), *c = caller(NULL), *s;
	CHECK(rdma_connect(c, &(struct rdma_conn_param){.qp_num = 77}) == 0);
	struct rdma_cm_event *e = NEXT(here, CONNECT_REQUEST);
	CHECK(e->param.conn.qp_num == 77);
	s = e->id;
	rdma_ack_cm_event(e);

	// It moves to another channel with what waits for it.
	struct rdma_event_channel *third = rdma_create_event_channel();
	CHECK(rdma_migrate_id(s, third) == 0);
	CHECK(rdma_accept(s, &(struct rdma_conn_param){.qp_num = 78}) == 0);
	e = NEXT(there, CONNECT_RESPONSE);
	CHECK(e->param.conn.qp_num == 78);
	rdma_ack_cm_event(e);
	struct ibv_qp_attr a = {.qp_state = 2};
	int mask;
	CHECK(rdma_init_qp_attr(c, &a, &mask) == 0 && a.dest_qp_num == 78 && mask & IBV_QP_AV && a.ah_attr.is_global);
	CHECK(rdma_establish(c) == 0);
	FAILS(rdma_establish(c), EINVAL);
	PASS(third, ESTABLISHED);

	// An id that is destroyed, or whose process dies, ends its connection.
	CHECK(rdma_destroy_id(c) == 0);
	PASS(third, DISCONNECTED);
	CHECK(rdma_destroy_id(s) == 0 && rdma_destroy_id(l) == 0);
	rdma_destroy_event_channel(third);
}

static void datagrams(void) {
	struct rdma_cm_id *l, *c;
	address.sin_port = 0;
	CHECK(rdma_create_id(here, &l, NULL, RDMA_PS_UDP) == 0 && rdma_bind_addr(l, (struct sockaddr *)&address) == 0 && rdma_listen(l, 0) == 0);
	address.sin_port = rdma_get_src_port(l);
	CHECK(rdma_create_id(there, &c, NULL, RDMA_PS_UDP) == 0 && rdma_resolve_addr(c, NULL, (struct sockaddr *)&address, 1000) == 0);
	PASS(there, ADDR_RESOLVED);
	CHECK(rdma_resolve_route(c, 1000) == 0);
	PASS(there, ROUTE_RESOLVED);
	CHECK(rdma_connect(c, NULL) == 0);
	struct rdma_cm_event *e = NEXT(here, CONNECT_REQUEST);
	CHECK(e->param.ud.private_data_len == 180);
	CHECK(rdma_accept(e->id, &(struct rdma_conn_param){.qp_num = 79}) == 0);
	CHECK(rdma_destroy_id(e->id) == 0);
	rdma_ack_cm_event(e);
	e = NEXT(there, ESTABLISHED);
	CHECK(e->param.ud.qp_num == 79 && e->param.ud.qkey == RDMA_UDP_QKEY && e->param.ud.ah_attr.is_global && e->param.ud.private_data_len == 136);
	rdma_ack_cm_event(e);
	CHECK(rdma_destroy_id(c) == 0 && rdma_destroy_id(l) == 0);
}

// Ids without a channel wait for what they ask for.
static void waiting(void) {
	struct rdma_addrinfo hints = {.ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP}, *at;
	struct ibv_qp_init_attr a = {.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct rdma_cm_id *l, *s, *c;
	CHECK(rdma_getaddrinfo(NULL, "0", &hints, &at) == 0 && rdma_create_ep(&l, at, NULL, &a) == 0 && rdma_listen(l, 0) == 0);
	rdma_freeaddrinfo(at);
	CHECK(rdma_get_src_port(l) != 0);
	char port[8];
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(l)));
	fflush(stdout);
	pid_t child = fork(); // before it, nobody has asked for a device
	if (child == 0) {
		struct ibv_qp_init_attr fresh = a; // making a queue pair fills it in
		hints.ai_flags = 0;
		CHECK(rdma_getaddrinfo("127.0.0.1", port, &hints, &at) == 0 && rdma_create_ep(&c, at, NULL, &a) == 0);
		CHECK(rdma_connect(c, NULL) == 0 && c->event->event == RDMA_CM_EVENT_ESTABLISHED);
		CHECK(rdma_disconnect(c) == 0);
		rdma_destroy_ep(c);
		CHECK(rdma_create_ep(&c, at, NULL, &fresh) == 0);
		FAILS(rdma_connect(c, NULL), ECONNREFUSED);
		fflush(stdout);
		_exit(failed);
	}
	CHECK(rdma_get_request(l, &s) == 0 && s->qp != NULL && rdma_accept(s, NULL) == 0);
	CHECK(rdma_disconnect(s) == 0);
	rdma_destroy_ep(s);
	CHECK(rdma_get_request(l, &s) == 0 && rdma_reject(s, NULL, 0) == 0);
	rdma_destroy_ep(s);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	rdma_destroy_ep(l);
	FAILS(rdma_getaddrinfo(NULL, NULL, NULL, &at), EINVAL);
	CHECK(rdma_getaddrinfo("no.such.host.invalid", "1", NULL, &at) != 0);
}

int main(void) {
	address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	waiting();
	here = rdma_create_event_channel();
	there = rdma_create_event_channel();
	if (here == NULL || there == NULL)
		return printf("no channel\n"), 1;
	connections();
	address.sin_port = 0;
	refusals();
	by_hand();
	datagrams();
	rdma_destroy_event_channel(here);
	rdma_destroy_event_channel(there);
	if (!failed)
		puts("all is well");
	return failed;
}
