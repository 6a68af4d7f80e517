package doctor

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

const unlimited = ^uint64(0)

// What a job needs: the descriptors that gorun holds for a rank (two pipes, the
// PMI socket, a pidfd) and besides (14 seen at 32 ranks, and the other ends while
// one starts), and a rank's threads (a Go program's; an MPI has two or three).
const (
	filesEach   = 4
	filesBase   = 32
	threadsEach = 8
	threadsBase = 64
)

// conf is the command that sets a limit for good.
func conf(limit, value string) string {
	return fmt.Sprintf("echo '* - %s %s' >/etc/security/limits.d/90-gorun.conf, and log in again (containers: docker run --ulimit %s=...)", limit, value, limit)
}

func limitText(n uint64, unit func(uint64) string) string {
	if n == unlimited {
		return "unlimited"
	}
	return unit(n)
}

func plainNumber(n uint64) string { return fmt.Sprint(n) }

// limited asks for a limit; the finding counts only with an error.
func (v *View) limited(resource int) (soft, hard uint64, bad *Finding) {
	soft, hard, err := v.Limit(resource)
	if err != nil {
		f := problem("", "the limit cannot be read: %v", err)
		return 0, 0, &f
	}
	return soft, hard, nil
}

func memlock(_ context.Context, v *View) Finding {
	soft, hard, bad := v.limited(unix.RLIMIT_MEMLOCK)
	if bad != nil {
		return *bad
	}
	found := limitText(soft, size)
	switch {
	case soft == unlimited:
		return ok("%s", found)
	case len(v.rdmaDevices()) == 0:
		return ok("%s, which does not matter without an RDMA device", found)
	case hard == unlimited:
		return note("ulimit -l unlimited", "%s, and there is no hard limit", found)
	case v.UID == 0:
		return note(conf("memlock", "unlimited"), "%s, which does not apply to root", found)
	}
	return problem(conf("memlock", "unlimited"), "%s", found)
}

// gorun raises its own soft limit, so the hard one counts for it; the ranks
// have the soft one.
func nofile(_ context.Context, v *View) Finding {
	soft, hard, bad := v.limited(unix.RLIMIT_NOFILE)
	if bad != nil {
		return *bad
	}
	need := uint64(v.Ranks)*filesEach + filesBase
	found := fmt.Sprintf("%s (hard), enough for %s on this host", limitText(hard, plainNumber), count(roomFor(hard, filesEach, filesBase), "rank"))
	switch {
	case hard == unlimited:
		return ok("unlimited")
	case hard < need:
		return problem(conf("nofile", fmt.Sprint(max(need, 65536))), "%s; %s need %d", found, count(v.Ranks, "rank"), need)
	case soft < 256:
		return note("ulimit -n 4096", "%d (soft), %s", soft, found)
	}
	return ok("%s", found)
}

func roomFor(limit, each, base uint64) uint64 {
	if limit < base {
		return 0
	}
	return (limit - base) / each
}

func nproc(_ context.Context, v *View) Finding {
	soft, _, bad := v.limited(unix.RLIMIT_NPROC)
	if bad != nil {
		return *bad
	}
	need := uint64(v.Ranks)*threadsEach + threadsBase
	switch {
	case soft == unlimited:
		return ok("unlimited")
	case v.UID == 0:
		return ok("%d, which does not apply to root", soft)
	case soft < uint64(v.Ranks):
		return problem(conf("nproc", fmt.Sprint(max(need, 4096))), "%d processes and threads for everything that the user runs; %s need %d", soft, count(v.Ranks, "rank"), need)
	case soft < need:
		return note(conf("nproc", fmt.Sprint(max(need, 4096))), "%d processes and threads for everything that the user runs; %s may need %d", soft, count(v.Ranks, "rank"), need)
	}
	return ok("%d", soft)
}

func core(_ context.Context, v *View) Finding {
	soft, hard, bad := v.limited(unix.RLIMIT_CORE)
	if bad != nil {
		return *bad
	}
	pattern := v.text("proc/sys/kernel/core_pattern")
	switch {
	case soft > 0:
		return ok("%s, to %s", limitText(soft, size), pattern)
	case len(pattern) > 0 && pattern[0] == '|':
		return ok("0, and the kernel hands crashes to %s", pattern[1:])
	case hard == 0:
		return note(conf("core", "unlimited"), "0: no core files")
	}
	return note("ulimit -c unlimited", "0: no core files")
}

// The usual 8 MiB.
const usualStack = 8 << 20

func stack(_ context.Context, v *View) Finding {
	soft, _, bad := v.limited(unix.RLIMIT_STACK)
	if bad != nil {
		return *bad
	}
	if soft < usualStack {
		return note("ulimit -s 8192", "%s, usual are %s", size(soft), size(usualStack))
	}
	return ok("%s", limitText(soft, size))
}

// Below these a job cannot start: package shm gives each rank 64 KiB at least,
// and a Go rank takes 1440 MiB of addresses beside the shared memory (goReserve there). Above
// them the ranks' shared memory is made smaller to fit.
const (
	leastShared    = 64 << 10
	leastAddresses = 1440 << 20
)

func fsize(_ context.Context, v *View) Finding {
	soft, _, bad := v.limited(unix.RLIMIT_FSIZE)
	switch {
	case bad != nil:
		return *bad
	case soft < uint64(v.Ranks+1)*leastShared:
		return problem("ulimit -f unlimited", "%s, too little for %s", size(soft), count(v.Ranks, "rank"))
	case soft != unlimited:
		return note("ulimit -f unlimited", "%s: ranks can share less memory", size(soft))
	}
	return ok("unlimited")
}

func addressSpace(_ context.Context, v *View) Finding {
	soft, _, bad := v.limited(unix.RLIMIT_AS)
	switch {
	case bad != nil:
		return *bad
	case soft < leastAddresses:
		return problem("ulimit -v unlimited", "%s, but a Go program reserves 1.2 GiB at its start", size(soft))
	case soft != unlimited:
		return note("ulimit -v unlimited", "%s: ranks can share less memory", size(soft))
	}
	return ok("unlimited")
}
