// Event channels: what a program waits for, and how ids move on meanwhile.
#include "cm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

pthread_mutex_t cm_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t acknowledgement = PTHREAD_COND_INITIALIZER;

int fails(int error) {
	errno = error;
	return -1;
}

struct rdma_event_channel *rdma_create_event_channel(void) {
	struct channel *c = calloc(1, sizeof *c);
	if (c == NULL)
		return NULL;
	c->channel.fd = epoll_create1(EPOLL_CLOEXEC);
	c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	struct epoll_event bell = {.events = EPOLLIN};
	if (c->channel.fd < 0 || c->bell < 0 || epoll_ctl(c->channel.fd, EPOLL_CTL_ADD, c->bell, &bell) != 0) {
		rdma_destroy_event_channel(&c->channel);
		return NULL;
	}
	return &c->channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
	struct channel *c = (struct channel *)channel;
	int error = errno;
	if (c->channel.fd >= 0)
		close(c->channel.fd);
	if (c->bell >= 0)
		close(c->bell);
	for (struct event *e = c->first, *next; e != NULL; e = next) {
		next = e->next;
		free(e);
	}
	free(c);
	errno = error;
}

int watch_socket(struct id *id) {
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = id};
	return epoll_ctl(id->id.channel->fd, EPOLL_CTL_ADD, id->socket, &e) == 0 ? 0 : errno;
}

// A forked child may have the socket too, so it is shut down, not just closed.
void unwatch_socket(struct id *id) {
	if (id->socket < 0)
		return;
	epoll_ctl(id->id.channel->fd, EPOLL_CTL_DEL, id->socket, NULL);
	if (id->state != LISTENING && id->state != IDLE)
		shutdown(id->socket, SHUT_RDWR);
	close(id->socket);
	id->socket = -1;
}

// ring has the bell ring while there are events.
static void ring(struct channel *c) {
	uint64_t n = 1;
	if ((c->first != NULL) == c->rung)
		return;
	c->rung = !c->rung;
	// Neither waits: the counter is 0 or 1.
	if ((c->rung ? write(c->bell, &n, sizeof n) : read(c->bell, &n, sizeof n)) != sizeof n)
		c->rung = !c->rung;
}

static void queue(struct channel *c, struct event *e) {
	e->next = NULL;
	if (c->first == NULL)
		c->first = e;
	else
		c->last->next = e;
	c->last = e;
	ring(c);
}

int raise_event(struct id *id, int kind, int status, const struct message *m) {
	struct event *e = calloc(1, sizeof *e);
	if (e == NULL)
		return ENOMEM;
	e->of = kind == RDMA_CM_EVENT_CONNECT_REQUEST ? id->listener : id;
	e->event.id = &id->id;
	e->event.listen_id = e->of == id ? NULL : &e->of->id;
	e->event.event = kind;
	e->event.status = status;
	if (m != NULL) {
		memcpy(e->data, m->data, sizeof e->data);
		const void *data = m->length == 0 ? NULL : e->data;
		if (id->id.ps == RDMA_PS_UDP || id->id.ps == RDMA_PS_IPOIB)
			e->event.param.ud = (struct rdma_ud_param){.private_data = data, .private_data_len = m->length, .qp_num = m->qpn, .qkey = m->qkey,
				.ah_attr = {.grh = {.dgid = m->gid, .hop_limit = 64, .traffic_class = id->tos}, .dlid = m->lid, .is_global = 1, .port_num = 1}};
		else
			// What one end may have under way the other one has to keep.
			e->event.param.conn = (struct rdma_conn_param){.private_data = data, .private_data_len = m->length, .responder_resources = m->depth,
				.initiator_depth = m->resources, .flow_control = m->flow, .retry_count = m->retry, .rnr_retry_count = m->rnr, .srq = m->srq, .qp_num = m->qpn};
	}
	queue((struct channel *)id->id.channel, e);
	return 0;
}

// take_events takes those of an id out of its channel; requests have the listener's ids.
static struct event *take_events(struct id *of) {
	struct channel *c = (struct channel *)of->id.channel;
	struct event *taken = NULL, **end = &taken;
	c->last = NULL;
	for (struct event **at = &c->first, *e; (e = *at) != NULL;) {
		if (e->of != of && e->event.id != &of->id) {
			c->last = e;
			at = &e->next;
			continue;
		}
		*at = e->next;
		*end = e;
		end = &e->next;
		e->next = NULL;
	}
	ring(c);
	return taken;
}

void drop_events(struct id *of) {
	for (struct event *e = take_events(of), *next; e != NULL; e = next) {
		next = e->next;
		free(e);
	}
	while (of->given != of->acknowledged)
		pthread_cond_wait(&acknowledgement, &cm_lock);
}

int move_to(struct id *id, struct channel *to) {
	struct event *e = take_events(id), *next;
	int watched = id->socket >= 0 && epoll_ctl(id->id.channel->fd, EPOLL_CTL_DEL, id->socket, NULL) == 0;
	id->id.channel = &to->channel;
	for (; e != NULL; e = next) {
		next = e->next;
		queue(to, e);
	}
	return watched ? watch_socket(id) : 0;
}

// next_event moves the channel's ids on until one has an event. NULL: nothing is there.
static struct event *next_event(struct channel *c) {
	struct epoll_event ready[16];
	while (c->first == NULL) {
		int n = epoll_wait(c->channel.fd, ready, 16, 0);
		if (n <= 0)
			return NULL;
		for (int i = 0; i < n; i++)
			if (ready[i].data.ptr != NULL) // the bell's
				advance(ready[i].data.ptr); // which frees no other id
	}
	struct event *e = c->first;
	c->first = e->next;
	ring(c);
	e->of->given++;
	if (e->event.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		((struct id *)e->event.id)->listener = NULL; // it is the program's now
	return e;
}

// restarts tells whether all signal handlers ask for system calls to go on after them, as the kernel's wait for an event does.
static int restarts(void) {
	struct sigaction a;
	for (int signal = 1; signal < NSIG; signal++)
		if (sigaction(signal, NULL, &a) == 0 && a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN && !(a.sa_flags & SA_RESTART))
			return 0;
	return 1;
}

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event) {
	if (channel == NULL || event == NULL)
		return fails(EINVAL);
	for (;;) {
		pthread_mutex_lock(&cm_lock);
		struct event *e = next_event((struct channel *)channel);
		pthread_mutex_unlock(&cm_lock);
		if (e != NULL) {
			*event = &e->event;
			return 0;
		}
		int flags = fcntl(channel->fd, F_GETFL);
		if (flags < 0)
			return -1;
		if (flags & O_NONBLOCK)
			return fails(EAGAIN);
		struct pollfd p = {.fd = channel->fd, .events = POLLIN};
		if (poll(&p, 1, -1) < 0 && !(errno == EINTR && restarts()))
			return -1;
	}
}

int rdma_ack_cm_event(struct rdma_cm_event *event) {
	if (event == NULL)
		return fails(EINVAL);
	struct event *e = (struct event *)event;
	pthread_mutex_lock(&cm_lock);
	e->of->acknowledged++;
	pthread_cond_broadcast(&acknowledgement);
	pthread_mutex_unlock(&cm_lock);
	free(e);
	return 0;
}
