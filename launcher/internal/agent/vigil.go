package agent

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// StreamLimit is how long a stream between gorun and an agent may stand still, and an agent's
// host do nothing of what it is told, although both processes live.
const StreamLimit = 30 * time.Second

// A vigil watches, in an agent of another machine, whether its controller lives, and shows the controller
// and the guardian that this process does. It has a goroutine of its own, which no rank's output and no
// long work of the host delays. What the leases prove:
//
//   - A datagram: the other process runs, and the network carries. It says nothing of what
//     the process does.
//   - The last word among them: gorun has ended, or this agent's stream is lost.
//   - An acknowledgement of what the agent says on the stream when it has heard nothing for half a
//     lease: gorun's machine runs, and the network carries. That excuses its silence within StreamLimit.
//   - A ping on the stream: gorun's controller does its work, and the stream carries. Within
//     StreamLimit one must come, whatever datagrams say.
//   - The answer to it, host.Turned: the loop that serves the ranks does its work.
//   - Towards the guardian: this process runs. One that is stopped is killed.
type vigil struct {
	lease  Lease // of gorun
	excuse excuse
	stream Lease // of the controller at work
	why    string

	dismissed chan struct{} // closed at gorun's last word
	dismiss   sync.Once     // closes it

	stop    chan struct{} // nil before show
	running sync.WaitGroup
}

// streamed is told of all bytes that come on the stream.
func (v *vigil) streamed() {
	now := time.Now()
	v.lease.Renew(now)
	v.stream.Renew(now)
}

// obey rests while the job is suspended, and the controller with it. A signal to some of the ranks
// suspends neither.
func (v *vigil) obey(o *order) {
	if c := o.Command; c != nil && c.Kind == host.Pass && c.Ranks == nil && (c.Signal == unix.SIGTSTP || c.Signal == unix.SIGCONT) {
		v.lease.Rest(c.Signal == unix.SIGTSTP)
		v.stream.Rest(c.Signal == unix.SIGTSTP)
	}
}

// begin begins to watch the controller, which sends datagrams from now on.
func (v *vigil) begin(s *setup) {
	now := time.Now()
	v.lease.Begin(s.Lease, now)
	v.stream.Begin(max(StreamLimit, 2*s.Lease), now)
}

// excused has gorun be excused while the machine at the other end of a session acknowledges what speak sends.
func (v *vigil) excused(s session, limit time.Duration, speak func()) {
	v.excuse = excuse{limit: limit, speak: speak, heeded: s.acknowledged}
}

// show begins to show that this process runs. alive is called as long as it does and the controller lives,
// over when that is lost; why says then how. from is an address of gorun.
func (v *vigil) show(s *setup, from string, alive, over func()) {
	v.stop, v.dismissed = make(chan struct{}), make(chan struct{})
	own := s.Spec.Index
	var d *Datagrams
	if s.Port > 0 {
		// Without it the stream has to do.
		d, _ = openDatagrams(s.Key, fromAgent, own+1, s.Way.Ports, func(agent int, last bool) {
			switch {
			case agent == own && last:
				v.dismiss.Do(func() { close(v.dismissed) })
			case agent == own:
				v.lease.Renew(time.Now())
			}
		})
	}
	to := s.Way.controller(from, s.Port)
	if d != nil {
		d.Send(own, to...)
	}
	v.running.Go(func() {
		if d != nil {
			defer d.Close()
		}
		tick := time.NewTicker(s.Lease / Looks)
		defer tick.Stop()
		for {
			alive()
			select {
			case <-v.stop:
				return
			case <-v.dismissed:
				v.why = "gorun has given up the relay that has started this agent"
				over()
				return
			case <-tick.C:
			}
			if d != nil {
				d.Send(own, to...)
			}
			if v.lost(time.Now()) {
				over()
				return
			}
		}
	})
}

// lost looks at the leases.
func (v *vigil) lost(now time.Time) bool {
	if silent, over := v.lease.Over(now); !v.excuse.holds(silent, now) && over {
		v.why = fmt.Sprintf("heard nothing of gorun for %v", silent.Round(100*time.Millisecond))
		return true
	}
	if silent, over := v.stream.Over(now); over {
		v.why = fmt.Sprintf("gorun lives, but its stream has brought nothing for %v", silent.Round(100*time.Millisecond))
		return true
	}
	return false
}

// end ends it.
func (v *vigil) end() {
	if v.stop != nil {
		close(v.stop)
		v.running.Wait()
	}
}

// sshClient is the address that ssh has come from, as SSH_CONNECTION tells; "": it does not.
func sshClient(session string) string {
	if f := strings.Fields(session); len(f) == 4 {
		return f[0]
	}
	return ""
}

// controller are the addresses at which an agent may reach the controller's port: that which ssh
// has come from, and the one that the controller thinks it has.
func (w Way) controller(from string, port int) (to []netip.AddrPort) {
	for _, text := range []string{from, w.Toward} {
		a, err := netip.ParseAddr(text)
		if err != nil || len(to) > 0 && to[0].Addr() == a.Unmap() {
			continue
		}
		to = append(to, netip.AddrPortFrom(a.Unmap(), uint16(port)))
	}
	return to
}
