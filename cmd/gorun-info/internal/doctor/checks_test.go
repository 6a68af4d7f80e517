package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/mpilib"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// On a good machine nothing is found, each finding says what it is about, and no program runs twice.
func TestHealthy(t *testing.T) {
	m := healthy()
	for _, f := range Examine(t.Context(), m.View, nil) {
		if f.State != OK || f.Fix != "" {
			t.Errorf("%s: %s: %s; fix: %s", f.Name, f.State, f.Found, f.Fix)
		}
		if f.Name == "" || f.Found == "" || f.Why == "" {
			t.Errorf("got %+v, want all of name, found and why", f)
		}
	}
	for line, times := range m.ran {
		if times > 1 {
			t.Errorf("%s ran %d times", line, times)
		}
	}
}

// Which MPI a program loads, as its loader says.
func TestLoads(t *testing.T) {
	library, err := os.Executable() // it is there; what it is does not matter
	if err != nil {
		t.Fatal(err)
	}
	dynamic := mpilib.ELF{OK: true, Needed: []string{"libmpi_abi.so.1", "libc.so.6"}}
	for _, c := range []struct {
		elf        mpilib.ELF
		loader     string
		state      State
		found, fix string
	}{
		{mpilib.ELF{}, "", OK, "/p is no ELF program", ""},
		{mpilib.ELF{OK: true, Go: true}, "", OK, "/p is a program of Go", ""},
		{mpilib.ELF{OK: true}, "", OK, "/p is static", ""},
		{dynamic, "\tlibc.so.6 => /lib/libc.so.6 (0x1)\n", OK, "/p is linked with no MPI", ""},
		{dynamic, "\tlibmpi_abi.so.1 => not found\n", Problem, "/p: libmpi_abi.so.1 is not found", "gorun --mpi mpich /p, or openmpi"},
		{dynamic, "\tlibmpi.so.12 => not found\n", Problem, "/p: libmpi.so.12 is not found", "install the MPI that it was built with"},
		{dynamic, "\tlibmpi_abi.so.1 => " + library + " (0x1)\n", OK, "/p loads MPI, " + library + " (as libmpi_abi.so.1); gorun --mpi chooses another", ""},
		{dynamic, "\tlibmpi.so.12 => " + library + " (0x1)\n\tlibmpi.so.40 => " + library + " (0x2)\n", Problem, "/p loads two MPIs: ", "ldd /p"},
	} {
		m := healthy()
		m.elf = c.elf
		m.says["env LD_TRACE_LOADED_OBJECTS=1 /p"] = c.loader
		if got := Loads(t.Context(), m.View, "/p"); got.State != c.state || !strings.HasPrefix(got.Found, c.found) || !strings.HasPrefix(got.Fix, c.fix) || got.Name == "" || got.Why == "" {
			t.Errorf("%+v, %q: got %+v, want %s: %s; fix: %s", c.elf, c.loader, got, c.state, c.found, c.fix)
		}
	}
	m := healthy()
	m.fails["elf /none"] = fs.ErrNotExist
	if got := Loads(t.Context(), m.View, "/none"); got.State != Problem || got.Found != "/none: file does not exist" {
		t.Errorf("no program: got %+v", got)
	}
}

