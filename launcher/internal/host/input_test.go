package host

import (
	"testing"

	"golang.org/x/sys/unix"
)

// One turn of the loop may bring the end of the input and, behind it, word of the pipe
// that it was for.
func TestInputReadyAfterItsEnd(t *testing.T) {
	for _, events := range []uint32{unix.EPOLLOUT, unix.EPOLLERR} {
		h := assemble(Spec{}, Config{Emit: func(Event) {}})
		h.input.feeds = []feed{{fd: -1}}
		h.input.take(nil, true)
		if h.input.feeds != nil {
			t.Fatal("there are feeds though nobody reads")
		}
		h.input.ready(0, events)
	}
}
