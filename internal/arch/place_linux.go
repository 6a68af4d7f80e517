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
	index %= all.Count()
	for cpu := 0; ; cpu++ {
		if !all.IsSet(cpu) {
			continue
		}
		if index == 0 {
			one.Set(cpu)
			break
		}
		index--
	}
	if unix.SchedSetaffinity(0, &one) != nil {
		return false
	}
	return unix.SchedSetaffinity(0, &all) == nil
}
