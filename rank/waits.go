package rank

import (
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tellWait writes what the rank waits for, and since when, to where its launcher looks when
// it is asked what the ranks are doing. It is called when a sleep has been long.
func (w *World) tellWait() {
	var clock unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) != nil {
		return
	}
	now := time.Duration(clock.Nano())
	var b [256]byte
	text, _ := w.appendWait(b[:0])
	w.place.segment.TellWait(w.place.local, max(0, now-time.Since(w.waiter.Since())), now, text)
}

// A Wait is a call of this rank that has waited for long.
type Wait struct {
	For  time.Duration
	What string // "in allreduce (call 3 of the communicator), for rank 2"
	Peer int    // the rank in the world that is waited for; -1: it is not known, or there are several
}

// longWait is when Config.Waiting is told of a wait first.
const longWait = 5 * time.Second

// longWaits are those that Config.Waiting is told of.
type longWaits struct {
	after time.Duration
	say   func(Wait)
	since time.Time     // of the one that it was told of last
	told  time.Duration // how long it had lasted then
}

// tell tells of a wait that has become long, and then ever more rarely. It is called as tellWait is.
func (l *longWaits) tell(w *World) {
	since := w.waiter.Since()
	if l.since != since {
		l.since, l.told = since, 0
	}
	d := time.Since(since)
	if d < max(l.after, 3*l.told) {
		return
	}
	l.told = d
	text, peer := w.appendWait(nil)
	l.say(Wait{For: d, What: string(text), Peer: peer})
}

// appendWait says it in words, and for which rank in the world, if that is known: "in allreduce, its 3rd, for rank 2".
func (w *World) appendWait(b []byte) (text []byte, peer int) {
	if w.final {
		b = append(b, "in finalize: "...)
	}
	for _, c := range w.comms {
		if c == nil || c.team == nil {
			continue
		}
		kind, number, peer, ok := c.team.Waits()
		if !ok {
			continue
		}
		b = append(append(b, "in "...), kind.String()...)
		if c.name != "" && c.name != worldName {
			b = append(append(b, " on "...), c.name...)
		}
		b = append(b, " (call "...)
		b = strconv.AppendUint(b, number, 10)
		b = append(b, " of the communicator)"...)
		if peer >= 0 {
			peer = c.members.Rank(peer) // not peers: an intercommunicator's team has both groups
			b = append(b, ", for rank "...)
			b = strconv.AppendInt(b, int64(peer), 10)
		}
		return b, peer
	}
	before := len(b)
	if b = w.messages.AppendWait(b); len(b) > before {
		return b, -1
	}
	open, first := 0, (*request)(nil)
	for _, r := range w.requests.all {
		if r.active && r.what != nil && !r.what.done() {
			if open++; first == nil {
				first = r
			}
		}
	}
	if first == nil {
		return append(b, "in a call"...), -1
	}
	b = append(b, "for requests, "...)
	b = strconv.AppendInt(b, int64(open), 10)
	b = append(b, " of which are not over, the first "...)
	op := first.receipt.op
	if m, ok := first.what.(*message); ok {
		op = m.op
	}
	if op != nil && !op.Done() {
		return w.messages.AppendOp(b, op), -1
	}
	return append(b, first.op...), -1
}
