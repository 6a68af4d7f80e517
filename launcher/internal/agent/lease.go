package agent

import (
	"sync"
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
	if l.limit == 0 {
		return
	}
	if c := o.Command; c != nil && c.Kind == host.Pass && (c.Signal == unix.SIGTSTP || c.Signal == unix.SIGCONT) {
		l.rests = c.Signal == unix.SIGTSTP
	}
	if o.Peers != nil && l.timer == nil {
		l.timer = time.AfterFunc(l.limit, sync.OnceFunc(l.over)) // a word may come after all
	}
	switch {
	case l.timer == nil:
	case l.rests:
		l.timer.Stop()
	default:
		l.timer.Reset(l.limit)
	}
}

// end ends it.
func (l *lease) end() {
	if l.timer != nil {
		l.timer.Stop()
	}
}
