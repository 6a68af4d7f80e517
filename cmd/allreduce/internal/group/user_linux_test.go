package group

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// as runs f on a thread of another user, which ends with it.
func as(t *testing.T, uid int, f func() (fd int, err error)) net.Conn {
	t.Helper()
	type result struct {
		fd  int
		err error
	}
	done := make(chan result, 1)
	arch.GoThread(func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- result{0, errno}
			return
		}
		fd, err := f()
		done <- result{fd, err}
	})
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	file := os.NewFile(uintptr(r.fd), "socket")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// Without a key, processes of other users on this host are refused: those that connect, and those
// that are there in a member's place.
func TestOtherUsersAreRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		testenv.Unsupported(t, "only root can be another user for a while")
	}
	testenv.NoLeaks(t)
	const nobody = 65534
	ctx, cancel := context.WithCancel(testenv.Deadline(t, time.Minute))
	defer cancel()
	all := options(t, config(10, "int", "sum", Auto), nil, []member{{kind: Daemon, clients: 1}, {kind: Offloaded}})
	address := &unix.SockaddrInet4{Port: all[0].Listener.Addr().(*net.TCPAddr).Port, Addr: [4]byte{127, 0, 0, 1}}
	var log strings.Builder
	all[0].SDK.SetOutput(&log)
	done := make(chan error, 1)
	go func() {
		_, err := one(ctx, 0, all[0])
		done <- err
	}()
	conn := as(t, nobody, func() (int, error) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return 0, err
		}
		return fd, unix.Connect(fd, address)
	})
	stranger := &endpoint{hello: helloOf(all[1], "stranger"), log: quiet(), sdk: quiet()}
	if _, err := stranger.greet(ctx, conn); !errors.Is(err, errRefused) {
		t.Errorf("the daemon answered another user: %v", err)
	}
	cancel()
	<-done
	says(t, errors.New(log.String()), "was not let in", "belongs to user 65534")

	// One that listens where a daemon should.
	l := listen(t)
	defer l.Close()
	member := &endpoint{hello: helloOf(all[1], "member"), log: quiet(), sdk: quiet()}
	greeted := make(chan error, 1)
	go func() {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			_, err = member.greet(testenv.Deadline(t, time.Minute), conn)
		}
		greeted <- err
	}()
	raw, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	conn = as(t, nobody, func() (int, error) {
		if err := unix.SetNonblock(int(raw.Fd()), false); err != nil {
			return 0, err
		}
		fd, _, err := unix.Accept4(int(raw.Fd()), unix.SOCK_CLOEXEC)
		return fd, err
	})
	defer conn.Close()
	daemon := helloOf(all[0], "nobody's")
	if err := writeFrame(conn, &frame{Kind: kindHello, Hello: &daemon}); err != nil {
		t.Fatal(err)
	}
	says(t, <-greeted, "refused", "belongs to user 65534")
}

func helloOf(o Options, label string) hello {
	return hello{Magic: magic, Version: protocolVersion, Kind: o.Kind, ID: newID(), Label: label, Config: o.Config}
}
