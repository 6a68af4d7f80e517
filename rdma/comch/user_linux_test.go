package comch

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// as runs f on a thread of another user, which ends with it.
func as(t *testing.T, uid int, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	arch.GoThread(func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	})
	return <-done
}

// The processes of other users are refused, on both sides, whatever names they know.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Unsupported(t, "only root can be another user for a while")
	}
	testenv.NoLeaks(t)
	const nobody = 65534
	var log notes
	cfg := Config{Name: t.Name(), Log: log.log}
	address := &unix.SockaddrUnix{Name: hereName(&cfg)}
	l, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var answer []byte
	if err := as(t, nobody, func() error {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := unix.Connect(fd, address); err != nil {
			return err
		}
		b := make([]byte, maxHello)
		n, err := unix.Read(fd, b)
		answer = b[:max(n, 0)]
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := parseHello(answer); !errors.Is(err, ErrRefused) {
		t.Errorf("the client of another user was answered %q, %v; want %v", answer, err, ErrRefused)
	}
	testenv.Await(t, 20*time.Second, "the server's line", func() bool { return log.has("is user 65534's, expected one of user 0") })
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	// A stranger who takes the name first is given nothing.
	listener := -1
	if err := as(t, nobody, func() error {
		var err error
		if listener, err = unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		return errors.Join(unix.Bind(listener, address), unix.Listen(listener, 1))
	}); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(listener)
	if _, err := Dial(limit(t), cfg); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "is user 65534's") {
		t.Errorf("Dial of another user's listener: %v, want %v", err, ErrRefused)
	}
}
