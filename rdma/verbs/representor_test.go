//go:build cgo

package verbs

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A tree as a DPU's kernel shows it: an uplink, the host's function and a virtual one.
func TestRepresentorsOfADPU(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	root := t.TempDir()
	device := filepath.Join(root, "devices/pci0000:00/0000:03:00.0")
	for name, port := range map[string]string{"p0": "p0\n", "pf0hpf": "c1pf0\n", "pf0vf0": "c1pf0vf0\n", "oob": ""} {
		dir := filepath.Join(device, "net", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if port != "" {
			if err := os.WriteFile(filepath.Join(dir, "phys_port_name"), []byte(port), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, target := range map[string]string{"mlx5_0": "../../../devices/pci0000:00/0000:03:00.0", "rxe0": "../../../devices/virtual"} {
		dir := filepath.Join(root, "class/infiniband", name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(dir, "device")); err != nil {
			t.Fatal(err)
		}
	}
	sys := os.DirFS(root)
	for name, want := range map[string]struct {
		pci  string
		reps []rdma.Representor
	}{
		"mlx5_0": {"0000:03:00.0", []rdma.Representor{{Name: "pf0hpf"}, {Name: "pf0vf0"}}},
		"rxe0":   {"", nil},
		"nosuch": {"", nil},
	} {
		reps, err := representorsOf(sys, name)
		if pci := pciOf(sys, name); pci != want.pci || err != nil || !slices.Equal(reps, want.reps) {
			t.Errorf("%s: got %q, %v, %v; want %q, %v", name, pci, reps, err, want.pci, want.reps)
		}
	}
}
