// Names to addresses, and ids made from them.
#include "cm.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

// copied gives a copy of an address, NULL where there is none or no memory.
static struct sockaddr *copied(const struct sockaddr *a, socklen_t length) {
	struct sockaddr *copy = a == NULL || length == 0 ? NULL : malloc(length);
	return copy == NULL ? NULL : memcpy(copy, a, length);
}

int rdma_getaddrinfo(const char *node, const char *service, const struct rdma_addrinfo *hints, struct rdma_addrinfo **result) {
	static const struct rdma_addrinfo none = {.ai_port_space = RDMA_PS_TCP};
	const struct rdma_addrinfo *h = hints == NULL ? &none : hints;
	int passive = h->ai_flags & RAI_PASSIVE;
	if (result == NULL || (node == NULL && service == NULL && h->ai_src_addr == NULL && h->ai_dst_addr == NULL))
		return fails(EINVAL);
	struct rdma_addrinfo *r = calloc(1, sizeof *r);
	if (r == NULL)
		return fails(ENOMEM);
	r->ai_flags = h->ai_flags;
	r->ai_port_space = h->ai_port_space != 0 ? h->ai_port_space : h->ai_qp_type == QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
	r->ai_qp_type = h->ai_qp_type != 0 ? h->ai_qp_type : r->ai_port_space == RDMA_PS_UDP || r->ai_port_space == RDMA_PS_IPOIB ? QPT_UD : QPT_RC;
	if (node != NULL || service != NULL) {
		struct addrinfo ask = {.ai_family = h->ai_flags & RAI_FAMILY || h->ai_family != 0 ? h->ai_family : AF_UNSPEC,
			.ai_socktype = r->ai_port_space == RDMA_PS_UDP ? SOCK_DGRAM : SOCK_STREAM,
			.ai_flags = (passive ? AI_PASSIVE : 0) | (h->ai_flags & RAI_NUMERICHOST ? AI_NUMERICHOST : 0)}, *found;
		int rc = getaddrinfo(node, service, &ask, &found);
		if (rc != 0) {
			free(r);
			errno = rc == EAI_SYSTEM ? errno : rc == EAI_MEMORY ? ENOMEM : rc == EAI_AGAIN ? EAGAIN : EADDRNOTAVAIL;
			return rc; // as librdmacm, whose callers know gai_strerror
		}
		*(passive ? &r->ai_src_addr : &r->ai_dst_addr) = copied(found->ai_addr, found->ai_addrlen);
		*(passive ? &r->ai_src_len : &r->ai_dst_len) = found->ai_addrlen;
		r->ai_family = found->ai_family;
		freeaddrinfo(found);
	}
	if (r->ai_src_addr == NULL && h->ai_src_addr != NULL) {
		r->ai_src_addr = copied(h->ai_src_addr, r->ai_src_len = h->ai_src_len);
		r->ai_family = h->ai_src_addr->sa_family;
	}
	if (r->ai_dst_addr == NULL && h->ai_dst_addr != NULL) {
		r->ai_dst_addr = copied(h->ai_dst_addr, r->ai_dst_len = h->ai_dst_len);
		r->ai_family = h->ai_dst_addr->sa_family;
	}
	if ((r->ai_src_len != 0 && r->ai_src_addr == NULL) || (r->ai_dst_len != 0 && r->ai_dst_addr == NULL)) {
		rdma_freeaddrinfo(r);
		return fails(ENOMEM);
	}
	*result = r;
	return 0;
}

void rdma_freeaddrinfo(struct rdma_addrinfo *r) {
	for (struct rdma_addrinfo *next; r != NULL; r = next) {
		next = r->ai_next;
		free(r->ai_src_addr);
		free(r->ai_dst_addr);
		free(r);
	}
}

int rdma_create_ep(struct rdma_cm_id **id, struct rdma_addrinfo *at, struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
	if (id == NULL || at == NULL)
		return fails(EINVAL);
	pthread_mutex_lock(&cm_lock);
	struct id *made = id_make(NULL, NULL, at->ai_port_space, at->ai_qp_type);
	pthread_mutex_unlock(&cm_lock);
	if (made == NULL)
		return fails(ENOMEM);
	struct rdma_cm_id *i = &made->id;
	int rc;
	if (at->ai_flags & RAI_PASSIVE) {
		rc = rdma_bind_addr(i, at->ai_src_addr);
		i->pd = pd;
		if (rc == 0 && attr != NULL && (made->passive = malloc(sizeof *attr)) == NULL)
			rc = fails(ENOMEM);
		if (rc == 0 && attr != NULL) {
			*made->passive = *attr;
			made->passive->qp_type = at->ai_qp_type;
		}
	} else {
		rc = rdma_resolve_addr(i, at->ai_src_addr, at->ai_dst_addr, 2000);
		if (rc == 0)
			rc = rdma_resolve_route(i, 2000);
		if (rc == 0 && attr != NULL) {
			attr->qp_type = at->ai_qp_type;
			rc = rdma_create_qp(i, pd, attr);
		}
	}
	if (rc != 0) {
		int error = errno;
		rdma_destroy_ep(i);
		return fails(error);
	}
	*id = i;
	return 0;
}

void rdma_destroy_ep(struct rdma_cm_id *id) {
	if (id->qp != NULL)
		rdma_destroy_qp(id);
	if (id->srq != NULL)
		rdma_destroy_srq(id);
	rdma_destroy_id(id);
}

const char *rdma_event_str(int event) {
	static const char *const names[] = {
		"RDMA_CM_EVENT_ADDR_RESOLVED", "RDMA_CM_EVENT_ADDR_ERROR", "RDMA_CM_EVENT_ROUTE_RESOLVED", "RDMA_CM_EVENT_ROUTE_ERROR",
		"RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE", "RDMA_CM_EVENT_CONNECT_ERROR", "RDMA_CM_EVENT_UNREACHABLE",
		"RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_ESTABLISHED", "RDMA_CM_EVENT_DISCONNECTED", "RDMA_CM_EVENT_DEVICE_REMOVAL",
		"RDMA_CM_EVENT_MULTICAST_JOIN", "RDMA_CM_EVENT_MULTICAST_ERROR", "RDMA_CM_EVENT_ADDR_CHANGE", "RDMA_CM_EVENT_TIMEWAIT_EXIT",
	};
	return event >= 0 && event < (int)(sizeof names / sizeof *names) ? names[event] : "UNKNOWN EVENT";
}
