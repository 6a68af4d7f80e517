package soft

import (
	"errors"
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A visitor reaches what a peer may map, and nothing else.
func TestVisitor(t *testing.T) {
	testenv.NoLeaks(t)
	segment, err := shm.NewLocal(shm.Geometry{Ranks: 3, ArenaSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	p, err := New(Config{Segment: segment, Rank: 1, Host: "here"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	devices, err := p.Devices()
	if err != nil {
		t.Fatal(err)
	}
	ctx, err := devices[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer ctx.Close()
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	mr, err := pd.AllocMR(100, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	v, err := Visit(segment)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Peer(0); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("Peer of a rank without a device: %v, want ErrInvalid", err)
	}
	if _, err := v.Peer(3); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("Peer of a number outside of the segment: %v, want ErrInvalid", err)
	}
	peer, err := v.Peer(1)
	if err != nil {
		t.Fatal(err)
	}
	if n := peer.(interface{ Number() int }).Number(); n != 1 {
		t.Errorf("its number is %d, want 1", n)
	}
	mem, err := peer.Map(mr.Addr()+10, mr.RKey(), 90, rdma.AccessRemoteRead)
	if err != nil {
		t.Fatal(err)
	}
	if mr.Bytes()[99] = 7; mem[89] != 7 {
		t.Errorf("the visitor reads %d, want 7", mem[89])
	}
	for name, do := range map[string]func() error{
		"too long": func() error { _, err := peer.Map(mr.Addr()+10, mr.RKey(), 91, rdma.AccessRemoteRead); return err },
		"to write": func() error { _, err := peer.Map(mr.Addr(), mr.RKey(), 1, rdma.AccessRemoteWrite); return err },
		"another key": func() error {
			_, err := peer.Map(mr.Addr(), mr.RKey()+1, 1, rdma.AccessRemoteRead)
			return err
		},
	} {
		if err := do(); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
	key := mr.RKey()
	if err := mr.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := peer.Map(mr.Addr(), key, 1, rdma.AccessRemoteRead); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("a region that is closed: %v, want ErrInvalid", err)
	}
}
