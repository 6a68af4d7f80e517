package arch

import "golang.org/x/sys/unix"

// MoveTo moves the calling thread to the index-th, counted round, of the CPUs that
// it may use, and leaves it all of them: it stays there until the kernel finds a
// reason to move it. It tells whether it could; with one CPU there is nothing to do.
func MoveTo(index int) bool {
	var all, one unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil || all.Count() < 2 {
		return false
	}
	one.Set(nth(&all, index))
	if unix.SchedSetaffinity(0, &one) != nil {
		return false
	}
	return unix.SchedSetaffinity(0, &all) == nil
}

// At tells whether the calling thread runs on the CPU that MoveTo(index) means, or
// nobody knows.
func At(index int) bool {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return true
	}
	cpu, known := current()
	return !known || cpu == nth(&all, index)
}

// nth is the index-th CPU, counted round, of a set that is not empty.
func nth(set *unix.CPUSet, index int) int {
	index %= set.Count()
	for cpu := 0; ; cpu++ {
		if !set.IsSet(cpu) {
			continue
		}
		if index == 0 {
			return cpu
		}
		index--
	}
}
