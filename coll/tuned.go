package coll

// The built-in table is from BenchmarkSelection on rdma/soft with mapped memory:
// processes on 2 cores, least of 51 samples of 10 calls in registered memory, us,
// beside other work. From 4 ranks on the ranks share cores, so that every wait
// costs a switch, and one step with more messages beats several. From 16 ranks
// on it is what was measured without mapped memory.
//
//	                           ranks        2      4      8
//	barrier         direct                0.26   3.06   17.1
//	barrier         dissemination         0.34   3.56   23.3
//	bcast         8 direct                0.20   0.92   2.57
//	bcast         8 binomial              0.28   0.91   2.34
//	bcast      1024 direct                0.33   1.08   3.45
//	bcast      1024 binomial              0.29   0.95   3.19
//	bcast     65536 direct                2.22   6.70   26.4
//	bcast     65536 binomial              2.24   10.1   29.1
//	bcast     65536 scatter-allgather     2.20   13.2   45.2
//	bcast   1048576 direct                39.6    193    448
//	bcast   1048576 binomial              44.0    215    489
//	bcast   1048576 scatter-allgather     41.3    197    431
//	alltoall      8 direct                0.41   5.46   20.8
//	alltoall      8 bruck                 0.42   5.59   27.7
//	allgather    64 direct                0.35   4.13   18.5
//	allgather    64 bruck                 0.38   4.38   24.0
//	allgather    64 ring                  0.35   5.02   43.2
//	allgather 16384 direct                1.04   13.1   64.3
//	allgather 16384 bruck                 4.59   23.4    142
//	allgather 16384 ring                  1.10   13.3   80.3
//	allreduce     8 direct                0.33   4.36   18.8
//	allreduce     8 recursive-doubling    0.42   5.68   27.5
//	allreduce  4096 direct                1.32   7.06   40.0
//	allreduce  4096 recursive-doubling    1.43   8.84   37.1
//	allreduce  8192 direct                2.33   9.01   58.5
//	allreduce  8192 recursive-doubling    2.35   10.3   47.8
//	allreduce  8192 reduce-scatter-gather 0.90   10.8   53.7
//	allreduce 16384 direct                4.10   16.0   85.6
//	allreduce 16384 recursive-doubling    4.18   16.5   71.5
//	allreduce 16384 reduce-scatter-gather 1.02   11.5   52.6
//	reduce        8 direct                0.23   1.72   5.43
//	reduce        8 binomial              0.29   1.78   4.18
//	reduce     8192 direct                1.25   2.76   8.71
//	reduce     8192 binomial              1.23   1.51   5.79
//	reduce    16384 direct                3.96   7.65   24.6
//	reduce    16384 binomial              4.02   11.3   48.6
//	reduce    16384 reduce-scatter-gather 0.95   10.8   46.5
//	reduce    65536 direct                13.5   15.0   44.0
//	reduce    65536 reduce-scatter-gather 2.71   14.9   55.1
//	reduce   262144 direct                33.3   67.2    260
//	reduce   262144 reduce-scatter-gather 8.49   34.1    143
//
// It is never written.
var builtIn = Table{groups: [kinds][]group{
	Barrier: {
		{1, []Rule{{0, Direct}}},
		{16, []Rule{{0, Dissemination}}},
	},
	Bcast: {
		{1, []Rule{{0, Direct}}},
		{3, []Rule{{0, Binomial}, {16 << 10, Direct}}},
		{8, []Rule{{0, Binomial}, {16 << 10, Direct}, {1 << 20, ScatterAllGather}}},
		{16, []Rule{{0, Binomial}}},
	},
	Reduce: {
		{1, []Rule{{0, Direct}, {8<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Binomial}, {8<<10 + 1, Direct}, {64<<10 + 1, ReduceScatterGather}}},
		{16, []Rule{{0, Binomial}, {256<<10 + 1, ReduceScatterGather}}},
	},
	AllReduce: {
		{1, []Rule{{0, Direct}, {4<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Direct}, {8<<10 + 1, ReduceScatterGather}}},
		{8, []Rule{{0, Direct}, {2<<10 + 1, RecursiveDoubling}, {8<<10 + 1, ReduceScatterGather}}},
		{16, []Rule{{0, RecursiveDoubling}, {32<<10 + 1, ReduceScatterGather}}},
	},
	AllGather: {
		{1, []Rule{{0, Direct}}},
		{16, []Rule{{0, Bruck}, {512 + 1, Direct}}},
		{32, []Rule{{0, Bruck}, {1<<10 + 1, Direct}}},
	},
	ReduceScatter: {{1, []Rule{{0, Direct}}}},
	AllToAll: {
		{1, []Rule{{0, Direct}}},
		{16, []Rule{{0, Bruck}, {64 + 1, Direct}}},
		{32, []Rule{{0, Bruck}, {128 + 1, Direct}}},
	},
	Gather:         {{1, []Rule{{0, Direct}}}},
	Scatter:        {{1, []Rule{{0, Direct}}}},
	Scan:           {{1, []Rule{{0, RecursiveDoubling}, {64 << 10, Chain}}}},
	ExScan:         {{1, []Rule{{0, RecursiveDoubling}, {64 << 10, Chain}}}},
	ReduceScatterV: {{1, []Rule{{0, Direct}}}},
	Exchange:       {{1, []Rule{{0, Direct}}}},
	Fold:           {{1, []Rule{{0, Direct}}}},
	farewell:       {{1, []Rule{{0, Direct}}}},
}}
