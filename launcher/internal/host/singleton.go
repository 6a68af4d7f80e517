package host

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// An MPI program that does not find its launcher does not fail: each rank becomes
// a world of its own, and N of them do the whole work N times. So a rank that has
// joined nobody and may be such a program is looked at: which libraries its
// process, or one that it has started, has mapped. That is done when it first
// writes, since programs write after MPI_Init, and by the clock, at ever longer
// intervals; a few ranks stand for all. One that was gone before anybody could look is judged by what its
// program is linked with.
const (
	looksSpoke = 3 // at ranks that write, on one host; the clock has its own
	looksDepth = 3 // rank, its child, and that one's
	looksWidth = 8 // children of one process
)

// looksAt are the ages of a job at which silent ranks are looked at. MPI_Init may take long on a busy machine.
var looksAt = [...]time.Duration{400 * time.Millisecond, 3 * time.Second, 10 * time.Second, 30 * time.Second, 100 * time.Second, 300 * time.Second, 1000 * time.Second}

// lookAgain is how long after the first look at a rank that is alone another one follows.
const lookAgain = 3 * time.Second

// singletonSearch is the state of the search.
type singletonSearch struct {
	spoke int  // looks at ranks that have written
	timed int  // of looksAt
	told  bool // an event was emitted: one is enough
	since time.Time
	again time.Time // when the process pid is looked at once more, at the latest; zero: at the next of looksAt
	local int       // whose process pid was surely alone when that was told, and is looked at again
	pid   int       // 0: none
}

// mpiLibrary is an MPI library that a program may use, known by a file name.
type mpiLibrary struct {
	prefix, name string
	sure         bool // only a process that has initialised MPI maps it
	polls        bool // its ranks poll for long before they yield: each is best in a session of its own
}

// The order matters: what is sure comes first.
var mpiLibraries = [...]mpiLibrary{
	{"mca_pml_", "Open MPI", true, false},
	{"mca_btl_", "Open MPI", true, false},
	{"sm_segment.", "Open MPI", true, false}, // since 5.0 all else is part of its library
	{"libuct_", "MPI", true, false},
	{"libmpich.so", "MPICH", false, true},
	{"libmpichcxx.so", "MPICH", false, true},
	{"libmpifort.so", "MPICH", false, true},
	{"libmpi.so.40", "Open MPI", false, false},
	{"libopen-pal.so", "Open MPI", false, false},
	{"libmpi.so.12", "Intel MPI or another relative of MPICH", false, true},
	{"libmpi_abi.so", "MPI", false, false},
	{"libmpi.so", "MPI", false, false},
}

// findMPI is the MPI library among file names; sure ones count more.
func findMPI(names iter.Seq[string]) (found mpiLibrary, ok bool) {
	best := len(mpiLibraries)
	for name := range names {
		for i, l := range mpiLibraries[:best] {
			if strings.HasPrefix(name, l.prefix) {
				best = i
				break
			}
		}
	}
	if best == len(mpiLibraries) {
		return mpiLibrary{}, false
	}
	return mpiLibraries[best], true
}

// spoke is called when a rank has written.
func (w *watcher) spoke(local int) {
	r := &w.ranks[local]
	if r.spoken {
		return
	}
	r.spoken = true
	if w.mayBeSingleton(local) && w.singletons.spoke < looksSpoke {
		w.singletons.spoke++
		w.look(local)
	}
}

// mayBeSingleton tells whether a rank could be one of several worlds.
func (w *watcher) mayBeSingleton(local int) bool {
	return w.spec.NP > 1 && !w.singletons.told && !w.toEnd && !w.hasJoined(local)
}

// hasJoined tells whether a rank has ever met either server.
func (w *watcher) hasJoined(local int) bool {
	joined, _ := w.server.met(local)
	return joined || w.pmix.count(w.rankOf(local)).Joined > 0
}

// nextLook is when silent ranks are looked at; zero: never.
func (w *watcher) nextLook() time.Time {
	a := &w.singletons
	if a.timed >= len(looksAt) || a.told && a.pid == 0 || w.spec.NP == 1 || w.running == 0 {
		return time.Time{}
	}
	next := a.since.Add(looksAt[a.timed])
	if !a.again.IsZero() && a.again.Before(next) {
		return a.again
	}
	return next
}

// lookOnTime looks at the first ranks that live and have joined nobody.
func (w *watcher) lookOnTime(now time.Time) {
	next := w.nextLook()
	if next.IsZero() || now.Before(next) {
		return
	}
	if next.Equal(w.singletons.again) {
		w.singletons.again = time.Time{}
	} else {
		w.singletons.timed++
	}
	if w.singletons.pid > 0 {
		w.stillAlone()
		return
	}
	for local, r := range w.up() {
		if !r.gone && w.mayBeSingleton(local) {
			w.look(local)
			return
		}
	}
}

// look looks at the processes of a rank.
func (w *watcher) look(local int) {
	r := &w.ranks[local]
	l, pid, ok := lookAt(r.pid, looksDepth)
	if !ok || w.ofOthers(pid) {
		return
	}
	r.linked = l.name
	// What is sure is told at once: it may compute for hours. It may have joined
	// since, but not after it was seen initialised.
	w.server.receive(local)
	if l.sure && !w.hasJoined(local) {
		w.singletons.local, w.singletons.pid, w.singletons.again = local, pid, time.Now().Add(lookAgain)
		w.tellSingleton(local, fmt.Sprintf("has initialised %s without meeting its launcher, so each rank is a world of its own (rank 0 of 1): %s", l.name, w.whySingleton(local, pid)))
	}
}

