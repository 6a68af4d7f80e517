package launcher

import (
	"slices"
	"sync"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/stdio"
)

// longMost is how much the long lines of all ranks may take of this process's
// memory, from GoOn until they are written.
const longMost = 2 * stdio.LineMax

// longLines lets hosts send long lines, one after the other, in the order in which
// they have asked.
type longLines struct {
	mu    sync.Mutex
	taken int        // bytes of those that were let go on and are not written
	let   []longLine // that have not come yet
	wait  []longLine
}

type longLine struct {
	seat         *seat
	rank, stream int
	bytes        int
}

// ask is told of a line that waits at its host.
func (l *longLines) ask(s *seat, e host.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wait = append(l.wait, longLine{s, e.Rank, e.Stream, max(0, e.N)})
	l.next()
}

// next lets go on what there is room for. The caller holds mu.
func (l *longLines) next() {
	for len(l.wait) > 0 && (l.taken == 0 || l.taken+l.wait[0].bytes <= longMost) {
		line := l.wait[0]
		l.wait = l.wait[1:]
		l.let = append(l.let, line)
		l.taken += line.bytes
		line.seat.Send(host.Command{Kind: host.GoOn, Rank: line.rank, Stream: line.stream})
	}
}

// came is told of a line that was let go on, and returns what is to be called when
// it is written.
func (l *longLines) came(s *seat, e host.Event) (written func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.let, func(line longLine) bool { return line.seat == s && line.rank == e.Rank && line.stream == e.Stream })
	if at < 0 {
		return func() {}
	}
	bytes := l.let[at].bytes
	l.let = slices.Delete(l.let, at, at+1)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken -= bytes
		l.next()
	}
}

// forget is told that a host will send nothing any more.
func (l *longLines) forget(s *seat) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := func(line longLine) bool { return line.seat == s }
	for _, line := range l.let {
		if of(line) {
			l.taken -= line.bytes
		}
	}
	l.let = slices.DeleteFunc(l.let, of)
	l.wait = slices.DeleteFunc(l.wait, of)
	l.next()
}
