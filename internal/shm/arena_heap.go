//go:build race || !linux

package shm

// newArena gives a rank of a local segment memory from the Go heap: all that
// the race detector watches. It is page aligned because of its size.
func newArena(s *Segment, _ int) ([]byte, error) { return make([]byte, s.layout.ArenaSize), nil }

// freeArena leaves the memory to the garbage collector.
func freeArena(*Segment, []byte) error { return nil }
