package host

import (
	"testing"
	"time"
)

func TestFindMPI(t *testing.T) {
	for _, c := range []struct {
		name string
		maps string
		want string
		sure bool
	}{
		{"nothing", "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libc.so.6\n7f00-7f01 rw-p 0 0:0 0 [stack]\n7ff0-7ff1 rw-p 0\n", "", false},
		{"linked", "7f00-7f01 r-xp 0 0:0 1 /usr/lib/libmpi.so.40.30.4\n", "Open MPI", false},
		{"initialised", "1 /usr/lib/libmpi.so.40.30.4\n1 /usr/lib/openmpi3/mca_pml_ob1.so\n", "Open MPI", true},
		{"initialised, 5.0", "1 /usr/lib/libmpi.so.40.40.7\n1 /dev/shm/sm_segment.a.0.e9980000.0\n", "Open MPI", true},
		{"mpich", "1 /usr/lib/libmpich.so.12.1.0\n1 /usr/lib/libc.so.6", "MPICH", false},
		{"mpich initialised", "1 /usr/lib/libmpich.so.12\n1 /usr/lib/ucx/libuct_cma.so.0\n", "MPI", true},
		{"abi", "1 /x/libmpi_abi.so.0\n", "MPI", false},
		{"no library of that name", "1 /x/notlibmpi.so\n1 /usr/lib/libmpi.so.40/other\n", "", false},
	} {
		l, ok := findMPI(mappedFiles([]byte(c.maps)))
		if l.name != c.want || l.sure != c.sure || ok != (c.want != "") {
			t.Errorf("%s: got %+v, %v, want %q, sure %v", c.name, l, ok, c.want, c.sure)
		}
	}
}

// A rank that is slow to begin is looked at later, too, and one that is alone again soon.
func TestNextLook(t *testing.T) {
	since := time.Now()
	for _, c := range []struct {
		name string
		singletonSearch
		want time.Duration // after since; 0: never
	}{
		{"at first", singletonSearch{}, looksAt[0]},
		{"after two", singletonSearch{timed: 2}, 10 * time.Second},
		{"alone", singletonSearch{timed: 3, told: true, pid: 1, again: since.Add(13 * time.Second)}, 13 * time.Second},
		{"alone, and the clock's is sooner", singletonSearch{told: true, pid: 1, again: since.Add(time.Second)}, looksAt[0]},
		{"alone for long", singletonSearch{timed: 3, told: true, pid: 1}, 30 * time.Second},
		{"told by its end", singletonSearch{timed: 1, told: true}, 0},
		{"after all", singletonSearch{timed: len(looksAt)}, 0},
	} {
		c.since = since
		h := assemble(Spec{NP: 2}, Config{})
		h.running, h.watcher.singletons = 1, c.singletonSearch
		next := h.watcher.nextLook()
		if got := next.Sub(since); next.IsZero() != (c.want == 0) || c.want > 0 && got != c.want {
			t.Errorf("%s: the next look is at %v, want %v", c.name, got, c.want)
		}
	}
}
