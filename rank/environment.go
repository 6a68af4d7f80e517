package rank

import (
	"context"
	"time"

	"github.com/gorun-mpi/gorun/internal/version"
)

// started is where Wtime counts from.
var started = time.Now()

// Wtime is the time in seconds since some time in the past (MPI_Wtime).
// Each process has its own clock: MPI_WTIME_IS_GLOBAL is false.
func Wtime() float64 { return time.Since(started).Seconds() }

// Wtick is the resolution of [Wtime] in seconds (MPI_Wtick).
func Wtick() float64 { return 1e-9 }

// Version is the version of the MPI standard that the calls follow
// (MPI_Get_version).
func Version() (version, subversion int) { return 4, 0 }

// LibraryVersion is the version of this library as text (MPI_Get_library_version).
func LibraryVersion() string { return version.Line("gorun") }

// ProcessorName is the name of the rank's host (MPI_Get_processor_name).
func (w *World) ProcessorName() string { return w.Host() }

// Finalized reports whether Finalize was called (MPI_Finalized).
func (w *World) Finalized() bool { return w.final }

// Self is the communicator of this rank alone (MPI_COMM_SELF). Finalize deletes its attributes first.
func (w *World) Self() *Comm { return w.self }

// An asker is a launcher that knows more about the job.
type asker interface {
	// Universe is how many ranks the job could have, and AppNum the number of
	// the program on gorun's command line; false: not known.
	Universe(ctx context.Context) (n int, known bool, err error)
	AppNum(ctx context.Context) (n int, known bool, err error)
}

// UniverseSize is the number of ranks that the job could have
// (MPI_UNIVERSE_SIZE). known is false if the launcher does not provide it.
func (w *World) UniverseSize(ctx context.Context) (n int, known bool, err error) {
	return w.ask(ctx, "universe_size", asker.Universe)
}

// AppNum is the number of this rank's program among the programs of the job,
// from 0 (MPI_APPNUM). known is false if the launcher does not provide it.
func (w *World) AppNum(ctx context.Context) (n int, known bool, err error) {
	return w.ask(ctx, "appnum", asker.AppNum)
}

func (w *World) ask(ctx context.Context, op string, what func(asker, context.Context) (int, bool, error)) (n int, known bool, err error) {
	a, ok := w.launcher.(asker)
	if err := w.enter(); err != nil {
		return 0, false, w.comm.fail(op, -1, err)
	}
	defer w.leave()
	if !ok {
		return 0, false, nil
	}
	if n, known, err = what(a, ctx); err != nil {
		return 0, false, w.comm.fail(op, -1, err)
	}
	return n, known, nil
}
