package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// FuzzSharedState has rank 1, that has gone mad, write any words to the control regions of
// both ranks of a window, and rank 0 go on working with the window. Ten bytes are a
// write: whose region, where, and the word. All calls of rank 0 end, and memory of its
// own that is no window stays as it is. An input takes tens of milliseconds, as each word
// that names rank 1 as holder is waited for, and rank 1 is looked after in the pauses alone.
func FuzzSharedState(f *testing.F) {
	word := func(b []byte, whose, at int, v uint64) []byte {
		return binary.LittleEndian.AppendUint64(append(b, byte(whose|at>>7), byte(at<<1)), v)
	}
	f.Add([]byte{}, uint8(Allocate-Create))
	for _, kind := range []Kind{Create, Allocate, Shared, Dynamic} {
		for _, v := range []uint64{0, 1<<32 | 1, 1<<32 | 2, 77, ^uint64(0)} {
			var b []byte
			for _, at := range []int{wordExclusive, wordWaiting, wordWanting, wordAccumulate, wordArrays, wordArrays + 3, wordArrays + 5, 32, 40} {
				b = word(word(b, 0x80, at, v), 0, at, v)
			}
			f.Add(b, uint8(kind-Create))
		}
		// A table that changes for ever, and one of regions that there are not.
		f.Add(word(nil, 0, 48, 1), uint8(kind-Create))
		f.Add(word(word(word(word(nil, 0, 49, 1<<40), 0, 50, 0), 0, 51, ^uint64(0)), 0, 52, 7<<8), uint8(kind-Create))
	}
	f.Fuzz(func(t *testing.T, data []byte, k uint8) {
		kind := Kind(k%4) + Create
		add, _ := kernel.For(kernel.Uint64, kernel.Sum)
		run(t, 2, transports[0], func(ctx context.Context, m *member) error {
			m.patience = time.Millisecond
			n := 64
			if kind == Dynamic {
				n = 0
			}
			w, err := m.window(ctx, kind, n)
			if err != nil {
				return err
			}
			mine := make([]byte, 64)
			if kind == Dynamic {
				if err := w.Attach(mine); err != nil {
					return err
				}
			}
			m.meet()
			if m.g.Rank == 0 {
				scribbled(t, w, data, add)
			}
			m.meet()
			return w.Close()
		})
	})
}

// scribbled writes the words and uses the window.
func scribbled(t *testing.T, w *Window, data []byte, add kernel.Reduction) {
	for ; len(data) >= 10; data = data[10:] {
		words := w.remotes[1].words
		if data[0]&0x80 != 0 {
			words = w.words
		}
		at := int(binary.BigEndian.Uint16(data)&0x7fff) >> 1
		words[at%len(words)] = binary.LittleEndian.Uint64(data[2:])
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	buf, guard := make([]byte, 24), make([]byte, 8)
	cell, result := buf[8:16], make([]byte, 8)
	for member := range 2 {
		addr := uint64(0)
		if w.kind == Dynamic {
			addr = address(w.table.list[0].mem)
		}
		for _, off := range []uint64{addr, addr + 56, addr + 60, ^uint64(0) - 3} {
			// What they give follows from the words; that they end is looked at.
			_ = w.Put(member, off, cell)
			_ = w.Get(member, off, cell)
			_ = w.Accumulate(member, off, cell, result, add)
			_ = w.CompareAndSwap(member, off, cell, result, guard)
		}
		_ = w.Accumulate(member, addr, buf, nil, add)
		for _, exclusive := range []bool{true, false} {
			if w.Lock(ended, member, exclusive) == nil {
				_ = w.Unlock(ended, member, exclusive)
			}
		}
		_ = w.Flush(ended, member)
	}
	if err := w.Post([]int{1}); err == nil {
		if _, err := w.Test(); err != nil && errors.Is(err, ErrRange) {
			t.Errorf("test: %v", err)
		}
	}
	if w.Start(ended, []int{1}) == nil {
		_ = w.Complete(ended)
	}
	for i, v := range append(buf[:8:8], buf[16:]...) {
		if v != 0 {
			t.Errorf("byte %d beside the memory of a call is %#x", i, v)
		}
	}
}
