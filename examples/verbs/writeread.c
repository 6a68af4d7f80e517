// A first program of libibverbs: a client writes into the memory of a server, and the server reads it back out of the client's.
//
//	gcc -o writeread writeread.c -libverbs
//	./writeread LOCAL_IP DEVICE [REMOTE_IP]
//
// With REMOTE_IP it is the client. The two exchange by TCP, at port 12025, what each must know of the other: where its
// memory is and the key to it, the number of its queue pair, and its address.
#include <arpa/inet.h>
#include <endian.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TCP_PORT 12025
#define PORT 1          // of the device
#define GID_INDEX 0
#define SIZE 64
#define LIMIT_MS 6000   // for a completion

static void die(const char *what) {
	perror(what);
	exit(1);
}

// What one side tells the other, in the network's order and without gaps.
struct card {
	uint64_t address;
	uint32_t rkey, qp;
	uint8_t gid[16];
};

// meet gives a connection to the other side.
static int meet(const char *local, const char *remote) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(TCP_PORT)};
	int s = socket(AF_INET, SOCK_STREAM, 0), on = 1;
	if (s < 0 || inet_pton(AF_INET, remote ? remote : local, &at.sin_addr) != 1)
		die("address");
	if (remote) {
		for (int try = 0; connect(s, (struct sockaddr *)&at, sizeof at) != 0; try++) {
			if (try == 50)
				die("connect");
			usleep(100000); // the server may still be starting
			close(s);
			s = socket(AF_INET, SOCK_STREAM, 0);
		}
		return s;
	}
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(s, (struct sockaddr *)&at, sizeof at) != 0 || listen(s, 1) != 0)
		die("listen");
	int c = accept(s, NULL, NULL);
	close(s);
	if (c < 0)
		die("accept");
	return c;
}

// swap sends so many bytes and receives as many. With one byte it is a barrier.
static void swap(int s, const void *mine, void *theirs, size_t size) {
	if (send(s, mine, size, MSG_NOSIGNAL) != (ssize_t)size || recv(s, theirs, size, MSG_WAITALL) != (ssize_t)size) {
		fprintf(stderr, "the other side has ended\n");
		exit(1);
	}
}

static struct ibv_context *open_device(const char *name) {
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	struct ibv_context *context = NULL;
	for (int i = 0; list != NULL && i < n && context == NULL; i++)
		if (strcmp(ibv_get_device_name(list[i]), name) == 0)
			context = ibv_open_device(list[i]);
	if (list != NULL)
		ibv_free_device_list(list);
	if (context == NULL) {
		fprintf(stderr, "there is no device %s\n", name);
		exit(1);
	}
	return context;
}

// connect_to brings the queue pair to where it sends and receives: INIT, RTR (ready to receive), RTS (ready to send).
static void connect_to(struct ibv_qp *qp, enum ibv_mtu mtu, const struct card *peer) {
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = PORT,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE};
	if (ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) != 0)
		die("to INIT");
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = mtu, .dest_qp_num = ntohl(peer->qp), .max_dest_rd_atomic = 1, .min_rnr_timer = 0x12,
		.ah_attr = {.port_num = PORT, .is_global = 1, .grh = {.sgid_index = GID_INDEX, .hop_limit = 64}}};
	memcpy(&rtr.ah_attr.grh.dgid, peer->gid, sizeof peer->gid);
	if (ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) != 0)
		die("to RTR");
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 0x12, .retry_cnt = 6, .rnr_retry = 0, .max_rd_atomic = 1};
	if (ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) != 0)
		die("to RTS");
}

// transfer writes the buffer to the peer, or reads the peer's, and waits for the completion.
static void transfer(struct ibv_qp *qp, struct ibv_cq *cq, enum ibv_wr_opcode opcode, struct ibv_mr *mr, const struct card *peer) {
	struct ibv_sge sge = {.addr = (uintptr_t)mr->addr, .length = SIZE, .lkey = mr->lkey};
	struct ibv_send_wr *bad, wr = {.wr_id = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED, .sg_list = &sge, .num_sge = 1,
		.wr.rdma = {.remote_addr = be64toh(peer->address), .rkey = ntohl(peer->rkey)}};
	if (ibv_post_send(qp, &wr, &bad) != 0)
		die("post");
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	for (;;) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0)
			die("poll");
		if (n > 0 && wc.status == IBV_WC_SUCCESS)
			return;
		if (n > 0) {
			fprintf(stderr, "the request ended with %s\n", ibv_wc_status_str(wc.status));
			exit(1);
		}
		clock_gettime(CLOCK_MONOTONIC, &now);
		if ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 > LIMIT_MS) {
			fprintf(stderr, "no completion within %d ms\n", LIMIT_MS);
			exit(1);
		}
	}
}

int main(int argc, char **argv) {
	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: writeread LOCAL_IP DEVICE [REMOTE_IP]\n");
		return 2;
	}
	int client = argc == 4, s = meet(argv[1], client ? argv[3] : NULL);
	struct ibv_context *context = open_device(argv[2]);
	struct ibv_port_attr port;
	union ibv_gid gid;
	if (ibv_query_port(context, PORT, &port) != 0 || ibv_query_gid(context, PORT, GID_INDEX, &gid) != 0)
		die("port");

	char buffer[SIZE] = "";
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 1, NULL, NULL, 0);
	struct ibv_mr *mr = pd == NULL ? NULL : ibv_reg_mr(pd, buffer, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr attr = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = cq == NULL || mr == NULL ? NULL : ibv_create_qp(pd, &attr);
	if (qp == NULL)
		die("queue pair");

	struct card mine = {htobe64((uintptr_t)buffer), htonl(mr->rkey), htonl(qp->qp_num), ""}, peer;
	memcpy(mine.gid, &gid, sizeof gid);
	swap(s, &mine, &peer, sizeof mine);
	connect_to(qp, port.active_mtu, &peer);

	// A peer's write says nothing to the program it goes to: TCP says when it may look, and when it may go.
	char mark = 0;
	swap(s, &mark, &mark, 1); // both queue pairs are ready
	if (client) {
		strcpy(buffer, "written by the client");
		transfer(qp, cq, IBV_WR_RDMA_WRITE, mr, &peer);
		strcpy(buffer, "read by the server");
	}
	swap(s, &mark, &mark, 1); // the write is done, and the client's buffer filled
	if (!client) {
		printf("%s\n", buffer);
		transfer(qp, cq, IBV_WR_RDMA_READ, mr, &peer);
		printf("%s\n", buffer);
	}
	swap(s, &mark, &mark, 1); // nobody needs the other's memory any more
	if (ibv_destroy_qp(qp) != 0 || ibv_dereg_mr(mr) != 0 || ibv_destroy_cq(cq) != 0 || ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0)
		die("end");
	close(s);
	return 0;
}
