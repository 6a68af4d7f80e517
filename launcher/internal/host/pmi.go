package host

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/pmi"
)

// silence is how long a rank may live on after it closed its PMI socket before
// the others are told. A socket ends a moment before its process does, and how
// the process ended says more.
const silence = 250 * time.Millisecond

// fenced is what came of a fence between hosts.
type fenced struct {
	engine *pmi.Engine
	epoch  uint64
	all    [][]byte
	err    error
}

// servePMI is called when a rank's socket is ready.
func (h *Host) servePMI(local int, events uint32) {
	r := &h.ranks[local]
	if r.socket < 0 {
		return
	}
	if r.stuck {
		if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			h.closeSocket(local)
			return
		}
		h.reply(local, nil)
		return
	}
	h.receive(local)
}

// receive reads once from a rank's socket and tells whether there may be more.
// While replies wait in front of a full socket nothing is read from it, which
// bounds what a rank can make us keep.
func (h *Host) receive(local int) bool {
	r := &h.ranks[local]
	if r.socket < 0 || r.stuck {
		return false
	}
	n, who, err := h.read(local)
	switch {
	case err == unix.EINTR:
		return true
	case err == unix.EAGAIN:
		return false
	case err != nil || n == 0:
		h.closeSocket(local)
		return false
	}
	h.expectFences()
	if r.speaker > 0 && who > 0 && who != r.speaker && !threadOf(who, r.speaker) {
		if answer := pmi.Farewell(h.buf[:n]); answer != nil {
			h.log("rank %d: process %d, which has inherited its connection, is through with MPI: the rank is not", h.rankOf(local), who)
			h.reply(local, answer)
			return true
		}
	}
	e, rank := h.engine(local), h.rankOf(local)
	first := !e.Joined(rank) && r.world == 0
	h.apply(e, e.Receive(rank, h.buf[:n]))
	if first && e.Joined(rank) {
		r.speaker = who
	}
	if first && e.Joined(rank) && !e.Shown(rank) { // no rank of package rank
		h.loaded(local, false)
	}
	if n == len(h.buf) && n < bufMost {
		h.buf = h.large()
	}
	return true
}

