package comch

import (
	"errors"
	"sync"

	"github.com/gorun-mpi/gorun/internal/shm"
)

// Pair makes both ends of a channel within this process, for tests of programs that
// talk over one.
func Pair(server, client Config) (*Conn, *Conn, error) {
	for _, cfg := range []*Config{&server, &client} {
		if err := cfg.settle(); err != nil {
			return nil, nil, err
		}
	}
	segment, err := shm.NewLocal(segmentGeometry(client.geometry(), server.geometry()))
	if err != nil {
		return nil, nil, err
	}
	s, err := newRingConn(&server, segment, true, server.geometry(), client.geometry())
	if err != nil {
		return nil, nil, errors.Join(err, segment.Close())
	}
	c, err := newRingConn(&client, segment, false, client.geometry(), server.geometry())
	if err != nil {
		return nil, nil, errors.Join(err, segment.Close())
	}
	both := &pairEnd{left: 2, segment: segment}
	s.line, s.watched = &pairLine{both, c}, closedChan
	c.line, c.watched = &pairLine{both, s}, closedChan
	return &Conn{t: s, peer: "this process"}, &Conn{t: c, peer: "this process"}, nil
}

// pairEnd is what the ends of a pair have in common.
type pairEnd struct {
	mu      sync.Mutex
	left    int // ends that are open
	segment *shm.Segment
}

// A pairLine stands for the socket of an end: closing it is noticed by the other one.
type pairLine struct {
	both  *pairEnd
	other *ringConn
}

func (l *pairLine) Close() error {
	l.both.mu.Lock()
	defer l.both.mu.Unlock()
	if l.both.left--; l.both.left == 0 {
		return l.both.segment.Close()
	}
	l.other.depart()
	return nil
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
