package doctor

import (
	"context"
	"fmt"
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
		{"gorun", "a job needs all its programs, of one version", programs},
		{"launch", "that is what gorun is for", launch},
		{"pmix", "Open MPI's programs meet their launcher by it, else each is alone in its world", pmix},
		{"mpi", "programs need their MPI's library, and a launcher that speaks its protocol", mpis},
		{"mpicc", "a program of one MPI under the other's launcher is N programs of one rank each", bare},
		{"devices", "messages between hosts go by RDMA where there are such devices", devices},
		{"memlock", "memory that an RDMA device reads and writes is locked", memlock},
		{"nofile", "gorun holds four descriptors a rank", nofile},
		{"nproc", "each rank is a process with several threads", nproc},
		{"core", "without core files a crash leaves nothing to look at", core},
		{"stack", "Fortran programs keep arrays on the stack", stack},
		{"fsize", "the memory that ranks share is a file of the kernel's", fsize},
		{"as", "ranks reserve much more address space than they use", addressSpace},
		{"shm", "the MPIs keep messages there, and ranks die of SIGBUS when it is full", sharedMemory},
		{"memfd", "gorun's ranks share memory by it", memfd},
		{"process_vm", "long messages in ordinary memory are copied by it at once, not twice", reach},
		{"yama", "it says which processes may read each other's memory", yama},
		{"membarrier", "with it ranks that wait in the kernel cost the others no fence", membarrier},
		{"seccomp", "a filter can forbid what is tried here", seccomp},
		{"kernel", "old kernels lack calls that gorun uses", kernel},
		{"sysctl", "they bound all jobs of the machine together", sysctls},
		{"cpu", "ranks that share a CPU wait for each other", cpus},
		{"smt", "two ranks on the threads of a core have half of it each", smt},
		{"governor", "a CPU that changes its clock makes times vary", governor},
		{"hugepages", "large buffers take fewer faults with them", hugepages},
		{"overcommit", "a strict kernel refuses memory that nobody would have touched", overcommit},
		{"cgroup-cpu", "ranks above the quota are stopped for the rest of each period, while others wait for them", groupCPU},
		{"cgroup-memory", "the kernel kills ranks above the limit", groupMemory},
		{"cgroup-pids", "starting a rank fails above the limit", groupPIDs},
		{"cgroup-own", "a job in a control group of its own can be bounded, and ended whole", groupOwn},
		{"loopback", "ranks meet their launcher over it", loopback},
		{"hostname", "MPIs look up their own host's name when they start, and wait as long as that takes", hostname},
		{"interfaces", "an MPI that takes a bridge's address for the host's cannot be reached", interfaces},
		{"tmp", "MPIs keep sockets and session files there", temporary},
		{"leftovers", "what dead jobs left takes memory until it is removed", leftovers},
	}
}

// hostsAtOnce is how many hosts are asked at a time: each takes an ssh.
const hostsAtOnce = 32

// Examine runs all checks, those of the hosts behind those of the machine.
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
	for _, h := range hosts {
		start(gate, "host "+h.Name, "a job starts only when all its hosts answer", func(ctx context.Context) []Finding { return v.host(ctx, h) })
	}
	var all []Finding
	for _, done := range waiting {
		all = append(all, <-done...)
	}
	return all
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
		grace := time.NewTimer(Limit / 20)
		defer grace.Stop()
		select {
		case found = <-done:
		case <-grace.C:
			found = []Finding{problem("look what it waits for: a name server, a dead network file system", "no answer within %v", Limit)}
		}
	}
	for i := range found {
		if found[i].Name == "" {
			found[i].Name = name
		}
		if found[i].Why == "" {
			found[i].Why = why
		}
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
