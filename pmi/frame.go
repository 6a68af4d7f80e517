package pmi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// FrameMax is the longest command of PMI-2 in bytes: its length has six digits.
const (
	lengthDigits = 6
	FrameMax     = 999_999
)

// ErrFrame reports bytes that are not a PMI-2 command.
var ErrFrame = errors.New("not a PMI-2 command")

// frameLength reads the six bytes before a command: its length in digits, with
// blanks before it (Hydra's library) or behind it (MPICH's before 4.1, Slurm's).
func frameLength(head []byte) (int, error) {
	text := strings.Trim(string(head), " ")
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n == 0 || n > FrameMax {
		return 0, fmt.Errorf("%w: %q where its length is expected, 1 to %d", ErrFrame, clip(string(head)), FrameMax)
	}
	return int(n), nil
}

// ParseFrame reads a command of PMI-2 without its length: key=value pairs, each with
// a semicolon at its end, cmd=NAME first. A semicolon in a value is doubled. Clients
// of MPICH 4.1 and later do not double it; therefore text after a single semicolon
// that is no pair belongs to the value before it. The message does not refer to body.
func ParseFrame(body []byte) (Message, error) {
	if len(body) > FrameMax {
		return Message{}, fmt.Errorf("%w: %d bytes, the limit is %d", ErrLine, len(body), FrameMax)
	}
	if bytes.IndexByte(body, 0) >= 0 {
		return Message{}, fmt.Errorf("%w: a zero byte in %q", ErrFrame, clip(string(body)))
	}
	s := string(body)
	var m Message
	for pos := 0; pos < len(s); {
		text, next := untilSemicolon(s, pos)
		pos = next
		key, value, ok := strings.Cut(text, "=")
		switch {
		case ok && key != "" && !strings.Contains(key, ";"):
			m.Fields = append(m.Fields, Field{key, value})
		case len(m.Fields) > 0:
			last := &m.Fields[len(m.Fields)-1]
			last.Value += ";" + text
		default:
			return Message{}, fmt.Errorf("%w: %q does not begin with cmd=", ErrFrame, clip(s))
		}
	}
	if len(m.Fields) == 0 || m.Fields[0].Key != "cmd" || m.Fields[0].Value == "" {
		return Message{}, fmt.Errorf("%w: %q does not begin with cmd=", ErrFrame, clip(s))
	}
	return m, nil
}

// untilSemicolon is the text that a single semicolon ends, or the end of s, with
// doubled ones as one, and where the next begins.
func untilSemicolon(s string, pos int) (text string, next int) {
	end := strings.IndexByte(s[pos:], ';')
	if end < 0 {
		return s[pos:], len(s)
	}
	if end += pos; end+1 == len(s) || s[end+1] != ';' {
		return s[pos:end], end + 1
	}
	var b strings.Builder
	for pos < len(s) {
		if s[pos] == ';' {
			if pos+1 == len(s) || s[pos+1] != ';' {
				return b.String(), pos + 1
			}
			pos++
		}
		b.WriteByte(s[pos])
		pos++
	}
	return b.String(), len(s)
}

// AppendFrame appends the message as a command of PMI-2 with its length. ParseFrame returns
// the same message if keys contain neither '=' nor ';', and nothing contains a zero byte.
func (m Message) AppendFrame(b []byte) []byte {
	at := len(b)
	b = append(b, "      "...)
	for _, f := range m.Fields {
		b = append(append(b, f.Key...), '=')
		b = append(append(b, strings.ReplaceAll(f.Value, ";", ";;")...), ';')
	}
	n := strconv.Itoa(len(b) - at - lengthDigits)
	copy(b[at+lengthDigits-len(n):], n)
	return b
}

// Farewell answers finalize, of PMI-1 or PMI-2, when it is all that data is; nil: it is something else. A server needs it
// for a process that is no rank but has inherited a rank's connection.
func Farewell(data []byte) []byte {
	if string(data) == "cmd=finalize\n" {
		return []byte("cmd=finalize_ack\n")
	}
	if len(data) < lengthDigits {
		return nil
	}
	n, err := frameLength(data[:lengthDigits])
	if err != nil || n != len(data)-lengthDigits {
		return nil
	}
	m, err := ParseFrame(data[lengthDigits:])
	if err != nil || m.Fields[0].Value != "finalize" {
		return nil
	}
	answer := NewMessage("finalize-response")
	if thread, ok := m.Get("thrid"); ok {
		answer.Fields = append(answer.Fields, Field{"thrid", thread})
	}
	answer.Fields = append(answer.Fields, Field{"rc", "0"})
	return answer.AppendFrame(nil)
}
