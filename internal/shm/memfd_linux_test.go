package shm

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"golang.org/x/sys/unix"
)

// fileOf makes a memfd with the given content and seals.
func fileOf(t testing.TB, content []byte, size int64, seals int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Pwrite(fd, content, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return fd
}

func TestOpenRefuses(t *testing.T) {
	page := int64(os.Getpagesize())
	l, err := Geometry{Ranks: 2, ArenaSize: uint64(page)}.lay(uint64(page))
	if err != nil {
		t.Fatal(err)
	}
	good, size := l.appendTo(nil), int64(l.total)
	file := func(t *testing.T) *os.File {
		f, err := os.Create(filepath.Join(t.TempDir(), "file"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		if _, err := f.Write(good); err != nil || f.Truncate(size) != nil {
			t.Fatal(err)
		}
		return f
	}
	cases := []struct {
		name string
		fd   func(t *testing.T) int
		want error
	}{
		{"closed descriptor", func(*testing.T) int { return 1 << 20 }, unix.EBADF},
		{"negative descriptor", func(*testing.T) int { return -1 }, unix.EBADF},
		{"directory", func(t *testing.T) int {
			f, err := os.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			return int(f.Fd())
		}, ErrNotSegment},
		{"ordinary file with a good header", func(t *testing.T) int { return int(file(t).Fd()) }, ErrNotSegment},
		{"pipe", func(t *testing.T) int {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close(); w.Close() })
			return int(r.Fd())
		}, ErrNotSegment},
		{"memfd that can shrink", func(t *testing.T) int { return fileOf(t, good, size, unix.F_SEAL_GROW) }, ErrNotSegment},
		{"memfd that cannot be written", func(t *testing.T) int {
			return fileOf(t, good, size, unix.F_SEAL_SHRINK|unix.F_SEAL_WRITE)
		}, ErrNotSegment},
		{"empty memfd", func(t *testing.T) int { return fileOf(t, nil, 0, sealed) }, ErrNotSegment},
		{"memfd of zeroes", func(t *testing.T) int { return fileOf(t, nil, size, sealed) }, ErrNotSegment},
		{"truncated memfd", func(t *testing.T) int { return fileOf(t, good, size-page, sealed) }, ErrNotSegment},
		{"memfd that is too long", func(t *testing.T) int { return fileOf(t, good, size+page, sealed) }, ErrNotSegment},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			fd := c.fd(t)
			before := mappings(t)
			s, err := Open(fd)
			if !errors.Is(err, c.want) {
				t.Errorf("Open: got %v and error %v, want %v", s, err, c.want)
			}
			if s != nil {
				s.Close()
				return
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil && c.want != unix.EBADF {
				t.Errorf("the descriptor after a failed Open: got %v, want it open", err)
			}
			if after := mappings(t); after != before {
				t.Errorf("%d mappings of memfds after a failed Open, %d before", after, before)
			}
		})
	}
}

// mappings counts this process's mappings of memfds.
func mappings(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:")
}

// FuzzOpen opens memfds of arbitrary content: a segment or an error, never a
// crash, and never an arena outside the file.
func FuzzOpen(f *testing.F) {
	page := int64(os.Getpagesize())
	l, err := Geometry{Ranks: 2, ArenaSize: uint64(page)}.lay(uint64(page))
	if err != nil {
		f.Fatal(err)
	}
	good := l.appendTo(nil)
	f.Add(good, uint8(l.total/uint64(page)), true)
	f.Add(good, uint8(1), true)
	f.Add(good[:20], uint8(3), false)
	f.Add(bytes.Repeat([]byte{0xff}, 4096), uint8(3), true)
	f.Fuzz(func(t *testing.T, content []byte, pages uint8, seal bool) {
		seals := unix.F_SEAL_SEAL
		if seal {
			seals = sealed
		}
		fd, err := unix.Dup(fileOf(t, content, int64(pages)*page, seals))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Open(fd)
		if err != nil {
			unix.Close(fd)
			return
		}
		defer s.Close()
		for r := range s.Ranks() {
			a, err := s.Arena(r)
			if err != nil {
				t.Fatalf("Arena(%d) of a segment that opened: %v", r, err)
			}
			a[0]++
			a[len(a)-1]++
			b := s.Bell(r)
			b.Ring()
			b.Prepare()
			b.Ring()
			b.Sleep(1)
			b.Cancel()
			s.SetDead(r)
		}
	})
}

