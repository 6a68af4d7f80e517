package soft

import "testing"

// A kernel that numbers a namespace anew whenever it is asked has not named it.
func TestNetworkNamespaceIsSteady(t *testing.T) {
	if a, b := networkNamespace(), askNamespace(); a != 0 && a != b {
		t.Errorf("found namespace %d, expected %d", a, b)
	}
	asked := uint64(100)
	anew := func() uint64 { asked++; return asked }
	if got := steady(anew); got != 0 {
		t.Errorf("found namespace %d of a kernel that changes it, expected 0", got)
	}
	if got := steady(func() uint64 { return 7 }); got != 7 {
		t.Errorf("found namespace %d, expected 7", got)
	}
}
