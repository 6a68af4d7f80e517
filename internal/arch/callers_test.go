package arch

import (
	"runtime"
	"strings"
	"testing"
)

//go:noinline
func innermost(own, theirs []uintptr) (n, m int) { return Callers(own), runtime.Callers(1, theirs) }

//go:noinline
func deep(n int, f func()) {
	if n == 0 {
		f()
		return
	}
	deep(n-1, f)
}

// The functions are those that the runtime names, whatever the depth, on a goroutine too, and no more than were asked for.
func TestCallers(t *testing.T) {
	names := func(pcs []uintptr) (list []string) {
		frames := runtime.CallersFrames(pcs)
		for {
			f, more := frames.Next()
			// The runtime leaves out wrappers, and goexit has no frame pointer.
			if f.Function != "runtime.goexit" && f.Function != "" && !strings.Contains(f.Function, ".gowrap") {
				list = append(list, f.Function)
			}
			if !more {
				return list
			}
		}
	}
	look := func() {
		for _, room := range []int{1, 3, 64} {
			own, theirs := make([]uintptr, room), make([]uintptr, 64)
			n, m := innermost(own, theirs)
			got, want := names(own[:n]), names(theirs[:m])
			if n == 0 || n > room || len(got) > len(want) || room == 64 && len(got) != len(want) {
				t.Fatalf("%d callers, %v, want %v", n, got, want)
			}
			for i, name := range got {
				if name != want[i] {
					t.Fatalf("callers %v, want %v", got, want)
				}
			}
		}
	}
	look()
	deep(20, look)
	done := make(chan struct{})
	go func() {
		defer close(done)
		deep(3, look)
	}()
	<-done
	if Callers(nil) != 0 {
		t.Error("callers in no memory")
	}
}

func BenchmarkCallers(b *testing.B) {
	var pcs [8]uintptr
	for b.Loop() {
		Callers(pcs[:])
	}
}
