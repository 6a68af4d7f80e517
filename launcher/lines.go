package launcher

import (
	"bytes"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// Line is a line that a rank wrote.
type Line struct {
	Group  int // as in RankEnd
	Rank   int
	Host   string
	Stream Stream
	Time   time.Time // when it was read on Host
	Text   string    // without the newline
	// Partial: Text does not end where the line ends, because the line is longer than 16 MiB,
	// because of Output.Prompt or Raw, or because the stream ended. The rest follows as another Line.
	Partial bool
}

// Stream is an output stream of a rank.
type Stream uint8

// The streams, with the numbers of their descriptors.
const (
	Stdout Stream = host.Stdout
	Stderr Stream = host.Stderr
)

// String is "stdout" or "stderr".
func (s Stream) String() string { return stdio.StreamName(int(s)) }

// eachLine gives what a rank has written to take, line by line.
func eachLine(p stdio.Piece, take func(Line)) {
	if p.From == nil {
		return
	}
	line := Line{Group: p.From.Group, Rank: p.From.Rank, Host: p.From.Host, Stream: Stream(p.From.Stream), Time: p.At}
	for text := range bytes.Lines(p.Data) {
		whole := bytes.TrimSuffix(text, []byte("\n"))
		line.Text, line.Partial = string(whole), len(whole) == len(text)
		take(line)
	}
}
