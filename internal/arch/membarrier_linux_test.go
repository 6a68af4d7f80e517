package arch

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// register makes this process answer barriers, or ends the test.
func register(t testing.TB) {
	t.Helper()
	if !RegisterMembarrier() {
		testenv.Unsupported(t, "the kernel has no membarrier(GLOBAL_EXPEDITED), or forbids it")
	}
}

func TestRegisterMembarrier(t *testing.T) {
	register(t)
	if !RegisterMembarrier() {
		t.Error("RegisterMembarrier the second time: got false, want true")
	}
	if err := Membarrier(); err != nil {
		t.Errorf("Membarrier after RegisterMembarrier: got error %v, want none", err)
	}
	if membarrierKnows(membarrierGetRegistrations) && !MembarrierRegistered() {
		t.Error("MembarrierRegistered after RegisterMembarrier: got false, want true")
	}
}

// Store buffering, the protocol of a sleeper and its waker: the waker stores the
// news with a release store and looks at the flag, the sleeper stores the flag,
// calls Membarrier and looks for news. At least one of them sees the other.
// Without the barrier both can look before either store is visible: in 1 % of
// these rounds on a 2-core Sapphire Rapids.
func TestMembarrierOrdersStoreAndLoad(t *testing.T) {
	register(t)
	rounds := testenv.Fewer(20_000, 2_000)
	missed := storeBuffering(rounds, func() {
		if err := Membarrier(); err != nil {
			t.Errorf("Membarrier: %v", err)
		}
	})
	if missed != 0 {
		t.Errorf("in %d of %d rounds neither saw the other, want 0", missed, rounds)
	}
}

// storeBuffering counts the rounds in which neither side saw the other.
func storeBuffering(rounds int, barrier func()) (missed int) {
	type line struct {
		v uint64
		_ [CacheLine - 8]byte
	}
	// Each holds the number of the last round it took part in.
	var news, flag, turn, done line
	var wakerSaw uint64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(1); ; i++ {
			for misses := 0; atomic.LoadUint64(&turn.v) != i; misses++ {
				relax(misses)
			}
			last := i >= uint64(rounds)
			StoreRelease64(&news.v, i)
			wakerSaw = atomic.LoadUint64(&flag.v)
			StoreRelease64(&done.v, i)
			if last {
				return
			}
		}
	})
	// On a machine that is busy with other things a round can take a time
	// slice: then there are fewer of them.
	end := time.Now().Add(5 * time.Second)
	for i := uint64(1); i <= uint64(rounds); i++ {
		if time.Now().After(end) {
			rounds = int(i) // the waker waits for its turn and sees this
		}
		StoreRelease64(&turn.v, i)
		for range i % 1024 { // meet the waker at different places
			_ = atomic.LoadUint64(&flag.v)
		}
		atomic.StoreUint64(&flag.v, i)
		barrier()
		sleeperSaw := atomic.LoadUint64(&news.v)
		for misses := 0; atomic.LoadUint64(&done.v) != i; misses++ {
			relax(misses)
		}
		if sleeperSaw != i && wakerSaw != i {
			missed++
		}
	}
	wg.Wait()
	return missed
}

func BenchmarkMembarrier(b *testing.B) {
	register(b)
	for b.Loop() {
		if err := Membarrier(); err != nil {
			b.Fatal(err)
		}
	}
}
