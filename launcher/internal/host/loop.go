package host

import (
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// source is whose descriptor is ready. The first two are the streams.
type source int32

const (
	sourceMail    source = 0
	sourceStdout  source = Stdout
	sourceStderr  source = Stderr
	sourceProcess source = 3
	sourcePMI     source = 4
	sourceInput   source = 5
	sourceGuest   source = 7 // its number is the descriptor
	sourcePMIx    source = 8
	sourceGuard   source = 9
	sourceDaemon  source = 10
)

// watch enters a descriptor in the loop. An epoll event carries 64 bits of its
// owner's choice: here the source and the rank's local number.
func (h *Host) watch(fd int, events uint32, s source, local int) error {
	e := unix.EpollEvent{Events: events, Fd: int32(s), Pad: int32(local)}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(h.poll.fd, unix.EPOLL_CTL_ADD, fd, &e))
}

// rewatch changes what a descriptor is watched for.
func (h *Host) rewatch(fd int, events uint32, s source, local int) {
	e := unix.EpollEvent{Events: events, Fd: int32(s), Pad: int32(local)}
	if err := unix.EpollCtl(h.poll.fd, unix.EPOLL_CTL_MOD, fd, &e); err != nil {
		h.log("epoll_ctl: %v", err)
	}
}

// unwatch takes a descriptor out and closes it. Closing alone would not do: a
// child that is just being made may still hold it.
func (h *Host) unwatch(fd *int) {
	if *fd < 0 {
		return
	}
	if err := unix.EpollCtl(h.poll.fd, unix.EPOLL_CTL_DEL, *fd, nil); err != nil {
		h.log("epoll_ctl: %v", err)
	}
	closeFD(fd)
}

// loop serves the ranks until all have ended and their output is in.
func (h *Host) loop() error {
	h.complete = true
	h.singletons.since = time.Now()
	if h.spec.Sample > 0 {
		h.sample = time.Now().Add(h.spec.Sample)
	}
	h.beginStallWatch()
	if h.running == 0 {
		h.allEnded() // during the start
	}
	for h.running > 0 || !h.drained() {
		if err := h.turn(h.patience()); err != nil {
			return err
		}
		h.onTime()
		h.tellLingers()
	}
	h.leave()
	h.lastSaid()
	h.flushLines()
	for h.aside.waiting > 0 && !h.discard {
		if err := h.turn(-1); err != nil {
			return err
		}
	}
	return h.serveOthers()
}

// lastSaid waits for what ranks that ended badly have said by way of the PMIx server:
// Open MPI 5 explains there what went wrong, and exits without waiting for an answer.
func (h *Host) lastSaid() {
	if h.pmix == nil || h.abandoned || !slices.ContainsFunc(h.ranks, func(r rank) bool { return r.bad }) {
		return
	}
	h.pmix.Drain(h.spec.PMIx.Name, saidLimit)
	h.readMail()
}

// saidLimit bounds how long that takes, where a rank has left processes behind that
// hold its connection.
const saidLimit = time.Second

// patience is how long the loop may sleep: until the next deadline.
func (h *Host) patience() time.Duration {
	if h.lingers() {
		return 0 // what closes has been closed by now
	}
	next := h.ending.next
	if h.ending.wished {
		next = time.Now().Add(heedEvery)
	}
	sooner := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	sooner(h.graceEnds())
	if h.holds > 0 {
		for _, r := range h.up() {
			sooner(r.silent)
		}
	}
	sooner(h.nextLook())
	sooner(h.nextGuest())
	sooner(h.prompt)
	sooner(h.sample)
	sooner(h.crashLook)
	sooner(h.stall.next)
	sooner(h.daemon.look)
	if next.IsZero() {
		return -1
	}
	return max(0, time.Until(next))
}

// onTime does what is due.
func (h *Host) onTime() {
	if !h.ending.wished && !h.linger.runs && h.ending.next.IsZero() && h.holds == 0 && h.prompt.IsZero() && h.sample.IsZero() && h.crashLook.IsZero() && h.stall.next.IsZero() && h.daemon.look.IsZero() && h.nextLook().IsZero() && h.nextGuest().IsZero() {
		return
	}
	now := time.Now()
	h.lookOnTime(now)
	h.heedOnTime(now)
	h.endingOnTime(now)
	h.silentOnTime(now)
	h.promptsOnTime(now)
	h.sampleOnTime(now)
	h.crashesOnTime(now)
	h.guestsOnTime(now)
	h.stallOnTime(now)
	h.daemonOnTime(now)
	h.lingerOnTime(now)
}

