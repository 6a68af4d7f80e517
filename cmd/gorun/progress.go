package main

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/launcher"
)

// How often the table changes: with each sample of what ranks use, and in
// between at most as often as people can read.
const (
	sampleEvery = 500 * time.Millisecond
	drawEvery   = 100 * time.Millisecond
	tellEvery   = time.Second // a line, where there is no terminal
)

// progress shows how a job goes: a table on a terminal, lines elsewhere. Where the
// terminal is stopped, its methods wait.
type progress struct {
	screen *screen   // nil: lines are written to out
	out    io.Writer // standard error
	now    func() time.Time

	mu    sync.Mutex // guards the rest, and is held while it is shown
	begun time.Time
	last  time.Time // of drawing or telling
	hosts int
	ready int // agents
	want  int // ranks
	ranks []*shownRank
	ended int
	ends  map[string]int // how many ended how
}

// shownRank is a line of the table.
type shownRank struct {
	group, rank int
	host        string
	state       string
	line        string
	heard       time.Time // when it started, or wrote the line
	cpu         time.Duration
	at          time.Time // of cpu
	load        float64   // of a CPU
	rss         int64
}

func newProgress(s *screen, out io.Writer, now func() time.Time) *progress {
	return &progress{screen: s, out: out, now: now, begun: now(), ends: make(map[string]int)}
}

// follow makes the progress of a job, and has what is written to a terminal go
// through its screen.
func follow(std *stdio) *progress {
	out, errs := terminalOf(std.out), terminalOf(std.err)
	var s *screen
	if errs != nil {
		s = &screen{w: errs, size: func() (rows, cols int) { return sizeOf(errs) }}
		std.err = s
		if out != nil {
			std.out = s
		}
	}
	return newProgress(s, std.err, time.Now)
}

// placed is told where ranks go, before they start.
func (p *progress) placed(place launcher.Placement) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hosts := map[int]bool{}
	p.want = len(place.Ranks)
	for _, r := range place.Ranks {
		hosts[r.Host] = true
	}
	p.hosts = len(hosts)
	p.draw()
}

// watch is told what happens.
func (p *progress) watch(c launcher.Change) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Kind == launcher.AgentReady {
		p.ready++
		p.draw()
		return
	}
	r := p.rank(c)
	now := p.now()
	switch c.Kind {
	case launcher.RankStarted:
		*r = shownRank{group: c.Group, rank: c.Rank, host: c.Host, state: running, heard: now}
		if p.screen == nil && len(p.ranks) == p.want {
			p.tell("%d ranks started%s after %.2f s", p.want, p.on(), now.Sub(p.begun).Seconds())
		}
	case launcher.RankSaid:
		r.line, r.heard = clean(c.Line), now
	case launcher.RankUses:
		if !r.at.IsZero() && now.After(r.at) {
			r.load = max(0, float64(c.CPU-r.cpu)/float64(now.Sub(r.at)))
		}
		r.cpu, r.rss, r.at = c.CPU, c.RSS, now
	case launcher.RankEnded:
		p.ended++
		r.load, r.state = 0, howEnded(c.End)
		p.ends[r.state]++
		if p.screen == nil && (p.done() || now.Sub(p.last) >= tellEvery) {
			p.tell("%s", p.status())
		}
	}
	if !c.More && now.Sub(p.last) >= drawEvery || c.Kind != launcher.RankSaid && c.Kind != launcher.RankUses {
		p.draw()
	}
}

// rank is the line of the rank that a change tells of, in order.
func (p *progress) rank(c launcher.Change) *shownRank {
	at, found := slices.BinarySearchFunc(p.ranks, c, func(r *shownRank, c launcher.Change) int {
		if r.group != c.Group {
			return r.group - c.Group
		}
		return r.rank - c.Rank
	})
	if !found {
		p.ranks = slices.Insert(p.ranks, at, &shownRank{group: c.Group, rank: c.Rank, host: c.Host, state: starting})
		if c.Group > 0 {
			p.want++
		}
	}
	return p.ranks[at]
}

// States of a rank that has not ended.
const (
	starting = "starting"
	running  = "running"
	slow     = "slow"
)

// Ways to end that are neither a status nor a signal.
const (
	wayTold = "told to end"
	wayDone = "done"
)

func howEnded(e launcher.RankEnd) string {
	switch {
	case e.Told:
		return wayTold
	case e.Signal != 0:
		return fmt.Sprintf("signal %d", int(e.Signal))
	case e.Status != 0:
		return fmt.Sprintf("status %d", e.Status)
	}
	return wayDone
}

