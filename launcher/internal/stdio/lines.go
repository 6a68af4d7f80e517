package stdio

import (
	"bytes"
	"strings"
	"unicode/utf8"
)

// Limit is how much of an unfinished line is held back.
const Limit = 64 << 10

// Lines makes whole lines of a stream's bytes. The zero value is ready.
type Lines struct {
	// Tag is put before each line. Lines with a tag always end with a newline.
	Tag string

	held []byte // the begin of a line
	mid  bool   // the begin of a line was passed on already
}

// Add takes what came next and returns what may be written: whole lines, or the
// begin of one that has grown over the limit. nil when there is nothing.
func (l *Lines) Add(chunk []byte) []byte {
	end := bytes.LastIndexByte(chunk, '\n') + 1
	if end == 0 && len(l.held)+len(chunk) < Limit {
		l.held = append(l.held, chunk...)
		return nil
	}
	if len(l.held)+len(chunk)-end >= Limit || end == 0 {
		end = len(chunk)
	}
	out := l.take(chunk[:end])
	l.held = append(l.held, chunk[end:]...)
	return out
}

// End returns what is held back, at the end of the stream.
func (l *Lines) End() []byte {
	var out []byte
	if len(l.held) > 0 {
		out = l.take(nil)
	}
	if l.Tag != "" && l.mid {
		l.mid = false
		out = append(out, '\n')
	}
	return out
}

// take empties what is held, with whole after it.
func (l *Lines) take(whole []byte) []byte {
	held := l.held
	l.held = nil
	if l.Tag == "" {
		if len(held) > 0 {
			return append(held, whole...)
		}
		return bytes.Clone(whole)
	}
	var out []byte
	for _, part := range [2][]byte{held, whole} {
		for len(part) > 0 {
			n := bytes.IndexByte(part, '\n') + 1
			if n == 0 {
				n = len(part)
			}
			if !l.mid {
				out = append(out, l.Tag...)
			}
			out = append(out, part[:n]...)
			l.mid = part[n-1] != '\n'
			part = part[n:]
		}
	}
	return out
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
