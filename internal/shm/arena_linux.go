//go:build !race

package shm

import "golang.org/x/sys/unix"

// newArena gives a rank of a local segment fresh anonymous memory: sparse, and
// not counted against overcommit before it is touched.
func newArena(s *Segment, _ int) ([]byte, error) {
	a, err := unix.Mmap(-1, 0, int(s.layout.ArenaSize), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	keepOutOfDumps(a)
	return a, nil
}

func freeArena(_ *Segment, a []byte) error { return unix.Munmap(a) }
