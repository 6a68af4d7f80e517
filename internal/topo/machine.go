package topo

import (
	"cmp"
	"slices"
)

// Kind is a kind of object of a machine, from the smallest to the largest.
type Kind uint8

// The kinds. Whole is the machine itself.
const (
	Thread Kind = iota // hardware thread, what the kernel calls a CPU
	Core
	L1 // data or unified cache of that level, alike the next two
	L2
	L3
	NUMA
	Package // socket
	Whole
	Kinds // how many there are
)

// String is the kind's name, as --map-by and --bind-to take it.
func (k Kind) String() string {
	if k >= Kinds {
		return "object"
	}
	return [Kinds]string{"hwthread", "core", "l1cache", "l2cache", "l3cache", "numa", "package", "machine"}[k]
}

// Machine is the CPUs of a machine. Nothing changes one once it is made.
type Machine struct {
	// CPUs are those that are online, in the order of hwloc's logical indices:
	// what is close together on the machine stands together.
	CPUs []CPU
	// Allowed are those of them that this process may run on.
	Allowed Set
	// Quota is how much CPU time a second control groups leave, in CPUs; 0: all.
	Quota float64
}

// CPU is a hardware thread.
type CPU struct {
	Number int // the kernel's
	// In are the logical indices of the objects that it is in, by kind; -1 where
	// the machine shows none of a kind. In[Thread] is its own.
	In [Kinds]int32
	// Small is set for the efficient cores of a machine with two kinds.
	Small bool
}

// Object is a part of a machine.
type Object struct {
	Kind  Kind
	Index int // logical
	CPUs  Set // all of it, allowed or not
}

// Objects are the objects of a kind by index; none when the machine shows none.
func (m *Machine) Objects(k Kind) []Object {
	var list []Object
	for _, c := range m.CPUs {
		i := int(c.In[k])
		if i < 0 {
			continue
		}
		for len(list) <= i {
			list = append(list, Object{Kind: k, Index: len(list)})
		}
		list[i].CPUs.Add(c.Number)
	}
	return list
}

// Usable is how many CPUs may be busy at once.
func (m *Machine) Usable() int {
	n := m.Allowed.Len()
	if m.Quota > 0 && m.Quota < float64(n) {
		n = max(1, int(m.Quota))
	}
	return n
}

// Restricted tells whether this process may use a part of the machine only, as
// in a container or a batch job that shares it.
func (m *Machine) Restricted() bool {
	return m.Allowed.Len() < len(m.CPUs) || m.Quota > 0 && m.Quota < float64(len(m.CPUs))
}

// Flat is a machine of which nothing but the numbers of its CPUs is known: each
// is a core, all are one package.
func Flat(cpus Set) Machine {
	b := newBuilder(cpus)
	return b.machine()
}

// builder collects which CPUs share an object, by kind.
type builder struct {
	cpus  Set
	sets  [Kinds][]Set
	small Set
}

func newBuilder(online Set) *builder { return &builder{cpus: online} }

// known tells whether an object of a kind with a CPU has been seen.
func (b *builder) known(k Kind, cpu int) bool {
	return slices.ContainsFunc(b.sets[k], func(s Set) bool { return s.Has(cpu) })
}

// add says that CPUs share an object. What overlaps an earlier one, or is not
// online, does not count: the kernel never says so, but files may.
func (b *builder) add(k Kind, s Set) {
	s = s.And(b.cpus)
	if s.Len() > 0 && !slices.ContainsFunc(b.sets[k], func(other Set) bool { return other.And(s).Len() > 0 }) {
		b.sets[k] = append(b.sets[k], s)
	}
}

// machine puts the CPUs in order and numbers the objects.
func (b *builder) machine() Machine {
	// A core of which nothing is known is one of its own, and what is in no
	// package is all one.
	rest := [...]Kind{Core, Package}
	for _, k := range rest {
		var left Set
		for _, c := range b.cpus.List() {
			if !b.known(k, c) {
				left.Add(c)
				if k == Core {
					b.sets[k] = append(b.sets[k], SetOf(c))
				}
			}
		}
		if k == Package && left.Len() > 0 {
			b.sets[k] = append(b.sets[k], left)
		}
	}
	// The lowest number of each object that a CPU is in, from the outermost.
	order := [...]Kind{Package, NUMA, L3, L2, L1, Core}
	first := make(map[int][len(order)]int, b.cpus.Len())
	numbers := b.cpus.List()
	for _, c := range numbers {
		key := [len(order)]int{}
		for i, k := range order {
			key[i] = MaxCPU
			for _, s := range b.sets[k] {
				if s.Has(c) {
					key[i] = s.First()
				}
			}
		}
		first[c] = key
	}
	slices.SortFunc(numbers, func(x, y int) int {
		kx, ky := first[x], first[y]
		return cmp.Or(slices.Compare(kx[:], ky[:]), cmp.Compare(x, y))
	})
	m := Machine{CPUs: make([]CPU, len(numbers)), Allowed: b.cpus}
	var next [Kinds]int32
	index := [Kinds]map[int]int32{} // by first CPU of the object
	for i, c := range numbers {
		cpu := CPU{Number: c, Small: b.small.Has(c)}
		for k := range Kinds {
			cpu.In[k] = -1
		}
		cpu.In[Thread], cpu.In[Whole] = int32(i), 0
		for _, k := range order {
			for _, s := range b.sets[k] {
				if !s.Has(c) {
					continue
				}
				if index[k] == nil {
					index[k] = map[int]int32{}
				}
				n, seen := index[k][s.First()]
				if !seen {
					n = next[k]
					next[k]++
					index[k][s.First()] = n
				}
				cpu.In[k] = n
			}
		}
		m.CPUs[i] = cpu
	}
	return m
}
