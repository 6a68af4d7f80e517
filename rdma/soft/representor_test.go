package soft

import (
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// A name may be a PCI address, and every device has one representor of its own.
func TestPlaceAndRepresentor(t *testing.T) {
	names := []string{"soft0", "0000:03:00.0", "0000:03:00:0", "0000:3:00.0", "0000:03:00.9", "0000:03:00.1x", "ABCD:03:00.0", "mlx5_0", "last"}
	p, err := New(Config{Names: names})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	devices, err := p.Devices()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"", "0000:03:00.0", "", "", "", "", "", "", ""}
	reps := []string{"0000:18:00.0", "0000:18:00.1", "0000:18:00.2", "0000:18:00.3", "0000:18:00.4", "0000:18:00.5", "0000:18:00.6", "0000:18:00.7", "0000:18:01.0"}
	for i, d := range devices {
		if got := d.(rdma.Placed).PCI(); got != want[i] {
			t.Errorf("%s is at %q, want %q", d.Name(), got, want[i])
		}
		list, err := d.(rdma.Represents).Representors()
		if err != nil || len(list) != 1 || list[0] != (rdma.Representor{Name: names[i] + "-host", PCI: reps[i]}) {
			t.Errorf("%s has the representors %v (%v), want %s", d.Name(), list, err, reps[i])
		}
	}
}
