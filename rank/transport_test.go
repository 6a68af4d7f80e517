package rank

import (
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// A device is one that knows what it has, and nothing else.
type device struct {
	rdma.Context
	lacks rdma.Feature
}

func (d device) QueryDevice() rdma.DeviceAttr {
	return rdma.DeviceAttr{MaxQPWR: 1 << 15, MaxCQE: 1 << 22, MaxInlineData: 1024, MaxSRQWR: 1 << 15}
}

func (d device) Supports(f rdma.Feature) error {
	if f == d.lacks {
		return rdma.ErrNotSupported
	}
	return nil
}

// What is chosen, and what is said of it: over the budget a device without dynamic
// connections goes on with reliable ones.
func TestChooseTransport(t *testing.T) {
	for _, tt := range []struct {
		name       string
		size, host int
		budget     int64
		lacks      rdma.Feature
		mesh       bool
		says       string
	}{
		{"two ranks", 2, 2, 0, rdma.FeatureDC, false, "queue pairs are reliable connections, made when they are needed: up to "},
		{"64 hosts of 64 ranks", 4096, 64, 0, rdma.FeatureDC, false, "though over the budget, as the device has no dynamic ones (operation not supported): up to "},
		{"64 hosts of a rank", 64, 1, 0, rdma.FeatureDC, false, "when they are needed: up to "},
		{"no budget at all", 2, 1, -1, rdma.FeatureDC, false, "of queue pairs on a host of 1 ranks, and the budget (GORUN_QP_MEMORY) is 0 bytes"},
		{"no shared receive queues", 4, 4, -1, rdma.FeatureSRQ, false, "though over the budget, as the device has no dynamic ones"},
		{"no datagrams", 4, 4, 1, rdma.FeatureUD, true, "to all, though over the budget, as the device has no datagrams"},
		{"a budget that is large enough", 4096, 64, 1 << 50, rdma.FeatureDC, false, "and the budget (GORUN_QP_MEMORY) is 1048576 GiB"},
		{"alone", 1, 1, -1, rdma.FeatureUD, false, "when they are needed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			set, err := peers.Open(peers.Config{Size: tt.size, OnDemand: !tt.mesh})
			if err != nil {
				t.Fatal(err)
			}
			w := &World{size: tt.size, place: &place{largest: tt.host}, device: &peers.Device{Context: device{lacks: tt.lacks}}, peers: set}
			transport, err := w.chooseTransport(&Config{QPMemory: tt.budget, Environment: &Environment{}})
			if err != nil {
				t.Fatal(err)
			}
			if set.Paths() {
				t.Error("it uses dynamic connections")
			}
			if !strings.Contains(transport, tt.says) {
				t.Errorf("says %q, want %q in it", transport, tt.says)
			}
		})
	}
}

// The memory of queue pairs grows with the ranks of the host and with those of the job.
func TestQueueMemory(t *testing.T) {
	d := device{}
	of := func(host, size int) int64 { return queueMemory(d, host, size) }
	if one, two := of(1, 1000), of(2, 1000); two != 2*one {
		t.Errorf("two ranks of a host: %d, want twice the %d of one", two, one)
	}
	if a, b, c := of(4, 100), of(4, 101), of(4, 102); b-a != c-b || b <= a {
		t.Errorf("100, 101, 102 ranks: %d, %d, %d, want as much more for each", a, b, c)
	}
	if n := of(1, 1); n != 0 {
		t.Errorf("a rank alone: %d bytes, want 0", n)
	}
}
