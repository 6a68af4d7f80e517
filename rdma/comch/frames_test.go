package comch

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// pieceMeal gives a stream to both followers in pieces, and returns the messages.
func pieceMeal(b []byte, cut func(left int) int) (messages [][]byte, acked, ended bool, err error) {
	var s scanner
	var r reassembler
	buf := make([]byte, MaxMessage)
	for len(b) > 0 {
		n := cut(len(b))
		piece := bytes.Clone(b[:n])
		b = b[n:]
		if err := s.scan(piece); err != nil {
			return messages, s.acked, s.ended, err
		}
		r.push(piece)
		for {
			n, ok, err := r.next(buf)
			if err == io.EOF {
				break
			}
			if err != nil {
				return messages, s.acked, s.ended, err
			}
			if !ok {
				break
			}
			messages = append(messages, bytes.Clone(buf[:n]))
		}
	}
	return messages, s.acked, s.ended, nil
}

func TestFramesInPieces(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		var b []byte
		var want [][]byte
		for i := range 30 {
			want = append(want, message(seed, i))
			b = appendFrame(b, want[i])
			if i == 20 {
				b = append(b, 0xfe, 0xff)
			}
		}
		b = append(b, 0xff, 0xff)
		most := 1 + r.IntN(3*MaxMessage)
		if seed%4 == 0 {
			most = 3
		}
		got, acked, ended, err := pieceMeal(b, func(left int) int { return min(left, 1+r.IntN(most)) })
		if err != nil || !acked || !ended || len(got) != len(want) {
			t.Fatalf("seed %d: %d messages, acknowledged %v, ended %v, %v; want %d", seed, len(got), acked, ended, err, len(want))
		}
		for i := range got {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("seed %d: message %d is wrong", seed, i)
			}
		}
	}
}

func TestWrongFrames(t *testing.T) {
	for name, b := range map[string][]byte{
		"no bytes":           {0, 0},
		"too many":           {0xf1, 0x0f}, // 4081
		"an unknown control": {0xfd, 0xff},
		"two ends":           {0xff, 0xff, 0xff, 0xff},
		"two acks":           {0xfe, 0xff, 0xfe, 0xff},
		"behind the end":     {0xff, 0xff, 1, 0, 7},
	} {
		for _, size := range []int{1, 2, 100} {
			if _, _, _, err := pieceMeal(b, func(left int) int { return min(left, size) }); !errors.Is(err, ErrForged) {
				t.Errorf("%s in pieces of %d: %v, want %v", name, size, err, ErrForged)
			}
		}
	}
}

// FuzzFrames: the same stream in other pieces is the same messages, or the same refusal. What
// came in one piece with the frame that is refused is not given out.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{1, 0, 7, 2, 0, 8, 9, 0xfe, 0xff, 0xff, 0xff}, byte(3))
	f.Add([]byte{0xf0, 0x0f, 1, 2, 3}, byte(1))
	f.Add([]byte{0, 0}, byte(2))
	f.Add([]byte{1, 0, 7, 0xfe, 0xff, 0xfe, 0xff, 1, 0, 8}, byte(0))
	f.Fuzz(func(t *testing.T, b []byte, size byte) {
		whole, acked, ended, err := pieceMeal(b, func(left int) int { return left })
		pieces, acked2, ended2, err2 := pieceMeal(b, func(left int) int { return min(left, 1+int(size)) })
		if (err == nil) != (err2 == nil) || err == nil && len(whole) != len(pieces) {
			t.Fatalf("whole: %d messages, %v; in pieces: %d, %v", len(whole), err, len(pieces), err2)
		}
		if err == nil && (acked != acked2 || ended != ended2) {
			t.Fatalf("acknowledged %v and %v, ended %v and %v", acked, acked2, ended, ended2)
		}
		for i := range min(len(whole), len(pieces)) {
			if len(whole[i]) < 1 || len(whole[i]) > MaxMessage || !bytes.Equal(whole[i], pieces[i]) {
				t.Fatalf("message %d has %d and %d bytes", i, len(whole[i]), len(pieces[i]))
			}
		}
	})
}
