package coll

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
)

// A sender's wrong count is found by who receives, whatever way the bytes would
// have gone, and the report has both.
func TestExchangeOfOtherLengths(t *testing.T) {
	for _, c := range []struct{ sent, expected int }{{8, 16}, {16, 8}, {8, 10000}, {10000, 8}, {10000, 20000}, {1, 2}} {
		t.Run(fmt.Sprintf("%d for %d", c.sent, c.expected), func(t *testing.T) {
			nw := network{n: 2}
			errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
				mem := Buffer{Mem: make([]byte, 20000)}
				a := Args{Kind: Exchange, Send: mem, Sends: []Part{{Peer: 1, N: c.sent}}}
				if m.rank == 1 {
					a = Args{Kind: Exchange, Recv: mem, Recvs: []Part{{Peer: 0, N: c.expected}}}
				}
				err := m.team.Run(ctx, &a)
				if err == nil {
					err = m.team.Barrier(ctx) // the sender may have been done
				}
				return err
			})
			found := false // by one, and told to the other
			for r, err := range errs {
				if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrRevoked) {
					t.Errorf("rank %d returned %v, want a mismatch", r, err)
				}
				found = found || strings.Contains(fmt.Sprint(err), fmt.Sprintf("a part of %d bytes", c.sent)) && strings.Contains(err.Error(), fmt.Sprintf("a part of %d bytes", c.expected))
			}
			if !found {
				t.Errorf("got %v, want both lengths in one", errs)
			}
		})
	}
}

// A part that its receiver does not expect is found at the next call.
func TestExchangeWithoutReceiver(t *testing.T) {
	nw := network{n: 2}
	errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
		a := Args{Kind: Exchange, Send: Buffer{Mem: make([]byte, 8)}}
		if m.rank == 0 {
			a.Sends = []Part{{Peer: 1, N: 8}}
		}
		if err := m.team.Run(ctx, &a); err != nil {
			return err
		}
		if err := m.team.Barrier(ctx); err != nil {
			return err
		}
		return m.team.Barrier(ctx) // rank 1 may have signalled before it looked
	})
	if err := errs[1]; !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "exchange with a part of 8 bytes") || !strings.Contains(err.Error(), "barrier") {
		t.Errorf("rank 1 returned %v", err)
	}
	if err := errs[0]; !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrRevoked) {
		t.Errorf("rank 0 returned %v", err)
	}
}

// Members that send each other more than the slots hold, which nobody receives,
// find that they wait for each other.
func TestExchangeWithoutReceivers(t *testing.T) {
	for _, n := range []int{2, 3} {
		for _, verbs := range []bool{false, true} {
			t.Run(fmt.Sprintf("ranks=%d,verbs=%t", n, verbs), func(t *testing.T) {
				nw := network{n: n, verbs: verbs}
				errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
					a := Args{Kind: Exchange, Send: Buffer{Mem: make([]byte, 8)}}
					for range 2 * manySlots {
						a.Sends = append(a.Sends, Part{Peer: (m.rank + 1) % n, N: 8})
					}
					return m.team.Run(ctx, &a)
				})
				for r, err := range errs {
					if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrRevoked) {
						t.Errorf("rank %d returned %v, want a mismatch", r, err)
					}
				}
			})
		}
	}
}

func TestLengthMarks(t *testing.T) {
	for _, n := range []uint64{1, 8, 1 << 20, 1<<lengthBits - 1, 1 << lengthBits, 1 << 40} {
		s := summary{kind: Exchange, algorithm: Direct, elem: 1, bytes: n}
		got, fits := lengthOf(s.fingerprint())
		if fits != (n < 1<<lengthBits) || fits && got != n || kindOf(s.fingerprint()) != Exchange {
			t.Errorf("%d: got %d, %v of kind %v", n, got, fits, kindOf(s.fingerprint()))
		}
		base := summary{kind: Exchange, algorithm: Direct, elem: 1}
		if s.fingerprint() != base.fingerprint()^lengthMark(n) {
			t.Errorf("%d: a message has another fingerprint than its summary", n)
		}
	}
	if kinds > 1<<kindBits {
		t.Errorf("%d kinds do not fit into %d bits", kinds, kindBits)
	}
}

