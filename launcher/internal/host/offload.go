package host

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/self"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/pmi"
)

// A daemon is the process that steps the started collectives of the host's ranks. It has the
// numbers behind theirs in the segment, by which ranks find it and learn of its death. Where it
// has calls of theirs, they go on with them when its process has ended, and not before: one that
// is stopped or hangs may go on at any time, even within a store that it was about to make. So
// the host kills a daemon that somebody has stopped, or that hangs.
type daemon struct {
	*base
	pid, pidfd int
	asked      bool      // a rank has asked for it
	failed     error     // why it could not be started for that rank, and is not for others
	over       bool      // its process has ended, and ranks know
	look       time.Time // when to look at it; zero: never
	stopped    bool      // it was, at the last look
	pulses     []pulse   // of its threads
	why        string    // it was killed for
}

const (
	// daemonEvery is the time between two looks at the daemon. One that is stopped in two of them, or hangs, is
	// killed, so that what follows from that is over within a second; one that never began, after five.
	daemonEvery = 250 * time.Millisecond
	// A daemon's thread beats before each step of a call, which moves 256 KiB. One that has used daemonCPU since the last beat is in a circle. One that has not, but wants no CPU at stillLooks looks, waits for ever: a
	// daemon that has nothing to do makes a pass each 10 ms.
	daemonCPU  = 300 * time.Millisecond
	stillLooks = 2
	// beginTimes is how many times as much of both a thread has before its first beat: it may have a program
	// to read from a slow disk, and memory to map.
	beginTimes = 10
)

// A pulse is what the host knows of a thread of the daemon. It counts what the thread has had of
// the CPUs, and not the time, so that a thread that waits for a busy CPU does not hang.
type pulse struct {
	beat  uint32        // of the segment
	cpu   time.Duration // that it had used at the look that found this beat
	still int           // looks since that found a thread that wants no CPU
}

// look takes in what a look has found, and tells why the thread hangs; "": it does not.
func (p *pulse) look(beat uint32, cpu time.Duration, wants bool) string {
	if beat != p.beat {
		*p = pulse{beat: beat, cpu: cpu}
		return ""
	}
	if p.still++; wants {
		p.still = 0
	}
	times := time.Duration(1)
	if beat == 0 {
		times = beginTimes
	}
	switch {
	case cpu-p.cpu >= times*daemonCPU:
		return "it ran in a circle"
	case p.still >= int(times)*stillLooks:
		return "it hung"
	}
	return ""
}

// offloadName is the daemon's program.
const offloadName = "gorun-offload"

// open starts the daemon of --offload, or says why the job has none.
func (d *daemon) open() error {
	if d.pidfd = -1; d.spec.Hosting.Offload == 0 {
		return nil
	}
	if err := d.start(d.spec.Hosting.Offload); err != nil {
		return d.none(err)
	}
	return nil
}

func (d *daemon) none(err error) error {
	return &startError{1, "Hosting.Offload", strconv.Itoa(d.spec.Hosting.Offload), err}
}

// check refuses more threads than the host has CPUs.
func (d *daemon) check() error {
	cpus := cmp.Or(d.cfg.CPUs, topo.CPUs())
	if d.spec.Hosting.Offload > cpus {
		return d.none(fmt.Errorf("more threads than the %d CPUs of host %s", cpus, d.spec.Host))
	}
	return nil
}

// daemonNumbers is how many numbers of the segment are the daemon's. Where the job wants none, one is kept for ranks
// that ask for it.
func (s *Spec) daemonNumbers() int {
	if n := len(s.Ranks); s.Hosting.Offload == 0 && n > 1 && n < shm.MaxRanks {
		return 1
	}
	return s.Hosting.Offload
}

// geometry is the segment's where an address space has such a limit. Ranks map all of it, with the number that is only kept.
func (s *Spec) geometry(limit uint64) shm.Geometry {
	g := shm.DefaultGeometry(len(s.Ranks)+s.daemonNumbers(), limit)
	if s.Continuous && s.Hosts > 1 {
		g.World = s.NP
	}
	return g
}

// ask starts a daemon of one thread for a rank that asks for it, unless there is one, and gives the answer.
func (d *daemon) ask() (a pmi.NameAnswer) {
	if d.pid == 0 && d.failed == nil {
		err := errors.New("the job ends")
		if !d.toEnd {
			err = d.start(1)
		}
		if d.asked, d.failed = err == nil, err; err != nil {
			d.emit(Event{Kind: Unassisted, Rank: -1, Text: fmt.Sprintf("a rank asked for the daemon of started collectives; it did not start: %v", err)})
		}
	}
	if d.failed != nil {
		a.Err = "no_daemon"
	}
	a.Port = strconv.Itoa(len(d.pulses))
	return a
}

