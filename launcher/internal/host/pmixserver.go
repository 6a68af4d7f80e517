package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/launcher/internal/sidecar"
)

// pmixServer is the ranks' way to the PMIx server of this machine.
type pmixServer struct {
	*base
	server *sidecar.Server // nil: programs of Open MPI are not served
}

// open makes the ranks known to the PMIx server of this machine, which the first host of a job here opens.
func (x *pmixServer) open() error {
	spec := &x.spec
	if spec.PMIx == nil {
		return nil
	}
	if elder := x.cfg.Elder; elder != nil {
		x.server = elder.pmix.server
	} else if err := x.listen(); err != nil {
		return err
	}
	space := *spec.PMIx
	space.Programs = programs(spec)
	space.Restarts = max(0, spec.Attempt-1)
	// Not the setting of a job in which this one runs, or of the rank that has spawned it.
	if !sets(Scrub(spec.users()), ompiSession) {
		space.Session = x.dir
	}
	// What ranks do is told on the server's goroutine, with its lock held.
	x.server.Add(space, sidecar.User{
		Joined: func(p link.Proc, way sidecar.Way) {
			if way != sidecar.Second {
				x.emit(Event{Kind: Joined, Rank: int(p.Rank)})
			}
			kind := Came
			if way != sidecar.First {
				kind = Rejoined
			}
			x.mail.post(letter{command: Command{Kind: kind, Rank: int(p.Rank), Last: way == sidecar.Late}})
		},
		Left: func(p link.Proc) { x.emit(Event{Kind: Left, Rank: int(p.Rank)}) },
		Abort: func(p link.Proc, status int, text string) {
			x.emit(Event{Kind: Aborted, Rank: int(p.Rank), Status: status, Text: plain(text)})
		},
		Say: x.say,
	})
	return nil
}

// listen opens the port for programs of Open MPI that the environment of the
// ranks names.
func (x *pmixServer) listen() error {
	spec := &x.spec
	server, err := sidecar.Listen(sidecar.Config{
		Program:  spec.Hosting.PMIx,
		Env:      func() []string { return append(Scrub(spec.users()), Marker(spec), "PMIX_MCA_gds=hash") },
		Host:     spec.Host,
		Dir:      x.dir,
		Patience: spec.Hosting.PMIxTimeout,
		Refuse:   refusal(spec),
		Failed:   func(text string) { x.emit(Event{Kind: Failed, Text: text}) },
		Ask: func(data []byte) {
			x.moves.Add(1)
			x.emit(Event{Kind: ToHub, Data: data})
		},
		Log: x.log,
	})
	if err != nil {
		return err
	}
	x.server = server
	return x.watch(server.FD(), unix.EPOLLIN, sourcePMIx, 0)
}

// programs are what the ranks of this host run, by application, as they are told by PMIx.
func programs(spec *Spec) []link.Program {
	list := make([]link.Program, len(spec.Apps))
	for i, app := range spec.Apps {
		if list[i] = (link.Program{Argv: app.Argv, Dir: app.Dir}); app.Argv != nil && app.Dir == "" {
			list[i].Dir, _ = os.Getwd() // where it is gone, they are not told
		}
	}
	return list
}

// refusal is why no rank is served, "" where one may be.
func refusal(spec *Spec) string {
	if !spec.Secure {
		return ""
	}
	return "--secure: a rank asks for a PMIx server, as programs of Open MPI do, which do not encrypt what they send to other hosts" + unencrypted
}

