package coll

// The built-in table is from BenchmarkSelection on rdma/soft: processes on
// 2 cores, least of 102 samples of 10 calls, us, beside other work. From 4 ranks
// on the ranks share cores, so that every wait costs a switch.
//
//	                           ranks        2      4      8     16     32
//	alltoall        8 direct                   0.52   7.20   17.3   67.2    258
//	alltoall        8 bruck                    0.49   6.47   14.2   63.6    193
//	alltoall      128 direct                   0.49   7.03   17.7   64.7    309
//	alltoall      128 bruck                    0.52   7.85   18.8   69.8    230
//	alltoall     1024 direct                   0.70   8.36   22.2   91.4    476
//	alltoall     1024 bruck                    0.82   8.27   32.9    149    651
//	allgather      64 direct                   0.50   6.70   15.9   61.3    281
//	allgather      64 bruck                    0.49   6.87   20.4   48.6    148
//	allgather      64 ring                     0.44   7.78   31.8    149    552
//	allgather    1024 direct                   0.67   7.12   27.3   87.4    428
//	allgather    1024 bruck                    0.70   7.72   24.3   83.7    303
//	allgather    1024 ring                     0.65   8.19   37.6    160    539
//	allgather   16384 direct                   1.54   17.7   58.7    262   1219
//	allgather   16384 bruck                    4.61   28.0   95.0    407   1667
//	allgather   16384 ring                     1.47   18.8   83.7    339   1308
//	allreduce    4096 recursive-doubling       2.32   19.9   39.9    107    349
//	allreduce    4096 reduce-scatter-gather    2.54   26.4   67.2    251   1187
//	allreduce    8192 recursive-doubling       3.79   25.1   48.9    164    417
//	allreduce    8192 reduce-scatter-gather    3.41   28.8   79.8    253   1201
//	allreduce   16384 recursive-doubling       7.34   39.6   79.4    226    585
//	allreduce   16384 reduce-scatter-gather    5.16   27.7   74.8    284   1289
//	allreduce   65536 recursive-doubling       25.9   94.7    210    610   1766
//	allreduce   65536 reduce-scatter-gather    16.0   54.5    114    436   1649
//	reduce       8192 binomial                 2.26   4.46   12.5   86.9    180
//	reduce       8192 reduce-scatter-gather    3.30   23.2   51.7    165    742
//	reduce      65536 binomial                 23.7   50.3   91.3    178    455
//	reduce      65536 reduce-scatter-gather    15.2   51.7   95.2    289   1048
//	reduce     262144 binomial                 57.0    175    324    584   1364
//	reduce     262144 reduce-scatter-gather    57.9    216    335    728   1731
//
// It is never written.
var builtIn = Table{groups: [kinds][]group{
	Barrier: {{1, []Rule{{0, Dissemination}}}},
	Bcast: {
		{1, []Rule{{0, Binomial}}},
	},
	Reduce: {
		{1, []Rule{{0, Binomial}, {8<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Binomial}, {256<<10 + 1, ReduceScatterGather}}},
	},
	AllReduce: {
		{1, []Rule{{0, RecursiveDoubling}, {4<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, RecursiveDoubling}, {8<<10 + 1, ReduceScatterGather}}},
		{8, []Rule{{0, RecursiveDoubling}, {16<<10 + 1, ReduceScatterGather}}},
		{16, []Rule{{0, RecursiveDoubling}, {32<<10 + 1, ReduceScatterGather}}},
	},
	AllGather: {
		{1, []Rule{{0, Direct}}},
		{8, []Rule{{0, Bruck}, {256 + 1, Direct}}},
		{16, []Rule{{0, Bruck}, {512 + 1, Direct}}},
		{32, []Rule{{0, Bruck}, {1<<10 + 1, Direct}}},
	},
	ReduceScatter: {{1, []Rule{{0, Direct}}}},
	AllToAll: {
		{1, []Rule{{0, Direct}}},
		{8, []Rule{{0, Bruck}, {32 + 1, Direct}}},
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
