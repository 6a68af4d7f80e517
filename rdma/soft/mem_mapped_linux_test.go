package soft

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Both ways of asking the kernel, the one that every kernel has and the one
// that newer ones have, over three mappings: writable, read-only, none.
func TestMappings(t *testing.T) {
	whole, err := unix.Mmap(-1, 0, 3*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(whole)
	if err := unix.Mprotect(whole[pageSize:2*pageSize], unix.PROT_READ); err != nil {
		t.Fatal(err)
	}
	hole, err := unix.Mmap(-1, 0, 2*pageSize, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	gone := addressOf(hole)
	if err := unix.Munmap(hole); err != nil {
		t.Fatal(err)
	}
	at := addressOf(whole)
	for _, silent := range []bool{false, true} {
		m := &mappings{silent: silent}
		defer m.close()
		for _, c := range []struct {
			name    string
			addr, n uint64
			write   bool
			want    error
			old     error // of a kernel that tells of no single mapping
		}{
			{"writable", at, pageSize, true, nil, nil},
			{"a byte of it", at + pageSize - 1, 1, true, nil, nil},
			{"all for reading", at, 3 * pageSize, false, nil, nil},
			{"all for writing", at, 3 * pageSize, true, syscall.EFAULT, nil},
			{"into the read-only page", at + pageSize - 1, 2, true, syscall.EFAULT, nil},
			{"not mapped", gone, pageSize, false, syscall.EFAULT, syscall.EFAULT},
			{"wraps", ^uint64(0) - 7, 16, false, syscall.EFAULT, syscall.EFAULT},
			{"beyond what users have", highestAddress, 16, false, syscall.EFAULT, syscall.EFAULT},
		} {
			want := c.want
			if m.silent {
				want = c.old
			}
			if got := m.check(c.addr, c.n, c.write); got != want {
				t.Errorf("silent %v: %s: %v, want %v", silent, c.name, got, want)
			}
		}
	}
}
