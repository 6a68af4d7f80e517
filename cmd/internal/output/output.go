// Package output has a writer that keeps its first error, for commands whose exit
// status must tell that what they were asked for is not all there.
package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Writer writes to another one until that fails. It belongs to one goroutine.
type Writer struct {
	w   io.Writer
	err error
}

var _ io.Writer = (*Writer)(nil)

// New makes a writer to w.
func New(w io.Writer) *Writer { return &Writer{w: w} }

func (w *Writer) Write(p []byte) (int, error) {
	if w.err != nil {
		return 0, w.err
	}
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// Failed tells whether a write has failed, and says why in a line of the command
// on errOut. w is a command's standard output.
func (w *Writer) Failed(command string, errOut io.Writer) bool {
	if w.err == nil {
		return false
	}
	err := w.err
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	fmt.Fprintf(errOut, "%s: standard output: %v\n", command, err)
	return true
}
