package coll

// The built-in table is from BenchmarkSelection on rdma/soft, peers' memory mapped:
// processes on 2 cores, until all ranks are through, least of 21 samples of 1 to 10
// calls in a row, us, beside other work, which is worth some 20 %. From 4 ranks on
// the ranks share cores, so that every wait costs a switch: then few hops count more
// than few messages. Teams of 32 and more were measured before memory was mapped.
//
//	                     bytes ranks                       2      4      8     16
//	allgather        8 bruck                   0.429   4.85   20.6   74.3
//	allgather        8 direct                  0.398   5.15   17.3   60.5
//	allgather        8 ring                    0.356   5.26   31.4    158
//	allgather     8192 bruck                    2.65     15   69.1    355
//	allgather     8192 direct                   2.23   16.8     63    173
//	allgather     8192 ring                      2.5   11.2   61.5    208
//	allgather    65536 bruck                    14.8    103    481   2138
//	allgather    65536 direct                   6.55   55.2    179    914
//	allgather    65536 ring                     5.49   46.8    228    935
//	allgather   262144 bruck                    54.1    577   2020  11290
//	allgather   262144 direct                     31    235    898   4169
//	allgather   262144 ring                     25.1    265    864   4730
//	allreduce        8 direct                  0.355   4.95   15.4   55.6
//	allreduce        8 recursive-doubling      0.438   6.47   13.6   57.2
//	allreduce        8 reduce-scatter-gather   0.975   10.5   29.5    136
//	allreduce     8192 direct                   2.23   11.3   50.1    234
//	allreduce     8192 recursive-doubling       2.18     14   38.5    137
//	allreduce     8192 reduce-scatter-gather   0.906   11.3   35.4    123
//	allreduce    65536 direct                   11.8   56.9    311   2429
//	allreduce    65536 recursive-doubling       11.8   50.7    164    408
//	allreduce    65536 reduce-scatter-gather    4.09   23.7   91.1    364
//	allreduce   262144 direct                   34.2    402   1113   9067
//	allreduce   262144 recursive-doubling       43.5    247    622   2418
//	allreduce   262144 reduce-scatter-gather    18.3   94.5    182    799
//	alltoall         8 bruck                   0.422   5.57     22   64.7
//	alltoall         8 direct                  0.406   5.98   16.6   48.8
//	alltoall      8192 bruck                    3.21     29    114   1261
//	alltoall      8192 direct                    2.3   16.8   66.9    190
//	alltoall     65536 bruck                    21.8    249   1292   9290
//	alltoall     65536 direct                   7.55   67.2    286   2123
//	alltoall    262144 bruck                      88   1160   7061  38280
//	alltoall    262144 direct                   37.4    274    944   6321
//	bcast            8 binomial                0.349   2.22   4.81   15.2
//	bcast            8 direct                  0.253   1.95   4.62   12.1
//	bcast            8 scatter-allgather        0.59   6.18   12.3     37
//	bcast         8192 binomial                 1.18   4.44   8.24   42.7
//	bcast         8192 direct                    1.2   3.47   8.78   36.3
//	bcast         8192 scatter-allgather       0.735     11   27.5    102
//	bcast        65536 binomial                 3.23     14   34.8   94.3
//	bcast        65536 direct                   2.43   13.3   29.4     96
//	bcast        65536 scatter-allgather        2.42   17.9   32.9    154
//	bcast       262144 binomial                 14.7   45.2   80.7    357
//	bcast       262144 direct                   7.47   32.8    105    374
//	bcast       262144 scatter-allgather         7.8   37.6   83.9    349
//	gather           8 binomial                0.263   1.56   2.79   12.4
//	gather           8 direct                  0.379   2.07   5.91     12
//	gather        8192 binomial                 1.02   4.36   16.3   54.3
//	gather        8192 direct                   1.19    3.2   8.99   40.8
//	gather       65536 binomial                 4.12   17.4   49.6    266
//	gather       65536 direct                   4.09     20   36.6    208
//	gather      262144 binomial                 14.6   92.4    243    873
//	gather      262144 direct                   18.7   76.7    123    667
//	reduce           8 binomial                0.282   1.81   4.59   11.3
//	reduce           8 direct                  0.257   1.59   4.18   10.9
//	reduce           8 reduce-scatter-gather    0.94   9.96   39.5    121
//	reduce        8192 binomial                 1.28   2.05   7.91    107
//	reduce        8192 direct                   1.07   2.29   6.66   45.9
//	reduce        8192 reduce-scatter-gather   0.893   10.4   32.3    129
//	reduce       65536 binomial                 11.7   24.9   73.1    212
//	reduce       65536 direct                   11.3   17.6   63.2    175
//	reduce       65536 reduce-scatter-gather    4.26   18.8   48.4    186
//	reduce      262144 binomial                 45.2   82.9    208    617
//	reduce      262144 direct                   33.1   86.2    283    842
//	reduce      262144 reduce-scatter-gather      19   58.4    121    408
//	scan             8 chain                   0.287   1.57   4.75   19.4
//	scan             8 direct                   0.28   2.06   8.95   34.6
//	scan             8 recursive-doubling      0.349   3.51   15.3   51.5
//	scan          8192 chain                    1.36   2.99   9.36   47.8
//	scan          8192 direct                   1.22    5.5   28.6    122
//	scan          8192 recursive-doubling       1.19   7.94   35.2    133
//	scan         65536 chain                    10.2     21   57.5    136
//	scan         65536 direct                   10.7   34.1    198    828
//	scan         65536 recursive-doubling       11.5   43.3    135    443
//	scan        262144 chain                      29   84.7    213    580
//	scan        262144 direct                   31.6    140    782   3502
//	scan        262144 recursive-doubling       40.4    203    775   2123
//	scatter          8 binomial                0.264   1.89   5.13   15.2
//	scatter          8 direct                   0.32   1.94   4.84     16
//	scatter       8192 binomial                 1.22    7.8     26   50.1
//	scatter       8192 direct                   1.33    5.2   13.6   47.8
//	scatter      65536 binomial                 3.98   20.5   66.7    260
//	scatter      65536 direct                   5.77   21.2   51.5    198
//	scatter     262144 binomial                 14.5   99.8    314   1148
//	scatter     262144 direct                   23.2   84.6    236    636
//
// It is never written.
var builtIn = Table{groups: [kinds][]group{
	Barrier: {
		{1, []Rule{{0, Direct}}},
		{16, []Rule{{0, Dissemination}}},
	},
	Bcast: {
		{1, []Rule{{0, Direct}, {4<<10 + 1, ScatterAllGather}, {32 << 10, Pull}}},
		{3, []Rule{{0, Direct}, {8<<10 + 1, Pull}}},
		{6, []Rule{{0, Direct}, {128 << 10, Binomial}}},
		{12, []Rule{{0, Direct}, {32 << 10, Binomial}, {512 << 10, ScatterAllGather}}},
		{24, []Rule{{0, Binomial}, {512 << 10, ScatterAllGather}}},
	},
	Reduce: {
		{1, []Rule{{0, Direct}, {4<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Direct}, {64<<10 + 1, ReduceScatterGather}}},
		{6, []Rule{{0, Direct}, {32 << 10, ReduceScatterGather}}},
		{24, []Rule{{0, Binomial}, {256<<10 + 1, ReduceScatterGather}}},
	},
	AllReduce: {
		{1, []Rule{{0, Direct}, {2<<10 + 1, ReduceScatterGather}}},
		{3, []Rule{{0, Direct}, {8 << 10, ReduceScatterGather}}},
		{6, []Rule{{0, RecursiveDoubling}, {8 << 10, ReduceScatterGather}}},
		{24, []Rule{{0, RecursiveDoubling}, {32<<10 + 1, ReduceScatterGather}}},
	},
	AllGather: {
		{1, []Rule{{0, Direct}}},
		{3, []Rule{{0, Bruck}, {4 << 10, Ring}}},
		{6, []Rule{{0, Direct}}},
		{24, []Rule{{0, Bruck}, {1<<10 + 1, Direct}}},
	},
	ReduceScatter: {{1, []Rule{{0, Direct}}}},
	AllToAll: {
		{1, []Rule{{0, Direct}, {8<<10 + 1, Pull}}},
		{3, []Rule{{0, Direct}}},
		{24, []Rule{{0, Bruck}, {128 + 1, Direct}}},
	},
	Gather: {
		{1, []Rule{{0, Direct}}},
		{24, []Rule{{0, Binomial}, {1<<10 + 1, Direct}}},
	},
	Scatter: {
		{1, []Rule{{0, Direct}, {8<<10 + 1, Pull}}},
		{24, []Rule{{0, Binomial}, {1<<10 + 1, Direct}}},
	},
	Scan: {
		{1, []Rule{{0, Chain}}},
		{24, []Rule{{0, RecursiveDoubling}, {64 << 10, Chain}}},
	},
	ExScan: {
		{1, []Rule{{0, Chain}, {32 << 10, Pull}}},
		{3, []Rule{{0, Chain}}},
		{24, []Rule{{0, RecursiveDoubling}, {64 << 10, Chain}}},
	},
	ReduceScatterV: {{1, []Rule{{0, Direct}}}},
	Exchange:       {{1, []Rule{{0, Direct}}}},
	Fold:           {{1, []Rule{{0, Direct}}}},
	farewell:       {{1, []Rule{{0, Direct}}}},
}}