// start starts it with n threads. Ranks may lend it calls before it runs.
func (d *daemon) start(n int) error {
	*d = daemon{base: d.base, pidfd: -1}
	if d.segment.FD() < 0 {
		return fmt.Errorf("host %s has no memory that processes can share", d.spec.Host)
	}
	if d.segment.Ranks() < len(d.spec.Ranks)+n {
		return fmt.Errorf("host %s has %d ranks, expected 2 to %d", d.spec.Host, len(d.spec.Ranks), shm.MaxRanks-n)
	}
	program := d.spec.Hosting.OffloadProgram
	if program == "" {
		path, err := self.Path()
		if err != nil {
			return fmt.Errorf("where this program is, is not known: %w", err)
		}
		program = filepath.Join(filepath.Dir(path), offloadName)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: "/dev/null", Err: err}
	}
	defer unix.Close(null)
	attr := &syscall.ProcAttr{
		Dir:   "/",
		Env:   append(Scrub(d.spec.users()), Marker(&d.spec)),
		Files: []uintptr{uintptr(null), uintptr(null), 2, uintptr(d.segment.FD())},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &d.pidfd},
	}
	argv := []string{offloadName, "--ranks", strconv.Itoa(len(d.spec.Ranks)), "--threads", strconv.Itoa(n)}
	if d.pid, err = syscall.ForkExec(program, argv, attr); err != nil {
		d.pid = 0
		return fmt.Errorf("%s could not be started: %w; it belongs beside gorun (make build, or go install ./cmd/%s)", program, err, offloadName)
	}
	d.guard.Add(d.pid)
	d.log("the daemon of started collectives has pid %d and %d threads", d.pid, n)
	d.look = time.Now().Add(daemonEvery)
	d.pulses = make([]pulse, n)
	if d.pidfd < 0 {
		return nil // a kernel before 5.4: a look notices its end
	}
	return d.watch(d.pidfd, unix.EPOLLIN, sourceDaemon, 0)
}

// onTime looks whether the daemon is stopped or hangs, or has ended where nothing else says so.
func (d *daemon) onTime(now time.Time) {
	if d.look.IsZero() || now.Before(d.look) {
		return
	}
	d.look = now.Add(daemonEvery)
	if d.ended(); d.over || d.why != "" { // one that was killed may take its time to end
		return
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, d.pid, &info, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
	was := d.stopped
	if d.stopped = err == nil && info.Signo != 0; !d.stopped {
		d.why = d.hangs()
	} else if was {
		d.why = "it was stopped"
	}
	if d.why != "" {
		d.log("the daemon of started collectives is killed, for %s", d.why)
		_ = unix.Kill(-d.pid, unix.SIGKILL)
	}
}

// hangs tells why one of the daemon's threads hangs; "": none does.
func (d *daemon) hangs() (why string) {
	threads := make(map[int]proc.Stat)
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(d.pid) + "/task/*/stat")
	for _, file := range files {
		if p, ok := proc.Read(file); ok {
			threads[p.PID] = p
		}
	}
	for i := range d.pulses {
		thread, beat := d.segment.Beats(len(d.spec.Ranks) + i)
		p, found := threads[cmp.Or(thread, d.pid)]
		if hangs := d.pulses[i].look(beat, p.CPU, wantsCPU(threads, thread, len(d.pulses))); found && hangs != "" {
			why = hangs
		}
	}
	return why
}

// wantsCPU tells of one of a daemon's count serving threads whether it waits for a CPU, or for what it cannot
// end without. thread 0 has not told its number yet: it may be any.
func wantsCPU(threads map[int]proc.Stat, thread, count int) bool {
	running := 0
	for number, p := range threads {
		switch p.State {
		case 'D', 't': // it waits for memory; a debugger has stopped it
			if number == thread || thread == 0 {
				return true
			}
		case 'R':
			if running++; number == thread || thread == 0 {
				return true
			}
		}
	}
	// One that the runtime of Go gives no processor waits for one that others have: there are as many as
	// threads, or more.
	return running >= count
}

// ended takes the end of the daemon in, if it has ended. The ranks go on with the calls
// that it had, and without it. It stays to be reaped, so that its group, which the guardian
// knows, is nobody else's.
func (d *daemon) ended() {
	how, err := ended(d.pid)
	if err == nil && !how.over {
		return
	}
	d.over, d.look = true, time.Time{}
	d.unwatch(&d.pidfd)
	for i := range d.pulses {
		d.segment.SetDead(len(d.spec.Ranks) + i)
	}
	text := "exit status " + strconv.Itoa(how.status)
	if how.signal != 0 {
		text = unix.SignalName(how.signal)
	}
	if d.why != "" {
		text += ", for " + d.why
	}
	if !d.toEnd {
		d.emit(Event{Kind: Unassisted, Rank: -1, Text: fmt.Sprintf("%s (pid %d), the daemon of --offload, has ended with %s: the ranks go on with the calls that it had, and without it", offloadName, d.pid, text)})
	}
}

// end is for a host that has no ranks any more.
func (d *daemon) end() {
	if d.pid == 0 {
		return
	}
	used := d.over || d.asked // a program that asks for it looks itself
	for i := range d.pulses {
		used = used || d.segment.Used(len(d.spec.Ranks)+i)
	}
	if !used && !d.toEnd {
		d.emit(Event{Kind: Unused, Rank: -1, Text: fmt.Sprintf("--offload has had no effect: no rank has given %s a call. It takes started and persistent collectives of Go programs, of 256 KiB or more in memory of rank.Alloc, between ranks of one host; gorun -v says why others stay with their ranks", offloadName)})
	}
	_ = unix.Kill(-d.pid, unix.SIGKILL)
	reap(d.pid)
	d.pid = 0
	closeFD(&d.pidfd)
}
