package agree

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rank/internal/group"
)

// A world is members whose messages arrive in any order, except that those of one pair stay in line, and who die
// in the middle of a broadcast.
type world struct {
	t        *testing.T
	name     string
	rnd      *rand.Rand
	members  []*member
	lines    [][][]byte // by sender*n + receiver
	sent     int
	dieAt    map[int]bool // after so many messages of all, the one that sends dies
	deaths   int
	outcomes map[uint64]Value
	rounds   int
}

type member struct {
	machine *Machine
	dead    bool
	number  uint64 // that it waits for, 0: none
	done    int
	knows   []bool // whose death it was told
	own     []Value
}

func newWorld(t *testing.T, name string, n, rounds int, seed uint64, dieAt ...int) *world {
	w := &world{t: t, name: name, rnd: rand.New(rand.NewPCG(seed, 1)), lines: make([][][]byte, n*n), dieAt: make(map[int]bool), outcomes: make(map[uint64]Value), rounds: rounds}
	for _, at := range dieAt {
		w.dieAt[at] = true
	}
	for i := range n {
		m := &member{knows: make([]bool, n)}
		m.machine = New(n, i, func(to int, b []byte) {
			if m.dead {
				return
			}
			if w.sent++; w.dieAt[w.sent] && w.deaths < n-1 {
				m.dead = true
				w.deaths++
				return
			}
			w.lines[i*n+to] = append(w.lines[i*n+to], b)
		})
		w.members = append(w.members, m)
	}
	return w
}

func (w *world) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: %s", w.name, fmt.Sprintf(format, args...))
}

// step lets one thing happen; false: nothing can.
func (w *world) step(leave bool) bool {
	n := len(w.members)
	var can []func()
	for i, m := range w.members {
		if m.dead {
			continue
		}
		if m.number == 0 && m.done < w.rounds {
			can = append(can, func() {
				own := Value{And: w.rnd.Uint64() | w.rnd.Uint64(), Max: uint64(w.rnd.IntN(1000))}
				m.own = append(m.own, own)
				m.number = m.machine.Begin(own)
			})
		}
		if leave && m.done == w.rounds && w.deaths < n-1 {
			can = append(can, func() { m.dead = true; w.deaths++ })
		}
		for j, o := range w.members {
			if o.dead && !m.knows[j] {
				can = append(can, func() { m.knows[j] = true; m.machine.Down(j) })
			}
			if line := &w.lines[j*n+i]; len(*line) > 0 {
				can = append(can, func() {
					b := (*line)[0]
					*line = (*line)[1:]
					if err := m.machine.Receive(j, b); err != nil {
						w.fatalf("member %d: %v", i, err)
					}
				})
			}
		}
	}
	if len(can) == 0 {
		return false
	}
	can[w.rnd.IntN(len(can))]()
	for i, m := range w.members {
		if m.number == 0 {
			continue
		}
		v, over, err := m.machine.Decided(m.number)
		if err != nil {
			w.fatalf("member %d: %v", i, err)
		}
		if !over {
			continue
		}
		// Uniform: what the dead have returned with counts too.
		if was, known := w.outcomes[m.number]; known && (was.And != v.And || was.Max != v.Max || !slices.Equal(was.Failed, v.Failed) || !slices.Equal(was.Acked, v.Acked)) {
			w.fatalf("agreement %d: member %d has %v, another one %v", m.number, i, v, was)
		}
		w.outcomes[m.number] = v
		m.number = 0
		m.done++
	}
	return true
}

// check judges the end.
func (w *world) check() {
	for i, m := range w.members {
		if !m.dead && m.done != w.rounds {
			w.fatalf("member %d has ended %d agreements of %d: number %d, first %d", i, m.done, w.rounds, m.machine.number, m.machine.first())
		}
		for number, v := range w.outcomes {
			if !m.dead && (v.And&^m.own[number-1].And != 0 || v.Max < m.own[number-1].Max) {
				w.fatalf("agreement %d: %v lacks what member %d gave: %v", number, v, i, m.own[number-1])
			}
			if !m.dead && v.Failed.Has(i) {
				w.fatalf("agreement %d: %v says that member %d is down", number, v, i)
			}
		}
	}
}

// Whoever dies at whatever message, all that live agree, and with what the dead had returned.
func TestDeathAtEveryStep(t *testing.T) {
	for n := 1; n <= 5; n++ {
		quiet := newWorld(t, "nobody dies", n, 2, 1)
		for quiet.step(false) {
		}
		quiet.check()
		if want := 2 * 4 * (n - 1); quiet.sent != want {
			t.Errorf("%d members: %d messages in two agreements, want %d", n, quiet.sent, want)
		}
		for first := 1; first <= quiet.sent; first++ {
			for seed := range uint64(40) {
				for _, second := range []int{0, first + 1, first + 1 + int(seed)%7} {
					w := newWorld(t, fmt.Sprintf("%d members, deaths at messages %d and %d, seed %d", n, first, second, seed), n, 2, seed, first, second)
					for w.step(seed%2 == 1) {
					}
					w.check()
				}
			}
		}
	}
}

// Larger worlds, more deaths.
func TestRandomDeaths(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for seed := range uint64(2000) {
		n := 2 + rnd.IntN(12)
		var dieAt []int
		for range rnd.IntN(n) {
			dieAt = append(dieAt, 1+rnd.IntN(16*n))
		}
		w := newWorld(t, fmt.Sprintf("%d members, deaths at messages %v, seed %d", n, dieAt, seed), n, 3, seed, dieAt...)
		for w.step(seed%2 == 1) {
		}
		w.check()
	}
}

