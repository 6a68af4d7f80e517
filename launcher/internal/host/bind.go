package host

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// binder binds the thread that it belongs to, for the ranks that the thread
// forks: a child inherits the CPUs, and the program finds them from its first
// instruction on, when runtimes look how many there are. The system call is made
// only where ranks are bound; each costs a thread's move to another CPU.
type binder struct {
	own   unix.CPUSetDynamic // the thread's, once it was bound; nil: it was not
	bound []int              // what it is bound to now; nil: its own
}

// bind binds the thread to CPUs, or to its own ones when there are none.
func (b *binder) bind(cpus []int) error {
	if len(cpus) == 0 {
		b.restore()
		return nil
	}
	if slices.Equal(cpus, b.bound) {
		return nil
	}
	if b.own == nil {
		own := unix.NewCPUSet(cpusMax)
		if err := unix.SchedGetaffinityDynamic(0, own); err != nil {
			return &bindError{cpus, err}
		}
		b.own = own
	}
	set := unix.NewCPUSet(slices.Max(cpus) + 1)
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinityDynamic(0, set); err != nil {
		return &bindError{cpus, err}
	}
	b.bound = cpus
	return nil
}

// restore gives the thread its own CPUs back.
func (b *binder) restore() {
	if b.bound == nil {
		return
	}
	b.bound = nil
	// It had them before, so that fails only where the cpuset has changed, and
	// then the kernel has chosen already.
	_ = unix.SchedSetaffinityDynamic(0, b.own)
}

// cpusMax is the most CPUs that Linux is built for.
const cpusMax = 8192

// bindError is why ranks cannot be bound.
type bindError struct {
	cpus []int
	err  error
}

func (e *bindError) what() string { return fmt.Sprint(e.cpus) }
func (e *bindError) Error() string {
	return fmt.Sprintf("bind to CPUs %v: %v (the CPUs of this process may have changed)", e.cpus, e.err)
}
func (e *bindError) Unwrap() error { return e.err }

// cpuSharing is how many CPUs a rank shares with how many ranks, itself included.
type cpuSharing struct{ cpus, ranks int }

// cpuSharings are those of the ranks of a host that may keep most CPUs busy. Ranks
// whose CPUs overlap share them all, also by way of others.
func cpuSharings(ranks []RankSpec, most int) []cpuSharing {
	list := make([]cpuSharing, len(ranks))
	all := cpuSharing{most, len(ranks)}
	group := make(map[int]int) // by CPU: a rank that represents those that share it
	leader := make([]int, len(ranks))
	find := func(i int) int {
		for leader[i] != i {
			leader[i] = leader[leader[i]]
			i = leader[i]
		}
		return i
	}
	free := false // some rank may run anywhere
	for i, r := range ranks {
		leader[i] = i
		free = free || len(r.CPUs) == 0
		for _, c := range r.CPUs {
			if k, ok := group[c]; ok {
				leader[find(i)] = find(k)
			} else {
				group[c] = i
			}
		}
	}
	cpus, members := make(map[int]int), make(map[int]int)
	for _, i := range group {
		cpus[find(i)]++
	}
	for i := range ranks {
		members[find(i)]++
	}
	for i := range ranks {
		list[i] = all
		if !free {
			list[i] = cpuSharing{min(most, cpus[find(i)]), members[find(i)]}
			if len(group) > most && len(ranks) > most {
				list[i] = all // a quota is for all of them
			}
		}
	}
	return list
}
