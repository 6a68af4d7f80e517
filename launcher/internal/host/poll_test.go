package host

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A poller gives what is ready, as long as it is, wakes for it, and gives up in time, both ways.
func TestPoller(t *testing.T) {
	for name, shared := range map[string]bool{"a thread sleeps": false, "a goroutine sleeps": true} {
		t.Run(name, func(t *testing.T) {
			p := poller{fd: -1}
			if err := p.open(shared); err != nil {
				t.Fatal(err)
			}
			defer p.close()
			bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(bell)
			if err := unix.EpollCtl(p.fd, unix.EPOLL_CTL_ADD, bell, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7}); err != nil {
				t.Fatal(err)
			}
			want := func(d time.Duration, n int) {
				t.Helper()
				got, err := p.wait(d)
				for began := time.Now(); err == nil && len(got) < n && (d < 0 || time.Since(began) < d); { // a signal came
					got, err = p.wait(d)
				}
				if err != nil || len(got) != n || n > 0 && got[0].Fd != 7 {
					t.Fatalf("within %v: got %v, %v, want %d of number 7", d, got, err, n)
				}
			}
			ring := func() {
				if _, err := unix.Write(bell, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
					t.Error(err)
				}
			}
			quiet := func() {
				if _, err := unix.Read(bell, make([]byte, 8)); err != nil {
					t.Error(err)
				}
			}
			for range 100 {
				want(0, 0)
				want(100*time.Microsecond, 0)
				go ring()
				want(-1, 1)
				want(0, 1)
				want(time.Minute, 1)
				quiet()
				want(0, 0)
				go ring()
				want(time.Minute, 1)
				quiet()
			}
		})
	}
}