// Every bad state that a check knows: what it does to a good machine, and what
// is said then. want is in what was found, fix in the fix.
func TestBadStates(t *testing.T) {
	refused := errors.New("operation not permitted")
	limit := func(resource int, soft, hard uint64) func(*machine) {
		return func(m *machine) { m.limits[resource] = [2]uint64{soft, hard} }
	}
	put := func(name, text string) func(*machine) { return func(m *machine) { m.put(name, text) } }
	lacks := func(err error) func(*machine) {
		return func(m *machine) { m.fails["verbs"] = &rdma.OpError{Op: "get_device_list", Err: err} }
	}
	fail := func(what string) func(*machine) { return func(m *machine) { m.fails[what] = refused } }
	all := func(steps ...func(*machine)) func(*machine) {
		return func(m *machine) {
			for _, s := range steps {
				s(m)
			}
		}
	}
	ranks := func(n int) func(*machine) { return func(m *machine) { m.Ranks = n } }
	root := func(m *machine) { m.UID = 0 }
	mlx := all(put("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"), put("sys/class/infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n"),
		put("proc/modules", "ib_uverbs 1 0 - Live 0\nmlx5_ib 1 0 - Live 0\next4 1 0 - Live 0\n"), put("dev/infiniband/uverbs0", ""), put("usr/lib64/libibverbs.so.1", ""))
	seccomp := put("proc/self/status", "Seccomp:\t2\nCpus_allowed_list:\t0-3\n")
	for _, c := range []struct {
		check, name string
		break_      func(*machine)
		state       State
		want, fix   string
	}{
		{"gorun", "no agent", func(m *machine) { delete(m.files, "opt/gorun/gorun-agent") }, Problem, "no gorun-agent in /opt/gorun", "make build"},
		{"gorun", "another version", func(m *machine) { m.program("opt/gorun/gorun-agent", "gorun-agent of gorun 0.0.9, go1.20\n") }, Problem, `gorun-agent is "0.0.9", and gorun-info is "0.1.0 abc"`, "make build"},
		{"gorun", "it does not run", fail("/opt/gorun/gorun --version"), Problem, "gorun --version: operation not permitted", "make build"},
		{"gorun", "another in PATH", func(m *machine) { m.program("usr/local/bin/gorun", "x"); m.variable("PATH", "/usr/local/bin") }, Note, "PATH finds /usr/local/bin/gorun", "export PATH=/opt/gorun:$PATH"},
		{"launch", "it fails", func(m *machine) {
			m.fails["/opt/gorun/gorun -np 2 true"] = errors.New("exit status 125")
			m.says["/opt/gorun/gorun -np 2 true"] = "gorun: first\ngorun: memfd_create: no\n\n"
		}, Problem, "gorun -np 2 true: exit status 125: gorun: memfd_create: no", "/opt/gorun/gorun -vv -np 2 true"},
		{"launch", "no gorun", func(m *machine) { delete(m.files, "opt/gorun/gorun") }, Note, "not tried", "make build"},
		{"mpi-start", "one ends in MPI_Init", func(m *machine) {
			m.fails[tryMPICH] = errors.New("exit status 16")
			m.says[tryMPICH] = "Abort(1): Fatal error\nAuto-detection of PMI version failed.\ngorun: rank 1 (host h): exited with status 16\n"
		}, Problem, "two ranks do not start of MPICH (libmpich.so.12): Auto-detection of PMI version failed.", "gorun-info mpi"},
		{"mpi-start", "the user's setting", func(m *machine) {
			m.variable("MPIR_CVAR_PMI_VERSION", "auto")
			m.fails[tryMPICH] = errors.New("exit status 1")
			m.says[tryMPICH] = "gorun: rank 1 (host h): exited with status 1\n"
		}, Problem, "MPICH (libmpich.so.12): gorun: rank 1 (host h): exited with status 1", "unset MPIR_CVAR_PMI_VERSION"},
		{"mpi-start", "nothing can be tried", func(m *machine) { delete(m.files, "opt/gorun/gorun") }, OK, "none was tried", ""},
		{"mpi-hosts", "Debian's Open MPI 6", put("etc/openmpi/openmpi-mca-params.conf", "# btl_tcp_if_include = eth0\nbtl_base_warn_component_unused=0\nbtl_tcp_if_include=lo\n"), Note, "btl_tcp_if_include = lo: ranks of Open MPI reach no other host", "export OMPI_MCA_btl_tcp_if_include=eth0"},
		{"mpi-hosts", "set by the user", all(put("etc/openmpi/openmpi-mca-params.conf", "btl_tcp_if_include=lo\n"), func(m *machine) { m.variable("OMPI_MCA_btl_tcp_if_include", "10.0.0.0/8") }), OK, "no setting of Open MPI keeps its hosts apart", ""},
		{"slurm", "Debian's 26.05", func(m *machine) {
			m.program("usr/bin/srun", "")
			m.says["/usr/bin/srun --mpi=list"] = "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n"
		}, Note, "srun has no pmix plugin (it has none, cray_shasta, pmi2): programs of Open MPI run under it as worlds of one rank, and MPICH's with MPIR_CVAR_PMI_VERSION=2 fail under pmi2", "salloc -N 2 gorun ./program"},
		{"slurm", "with pmix", func(m *machine) {
			m.program("usr/bin/srun", "")
			m.says["/usr/bin/srun --mpi=list"] = "MPI plugin types are...\n\tnone\n\tpmix\n\tpmi2\nspecific pmix plugin versions available: pmix_v4\n"
		}, OK, "srun has the plugins none, pmix, pmi2", ""},
		{"slurm", "it does not say", func(m *machine) {
			m.program("usr/bin/srun", "")
			m.fails["/usr/bin/srun --mpi=list"] = errors.New("exit status 1")
			m.says["/usr/bin/srun --mpi=list"] = "srun: fatal: no configuration\n"
		}, OK, "srun does not list its plugins: srun: fatal: no configuration", ""},
		{"pmix", "no library, Open MPI", func(m *machine) {
			m.PMIx = func(context.Context) PMIxSupport {
				return PMIxSupport{Exists: true, Cgo: true, Problem: "libpmix.so.2: not found"}
			}
		}, Problem, "libpmix.so.2: not found", "apt-get install libpmix2"},
		{"pmix", "built without", func(m *machine) {
			m.PMIx = func(context.Context) PMIxSupport {
				return PMIxSupport{Exists: true, Problem: "built without cgo"}
			}
		}, Problem, "built without cgo", "apt-get install gcc libc6-dev && make build"},
		{"pmix", "no helper, no Open MPI", func(m *machine) {
			delete(m.files, "usr/bin/mpirun")
			delete(m.files, "usr/bin/mpiexec")
			m.PMIx = func(context.Context) PMIxSupport { return PMIxSupport{Problem: "gorun-pmix does not exist"} }
		}, Note, "gorun-pmix does not exist", "make build"},
		{"mpi", "all kinds", func(m *machine) {
			m.program("usr/bin/mpiexec.hydra", "Intel(R) MPI Library for Linux* OS, Version 2021.11 Build 2023\nCopyright\n")
			m.program("usr/bin/mpiexec", "gorun 0.1.0 abc, go1.26 linux/amd64\n")
		}, OK, "Open MPI 4.1.4 (/usr/bin/mpirun), MPICH 4.0.2 (/usr/bin/mpiexec.mpich), Intel MPI 2021.11 (/usr/bin/mpiexec.hydra), MPICH 3.4 (/usr/lib64/mpich/bin/mpiexec)", ""},
		{"mpi", "none", func(m *machine) { m.Environ = nil; delete(m.files, "usr/lib64/mpich/bin/mpiexec") }, Note, "none", "apt-get install mpich"},
		{"mpicc", "two MPIs", func(m *machine) { m.program("usr/bin/mpicc", "gcc -I/usr/include/mpich -lmpich\n") }, Problem, "mpirun and mpiexec cannot start what mpicc builds", "update-alternatives --config mpi"},
		{"mpicc", "gorun stands in", func(m *machine) {
			m.program("usr/bin/mpicc", "gcc -I/usr/include/mpich -lmpich\n")
			m.program("usr/bin/mpirun", "gorun 0.1.0 abc\n")
			m.program("usr/bin/mpiexec", "gorun 0.1.0 abc\n")
		}, OK, "mpicc is MPICH's (/usr/bin/mpicc), mpirun gorun's, mpiexec gorun's", ""},
		{"mpicc", "chosen by Debian", func(m *machine) {
			m.files["etc/alternatives/mpi"] = &fstest.MapFile{Data: []byte("/usr/bin/mpicc.openmpi"), Mode: fs.ModeSymlink | 0o777}
		}, OK, "by the alternative mpi: /usr/bin/mpicc.openmpi", ""},
		{"mpicc", "none", func(m *machine) { delete(m.files, "usr/bin/mpicc") }, Note, "no mpicc", "apt-get install libmpich-dev"},
		{"mpicc", "unknown", func(m *machine) { m.program("usr/bin/mpicc", "cc -lmpi\n") }, Note, "does not say to which MPI it belongs", "/usr/bin/mpicc -show"},
		{"devices", "InfiniBand", mlx, OK, "mlx5_0 port 1 active, InfiniBand (modules ib_uverbs, mlx5_ib); without -d", ""},
		{"devices", "built without cgo", all(mlx, lacks(verbs.ErrNoCgo)), Note, "cannot use it: this program was built without cgo", "apt-get install gcc libc6-dev && make build"},
		{"devices", "no library", all(mlx, lacks(verbs.ErrNoLibrary)), Problem, "there is no libibverbs that can be used", "apt-get install libibverbs1"},
		{"devices", "no driver", all(mlx, func(m *machine) { m.verbs = 0 }), Problem, "libibverbs shows 0 of 1 devices", "apt-get install ibverbs-providers"},
		{"devices", "a verb fails", all(mlx, fail("verbs")), Problem, "operation not permitted", "ibv_devinfo"},
		{"devices", "no permission", all(mlx, fail("open /dev/infiniband/uverbs0")), Problem, "no permission to use the devices: operation not permitted", "chmod 0666"},
		{"devices", "no module", all(mlx, func(m *machine) { delete(m.files, "dev/infiniband/uverbs0") }), Problem, "no /dev/infiniband/uverbs*", "modprobe ib_uverbs"},
		{"devices", "neither cgo nor library", all(mlx, lacks(verbs.ErrNoCgo), func(m *machine) { delete(m.files, "usr/lib64/libibverbs.so.1") }), Problem, "no libibverbs.so.1", "apt-get install libibverbs1"},
		{"devices", "port down", all(mlx, put("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n")), Note, "no port is active", "rdma link"},
		{"devices", "could have rxe", put("lib/modules/6.1.0-18-amd64/modules.dep", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko: x\n"), OK, "rdma link add rxe0", ""},
		{"memlock", "no device", limit(unix.RLIMIT_MEMLOCK, 8<<20, 8<<20), OK, "8 MiB, which does not matter", ""},
		{"memlock", "low", all(mlx, limit(unix.RLIMIT_MEMLOCK, 64<<10, 64<<10)), Problem, "64 KiB", "* - memlock unlimited"},
		{"memlock", "soft only", all(mlx, limit(unix.RLIMIT_MEMLOCK, 64<<10, unlimited)), Note, "64 KiB", "ulimit -l unlimited"},
		{"memlock", "root", all(mlx, root, limit(unix.RLIMIT_MEMLOCK, 64<<10, 64<<10)), Note, "does not apply to root", "memlock"},
		{"nofile", "too few", all(ranks(64), limit(unix.RLIMIT_NOFILE, 256, 256)), Problem, "enough for 56 ranks on this host; 64 ranks need 288", "* - nofile 65536"},
		{"nofile", "soft is low", limit(unix.RLIMIT_NOFILE, 128, 4096), Note, "128 (soft)", "ulimit -n 4096"},
		{"nofile", "hopeless", limit(unix.RLIMIT_NOFILE, 8, 8), Problem, "enough for 0 ranks", "nofile"},
		{"nofile", "cannot be read", func(m *machine) { m.limitError = refused }, Problem, "cannot be read: operation not permitted", ""},
		{"nproc", "too few", all(ranks(64), limit(unix.RLIMIT_NPROC, 50, 50)), Problem, "50 processes", "* - nproc 4096"},
		{"nproc", "few", all(ranks(64), limit(unix.RLIMIT_NPROC, 100, 100)), Note, "64 ranks may need 576", "nproc"},
		{"nproc", "root", all(root, limit(unix.RLIMIT_NPROC, 1, 1)), OK, "does not apply to root", ""},
		{"core", "none", limit(unix.RLIMIT_CORE, 0, unlimited), Note, "no core files", "ulimit -c unlimited"},
		{"core", "none, for good", limit(unix.RLIMIT_CORE, 0, 0), Note, "no core files", "* - core unlimited"},
		{"core", "systemd", all(limit(unix.RLIMIT_CORE, 0, 0), put("proc/sys/kernel/core_pattern", "|/lib/systemd/systemd-coredump %P\n")), OK, "systemd-coredump", ""},
		{"stack", "small", limit(unix.RLIMIT_STACK, 1<<20, unlimited), Note, "1 MiB, usual are 8 MiB", "ulimit -s 8192"},
		{"fsize", "some", limit(unix.RLIMIT_FSIZE, 1<<30, unlimited), Note, "1 GiB", "ulimit -f unlimited"},
		{"fsize", "too little", limit(unix.RLIMIT_FSIZE, 64<<10, unlimited), Problem, "too little for 4 ranks", "ulimit -f unlimited"},
		{"as", "some", limit(unix.RLIMIT_AS, 16<<30, unlimited), Note, "16 GiB", "ulimit -v unlimited"},
		{"as", "too little", limit(unix.RLIMIT_AS, 1<<30, unlimited), Problem, "1.2 GiB", "ulimit -v unlimited"},
		{"shm", "Docker's 64 MiB", all(ranks(16), func(m *machine) { m.space["/dev/shm"] = Space{Total: 64 << 20, Free: 64 << 20} }), Note, "64 MiB free of 64 MiB; 16 ranks of an MPI may need 256 MiB", "mount -o remount,size=1G /dev/shm"},
		{"shm", "full", func(m *machine) { m.space["/dev/shm"] = Space{Total: 64 << 20} }, Problem, "0 B free", "remount,size=1G"},
		{"shm", "none", func(m *machine) { delete(m.files, "dev/shm/.keep") }, Problem, "there is no /dev/shm", "mount -t tmpfs"},
		{"shm", "not writable", fail("file /dev/shm"), Problem, "no file can be made", "remount,rw"},
		{"shm", "noexec", func(m *machine) { m.space["/dev/shm"] = Space{Total: 8 << 30, Free: 8 << 30, NoExec: true} }, OK, "noexec", ""},
		{"memfd", "old kernel", fail("memfd"), Note, "operation not permitted", "kernel of 3.17"},
		{"memfd", "filtered", all(seccomp, fail("memfd")), Note, "operation not permitted", "seccomp=unconfined"},
		{"memfd", "sealed", put("proc/sys/vm/memfd_noexec", "2\n"), OK, "vm.memfd_noexec=2", ""},
		{"process_vm", "capability", fail("reach"), Note, "does not work: operation not permitted", "CAP_SYS_PTRACE"},
		{"process_vm", "Yama", all(put("proc/sys/kernel/yama/ptrace_scope", "2\n"), fail("reach")), Note, "copied twice", "sysctl -w kernel.yama.ptrace_scope=1"},
		{"process_vm", "filtered", all(seccomp, fail("reach")), Note, "copied twice", "docker run --cap-add=SYS_PTRACE"},
		{"yama", "root only", put("proc/sys/kernel/yama/ptrace_scope", "2\n"), Note, "root only", "sysctl -w kernel.yama.ptrace_scope=1"},
		{"yama", "root", all(root, put("proc/sys/kernel/yama/ptrace_scope", "2\n")), OK, "root", ""},
		{"yama", "nobody", put("proc/sys/kernel/yama/ptrace_scope", "3\n"), Note, "ptrace_scope 3: no process", "boot"},
		{"membarrier", "none", fail("membarrier"), Note, "fences", "4.16"},
		{"membarrier", "old", func(m *machine) { m.Membarrier = func() (uint64, error) { return 1, nil } }, Note, "without the expedited", "4.16"},
		{"seccomp", "filter", seccomp, OK, "a filter", ""},
		{"seccomp", "strict", put("proc/self/status", "Seccomp:\t1\n"), Problem, "strict", "elsewhere"},
		{"proc", "none", func(m *machine) { delete(m.files, "proc/self/status") }, Problem, "not mounted", "mount -t proc"},
		{"kernel", "3.10", put("proc/sys/kernel/osrelease", "3.10.0-1160.el7.x86_64\n"), Problem, "older than 4.18", "5.4"},
		{"kernel", "4.17", put("proc/sys/kernel/osrelease", "4.17.9\n"), Problem, "older than 4.18", "5.4"},
		{"kernel", "5.3", put("proc/sys/kernel/osrelease", "5.3\n"), Note, "no pidfds", "5.4"},
		{"kernel", "nonsense", put("proc/sys/kernel/osrelease", "gVisor\n"), Note, `"gVisor"`, ""},
		{"sysctl", "few processes", all(ranks(64), put("proc/sys/kernel/pid_max", "300\n")), Problem, "kernel.pid_max 300 (576 needed)", "sysctl -w kernel.pid_max=1152"},
		{"sysctl", "two", all(ranks(64), put("proc/sys/kernel/pid_max", "300\n"), put("proc/sys/net/core/somaxconn", "16\n")), Problem, "somaxconn 16 (64 needed)", "; sysctl -w net.core.somaxconn=128"},
		{"cpu", "too many ranks", ranks(9), Note, "4 CPUs, 1 package; 9 ranks share them", "gorun -np 4"},
		{"smt", "threads", all(put("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0-1\n"), put("sys/devices/system/cpu/cpu2/topology/core_cpus_list", "2-3\n")), Note, "4 ranks on 2 cores", "gorun -np 2 --bind-to core"},
		{"governor", "powersave", put("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"), Note, "powersave", "cpupower frequency-set -g performance"},
		{"governor", "performance", put("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance\n"), OK, "performance", ""},
		{"hugepages", "never", put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"), Note, "never", "echo madvise"},
		{"overcommit", "strict", put("proc/sys/vm/overcommit_memory", "2\n"), Note, "up to 4096 kB", "sysctl -w vm.overcommit_memory=0"},
		{"cgroup-cpu", "a container of 1.5 CPUs", put("sys/fs/cgroup/user.slice/job/cpu.max", "150000 100000\n"), Note, "a quota of 1.5 CPUs, for 4 ranks", "--cpus=4"},
		{"cgroup-cpu", "cpuset", put("proc/self/status", "Cpus_allowed_list:\t0-1\n"), OK, "CPUs 0-1 of 4 CPUs", ""},
		{"cgroup-memory", "full", all(put("sys/fs/cgroup/user.slice/memory.max", "1073741824\n"), put("sys/fs/cgroup/user.slice/memory.current", "1073000000\n")), Problem, "too little for 4 ranks", ">/sys/fs/cgroup/user.slice/memory.max"},
		{"cgroup-memory", "little", put("sys/fs/cgroup/memory.max", "104857600\n"), Note, "100 MiB left of 100 MiB (/sys/fs/cgroup/memory.max), little", ">/sys/fs/cgroup/memory.max"},
		{"cgroup-memory", "plenty", put("sys/fs/cgroup/memory.max", "8589934592\n"), OK, "8 GiB left", ""},
		{"cgroup-memory", "has killed", all(put("sys/fs/cgroup/memory.max", "8589934592\n"), put("sys/fs/cgroup/user.slice/job/memory.events", "oom 3\noom_kill 2\n")), Note, "the kernel has killed 2 processes in it", ">/sys/fs/cgroup/memory.max"},
		{"cgroup-memory", "no limit of version 1", all(put("proc/self/cgroup", "4:memory:/x\n"), put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")), OK, "no limit", ""},
		{"cgroup-memory", "version 1", all(put("proc/self/cgroup", "4:memory:/x\n"), put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1048576\n")), Problem, "1 MiB left", "/sys/fs/cgroup/memory/x/memory.limit_in_bytes"},
		{"cgroup-pids", "too few", all(put("sys/fs/cgroup/user.slice/job/pids.max", "100\n"), put("sys/fs/cgroup/user.slice/job/pids.current", "95\n")), Problem, "5 threads left of 100", "echo 4191 >/sys/fs/cgroup/user.slice/job/pids.max"},
		{"cgroup-pids", "few", put("sys/fs/cgroup/user.slice/pids.max", "64\n"), Note, "4 ranks may need 96", "TasksMax"},
		{"cgroup-pids", "the tightest counts", all(put("sys/fs/cgroup/user.slice/job/pids.max", "max\n"), put("sys/fs/cgroup/user.slice/pids.max", "9000\n"), put("sys/fs/cgroup/pids.max", "5000\n")), OK, "5000 threads left of 5000", ""},
		{"cgroup-own", "not allowed", fail("group /sys/fs/cgroup/user.slice/job"), Note, "version 2; no group can be made", "systemd-run --user --scope"},
		{"cgroup-own", "container", all(func(m *machine) { delete(m.files, "sys/fs/cgroup/user.slice/job/cgroup.procs") }, fail("group /sys/fs/cgroup")), Note, "operation not permitted", "Delegate=yes"},
		{"cgroup-own", "hybrid", all(func(m *machine) { delete(m.files, "sys/fs/cgroup/cgroup.controllers") }, put("sys/fs/cgroup/unified/cgroup.procs", "")), OK, "versions 1 and 2; groups can be made in /sys/fs/cgroup/unified", ""},
		{"loopback", "down", fail("loopback"), Problem, "no connection over 127.0.0.1", "ip link set lo up"},
		{"hostname", "unknown", fail("resolve node01"), Problem, "node01 has no address", "echo '10.0.0.1 node01' >>/etc/hosts"},
		{"hostname", "nameless", fail("hostname"), Problem, "no name", "hostname NAME"},
		{"hostname", "Debian's 127.0.1.1", func(m *machine) {
			m.Resolve = func(context.Context, string) ([]netip.Addr, error) { return addrs("::ffff:127.0.1.1"), nil } // as Go has it
		}, Note, "node01 is 127.0.1.1, reverse name node01: other hosts would connect to themselves by this name", "10.0.0.1 node01"},
		{"hostname", "an address that it has not", func(m *machine) {
			m.Resolve = func(context.Context, string) ([]netip.Addr, error) { return addrs("10.9.9.9"), nil }
		}, Problem, "no interface of this host has that address", "/etc/hosts"},
		{"hostname", "slow", func(m *machine) { m.took = 5 * time.Second }, Note, "it took 5.0 s", "/etc/hosts"},
		{"hostname", "no name back", fail("reverse"), OK, "which has no reverse name", ""},
		{"interfaces", "Docker", func(m *machine) {
			m.Interfaces = func() ([]Interface, error) {
				return append(twoInterfaces(), Interface{"docker0", addrs("172.17.0.1")}, Interface{"virbr0", addrs("192.168.122.1")}, Interface{"veth1", addrs("fe80::2")}), nil
			}
		}, Note, "docker0 172.17.0.1 (Docker's); virbr0 192.168.122.1 (libvirt's)", "UCX_NET_DEVICES=eth0 OMPI_MCA_btl_tcp_if_exclude=lo,docker0,virbr0"},
		{"interfaces", "none", func(m *machine) { m.Interfaces = func() ([]Interface, error) { return nil, nil } }, Problem, "no interface", "ip link set lo up"},
		{"interfaces", "loopback only", func(m *machine) { m.Interfaces = func() ([]Interface, error) { return twoInterfaces()[:1], nil } }, OK, "no other host can be reached", ""},
		{"interfaces", "cannot be listed", fail("interfaces"), Note, "operation not permitted", "ip address"},
		{"tmp", "not there", func(m *machine) { m.variable("TMPDIR", "/scratch") }, Problem, "/scratch is no directory", "mkdir -p /scratch"},
		{"tmp", "relative", func(m *machine) { m.variable("TMPDIR", "scratch") }, Problem, "not an absolute path", "unset TMPDIR"},
		{"tmp", "not writable", fail("file /tmp"), Problem, "no file can be made in /tmp", "unset TMPDIR"},
		{"tmp", "full", func(m *machine) { m.space["/tmp"] = Space{Total: 1 << 30, Free: 1 << 20} }, Problem, "1 MiB free", "du -xsh /tmp/*"},
		{"tmp", "nearly full", func(m *machine) { m.space["/tmp"] = Space{Total: 1 << 30, Free: 100 << 20} }, Note, "100 MiB free", "du -xsh"},
		{"tmp", "noexec", func(m *machine) { m.space["/tmp"] = Space{Total: 1 << 40, Free: 1 << 40, NoExec: true} }, Note, "noexec", "remount,exec /tmp"},
		{"tmp", "a long name", func(m *machine) {
			dir := "/tmp/" + strings.Repeat("x", 60)
			m.variable("TMPDIR", dir)
			m.put(dir[1:]+"/.keep", "")
			m.space[dir] = Space{Total: 1 << 40, Free: 1 << 40}
		}, Note, "paths of sockets in it exceed", "TMPDIR=/tmp"},
		{"leftovers", "segments", func(m *machine) {
			m.own("dev/shm/vader_segment.node01.1000.1.0", "12345678", 1000)
			m.own("dev/shm/mpich_shar_tmpA b", "1", 1000)
		}, Note, "2 of dead jobs, 9 B", `rm -rf -- /dev/shm/vader_segment.node01.1000.1.0 '/dev/shm/mpich_shar_tmpA b'`},
		{"leftovers", "somebody else's", func(m *machine) { m.own("dev/shm/vader_segment.node01.7.1.0", "1", 7) }, OK, "none", ""},
		{"leftovers", "somebody else's, to root", all(root, func(m *machine) { m.own("dev/shm/vader_segment.node01.7.1.0", "1", 7) }), Note, "1 of dead jobs", "rm -rf"},
		{"leftovers", "mapped", func(m *machine) {
			m.own("dev/shm/vader_segment.node01.1000.1.0", "1", 1000)
			m.put("proc/17/maps", "7f00-7f01 rw-s 00000000 00:19 5 /dev/shm/vader_segment.node01.1000.1.0\n")
		}, OK, "in use", ""},
		{"leftovers", "open", func(m *machine) {
			m.own("dev/shm/sm_segment.node01", "1", 1000)
			m.files["proc/17/fd/3"] = &fstest.MapFile{Data: []byte("/dev/shm/sm_segment.node01"), Mode: fs.ModeSymlink | 0o777}
		}, OK, "in use", ""},
		{"leftovers", "young", func(m *machine) {
			m.own("dev/shm/sm_segment.node01", "1", 1000)
			m.files["dev/shm/sm_segment.node01"].ModTime = m.clock.Add(-time.Second)
		}, OK, "none", ""},
		{"leftovers", "a job's directory", func(m *machine) { m.own("dev/shm/gorun-job-abc-0/x", "1", 1000); dirOf(m, "dev/shm/gorun-job-abc-0") }, Note, "/dev/shm/gorun-job-abc-0", "rm -rf -- /dev/shm/gorun-job-abc-0"},
		{"leftovers", "a live job's directory", func(m *machine) {
			dirOf(m, "dev/shm/gorun-job-abc-0")
			m.put("proc/17/environ", "A=1\x00GORUN_GUARD_abc_0=1\x00")
		}, OK, "in use", ""},
		{"leftovers", "a session of a live mpirun", func(m *machine) { dirOf(m, "tmp/ompi.node01.1000"); m.put("proc/17/comm", "mpirun\n") }, OK, "in use", ""},
		{"leftovers", "a session of none", func(m *machine) { dirOf(m, "tmp/ompi.node01.1000") }, Note, "/tmp/ompi.node01.1000", "rm -rf"},
		{"leftovers", "hidden processes", func(m *machine) { delete(m.files, "proc/self/maps"); dirOf(m, "tmp/ompi.node01.1000") }, OK, "not known", ""},
	} {
		t.Run(c.check+"/"+c.name, func(t *testing.T) {
			m := healthy()
			c.break_(m)
			f := m.look(t, c.check)
			if f.State != c.state || !strings.Contains(f.Found, c.want) || !strings.Contains(f.Fix, c.fix) || (f.Fix == "") != (c.fix == "") {
				t.Errorf("got  %s: %q, fix %q\nwant %s: %q, fix %q", f.State, f.Found, f.Fix, c.state, c.want, c.fix)
			}
		})
	}
}

func dirOf(m *machine, name string) {
	m.files[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o700, ModTime: m.clock.Add(-time.Hour), Sys: &syscall.Stat_t{Uid: 1000}}
}

func TestSizes(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 64 << 20: "64 MiB", 24 << 30: "24 GiB", unlimited: "16 EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for text, want := range map[string]string{"/tmp/a-b.c": "/tmp/a-b.c", "": "''", "it's": `'it'\''s'`, "a b": "'a b'", "$x": "'$x'"} {
		if got := shellWord(text); got != want {
			t.Errorf("shellWord(%q) = %s, want %s", text, got, want)
		}
	}
	for text, want := range map[string]string{"6.1.0-18-amd64": "6 1 true", "5.3": "5 3 true", "4.19-rc1": "4 19 true", "": "0 0 false", "x.y": "0 0 false"} {
		major, minor, known := release(text)
		if got := fmt.Sprint(major, minor, known); got != want {
			t.Errorf("release(%q) = %s, want %s", text, got, want)
		}
	}
}
