package arch

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// The stores write what the reference writes, and nothing beside it.
func TestStoreReleaseIsReference(t *testing.T) {
	const guard32, guard64 = 0xa5a5a5a5, 0xa5a5a5a5a5a5a5a5
	cases := []struct {
		name string
		v    uint64
	}{
		{"zero", 0},
		{"one", 1},
		{"low half", 0x00000000ffffffff},
		{"high half", 0xffffffff00000000},
		{"sign bits", 0x8000000080000000},
		{"all", 0xffffffffffffffff},
		{"distinct bytes", 0x0102030405060708},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got64, want64 := [3]uint64{guard64, guard64, guard64}, [3]uint64{guard64, guard64, guard64}
			StoreRelease64(&got64[1], c.v)
			storeReference64(&want64[1], c.v)
			if got64 != want64 {
				t.Errorf("StoreRelease64(%#x): memory is %#x, want %#x", c.v, got64, want64)
			}
			got32, want32 := [3]uint32{guard32, guard32, guard32}, [3]uint32{guard32, guard32, guard32}
			StoreRelease32(&got32[1], uint32(c.v))
			storeReference32(&want32[1], uint32(c.v))
			if got32 != want32 {
				t.Errorf("StoreRelease32(%#x): memory is %#x, want %#x", c.v, got32, want32)
			}
		})
	}
}

// Message passing: whoever sees the flag sees the payload that was stored before
// it with plain stores. In race builds the detector checks the same claim.
func TestStoreReleaseMessagePassing(t *testing.T) {
	const slots = 64
	rounds := 2_000_000
	if testing.Short() || RaceEnabled {
		rounds = 200_000
	}
	type slot struct {
		payload [6]uint64
		flag    uint64
		_       [8]byte
	}
	var ring [slots]slot
	var read struct {
		_ [CacheLine]byte
		n uint64
		_ [CacheLine]byte
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := uint64(1); i <= uint64(rounds); i++ {
			for misses := 0; i-atomic.LoadUint64(&read.n) > slots; misses++ {
				relax(misses)
			}
			s := &ring[i%slots]
			for k := range s.payload {
				s.payload[k] = i + uint64(k)
			}
			StoreRelease64(&s.flag, i)
		}
	})
	for i := uint64(1); i <= uint64(rounds); i++ {
		s := &ring[i%slots]
		for misses := 0; atomic.LoadUint64(&s.flag) != i; misses++ {
			relax(misses)
		}
		for k := range s.payload {
			if got, want := s.payload[k], i+uint64(k); got != want {
				t.Errorf("round %d: payload[%d] is %d after the flag, want %d", i, k, got, want)
			}
		}
		StoreRelease64(&read.n, i)
	}
	wg.Wait()
}

// relax is what a litmus test does between two looks: the other side may need
// this thread, or this CPU.
func relax(misses int) {
	switch misses % 200 {
	case 99:
		runtime.Gosched()
	case 199:
		YieldSafe()
	default:
		Pause()
	}
}

func BenchmarkStoreRelease64(b *testing.B) {
	var word uint64
	for i := 0; b.Loop(); i++ {
		StoreRelease64(&word, uint64(i))
	}
}

func BenchmarkStoreReference64(b *testing.B) {
	var word uint64
	for i := 0; b.Loop(); i++ {
		storeReference64(&word, uint64(i))
	}
}
