package launcher

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// output writes what a host has read from its ranks.
func (c *controller) output(s *seat, stream int, data []byte) {
	sink := c.out
	if stream == host.Stderr {
		sink = c.err
	}
	if sink == c.err {
		c.last.add(data)
	}
	n := int64(len(data))
	sink.Put(data, func() { c.written(s, stream, n) })
}

// tail is the end of what has gone to a stream of the job.
type tail struct {
	mu   sync.Mutex
	last stdio.Tail
}

func (t *tail) add(data []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last.Add(data)
}

// ends tells whether the stream ends with these lines, tags before them or not.
func (t *tail) ends(lines []string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.last.Lines()
	if len(all) < len(lines) {
		return false
	}
	for i, line := range all[len(all)-len(lines):] {
		if !strings.HasSuffix(line, lines[i]) {
			return false
		}
	}
	return true
}

// written gives a host credit for more output, in batches: each one wakes it.
func (c *controller) written(s *seat, stream int, n int64) {
	if stream != host.Stdout && stream != host.Stderr {
		return
	}
	owed := &s.owed[stream]
	if owed.Add(n) >= host.Window/4 {
		s.Send(host.Command{Kind: host.Credit, Stream: stream, N: int(owed.Swap(0))})
	}
}

// outputFailed is told by a sink that its writer has failed.
func (c *controller) outputFailed(name string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case errors.Is(err, unix.EPIPE) && name == "error":
		// Nobody wants to hear what the ranks complain about.
		c.note(logrus.InfoLevel, "nobody reads standard error any more", nil)
	case errors.Is(err, unix.EPIPE):
		// As with any program in a pipeline whose reader has had enough.
		c.fail(&Cause{Rank: -1, Status: statusSignal + int(unix.SIGPIPE), Signal: unix.SIGPIPE, Message: "nobody reads standard output any more"})
	default:
		c.fail(&Cause{Rank: -1, Status: statusFailed, Message: fmt.Sprintf("standard %s: %v", name, err)})
	}
}

// stdinTaken is told that rank 0 has been given n bytes, or reads no more.
func (c *controller) stdinTaken(n int) {
	c.mu.Lock()
	source := c.source
	c.unread = c.unread || n < 0
	c.mu.Unlock()
	switch {
	case source == nil:
	case n < 0:
		source.Stop()
	default:
		source.Credit(n)
	}
}

// openStdin decides how rank 0 gets its input, and starts the reading where the
// launcher reads it.
func (c *controller) openStdin(here bool) (host.Stdin, *os.File, error) {
	if c.job.Stdin == nil {
		return host.StdinNone, nil, nil
	}
	if f, ok := c.job.Stdin.(*os.File); ok {
		if _, err := f.Stat(); err != nil {
			return 0, nil, &JobError{Field: "Stdin", Value: f.Name(), ExitStatus: statusFailed, Err: err}
		}
		// A rank is in another process group than the launcher: the terminal
		// would stop it for reading.
		if here && !stdio.Terminal(f) {
			return host.StdinFile, f, nil
		}
	}
	return host.StdinPump, nil, nil
}

// pump begins to read the input for rank 0.
func (c *controller) pump() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unread {
		return nil
	}
	g := c.groups[0]
	first := g.seats[g.hostOf[0]]
	source, err := stdio.NewSource(c.job.Stdin, func(data []byte, end bool) {
		first.Send(host.Command{Kind: host.Input, Data: data, Last: end})
	})
	c.source = source
	return err
}

// unpump ends it.
func (c *controller) unpump() {
	c.mu.Lock()
	source := c.source
	c.mu.Unlock()
	if source != nil {
		source.Stop()
	}
}