// say has the loop pass on what a rank says by way of the server, in whole lines.
func (x *pmixServer) say(p link.Proc, stream int, text string) {
	if text == "" || stream != Stdout && stream != Stderr {
		return
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	x.mail.post(letter{command: Command{Kind: Say, Rank: int(p.Rank), Stream: stream, Data: []byte(text)}})
}

// said passes it on, as if the rank had written it.
func (o *output) said(rank, stream int, text []byte) {
	for i, r := range o.up() {
		if o.rankOf(i) != rank {
			continue
		}
		if tail := r.pipes[stream].tail; tail != nil {
			tail.Add(text)
		}
		o.send(i, stream, Event{Data: text})
	}
}

// ompiSession is what a user sets who wants Open MPI's files elsewhere.
const ompiSession = "OMPI_MCA_orte_tmpdir_base"

// close forgets the ranks, and ends the server that this host has opened.
func (x *pmixServer) close() {
	switch {
	case x.server == nil:
	case x.cfg.Elder != nil:
		x.server.Remove(x.spec.PMIx.Name)
	default:
		x.server.Close()
	}
}

// Hold keeps the PMIx server of this host for ranks of other groups, until release. The host must have ranks that run,
// or be held already.
func (h *Host) Hold() (release func()) {
	h.holding.Add(1)
	return func() {
		if h.holding.Add(-1) == 0 {
			h.Send(Command{Kind: Wake})
		}
	}
}

// serveOthers goes on, when the ranks have ended, as long as this host is held.
func (h *Host) serveOthers() error {
	if h.holding.Load() == 0 || h.abandoned {
		return nil
	}
	if !h.output.linger.told {
		h.output.linger.told = true
		h.emit(Event{Kind: Lingers})
	}
	for h.holding.Load() > 0 && !h.abandoned {
		if err := h.turn(-1); err != nil {
			return err
		}
	}
	return nil
}

// begin has the server look what connects to the port: a rank's connection starts
// the helper.
func (x *pmixServer) begin() {
	if err := unix.EpollCtl(x.poll.fd, unix.EPOLL_CTL_DEL, x.server.FD(), nil); err != nil {
		x.log("epoll_ctl: %v", err)
	}
	x.server.Begin()
}

// users is the environment of the first program that runs here.
func (s *Spec) users() []string {
	if len(s.Ranks) == 0 {
		return nil
	}
	return s.Apps[s.Ranks[0].App].Env
}

// rejoined judges a rank that has connected while what it had before is not finalized. After a program that has died,
// this one waits for ranks that wait for that one. Beside a program that lives it is a child, as Python's multiprocessing
// makes them where the main module imports mpi4py.
func (x *pmixServer) rejoined(rank int, died bool) {
	local := x.spec.local(rank)
	if local < 0 || !x.ranks[local].up || x.ranks[local].gone {
		return
	}
	if died {
		x.emit(Event{Kind: Violated, Rank: rank, Text: afterUnfinished, Stuck: true})
		return
	}
	users, youngest, child := 0, 0, "a child of it"
	for _, p := range x.processes()[local] {
		maps, _ := os.ReadFile("/proc/" + strconv.Itoa(p.PID) + "/maps")
		for name := range mappedFiles(maps) {
			if strings.HasPrefix(name, "libpmix.so") {
				users, youngest = users+1, max(youngest, p.PID)
				break
			}
		}
	}
	if users > 1 { // else it has gone
		child = fmt.Sprintf("process %d, a child of it,", youngest)
	}
	x.emit(Event{Kind: Doubled, Rank: rank, Text: child + " has called MPI_Init too and is the same rank a second time: it takes the rank's messages and memory, and MPI may fail in both; import mpi4py or call MPI_Init where children do not"})
}

// plain is an abort's message without what Open MPI says in every one.
func plain(text string) string {
	text = strings.TrimSpace(text)
	if text == "N/A" {
		return ""
	}
	return text
}

// pmixVars is what a process of libpmix needs in order to find the server. With
// PMIX variables alone Open MPI 4 would make each rank a world of its own; it
// takes part when it is told of a daemon, which it never calls.
func pmixVars(spec *Spec, server *sidecar.Server) []string {
	if spec.PMIx == nil || server == nil {
		return nil
	}
	uri := "SRV.0;tcp4://127.0.0.1:" + strconv.Itoa(server.Port())
	return []string{
		"PMIX_NAMESPACE=" + spec.PMIx.Name,
		"PMIX_SERVER_URI41=" + uri,
		"PMIX_SERVER_URI4=" + uri,
		"PMIX_SERVER_URI3=" + uri,
		"PMIX_SERVER_URI21=" + uri,
		"PMIX_SERVER_URI2=" + uri,
		"PMIX_SECURITY_MODE=native",
		"PMIX_BFROP_BUFFER_TYPE=PMIX_BFROP_BUFFER_NON_DESC",
		"PMIX_GDS_MODULE=hash",
		"PMIX_SERVER_TMPDIR=" + server.Dir(),
		"PMIX_SYSTEM_TMPDIR=" + server.Dir(),
		"PMIX_HOSTNAME=" + spec.Host,
		"OMPI_MCA_orte_local_daemon_uri=1.0;tcp://127.0.0.1:1",
	}
}

// count is what a rank has told the PMIx server.
func (x *pmixServer) count(rank int) sidecar.Count {
	if x.server == nil {
		return sidecar.Count{}
	}
	return x.server.State(link.Proc{Space: x.spec.PMIx.Name, Rank: uint32(rank)})
}

// addTo adds what a rank has told the PMIx server to what is said of its end.
func (x *pmixServer) addTo(e *Event, r *rank) {
	c := x.count(e.Rank)
	if c.Joined > 0 {
		e.Finalized = c.Finalized() && (!e.Joined || e.Finalized)
		e.Joined = true
	}
	if c.Aborted {
		r.bad, r.aborted = true, true
	}
}
