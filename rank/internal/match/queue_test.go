package match

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// dumb is the slow obvious version: two slices in order of time.
type dumb struct {
	posted   []*Receive[int]
	messages []*Message[int]
}

func (d *dumb) post(r *Receive[int]) *Message[int] {
	for i, m := range d.messages {
		if r.takes(&m.Envelope) {
			d.messages = slices.Delete(d.messages, i, i+1)
			return m
		}
	}
	d.posted = append(d.posted, r)
	return nil
}

func (d *dumb) arrive(m Envelope) *Receive[int] {
	for i, r := range d.posted {
		if r.takes(&m) {
			d.posted = slices.Delete(d.posted, i, i+1)
			return r
		}
	}
	return nil
}

func TestQueueAgainstObviousVersion(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		sources := 1 + rnd.IntN(4)
		q, d := New[int, int](sources), new(dumb)
		open := func(n int) int32 {
			if rnd.IntN(3) == 0 {
				return Any
			}
			return int32(rnd.IntN(n))
		}
		for step := range 400 {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				e := Envelope{uint32(rnd.IntN(2)), open(sources), open(3), uint8(step)}
				r := &Receive[int]{Envelope: e, Value: step}
				var got *Message[int]
				if rnd.IntN(2) == 0 { // a probe first, as those do who look before they take
					if got = q.Peek(e); got != nil {
						q.Drop(got)
					} else {
						q.Stand(r)
					}
				} else {
					got = q.Post(r)
				}
				want := d.post(r)
				if got != want {
					t.Fatalf("seed %d step %d: Post(%v) = %v, want %v", seed, step, e, got, want)
				}
				if r.Posted() != (want == nil) {
					t.Fatalf("seed %d step %d: Posted() = %v after Post gave %v", seed, step, r.Posted(), got)
				}
			case 3, 4, 5:
				e := Envelope{uint32(rnd.IntN(2)), int32(rnd.IntN(sources)), int32(rnd.IntN(3)), uint8(step)}
				got := q.First(e)
				if rnd.IntN(2) == 0 {
					got = q.Arrive(e)
				} else if got != nil && !q.Cancel(got) {
					t.Fatalf("seed %d step %d: First(%v) does not stand in line", seed, step, e)
				}
				want := d.arrive(e)
				if got != want {
					t.Fatalf("seed %d step %d: Arrive(%v) = %v, want %v", seed, step, e, got, want)
				}
				if got == nil {
					m := &Message[int]{Envelope: e, Value: step}
					q.Keep(m)
					d.messages = append(d.messages, m)
				}
			case 6:
				if len(d.posted) == 0 {
					continue
				}
				i := rnd.IntN(len(d.posted))
				r := d.posted[i]
				d.posted = slices.Delete(d.posted, i, i+1)
				if r.Source != Any && !q.Awaits(int(r.Source)) {
					t.Fatalf("seed %d step %d: nobody awaits %v", seed, step, r.Envelope)
				}
				if !q.Cancel(r) || q.Cancel(r) {
					t.Fatalf("seed %d step %d: Cancel of a posted receive is not true once", seed, step)
				}
			case 7:
				var got, want []int
				source := open(sources)
				q.Posted(source, func(r *Receive[int]) { got = append(got, r.Value) })
				for _, r := range d.posted {
					if r.Source == source {
						want = append(want, r.Value)
					}
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("seed %d step %d: Posted(%d) gave %v, want %v", seed, step, source, got, want)
				}
				if rnd.IntN(20) != 0 {
					continue
				}
				got, want = nil, nil
				q.Purge(1, func(m *Message[int]) { got = append(got, m.Value) })
				d.messages = slices.DeleteFunc(d.messages, func(m *Message[int]) bool {
					if m.Context == 1 {
						want = append(want, m.Value)
					}
					return m.Context == 1
				})
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Fatalf("seed %d step %d: Purge gave %v, want %v", seed, step, got, want)
				}
			}
		}
	}
}

func TestQueueAllocatesNothing(t *testing.T) {
	q := New[int, int](2)
	r := &Receive[int]{Envelope: Envelope{Source: Any, Tag: Any}}
	m := &Message[int]{Envelope: Envelope{Source: 1, Tag: 2}}
	got := testing.AllocsPerRun(100, func() {
		q.Post(r)
		if q.Arrive(m.Envelope) != r {
			t.Fatal("a posted receive does not take its message")
		}
		q.Keep(m)
		if q.Post(r) != m {
			t.Fatal("a receive does not take an unexpected message")
		}
	})
	if got != 0 {
		t.Errorf("%v allocations a message, want 0", got)
	}
}
