package arch

import (
	"bytes"
	"testing"
)

// Whatever the lengths and alignments, exactly the bytes of the shorter one are copied.
func TestCopies(t *testing.T) {
	for name, copies := range map[string]func(dst, src []byte) int{"Copy": Copy, "CopyAside": CopyAside} {
		t.Run(name, func(t *testing.T) { checkCopy(t, copies) })
	}
}

func checkCopy(t *testing.T, copies func(dst, src []byte) int) {
	const room = 400
	src := make([]byte, room)
	for i := range src {
		src[i] = byte(i*7 + i>>8 + 1)
	}
	for from := range 18 {
		for to := range 66 {
			for _, n := range []int{0, 1, 15, 63, 64, 65, 127, 128, 200, 300} {
				got, want := make([]byte, room), make([]byte, room)
				copy(want[to:to+n], src[from:from+n])
				if copied := copies(got[to:to+n], src[from:]); copied != n || !bytes.Equal(got, want) {
					t.Fatalf("%d of %d bytes from %d to %d", copied, n, from, to)
				}
			}
		}
	}
	long := make([]byte, 5<<19+3)
	for i := range long {
		long[i] = byte(i*7 + i>>8 + i>>16)
	}
	got := make([]byte, len(long)+2)
	if n := copies(got[1:], long); n != len(long) || !bytes.Equal(got[1:n+1], long) || got[0] != 0 || got[n+1] != 0 {
		t.Fatalf("%d of %d bytes", n, len(long))
	}
}
