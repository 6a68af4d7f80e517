package main

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

// screen is a terminal with some lines at its bottom that change, the table,
// while what is written scrolls above them. Nothing of what is written is lost or
// torn: each write takes the table away, writes, and puts it back, in one piece.
//
// Plain escape sequences do it (up, erase below): a library for interfaces, as
// bubbletea, takes the terminal for itself, its input too, and lines that scroll
// above are its afterthought.
type screen struct {
	w    io.Writer
	size func() (rows, cols int)

	mu    sync.Mutex
	table []string // empty: there is none
	drawn int      // lines of it that are on the screen
	open  []byte   // the unfinished line above it
}

// openMost bounds how much of an unfinished line is written again.
const openMost = 4 << 10

// Write writes above the table.
func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.table) == 0 && s.drawn == 0 {
		s.note(p)
		return s.w.Write(p)
	}
	var b bytes.Buffer
	s.erase(&b)
	b.Write(p)
	s.note(p)
	s.draw(&b)
	if _, err := s.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// note keeps the unfinished line at the end of what is written.
func (s *screen) note(p []byte) {
	if at := bytes.LastIndexByte(p, '\n'); at >= 0 {
		s.open, p = s.open[:0], p[at+1:]
	}
	s.open = append(s.open, p...)
	if over := len(s.open) - openMost; over > 0 {
		s.open = append(s.open[:0], s.open[over:]...)
	}
}

// show puts another table on the screen; none takes it away.
func (s *screen) show(table []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	s.erase(&b)
	s.table = table
	s.draw(&b)
	_, _ = s.w.Write(b.Bytes()) // the next Write tells of an error
}

// erase takes the table away and leaves the cursor behind the open line.
func (s *screen) erase(b *bytes.Buffer) {
	if s.drawn == 0 {
		return
	}
	up := s.drawn - 1
	if len(s.open) > 0 {
		_, cols := s.dimensions()
		up += lines(s.open, cols)
	}
	b.WriteByte('\r')
	b.WriteString(strings.Repeat("\x1b[A", up))
	b.WriteString("\x1b[J")
	b.Write(s.open)
	s.drawn = 0
}

// draw puts the table below what was written.
func (s *screen) draw(b *bytes.Buffer) {
	if len(s.table) == 0 {
		return
	}
	rows, cols := s.dimensions()
	if len(s.open) > 0 {
		b.WriteString("\r\n")
	}
	table := s.table
	if most := max(1, rows/2); len(table) > most {
		table = table[:most]
	}
	for i, line := range table {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(cut(line, cols-1))
	}
	s.drawn = len(table)
}

func (s *screen) dimensions() (rows, cols int) {
	rows, cols = s.size()
	if rows < 2 || cols < 10 {
		return 24, 80
	}
	return rows, cols
}

// lines is how many lines of a terminal an unfinished line takes.
func lines(text []byte, cols int) int {
	n := 1
	for part := range bytes.SplitSeq(text, []byte("\r")) { // each begins in the last line of the one before
		n += max(1, (width(clean(string(part)))+cols-1)/cols) - 1
	}
	return n
}

// clean is a text without escape sequences, and with blanks for what else is no
// character.
func clean(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); {
		if text[i] == 0x1b {
			i++
			if i < len(text) && text[i] == '[' {
				for i++; i < len(text) && (text[i] < '@' || text[i] > '~'); i++ {
				}
			}
			i = min(i+1, len(text))
			continue
		}
		r, n := utf8.DecodeRuneInString(text[i:])
		if r < ' ' || r == 0x7f {
			r = ' '
		}
		b.WriteRune(r)
		i += n
	}
	return b.String()
}

// width is how many columns a clean text takes, nearly: letters of East Asia and
// pictures take two.
func width(text string) int {
	n := 0
	for _, r := range text {
		if n++; r >= 0x1100 {
			n++
		}
	}
	return n
}

// cut is as much of a clean text as fits.
func cut(text string, cols int) string {
	n := 0
	for i, r := range text {
		if n++; r >= 0x1100 {
			n++
		}
		if n > cols {
			return text[:i]
		}
	}
	return text
}