// A member that others hold for dead is told so.
func TestOutcast(t *testing.T) {
	w := newWorld(t, "outcast", 3, 1, 1)
	w.members[1].machine.Down(0)
	number := uint64(0)
	for _, m := range w.members {
		if b := m.machine.Begin(Value{And: 1}); m == w.members[0] {
			number = b
		}
	}
	w.deliver()
	if _, over, err := w.members[0].machine.Decided(number); !over || !errors.Is(err, ErrOutcast) {
		t.Errorf("member 0: over %v, %v, want %v", over, err, ErrOutcast)
	}
	number = w.members[0].machine.Begin(Value{}) // the program goes on
	if _, over, err := w.members[0].machine.Decided(number); !over || !errors.Is(err, ErrOutcast) {
		t.Errorf("member 0 again: over %v, %v, want %v", over, err, ErrOutcast)
	}
	for i := 1; i < 3; i++ {
		if v, over, err := w.members[i].machine.Decided(1); !over || err != nil || !slices.Equal(v.Failed, group.Bits{1}) {
			t.Errorf("member %d: %v, over %v, %v, want member 0 failed", i, v, over, err)
		}
	}
}

// deliver has all messages arrive, the lines one after the other.
func (w *world) deliver() {
	n := len(w.members)
	for moved := true; moved; {
		moved = false
		for at := range w.lines {
			for len(w.lines[at]) > 0 {
				b := w.lines[at][0]
				w.lines[at], moved = w.lines[at][1:], true
				if err := w.members[at%n].machine.Receive(at/n, b); err != nil {
					w.t.Fatal(err)
				}
			}
		}
	}
}

// Two members that have lost only each other both coordinate, and others put both out: those that are left agree,
// in whatever order the messages come.
func TestTwoCoordinatorsOut(t *testing.T) {
	both := false
	for seed := range uint64(3000) {
		n := 4 + int(seed%3)
		w := newWorld(t, fmt.Sprintf("%d members, seed %d", n, seed), n, 1, seed)
		w.members[0].machine.Down(1)
		w.members[1].machine.Down(0)
		for _, i := range w.rnd.Perm(n) {
			w.members[i].number = w.members[i].machine.Begin(Value{And: 1})
		}
		for {
			var can []int
			for at, line := range w.lines {
				if len(line) > 0 && at != 1 && at != n {
					can = append(can, at)
				}
			}
			if len(can) == 0 {
				break
			}
			at := can[w.rnd.IntN(len(can))]
			b := w.lines[at][0]
			w.lines[at] = w.lines[at][1:]
			if err := w.members[at%n].machine.Receive(at/n, b); err != nil {
				t.Fatal(err)
			}
		}
		out, was := 0, (*Value)(nil)
		for i, m := range w.members {
			v, over, err := m.machine.Decided(m.number)
			switch {
			case !over || err != nil && i > 1:
				w.fatalf("member %d: over %v, %v", i, over, err)
			case err != nil:
				out++
			case was != nil && !slices.Equal(was.Failed, v.Failed):
				w.fatalf("member %d has %v, another one %v", i, v, *was)
			default:
				was = &v
			}
		}
		both = both || out == 2
	}
	if !both {
		t.Error("never were both put out")
	}
}

// A decision counts although its sender is known to have died since.
func TestDecisionOfTheDead(t *testing.T) {
	w := newWorld(t, "a decision of the dead", 3, 1, 1)
	for _, m := range w.members {
		m.machine.Begin(Value{And: 1})
	}
	for _, hop := range [][2]int{{1, 0}, {2, 0}, {0, 1}, {0, 2}, {1, 0}, {2, 0}} {
		line := &w.lines[hop[0]*3+hop[1]]
		b := (*line)[0]
		*line = (*line)[1:]
		if err := w.members[hop[1]].machine.Receive(hop[0], b); err != nil {
			t.Fatal(err)
		}
	}
	decision := w.lines[1][0]
	w.members[1].machine.Down(0)
	if err := w.members[1].machine.Receive(0, decision); err != nil {
		t.Fatal(err)
	}
	if v, over, err := w.members[1].machine.Decided(1); !over || err != nil || v.And != 1 {
		t.Errorf("%v, over %v, %v, want what member 0 had decided", v, over, err)
	}
}

// Damaged messages are refused, and change nothing.
func FuzzReceive(f *testing.F) {
	seed := &message{kind: report, number: 1, ballot: 0, accepted: -1, value: Value{And: 3, Failed: group.Bits{0}}}
	f.Add(1, seed.pack())
	f.Add(2, (&message{kind: propose, number: 2, down: group.Bits{4}}).pack())
	f.Add(0, []byte{0x98})
	f.Fuzz(func(t *testing.T, from int, b []byte) {
		sent := 0
		m := New(3, 1, func(to int, b []byte) {
			if sent++; to == 1 || to < 0 || to > 2 {
				t.Errorf("a message to %d", to)
			}
		})
		m.Begin(Value{And: 1})
		_ = m.Receive(from, b)
		m.Down(0)
		m.Down(2)
		if _, over, _ := m.Decided(1); !over {
			t.Error("alone, and not decided")
		}
	})
}
