package stdio

import (
	"bytes"
	"regexp"
	"strings"
)

// crashMost is how much of a crash report is kept.
const crashMost = 16 << 10

// Where crash reports are recognised: the stack of a program of Go, and the
// traceback of one of Python.
var (
	goMark     = []byte("\n\ngoroutine ")
	pythonMark = []byte("Traceback (most recent call last):\n")
)

// goReason is the line that a crash report of Go begins with; rank.Main's names the rank.
var goReason = regexp.MustCompile(`(?m)^(?:rank \d+ \(.*\): )?(?:panic|fatal error|SIG[A-Z]+): .*`)

// A crash is the report of a program that says why it has failed: what it begins with,
// which is the reason in Go, and what follows, which ends with the reason in Python.
type crash struct {
	text []byte
	goes bool // of Go
}

// add looks for a report in what came before, and chunk, and keeps it. A stream
// without reports costs two searches of each chunk.
func (c *crash) add(before, chunk []byte) {
	seam := max(len(goMark), len(pythonMark))
	joint := before[max(0, len(before)-seam):]
	joint = append(joint[:len(joint):len(joint)], chunk[:min(seam, len(chunk))]...)
	has := func(mark []byte) bool { return bytes.Contains(chunk, mark) || bytes.Contains(joint, mark) }
	if has(goMark) && c.addGo(before, chunk) {
		return
	}
	if full := len(c.text)+len(chunk) > crashMost; has(pythonMark) && !c.goes && (c.text == nil || full) {
		all := append(before[:len(before):len(before)], chunk...)
		all = all[bytes.LastIndex(all, pythonMark):]
		c.text = bytes.Clone(all[:min(len(all), crashMost)])
		return
	}
	if c.text != nil {
		c.text = append(c.text, chunk[:max(0, min(len(chunk), crashMost-len(c.text)))]...)
	}
}

// addGo begins with a report of Go, if it is one: stacks are written without a reason too.
func (c *crash) addGo(before, chunk []byte) bool {
	all := append(before[:len(before):len(before)], chunk...)
	at := goReason.FindAllIndex(all, -1)
	if at == nil {
		return false
	}
	last := at[len(at)-1]
	stack := bytes.Index(all[last[1]:], goMark)
	if stack < 0 {
		return false
	}
	stack += last[1]
	// What stands between the reason and the stack are registers, or the runtime's own.
	c.text = append(bytes.Clone(all[last[0]:last[1]]), all[stack+1:min(len(all), stack+crashMost)]...)
	c.goes = true
	return true
}

// lines are the reason, and what of the report is worth showing; "" when there is none.
// ends tells whether nothing was written behind the reason.
func (c *crash) lines() (reason string, lines []string, ends bool) {
	text := string(c.text)
	if c.goes {
		first, stack, _ := strings.Cut(text, "\n")
		lines = append(lines, trimLine(first))
		for line := range strings.Lines(stack) {
			if line = trimLine(line); line == "" || len(lines) == tailLines {
				break // behind the first stack there are others, and registers
			}
			lines = append(lines, line)
		}
		_, reason, named := strings.Cut(lines[0], "): ")
		if !named || !strings.HasPrefix(lines[0], "rank ") {
			reason = lines[0]
		}
		return reason, lines, true
	}
	at := strings.LastIndex(text, string(pythonMark))
	if at < 0 {
		return "", nil, false
	}
	for line := range strings.Lines(text[at+len(pythonMark):]) {
		at += len(line)
		whole := strings.HasSuffix(line, "\n")
		if line = trimLine(line); line != "" {
			lines = append(lines, line)
		}
		if line != "" && line[0] != ' ' && line[0] != '\t' {
			rest := text[at+len(pythonMark):]
			return line, lines[max(0, len(lines)-tailLines):], whole && strings.TrimSpace(rest) == ""
		}
	}
	return "", nil, false
}
