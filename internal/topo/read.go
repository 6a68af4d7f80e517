package topo

import (
	"io/fs"
	"strconv"
	"strings"
)

// cpuDir is where the kernel shows CPUs.
const cpuDir = "sys/devices/system/cpu/"

// Here is this machine, as this thread may use it.
func Here() Machine { return Read(kernel{}) }

// Read is the machine that the kernel's files below root show. Each of its
// objects is read once, through the first of its CPUs.
func Read(root fs.FS) Machine {
	allowed := affinity(root)
	online := list(root, cpuDir+"online")
	if online.Len() == 0 {
		// No sysfs, as in some sandboxes.
		if online = allowed; online.Len() == 0 {
			online = SetOf(0)
		}
	}
	b := newBuilder(online)
	for _, cpu := range online.List() {
		dir := cpuDir + "cpu" + strconv.Itoa(cpu) + "/"
		b.topology(root, dir+"topology/", cpu)
		b.caches(root, dir+"cache/", cpu)
	}
	for _, node := range list(root, "sys/devices/system/node/online").List() {
		b.add(NUMA, list(root, "sys/devices/system/node/node"+strconv.Itoa(node)+"/cpulist"))
	}
	b.small = list(root, "sys/devices/cpu_atom/cpus")
	if b.small.Len() == 0 {
		b.small = b.lesser(root)
	}
	m := b.machine()
	if both := allowed.And(online); both.Len() > 0 {
		m.Allowed = both
	}
	m.Quota, _ = quota(root)
	return m
}

// topology reads what threads are a CPU's core, and which its package. The
// second names are those before Linux 5.3.
func (b *builder) topology(root fs.FS, dir string, cpu int) {
	for _, f := range [...]struct {
		kind      Kind
		name, old string
	}{{Core, "core_cpus_list", "thread_siblings_list"}, {Package, "package_cpus_list", "core_siblings_list"}} {
		if b.known(f.kind, cpu) {
			continue
		}
		s := list(root, dir+f.name)
		if s.Len() == 0 {
			s = list(root, dir+f.old)
		}
		if s.Has(cpu) {
			b.add(f.kind, s)
		}
	}
}

// caches reads a CPU's caches. A cache has the same index at all its CPUs, so a
// level that is known is passed by unread.
func (b *builder) caches(root fs.FS, dir string, cpu int) {
	if b.known(L1, cpu) && b.known(L2, cpu) && b.known(L3, cpu) {
		return
	}
	for i := range 8 {
		index := dir + "index" + strconv.Itoa(i) + "/"
		level := read(root, index+"level")
		if level == "" {
			return
		}
		n, err := strconv.Atoi(level)
		if err != nil || n < 1 || n > 3 {
			continue
		}
		kind := L1 + Kind(n-1)
		if b.known(kind, cpu) || read(root, index+"type") == "Instruction" {
			continue
		}
		if s := list(root, index+"shared_cpu_list"); s.Has(cpu) {
			b.add(kind, s)
		}
	}
}

// lesser are the CPUs with less than the highest capacity, which Arm machines
// with two kinds of cores show.
func (b *builder) lesser(root fs.FS) Set {
	if read(root, cpuDir+"cpu"+strconv.Itoa(b.cpus.First())+"/cpu_capacity") == "" {
		return nil
	}
	most, capacity := 0, map[int]int{}
	for _, cpu := range b.cpus.List() {
		n, err := strconv.Atoi(read(root, cpuDir+"cpu"+strconv.Itoa(cpu)+"/cpu_capacity"))
		if err != nil {
			return nil
		}
		capacity[cpu], most = n, max(most, n)
	}
	var s Set
	for cpu, n := range capacity {
		if n < most {
			s.Add(cpu)
		}
	}
	return s
}

// affinity is what this thread may run on, cpuset included.
func affinity(root fs.FS) Set {
	// Another thread may be bound at the moment, because it starts a rank.
	for _, name := range [...]string{"proc/thread-self/status", "proc/self/status"} {
		for line := range strings.Lines(readFile(root, name)) {
			if text, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
				s, err := ParseSet(text)
				if err == nil {
					return s
				}
			}
		}
	}
	return nil
}

// list reads a file with a list of CPUs, empty when there is none.
func list(root fs.FS, name string) Set {
	s, err := ParseSet(readFile(root, name))
	if err != nil {
		return nil
	}
	return s
}
