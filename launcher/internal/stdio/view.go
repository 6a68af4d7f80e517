package stdio

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Form is how text is shown.
type Form uint8

// Forms.
const (
	Plain Form = iota
	JSON       // an object a line
	XML        // an element a line, as Open MPI has it
)

// Style is how the lines of ranks look. The zero value passes every byte on as
// it is.
type Style struct {
	Form   Form
	Prefix string // before each line of a Plain form, as Expand takes it
	Color  bool   // the prefix has a colour by rank; without a prefix the line has
}

// plain tells whether bytes are passed on as they are.
func (s Style) plain() bool { return s.Form == Plain && s.Prefix == "" && !s.Color }

// Stamped tells whether the time counts at which text came.
func (s Style) Stamped() bool {
	return s.Form == JSON || strings.Contains(s.Prefix, "%c") || strings.Contains(s.Prefix, "%t") || strings.Contains(s.Prefix, "%T")
}

// Origin is the rank that wrote something.
type Origin struct {
	Group  int
	Rank   int // in the group
	NP     int // ranks of the group
	Host   string
	Index  int // of the host
	Stream int // 1: standard output, 2: standard error
}

// StreamName is what a stream is called.
func StreamName(stream int) string {
	if stream == 2 {
		return "stderr"
	}
	return "stdout"
}

// Piece is what an origin has written: whole lines, or the begin or the rest of
// one.
type Piece struct {
	From *Origin
	Data []byte
	At   time.Time // when it came; it need not be known unless the style is Stamped
	Last bool      // nothing comes after it from this origin
}

// Expand replaces in a pattern
//
//	%r  the rank                   %R  the rank, as wide as the largest
//	%g  the group                  %G  the group, counted from 1, as Open MPI does
//	%h  the host                   %p  the host's number
//	%t  whole seconds since start  %T  the time of day with microseconds
//	%c  the date, as ctime(3)      %s  stdout or stderr
//	%%  a percent sign
//
// Other letters stay as they are, with the percent sign.
func Expand(dst []byte, pattern string, o *Origin, at, start time.Time) []byte {
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' || i+1 == len(pattern) {
			dst = append(dst, pattern[i])
			continue
		}
		i++
		switch pattern[i] {
		case 'r':
			dst = strconv.AppendInt(dst, int64(o.Rank), 10)
		case 'R':
			dst = fmt.Appendf(dst, "%0*d", len(strconv.Itoa(o.NP)), o.Rank)
		case 'g':
			dst = strconv.AppendInt(dst, int64(o.Group), 10)
		case 'G':
			dst = strconv.AppendInt(dst, int64(o.Group)+1, 10)
		case 'h':
			dst = append(dst, o.Host...)
		case 'p':
			dst = strconv.AppendInt(dst, int64(o.Index), 10)
		case 't':
			dst = strconv.AppendInt(dst, int64(max(0, at.Sub(start))/time.Second), 10)
		case 'T':
			dst = at.AppendFormat(dst, "15:04:05.000000")
		case 'c':
			dst = at.AppendFormat(dst, time.ANSIC)
		case 's':
			dst = append(dst, StreamName(o.Stream)...)
		case '%':
			dst = append(dst, '%')
		default:
			dst = append(dst, '%', pattern[i])
		}
	}
	return dst
}

// View renders what ranks write for one output. In any style but the plain one
// every line of the output is one origin's: where another origin writes after the
// begin of a line, that begin is ended, and the rest, when it comes, is a line of
// its own.
type View struct {
	style Style
	start time.Time
	open  *Origin // whose line is unfinished
	out   []byte
}

// NewView makes a view in a style; start is when the job began.
func NewView(style Style, start time.Time) View { return View{style: style, start: start} }

// Render is a piece as it is to be written: good until the next one is rendered,
// and as long as the piece is.
func (v *View) Render(p Piece) []byte {
	if v.style.plain() {
		return p.Data
	}
	v.out = v.out[:0]
	switch v.style.Form {
	case JSON:
		for line := range bytes.Lines(p.Data) {
			v.json(p, line)
		}
	case XML:
		for line := range bytes.Lines(p.Data) {
			v.xml(p, line)
		}
	default:
		v.lines(p)
	}
	if cap(v.out) > 4<<20 { // rare: it need not stay
		out := v.out
		v.out = nil
		return out
	}
	return v.out
}

