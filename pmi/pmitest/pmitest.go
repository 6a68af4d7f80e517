// Package pmitest completes fences between hosts of one process, in tests.
package pmitest

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrClosed reports a fence whose store was closed, by this host or by another.
var ErrClosed = errors.New("store closed")

// job is what the stores of one process share.
type job struct {
	hosts int

	mu     sync.Mutex
	fences map[uint64]*fence
	closed chan struct{} // closed with the first host's store
	by     int           // the host that closed
}

type fence struct {
	all  [][]byte
	have int
	read int           // hosts that were given the result
	done chan struct{} // closed when all is complete
}

// A Store is that of one host: see pmi.Store.
type Store struct {
	job  *job
	host int
}

// Stores makes those of a job, by host index. With one host a fence returns at once.
func Stores(hosts int) []*Store {
	job := &job{hosts: hosts, fences: make(map[uint64]*fence), closed: make(chan struct{}), by: -1}
	stores := make([]*Store, hosts)
	for i := range stores {
		stores[i] = &Store{job, i}
	}
	return stores
}

// Fence is pmi.Store's.
func (s *Store) Fence(ctx context.Context, epoch uint64, contribution []byte) ([][]byte, error) {
	j := s.job
	j.mu.Lock()
	if j.by >= 0 {
		defer j.mu.Unlock()
		return nil, fmt.Errorf("fence %d: host %d: %w", epoch, j.by, ErrClosed)
	}
	f := j.fences[epoch]
	if f == nil {
		f = &fence{all: make([][]byte, j.hosts), done: make(chan struct{})}
		j.fences[epoch] = f
	}
	if f.all[s.host] != nil {
		j.mu.Unlock()
		return nil, fmt.Errorf("fence %d: host %d contributes twice", epoch, s.host)
	}
	if contribution == nil {
		contribution = []byte{}
	}
	f.all[s.host] = contribution
	if f.have++; f.have == j.hosts {
		close(f.done)
	}
	j.mu.Unlock()

	select {
	case <-f.done:
	default:
		select {
		case <-f.done:
		case <-j.closed:
			return nil, fmt.Errorf("fence %d: host %d: %w", epoch, j.by, ErrClosed)
		case <-ctx.Done():
			return nil, fmt.Errorf("fence %d: %w", epoch, ctx.Err())
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if f.read++; f.read == j.hosts {
		delete(j.fences, epoch)
	}
	return f.all, nil
}

// Close ends the fences of all hosts.
func (s *Store) Close() error {
	s.job.mu.Lock()
	defer s.job.mu.Unlock()
	if s.job.by < 0 {
		s.job.by = s.host
		close(s.job.closed)
	}
	return nil
}
