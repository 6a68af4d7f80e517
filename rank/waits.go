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
	w.place.segment.TellWait(w.place.local, max(0, now-time.Since(w.waiter.Since())), now, w.appendWait(b[:0]))
}

// appendWait says it in words: "in allreduce, its 3rd, for rank 2".
func (w *World) appendWait(b []byte) []byte {
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
			b = append(b, ", for rank "...)
			b = strconv.AppendInt(b, int64(c.members.Rank(peer)), 10) // not peers: an intercommunicator's team has both groups
		}
		return b
	}
	before := len(b)
	if b = w.messages.AppendWait(b); len(b) > before {
		return b
	}
	open, first := 0, (*request)(nil)
	for _, r := range w.requests {
		if r.active && r.what != nil && !r.what.done() {
			if open++; first == nil {
				first = r
			}
		}
	}
	if first == nil {
		return append(b, "in a call"...)
	}
	b = append(b, "for requests, "...)
	b = strconv.AppendInt(b, int64(open), 10)
	b = append(b, " of which are not over, the first "...)
	op := first.receipt.op
	if m, ok := first.what.(*message); ok {
		op = m.op
	}
	if op != nil && !op.Done() {
		return w.messages.AppendOp(b, op)
	}
	return append(b, first.op...)
}
