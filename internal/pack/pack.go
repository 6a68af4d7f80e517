// Package pack writes and reads the msgpack of what ranks and hosts tell each
// other at start-up: cards, greetings, the contributions to a fence.
//
// The encoding is vmihailenco/msgpack's, through its streaming calls (its
// reflection would allocate for every field). This package adds what
// bytes from others demand: lengths are held against what is left before
// anything is allocated, the first damage sticks so that a parser asks once at
// its end, and binary comes out as a part of the input instead of a copy.
package pack

import (
	"bytes"
	"errors"
	"io"

	"github.com/vmihailenco/msgpack/v5"
)

// ErrDamaged means that the bytes are not what a [Writer] made.
var ErrDamaged = errors.New("damaged msgpack")

// A Writer collects msgpack. It owns its bytes until Bytes is called.
type Writer struct {
	buf bytes.Buffer
	enc *msgpack.Encoder
}

// NewWriter gives a Writer with room for size bytes.
func NewWriter(size int) *Writer {
	w := new(Writer)
	w.buf.Grow(size)
	w.enc = msgpack.NewEncoder(&w.buf)
	return w
}

// must is for writes into a bytes.Buffer, which do not fail.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Array begins an array of n elements, which follow.
func (w *Writer) Array(n int) { must(w.enc.EncodeArrayLen(n)) }

// Uint writes a number.
func (w *Writer) Uint(v uint64) { must(w.enc.EncodeUint(v)) }

// String writes text.
func (w *Writer) String(s string) { must(w.enc.EncodeString(s)) }

// Bin writes binary; nil is empty.
func (w *Writer) Bin(v []byte) {
	must(w.enc.EncodeBytesLen(len(v)))
	w.buf.Write(v)
}

// Bytes is what was written.
func (w *Writer) Bytes() []byte { return w.buf.Bytes() }

// A Reader reads what a Writer wrote. After the first damage everything reads
// as zero, and Err and End tell.
type Reader struct {
	in  []byte
	r   bytes.Reader
	dec *msgpack.Decoder
	err error
}

// NewReader reads b, which must not change while what Bin gave is in use.
func NewReader(b []byte) *Reader {
	r := &Reader{in: b}
	r.r.Reset(b)
	r.dec = msgpack.NewDecoder(&r.r)
	return r
}

// Reset has the reader read b.
func (r *Reader) Reset(b []byte) {
	r.in, r.err = b, nil
	r.r.Reset(b)
	r.dec.Reset(&r.r)
}

// Fail marks the input as damaged.
func (r *Reader) Fail() { r.err = ErrDamaged }

// Err is ErrDamaged after damage.
func (r *Reader) Err() error { return r.err }

// End is ErrDamaged after damage, or when there is more to read.
func (r *Reader) End() error {
	if r.r.Len() > 0 {
		r.Fail()
	}
	return r.err
}

// Uint reads a number.
func (r *Reader) Uint() uint64 {
	if r.err != nil {
		return 0
	}
	v, err := r.dec.DecodeUint64()
	if err != nil {
		r.Fail()
		return 0
	}
	return v
}

// Below reads a number that must be below limit.
func (r *Reader) Below(limit uint64) uint64 {
	v := r.Uint()
	if v >= limit {
		r.Fail()
		return 0
	}
	return v
}

// Array reads the length of an array. Each element takes a byte or more, so a
// length that the input cannot hold is damage: it bounds what callers allocate.
func (r *Reader) Array() int { return r.length(r.dec.DecodeArrayLen) }

func (r *Reader) length(decode func() (int, error)) int {
	if r.err != nil {
		return 0
	}
	n, err := decode()
	if err != nil || n < 0 || n > r.r.Len() {
		r.Fail()
		return 0
	}
	return n
}

// String reads text.
func (r *Reader) String() string { return string(r.Bin()) }

// Bin reads binary: a part of the input, nil when it is empty.
func (r *Reader) Bin() []byte {
	n := r.length(r.dec.DecodeBytesLen)
	if n == 0 {
		return nil
	}
	at := len(r.in) - r.r.Len()
	if _, err := r.r.Seek(int64(n), io.SeekCurrent); err != nil {
		r.Fail()
		return nil
	}
	return r.in[at : at+n : at+n]
}
