package doctor

import (
	"cmp"
	"context"
	"strings"
)

// sharedEach is what MPICH or Open MPI may put into /dev/shm for a rank.
const sharedEach = 16 << 20

func sharedMemory(_ context.Context, v *View) Finding {
	const dir = "/dev/shm"
	if info, err := v.stat(dir); err != nil || !info.IsDir() {
		return problem("mkdir -p /dev/shm && mount -t tmpfs tmpfs /dev/shm", "there is no %s", dir)
	}
	s, err := v.Space(dir)
	if err != nil {
		return problem("mount | grep /dev/shm", "%s: %v", dir, err)
	}
	if err := v.TryFile(dir); err != nil {
		return problem("mount -o remount,rw,mode=1777 /dev/shm", "no file can be made in %s: %v", dir, err)
	}
	need := uint64(v.Ranks) * sharedEach
	more := "mount -o remount,size=" + strings.ReplaceAll(size(max(1<<30, 2*need)), " ", "")
	more = strings.TrimSuffix(more, "iB") + " /dev/shm (containers: docker run --shm-size=1g)"
	switch {
	case s.Free < need/4:
		return problem(more, "%s free of %s; %s of an MPI may need %s", size(s.Free), size(s.Total), count(v.Ranks, "rank"), size(need))
	case s.Free < need:
		return note(more, "%s free of %s; %s of an MPI may need %s", size(s.Free), size(s.Total), count(v.Ranks, "rank"), size(need))
	case s.NoExec:
		// Nothing of gorun's or the MPIs' is run from there.
		return ok("%s free of %s; noexec, which does not matter here", size(s.Free), size(s.Total))
	}
	return ok("%s free of %s", size(s.Free), size(s.Total))
}

func memfd(_ context.Context, v *View) Finding {
	if err := v.TryMemfd(); err != nil {
		fix := "use a kernel of 3.17 or newer"
		if v.status("Seccomp") == "2" {
			fix = "docker run --security-opt seccomp=unconfined, or a profile that allows memfd_create"
		}
		return note(fix, "%v: Go ranks of one host share no memory, and their data goes over TCP", err)
	}
	found := "works"
	if mode := v.text("proc/sys/vm/memfd_noexec"); mode != "" && mode != "0" {
		found += ", vm.memfd_noexec=" + mode
	}
	return ok("%s", found)
}

func readsPeers(ctx context.Context, v *View) Finding {
	err := v.TryReach(ctx)
	if err == nil {
		return ok("works: a process has read another's memory")
	}
	fix := "setcap, or run as root: the kernel wants CAP_SYS_PTRACE"
	switch {
	case v.scope() >= "2":
		fix = "sysctl -w kernel.yama.ptrace_scope=1"
	case v.status("Seccomp") == "2":
		fix = "docker run --cap-add=SYS_PTRACE (or --security-opt seccomp=unconfined)"
	}
	return note(fix, "does not work: %v; messages are copied twice instead", err)
}

func (v *View) scope() string { return v.text("proc/sys/kernel/yama/ptrace_scope") }

func yama(_ context.Context, v *View) Finding {
	switch scope := v.scope(); scope {
	case "":
		return ok("not in this kernel")
	case "0":
		return ok("ptrace_scope 0: processes of the same user")
	case "1":
		return ok("ptrace_scope 1: processes that the other permits, as gorun's ranks do")
	case "2":
		if v.UID == 0 {
			return ok("ptrace_scope 2: root")
		}
		return note("sysctl -w kernel.yama.ptrace_scope=1", "ptrace_scope 2: root only")
	default:
		return note("boot with kernel.yama.ptrace_scope=1 in /etc/sysctl.d: 3 cannot be taken back", "ptrace_scope %s: no process", scope)
	}
}

// MEMBARRIER_CMD_GLOBAL_EXPEDITED and its registration (linux/membarrier.h).
const membarrierNeeded = 1<<1 | 1<<2

func membarrier(_ context.Context, v *View) Finding {
	commands, err := v.Membarrier()
	switch {
	case err != nil:
		return note("use a kernel of 4.16 or newer; in a container: a seccomp profile that allows membarrier", "not available (%v): gorun's ranks use fences instead", err)
	case commands&membarrierNeeded != membarrierNeeded:
		return note("use a kernel of 4.16 or newer", "without the expedited commands: gorun's ranks use fences instead")
	}
	return ok("works")
}

func hugepages(_ context.Context, v *View) Finding {
	text := v.text("sys/kernel/mm/transparent_hugepage/enabled")
	_, rest, _ := strings.Cut(text, "[")
	word, _, chosen := strings.Cut(rest, "]")
	switch {
	case !chosen:
		return ok("not in this kernel")
	case word == "never":
		return note("echo madvise >/sys/kernel/mm/transparent_hugepage/enabled", "never")
	}
	return ok("%s", word)
}

func overcommit(_ context.Context, v *View) Finding {
	switch v.text("proc/sys/vm/overcommit_memory") {
	case "2":
		return note("sysctl -w vm.overcommit_memory=0", "strict (vm.overcommit_memory=2), up to %s", v.memory("CommitLimit"))
	case "1":
		return ok("always")
	case "0":
		return ok("heuristic (vm.overcommit_memory=0)")
	}
	return ok("not known")
}

// memory is a line of /proc/meminfo.
func (v *View) memory(key string) string {
	return cmp.Or(v.line("proc/meminfo", key), "a limit that is not known")
}
