package kernel

import (
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The other tests compare what For gives. This one says that it is the assembly.
func TestForGivesAssembly(t *testing.T) {
	if !cpu.X86.HasAVX2 || !cpu.X86.HasF16C {
		testenv.Unsupported(t, "needs a processor with AVX2 and F16C")
	}
	each(t, func(t *testing.T, typ Type, op Op) {
		if got, want := vectorized(typ, op) != nil, avx2[typ][op] != nil && !arch.RaceEnabled; got != want {
			t.Errorf("assembly: %v, want %v", got, want)
		}
		if avx2[typ][op] == nil && op < Replace {
			t.Error("there is no assembly")
		}
	})
}
