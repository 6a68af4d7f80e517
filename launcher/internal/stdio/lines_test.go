package stdio

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// reader reads a stream as Lines wants it.
type reader struct {
	Lines
	kept []byte // aside
	room int    // bytes that can be kept; below 0: no bound
}

// read takes a chunk, and returns what may be passed on.
func (r *reader) read(chunk []byte) []byte {
	buf := make([]byte, r.Held()+len(chunk))
	n := r.Begin(buf)
	copy(buf[n:], chunk)
	out := r.sort(buf, len(chunk))
	clear(buf) // the caller reads into it again
	return out
}

func (r *reader) sort(buf []byte, fresh int) []byte {
	pass, aside := r.Cut(buf, fresh)
	out := bytes.Clone(buf[:pass])
	if put := buf[pass : pass+aside]; r.room >= 0 && len(r.kept)+len(put) > r.room {
		r.Refused(put)
		if r.Due() == 0 {
			rest := r.Passed()
			return append(out, r.sort(rest, len(rest))...)
		}
	} else {
		r.kept = append(r.kept, put...)
	}
	return append(out, r.due()...)
}

// due is what is due, and what it has held up.
func (r *reader) due() []byte {
	if r.Due() == 0 {
		return nil
	}
	out := r.kept[:r.Due()]
	r.kept = nil
	rest := r.Passed()
	return append(out, r.sort(rest, len(rest))...)
}

// end is the rest of the stream.
func (r *reader) end() ([]byte, bool) {
	out, within := r.End()
	return append(out, r.due()...), within
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", Limit)
	longest := strings.Repeat("x", LineMax-1)
	for _, c := range []struct {
		name   string
		room   int
		chunks []string
		want   []string // what each chunk lets pass, and at last End
		within bool
	}{
		{"whole lines pass", -1, []string{"a\nb\n"}, []string{"a\nb\n", ""}, false},
		{"a begin is held", -1, []string{"a\nb", "c\nd"}, []string{"a\n", "bc\n", "d"}, true},
		{"nothing but begins", -1, []string{"a", "b"}, []string{"", "", "ab"}, true},
		{"empty", -1, []string{"", "\n"}, []string{"", "\n", ""}, false},
		{"a long line", -1, []string{long, "y", "z\nab"}, []string{"", "", long + "yz\n", "ab"}, true},
		{"a long line at the end", -1, []string{long, "y"}, []string{"", "", long + "y"}, true},
		{"a long line in two", -1, []string{long[1:], "yz", "\n"}, []string{"", "", long[1:] + "yz\n", ""}, false},
		{"a long line behind a line", -1, []string{"a\n" + long}, []string{"a\n", long}, true},
		{"a long line behind a long one", -1, []string{long, "\n" + long, "\n"}, []string{"", long + "\n", long + "\n", ""}, false},
		{"the longest line", -1, []string{longest, "\n"}, []string{"", longest + "\n", ""}, false},
		{"a line that is too long", -1, []string{longest, "y", "z", "z\na", "b\n"}, []string{"", longest + "y", "z", "z\n", "ab\n", ""}, false},
		{"a line that is too long at the end", -1, []string{longest, "y"}, []string{"", longest + "y", ""}, true},
		{"no room", 0, []string{"a\n" + long, "y", "z\nb", "\n"}, []string{"a\n" + long, "y", "z\n", "b\n", ""}, false},
		{"no room any more", Limit, []string{long, "yz", "a", "b\n", long, "\n"}, []string{"", long + "yz", "a", "b\n", "", long + "\n", ""}, false},
		{"no room for the end", Limit, []string{long, "yz\na", "b\n"}, []string{"", long + "yz\n", "ab\n", ""}, false},
		{"binary", -1, []string{"\x00\xff\n\x80", "\r\n"}, []string{"\x00\xff\n", "\x80\r\n", ""}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reader{room: c.room}
			var got []string
			for _, chunk := range c.chunks {
				got = append(got, string(r.read([]byte(chunk))))
			}
			end, within := r.end()
			got = append(got, string(end))
			for i := range c.want {
				if got[i] != c.want[i] {
					t.Errorf("result %d: got %d bytes %.100q, want %d bytes %.100q", i, len(got[i]), got[i], len(c.want[i]), c.want[i])
				}
			}
			if within != c.within {
				t.Errorf("within a line at the end: got %v", within)
			}
			if again, within := r.end(); len(again) > 0 || within {
				t.Errorf("End again: got %q, %v", again, within)
			}
		})
	}
}

func TestLinesFlush(t *testing.T) {
	r := reader{room: -1}
	r.read([]byte("one\nname: "))
	if got := string(r.Flush()); got != "name: " || r.Held() != 0 {
		t.Errorf("got %q, %d held", got, r.Held())
	}
	if rest, within := r.end(); len(rest) > 0 || !within {
		t.Errorf("after a flush: %q, within a line %v", rest, within)
	}
	long := strings.Repeat("x", 2*Limit)
	r.read([]byte(long))
	if got := string(r.Flush()) + string(r.due()); got != long || r.Held()+r.Aside() != 0 {
		t.Errorf("got %d bytes of a long line, want %d", len(got), len(long))
	}
	if rest, within := r.end(); len(rest) > 0 || !within {
		t.Errorf("after the flush of a long line: %q, within a line %v", rest, within)
	}
}

// checkLines holds Lines against its definition: all bytes, in order, and cuts
// only behind newlines unless there is no room for a long line.
func checkLines(t *testing.T, data []byte, room int, cut func() int) {
	t.Helper()
	r := reader{room: room}
	var all []byte
	for rest := data; len(rest) > 0; {
		n := min(max(cut(), 1), len(rest))
		out := r.read(rest[:n])
		rest = rest[n:]
		if len(out) > 0 && out[len(out)-1] != '\n' && room < 0 {
			t.Fatalf("a cut in a line of %d bytes: %.80q", len(out), out)
		}
		if r.Held() >= Limit {
			t.Fatalf("%d bytes are held in memory", r.Held())
		}
		all = append(all, out...)
	}
	end, within := r.end()
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
		checkLines(t, lineData(random, random.IntN(6*Limit)), random.IntN(3*Limit)-Limit, func() int { return random.IntN(2 * Limit) })
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\nc"), uint8(2))
	f.Add([]byte("\n\n"), uint8(1))
	f.Fuzz(func(t *testing.T, data []byte, cut uint8) {
		checkLines(t, data, -1, func() int { return int(cut) })
		checkLines(t, bytes.Repeat(data, 1+Limit/(len(data)+1)*2), int(cut)<<9, func() int { return int(cut)<<10 + 20<<10 })
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
