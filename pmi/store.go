package pmi

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// A Store completes the fences of a job over all its hosts. Each host has one.
type Store interface {
	// Fence gives this host's contribution to the fence of an epoch, and returns the contributions
	// of all hosts, by host index. It blocks until all hosts have contributed or ctx ends, or fails
	// with an error that names the lost host. Each host calls it once per epoch, in any order, and
	// several epochs may be open. The store keeps contribution. The result must not be changed.
	Fence(ctx context.Context, epoch uint64, contribution []byte) (all [][]byte, err error)
	// Close ends running fences with an error.
	Close() error
}

// ErrStoreClosed reports a fence whose store was closed, by this host or, in one process, by another.
var ErrStoreClosed = errors.New("store closed")

// memJob is what the stores of one process share.
type memJob struct {
	hosts int

	mu     sync.Mutex
	fences map[uint64]*memFence
	closed chan struct{} // closed with the first host's store
	by     int           // the host that closed
}

type memFence struct {
	all  [][]byte
	have int
	read int           // hosts that were given the result
	done chan struct{} // closed when all is complete
}

type memStore struct {
	job  *memJob
	host int
}

var _ Store = (*memStore)(nil)

// NewMemStore makes the stores of a job whose hosts are all in this
// process, by host index. With one host a fence returns at once.
func NewMemStore(hosts int) []Store {
	job := &memJob{hosts: hosts, fences: make(map[uint64]*memFence), closed: make(chan struct{}), by: -1}
	stores := make([]Store, hosts)
	for i := range stores {
		stores[i] = &memStore{job, i}
	}
	return stores
}

func (s *memStore) Fence(ctx context.Context, epoch uint64, contribution []byte) ([][]byte, error) {
	j := s.job
	j.mu.Lock()
	if j.by >= 0 {
		defer j.mu.Unlock()
		return nil, fmt.Errorf("fence %d: host %d: %w", epoch, j.by, ErrStoreClosed)
	}
	f := j.fences[epoch]
	if f == nil {
		f = &memFence{all: make([][]byte, j.hosts), done: make(chan struct{})}
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
			return nil, fmt.Errorf("fence %d: host %d: %w", epoch, j.by, ErrStoreClosed)
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

func (s *memStore) Close() error {
	s.job.mu.Lock()
	defer s.job.mu.Unlock()
	if s.job.by < 0 {
		s.job.by = s.host
		close(s.job.closed)
	}
	return nil
}
