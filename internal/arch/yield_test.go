package arch

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestYieldsReturn(t *testing.T) {
	for name, yield := range map[string]func(){"Pause": Pause, "Yield": Yield, "YieldSafe": YieldSafe} {
		if n := testing.AllocsPerRun(100, yield); n != 0 {
			t.Errorf("%s: %v allocations a call, want 0", name, n)
		}
	}
}

// A goroutine that does nothing but YieldSafe does not hold up a collection.
func TestYieldSafeLetsCollectionsIn(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for range 64 {
				YieldSafe()
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	collected := make(chan struct{})
	go func() {
		runtime.GC()
		close(collected)
	}()
	select {
	case <-collected:
	case <-time.After(testenv.Limit(10 * time.Second)):
		t.Error("runtime.GC has not returned after 10 s beside a goroutine that calls YieldSafe")
	}
	close(stop)
	<-stopped
	<-collected
}

func BenchmarkPause(b *testing.B) {
	for b.Loop() {
		Pause()
	}
}

func BenchmarkYield(b *testing.B) {
	for b.Loop() {
		Yield()
	}
}

func BenchmarkYieldSafe(b *testing.B) {
	for b.Loop() {
		YieldSafe()
	}
}
