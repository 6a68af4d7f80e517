package launcher

import (
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// The time for which the controller's lock is held does not count against an agent that only
// its answers speak for.
func TestLeaseOfALocalAgentWhileTheControllerIsHeld(t *testing.T) {
	r := &remotes{c: &controller{}, links: []*agent.Link{{}}, heartbeat: newHeartbeat(1)}
	begin := time.Unix(1000, 0)
	silentFrom := func(from, to int) (at int) {
		for i := from; i <= to; i++ {
			if r.silent(0, begin.Add(time.Duration(i)*time.Second)) {
				return i
			}
		}
		return 0
	}
	r.heartbeat.leases[0].Begin(agent.Looks*time.Second, begin)
	r.c.mu.Lock()
	if at := silentFrom(1, 20); at > 0 {
		t.Errorf("over after %d s, with the lock held", at)
	}
	r.c.mu.Unlock()
	if at := silentFrom(21, 60); at != 36 {
		t.Errorf("over after %d s, want 36: 16 s from the last look before the lock was free", at)
	}
}