// stillAlone looks once more, by the clock, at a rank that was alone: if it is, and its program runs on, others that have
// met the launcher wait for it for ever.
func (w *watcher) stillAlone() {
	a := &w.singletons
	w.server.receive(a.local)
	if l, pid, ok := lookAt(w.ranks[a.local].pid, looksDepth); ok && l.sure && pid == a.pid && !w.ranks[a.local].gone && !w.hasJoined(a.local) {
		w.emit(Event{Kind: Singleton, Rank: w.rankOf(a.local), Stuck: true,
			Text: "has initialised " + l.name + " without meeting its launcher, and is a world of its own, while other ranks have met it and wait for this one"})
	}
	if a.timed == len(looksAt) {
		a.pid = 0
	}
}

// ofOthers tells whether a process below a rank is a rank of another launcher,
// which the rank has started: its environment leads to another server.
func (w *watcher) ofOthers(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	own := map[string]string{"GORUN_JOB": w.spec.Job, "PMI_FD": strconv.Itoa(pmiFD), "PMI_PORT": w.server.port.name()}
	if w.spec.PMIx != nil {
		own["PMIX_NAMESPACE"] = w.spec.PMIx.Name
	}
	for entry := range bytes.SplitSeq(env, []byte{0}) {
		name, value, _ := strings.Cut(string(entry), "=")
		if want, ours := own[name]; ours && value != want {
			return true
		}
	}
	return false
}

// lookAt finds an MPI library in a process or those below it.
func lookAt(pid, depth int) (mpiLibrary, int, bool) {
	maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
	if err != nil {
		return mpiLibrary{}, 0, false
	}
	found, ok := findMPI(mappedFiles(maps))
	at := pid
	if (!ok || !found.sure) && depth > 1 {
		for _, child := range childrenOf(pid) {
			if l, below, there := lookAt(child, depth-1); there && (!ok || l.sure) {
				found, at, ok = l, below, true
			}
		}
	}
	return found, at, ok
}

// childrenOf are the first children of a process.
func childrenOf(pid int) []int {
	all := proc.Children(pid)
	return all[:min(len(all), looksWidth)]
}

// mappedFiles are the names, without directories, of the files in the text of
// /proc/PID/maps.
func mappedFiles(maps []byte) iter.Seq[string] {
	return func(yield func(string) bool) {
		for line := range bytes.Lines(maps) {
			at := bytes.LastIndexByte(line, '/')
			if at >= 0 && !yield(string(bytes.TrimRight(line[at+1:], "\n"))) {
				return
			}
		}
	}
}

// whySingleton is what a process shows of the reason.
func (w *watcher) whySingleton(local, pid int) string {
	dir := "/proc/" + strconv.Itoa(pid)
	env, err := os.ReadFile(dir + "/environ")
	if err != nil {
		return "why cannot be seen: " + reason(err).Error()
	}
	has := func(name string) bool {
		return bytes.Contains(append([]byte{0}, env...), []byte("\x00"+name+"="))
	}
	pmi1, name := has("PMI_FD"), "PMI_FD"
	if w.server.dials(local) {
		pmi1, name = has("PMI_PORT"), "PMI_PORT"
	}
	switch {
	case !has("GORUN_JOB"):
		return "its environment is not the one that gorun gave the rank (env -i, sudo, ssh or a container between gorun and the program?)"
	case !pmi1 && !has("PMIX_NAMESPACE"):
		return "something between gorun and the program has taken " + name + " and PMIX_NAMESPACE out of its environment"
	case w.spec.PMIx == nil:
		return "this launcher has no gorun-pmix, which programs of Open MPI need"
	case !has("PMIX_NAMESPACE"):
		return "something between gorun and the program has taken PMIX_NAMESPACE out of its environment"
	case !pmi1:
		return "something between gorun and the program has taken " + name + " out of its environment"
	}
	if to, err := os.Readlink(dir + "/fd/" + strconv.Itoa(pmiFD)); !w.server.dials(local) && (err != nil || !strings.HasPrefix(to, "socket:")) {
		return fmt.Sprintf("descriptor %d, the socket to its launcher (PMI_FD), is not open in it", pmiFD)
	}
	return "it knows neither PMI-1 (" + name + ") nor PMIx (PMIX_NAMESPACE); gorun-info pmi tells what gorun can serve"
}

// endedSingleton looks back at a rank that has ended well, has written, and joined
// nobody.
func (w *watcher) endedSingleton(local int) {
	r := &w.ranks[local]
	if !r.spoken || !w.mayBeSingleton(local) {
		return
	}
	if r.linked == "" {
		r.linked = w.linkedWith(w.spec.Ranks[local].App).name
	}
	if r.linked != "" {
		w.tellSingleton(local, fmt.Sprintf("is linked with %s but has not met its launcher; if it called MPI_Init, each rank was a world of its own (rank 0 of 1)", r.linked))
	}
}

func (w *watcher) tellSingleton(local int, text string) {
	w.singletons.told = true
	w.emit(Event{Kind: Singleton, Rank: w.rankOf(local), Text: text})
}
