package stdio

import (
	"fmt"
	"strings"
	"testing"
)

const goCrash = `panic: boom

goroutine 1 [running]:
main.main()
	/src/main.go:5 +0x25
`

const goSignal = `SIGSEGV: segmentation violation
PC=0x40a7ee m=0 sigcode=0 addr=0x364b

goroutine 1 gp=0x2ac2543501e0 m=0 mp=0x8911e0 [running]:
syscall.Kill(0x27?, 0x0?)
	/go/syscall.go:611 +0x25
main.main()
	/src/main.go:7 +0x1e5

`

const traceback = `Traceback (most recent call last):
  File "x.py", line 3, in <module>
    f()
  File "x.py", line 2, in f
    raise ValueError("no such mesh")
ValueError: no such mesh
`

func TestTailCrash(t *testing.T) {
	registers := strings.Repeat("rax    0x0\n", 2000)
	for _, c := range []struct {
		name, text string
		reason     string
		lines      []string
		ends       bool
	}{
		{"nothing", "all is well\n", "", nil, false},
		{"stack without a reason", "x\n\ngoroutine 1 [running]:\nmain.f()\n", "", nil, false},
		{"Go", "x\n" + goCrash, "panic: boom", []string{"panic: boom", "goroutine 1 [running]:", "main.main()", "\t/src/main.go:5 +0x25"}, true},
		{"rank.Main", "rank 1 (host a): " + goCrash, "panic: boom", []string{"rank 1 (host a): panic: boom", "goroutine 1 [running]:", "main.main()", "\t/src/main.go:5 +0x25"}, true},
		{"Go by a signal, with registers", goSignal + registers, "SIGSEGV: segmentation violation",
			[]string{"SIGSEGV: segmentation violation", "goroutine 1 gp=0x2ac2543501e0 m=0 mp=0x8911e0 [running]:", "syscall.Kill(0x27?, 0x0?)", "\t/go/syscall.go:611 +0x25", "main.main()"}, true},
		{"Python", traceback, "ValueError: no such mesh", strings.Split(strings.TrimSpace(traceback), "\n")[1:], true},
		{"Python, and more", traceback + "gone on\n", "ValueError: no such mesh", strings.Split(strings.TrimSpace(traceback), "\n")[1:], false},
		{"the last of two tracebacks", traceback + "\nDuring handling of the above exception, another exception occurred:\n\n" + strings.ReplaceAll(traceback, "ValueError: no such mesh", "KeyError: 7"), "KeyError: 7", nil, true},
		{"a traceback after much else", strings.Repeat(traceback+"gone on\n", 500) + traceback, "ValueError: no such mesh", nil, true},
		{"a traceback that is not whole", traceback[:60], "", nil, false},
	} {
		for _, size := range []int{1, 7, 100, 1 << 20} {
			var tail Tail
			for text := []byte(c.text); len(text) > 0; text = text[min(size, len(text)):] {
				tail.Add(text[:min(size, len(text))])
			}
			reason, lines, ends := tail.Crash()
			if reason != c.reason || ends != c.ends || c.lines != nil && fmt.Sprintf("%q", lines) != fmt.Sprintf("%q", c.lines) {
				t.Errorf("%s, %d bytes at a time: got %q, %q, %v; want %q, %q, %v", c.name, size, reason, lines, ends, c.reason, c.lines, c.ends)
			}
			if len(tail.crash.text) > 2*crashMost {
				t.Errorf("%s: it keeps %d bytes", c.name, len(tail.crash.text))
			}
		}
	}
}
