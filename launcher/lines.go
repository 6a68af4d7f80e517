package launcher

import (
	"bytes"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// Line is a line that a rank has written.
type Line struct {
	Group  int // as in RankEnd
	Rank   int
	Host   string
	Stream Stream
	Time   time.Time // when it was read, on Host
	Text   string    // without the newline
	// Partial is set when the line's end is not in Text: it is longer than 16 MiB,
	// its end was not written for Output.Prompt, or the stream has ended. The
	// rest comes later, as a Line of its own.
	Partial bool
}

// Stream is an output stream of a rank.
type Stream uint8

// Streams, numbered as descriptors.
const (
	Stdout Stream = host.Stdout
	Stderr Stream = host.Stderr
)

// String is stdout or stderr.
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
