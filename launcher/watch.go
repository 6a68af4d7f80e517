package launcher

import (
	"bytes"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// ChangeKind is what a Change tells of.
type ChangeKind uint8

// What happens in a job.
const (
	AgentReady  ChangeKind = iota + 1 // Host's agent has answered
	RankStarted                       // as PID
	RankSaid                          // Line, which may be unfinished, is the last that it wrote
	RankUses                          // CPU and RSS
	RankEnded                         // End says how
)

// Change is something that happened in a job, for Job.Watch. Group, Rank and Host
// say to whom.
type Change struct {
	Kind  ChangeKind
	Group int
	Rank  int
	Host  string
	PID   int
	Line  string
	CPU   time.Duration // of its process group, since the start
	RSS   int64         // of its process group, in bytes
	End   RankEnd
	More  bool // others of the same moment follow
}

// watch tells Job.Watch, one call at a time.
func (c *controller) watch(change Change) {
	if c.job.Watch == nil {
		return
	}
	c.watching.Lock()
	defer c.watching.Unlock()
	c.job.Watch(change)
}

// said tells of the last line of what a rank has written.
func (c *controller) said(s *seat, e *host.Event) {
	if c.job.Watch == nil {
		return
	}
	text := bytes.TrimRight(e.Data, "\r\n")
	if at := bytes.LastIndexByte(text, '\n'); at >= 0 {
		text = text[at+1:]
	}
	if len(text) == 0 {
		return
	}
	text = text[:min(len(text), lineMost)]
	c.watch(Change{Kind: RankSaid, Group: s.group.id, Rank: e.Rank, Host: s.host(), Line: strings.ToValidUTF8(string(text), "\uFFFD")})
}

// lineMost is how much of a line is told.
const lineMost = 400

// uses tells what ranks use.
func (c *controller) uses(s *seat, samples []host.Sample) {
	for i, u := range samples {
		if s.has(u.Rank) {
			c.watch(Change{Kind: RankUses, Group: s.group.id, Rank: u.Rank, Host: s.host(), CPU: u.CPU, RSS: u.RSS, More: i < len(samples)-1})
		}
	}
}
