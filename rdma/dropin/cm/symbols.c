// Made of symbols.txt: go test ./rdma/dropin -run TestSymbols -update
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define FAILS(name) long name(void); long name(void) { errno = EOPNOTSUPP; return -1; }
#define GIVES_NULL(name) void *name(void); void *name(void) { errno = EOPNOTSUPP; return NULL; }
#define DOES_NOTHING(name) void name(void); void name(void) {}

FAILS(raccept)
FAILS(rbind)
FAILS(rclose)
FAILS(rconnect)
FAILS(rdma_join_multicast)
FAILS(rdma_leave_multicast)
FAILS(rfcntl)
FAILS(rgetpeername)
FAILS(rgetsockname)
FAILS(rgetsockopt)
FAILS(riomap)
FAILS(riounmap)
FAILS(riowrite)
FAILS(rlisten)
FAILS(rpoll)
FAILS(rread)
FAILS(rreadv)
FAILS(rrecv)
FAILS(rrecvfrom)
FAILS(rrecvmsg)
FAILS(rselect)
FAILS(rsend)
FAILS(rsendmsg)
FAILS(rsendto)
FAILS(rsetsockopt)
FAILS(rshutdown)
FAILS(rsocket)
FAILS(rwrite)
FAILS(rwritev)
FAILS(rdma_join_multicast_ex)
FAILS(rdma_get_remote_ece)
FAILS(rdma_set_local_ece)
