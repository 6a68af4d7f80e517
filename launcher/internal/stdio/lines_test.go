package stdio

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestLines(t *testing.T) {
	long := strings.Repeat("x", Limit)
	for _, c := range []struct {
		name   string
		tag    string
		chunks []string
		want   []string // what each Add returns, and at last End
	}{
		{"whole lines pass", "", []string{"a\nb\n"}, []string{"a\nb\n", ""}},
		{"a begin is held", "", []string{"a\nb", "c\nd"}, []string{"a\n", "bc\n", "d"}},
		{"nothing but begins", "", []string{"a", "b"}, []string{"", "", "ab"}},
		{"empty", "", []string{"", "\n"}, []string{"", "\n", ""}},
		{"over the limit", "", []string{long, "y", "z\n"}, []string{long, "", "yz\n", ""}},
		{"over the limit in two", "", []string{long[1:], "yz", "\n"}, []string{"", long[1:] + "yz", "\n", ""}},
		{"over the limit behind a line", "", []string{"a\n" + long}, []string{"a\n" + long, ""}},
		{"binary", "", []string{"\x00\xff\n\x80", "\r\n"}, []string{"\x00\xff\n", "\x80\r\n", ""}},
		{"tags", "T:", []string{"a\nb", "\nc"}, []string{"T:a\n", "T:b\n", "T:c\n"}},
		{"tags, empty lines", "T:", []string{"\n\n"}, []string{"T:\nT:\n", ""}},
		{"tags, over the limit", "T:", []string{long, "y\nz"}, []string{"T:" + long, "y\n", "T:z\n"}},
		{"tags, over the limit, the end", "T:", []string{long}, []string{"T:" + long, "\n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := Lines{Tag: c.tag}
			var got []string
			for _, chunk := range c.chunks {
				got = append(got, string(l.Add([]byte(chunk))))
			}
			got = append(got, string(l.End()))
			for i := range c.want {
				if got[i] != c.want[i] {
					t.Errorf("result %d: got %.100q, want %.100q", i, got[i], c.want[i])
				}
			}
			if again := l.End(); len(again) > 0 {
				t.Errorf("End again: got %q", again)
			}
		})
	}
}

// checkLines holds Lines against its definition: all bytes, in order, and cuts
// only behind newlines unless the line is long.
func checkLines(t *testing.T, data []byte, cut func() int, tag string) {
	t.Helper()
	l := Lines{Tag: tag}
	var all []byte
	rest := data
	for len(rest) > 0 {
		n := min(max(cut(), 1), len(rest))
		in := bytes.Clone(rest[:n])
		out := l.Add(in)
		rest = rest[n:]
		clear(in) // the caller reads into it again
		if len(out) > 0 && out[len(out)-1] != '\n' && len(out) < Limit {
			t.Fatalf("a cut in a short line: %.80q", out)
		}
		all = append(all, out...)
	}
	all = append(all, l.End()...)
	want := string(data)
	if tag != "" {
		want = ""
		for line := range strings.Lines(string(data)) {
			want += tag + line
		}
		if want != "" && !strings.HasSuffix(want, "\n") {
			want += "\n"
		}
	}
	if string(all) != want {
		t.Fatalf("%d bytes with tag %q: got %d bytes, want %d", len(data), tag, len(all), len(want))
	}
}

func TestLinesKeepEveryByte(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		data := make([]byte, random.IntN(3*Limit))
		for i := range data {
			data[i] = byte(i*i>>4) | 0x80
		}
		for range random.IntN(1 << random.IntN(12)) {
			if len(data) > 0 {
				data[random.IntN(len(data))] = '\n'
			}
		}
		cut := func() int { return random.IntN(2 * Limit) }
		checkLines(t, data, cut, "")
		checkLines(t, data, cut, "[1,2]<stdout>:")
	}
}

func FuzzLines(f *testing.F) {
	f.Add([]byte("a\nb\nc"), uint8(2), "")
	f.Add([]byte("\n\n"), uint8(1), "T:")
	f.Fuzz(func(t *testing.T, data []byte, cut uint8, tag string) {
		checkLines(t, data, func() int { return int(cut) }, tag)
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
