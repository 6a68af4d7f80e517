package soft

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// GIDs that say where their provider listens are all that a peer needs.
func TestGIDsThatAreEnough(t *testing.T) {
	noLeaks(t)
	for _, cfg := range []Config{{Secret: secret, Located: true}, {Secret: secret, Located: true, Secure: TLS}} {
		for index := range gidTable {
			a, b := open(t, cfg), open(t, cfg)
			a.find(b, index)
			b.find(a, index)
			qa, _ := pair(t, a, b, attrs())
			src, dst := a.alloc(8, all), b.alloc(8, all)
			fill(src.Bytes(), 9)
			post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
			if st := a.poll(1, b)[0].Status; st != rdma.WCSuccess || string(dst.Bytes()) != string(src.Bytes()) {
				t.Errorf("GID %d: the write ended with %v and %x", index, st, dst.Bytes())
			}
		}
	}
}

// find introduces another node by its GID alone, and then as peers in a segment do.
func (n *node) find(other *node, index int) {
	n.t.Helper()
	gid := must[rdma.GID](n.t)(other.ctx.QueryGID(1, index))
	if err := errors.Join(n.ctx.AddEndpoint(gid, nil), n.ctx.AddEndpoint(gid, other.ctx.Endpoint())); err != nil {
		n.t.Fatal(err)
	}
}

// Who listens at a GID's address and is somebody else, or does not know the secret, is not connected to, and Unreached is told why.
func TestUnreachedIsTold(t *testing.T) {
	noLeaks(t)
	told := make(chan error, 1)
	a := open(t, Config{Secret: secret, Located: true, Unreached: func(_ rdma.GID, err error) { told <- err }})
	other := open(t, Config{Secret: []byte("not the secret of this test"), Located: true})
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := must[endpoint](t)(parseEndpoint(other.ctx.Endpoint()))
	nobody.address = closed.Addr().String()
	closed.Close()
	gone := must[[gidTable]rdma.GID](t)(nobody.gids())
	for _, c := range []struct {
		gid  rdma.GID
		says string
	}{{other.p.gids[0], errStranger.Error()}, {gone[1], "connection refused"}} {
		if err := a.ctx.AddEndpoint(c.gid, nil); err != nil {
			t.Fatal(err)
		}
		q := a.queue()
		at := attrs()
		at.AV, at.DestQPNum = rdma.AV{DGID: c.gid, PortNum: 1}, 77<<queueBits
		for _, s := range []struct {
			state rdma.QPState
			mask  rdma.QPAttrMask
		}{{rdma.StateInit, initMask}, {rdma.StateRTR, rtrMask}, {rdma.StateRTS, rtsMask}} {
			at.State = s.state
			if err := q.Modify(at, s.mask); err != nil {
				t.Fatal(err)
			}
		}
		src := a.alloc(8, all)
		post(t, q, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 8)}})
		if st := a.poll(1)[0].Status; st != rdma.WCRetryExcErr {
			t.Errorf("the write ended with %v", st)
		}
		if err := <-told; !strings.Contains(err.Error(), c.says) {
			t.Errorf("told %v, want %q", err, c.says)
		}
	}
}

func TestLocatedNeedsAnAddress(t *testing.T) {
	plain, a := open(t, Config{Secret: secret}), open(t, Config{Secret: secret, Located: true})
	if err := a.ctx.AddEndpoint(plain.p.gids[0], nil); !errors.Is(err, rdma.ErrInvalid) || !strings.Contains(err.Error(), "says no address") {
		t.Errorf("a GID without an address: %v", err)
	}
	for _, cfg := range []Config{{Located: true}, {Located: true, Secret: secret, Listen: "[::1]:0"}} {
		if _, err := New(cfg); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%+v: got %v", cfg, err)
		}
	}
}
