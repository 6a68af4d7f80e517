package main

// hydraOptions are options of Hydra, MPICH's and Intel MPI's mpiexec, that gorun
// has nothing for: those that change no result are noted, the others refused.
func hydraOptions() []option {
	const (
		reach      = "gorun reaches other machines by ssh; --rsh names another command"
		inside     = "gorun has no such component"
		network    = "between hosts gorun uses the addresses of their names"
		checkpoint = "gorun takes no checkpoints; programs can write their own"
		tools      = "gorun starts no tools; put the tool before the program: gorun -np 4 tool ./program"
		gpus       = "gorun assigns no GPUs; a wrapper can, by GORUN_LOCAL_RANK: CUDA_VISIBLE_DEVICES=$GORUN_LOCAL_RANK"
		fabric     = "the program's MPI chooses its network; use its own variables, for Intel MPI I_MPI_FABRICS"
	)
	return []option{
		note1(reach, "bootstrap", "rmk"),
		only(hydra, note1(reach, "launcher")),
		note0(reach, "enable-x", "disable-x"),
		note1(inside, "demux", "topolib", "branch-count", "pmi-connect"),
		note0(inside, "pmi-aggregate", "pmi-noaggregate", "noconf", "localroot", "localonly", "silent-abort"),
		note1(network, "localhost"),
		note0(network, "disable-hostname-propagation", "enable-hostname-propagation"),
		note0("gorun never mixes the lines of ranks", "ordered-output"),
		only(hydra, note1("gorun does not tune Intel MPI; use its own variable I_MPI_TUNING_BIN", "tune")),
		note0("gorun always cleans up after a job", "cleanup"),
		note0(fabric, "ofi", "rdma", "RDMA", "dapl", "ib", "tmi", "psm", "psm2", "mx", "shm", "ilp64"),
		refuse0("the ranks of a job have the same paths on all hosts", "hybrid-hosts"),
		refuse1("gorun publishes names only within one job", "nameserver"),
		refuse1(gpus, "gpus-per-proc", "g", "gpu-subdevs-per-proc"),
		refuse1(checkpoint, "ckpointlib", "ckpoint-prefix", "ckpoint-interval", "ckpoint-num", "ckpoint-preserve", "ckpoint-logfile"),
		refuse0(checkpoint, "ckpoint", "restart"),
		refuse1(tools, "gtool", "gtoolfile", "gdba"),
		refuse0(tools, "gdb", "trace", "check_mpi", "aps", "mps"),
		refuse1("ranks inherit gorun's umask; set it first: (umask 022; gorun ...)", "umask"),
	}
}
