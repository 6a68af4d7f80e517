package pmi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Limits of the wire in bytes. PMI-1 servers announce the first three,
// and MPICH's client allocates its buffers accordingly.
const (
	KVSNameMax = 256     // the name of the key-value space
	KeyLenMax  = 64      // a key
	ValLenMax  = 1024    // a value
	LineMax    = 8 << 10 // a line with its newline, such as the path of a spawned program
	CardMax    = 1 << 16 // a card of AllGather
	StoreMax   = 1 << 28 // all keys and values of an engine
)

// Errors of a line that is not a message.
var (
	ErrSyntax = errors.New("not a PMI-1 line") // no command, or a byte that is not permitted in a line
	ErrLine   = errors.New("line too long")    // longer than LineMax bytes
)

// A Field is one key=value of a line.
type Field struct{ Key, Value string }

// A Message is one line of the wire: key=value pairs separated by blanks. The first is the command,
// cmd=NAME (mcmd=NAME begins a block of lines that ends with endcmd). A word without '=' belongs to
// the value before it, and value= takes the rest of the line, so values may contain blanks.
type Message struct{ Fields []Field }

// NewMessage makes a message of a command and of pairs of key and value.
func NewMessage(cmd string, pairs ...string) Message {
	m := Message{Fields: make([]Field, 1, 1+len(pairs)/2)}
	m.Fields[0] = Field{"cmd", cmd}
	for i := 0; i+1 < len(pairs); i += 2 {
		m.Fields = append(m.Fields, Field{pairs[i], pairs[i+1]})
	}
	return m
}

// Cmd is the name of the command.
func (m Message) Cmd() string {
	if len(m.Fields) == 0 {
		return ""
	}
	return m.Fields[0].Value
}

// Get returns the value of the first field with this key, and whether there is one.
func (m Message) Get(key string) (string, bool) {
	for _, f := range m.Fields {
		if f.Key == key {
			return f.Value, true
		}
	}
	return "", false
}

// Int returns the number in the field with this key. ok is false if the field is missing or not a number.
func (m Message) Int(key string) (n int, ok bool) {
	v, ok := m.Get(key)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(v)
	return n, err == nil
}

// ParseLine reads a line with or without its newline. The message does not refer to line.
func ParseLine(line []byte) (Message, error) {
	if len(line) > LineMax {
		return Message{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrLine, len(line), LineMax)
	}
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	for _, b := range line {
		if b == 0 || b == '\n' {
			return Message{}, fmt.Errorf("%w: byte %#02x in %q", ErrSyntax, b, clip(string(line)))
		}
	}
	s := string(line)
	var m Message
	for pos := skipBlanks(s, 0); pos < len(s); {
		eq := pos
		for eq < len(s) && s[eq] != '=' && s[eq] != ' ' {
			eq++
		}
		if eq == len(s) || s[eq] == ' ' || eq == pos {
			// Only the first word can come here: later ones without '=' are
			// taken by the value before them.
			return Message{}, fmt.Errorf("%w: %q does not begin with cmd=", ErrSyntax, clip(s))
		}
		key, start := s[pos:eq], eq+1
		end, next := len(s), len(s)
		if key != "value" {
			end, next = valueEnd(s, start)
		}
		m.Fields = append(m.Fields, Field{key, s[start:end]})
		pos = next
	}
	if len(m.Fields) == 0 || (m.Fields[0].Key != "cmd" && m.Fields[0].Key != "mcmd") || m.Fields[0].Value == "" {
		return Message{}, fmt.Errorf("%w: %q does not begin with cmd=", ErrSyntax, clip(s))
	}
	return m, nil
}

// valueEnd finds where a value that starts at start ends, the blanks behind it
// left out, and where the next key begins.
func valueEnd(s string, start int) (end, next int) {
	pos := start
	for pos < len(s) && s[pos] != ' ' {
		pos++
	}
	end = pos
	for {
		word := skipBlanks(s, pos)
		if word == len(s) {
			return end, len(s)
		}
		pos = word
		for pos < len(s) && s[pos] != ' ' && s[pos] != '=' {
			pos++
		}
		if pos < len(s) && s[pos] == '=' && pos > word {
			return end, word
		}
		for pos < len(s) && s[pos] != ' ' {
			pos++
		}
		end = pos
	}
}

// cutFound takes off a value what Hydra writes behind it since MPICH 4.1, although value=
// takes the rest of the line: found=TRUE, or FALSE where there is no such key
// (src/pmi/maint/pmi-1.1.txt, GET; Hydra 4.0 and gorun end the line with the value).
func cutFound(value string) (rest string, found bool) {
	if rest, ok := strings.CutSuffix(value, " found=FALSE"); ok {
		return rest, false
	}
	return strings.TrimSuffix(value, " found=TRUE"), true
}

func skipBlanks(s string, pos int) int {
	for pos < len(s) && s[pos] == ' ' {
		pos++
	}
	return pos
}

// AppendTo appends the message as a line with its newline. A message of ParseLine can be read again
// without change. A value with a newline cannot, so a caller checks text of unknown origin first.
func (m Message) AppendTo(b []byte) []byte {
	for i, f := range m.Fields {
		if i > 0 {
			b = append(b, ' ')
		}
		b = append(b, f.Key...)
		b = append(b, '=')
		b = append(b, f.Value...)
	}
	return append(b, '\n')
}

// String is the line without its newline.
func (m Message) String() string {
	line := m.AppendTo(nil)
	return string(line[:len(line)-1])
}

// clip makes foreign text fit for a message: short, in one line, and harmless to
// a terminal.
func clip(s string) string { return clipTo(s, 64) }

func clipTo(s string, most int) string {
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
