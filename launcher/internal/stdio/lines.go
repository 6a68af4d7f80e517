package stdio

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Limit is how much of an unfinished line is held back.
const Limit = 64 << 10

// Lines cuts a stream into whole lines. The zero value is ready.
//
// Whoever reads the stream puts what is held before what comes next, in one
// buffer, so that a line is never in two pieces of memory:
//
//	n := l.Begin(buf)          // what is held
//	m := read(buf[n:])         // what comes next
//	out := buf[:l.Cut(buf[:n+m], m)]
type Lines struct {
	held []byte // the begin of a line
	mid  bool   // the begin of a line was passed on already
}

// Held is how many bytes are held back, less than Limit.
func (l *Lines) Held() int { return len(l.held) }

// Begin copies what is held back to the begin of a buffer that has room for it.
func (l *Lines) Begin(buf []byte) int { return copy(buf, l.held) }

// Cut takes what was held and behind it the fresh bytes, and tells how much of it
// may be passed on: whole lines, or all where the line has grown over the limit.
// The rest is held from now on; it is copied.
func (l *Lines) Cut(data []byte, fresh int) int {
	end := lastNewline(data[len(data)-fresh:]) + 1
	if end > 0 {
		end += len(data) - fresh
	}
	if len(data)-end >= Limit {
		end = len(data)
	}
	if end == 0 {
		l.held = append(l.held, data[len(data)-fresh:]...)
		return 0
	}
	l.held = append(l.held[:0], data[end:]...)
	if cap(l.held) > 4<<10 && len(l.held) == 0 {
		l.held = nil // thousands of ranks need not keep what one long line took
	}
	l.mid = data[end-1] != '\n'
	return end
}

// lastNewline is bytes.LastIndexByte, which looks at one byte after another, made
// fast for long text without newlines by bytes.IndexByte, which does not.
func lastNewline(data []byte) int {
	const block = 4 << 10
	for end := len(data); end > 0; end -= block {
		begin := max(0, end-block)
		if bytes.IndexByte(data[begin:end], '\n') >= 0 {
			return begin + bytes.LastIndexByte(data[begin:end], '\n')
		}
	}
	return -1
}

// Flush returns what is held back, which is held no more: it is the caller's.
func (l *Lines) Flush() []byte {
	out := l.held
	l.held = nil
	l.mid = l.mid || len(out) > 0
	return out
}

// End returns what is held back at the end of the stream, and tells whether the
// stream ends within a line.
func (l *Lines) End() (out []byte, within bool) {
	out = l.Flush()
	within, l.mid = l.mid, false
	return out, within
}

// How much of a stream's end is kept.
const (
	tailBytes = 4 << 10
	tailLines = 5
	tailWidth = 400 // bytes of a line
)

// Tail keeps the last lines of a stream. The zero value is ready.
type Tail struct{ last []byte }

// Add takes what came next.
func (t *Tail) Add(chunk []byte) {
	if len(chunk) > tailBytes {
		chunk = chunk[len(chunk)-tailBytes:]
	}
	if over := len(t.last) + len(chunk) - 2*tailBytes; over > 0 {
		t.last = append(t.last[:0], t.last[len(t.last)-tailBytes:]...)
	}
	t.last = append(t.last, chunk...)
}

// Lines are the last lines, shortened where they are long.
func (t *Tail) Lines() []string {
	text := strings.TrimRight(string(t.last), "\n")
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	if len(t.last) > tailBytes && len(lines) > 1 {
		lines = lines[1:] // it may have lost its begin
	}
	if len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	for i, line := range lines {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r"), "\uFFFD")
		if len(line) > tailWidth {
			cut := tailWidth
			for !utf8.RuneStart(line[cut]) {
				cut--
			}
			line = line[:cut] + "..."
		}
		lines[i] = line
	}
	return lines
}
