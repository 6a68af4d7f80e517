package stdio

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// read puts a chunk behind what is held, as a reader does, and returns what may
// be passed on.
func read(l *Lines, chunk []byte) []byte {
	buf := make([]byte, l.Held()+len(chunk))
	n := l.Begin(buf)
	copy(buf[n:], chunk)
	out := bytes.Clone(buf[:l.Cut(buf, len(chunk))])
	clear(buf) // the caller reads into it again
	return out
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", Limit)
	for _, c := range []struct {
		name   string
		chunks []string
		want   []string // what each chunk lets pass, and at last End
		within bool
	}{
		{"whole lines pass", []string{"a\nb\n"}, []string{"a\nb\n", ""}, false},
		{"a begin is held", []string{"a\nb", "c\nd"}, []string{"a\n", "bc\n", "d"}, true},
		{"nothing but begins", []string{"a", "b"}, []string{"", "", "ab"}, true},
		{"empty", []string{"", "\n"}, []string{"", "\n", ""}, false},
		{"over the limit", []string{long, "y", "z\n"}, []string{long, "", "yz\n", ""}, false},
		{"over the limit at the end", []string{long}, []string{long, ""}, true},
		{"over the limit in two", []string{long[1:], "yz", "\n"}, []string{"", long[1:] + "yz", "\n", ""}, false},
		{"over the limit behind a line", []string{"a\n" + long}, []string{"a\n" + long, ""}, true},
		{"binary", []string{"\x00\xff\n\x80", "\r\n"}, []string{"\x00\xff\n", "\x80\r\n", ""}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var l Lines
			var got []string
			for _, chunk := range c.chunks {
				got = append(got, string(read(&l, []byte(chunk))))
			}
			end, within := l.End()
			got = append(got, string(end))
			for i := range c.want {
				if got[i] != c.want[i] {
					t.Errorf("result %d: got %.100q, want %.100q", i, got[i], c.want[i])
				}
			}
			if within != c.within {
				t.Errorf("within a line at the end: got %v", within)
			}
			if again, within := l.End(); len(again) > 0 || within {
				t.Errorf("End again: got %q, %v", again, within)
			}
		})
	}
}

func TestLinesFlush(t *testing.T) {
	var l Lines
	read(&l, []byte("one\nname: "))
	if got := string(l.Flush()); got != "name: " || l.Held() != 0 {
		t.Errorf("got %q, %d held", got, l.Held())
	}
	if rest, within := l.End(); len(rest) > 0 || !within {
		t.Errorf("after a flush: %q, within a line %v", rest, within)
	}
}

// checkLines holds Lines against its definition: all bytes, in order, and cuts
// only behind newlines unless the line is long.
func checkLines(t *testing.T, data []byte, cut func() int) {
	t.Helper()
	var l Lines
	var all []byte
	for rest := data; len(rest) > 0; {
		n := min(max(cut(), 1), len(rest))
		out := read(&l, rest[:n])
		rest = rest[n:]
		if len(out) > 0 && out[len(out)-1] != '\n' && len(out) < Limit {
			t.Fatalf("a cut in a short line: %.80q", out)
		}
		if l.Held() >= Limit {
			t.Fatalf("%d bytes are held", l.Held())
		}
		all = append(all, out...)
	}
	end, within := l.End()
	all = append(all, end...)
	if !bytes.Equal(all, data) || within != (len(data) > 0 && data[len(data)-1] != '\n') {
		t.Fatalf("%d bytes: got %d, within a line %v", len(data), len(all), within)
	}
}

// lineData is binary with some newlines in it.
func lineData(random *rand.Rand, n int) []byte {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(i*i>>4) | 0x80
	}
	for range random.IntN(1 << random.IntN(12)) {
		if len(data) > 0 {
			data[random.IntN(len(data))] = '\n'
		}
	}
	return data
}

func TestLinesKeepEveryByte(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		checkLines(t, lineData(random, random.IntN(3*Limit)), func() int { return random.IntN(2 * Limit) })
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\nc"), uint8(2))
	f.Add([]byte("\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		checkLines(t, data, func() int { return int(cut) })
	})
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"nothing", nil, nil},
		{"newlines only", []string{"\n\n"}, nil},
		{"few lines", []string{"a\nb", "c\n"}, []string{"a", "bc"}},
		{"the last five", []string{"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12"}, []string{"8", "9", "10", "11", "12"}},
		{"carriage returns and bad UTF-8", []string{"a\r\n\xffb\r\n"}, []string{"a", "\uFFFDb"}},
		{"a long line", []string{strings.Repeat("é", 300)}, []string{strings.Repeat("é", 200) + "..."}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tail Tail
			for _, chunk := range c.chunks {
				tail.Add([]byte(chunk))
			}
			if got := tail.Lines(); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func TestTailIsBounded(t *testing.T) {
	var tail Tail
	for i := range 10_000 {
		tail.Add([]byte(fmt.Sprintf("line %d\n", i)))
		tail.Add(bytes.Repeat([]byte("x"), i))
	}
	if len(tail.last) > 2*tailBytes || cap(tail.last) > 4*tailBytes {
		t.Errorf("it keeps %d bytes, %d at most", len(tail.last), cap(tail.last))
	}
	for _, line := range tail.Lines() {
		if len(line) > tailWidth+3 || !utf8.ValidString(line) {
			t.Errorf("line of %d bytes", len(line))
		}
	}
}