func TestBadParts(t *testing.T) {
	sum, _ := kernel.For(kernel.Int32, kernel.Sum)
	buf := func(n int) Buffer { return Buffer{Mem: make([]byte, n)} }
	mem := make([]byte, 100)
	both := Buffer{Mem: mem}
	other := func(r int) int { return 1 - r }
	for _, c := range []struct {
		name string
		args func(rank int) Args
		want string
	}{
		{"peer", func(int) Args { return Args{Kind: Exchange, Send: buf(8), Sends: []Part{{2, 0, 8}}} }, "send part 0: peer 2 in a team of 2"},
		{"negative peer", func(int) Args { return Args{Kind: Exchange, Recv: buf(8), Recvs: []Part{{0, 0, 0}, {-1, 0, 8}}} }, "receive part 1: peer -1"},
		{"beyond", func(r int) Args { return Args{Kind: Exchange, Send: buf(8), Sends: []Part{{other(r), 1, 8}}} }, "8 bytes at 1 of a buffer of 8"},
		{"huge", func(r int) Args {
			return Args{Kind: Exchange, Send: buf(8), Sends: []Part{{other(r), 1 << 62, 1 << 62}}}
		}, "send part 0"},
		{"negative", func(r int) Args { return Args{Kind: Exchange, Send: buf(8), Sends: []Part{{other(r), 0, -1}}} }, "-1 bytes"},
		{"oneself, other length", func(r int) Args {
			return Args{Kind: Exchange, Send: buf(8), Recv: buf(8), Sends: []Part{{r, 0, 8}}, Recvs: []Part{{r, 0, 7}}}
		}, "sends itself 8 bytes and receives 7"},
		{"oneself, not received", func(r int) Args { return Args{Kind: Exchange, Send: buf(8), Sends: []Part{{r, 0, 8}}} }, "receives none"},
		{"oneself, not sent", func(r int) Args { return Args{Kind: Exchange, Recv: buf(8), Recvs: []Part{{r, 0, 8}}} }, "does not send them"},
		{"overlap of parts", func(r int) Args {
			return Args{Kind: Exchange, Send: both, Recv: both, Sends: []Part{{other(r), 0, 10}, {other(r), 50, 10}}, Recvs: []Part{{other(r), 10, 10}, {other(r), 59, 10}}}
		}, "parts overlap"},
		{"overlap of parts received", func(r int) Args {
			return Args{Kind: Exchange, Send: buf(8), Recv: buf(16), Sends: []Part{{other(r), 0, 8}, {other(r), 0, 8}}, Recvs: []Part{{other(r), 7, 8}, {other(r), 0, 8}}}
		}, "receive parts overlap"},
		{"blocks of some", func(int) Args { return Args{Kind: ReduceScatterV, Reduction: sum, Recvs: []Part{{}}} }, "1 blocks for a team of 2"},
		{"torn element", func(int) Args {
			return Args{Kind: ReduceScatterV, Reduction: sum, Send: buf(8), Recv: buf(8), Recvs: []Part{{0, 0, 4}, {1, 4, 3}}}
		}, "3 bytes of elements of 4"},
		{"short block", func(int) Args {
			return Args{Kind: ReduceScatterV, Reduction: sum, Send: buf(16), Recv: buf(4), Recvs: []Part{{0, 0, 8}, {1, 8, 8}}}
		}, "receive buffer has 4 bytes, 8 are needed"},
		{"short vector in place", func(int) Args {
			return Args{Kind: ReduceScatterV, Reduction: sum, Recv: buf(8), Recvs: []Part{{0, 0, 8}, {1, 8, 8}}}
		}, "in-place receive part 1"},
		{"overlap of vectors", func(int) Args {
			return Args{Kind: ReduceScatterV, Reduction: sum, Send: Buffer{Mem: mem[:16]}, Recv: Buffer{Mem: mem[8:]}, Recvs: []Part{{0, 0, 8}, {1, 8, 8}}}
		}, "overlap"},
		{"fold of two parts of a peer", func(r int) Args {
			return Args{Kind: Fold, Reduction: sum, Recv: buf(8), Recvs: []Part{{other(r), 0, 8}, {other(r), 0, 8}}}
		}, "two parts of peer"},
		{"fold of other lengths", func(r int) Args {
			return Args{Kind: Fold, Reduction: sum, Send: buf(8), Sends: []Part{{r, 0, 8}}, Recv: buf(8), Recvs: []Part{{r, 0, 8}, {other(r), 0, 4}}}
		}, "4 bytes at 0, where all are 8 at 0"},
		{"fold without reduction", func(int) Args { return Args{Kind: Fold} }, "no reduction"},
		{"scatter too short", func(int) Args { return Args{Kind: Scatter, Send: buf(15), Recv: buf(8), Bytes: 8, Root: 0} }, "buffer has"},
		{"scatter over itself", func(int) Args {
			return Args{Kind: Scatter, Send: Buffer{Mem: mem[:16]}, Recv: Buffer{Mem: mem[4:20]}, Bytes: 8, Root: 0}
		}, "overlap"},
		{"gather over itself", func(int) Args {
			return Args{Kind: Gather, Send: Buffer{Mem: mem[4:12]}, Recv: Buffer{Mem: mem[:16]}, Bytes: 8, Root: 0}
		}, "overlap"},
		{"no kind", func(int) Args { return Args{} }, "no collective"},
		{"a kind that is none", func(int) Args { return Args{Kind: farewell} }, "no collective"},
	} {
		nw := network{n: 2}
		nw.run(t, func(ctx context.Context, m *member) error {
			a := c.args(m.rank)
			if operations[a.Kind%kinds].rooted && m.rank != a.Root {
				return m.team.Barrier(ctx)
			}
			if err := m.team.Run(ctx, &a); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: rank %d: got %v, want %q", c.name, m.rank, err, c.want)
			}
			return m.team.Barrier(ctx) // the team is as it was
		})
	}
}

