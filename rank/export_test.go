package rank

import (
	"context"
	"time"

	"github.com/gorun-mpi/gorun/coll"
)

// AlltoallWith lets tests compare the algorithms of one communicator.
func AlltoallWith[T Element](ctx context.Context, c *Comm, send, recv []T, algorithm coll.Algorithm) error {
	k := c.begin("alltoall").alltoall(Of(send), Of(recv))
	k.args.Algorithm = algorithm
	return k.run(ctx)
}

// Signals counts what the collectives of a communicator have sent, those that failed and those of Finalize among them.
func Signals(c *Comm) uint64 { return c.team.Counters().Signals }

// Registered tells whether a slice is known to lie in registered memory. It does not look at the memory.
func Registered[T Element](c *Comm, s []T) bool { return c.world.regions.find(bytesOf(s)) != nil }

// TellsWaits is a configuration with Waiting, which is called after a shorter time.
func TellsWaits(after time.Duration, f func(Wait)) Config { return Config{Waiting: f, longWait: after} }

// PanicBeside has the rank's progress thread panic. The channel is closed when it has.
func PanicBeside(c *Comm, value any) <-chan struct{} {
	w := c.world
	if err := w.enter(); err != nil {
		panic(err)
	}
	defer w.leave()
	w.traffic.add(panicker{value})
	w.beside.start()
	return w.beside.ended
}

type panicker struct{ value any }

func (p panicker) Progress() bool { panic(p.value) }
