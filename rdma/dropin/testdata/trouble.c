// What gorun-verbs --check is to find, and --adverse is to bring: two connected queue pairs of one process, and a
// mistake, or trouble, that the argument names.
#include "../../verbs/abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RC = 2, INIT = 1, RTR, RTS, RIGHTS = 1 | 2 | 4, DEPTH = 16, SIGNALED = 2, PAGE = 4096 };
enum { TO_INIT = 0x39, TO_RTR = 0x129181, TO_RTS = 0x12e01 }; // the attributes that each step needs

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *a, *b;
static struct ibv_mr *mr, *far;
static char near_memory[PAGE], far_memory[PAGE];

static void die(const char *what) {
	printf("%s\n", what);
	exit(1);
}

#define DO(call)                                                                                  \
	do {                                                                                      \
		if ((call) != 0)                                                                  \
			die(#call);                                                               \
	} while (0)

static struct ibv_qp *make(void) {
	struct ibv_qp_init_attr qi = {.send_cq = cq, .recv_cq = cq, .qp_type = RC,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qi);
	if (qp == NULL)
		die("ibv_create_qp");
	return qp;
}

static void joined(struct ibv_qp *qp, const struct ibv_qp *to, int grh) {
	struct ibv_qp_attr q = {.qp_state = INIT, .port_num = 1, .qp_access_flags = RIGHTS};
	DO(ibv_modify_qp(qp, &q, TO_INIT));
	struct ibv_port_attr port;
	DO(ibv_query_port(ctx, 1, (void *)&port));
	q = (struct ibv_qp_attr){.qp_state = RTR, .path_mtu = 3, .dest_qp_num = to->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 1,
		.ah_attr = {.port_num = 1, .dlid = port.lid, .is_global = (uint8_t)grh}};
	DO(ibv_query_gid(ctx, 1, 0, &q.ah_attr.grh.dgid));
	DO(ibv_modify_qp(qp, &q, TO_RTR));
	q = (struct ibv_qp_attr){.qp_state = RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
	DO(ibv_modify_qp(qp, &q, TO_RTS));
}

static int write_to(uint64_t id, void *from, const struct ibv_mr *of, uint32_t rkey, unsigned flags) {
	struct ibv_sge s = {(uintptr_t)from, 64, of->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = flags}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)far_memory;
	wr.wr.rdma.rkey = rkey;
	return ctx->ops.post_send(a, &wr, &bad);
}

static int receive(void) {
	struct ibv_sge s = {(uintptr_t)near_memory, 64, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &s, .num_sge = 1}, *bad;
	return ctx->ops.post_recv(a, &wr, &bad);
}

static int completion(void) {
	struct ibv_wc wc;
	int n;
	while ((n = ctx->ops.poll_cq(cq, 1, &wc)) == 0)
		;
	if (n < 0)
		die("poll_cq");
	return wc.status;
}

// ---- mistakes ----

static void none(void) {
	DO(write_to(1, near_memory, mr, far->rkey, SIGNALED));
	DO(completion());
	memset(near_memory, 1, sizeof near_memory);
	for (int i = 0; i < 3 * DEPTH; i++) {
		DO(write_to(2, near_memory, mr, far->rkey, i % 4 == 3 ? SIGNALED : 0));
		if (i % 4 == 3)
			DO(completion());
	}
	DO(receive());
}

static void touched(void) {
	DO(write_to(0x11, near_memory, mr, far->rkey, 0));
	DO(write_to(0x12, near_memory + 64, mr, far->rkey, SIGNALED));
	near_memory[63] ^= 1;
	DO(completion());
}

static void silent(void) {
	for (int i = 0; i < DEPTH; i++)
		DO(write_to(3, near_memory, mr, far->rkey, 0));
}

static void full(void) {
	int n = 0;
	while (write_to(4, near_memory, mr, far->rkey, SIGNALED) == 0)
		n++;
	while (n-- > 0)
		DO(completion());
}

static void receives(void) {
	while (receive() == 0)
		;
}

static void refuses(uint32_t key) {
	DO(write_to(0x21, near_memory, mr, key, SIGNALED));
	if (completion() != 10)
		die("not a remote access error");
}

static void gone(void) {
	uint32_t key = far->rkey;
	DO(ibv_dereg_mr(far));
	refuses(key);
}

static void outside(void) {
	DO(ibv_dereg_mr(far));
	if ((far = ibv_reg_mr(pd, far_memory, 8, RIGHTS)) == NULL)
		die("ibv_reg_mr");
	refuses(far->rkey);
}

static void freed(void) {
	char *p = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *m = ibv_reg_mr(pd, p, PAGE, RIGHTS);
	if (p == MAP_FAILED || m == NULL)
		die("no memory");
	*p = 1;
	DO(write_to(0x31, p, m, far->rkey, SIGNALED));
	DO(munmap(p, PAGE));
	DO(completion());
	DO(ibv_dereg_mr(m));
}

// ---- trouble ----

static void limits(void) {
	struct ibv_device_attr d;
	DO(ibv_query_device(ctx, &d));
	if (d.max_qp_wr > 64 || d.max_cqe > 256 || d.max_sge > 2)
		die("the limits are large");
	if (ibv_create_cq(ctx, d.max_cqe + 1, NULL, NULL, 0) != NULL)
		die("a completion queue above the limit");
	int n = 1;
	while (ibv_reg_mr(pd, near_memory, PAGE, 1) != NULL)
		n++;
	if (n > d.max_mr)
		die("more regions than the limit");
}

static void errors(void) {
	int n = 0, status;
	do {
		DO(write_to(5, near_memory, mr, far->rkey, SIGNALED));
		status = completion();
	} while (status == 0 && n++ < 100000);
	if (status != 12)
		die("no request was lost");
	DO(write_to(6, near_memory, mr, far->rkey, SIGNALED));
	if (completion() != 5)
		die("a queue pair works on after an error");
}

// came waits for an event of the port.
static void came(int type) {
	struct ibv_async_event e;
	DO(ibv_get_async_event(ctx, &e));
	if (e.event_type != type || e.element.port_num != 1)
		die("another event");
	ibv_ack_async_event(&e);
}

static void link_flaps(void) {
	struct ibv_port_attr port = {.state = 4};
	for (int n = 0; port.state == 4 && n < 100000; n++) {
		DO(write_to(7, near_memory, mr, far->rkey, SIGNALED));
		struct ibv_wc wc;
		do
			DO(ibv_query_port(ctx, 1, (void *)&port));
		while (port.state == 4 && ctx->ops.poll_cq(cq, 1, &wc) == 0);
	}
	came(10);
	DO(completion()); // once the port is up again
	came(9);
	DO(ibv_query_port(ctx, 1, (void *)&port));
	if (port.state != 4)
		die("the port is not up");
}

static const struct {
	const char *name;
	void (*run)(void);
	int grh;
} cases[] = {{"none", none, 1}, {"touched", touched, 1}, {"silent", silent, 1}, {"full", full, 1}, {"receives", receives, 1}, {"gone", gone, 1},
	{"outside", outside, 1}, {"freed", freed, 1}, {"grh", none, 0}, {"limits", limits, 1}, {"errors", errors, 1}, {"link", link_flaps, 1}};

int main(int argc, char **argv) {
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	if (list == NULL || n < 1 || argc != 2 || (ctx = ibv_open_device(list[0])) == NULL)
		die("no device");
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(ctx);
	cq = ibv_create_cq(ctx, 2 * DEPTH, NULL, NULL, 0);
	a = make();
	b = make();
	mr = ibv_reg_mr(pd, near_memory, PAGE, RIGHTS);
	far = ibv_reg_mr(pd, far_memory, PAGE, RIGHTS);
	if (mr == NULL || far == NULL)
		die("ibv_reg_mr");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (strcmp(cases[i].name, argv[1]) == 0) {
			joined(a, b, cases[i].grh);
			joined(b, a, cases[i].grh);
			cases[i].run();
			printf("over\n");
			return 0;
		}
	die("no such case");
}
