package link

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
)

func samples() []Message {
	return []Message{
		{Kind: Setup, Server: &Server{Dir: "/d", Host: "h", Space: Space{Name: "n", Nodes: []string{"h"}, NodeOf: []uint32{0, 0}, Universe: 2, Parent: &Proc{"p", 1}}}},
		{Kind: Ready},
		{Kind: Joined, Proc: Proc{"n", 1}},
		{Kind: Abort, Proc: Proc{"n", 1}, Status: -7, Text: "why"},
		{Kind: Ask, Op: Meet, ID: 3, Sort: 1, Procs: []Proc{{"n", 1<<32 - 2}}, Data: []byte("blob")},
		{Kind: Ask, Op: Publish, ID: 4, Pairs: []Pair{{Key: "k", Value: []byte{0, 1}, By: Proc{"n", 0}}}},
		{Kind: Ask, Op: Lookup, ID: 5, Keys: []string{"k", "l"}, Wait: true},
		{Kind: Ask, Op: Spawn, ID: 6, Apps: []App{{[]string{"p"}, []string{"A=1"}, 2, [][2]string{{"wdir", "/"}}}}},
		{Kind: Answer, ID: 6, Code: Refused, Text: "no"},
		{Kind: Ping, ID: 1 << 40},
	}
}

