package topo

import "testing"

// The numbers are above those of any machine, since the locks are the machine's.
func TestTakeCPUTwice(t *testing.T) {
	first, taken := TakeCPU(9101)
	if !taken {
		t.Fatal("the first did not get it")
	}
	if _, taken := TakeCPU(9101); taken {
		t.Error("the second got it, too")
	}
	other, taken := TakeCPU(9102)
	if !taken {
		t.Error("another CPU was not to be had")
	}
	other.Release()
	first.Release()
	again, taken := TakeCPU(9101)
	if !taken {
		t.Error("it was not to be had after Release")
	}
	again.Release()
}
