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
		if got, want := MoveTo(Thread(), index), before.Count() > 1; got != want {
			t.Errorf("MoveTo(%d): got %v, want %v", index, got, want)
		}
		// The kernel may move it again at once, but not each time.
		for tries := 0; !At(index); tries++ {
			if MoveTo(Thread(), index); tries == 1000 {
				t.Fatalf("moved %d times to CPU %d, and is never there", tries, index)
			}
		}
		if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
			t.Errorf("after MoveTo(%d) the CPUs are %v (error %v), want %v", index, after, err, before)
		}
	}
}

func TestAddProcessors(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	AddProcessors(2)
	if got := runtime.GOMAXPROCS(0); got != before+2 {
		t.Errorf("got %d processors, want %d", got, before+2)
	}
	AddProcessors(-2)
	if got := runtime.GOMAXPROCS(0); got != before {
		t.Errorf("got %d processors, want %d", got, before)
	}
}
