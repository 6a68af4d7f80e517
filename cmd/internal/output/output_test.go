package output

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestWriter(t *testing.T) {
	var out, errOut bytes.Buffer
	w := New(&out)
	fmt.Fprint(w, "text")
	if w.Failed("command", &errOut) || out.String() != "text" || errOut.Len() > 0 {
		t.Errorf("got %q, %q, want the text and no error", out.String(), errOut.String())
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	w = New(full)
	fmt.Fprint(w, "text")
	full.Close()
	fmt.Fprint(w, "more") // is not tried: the first error stays
	if !w.Failed("command", &errOut) || errOut.String() != "command: standard output: no space left on device\n" {
		t.Errorf("got %q", errOut.String())
	}
	if n, err := w.Write([]byte("x")); n != 0 || err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("a later write: %d, %v", n, err)
	}
}
