package arch

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMoveToLeavesTheCPUs(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for index := range 5 {
		if got, want := MoveTo(index), before.Count() > 1; got != want {
			t.Errorf("MoveTo(%d): got %v, want %v", index, got, want)
		}
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
			t.Errorf("after MoveTo(%d) the CPUs are %v (error %v), want %v", index, after, err, before)
		}
	}
}