// Two openings of one segment see each other's bytes, flags and bells.
func TestOpenShares(t *testing.T) {
	testenv.NoLeaks(t)
	first := newSegment(t, Create, smallGeometry)
	for _, c := range []struct {
		name string
		open func(Geometry) (*Segment, error)
	}{
		{"Open", func(Geometry) (*Segment, error) {
			fd, err := unix.Dup(first.FD())
			if err != nil {
				return nil, err
			}
			return Open(fd)
		}},
		{"OpenPeer", func(Geometry) (*Segment, error) { return OpenPeer(os.Getpid(), first.FD()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			second := newSegment(t, c.open, Geometry{})
			if second.layout != first.layout {
				t.Fatalf("got layout %+v, want %+v", second.layout, first.layout)
			}
			a, b := arena(t, first, 3), arena(t, second, 3)
			a[7], b[8] = 77, 88
			if a[8] != 88 || b[7] != 77 {
				t.Errorf("got %d and %d through the other mapping, want 88 and 77", a[8], b[7])
			}
			a[7], b[8] = 0, 0
			first.SetDeadElsewhere([]int{100})
			if !second.DeadElsewhere(100) || second.DeadElsewhere(101) {
				t.Error("a mark is not what it is through the other mapping")
			}
			second.Bell(0).Prepare()
			if got := atomic.LoadUint32(first.Bell(0).word); got != 1 {
				t.Errorf("Prepare through the other mapping: word is %d, want 1", got)
			}
			first.Bell(0).Ring()
			if got := atomic.LoadUint32(second.Bell(0).word); got != 0 {
				t.Errorf("Ring through the other mapping: word is %d, want 0", got)
			}
			flags, err := unix.FcntlInt(uintptr(second.FD()), unix.F_GETFD, 0)
			if err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Errorf("descriptor flags: got %#x and error %v, want close-on-exec", flags, err)
			}
		})
	}
}

func TestOpenPeerRefuses(t *testing.T) {
	testenv.NoLeaks(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, c := range []struct {
		name    string
		pid, fd int
		want    error
	}{
		{"no such descriptor", os.Getpid(), 1 << 20, os.ErrNotExist},
		{"negative descriptor", os.Getpid(), -3, os.ErrNotExist},
		{"no such process", 1 << 30, 3, os.ErrNotExist},
		{"negative process", -1, 3, os.ErrNotExist},
		{"fifo", os.Getpid(), int(f.Fd()), ErrNotSegment},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := OpenPeer(c.pid, c.fd)
			if !errors.Is(err, c.want) {
				t.Errorf("OpenPeer(%d, %d): got %v and error %v, want %v", c.pid, c.fd, s, err, c.want)
			}
			if s != nil {
				s.Close()
			}
		})
	}
}

// The size is sealed and the content is not.
func TestSeals(t *testing.T) {
	s := newSegment(t, Create, smallGeometry)
	for _, size := range []int64{0, int64(s.total) - 4096, int64(s.total) + 4096} {
		if err := unix.Ftruncate(s.FD(), size); !errors.Is(err, unix.EPERM) {
			t.Errorf("resize from %d to %d: got error %v, want EPERM", s.total, size, err)
		}
	}
	if _, err := unix.FcntlInt(uintptr(s.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("seal against writing: got error %v, want EPERM", err)
	}
	if _, err := unix.Pwrite(s.FD(), []byte{1}, int64(s.total)-1); err != nil {
		t.Errorf("write to the last arena: got error %v", err)
	}
	if a := arena(t, s, s.Ranks()-1); a[len(a)-1] != 1 {
		t.Errorf("the last byte is %d, want 1", a[len(a)-1])
	}
}

// Mapped arenas are sparse, out of core dumps, and gone after Close.
func TestMappings(t *testing.T) {
	before := mappings(t)
	s := newSegment(t, Create, Geometry{Ranks: 300, ArenaSize: 1 << 30})
	if got, want := mappings(t)-before, 1; got != want {
		t.Errorf("new segment: got %d mappings, want %d, the header", got, want)
	}
	for _, r := range []int{0, 17, 299} {
		a := arena(t, s, r)
		a[len(a)-1] = 1
	}
	// Neighbouring mappings may be merged into one.
	if got := mappings(t) - before; got < 2 || got > 4 {
		t.Errorf("3 arenas in use: got %d mappings, want 2 to 4", got)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range strings.Split(string(smaps), "/memfd:gorun")[1:] {
		_, flags, _ := strings.Cut(m, "VmFlags:")
		flags, _, _ = strings.Cut(flags, "\n")
		if !strings.Contains(flags, " dd") {
			t.Errorf("a mapping has flags %q, want dd (not dumped) among them", flags)
		}
	}
	var st unix.Stat_t
	if err := unix.Fstat(s.FD(), &st); err != nil {
		t.Fatal(err)
	}
	if most := int64(100 * 4096); st.Blocks*512 > most {
		t.Errorf("3 touched pages of 300 GiB take %d bytes, want at most %d", st.Blocks*512, most)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := mappings(t) - before; got != 0 {
		t.Errorf("after Close: got %d mappings, want 0", got)
	}
}
