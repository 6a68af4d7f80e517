package sendq

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// A device is a queue pair that keeps what is posted, and refuses the request at refuse.
type device struct {
	rdma.QP
	sent   []rdma.SendWR
	refuse int // of all that is posted, from 1; 0: none
}

var errRefused = errors.New("refused")

func (d *device) PostSend(wrs []rdma.SendWR) (int, error) {
	for i := range wrs {
		if len(d.sent)+1 == d.refuse {
			return i, errRefused
		}
		d.sent = append(d.sent, wrs[i])
	}
	return len(wrs), nil
}

func opened(depth int) (*Queue, *device) {
	q, d := new(Queue), new(device)
	q.Open(d, depth)
	return q, d
}

func TestZeroQueueHasNoRoom(t *testing.T) {
	var q Queue
	if q.Room() != 0 || q.Flying() != 0 || q.Tells() || q.Err() != nil || q.Completed(3) != 0 {
		t.Errorf("room %d, flying %d, tells %t, error %v, want none", q.Room(), q.Flying(), q.Tells(), q.Err())
	}
}

func TestRequestsAreSignalledWhenAskedAndOnceInAQuarter(t *testing.T) {
	q, d := opened(16)
	asked := map[int]bool{7: true, 13: true}
	for i := range 16 {
		if err := q.Post(make([]rdma.SendWR, 1), 5, asked[i]); err != nil {
			t.Fatal(err)
		}
		want := i == 4 || i == 7 || i == 12 || i == 13
		if got := d.sent[i].Flags&rdma.SendSignaled != 0; got != want || q.Tells() != want {
			t.Errorf("request %d: signalled %t, and the queue tells so: %t; want %t", i, got, q.Tells(), want)
		}
		id, mark := Split(d.sent[i].WRID)
		if id != 5 || mark != uint16(i+1) {
			t.Errorf("request %d has id %d and mark %d, want 5 and %d", i, id, mark, i+1)
		}
	}
	if q.Room() != 0 {
		t.Errorf("room for %d in a full queue", q.Room())
	}
	if _, mark := Split(d.sent[13].WRID); q.Completed(mark) != 14 || q.Room() != 14 || q.Done() != 14 || q.Flying() != 2 {
		t.Errorf("after 14 of 16: room %d, done %d, flying %d", q.Room(), q.Done(), q.Flying())
	}
}

// The marks have 16 bits, and the queue lives on: it is compared with a list of what is posted.
func TestMarksWrapAround(t *testing.T) {
	for _, depth := range []int{1, 2, 8, 64, deepest, 1 << 20} {
		rng := rand.New(rand.NewPCG(1, uint64(depth)))
		q, d := opened(depth)
		wrs := make([]rdma.SendWR, 3)
		posted, done := 0, 0
		for posted < 1<<18 {
			if n := 1 + rng.IntN(len(wrs)); n <= q.Room() {
				clear(wrs)
				if err := q.Post(wrs[:n], 9, rng.IntN(20) == 0); err != nil {
					t.Fatal(err)
				}
				posted += n
			}
			if rng.IntN(10) > 0 && posted-done+len(wrs) <= min(depth, deepest) {
				continue // completions come late
			}
			left := 0
			for i, wr := range d.sent {
				if wr.Flags&rdma.SendSignaled != 0 {
					_, mark := Split(wr.WRID)
					if got := q.Completed(mark); got != i+1-left {
						t.Fatalf("depth %d: completion of request %d took %d off, want %d", depth, done+i+1, got, i+1-left)
					}
					left = i + 1
				}
			}
			d.sent = append(d.sent[:0], d.sent[left:]...)
			done += left
			if q.Posted() != uint64(posted) || q.Done() != uint64(done) || int(q.Flying()) != posted-done || q.Room() != min(depth, deepest)-posted+done {
				t.Fatalf("depth %d: posted %d, done %d, flying %d, room %d, want posted %d, done %d", depth, q.Posted(), q.Done(), q.Flying(), q.Room(), posted, done)
			}
		}
	}
}

// What the queue pair took before it refused is under way, and completes.
func TestQueueRefusedInMidBatch(t *testing.T) {
	q, d := opened(16)
	d.refuse = 4
	if err := q.Post(make([]rdma.SendWR, 2), 1, true); err != nil {
		t.Fatal(err)
	}
	err := q.Post(make([]rdma.SendWR, 3), 1, true)
	if !errors.Is(err, errRefused) {
		t.Fatalf("got %v, want %v", err, errRefused)
	}
	if q.Posted() != 3 || q.Tells() {
		t.Errorf("%d requests are posted, want 3, and the last is not signalled: %t", q.Posted(), q.Tells())
	}
	if !q.Fail(err) || q.Fail(errors.New("another")) || !errors.Is(q.Err(), errRefused) {
		t.Errorf("the error is %v, want the first one", q.Err())
	}
	for i := range d.sent { // flushed
		if _, mark := Split(d.sent[i].WRID); q.Completed(mark) != 1 {
			t.Errorf("the completion of request %d takes none off", i)
		}
	}
	if q.Flying() != 0 {
		t.Errorf("%d requests are flying, want none", q.Flying())
	}
}

func TestCompletionsAfterDropCountNothing(t *testing.T) {
	for _, depth := range []int{8, deepest} {
		q, d := opened(depth)
		for range depth {
			if err := q.Post(make([]rdma.SendWR, 1), 1, true); err != nil {
				t.Fatal(err)
			}
		}
		if n := q.Completed(2) + q.Drop(); n != depth {
			t.Errorf("%d requests left or were dropped, want %d", n, depth)
		}
		for i := range d.sent {
			if _, mark := Split(d.sent[i].WRID); q.Completed(mark) != 0 {
				t.Fatalf("depth %d: request %d was dropped and left", depth, i)
			}
		}
		if q.Done() != q.Posted() {
			t.Errorf("done %d, posted %d", q.Done(), q.Posted())
		}
	}
}

// One goroutine posts, and another tells what has completed.
func TestCompletionsComeFromAnotherGoroutine(t *testing.T) {
	q, d := opened(8)
	const total = 20000
	d.sent = make([]rdma.SendWR, 0, total)
	marks := make(chan uint16, 8)
	var wg sync.WaitGroup
	wg.Go(func() {
		for mark := range marks {
			q.Completed(mark)
			_ = q.Err()
		}
	})
	wr := make([]rdma.SendWR, 1)
	for i := 0; i < total; {
		if q.Room() == 0 {
			runtime.Gosched()
			continue
		}
		wr[0].Flags = 0
		if err := q.Post(wr, 1, false); err != nil {
			t.Fatal(err)
		}
		if _, mark := Split(d.sent[i].WRID); d.sent[i].Flags&rdma.SendSignaled != 0 {
			marks <- mark
		}
		i++
	}
	close(marks)
	wg.Wait()
	if q.Posted() != total || q.Room() < 1 {
		t.Errorf("posted %d of %d, room %d", q.Posted(), total, q.Room())
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	q, d := opened(64)
	wrs := make([]rdma.SendWR, 2)
	d.sent = make([]rdma.SendWR, 0, len(wrs))
	if n := testing.AllocsPerRun(100, func() {
		d.sent = d.sent[:0]
		if err := q.Post(wrs, 1, true); err != nil || q.Err() != nil {
			t.Fatal(err)
		}
		_, mark := Split(wrs[1].WRID)
		q.Completed(mark)
	}); n != 0 {
		t.Errorf("%v allocations a call, want none", n)
	}
}
