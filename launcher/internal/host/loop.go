package host

import (
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

// loop serves the ranks until all have ended and their output is in.
func (h *Host) loop() error {
	h.complete = true
	h.watcher.singletons.since = time.Now()
	if h.spec.Sample > 0 {
		h.watcher.sample = time.Now().Add(h.spec.Sample)
	}
	h.watcher.beginStallWatch()
	if h.running == 0 {
		h.allEnded() // during the start
	}
	for h.running > 0 || !h.output.drained() {
		if err := h.turn(h.patience()); err != nil {
			return err
		}
		h.onTime()
		h.output.tellLingers()
	}
	h.leave()
	h.lastSaid()
	h.output.flushLines()
	for h.output.aside.waiting > 0 && !h.output.discard {
		if err := h.turn(-1); err != nil {
			return err
		}
	}
	return h.serveOthers()
}

// lastSaid waits for what ranks that ended badly have said by way of the PMIx server:
// Open MPI 5 explains there what went wrong, and exits without waiting for an answer.
func (h *Host) lastSaid() {
	if h.pmix.server == nil || h.abandoned || !slices.ContainsFunc(h.ranks, func(r rank) bool { return r.bad }) {
		return
	}
	h.pmix.server.Drain(h.spec.PMIx.Name, saidLimit)
	h.readMail()
}

// saidLimit bounds how long that takes, where a rank has left processes behind that
// hold its connection.
const saidLimit = time.Second

// patience is how long the loop may sleep: until the next deadline.
func (h *Host) patience() time.Duration {
	if h.output.lingers() {
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
	sooner(h.output.graceEnds())
	if h.server.holds > 0 {
		for _, r := range h.up() {
			sooner(r.silent)
		}
	}
	sooner(h.watcher.nextLook())
	sooner(h.server.nextGuest())
	sooner(h.output.prompt)
	sooner(h.watcher.sample)
	sooner(h.watcher.crashLook)
	sooner(h.watcher.stall.next)
	sooner(h.daemon.look)
	if next.IsZero() {
		return -1
	}
	return max(0, time.Until(next))
}

// onTime does what is due.
func (h *Host) onTime() {
	if !h.ending.wished && !h.output.linger.runs && h.ending.next.IsZero() && h.server.holds == 0 && h.output.prompt.IsZero() && h.watcher.sample.IsZero() && h.watcher.crashLook.IsZero() && h.watcher.stall.next.IsZero() && h.daemon.look.IsZero() && h.watcher.nextLook().IsZero() && h.server.nextGuest().IsZero() {
		return
	}
	now := time.Now()
	h.watcher.lookOnTime(now)
	h.ending.heedOnTime(now)
	h.ending.onTime(now)
	h.server.silentOnTime(now)
	h.output.promptsOnTime(now)
	h.watcher.sampleOnTime(now)
	h.watcher.crashesOnTime(now)
	h.server.guestsOnTime(now)
	h.watcher.stallOnTime(now)
	h.daemon.onTime(now)
	h.output.lingerOnTime(now)
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
			h.server.serve(local, e.Events)
		case sourcePMIx:
			h.pmix.begin()
		case sourceInput:
			h.input.ready(local, e.Events)
		case sourceGuest:
			h.server.hear(local)
		case sourceGuard:
			h.left.guardEnded()
		case sourceDaemon:
			h.daemon.ended()
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
			h.server.admit(l.local)
		case l.stranger:
			h.server.stranger(l.local)
		case l.heard:
			h.ranks[l.local].heard = true
			h.processEnded(l.local)
		case l.started != nil:
			h.rankStarted(*l.started)
		case l.fence != nil:
			h.server.fenceReturned(l.fence)
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
		h.ending.endRanks(c.Signal, c.Heed)
	case Kill:
		h.ending.killNow()
	case Settle:
		h.output.settle()
	case Wake: // for a look at what the loop waits for
	case Turn:
		h.emit(Event{Kind: Turned})
	case WhoWaits:
		h.emit(Event{Kind: Waiting, Ranks: h.server.waiting()})
	case Mourn:
		h.mourn(c.Ranks)
	case Look:
		h.watcher.examine(c.Last)
	case Abandon:
		h.abandoned = true
		h.ending.killNow()
		h.output.discardOutput()
	case Input:
		h.input.take(c.Data, c.Last)
	case Credit:
		h.output.credit(c.Stream, c.N)
	case Discard:
		if h.running == 0 && h.output.open > 0 && !h.output.linger.cut { // a host that gets no CPU hears of it before its own grace is over
			h.output.cutOutput()
		}
		h.output.discardOutput()
	case GoOn:
		h.output.goOn(h.spec.local(c.Rank), c.Stream)
	case Resize:
		h.output.resize(c.Rows, c.Cols)
	case FromHub:
		if h.pmix.server != nil {
			h.pmix.server.Take(c.Data)
		}
	case Came:
		if local := h.spec.local(c.Rank); local >= 0 && h.ranks[local].up && !h.ranks[local].came {
			h.ranks[local].came = true
			h.server.loaded(local, true)
		}
	case Rejoined:
		h.pmix.rejoined(c.Rank, c.Last)
	case Say:
		h.output.said(c.Rank, c.Stream, c.Data)
	case Answer:
		switch r := c.Reply; {
		case r == nil:
		case r.Tag == 0:
			h.server.answered(c.Rank, r)
		case h.pmix.server != nil && r.Spawn != nil:
			h.pmix.server.Spawned(r.Tag, "gorun_"+r.Spawn.Job, r.Spawn.Err)
		}
	}
}
