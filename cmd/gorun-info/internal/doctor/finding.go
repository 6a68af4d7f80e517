package doctor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// State is what a finding means.
type State string

// The states, as they are printed.
const (
	OK      State = "ok"
	Note    State = "note"
	Problem State = "problem"
)

// Limit is how long one check may take.
const Limit = 10 * time.Second

// A Finding is what a check has found.
type Finding struct {
	Name  string `json:"name"`
	State State  `json:"state"`
	Found string `json:"found"`
	Why   string `json:"why"` // why it matters, a clause
	Fix   string `json:"fix"` // a command, or what to do; "" when all is well
}

// check is one question. look may leave the name out.
type check struct {
	name, why string
	look      func(ctx context.Context, v *View) Finding
}

func ok(format string, args ...any) Finding {
	return Finding{State: OK, Found: fmt.Sprintf(format, args...)}
}

func note(fix, format string, args ...any) Finding {
	return Finding{State: Note, Found: fmt.Sprintf(format, args...), Fix: fix}
}

func problem(fix, format string, args ...any) Finding {
	return Finding{State: Problem, Found: fmt.Sprintf(format, args...), Fix: fix}
}

// checks are all questions about the machine itself, in the order of the report.
func checks() []check {
	return []check{
		{"gorun", "gorun and its helper programs must be of the same version", programs},
		{"launch", "gorun must be able to start ranks here", launch},
		{"pmix", "programs of Open MPI connect to their launcher by PMIx; without it each rank is a world of its own", pmix},
		{"mpi", "a program needs the library of its MPI, and a launcher that supports the same protocol", mpis},
		{"mpicc", "a program of one MPI under the launcher of another runs as N worlds of one rank", bare},
		{"mpi-start", "programs of an MPI that cannot meet gorun end in MPI_Init, or run as worlds of one rank", starts},
		{"mpi-hosts", "ranks of one job must reach each other", loopbackOnly},
		{"slurm", "srun alone is no launcher for an MPI whose protocol it lacks: each rank is a world of its own", slurm},
		{"devices", "hosts with RDMA devices can exchange messages by RDMA", devices},
		{"memlock", "memory that is registered with an RDMA device is locked", memlock},
		{"nofile", "gorun needs four file descriptors per rank", nofile},
		{"nproc", "each rank is a process with several threads, and all count", nproc},
		{"core", "without a core file a crash cannot be examined in a debugger", core},
		{"stack", "Fortran programs allocate arrays on the stack", stack},
		{"fsize", "the limit on file sizes also bounds the memory that ranks share", fsize},
		{"as", "ranks reserve much more address space than they use", addressSpace},
		{"shm", "MPIs keep messages in /dev/shm, and their ranks die of SIGBUS when it is full", sharedMemory},
		{"memfd", "gorun's ranks share memory by memfd_create", memfd},
		{"process_vm", "with process_vm_readv a long message in ordinary memory is copied once, else twice", readsPeers},
		{"yama", "Yama decides which processes may read each other's memory", yama},
		{"membarrier", "with membarrier a rank need not execute a fence because another may be asleep", membarrier},
		{"seccomp", "a seccomp filter can forbid system calls that gorun uses", seccomp},
		{"proc", "gorun and MPIs read there what their processes do", procfs},
		{"kernel", "old kernels lack system calls that gorun uses", kernel},
		{"sysctl", "these limits apply to all jobs of the machine together", sysctls},
		{"cpu", "ranks that share a CPU slow each other down", cpus},
		{"smt", "two ranks on the two threads of a core share its speed", smt},
		{"governor", "a CPU that changes its frequency makes measured times vary", governor},
		{"hugepages", "with huge pages large buffers cause fewer page faults", hugepages},
		{"overcommit", "with strict accounting the kernel refuses memory that is reserved but never used", overcommit},
		{"cgroup-cpu", "when the quota is used up, ranks are stopped for the rest of the period and others wait for them", groupCPU},
		{"cgroup-memory", "the kernel kills ranks when the memory limit is reached", groupMemory},
		{"cgroup-pids", "ranks cannot be started when the limit on processes is reached", groupPIDs},
		{"cgroup-own", "in a control group of its own a job can be limited and ended as a whole", groupOwn},
		{"loopback", "ranks connect to their launcher over the loopback interface", loopback},
		{"hostname", "MPIs look up their host's name when they start, and a slow answer delays them", hostname},
		{"interfaces", "an MPI cannot be reached if it uses the address of a bridge as that of the host", interfaces},
		{"tmp", "MPIs keep sockets and session files in the directory for temporary files", temporary},
		{"leftovers", "files of dead jobs take memory until they are removed", leftovers},
	}
}

// hostsAtOnce is how many hosts are asked at a time: each takes an ssh.
const hostsAtOnce = 32

// Examine runs all checks, those of the hosts behind those of the machine, and last those of each pair of hosts.
func Examine(ctx context.Context, v *View, hosts []hostfile.Host) []Finding {
	var waiting []<-chan []Finding
	start := func(gate chan struct{}, name, why string, look func(context.Context) []Finding) {
		done := make(chan []Finding, 1)
		waiting = append(waiting, done)
		go func() {
			if gate != nil {
				gate <- struct{}{}
				defer func() { <-gate }()
			}
			done <- bounded(ctx, name, why, look)
		}()
	}
	for _, c := range checks() {
		start(nil, c.name, c.why, func(ctx context.Context) []Finding { return []Finding{c.look(ctx, v)} })
	}
	gate := make(chan struct{}, hostsAtOnce)
	agents := make(chan guest, len(hosts))
	for _, h := range hosts {
		start(gate, "host "+h.Name, "a job starts only when all of its hosts answer", func(ctx context.Context) []Finding {
			found, agent := v.host(ctx, h)
			if agent != "" {
				agents <- guest{h.Name, login(h), agent}
			}
			return found
		})
	}
	var all []Finding
	for _, done := range waiting {
		all = append(all, <-done...)
	}
	var guests []guest
	for range len(agents) { // those that have answered in time
		guests = append(guests, <-agents)
	}
	slices.SortFunc(guests, func(a, b guest) int {
		at := func(g guest) int {
			return slices.IndexFunc(hosts, func(h hostfile.Host) bool { return h.Name == g.name })
		}
		return cmp.Compare(at(a), at(b))
	})
	return append(all, bounded(ctx, "pairs", "ranks of every host connect to those of every other one", func(ctx context.Context) []Finding { return v.pairs(ctx, guests) })...)
}

// bounded runs a check for Limit at most, and gives its findings the name and the
// reason that it left out.
func bounded(ctx context.Context, name, why string, look func(context.Context) []Finding) []Finding {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	done := make(chan []Finding, 1)
	go func() { done <- look(ctx) }()
	var found []Finding
	select {
	case found = <-done:
	case <-ctx.Done():
		// One that minds its context still has something to say.
		select {
		case found = <-done:
		case <-time.After(Limit / 20):
			found = []Finding{problem("find out what it waits for: a name server, or a network file system that does not answer", "no answer within %v", Limit)}
		}
	}
	for i := range found {
		found[i].Name = cmp.Or(found[i].Name, name)
		found[i].Why = cmp.Or(found[i].Why, why)
	}
	return found
}

// Question is what a check asks, for the manual.
type Question struct{ Name, Why string }

// Checks are the questions about a machine.
func Checks() []Question {
	var list []Question
	for _, c := range checks() {
		list = append(list, Question{c.name, c.why})
	}
	return list
}
