// What a program in C does for each message, as perftest's ib_write_lat does: requests
// that are laid out once, ibv_post_send, and ibv_poll_cq until all have completed. A
// tracer counts its instructions between two signals; the first two enclose nothing.
//
//	loop REQUESTS ROUNDS

#include <infiniband/verbs.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

enum { MOST = 64 };

int main(int argc, char **argv) {
	int n = argc > 2 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 0, devices;
	struct ibv_device **list = ibv_get_device_list(&devices);
	if (n < 1 || n > MOST || list == NULL)
		return 2;
	struct ibv_context *ctx = ibv_open_device(list[0]);
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, MOST, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = MOST, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	static struct ibv_send_wr wrs[MOST];
	static struct ibv_sge sges[MOST];
	for (int i = 0; i < n; i++) {
		sges[i] = (struct ibv_sge){.length = 8, .lkey = 0x1234};
		wrs[i] = (struct ibv_send_wr){
			.wr_id = i, .next = i + 1 < n ? &wrs[i + 1] : NULL, .sg_list = &sges[i], .num_sge = 1,
			.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		};
	}
	struct ibv_wc wc[MOST];
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		return 3;
	printf("thread %d\n", (int)getpid());
	fflush(stdout);
	raise(SIGUSR1);
	raise(SIGUSR1);
	while (rounds-- > 0) {
		raise(SIGUSR1);
		struct ibv_send_wr *bad;
		if (ibv_post_send(qp, wrs, &bad) != 0)
			return 1;
		for (int got = 0; got < n;) {
			int ne = ibv_poll_cq(cq, n - got, wc);
			if (ne < 0)
				return 1;
			for (int i = 0; i < ne; i++)
				if (wc[i].status != IBV_WC_SUCCESS)
					return 1;
			got += ne;
		}
		raise(SIGUSR1);
	}
	return 0;
}
