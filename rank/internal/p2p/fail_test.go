package p2p

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// sleeps counts sleeps that end at once.
type sleeps uint32

func (*sleeps) Prepare()           {}
func (s *sleeps) Sleep(int64) bool { *s++; return true }
func (*sleeps) Cancel()            {}

// strangers are the peers of rank 0 of 2, of whom nothing is known.
func strangers(t *testing.T, pd rdma.PD) *peers.Set {
	set, err := peers.Open(peers.Config{Size: 2, PD: pd})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// domainIn is a protection domain of the first of two ranks in a segment of its own.
func domainIn(t *testing.T, g shm.Geometry) rdma.PD {
	segment, err := shm.NewLocal(g)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { segment.Close() })
	provider, err := soft.New(soft.Config{Segment: segment, Host: "a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { provider.Close() })
	devices, err := provider.Devices()
	if err != nil {
		t.Fatal(err)
	}
	device, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { device.Close() })
	pd, err := device.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pd.Close() })
	return pd
}

// Where the segment is too small, as under ulimit -v, an engine is an error.
func TestEngineInASmallSegment(t *testing.T) {
	pd := domainIn(t, shm.DefaultGeometry(2, 0))
	var idle sleeps
	if _, err := New(Config{Rank: 0, Size: 2, PD: pd, Peers: strangers(t, pd), Waiter: wait.New(wait.Config{Scheduler: true, Sleeper: &idle}), Idle: (*uint32)(&idle)}); !errors.Is(err, rdma.ErrNoMemory) {
		t.Errorf("got %v, want %v", err, rdma.ErrNoMemory)
	}
}

// When a receive fails because its peer is dead, its buffer is the caller's
// again: the queue pair must be in a state in which no read lands any more.
func TestFailedLinkReadsNothing(t *testing.T) {
	pd := domainIn(t, shm.DefaultGeometry(2, shm.Limit()))
	died := errors.New("it has died")
	var idle sleeps
	e, err := New(Config{Rank: 0, Size: 2, PD: pd, Peers: strangers(t, pd), Waiter: wait.New(wait.Config{Scheduler: true, Sleeper: &idle}),
		Dead: func(int) error { return died }, Idle: (*uint32)(&idle)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	_, err = e.Recv(context.Background(), make([]byte, 1), nil, match.Envelope{Source: 1, Tag: match.Any}, nil)
	if !errors.Is(err, died) {
		t.Fatalf("receive from a dead peer: %v, want %v", err, died)
	}
	if attr, _ := e.QP(1).Query(); attr.State != rdma.StateErr {
		t.Errorf("queue pair is in %v, want %v", attr.State, rdma.StateErr)
	}
}

// Only a rank that waits asks peers for an answer; what it knows of them it knows without.
func TestKnownAsksNobody(t *testing.T) {
	over(t, []transport{{name: "by mail", onDemand: true, mail: true}}, []int{2}, func(_ context.Context, p *member) error {
		other := 1 - p.self.rank
		if err := p.Known(other); err != nil || p.Unreachable(other) {
			return fmt.Errorf("a rank that lives: %v, want it to be reachable", err)
		}
		if p.self.peers[other].lastProbe != 0 {
			return errors.New("it was asked for an answer")
		}
		if err := p.Check(other); err != nil {
			return err
		}
		if p.self.peers[other].lastProbe == 0 {
			return errors.New("Check did not ask it for an answer")
		}
		return nil
	})
}
