package wireup

import (
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A queue pair waits for as long as the port says, or a little longer, and at least some 8 s.
func TestTimeoutFollowsSilence(t *testing.T) {
	for silence, want := range map[time.Duration]uint8{0: 18, 8 * time.Second: 18, time.Minute: 21, 10 * time.Minute: 25, 100 * time.Hour: 31} {
		code := (&Port{Silence: silence}).timeout()
		if whole := (retries + 1) * rdma.AckTimeout(code); code != want || code < timeoutMost && whole < silence {
			t.Errorf("silence of %v: code %d, which is %v; want code %d", silence, code, whole, want)
		}
	}
}
