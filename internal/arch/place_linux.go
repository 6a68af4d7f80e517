package arch

import "golang.org/x/sys/unix"

// Thread is the calling thread.
func Thread() (id int) { return unix.Gettid() }

// MoveTo moves a thread of this process to the index-th, counted round, of the CPUs
// that it may use, and leaves it all of them: it stays there until the kernel finds a
// reason to move it. MoveTo returns when the thread has been moved, which can take
// seconds where the CPUs are busy. It tells whether it could; with one CPU there is
// nothing to do.
func MoveTo(thread, index int) bool {
	var all, one unix.CPUSet
	if unix.SchedGetaffinity(thread, &all) != nil || all.Count() < 2 {
		return false
	}
	one.Set(nth(&all, index))
	if unix.SchedSetaffinity(thread, &one) != nil {
		return false
	}
	return unix.SchedSetaffinity(thread, &all) == nil
}

// At tells whether the calling thread runs on the CPU that MoveTo means by index, or
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

// CPUs are the numbers of the CPUs that the calling thread may use, nil when nobody knows.
func CPUs() (list []int) {
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return nil
	}
	for i := range all.Count() {
		list = append(list, nth(&all, i))
	}
	return list
}

// Pin has the calling thread run on one CPU only, and tells whether it could. The caller has
// locked its goroutine to the thread. Like MoveTo it can take seconds where that CPU is busy.
func Pin(cpu int) bool {
	var one unix.CPUSet
	one.Set(cpu)
	return unix.SchedSetaffinity(0, &one) == nil
}
