package agent

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// A lease ends the ranks of a host that no longer hears of the controller: where the network
// between them breaks without a word, the stream's end may not come for hours. It
// begins when the controller does to ask, is renewed by whatever comes, and rests
// while the job is suspended, and the controller with it. One goroutine uses it.
type lease struct {
	limit time.Duration // 0: there is none
	over  func()
	timer *time.Timer // nil before it begins
	rests bool
}

// take renews the lease by an order.
func (l *lease) take(o *order) {
	switch {
	case l.limit == 0:
		return
	case o.Peers != nil && l.timer == nil:
		l.timer = time.AfterFunc(l.limit, l.over)
		return
	case l.timer == nil:
		return
	}
	if c := o.Command; c != nil && c.Kind == host.Pass {
		switch c.Signal {
		case unix.SIGTSTP:
			l.rests = true
			l.timer.Stop()
		case unix.SIGCONT:
			l.rests = false
		}
	}
	if !l.rests {
		l.timer.Reset(l.limit)
	}
}

// end ends it.
func (l *lease) end() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
