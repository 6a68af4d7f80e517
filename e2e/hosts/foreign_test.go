package hosts

import (
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Go ranks that Hydra starts on two hosts find an address at which they reach each other.
func TestHydraStartsGoRanks(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	hydra := testenv.Need(t, "mpiexec.hydra")
	b := testbed.New(t, 2)
	containers(t, b)
	for _, c := range []struct {
		name, network string
		status        int
		want          string
	}{
		{"found", "", 0, "reach it at 10.9.0.1: 1 of 1 other hosts have an address in its network"},
		{"IPv6", "fd09::/64", 0, "reach it at [fd09::1]: GORUN_INTERFACE is fd09::/64"},
		{"one that is not there", "ib7", 1, "GORUN_INTERFACE ib7: no interface here has that name"},
	} {
		if c.name == "IPv6" && !*all {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			again := 1
			if c.status != 0 {
				again = 5 // a proxy may lose what its ranks wrote when one aborts
			}
			var got ran
			for ; again > 0 && !strings.Contains(got.err+got.out, c.want); again-- {
				got = run(t, b, hydra, "-launcher", "ssh", "-hosts", "h1,h2", "-n", "4", "-ppn", "2", "-genv", "GORUN_INTERFACE", c.network, "-genv", "GORUN_VERBOSE", "1", bin+"/a2a", "-m", "32")
			}
			if (got.status == 0) != (c.status == 0) || (c.status == 0) != strings.Contains(got.out, "on every rank") || !strings.Contains(got.err+got.out, c.want) {
				t.Errorf("status %d, no %q in\n%s%s", got.status, c.want, got.out, got.err)
			}
			b.Idle(leftLimit)
		})
	}
}
