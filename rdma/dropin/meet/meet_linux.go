package meet

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/shm"
)

// arenaSize is sparse, as all of the segment.
const arenaSize = 256 << 20

var fabricName = regexp.MustCompile(`^[A-Za-z0-9._-]{0,32}$`)

// Join makes this process a member of the user's fabric of that name, and begins the fabric if nobody is in it.
// It waits for another process only while that one joins.
func Join(fabric string) (*Member, error) {
	if !fabricName.MatchString(fabric) {
		return nil, fmt.Errorf("found fabric %q, expected at most 32 letters, digits, dots, dashes and underscores", fabric)
	}
	prefix := fmt.Sprintf("@gorun-verbs/%d/%s/", os.Geteuid(), fabric)
	lock, err := hold(prefix + "lock")
	if err != nil {
		return nil, fmt.Errorf("join fabric %q: %w", fabric, err)
	}
	m, err := join(prefix)
	_ = unix.Close(lock)
	if err != nil {
		return nil, fmt.Errorf("join fabric %q: %w", fabric, err)
	}
	return m, nil
}

func join(prefix string) (*Member, error) {
	s, dir, err := find(prefix)
	if err == nil && s == nil {
		s, dir, err = begin()
	}
	if err != nil {
		return nil, err
	}
	m := &Member{segment: s, dir: dir}
	pid := os.Getpid()
	self, _ := proc.Of(pid)
	if m.place, err = dir.take(pid, self.Start, lives); err == nil {
		m.door, err = bind(fmt.Sprintf("%s%d.%d", prefix, pid, s.FD()))
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return m, nil
}

// lives tells whether the process of that start does, and has not ended unreaped.
func lives(pid int, start uint64) bool {
	s, ok := proc.Of(pid)
	return ok && s.Start == start && s.State != 'Z' && s.State != 'X'
}

// Close leaves the fabric. A process that just ends leaves it too. The provider on the segment must be closed.
func (m *Member) Close() error {
	_ = unix.Close(m.door)
	// Without the lock: the record is this process's until pid is 0, which is stored last.
	r := m.record()
	atomic.StoreUint32(&r.state, 0)
	r.ended = atomic.AddUint64(&m.dir.clock, 1)
	atomic.StoreUint32(&r.pid, 0)
	return m.segment.Close()
}

// begin makes the segment of a new fabric.
func begin() (*shm.Segment, directory, error) {
	s, err := shm.Create(shm.Geometry{Ranks: Places + 1, ArenaSize: arenaSize})
	if err != nil {
		return nil, directory{}, err
	}
	arena, err := s.Arena(Places)
	if err != nil {
		return nil, directory{}, errors.Join(err, s.Close())
	}
	d := directoryIn(arena)
	atomic.StoreUint64(&d.magic, directoryMagic)
	return s, d, nil
}

// find opens the segment of a member, nil where there is none.
func find(prefix string) (*shm.Segment, directory, error) {
	f, err := os.Open("/proc/net/unix")
	if err != nil {
		return nil, directory{}, fmt.Errorf("find other processes: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		_, rest, ok := strings.Cut(lines.Text(), " "+prefix)
		left, right, member := strings.Cut(rest, ".")
		pid, err1 := strconv.Atoi(left)
		fd, err2 := strconv.Atoi(right)
		if !ok || !member || err1 != nil || err2 != nil {
			continue
		}
		// Anybody may have bound the name. A fabric is one user's: root looks into its own processes only.
		var st unix.Stat_t
		if unix.Stat("/proc/"+left, &st) != nil || int(st.Uid) != os.Geteuid() {
			continue
		}
		s, err := shm.OpenPeer(pid, fd)
		if err != nil {
			continue
		}
		if s.Ranks() == Places+1 && s.ArenaSize() == arenaSize {
			arena, err := s.Arena(Places)
			if err != nil {
				return nil, directory{}, errors.Join(err, s.Close())
			}
			if d := directoryIn(arena); d.formatted() {
				return s, d, nil
			}
		}
		if err := s.Close(); err != nil {
			return nil, directory{}, err
		}
	}
	return nil, directory{}, lines.Err()
}

// hold binds a name that one process has at a time, and waits until it is free.
func hold(name string) (int, error) {
	for {
		fd, err := bind(name)
		if !errors.Is(err, unix.EADDRINUSE) {
			return fd, err
		}
		if err := await(name); err != nil {
			return -1, err
		}
	}
}

// bind makes a socket of that name, which the kernel frees with the last process that has it.
func bind(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("make a socket: %w", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: name}); err == nil {
		err = unix.Listen(fd, 128)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, fmt.Errorf("bind %s: %w", name, err)
	}
	return fd, nil
}

// await waits until the holder of the name lets go: its end resets the connection, which it never accepts.
func await(name string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: name}); err != nil {
		return nil // it has let go, or is about to listen
	}
	if c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && int(c.Uid) != os.Geteuid() {
		return fmt.Errorf("user %d has the name %s (process %d), which is for user %d: end that process", c.Uid, name, c.Pid, os.Geteuid())
	}
	var b [1]byte
	_, _ = unix.Read(fd, b[:])
	return nil
}
