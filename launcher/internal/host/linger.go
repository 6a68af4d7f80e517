package host

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"golang.org/x/sys/unix"
)

// What a rank has started may still write when the rank has ended: a tee that its script writes through, a logger, a
// child in the background. A rank's end is its process's, but its output ends when the last of these has closed it. So
// the host reads on:
//
//	ranks run --the last ends--> output is open --all of it closes----------------------------------> done
//	                                   |                                                     ^
//	                                   | Settle, or a rank's failure                         |
//	                                   v                                                     |
//	                         the grace runs, while output is taken --it is over--> cut --what is in the pipes is read
//
// Settle comes when the ranks of all hosts have ended. Once the user, or the timeout, ends the job, what ranks have
// started is ended with them, and as they are. Where the output closes with the ranks, as it nearly always does, nobody
// is told, asked or waited for.
type linger struct {
	since time.Time // the last rank has ended, with open output
	told  bool      // and the controller knows that this goes on
	runs  bool      // the grace runs
	left  time.Duration
	at    time.Time // left was right; zero: it stood still then
	cut   bool      // the output is cut: only what is owed is read
}

// promptClose is how long output may take to close before it counts as open, if it brings something all the time.
const promptClose = 100 * time.Millisecond

// lingers tells whether the output is open though all ranks have ended, and nobody knows yet.
func (o *output) lingers() bool { return o.running == 0 && !o.linger.told && !o.stopped() }

// tellLingers tells it when a look at the pipes has brought nothing.
func (o *output) tellLingers() {
	l := &o.linger
	if !o.lingers() || o.drained() || o.served > 0 && time.Since(l.since) < promptClose {
		return
	}
	l.told = true
	o.emit(Event{Kind: Lingers})
}

// settle has the grace run for what the ranks have left behind.
func (o *output) settle() {
	if l := &o.linger; !l.runs {
		l.runs, l.left = true, o.spec.Grace
	}
}

// graceEnds is when the grace is over; zero: it does not run.
func (o *output) graceEnds() time.Time {
	if l := &o.linger; l.runs && o.running == 0 && !l.cut && !o.stopped() && !l.at.IsZero() {
		return l.at.Add(l.left)
	}
	return time.Time{}
}

// lingerOnTime lets the grace pass, but for the time in which nobody takes output, which makes writers wait.
func (o *output) lingerOnTime(now time.Time) {
	l := &o.linger
	if !l.runs || o.running > 0 || l.cut {
		return
	}
	if !l.at.IsZero() {
		l.left -= now.Sub(l.at)
	}
	if l.at = now; o.stopped() {
		l.at = time.Time{}
		return
	}
	if l.left <= 0 {
		o.cutOutput()
	}
}

// cutOutput names what still holds the output when its time is over, and kills it.
func (o *output) cutOutput() {
	if o.open > 0 {
		o.emit(o.holders())
	}
	o.killGroups()
	o.cut()
}

// cut has no more read than the pipes hold by now.
func (o *output) cut() {
	o.linger.cut = true
	for _, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			p := &r.pipes[s]
			if p.fd < 0 {
				continue
			}
			n, err := unix.IoctlGetInt(p.fd, unix.TIOCINQ)
			if err != nil {
				o.log("TIOCINQ: %v", err)
			}
			p.owed = n
		}
	}
}

// leave ends what ranks have left behind and has closed their output; then there is nothing to guard any more.
func (h *Host) leave() {
	h.hasLeft = true
	h.killGroups()
	if !h.abandoned && h.holding.Load() == 0 && (h.pmix.server == nil || h.pmix.server.Idle()) && h.ending.temp.files == nil && h.left.removeEmpty() && h.left.removeEmptyGroup() {
		h.guard.Release()
	}
}

// holders is the event that names the processes that hold output, of the first rank that has such, and counts the others.
func (o *output) holders() Event {
	names := make(map[string]int) // local numbers, by what their output is called in /proc
	ranks := make(map[int][]string)
	for i, r := range o.up() {
		for _, s := range [...]int{Stdout, Stderr} {
			if p := &r.pipes[s]; p.fd >= 0 {
				names[outputName(p)], ranks[i] = i, nil
			}
		}
	}
	for _, pid := range proc.All() {
		for _, local := range holds(pid, names) {
			s, _ := proc.Of(pid)
			ranks[local] = append(ranks[local], fmt.Sprintf("%s (pid %d)", s.Name, pid))
		}
	}
	first := -1
	for i := range o.up() {
		if list, open := ranks[i]; open && (first < 0 || list != nil && ranks[first] == nil) {
			first = i
		}
	}
	who := "a process that cannot be seen from here"
	if list := ranks[first]; len(list) > holdersMax {
		who = fmt.Sprintf("%s and %d more processes", strings.Join(list[:holdersMax], ", "), len(list)-holdersMax)
	} else if list != nil {
		who = strings.Join(list, ", ")
	}
	text := fmt.Sprintf("%s, which it had started, still held its output %v after the last rank's end and is killed", who, o.spec.Grace.Round(time.Millisecond))
	if others := len(ranks) - 1; others > 0 {
		text += fmt.Sprintf(", as is what %d more had started", others)
	}
	return Event{Kind: Cut, Rank: o.rankOf(first), Text: text + "; --grace TIME waits longer"}
}

// holdersMax is how many processes are named.
const holdersMax = 3

// outputName is what the other end of a pipe, or of a terminal, is called in /proc/PID/fd.
func outputName(p *pipe) string {
	// Neither call fails for what these descriptors are.
	if p.tty {
		n, _ := unix.IoctlGetInt(p.fd, unix.TIOCGPTN)
		return "/dev/pts/" + strconv.Itoa(n)
	}
	var st unix.Stat_t
	_ = unix.Fstat(p.fd, &st)
	return fmt.Sprintf("pipe:[%d]", st.Ino)
}

// holds are the ranks whose output a process may write, once each.
func holds(pid int, names map[string]int) (ranks []int) {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	fds, _ := os.ReadDir(dir)
	for _, fd := range fds {
		name, err := os.Readlink(dir + "/" + fd.Name())
		local, is := names[name]
		if err != nil || !is || slices.Contains(ranks, local) || elsewhere(name, dir+"/"+fd.Name()) {
			continue
		}
		if info, err := os.Lstat(dir + "/" + fd.Name()); err == nil && info.Mode()&0o200 != 0 { // as the descriptor was opened
			ranks = append(ranks, local)
		}
	}
	return ranks
}

// elsewhere says whether an open terminal is another one than that of the same name here: containers have
// terminals of their own.
func elsewhere(name, open string) bool {
	if !strings.HasPrefix(name, "/dev/pts/") {
		return false
	}
	here, err := os.Stat(name)
	there, err2 := os.Stat(open)
	return err == nil && err2 == nil && !os.SameFile(here, there)
}