func TestStreamsCutAnywhere(t *testing.T) {
	var stream []byte
	var err error
	for _, m := range samples() {
		if stream, err = Append(stream, &m); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []int{1, 2, 3, 7, 64, len(stream)} {
		var d Decoder
		var got []Message
		for at := 0; at < len(stream); at += step {
			d.Add(stream[at:min(len(stream), at+step)])
			for {
				m, ok, err := d.Next()
				if err != nil {
					t.Fatalf("pieces of %d: %v", step, err)
				}
				if !ok {
					break
				}
				got = append(got, m)
			}
		}
		if !reflect.DeepEqual(got, samples()) {
			t.Errorf("pieces of %d: got %+v, want %+v", step, got, samples())
		}
	}
}

func TestDamaged(t *testing.T) {
	for name, stream := range map[string][]byte{
		"too long":         {0xff, 0, 0, 0},
		"no message":       {0, 0, 0, 1, 0xc1},
		"kind 0":           mustAppend(t, &Message{}),
		"kind beyond":      mustAppend(t, &Message{Kind: kinds}),
		"ask for nothing":  mustAppend(t, &Message{Kind: Ask}),
		"op beyond":        mustAppend(t, &Message{Kind: Ask, Op: ops}),
		"setup of nothing": mustAppend(t, &Message{Kind: Setup}),
	} {
		t.Run(name, func(t *testing.T) {
			var d Decoder
			d.Add(stream)
			if m, ok, err := d.Next(); !errors.Is(err, ErrFrame) || ok {
				t.Errorf("got %+v, %v, %v, want %v", m, ok, err, ErrFrame)
			}
			d.Add(mustAppend(t, &Message{Kind: Ready}))
			if _, ok, err := d.Next(); err == nil || ok {
				t.Error("a damaged stream goes on")
			}
		})
	}
	if _, err := Append(nil, &Message{Kind: Event, Data: make([]byte, FrameMax)}); err == nil {
		t.Error("a frame over the limit: got no error")
	}
}

func mustAppend(t testing.TB, m *Message) []byte {
	t.Helper()
	b, err := Append(nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Whatever arrives, a decoder gives whole messages that can be written again, or an
// error, and does so however the bytes are cut.
func FuzzDecoder(f *testing.F) {
	for _, m := range samples() {
		f.Add(mustAppend(f, &m), 3)
	}
	f.Add([]byte{0, 0, 0, 1, 0xc1}, 1)
	f.Fuzz(func(t *testing.T, stream []byte, cut int) {
		decode := func(pieces ...[]byte) (out [][]byte, failed bool) {
			var d Decoder
			for _, p := range pieces {
				d.Add(p)
				for {
					m, ok, err := d.Next()
					if err != nil {
						return out, true
					}
					if !ok {
						break
					}
					out = append(out, mustAppend(t, &m))
				}
			}
			return out, false
		}
		whole, failed := decode(stream)
		cut = max(0, min(cut, len(stream)))
		parts, failedToo := decode(stream[:cut], stream[cut:])
		if failed != failedToo || !reflect.DeepEqual(whole, parts) {
			t.Errorf("cut at %d: got %d messages, failed %v, want %d, %v", cut, len(parts), failedToo, len(whole), failed)
		}
		for _, frame := range whole {
			again, failed := decode(frame)
			if failed || len(again) != 1 || !bytes.Equal(again[0], frame) {
				t.Errorf("%x: written again it is %x", frame, again)
			}
		}
	})
}

// Where 640,000 ranks are takes few bytes, dealt in blocks or in turn, and few bytes cannot claim more numbers than a job has.
func TestNumbers(t *testing.T) {
	blocks, turns, pairs := make(Numbers, 640_000), make(Numbers, 640_000), make(Numbers, 640_000)
	for r := range blocks {
		blocks[r], turns[r], pairs[r] = uint32(r/64), uint32(r%10_000), uint32(r/2%10_000)
	}
	for _, c := range []struct {
		name string
		want Numbers
		most int // bytes
	}{
		{"none", nil, 1}, {"one", Numbers{7}, 16}, {"two hosts", Numbers{0, 0, 1}, 31}, {"back and forth", Numbers{1, 0, 1, 0}, 46},
		{"down", Numbers{2, 1, 0}, 46}, {"around", Numbers{1<<32 - 1, 0, 1}, 16}, {"in blocks", blocks, 16}, {"in turn", turns, 15*64 + 3}, {"in pairs", pairs, 15*32 + 3},
	} {
		b, err := msgpack.Marshal(c.want)
		if err != nil {
			t.Fatal(err)
		}
		var got Numbers
		if err := msgpack.Unmarshal(b, &got); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %d numbers, %v, want %d", c.name, len(got), err, len(c.want))
		}
		if len(b) > c.most {
			t.Errorf("%s: %d numbers take %d bytes, want at most %d", c.name, len(c.want), len(b), c.most)
		}
	}
	for _, blocks := range [][]uint32{{1}, {1, 2}, {1, numbersMax, 1, 2, 1, 1}, {1, 1<<32 - 1, 1<<32 - 1}, {1, 1, 1, 1, 1, 1<<32 - 1}} {
		b, err := msgpack.Marshal(blocks)
		if err != nil {
			t.Fatal(err)
		}
		var got Numbers
		if err := msgpack.Unmarshal(b, &got); err == nil {
			t.Errorf("%v: got %d numbers, want an error", blocks, len(got))
		}
	}
}

// Names that count up take few bytes, others theirs, and few bytes cannot claim more than a job has.
func TestNames(t *testing.T) {
	count := func(format string, first, n int) (s Names) {
		for i := range n {
			s = append(s, fmt.Sprintf(format, first+i))
		}
		return s
	}
	for _, c := range []struct {
		name string
		want Names
		most int // bytes
	}{
		{"none", nil, 1},
		{"one", Names{"a"}, 3},
		{"one that is empty", Names{""}, 2},
		{"the same twice", Names{"a1", "a1"}, 8},
		{"no numbers", Names{"alpha", "beta", "betas"}, 19},
		{"counted", count("node%05d", 0, 10_000), 30},
		{"without zeros", count("n%d", 0, 10_000), 30},
		{"of a domain", count("nid%06d.cluster2.example.org", 1000, 10_000), 50},
		{"addresses", count("10.0.3.%d", 1, 254), 24},
		{"racks", append(count("r1n%02d", 1, 99), count("r2n%02d", 1, 99)...), 40},
		{"from 9 to 10", Names{"n9", "n10", "n010", "n11"}, 30},
		{"down", Names{"n3", "n2", "n1"}, 10},
		{"a number that is too long", Names{"n9999999999999999999999", "n10000000000000000000000"}, 60},
		{"before a letter", Names{"1a", "2a", "2b", "3b"}, 31},
	} {
		b, err := msgpack.Marshal(c.want)
		if err != nil {
			t.Fatal(err)
		}
		var got Names
		if err := msgpack.Unmarshal(b, &got); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
		if len(b) > c.most {
			t.Errorf("%s: %d names take %d bytes, want at most %d", c.name, len(c.want), len(b), c.most)
		}
	}
	for _, r := range []nameRange{{Count: numbersMax + 1}, {Count: -1}, {Digits: digitsMax + 1, Count: 1}, {Digits: -1, Count: 1}, {Prefix: strings.Repeat("a", 1<<20), Count: 1 << 10}} {
		b, err := msgpack.Marshal([]any{&r})
		if err != nil {
			t.Fatal(err)
		}
		var got Names
		if err := msgpack.Unmarshal(b, &got); err == nil {
			t.Errorf("%d names, %d digits: got %d, want an error", r.Count, r.Digits, len(got))
		}
	}
}
