package hosts

import (
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Over a network in which each packet takes 20 to 40 ms, and many overtake others, jobs run as ever, and nobody is alarmed.
func TestSlowNetwork(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	if !*all {
		t.Log("make test-hosts plays it: the relay is this process, which the tests of other packages keep from the CPU")
		return
	}
	b := testbed.New(t, 3)
	relay := b.Slow(20*time.Millisecond, 20*time.Millisecond)
	for _, argv := range [][]string{
		{"-H", "h1:2,h2:2,h3:2", bin + "/a2a", "-m", "48", "-i", "20"},
		{"-H", "h1,h2,h3", compiled(t, b, "mpicc.mpich", "hello")},
	} {
		before := relay.Overtaken.Load()
		got := gorun(t, b, argv...)
		if got.status != 0 || strings.Contains(got.err, "gorun: ") || got.out == "" {
			t.Errorf("%q: status %d\n%s%s", argv, got.status, got.out, got.err)
		}
		if n := relay.Overtaken.Load() - before; n == 0 {
			t.Errorf("%q: no packet was overtaken", argv)
		} else {
			t.Logf("%q took %v, %d packets were overtaken", argv, got.took.Round(time.Millisecond), n)
		}
		b.Idle(leftLimit)
	}
}
