package rdma

import (
	"slices"
	"testing"
)

// A heard is an initiator that notes the targets of its requests.
type heard struct {
	QP
	targets []uint32
	full    bool
}

func (h *heard) PostSend(wrs []SendWR) (int, error) {
	if h.full {
		return 0, ErrNoMemory
	}
	for _, wr := range wrs {
		h.targets = append(h.targets, wr.RemoteQPN)
	}
	return len(wrs), nil
}

func TestDCIPool(t *testing.T) {
	a, b := new(heard), new(heard)
	pool := NewDCIPool(a, b)
	send := func(num uint32) (int, error) {
		_, n, err := pool.PostSend(DCTarget{Num: num, Key: 7}, make([]SendWR, 1))
		return n, err
	}
	for _, num := range []uint32{1, 2, 1, 2, 2, 1, 3, 1, 3, 2} {
		if n, err := send(num); n != 1 || err != nil {
			t.Fatalf("PostSend to %d: %d, %v", num, n, err)
		}
	}
	if want := []uint32{1, 1, 1, 1, 2}; !slices.Equal(a.targets, want) {
		t.Errorf("the first initiator's targets: %v, want %v", a.targets, want)
	}
	if want := []uint32{2, 2, 2, 3, 3}; !slices.Equal(b.targets, want) {
		t.Errorf("the second initiator's targets: %v, want %v", b.targets, want)
	}
	// One that takes nothing keeps its target.
	b.full = true
	if n, err := send(3); n != 0 || err != ErrNoMemory {
		t.Errorf("PostSend through a full queue: %d, %v", n, err)
	}
	b.full = false
	if send(3); !slices.Equal(b.targets, []uint32{2, 2, 2, 3, 3, 3}) {
		t.Errorf("after a refusal: %v", b.targets)
	}
}

func TestDCIPoolNamesTheTarget(t *testing.T) {
	wrs := make([]SendWR, 2)
	to := DCTarget{Num: 5, Key: 6}
	qp := new(heard)
	if got, n, err := NewDCIPool(qp).PostSend(to, wrs); got != QP(qp) || n != 2 || err != nil {
		t.Fatalf("PostSend: %v, %d, %v", got, n, err)
	}
	for _, wr := range wrs {
		if wr.RemoteQPN != 5 || wr.DCAccessKey != 6 {
			t.Errorf("a request names %d with key %d, want 5 with 6", wr.RemoteQPN, wr.DCAccessKey)
		}
	}
}
