// A program that loads libibverbs when it runs, and asks for each function by its version, as NCCL does.
#include "../../verbs/abi.h"

#define __USE_GNU
#include <dlfcn.h>
#include <stdio.h>

static void *library;

static void *function(const char *name, const char *version) {
	void *found = dlvsym(library, name, version);
	if (found == NULL)
		printf("%s: %s\n", name, dlerror());
	return found;
}

int main(void) {
	static char memory[4096];
	if ((library = dlopen("libibverbs.so.1", RTLD_NOW)) == NULL)
		return printf("%s\n", dlerror()), 1;
	static const char *const names[] = {"ibv_fork_init", "ibv_free_device_list", "ibv_get_device_name", "ibv_get_async_event", "ibv_ack_async_event", "ibv_query_device", "ibv_query_port",
		"ibv_query_gid", "ibv_query_qp", "ibv_create_cq", "ibv_destroy_cq", "ibv_create_qp", "ibv_modify_qp", "ibv_destroy_qp",
		"ibv_event_type_str", "ibv_wc_status_str"};
	int lacks = 0;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		lacks |= function(names[i], "IBVERBS_1.1") == NULL;
	lacks |= function("ibv_query_ece", "IBVERBS_1.10") == NULL || function("ibv_set_ece", "IBVERBS_1.10") == NULL;
	lacks |= function("ibv_reg_dmabuf_mr", "IBVERBS_1.12") == NULL;
	struct ibv_device **(*list)(int *) = function("ibv_get_device_list", "IBVERBS_1.1");
	struct ibv_context *(*open_device)(struct ibv_device *) = function("ibv_open_device", "IBVERBS_1.1");
	int (*close_device)(struct ibv_context *) = function("ibv_close_device", "IBVERBS_1.1");
	struct ibv_pd *(*alloc_pd)(struct ibv_context *) = function("ibv_alloc_pd", "IBVERBS_1.1");
	int (*dealloc_pd)(struct ibv_pd *) = function("ibv_dealloc_pd", "IBVERBS_1.1");
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t, unsigned) = function("ibv_reg_mr_iova2", "IBVERBS_1.8");
	int (*dereg_mr)(struct ibv_mr *) = function("ibv_dereg_mr", "IBVERBS_1.1");
	if (lacks || !list || !open_device || !close_device || !alloc_pd || !dealloc_pd || !reg_mr || !dereg_mr)
		return 1;
	int n;
	struct ibv_device **all = list(&n);
	struct ibv_context *ctx = all == NULL || n < 1 ? NULL : open_device(all[0]);
	struct ibv_pd *pd = ctx == NULL ? NULL : alloc_pd(ctx);
	struct ibv_mr *mr = pd == NULL ? NULL : reg_mr(pd, memory, sizeof memory, (uintptr_t)memory, 7);
	if (mr == NULL || dereg_mr(mr) != 0 || dealloc_pd(pd) != 0 || close_device(ctx) != 0)
		return printf("the device does not work\n"), 1;
	dlclose(library);
	printf("all is well\n");
	return 0;
}
