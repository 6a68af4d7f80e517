package stdio

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestSinkWritesInOrder(t *testing.T) {
	testenv.NoLeaks(t)
	var out, want bytes.Buffer
	var done atomic.Int32
	s := NewSink(&out, View{}, func(err error) { t.Error(err) })
	for i := range 1000 {
		p := bytes.Repeat([]byte{byte(i)}, i)
		want.Write(p)
		s.Put(Piece{Data: p}, func() { done.Add(1) })
	}
	<-s.Idle()
	if !bytes.Equal(out.Bytes(), want.Bytes()) || done.Load() != 1000 {
		t.Errorf("got %d bytes, %d done, want %d, 1000", out.Len(), done.Load(), want.Len())
	}
	<-s.Idle()
}

func TestSinkThatDiscards(t *testing.T) {
	testenv.NoLeaks(t)
	s := NewSink(nil, View{}, func(err error) { t.Error(err) })
	done := false
	s.Put(Piece{Data: []byte("x")}, func() { done = true })
	<-s.Idle()
	if !done {
		t.Errorf("done was not called")
	}
}

type broken struct{ n int }

func (b *broken) Write([]byte) (int, error) { b.n++; return 0, errors.New("broken") }

func TestSinkThatFails(t *testing.T) {
	testenv.NoLeaks(t)
	var failed, done atomic.Int32
	b := &broken{}
	s := NewSink(b, View{}, func(error) { failed.Add(1) })
	for range 10 {
		s.Put(Piece{Data: []byte("x")}, func() { done.Add(1) })
	}
	<-s.Idle()
	if b.n != 1 || failed.Load() != 1 || done.Load() != 10 {
		t.Errorf("got %d writes, %d failures, %d done, want 1, 1, 10", b.n, failed.Load(), done.Load())
	}
}

func TestWriteToFiles(t *testing.T) {
	testenv.NoLeaks(t)
	data := bytes.Repeat([]byte("0123456789"), 50_000) // more than a pipe holds
	for _, blocking := range []bool{true, false} {
		var ends [2]int
		if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		r, w := os.NewFile(uintptr(ends[0]), "r"), os.NewFile(uintptr(ends[1]), "w")
		if !blocking { // behind Go's back, as another process that shares it may
			if err := unix.SetNonblock(ends[1], true); err != nil {
				t.Fatal(err)
			}
		}
		read := make(chan []byte)
		go func() { b, _ := io.ReadAll(r); read <- b }()
		if err := Write(w, data); err != nil {
			t.Errorf("blocking %v: %v", blocking, err)
		}
		w.Close()
		if got := <-read; !bytes.Equal(got, data) {
			t.Errorf("blocking %v: got %d bytes, want %d", blocking, len(got), len(data))
		}
		r.Close()
	}
}

func TestWriteToAClosedPipe(t *testing.T) {
	testenv.NoLeaks(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	if err := Write(w, []byte("x")); !errors.Is(err, unix.EPIPE) {
		t.Errorf("got %v, want EPIPE", err)
	}
}

func TestSameFile(t *testing.T) {
	testenv.NoLeaks(t)
	name := filepath.Join(t.TempDir(), "f")
	open := func(name string) *os.File {
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b, other := open(name), open(name), open(name+"2")
	var buf bytes.Buffer
	type bad struct{ io.Writer }
	uncomparable := struct {
		io.Writer
		_ []int
	}{&buf, nil}
	for _, c := range []struct {
		name string
		a, b io.Writer
		want bool
	}{
		{"one file", a, a, true}, {"opened twice", a, b, true}, {"two files", a, other, false}, {"none", nil, nil, false},
		{"one buffer", &buf, &buf, true}, {"file and buffer", a, &buf, false}, {"equal values", bad{&buf}, bad{&buf}, true}, {"not comparable", uncomparable, uncomparable, false},
	} {
		if got := SameFile(c.a, c.b); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
