package rank

import (
	"fmt"
	"os"
	"strings"

	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// served is a rank whose launcher has a PMI server.
type served struct{ *pmi.Client }

// Abort tells the launcher and ends the process: the launcher may be slow, or
// gone.
func (s served) Abort(code int, message string) {
	if err := s.Client.Abort(code, oneLine(message)); err != nil {
		fmt.Fprintf(os.Stderr, "rank %d: abort: %v\n", s.Rank(), err)
	}
	os.Exit(code)
}

// oneLine is a message as the PMI wire can carry it.
func oneLine(message string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, message)
}

// alone is a rank without a launcher.
type alone struct{ wireup.Alone }

func (alone) Abort(code int, message string) {
	if message != "" {
		fmt.Fprintf(os.Stderr, "abort: %s\n", message)
	}
	os.Exit(code)
}

func (alone) Finalize() error { return nil }
func (alone) Close() error    { return nil }
