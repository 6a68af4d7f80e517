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

// serve is called when a rank's socket is ready.
func (s *server) serve(local int, events uint32) {
	r := &s.ranks[local]
	if r.socket < 0 {
		return
	}
	if r.stuck {
		if events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			s.closeSocket(local)
			return
		}
		s.reply(local, nil)
		return
	}
	s.receive(local)
}

// receive reads once from a rank's socket and tells whether there may be more.
// While replies wait in front of a full socket nothing is read from it, which
// bounds what a rank can make us keep.
func (s *server) receive(local int) bool {
	r := &s.ranks[local]
	if r.socket < 0 || r.stuck {
		return false
	}
	n, who, err := s.read(local)
	switch {
	case err == unix.EINTR:
		return true
	case err == unix.EAGAIN:
		return false
	case err != nil || n == 0:
		s.closeSocket(local)
		return false
	}
	s.expectFences()
	if r.speaker > 0 && who > 0 && who != r.speaker && !threadOf(who, r.speaker) {
		if answer := pmi.Farewell(s.buf[:n]); answer != nil {
			s.log("rank %d: process %d, which has inherited its connection, is through with MPI: the rank is not", s.rankOf(local), who)
			s.reply(local, answer)
			return true
		}
	}
	e, rank := s.engine(local), s.rankOf(local)
	first := !e.Joined(rank) && r.world == 0
	s.apply(e, e.Receive(rank, s.buf[:n]))
	if first && e.Joined(rank) {
		r.speaker = who
	}
	if first && e.Joined(rank) && !e.Shown(rank) { // no rank of package rank
		s.loaded(local, false)
	}
	if n == len(s.buf) && n < bufMost {
		s.buf = s.large()
	}
	return true
}

// read reads from a rank's socket, and tells which process has written that; 0: the kernel does not say. What a child writes
// that has inherited the socket, as one of fork that ends by exit does under MPICH 4.2 and later, which finalizes PMI then,
// is never in one read with what the rank has written.
func (s *server) read(local int) (n, who int, err error) {
	r := &s.ranks[local]
	if s.dials(local) {
		n, _, err = unix.Recvfrom(r.socket, s.buf, unix.MSG_DONTWAIT)
		return n, 0, err
	}
	var control [64]byte // room for one ucred
	n, m, _, _, err := unix.Recvmsg(r.socket, s.buf, control[:], unix.MSG_DONTWAIT|unix.MSG_CMSG_CLOEXEC)
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
func (s *server) expectFences() {
	if s.cfg.Store != nil {
		s.cfg.Store.Expect()
	}
}

// closeSocket is the end of a rank's socket.
func (s *server) closeSocket(local int) {
	r := &s.ranks[local]
	s.unwatch(&r.socket)
	r.send, r.stuck = nil, false
	if !r.gone {
		r.silent = time.Now().Add(silence)
		s.holds++
	}
}

// silentOnTime tells the engine of ranks that live on without a socket.
func (s *server) silentOnTime(now time.Time) {
	if s.holds == 0 {
		return
	}
	for i, r := range s.up() {
		if !r.silent.IsZero() && !now.Before(r.silent) {
			s.unhold(r)
			s.part(i) // its shell lives on
			e := s.engine(i)
			s.apply(e, e.Disconnect(s.rankOf(i)))
		}
	}
}

func (s *server) unhold(r *rank) {
	if !r.silent.IsZero() {
		r.silent = time.Time{}
		s.holds--
	}
}

// apply does what an engine wants done.
func (s *server) apply(engine *pmi.Engine, events []pmi.Event) {
	for _, e := range events {
		switch e := e.(type) {
		case pmi.Reply:
			s.reply(s.spec.local(e.Rank), e.Data)
		case pmi.Fence:
			s.fence(engine, e)
		case pmi.Abort:
			r := &s.ranks[s.spec.local(e.Rank)]
			r.bad, r.aborted = true, true
			s.emit(Event{Kind: Aborted, Rank: e.Rank, Status: e.Code, Text: e.Message})
		case pmi.Violation:
			s.violation(engine, e)
		case pmi.Name, pmi.Spawn:
			s.ask(e)
		}
	}
}

// unencrypted ends what is said of a rank that a job with Spec.Secure does not serve.
const unencrypted = "; expected a Go program with rank.Config{Secure: softtls.Handshake}; try without --secure, on a network that you trust"

func (s *server) violation(engine *pmi.Engine, v pmi.Violation) {
	text := v.Err.Error()
	if re, ok := errors.AsType[*pmi.RankError](v.Err); ok {
		text = "pmi: " + re.Kind.Error() + ": " + re.Detail // the rank is named beside it
		if re.Kind == pmi.ErrSecure {
			text = "--secure: " + re.Detail + unencrypted
		}
	}
	if local := s.spec.local(v.Rank); local >= 0 {
		s.ranks[local].bad = true
	}
	late := errors.Is(v.Err, pmi.ErrLeft) || errors.Is(v.Err, pmi.ErrFence)
	// A rank that enters a fence which can no more be completed waits too.
	stuck := engine.Waiting() > 0 || !errors.Is(v.Err, pmi.ErrLeft)
	s.emit(Event{Kind: Violated, Rank: v.Rank, Text: text, Late: late, Elsewhere: errors.Is(v.Err, pmi.ErrFence), Stuck: stuck})
}

// reply writes to a rank's socket what it takes and keeps the rest, uncopied: all ranks of a host read the same
// cards, which may be hundreds of megabytes.
func (s *server) reply(local int, data []byte) {
	r := &s.ranks[local]
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
			s.closeSocket(local)
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
		s.rewatch(r.socket, events, sourcePMI, local)
	}
}

// fence completes a fence, at once when there is no other host.
func (s *server) fence(engine *pmi.Engine, f pmi.Fence) {
	if s.cfg.Store == nil {
		s.apply(engine, engine.FenceDone(f.Epoch, [][]byte{f.Contribution}))
		if !f.Closing { // else no rank waits
			s.emit(Event{Kind: Fenced})
		}
		return
	}
	// All hosts go through the fences of one world after those of the other, so
	// their counts agree.
	s.fences++
	epoch := s.fences
	then := func(all [][]byte, err error) { s.mail.post(letter{fence: &fenced{engine, f.Epoch, all, err}}) }
	if f.Closing {
		// Nobody here waits for it, but others may: it goes on after the
		// host is done, until the owner of the store closes it.
		then = func([][]byte, error) {}
	}
	s.cfg.Store.Begin(epoch, f.Contribution, then)
}

func (s *server) fenceReturned(f *fenced) {
	if f.err != nil {
		s.apply(f.engine, f.engine.FenceFailed(f.epoch, f.err))
		return
	}
	s.apply(f.engine, f.engine.FenceDone(f.epoch, f.all))
	if s.spec.Index == 0 { // one host tells of it
		s.emit(Event{Kind: Fenced})
	}
}