// lines puts the prefix before each line.
func (v *View) lines(p Piece) {
	if v.open != nil && v.open != p.From && len(p.Data) > 0 {
		v.out = append(v.out, '\n')
		v.open = nil
	}
	begin, end := "", ""
	if v.style.Color {
		begin, end = color(p.From.Rank), "\x1b[0m"
	}
	for line := range bytes.Lines(p.Data) {
		text, newline := bytes.CutSuffix(line, []byte("\n"))
		if v.style.Prefix == "" {
			v.out = append(v.out, begin...)
			v.out = append(v.out, text...)
			v.out = append(v.out, end...)
		} else {
			if v.open == nil {
				v.out = append(v.out, begin...)
				v.out = Expand(v.out, v.style.Prefix, p.From, p.At, v.start)
				v.out = append(v.out, end...)
			}
			v.out = append(v.out, text...)
		}
		if v.open = p.From; newline {
			v.out = append(v.out, '\n')
			v.open = nil
		}
	}
	if p.Last && v.open == p.From {
		v.out = append(v.out, '\n')
		v.open = nil
	}
}

// color is one of twelve colours that can be read on dark and on light.
func color(rank int) string {
	return [...]string{
		"\x1b[36m", "\x1b[33m", "\x1b[32m", "\x1b[35m", "\x1b[34m", "\x1b[31m",
		"\x1b[96m", "\x1b[93m", "\x1b[92m", "\x1b[95m", "\x1b[94m", "\x1b[91m",
	}[rank%12]
}

// json writes a line as an object: what is no UTF-8 as "base64" instead of
// "text", what has no newline at its end as "partial".
func (v *View) json(p Piece, line []byte) {
	text, whole := bytes.CutSuffix(line, []byte("\n"))
	b := append(v.out, `{"time":"`...)
	b = p.At.UTC().AppendFormat(b, "2006-01-02T15:04:05.000000Z")
	b = append(b, `","rank":`...)
	b = strconv.AppendInt(b, int64(p.From.Rank), 10)
	if p.From.Group > 0 {
		b = append(b, `,"group":`...)
		b = strconv.AppendInt(b, int64(p.From.Group), 10)
	}
	b = append(b, `,"host":`...)
	b = appendJSON(b, []byte(p.From.Host))
	b = append(b, `,"stream":"`...)
	b = append(b, StreamName(p.From.Stream)...)
	if utf8.Valid(text) {
		b = append(b, `","text":`...)
		b = appendJSON(b, text)
	} else {
		b = append(b, `","base64":"`...)
		b = base64.StdEncoding.AppendEncode(b, text)
		b = append(b, '"')
	}
	if !whole {
		b = append(b, `,"partial":true`...)
	}
	v.out = append(b, '}', '\n')
}

// appendJSON appends a string of valid UTF-8.
func appendJSON(b, text []byte) []byte {
	b = append(b, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\t':
			b = append(b, '\\', 't')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c < ' ' || c == 0x7f:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// XMLBegin stands before all elements, and XMLEnd after them.
const (
	XMLBegin = "<mpirun>\n"
	XMLEnd   = "</mpirun>\n"
)

// xml writes a line as an element, with the newline as a character reference.
func (v *View) xml(p Piece, line []byte) {
	b := append(v.out, '<')
	b = append(b, StreamName(p.From.Stream)...)
	b = append(b, ` rank="`...)
	b = strconv.AppendInt(b, int64(p.From.Rank), 10)
	b = append(b, '"', '>')
	for _, c := range line {
		switch {
		case c == '&':
			b = append(b, "&amp;"...)
		case c == '<':
			b = append(b, "&lt;"...)
		case c == '>':
			b = append(b, "&gt;"...)
		case c < ' ' || c > '~':
			b = fmt.Appendf(b, "&#%03d;", c)
		default:
			b = append(b, c)
		}
	}
	b = append(b, "</"...)
	b = append(b, StreamName(p.From.Stream)...)
	v.out = append(b, ">\n"...)
}
