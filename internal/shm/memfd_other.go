//go:build !linux

package shm

import (
	"errors"
	"fmt"
	"math"
)

// Create makes a segment in a new memfd, which only Linux has.
func Create(Geometry) (*Segment, error) {
	return nil, fmt.Errorf("create segment: %w", errors.ErrUnsupported)
}

// Open takes over a descriptor of a segment.
func Open(fd int) (*Segment, error) {
	return nil, fmt.Errorf("open segment on descriptor %d: %w", fd, errors.ErrUnsupported)
}

// OpenPeer opens the segment that process pid has as its descriptor fd.
func OpenPeer(pid, _ int) (*Segment, error) {
	return nil, fmt.Errorf("open segment of process %d: %w", pid, errors.ErrUnsupported)
}

func (s *Segment) closeFile() error { return nil }

// Limit is the address space that segments may count on.
func Limit() uint64 { return math.MaxUint64 }

func limitText() string { return "no limit" }

func whyNoRoom() string { return "" }
