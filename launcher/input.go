package launcher

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// input is the job's standard input. Its methods are called without the controller's
// mu, on the goroutines of Run, of hosts and of the source, which stop ends.
type input struct {
	mu    *sync.Mutex // the controller's
	job   *Job
	first *group // whose ranks read it

	// Guarded by mu.
	source   *stdio.Source // nil: the launcher does not read it
	credited int64         // bytes that all readers have had
}

// open decides how ranks get their input, and starts the reading where the
// launcher reads it.
func (in *input) open(here bool) (host.Stdin, *os.File, error) {
	if in.job.Stdin == nil {
		return host.StdinNone, nil, nil
	}
	f, ok := in.job.Stdin.(*os.File)
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
	if in.job.StdinRank == StdinAll {
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
func (in *input) pump() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	var to []*seat
	unread := true
	for _, s := range in.first.seats {
		if in.readBy(s) {
			to = append(to, s)
			unread = unread && s.unread
		}
	}
	if unread {
		return nil
	}
	source, err := stdio.NewSource(in.job.Stdin, func(data []byte, end bool) {
		for _, s := range to {
			s.Send(host.Command{Kind: host.Input, Data: data, Last: end})
		}
	})
	in.source = source
	return err
}

// stop ends it.
func (in *input) stop() {
	in.mu.Lock()
	source := in.source
	in.mu.Unlock()
	if source != nil {
		source.Stop()
	}
}

// taken is told that the ranks of a host have been given n bytes, or read no
// more.
func (in *input) taken(s *seat, n int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if n < 0 {
		s.unread = true
	} else {
		s.input += int64(n)
	}
	if s.group != in.first || in.source == nil {
		return
	}
	// The slowest host says how far the input has come.
	low := int64(-1)
	for _, s := range s.group.seats {
		if in.readBy(s) && !s.unread && (low < 0 || s.input < low) {
			low = s.input
		}
	}
	switch {
	case low < 0:
		in.source.End()
	case low > in.credited:
		in.source.Credit(int(low - in.credited))
		in.credited = low
	}
}

// readBy tells whether a rank of a seat reads the job's input.
func (in *input) readBy(s *seat) bool {
	return s.group == in.first && (in.job.StdinRank == StdinAll || s.has(in.job.StdinRank))
}
