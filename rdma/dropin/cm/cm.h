// What the files of librdmacm.so.1 share.
//
// An id that listens or is connected has a socket of its machine with an abstract name,
//
//	@gorun-verbs/UID/FABRIC/cm/SPACE/PORT
//
// so ports are not TCP's, the kernel frees them with the process, and a peer's death is the end of its connection. One packet
// is one message (struct message). Between hosts the device (../library/network.go) passes messages on: to a listener's
// socket as one who connects to it, and from a socket pair whose other end it has. An event channel's descriptor is an epoll of its ids' sockets and of a bell that rings
// while events are queued: there are no threads here, a program that asks for an event moves its ids on.
#ifndef GORUN_DROPIN_CM_H
#define GORUN_DROPIN_CM_H

#include "cma.h"

#include <errno.h>
#include <sys/un.h>

#pragma GCC visibility push(hidden)

enum { QPS_INIT = 1, QPS_RTR, QPS_RTS, QPS_ERR = 6 };
enum { QPT_RC = 2, QPT_UC, QPT_UD };

enum state {
	IDLE, // or its address or route is known
	LISTENING,
	CALLED,    // of a listener's: the request has not come yet
	ASKED,     // the request has come
	ACCEPTED,  // and was answered
	ASKING,    // a request was sent
	ANSWERED,  // and the program is to establish the connection
	CONNECTED,
	OVER,
};

enum { REQUEST = 1, REPLY, READY, REJECT };

// A message between two ids. The sizes of its data are InfiniBand's.
struct message {
	uint32_t version, kind, status; // of REJECT
	uint32_t qpn, psn, qkey;
	uint16_t lid;
	uint8_t resources, depth, flow, retry, rnr, srq;
	uint8_t length, data[196];
	union ibv_gid gid;
	struct sockaddr_storage from, to;
};
#define VERSION 0x314d4347 // of struct message

struct channel {
	struct rdma_event_channel channel; // an epoll
	int bell, rung;
	struct event *first, *last;
};

struct id {
	struct rdma_cm_id id;
	struct id *next; // of all
	struct id *listener; // until its request was given to the program
	enum state state;
	int socket, own; // -1: none; own: its channel was made for it
	int far;         // it listens for other hosts too; or its peer is on one
	uint32_t given, acknowledged; // events
	uint32_t psn;
	uint8_t resources, depth, retry, rnr, tos, ack_timeout;
	struct message peer; // what it said last
	struct ibv_qp_init_attr *passive; // queue pairs of what a listener accepts
};

struct event {
	struct rdma_cm_event event;
	struct event *next;
	struct id *of; // who counts it
	uint8_t data[196];
};

// One lock for all: nothing waits while it is held.
extern pthread_mutex_t cm_lock;

int fails(int error);                         // sets errno; -1
struct id *id_make(struct channel *c, void *context, int space, int type);
void id_free(struct id *id);                  // and its socket; with the lock
int id_device(struct id *id);                 // gives it the device, an errno
int completed(struct rdma_cm_id *id, int rc); // of an id without a channel waits for the event

int watch_socket(struct id *id);              // by its channel; an errno
void unwatch_socket(struct id *id);           // and closes it
int raise_event(struct id *id, int kind, int status, const struct message *m); // an errno
void drop_events(struct id *of);
int move_to(struct id *id, struct channel *to); // an errno

int port_name(struct id *id, uint16_t port, struct sockaddr_un *name, socklen_t *length); // an errno
int port_take(struct id *id, uint16_t port);  // binds a socket to it, any for 0; an errno
int listen_outside(struct id *id);            // for other hosts too, where they reach this one; an errno
void end_outside(struct id *id);              // and no more
int takes(const struct id *listener, const struct sockaddr_storage *address); // whether it listens there
void advance(struct id *id);                  // its socket has something; no other id is freed

int port_state(struct ibv_context *context, struct ibv_port_attr *port); // an errno
int pair_to(struct id *id, int state);        // an errno
int pair_limits(struct id *id, uint8_t *resources, uint8_t *depth); // of its device; an errno
#pragma GCC visibility pop

// Of libibverbs.so.1 here: errnos. socket is the name of a listener's socket, fd the device's from then on.
int gorun_verbs_listen(char *socket, int size);
int gorun_verbs_forget(char *socket);
int gorun_verbs_call(char *socket, uint8_t *ip, int fd, int size);

#endif