// One piece of memory may be sent from and received into, where the parts are apart.
func TestExchangeWithinOneBuffer(t *testing.T) {
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		mem := []byte{byte(m.rank), 2, 3, 4, 9, 9, 9, 9}
		a := Args{Kind: Exchange, Send: Buffer{Mem: mem}, Recv: Buffer{Mem: mem},
			Sends: []Part{{1 - m.rank, 0, 2}, {1 - m.rank, 2, 1}}, Recvs: []Part{{1 - m.rank, 4, 2}, {1 - m.rank, 6, 1}}}
		if err := m.team.Run(ctx, &a); err != nil {
			return err
		}
		if want := []byte{byte(m.rank), 2, 3, 4, byte(1 - m.rank), 2, 3, 9}; string(mem) != string(want) {
			return fmt.Errorf("got %v, want %v", mem, want)
		}
		return nil
	})
}

// Every kind by every algorithm, short and long: after the first call none allocates,
// though calls with parts are compiled each time.
func TestNoKindAllocates(t *testing.T) {
	if arch.RaceEnabled {
		return // the detector allocates
	}
	sum, _ := kernel.For(kernel.Int32, kernel.Sum)
	const rounds, most = 20, 40000
	nw := network{n: 2}
	turn := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
	nw.run(t, func(ctx context.Context, m *member) error {
		send, recv := Buffer{Mem: make([]byte, 2*most)}, Buffer{Mem: make([]byte, 2*most)}
		meet := func() {
			turn[1-m.rank] <- struct{}{}
			<-turn[m.rank]
		}
		for _, way := range ways() {
			for _, n := range []int{16, most} {
				a := Args{Kind: way.Kind, Algorithm: way.Algorithm, Send: send, Recv: recv, Bytes: n, Reduction: sum}
				switch a.Kind {
				case Exchange:
					a.Sends = []Part{{1 - m.rank, 0, n}, {m.rank, 0, 16}, {1 - m.rank, n, 8}}
					a.Recvs = []Part{{m.rank, n + 8, 16}, {1 - m.rank, 0, n}, {1 - m.rank, n, 8}}
				case Fold:
					a.Sends = []Part{{0, 0, n}, {1, 0, n}}
					a.Recvs = []Part{{0, 0, n}, {1, 0, n}}
				case ReduceScatterV:
					a.Recvs = []Part{{0, 0, n}, {1, n, n / 2}}
				}
				var failed error
				call := func() { failed = errors.Join(failed, m.team.Run(ctx, &a)) }
				call()
				meet() // or rank 0 counts what rank 1 allocates in its first call
				if m.rank == 1 {
					for range rounds + 1 {
						call()
					}
				} else if got := testing.AllocsPerRun(rounds, call); got != 0 {
					t.Errorf("%v of %d bytes by %v: %v allocations a call, want 0", a.Kind, n, a.Algorithm, got)
				}
				meet() // or in its next one
				if failed != nil {
					return failed
				}
			}
		}
		return nil
	})
}
