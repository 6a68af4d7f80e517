package stdio

import (
	"bytes"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// collector is a receiver of what a source sends.
type collector struct {
	mu  sync.Mutex
	b   bytes.Buffer
	end chan struct{}
}

func (c *collector) send(data []byte, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b.Write(data)
	if end {
		close(c.end)
	}
}

func (c *collector) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Len()
}

func TestSourceReadsAll(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, c := range []struct {
		name string
		open func(t *testing.T) io.Reader
	}{
		{"reader", func(*testing.T) io.Reader { return bytes.NewReader(data) }},
		{"pipe", func(t *testing.T) io.Reader {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			go func() { w.Write(data); w.Close() }()
			return r
		}},
		{"file", func(t *testing.T) io.Reader {
			f, err := os.Create(t.TempDir() + "/f")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			f.Write(data)
			f.Seek(0, 0)
			return f
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			col := &collector{end: make(chan struct{})}
			var s *Source
			ready := make(chan struct{})
			s, err := NewSource(c.open(t), func(data []byte, end bool) {
				<-ready
				col.send(data, end)
				s.Credit(len(data))
			})
			if err != nil {
				t.Fatal(err)
			}
			close(ready)
			<-col.end
			s.Stop()
			s.Stop()
			if !bytes.Equal(col.b.Bytes(), data) {
				t.Errorf("got %d bytes, want %d", col.len(), len(data))
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestSourceWaitsForCredit(t *testing.T) {
	testenv.NoLeaks(t)
	col := &collector{end: make(chan struct{})}
	full := make(chan struct{}, 100)
	s, err := NewSource(zeros{}, func(data []byte, end bool) {
		col.send(data, end)
		if col.len()%Window == 0 {
			full <- struct{}{}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 3; i++ {
		<-full
		if got := col.len(); got != i*Window {
			t.Errorf("after %d windows: got %d bytes, want %d", i, got, i*Window)
		}
		s.Credit(Window)
	}
	s.Stop()
	<-s.done
}

func TestStopEndsARead(t *testing.T) {
	testenv.NoLeaks(t)
	r, w, err := os.Pipe() // that nobody writes to
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	s, err := NewSource(r, func([]byte, bool) { t.Error("it sent something") })
	if err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if Terminal(r) || Terminal(&bytes.Buffer{}) {
		t.Errorf("a pipe is taken for a terminal")
	}
}
