package arch

import (
	"os"
	"testing"
)

// Each function has an OS thread of its own while it runs, and never the main thread, which may
// be free for it.
func TestGoThread(t *testing.T) {
	const n = 20
	threads, over := make(chan int), make(chan struct{})
	for range n {
		GoThread(func() {
			threads <- Thread()
			<-over
		})
	}
	seen := map[int]bool{os.Getpid(): true}
	for range n {
		id := <-threads
		if seen[id] {
			t.Errorf("thread %d: it is the main thread (%d), or has two functions", id, os.Getpid())
		}
		seen[id] = true
	}
	close(over)
}
