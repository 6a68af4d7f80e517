package coll

// The built-in table. The rules for short vectors are from BenchmarkSelection on
// rdma/soft, peers' memory mapped: processes on 2 cores, until all ranks are through,
// least of 21 samples of 1 to 10 calls in a row, us, beside other work, which is worth
// some 20 %. From 4 ranks on the ranks share cores, so that every wait costs a switch:
// then few hops count more than few messages. Teams of 32 and more were measured before
// memory was mapped.
//
//	                     bytes ranks                       2      4      8     16
//	allgather        8 bruck                   0.429   4.85   20.6   74.3
//	allgather        8 direct                  0.398   5.15   17.3   60.5
//	allgather        8 ring                    0.356   5.26   31.4    158
//	allreduce        8 direct                  0.355   4.95   15.4   55.6
//	allreduce        8 recursive-doubling      0.438   6.47   13.6   57.2
//	allreduce        8 reduce-scatter-gather   0.975   10.5   29.5    136
//	alltoall         8 bruck                   0.422   5.57     22   64.7
//	alltoall         8 direct                  0.406   5.98   16.6   48.8
//	bcast            8 binomial                0.349   2.22   4.81   15.2
//	bcast            8 direct                  0.253   1.95   4.62   12.1
//	bcast            8 scatter-allgather        0.59   6.18   12.3     37
//	gather           8 binomial                0.263   1.56   2.79   12.4
//	gather           8 direct                  0.379   2.07   5.91     12
//	reduce           8 binomial                0.282   1.81   4.59   11.3
//	reduce           8 direct                  0.257   1.59   4.18   10.9
//	reduce           8 reduce-scatter-gather    0.94   9.96   39.5    121
//	scan             8 chain                   0.287   1.57   4.75   19.4
//	scan             8 direct                   0.28   2.06   8.95   34.6
//	scan             8 recursive-doubling      0.349   3.51   15.3   51.5
//	scatter          8 binomial                0.264   1.89   5.13   15.2
//	scatter          8 direct                   0.32   1.94   4.84     16
//
// The rules for long ones are from gorun-bench --tune: ordinary memory and then
// registered, 2 cores, each call behind a barrier, mean of the ranks, us. What was
// best is here, and in brackets what was the rule before there was pull.
//
//	           bytes ranks  2                  4                  8                  16
//	bcast      65536  o  pull 4.2 (4.6)     pull 10.2 (14.0)   pull 14.5 (37.7)   pull 23.1 (120)
//	bcast      65536  r  pull               pull               pull 4.5 (21.8)    pull 8.2 (92.4)
//	bcast    1048576  o  pull 26.2 (86.0)   pull 213 (301)     pull 238 (677)
//	scatter    65536  o  pull 5.2 (5.5)     pull 8.7 (16.1)    pull
//	scatter  1048576  o  pull 74.2 (154)    pull 186 (399)     pull
//	reduce     65536  o  r.-s.-gather       direct             direct 13.1 (102)  direct 24.8 (253)
//	reduce     65536  r  r.-s.-gather       direct             direct 12.1 (31.5) direct 28.6 (148)
//	reduce   1048576  o  r.-s.-gather       direct 206 (319)   direct 305 (880)
//	allgather  65536  o  direct 7.0         direct 35.4 (66.8) bruck 271 (343)    bruck 1262 (4642)
//	allgather  65536  r  direct             pull 21.5 (42.7)   pull 123 (128)     pull 649 (1396)
//	allgather 524288  o  direct 45.2
//	allgather 524288  r  direct 31.4
//	allgather1048576  o  direct 143         direct             direct
//	alltoall   65536  o  pull 7.0 (7.3)     pull 36.0 (48.3)   pull 324 (343)     pull 1794 (2106)
//	alltoall 1048576  o  direct             pull 1560 (2237)   pull 8958 (17425)
//	scan       65536  o  pull 8.7 (19.2)    direct 25.4 (31.2) chain
//	scan     1048576  o  pull 157 (270)     direct 527 (559)   pull 1242 (1453)
//	exscan   1048576  o  pull 79.6 (129)    pull 395 (524)     chain
//
// The mean of the ranks is kind to a direct reduction, whose leaves are done early: of
// 256 KiB and more on up to 8 ranks it is not the rule, because in a row of calls its root
// takes 2 to 5 times as long in registered memory (4 ranks, 256 KiB: 91 us, not 18).
//
// An all-gather that is pulled reads n-1 times as much as its block, which comes out of
// other cores' caches; in the direct one each core sends what is in its own. From
// blocks of 512 KiB on, which the caches hold no more of, it takes 2/3 of the time, in
// both memories (2 ranks: 45.2 us, not 69.2, and 31.4, not 47.8; 1 MiB 143, not 213).
// Below there is no difference beyond the noise.
//
// The rules across hosts are from ranks of two and four forked agents on 2 cores, in a row
// of calls, median of 0.6 s, us; what they were before is in brackets. Those of long vectors
// combine in the order of the ranks, as rules for one host do: that the bits are the same.
//
//	              bytes hosts x ranks  2 x 2          2 x 4          4 x 4
//	allreduce         8 two-level      108 (174)      210 (292)      1637 (4441)
//	allreduce      4096 two-level      131 (196)      234 (326)      1545 (6225)
//	allreduce     16384 two-level      171 (502)      336 (1763)     1575 (44903)
//	allreduce     65536 two-level      300 (547)      624 (2132)     5540 (46891)
//	allreduce    262144 two-level                     3948 (2825)    23039 (69525)
//
// All-reduces by the chain of hosts and, in brackets, by reduce-scatter and gather, which was the
// rule: ranks of two forked agents on 2 cores beside other work (load 20), each call behind a
// barrier, in turns, medians of 7 runs (r: 5), and the least of them, us.
//
//	              bytes memory 2 x 2, median         least
//	allreduce    262144  o     534 (646)             383 (479)
//	allreduce   1048576  o     1661 (1830)           1382 (1613)
//	allreduce   8388608  o     16745 (19270)         13187 (15008)
//	allreduce   1048576  r     1358 (2021)           1123 (1891)
//
// Those of other kinds are from calls by two levels and by the rule for one host in turns of
// ten, beside much other work (load 40), whose time is that of being switched to: so here is
// how much of the CPU time of all ranks, and for long vectors of the time, two levels take.
//
//	                              2 x 2    2 x 4    4 x 4
//	barrier              CPU      0.91     0.65     0.27
//	bcast           8    CPU      0.75     0.85     0.77
//	bcast        8184    CPU      0.93     0.75     0.74
//	bcast       65536    time     0.54     0.59     0.43
//	bcast     1048576    time     0.48     0.62     0.69
//	allgather       8    CPU      0.93     0.57     0.40
//	allgather    1024    CPU      0.82     0.77     0.59
//	allgather   16384    CPU      0.62     0.52     0.28
//	allgather   65536    CPU      0.81     0.48     0.37
//	allgather   65536    time     1.02     0.86     0.73
//	alltoall        8    CPU      0.86     0.48     0.29
//	alltoall     1024    CPU      0.90     0.52     0.48
//	alltoall     8184    CPU      1.43     0.91     0.42
//	reducescatter   8    CPU      1.00     0.42     0.25
//	reducescatter1024    CPU      0.99     0.70     0.51
//	reducescatter8184    CPU      1.46     0.79     0.29
//	reducescatter8184    time     2.53     2.01     0.51
//
// Beside that load an all-gather, all-to-all or reduce-scatter of 1 KiB takes 1 to 2 times as long
// by two levels, for it has three steps and not one, of which each waits for its turn.
//
// It is never written.
var builtIn = Table{groups: [kinds][]group{
	Barrier: {
		{1, []Rule{{0, Direct}}},
		{16, []Rule{{0, Dissemination}}},
	},
	Bcast: {
		{1, []Rule{{0, Direct}, {32 << 10, Pull}}},
		{3, []Rule{{0, Direct}, {8 << 10, Pull}}},
		{24, []Rule{{0, Binomial}, {8 << 10, Pull}}},
	},
	Reduce: {
		{1, []Rule{{0, Direct}, {8<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Direct}, {64<<10 + 1, ReduceScatterGather}}},
		{12, []Rule{{0, Direct}, {256<<10 + 1, ReduceScatterGather}}},
		{24, []Rule{{0, Binomial}, {256<<10 + 1, ReduceScatterGather}}},
	},
	AllReduce: {
		{1, []Rule{{0, Direct}, {4<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Direct}, {8 << 10, ReduceScatterGather}}},
		{6, []Rule{{0, RecursiveDoubling}, {8 << 10, ReduceScatterGather}}},
		{24, []Rule{{0, RecursiveDoubling}, {32<<10 + 1, ReduceScatterGather}}},
	},
	AllGather: {
		{1, []Rule{{0, Direct}}},
		{3, []Rule{{0, Bruck}, {4 << 10, Ring}, {8 << 10, Direct}}},
		{6, []Rule{{0, Direct}}},
		{12, []Rule{{0, Direct}, {64 << 10, Pull}}},
		{24, []Rule{{0, Bruck}, {1<<10 + 1, Direct}, {64 << 10, Pull}}},
	},
	ReduceScatter: always(Direct),
	AllToAll: {
		{1, []Rule{{0, Direct}, {8<<10 + 1, Pull}}},
		{24, []Rule{{0, Bruck}, {128 + 1, Direct}, {8<<10 + 1, Pull}}},
	},
	Gather: {
		{1, []Rule{{0, Direct}}},
		{24, []Rule{{0, Binomial}, {1<<10 + 1, Direct}}},
	},
	Scatter: {
		{1, []Rule{{0, Direct}, {8 << 10, Pull}}},
		{24, []Rule{{0, Binomial}, {1<<10 + 1, Direct}, {8 << 10, Pull}}},
	},
	Scan: {
		{1, []Rule{{0, Chain}, {16 << 10, Pull}}},
		{3, []Rule{{0, Chain}}},
		{6, []Rule{{0, Chain}, {512 << 10, Pull}}},
		{24, []Rule{{0, RecursiveDoubling}, {64 << 10, Chain}}},
	},
	ExScan: {
		{1, []Rule{{0, Chain}, {16 << 10, Pull}}},
		{3, []Rule{{0, Chain}, {512 << 10, Pull}}},
		{24, []Rule{{0, RecursiveDoubling}, {64 << 10, Chain}}},
	},
}, across: [kinds][]group{
	ReduceScatter: {
		{1, []Rule{{0, Direct}}},
		{6, []Rule{{0, TwoLevel}, {1<<10 + 1, Direct}}},
		{12, []Rule{{0, TwoLevel}, {8<<10 + 1, Direct}}},
	},
	Barrier: always(TwoLevel),
	Bcast:   always(TwoLevel),
	AllGather: {
		{1, []Rule{{0, TwoLevel}, {64<<10 + 1, Direct}}},
	},
	AllToAll: {
		{1, []Rule{{0, TwoLevel}, {1<<10 + 1, Direct}}},
		{12, []Rule{{0, TwoLevel}, {8<<10 + 1, Direct}}},
	},
	AllReduce: {
		{1, []Rule{{0, TwoLevel}, {64 << 10, HostChain}}},
	},
}}