// read reads from a rank's socket, and tells which process has written that; 0: the kernel does not say. What a child writes
// that has inherited the socket, as one of fork that ends by exit does under MPICH 4.2 and later, which finalizes PMI then,
// is never in one read with what the rank has written.
func (h *Host) read(local int) (n, who int, err error) {
	r := &h.ranks[local]
	if h.dials(local) {
		n, _, err = unix.Recvfrom(r.socket, h.buf, unix.MSG_DONTWAIT)
		return n, 0, err
	}
	var control [64]byte // room for one ucred
	n, m, _, _, err := unix.Recvmsg(r.socket, h.buf, control[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
	if err != nil || m == 0 {
		return n, 0, err
	}
	messages, _ := unix.ParseSocketControlMessage(control[:m])
	for i := range messages {
		if cred, no := unix.ParseUnixCredentials(&messages[i]); no == nil {
			who = int(cred.Pid)
		}
	}
	return n, who, nil
}

// threadOf tells whether a thread belongs to a process, which may be named by any of its threads: gVisor gives the writing
// thread where Linux gives the process (runsc 20221219), and what package rank writes comes from any thread.
func threadOf(thread, process int) bool {
	_, err := os.Stat(fmt.Sprintf("/proc/%d/task/%d", process, thread))
	return err == nil
}

// expectFences is called when a rank has spoken.
func (h *Host) expectFences() {
	if h.cfg.Store != nil {
		h.cfg.Store.Expect()
	}
}

// closeSocket is the end of a rank's socket.
func (h *Host) closeSocket(local int) {
	r := &h.ranks[local]
	h.unwatch(&r.socket)
	r.send, r.stuck = nil, false
	if !r.gone {
		r.silent = time.Now().Add(silence)
		h.holds++
	}
}

// silentOnTime tells the engine of ranks that live on without a socket.
func (h *Host) silentOnTime(now time.Time) {
	if h.holds == 0 {
		return
	}
	for i, r := range h.up() {
		if !r.silent.IsZero() && !now.Before(r.silent) {
			h.unhold(r)
			h.part(i) // its shell lives on
			e := h.engine(i)
			h.apply(e, e.Disconnect(h.rankOf(i)))
		}
	}
}

func (h *Host) unhold(r *rank) {
	if !r.silent.IsZero() {
		r.silent = time.Time{}
		h.holds--
	}
}

// apply does what an engine wants done.
func (h *Host) apply(engine *pmi.Engine, events []pmi.Event) {
	for _, e := range events {
		switch e := e.(type) {
		case pmi.Reply:
			h.reply(h.spec.local(e.Rank), e.Data)
		case pmi.Fence:
			h.fence(engine, e)
		case pmi.Abort:
			r := &h.ranks[h.spec.local(e.Rank)]
			r.bad, r.aborted = true, true
			h.emit(Event{Kind: Aborted, Rank: e.Rank, Status: e.Code, Text: e.Message})
		case pmi.Violation:
			h.violation(engine, e)
		case pmi.Name, pmi.Spawn:
			h.ask(e)
		}
	}
}

// unencrypted ends what is said of a rank that a job with Spec.Secure does not serve.
const unencrypted = "; expected a Go program with rank.Config{Secure: softtls.Handshake}; try without --secure, on a network that you trust"

func (h *Host) violation(engine *pmi.Engine, v pmi.Violation) {
	text := v.Err.Error()
	if re, ok := errors.AsType[*pmi.RankError](v.Err); ok {
		text = "pmi: " + re.Kind.Error() + ": " + re.Detail // the rank is named beside it
		if re.Kind == pmi.ErrSecure {
			text = "--secure: " + re.Detail + unencrypted
		}
	}
	if local := h.spec.local(v.Rank); local >= 0 {
		h.ranks[local].bad = true
	}
	late := errors.Is(v.Err, pmi.ErrLeft) || errors.Is(v.Err, pmi.ErrFence)
	// A rank that enters a fence which can no more be completed waits too.
	stuck := engine.Waiting() > 0 || !errors.Is(v.Err, pmi.ErrLeft)
	h.emit(Event{Kind: Violated, Rank: v.Rank, Text: text, Late: late, Elsewhere: errors.Is(v.Err, pmi.ErrFence), Stuck: stuck})
}

// reply writes to a rank's socket what it takes and keeps the rest, uncopied: all ranks of a host read the same
// cards, which may be hundreds of megabytes.
func (h *Host) reply(local int, data []byte) {
	r := &h.ranks[local]
	if r.socket < 0 {
		return
	}
	if len(r.send) > 0 {
		r.send = append(r.send, data...)
		data = r.send
	}
	for len(data) > 0 {
		n, err := unix.SendmsgN(r.socket, data, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch {
		case err == nil:
			data = data[n:]
			continue
		case err == unix.EINTR:
			continue
		case err != unix.EAGAIN:
			h.closeSocket(local)
			return
		}
		break
	}
	r.send = slices.Clip(data) // others may read what follows
	if stuck := len(data) > 0; stuck != r.stuck {
		r.stuck = stuck
		events := uint32(unix.EPOLLIN)
		if stuck {
			events = unix.EPOLLOUT
		}
		h.rewatch(r.socket, events, sourcePMI, local)
	}
}

// fence completes a fence, at once when there is no other host.
func (h *Host) fence(engine *pmi.Engine, f pmi.Fence) {
	if h.cfg.Store == nil {
		h.apply(engine, engine.FenceDone(f.Epoch, [][]byte{f.Contribution}))
		if !f.Closing { // else no rank waits
			h.emit(Event{Kind: Fenced})
		}
		return
	}
	// All hosts go through the fences of one world after those of the other, so
	// their counts agree.
	h.fences++
	epoch := h.fences
	then := func(all [][]byte, err error) { h.mail.post(letter{fence: &fenced{engine, f.Epoch, all, err}}) }
	if f.Closing {
		// Nobody here waits for it, but others may: it goes on after the
		// host is done, until the owner of the store closes it.
		then = func([][]byte, error) {}
	}
	h.cfg.Store.Begin(epoch, f.Contribution, then)
}

func (h *Host) fenceReturned(f *fenced) {
	if f.err != nil {
		h.apply(f.engine, f.engine.FenceFailed(f.epoch, f.err))
		return
	}
	h.apply(f.engine, f.engine.FenceDone(f.epoch, f.all))
	if h.spec.Index == 0 { // one host tells of it
		h.emit(Event{Kind: Fenced})
	}
}
