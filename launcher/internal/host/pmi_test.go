package host

import (
	"bytes"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Ranks that read slowly read the same bytes, of which a full socket makes no copy, and what follows is theirs alone.
func TestRepliesToSlowReaders(t *testing.T) {
	const np, size = 2, 16 << 20
	d := newDesk(t, np)
	data := bytes.Repeat([]byte{1, 2, 3}, size/3)
	var theirs [np]int
	for i := range theirs {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		theirs[i], d.Host.ranks[i].socket = ends[1], ends[0]
		t.Cleanup(func() {
			closeFD(&theirs[i])
			closeFD(&d.Host.ranks[i].socket)
		})
		if err := d.watch(ends[0], unix.EPOLLIN, sourcePMI, i); err != nil {
			t.Fatal(err)
		}
	}
	got := [np][]byte{make([]byte, 0, size+8), make([]byte, 0, size+8)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range np {
		d.server.reply(i, data)
	}
	for len(got[0]) < len(data) || len(got[1]) < len(data) {
		for i, fd := range theirs {
			n, _, err := unix.Recvfrom(fd, got[i][len(got[i]):cap(got[i])], unix.MSG_DONTWAIT)
			if err == unix.EAGAIN {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			got[i] = got[i][:len(got[i])+n]
			d.server.serve(i, unix.EPOLLOUT)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > size/4 {
		t.Errorf("%d bytes were allocated to send %d", took, size)
	}
	for i := range np {
		if !bytes.Equal(got[i], data) {
			t.Errorf("rank %d was sent something else", i)
		}
		d.server.reply(i, data[:len(data)/2]) // stays in the socket in part
		d.server.reply(i, []byte{byte('a' + i)})
		if r := &d.Host.ranks[i]; !r.stuck || r.send[len(r.send)-1] != byte('a'+i) {
			t.Errorf("rank %d: %d bytes wait, want some, the answer to it last", i, len(r.send))
		}
	}
	if data[len(data)/2] != bytes.Repeat([]byte{1, 2, 3}, size/3)[len(data)/2] {
		t.Error("an answer to one rank is written over what others read")
	}
}

// expecting is a store that counts what it was told to expect.
type expecting struct {
	Store
	fences int
}

func (e *expecting) Expect() { e.fences++ }

// A rank's first word, by the socket it was started with, has the store expect fences.
func TestAWordOfARankAnnouncesFences(t *testing.T) {
	d := newDesk(t, 1)
	store := &expecting{}
	d.cfg.Store = store
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	d.Host.ranks[0].socket = ends[0]
	t.Cleanup(func() {
		closeFD(&ends[1])
		closeFD(&d.Host.ranks[0].socket)
	})
	d.server.serve(0, unix.EPOLLIN)
	if store.fences != 0 {
		t.Fatal("it expects fences of a rank that has said nothing")
	}
	if _, err := unix.Write(ends[1], []byte("cmd=init pmi_version=1 pmi_subversion=1\n")); err != nil {
		t.Fatal(err)
	}
	d.server.serve(0, unix.EPOLLIN)
	if store.fences != 1 {
		t.Errorf("it was told %d times to expect fences, want once", store.fences)
	}
}

// BenchmarkReplies is an answer of PMI that goes through a rank's socket, and is read.
func BenchmarkReplies(b *testing.B) {
	const size = 128 << 10
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer closeFD(&ends[1])
	h := assemble(Spec{}, Config{})
	h.ranks = []rank{{socket: ends[0]}}
	defer closeFD(&h.ranks[0].socket)
	data, got := make([]byte, size), make([]byte, size)
	b.SetBytes(size)
	for b.Loop() {
		h.server.reply(0, data)
		for left := size; left > 0; {
			n, _, err := unix.Recvfrom(ends[1], got, 0)
			if err != nil {
				b.Fatal(err)
			}
			left -= n
		}
	}
}

// A rank's own threads speak for it, by whatever name the kernel gives them, and its children do not.
func TestThreadOf(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tid := make(chan int)
	done := make(chan bool)
	go func() {
		runtime.LockOSThread() // and ends with it
		tid <- unix.Gettid()
		<-done
	}()
	other := <-tid
	defer close(done)
	if !threadOf(other, os.Getpid()) || !threadOf(os.Getpid(), other) {
		t.Errorf("thread %d is none of process %d", other, os.Getpid())
	}
	child := exec.Command("sleep", "100")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	if threadOf(child.Process.Pid, os.Getpid()) {
		t.Errorf("the child %d is a thread of its parent", child.Process.Pid)
	}
}
