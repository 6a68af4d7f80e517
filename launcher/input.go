package launcher

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

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
	case errors.Is(err, unix.EPIPE) && name == "standard error":
		// Nobody wants to hear what the ranks complain about.
		c.job.Log.Info("nobody reads standard error any more")
	case errors.Is(err, unix.EPIPE) && name == "standard output":
		// As with any program in a pipeline whose reader has had enough.
		c.fail(&Cause{Rank: -1, Status: statusSignal + int(unix.SIGPIPE), Signal: unix.SIGPIPE, Message: "nobody reads standard output any more"})
	default:
		c.fail(&Cause{Rank: -1, Status: statusFailed, Message: fmt.Sprintf("%s: %v", name, err)})
	}
}

// stdinTaken is told that the ranks of a host have been given n bytes, or read no
// more.
func (c *controller) stdinTaken(s *seat, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n < 0 {
		s.unread = true
	} else {
		s.input += int64(n)
	}
	if s.group.id > 0 || c.source == nil {
		return
	}
	// The slowest host says how far the input has come.
	low := int64(-1)
	for _, s := range s.group.seats {
		if c.readsInput(s) && !s.unread && (low < 0 || s.input < low) {
			low = s.input
		}
	}
	switch {
	case low < 0:
		c.source.End()
	case low > c.credited:
		c.source.Credit(int(low - c.credited))
		c.credited = low
	}
}

// readsInput tells whether a rank of a seat reads the job's input.
func (c *controller) readsInput(s *seat) bool {
	return s.group.id == 0 && (c.job.StdinRank == StdinAll || s.has(c.job.StdinRank))
}

// openStdin decides how ranks get their input, and starts the reading where the
// launcher reads it.
func (c *controller) openStdin(here bool) (host.Stdin, *os.File, error) {
	if c.job.Stdin == nil {
		return host.StdinNone, nil, nil
	}
	f, ok := c.job.Stdin.(*os.File)
	if !ok {
		return host.StdinPump, nil, nil
	}
	info, err := f.Stat()
	if err != nil {
		return 0, nil, &JobError{Field: "Stdin", Value: f.Name(), ExitStatus: statusFailed, Err: err}
	}
	// A rank is in another process group than the launcher: the terminal
	// would stop it for reading.
	if !here || stdio.Terminal(f) {
		return host.StdinPump, nil, nil
	}
	if c.job.StdinRank == StdinAll {
		// Each rank can read a file at its own pace; of a pipe there is only one.
		fd, err := -1, error(nil)
		if info.Mode().IsRegular() {
			fd, err = host.Reopen(f)
		}
		if fd < 0 || err != nil {
			return host.StdinPump, nil, nil
		}
		unix.Close(fd)
	}
	return host.StdinFile, f, nil
}

// pump begins to read the input.
func (c *controller) pump() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var to []*seat
	unread := true
	for _, s := range c.groups[0].seats {
		if c.readsInput(s) {
			to = append(to, s)
			unread = unread && s.unread
		}
	}
	if unread {
		return nil
	}
	source, err := stdio.NewSource(c.job.Stdin, func(data []byte, end bool) {
		for _, s := range to {
			s.Send(host.Command{Kind: host.Input, Data: data, Last: end})
		}
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