// status is how far the job is, in a line.
func (p *progress) status() string {
	took := p.now().Sub(p.begun).Seconds()
	on := p.on()
	switch {
	case p.done():
		return fmt.Sprintf("all %d ranks have ended after %.2f s%s", p.ended, took, p.ways())
	case p.ended > 0:
		return fmt.Sprintf("%d of %d ranks have ended after %.2f s%s", p.ended, max(p.want, len(p.ranks)), took, p.ways())
	case len(p.ranks) > 0 && len(p.ranks) >= p.want:
		return fmt.Sprintf("%d ranks run%s, %.2f s", len(p.ranks), on, took)
	case len(p.ranks) > 0:
		return fmt.Sprintf("starting ranks: %d of %d%s, %.2f s", len(p.ranks), p.want, on, took)
	case p.ready > 0:
		return fmt.Sprintf("starting agents: %d of %d hosts have answered, %.2f s", p.ready, p.hosts, took)
	}
	return fmt.Sprintf("starting %d ranks%s, %.2f s", p.want, on, took)
}

// on says on how many hosts the ranks are, if on more than one.
func (p *progress) on() string {
	if p.hosts < 2 {
		return ""
	}
	return fmt.Sprintf(" on %d hosts", p.hosts)
}

func (p *progress) done() bool { return p.ended > 0 && p.ended == max(p.want, len(p.ranks)) }

// ways tells how ranks ended that did not end well.
func (p *progress) ways() string {
	text := ""
	var ways []string
	for way := range p.ends {
		if way != wayDone {
			ways = append(ways, way)
		}
	}
	slices.Sort(ways)
	for _, way := range ways {
		how := "with " + way
		if way == wayTold {
			how = way
		}
		text += fmt.Sprintf(", %d %s", p.ends[way], how)
	}
	return text
}

// tell writes a line where there is no terminal.
func (p *progress) tell(format string, args ...any) {
	p.last = p.now()
	fmt.Fprintf(p.out, "gorun: "+format+"\n", args...)
}

// draw shows the table anew: the ranks that failed, those that are slow, those
// that run, those that have ended.
func (p *progress) draw() {
	if p.screen == nil {
		return
	}
	p.last = p.now()
	table := []string{"gorun: " + p.status()}
	rows, _ := p.screen.dimensions()
	room := max(1, rows/2-3)
	shown := slices.Clone(p.ranks)
	p.judge()
	slices.SortStableFunc(shown, func(a, b *shownRank) int { return a.urgency() - b.urgency() })
	shown = shown[:min(room, len(shown))]
	if len(shown) > 0 {
		table = append(table, fmt.Sprintf("%6s  %-12s  %-11s  %5s  %8s  %s", "rank", "host", "state", "CPU", "memory", "last line"))
	}
	for _, r := range shown {
		name := fmt.Sprint(r.rank)
		if r.group > 0 {
			name = fmt.Sprintf("%d.%d", r.group, r.rank) // of a spawn
		}
		table = append(table, fmt.Sprintf("%6s  %-12s  %-11s  %4.0f%%  %8s  %s", name, cut(r.host, 12), r.state, 100*r.load, size(r.rss), r.line))
	}
	if more := len(p.ranks) - len(shown); more > 0 {
		table = append(table, fmt.Sprintf("%6s  and %d more", "...", more))
	}
	p.screen.show(table)
}

// slowAfter is how long a rank may write nothing while others write.
const slowAfter = 5 * time.Second

// judge finds the slow ranks: those that have written nothing for slowAfter while
// more than half of all that run have. So no rank is slow where only one writes.
func (p *progress) judge() {
	alive, fresh := 0, 0
	for _, r := range p.ranks {
		if r.state == running || r.state == slow {
			if r.state, alive = running, alive+1; p.last.Sub(r.heard) < slowAfter {
				fresh++
			}
		}
	}
	for _, r := range p.ranks {
		if r.state == running && 2*fresh > alive && p.last.Sub(r.heard) >= slowAfter {
			r.state = slow
		}
	}
}

// urgency is where a rank stands in the table.
func (r *shownRank) urgency() int {
	if at := slices.Index([]string{slow, starting, running, wayTold, wayDone}, r.state); at >= 0 {
		return 1 + at
	}
	return 0 // it has failed
}

func size(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n > 0:
		return fmt.Sprintf("%.0f MiB", float64(n)/(1<<20))
	}
	return "-"
}

// close takes the table away and leaves a line.
func (p *progress) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.screen == nil {
		return
	}
	p.screen.show(nil)
	if len(p.screen.open) > 0 {
		fmt.Fprintln(p.screen)
	}
	if len(p.ranks) > 0 {
		fmt.Fprintf(p.screen, "gorun: %s\n", p.status())
	}
}