// serve is loop, where other hosts take part in fences on whatever thread is at hand: a thread that a goroutine is locked to is
// woken by another one, which costs more than most of what the loop is woken for.
func (h *Host) serve() error {
	if h.cfg.Store == nil {
		return h.loop()
	}
	done := make(chan error)
	go func() { done <- h.loop() }()
	return <-done
}

// turn waits for events, at most for d, for ever if d < 0, and serves them.
func (h *Host) turn(d time.Duration) error {
	events, err := h.poll.wait(d)
	if err != nil {
		return err
	}
	h.served = len(events)
	for _, e := range events {
		// An earlier event of the batch may have closed the descriptor of a
		// later one: the goroutine that serves it looks.
		local := int(e.Pad)
		if e.Fd != int32(sourceMail) {
			h.moves.Add(1)
		}
		switch s := source(e.Fd); s {
		case sourceMail:
			h.readMail()
		case sourceStdout, sourceStderr:
			h.readPipe(local, int(s), e.Events)
		case sourceProcess:
			h.processEnded(local)
		case sourcePMI:
			h.servePMI(local, e.Events)
		case sourcePMIx:
			h.beginPMIx()
		case sourceInput:
			h.inputReady(local, e.Events)
		case sourceGuest:
			h.hear(local)
		case sourceGuard:
			h.guardEnded()
		case sourceDaemon:
			h.daemonEnded()
		}
	}
	return nil
}

// readMail does what other goroutines ask for.
func (h *Host) readMail() {
	for _, l := range h.mail.take() {
		switch {
		case l.ended:
			h.processEnded(l.local)
		case l.guest:
			h.admit(l.local)
		case l.stranger:
			h.stranger(l.local)
		case l.heard:
			h.ranks[l.local].heard = true
			h.processEnded(l.local)
		case l.started != nil:
			h.rankStarted(*l.started)
		case l.fence != nil:
			h.fenceReturned(l.fence)
		default:
			h.obey(l.command)
		}
	}
}

func (h *Host) obey(c Command) {
	switch c.Kind {
	case Pass:
		if c.Ranks != nil {
			h.signalRanks(c.Signal, c.Ranks)
			return
		}
		h.signalGroups(c.Signal)
		if c.Signal == unix.SIGTSTP {
			h.emit(Event{Kind: Passed})
		}
	case End:
		h.endRanks(c.Signal, c.Heed)
	case Kill:
		h.killNow()
	case Settle:
		h.settle()
	case Wake: // for a look at what the loop waits for
	case Turn:
		h.emit(Event{Kind: Turned})
	case WhoWaits:
		h.emit(Event{Kind: Waiting, Ranks: h.waiting()})
	case Mourn:
		h.mourn(c.Ranks)
	case Look:
		h.examine(c.Last)
	case Abandon:
		h.abandoned = true
		h.killNow()
		h.discardOutput()
	case Input:
		h.takeInput(c.Data, c.Last)
	case Credit:
		h.credit(c.Stream, c.N)
	case Discard:
		if h.running == 0 && h.open > 0 && !h.linger.cut { // a host that gets no CPU hears of it before its own grace is over
			h.cutOutput()
		}
		h.discardOutput()
	case GoOn:
		h.goOn(h.spec.local(c.Rank), c.Stream)
	case Resize:
		h.resize(c.Rows, c.Cols)
	case FromHub:
		if h.pmix != nil {
			h.pmix.Take(c.Data)
		}
	case Came:
		if local := h.spec.local(c.Rank); local >= 0 && h.ranks[local].up && !h.ranks[local].came {
			h.ranks[local].came = true
			h.loaded(local, true)
		}
	case Rejoined:
		h.rejoined(c.Rank, c.Last)
	case Say:
		h.said(c.Rank, c.Stream, c.Data)
	case Answer:
		h.answered(c.Rank, c.Reply)
	}
}
