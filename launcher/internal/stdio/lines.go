package stdio

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Limit is how much of an unfinished line is held in memory.
const Limit = 64 << 10

// LineMax is how long a line may be to stay whole.
const LineMax = 16 << 20

// Lines cuts a stream into whole lines. The zero value is ready.
//
// The reader of the stream puts the bytes that are held before those that come
// next, in one buffer, so that a short line is never in two pieces of memory. The
// part of a line beyond Limit the reader puts aside, as in a file, until the line has ended:
//
//	n := l.Begin(buf)          // what is held
//	m := read(buf[n:])         // what comes next
//	pass, aside := l.Cut(buf[:n+m], m)
//	pass on buf[:pass], put buf[pass:pass+aside] aside
//	if l.Due() > 0 {
//		pass on what is aside
//		rest := l.Passed()     // what came behind it: Cut(rest, len(rest))
//	}
//
// Nothing may be read between Due and Passed.
type Lines struct {
	held  []byte // the begin of a line, or what came behind a line that is due
	aside int    // bytes of the line's begin that are aside
	due   bool   // what is aside is to be passed on
	mid   bool   // the begin of a line was passed on already
	over  bool   // the line cannot be kept whole: what comes of it is passed on at once
}

// Held is how many bytes are held back in memory, less than Limit unless
// something is due.
func (l *Lines) Held() int { return len(l.held) }

// Aside is how many bytes are aside.
func (l *Lines) Aside() int { return l.aside }

// Due is how many bytes are aside and to be passed on now; 0: none.
func (l *Lines) Due() int {
	if !l.due {
		return 0
	}
	return l.aside
}

// Torn tells whether the last line was too long to be kept whole, or could not be.
func (l *Lines) Torn() bool { return l.over }

// Within tells whether the stream is within a line, held back or not.
func (l *Lines) Within() bool { return l.mid || l.Held()+l.aside > 0 }

// Begin copies what is held back to the begin of a buffer that has room for it.
func (l *Lines) Begin(buf []byte) int { return copy(buf, l.held) }

// Cut takes what was held and behind it the fresh bytes, and tells how much of it
// may be passed on, which is whole lines, and how much behind that is to be put
// aside. The rest is held from now on; it is copied.
func (l *Lines) Cut(data []byte, fresh int) (pass, aside int) {
	end := lastNewline(data[len(data)-fresh:]) + 1
	if end > 0 {
		end += len(data) - fresh
	}
	switch {
	case l.aside > 0 && end > 0:
		// Whole lines behind the long one go with it.
		aside, l.due, l.mid, l.over = end, true, false, false
	case l.aside > 0:
		if aside = len(data); l.aside+aside >= LineMax {
			l.due, l.mid, l.over = true, true, true
		}
	case l.over && end == 0:
		pass = len(data)
	case len(data)-end < Limit:
		if end == 0 {
			l.held = append(l.held, data[len(data)-fresh:]...)
			return 0, 0
		}
		pass = end
	default:
		pass, aside = end, len(data)-end
	}
	if pass > 0 {
		l.mid, l.over = end == 0, l.over && end == 0
	}
	l.aside += aside
	l.held = append(l.held[:0], data[pass+aside:]...)
	if cap(l.held) > 4<<10 && len(l.held) == 0 {
		l.held = nil // thousands of ranks need not keep what one long line took
	}
	return pass, aside
}

// Refused takes bytes back that Cut wanted aside, and that could not be kept there:
// what is aside is due, and they follow it.
func (l *Lines) Refused(data []byte) {
	l.held = append(bytes.Clone(data), l.held...)
	l.aside -= len(data)
	l.due, l.over = l.aside > 0, true
	l.mid = l.mid || l.aside > 0
}

// Passed says that what was due has been passed on, and returns what came behind
// it, which is held no more: it is the caller's.
func (l *Lines) Passed() (rest []byte) {
	rest, l.held = l.held, nil
	l.aside, l.due = 0, false
	return rest
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

// Flush returns what is held back, which is the caller's from then on. The bytes
// aside are due.
func (l *Lines) Flush() []byte {
	out := l.held
	l.held = nil
	l.due = l.aside > 0
	l.mid = l.mid || len(out) > 0 || l.due
	return out
}

// End returns what is held back at the end of the stream, and tells whether the
// stream ends within a line. Nothing may be due; what is aside becomes due, and is
// the last.
func (l *Lines) End() (out []byte, within bool) {
	out = l.Flush()
	within, l.mid, l.over = l.mid, false, false
	return out, within
}

// How much of a stream's end is kept.
const (
	tailBytes = 4 << 10
	tailLines = 5
	tailWidth = 400 // bytes of a line
)

// Tail keeps the last lines of a stream, and the last report of a crash. The zero value
// is ready.
type Tail struct {
	last  []byte
	crash crash
}

// Add takes what came next.
func (t *Tail) Add(chunk []byte) {
	t.crash.add(t.last, chunk)
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
		lines[i] = trimLine(line)
	}
	return lines
}

// Crash is why a program of Go or Python has failed, as its report on the stream says, in a
// line, and the lines of the report that say where. ends tells whether the stream ends with it:
// a traceback may be of an exception that the program has gone on after. "": there is none.
func (t *Tail) Crash() (reason string, lines []string, ends bool) { return t.crash.lines() }

// trimLine is a line as it can be shown.
func trimLine(line string) string {
	line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "\uFFFD")
	if len(line) > tailWidth {
		cut := tailWidth
		for !utf8.RuneStart(line[cut]) {
			cut--
		}
		line = line[:cut] + "..."
	}
	return line
}
