package host

import (
	"bytes"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/mpilib"
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
func (h *Host) spoke(local int) {
	r := &h.ranks[local]
	if r.spoken {
		return
	}
	r.spoken = true
	if h.mayBeSingleton(local) && h.singletons.spoke < looksSpoke {
		h.singletons.spoke++
		h.look(local)
	}
}

// mayBeSingleton tells whether a rank could be one of several worlds.
func (h *Host) mayBeSingleton(local int) bool {
	return h.spec.NP > 1 && !h.singletons.told && !h.ending.begun && !h.hasJoined(local)
}

// hasJoined tells whether a rank has ever met either server.
func (h *Host) hasJoined(local int) bool {
	joined, _ := h.met(local)
	return joined || h.pmixCount(h.rankOf(local)).Joined > 0
}

// nextLook is when silent ranks are looked at; zero: never.
func (h *Host) nextLook() time.Time {
	a := &h.singletons
	if a.timed >= len(looksAt) || a.told && a.pid == 0 || h.spec.NP == 1 || h.running == 0 {
		return time.Time{}
	}
	next := a.since.Add(looksAt[a.timed])
	if !a.again.IsZero() && a.again.Before(next) {
		return a.again
	}
	return next
}

// lookOnTime looks at the first ranks that live and have joined nobody.
func (h *Host) lookOnTime(now time.Time) {
	next := h.nextLook()
	if next.IsZero() || now.Before(next) {
		return
	}
	if next.Equal(h.singletons.again) {
		h.singletons.again = time.Time{}
	} else {
		h.singletons.timed++
	}
	if h.singletons.pid > 0 {
		h.stillAlone()
		return
	}
	for local, r := range h.up() {
		if !r.gone && h.mayBeSingleton(local) {
			h.look(local)
			return
		}
	}
}

// look looks at the processes of a rank.
func (h *Host) look(local int) {
	r := &h.ranks[local]
	l, pid, ok := lookAt(r.pid, looksDepth)
	if !ok || h.ofOthers(pid) {
		return
	}
	r.linked = l.name
	// What is sure is told at once: it may compute for hours. It may have joined
	// since, but not after it was seen initialised.
	h.receive(local)
	if l.sure && !h.hasJoined(local) {
		h.singletons.local, h.singletons.pid, h.singletons.again = local, pid, time.Now().Add(lookAgain)
		h.tellSingleton(local, fmt.Sprintf("has initialised %s without meeting its launcher, so each rank is a world of its own (rank 0 of 1): %s", l.name, h.whySingleton(local, pid)))
	}
}

// stillAlone looks once more, by the clock, at a rank that was alone: if it is, and its program runs on, others that have
// met the launcher wait for it for ever.
func (h *Host) stillAlone() {
	a := &h.singletons
	h.receive(a.local)
	if l, pid, ok := lookAt(h.ranks[a.local].pid, looksDepth); ok && l.sure && pid == a.pid && !h.ranks[a.local].gone && !h.hasJoined(a.local) {
		h.emit(Event{Kind: Singleton, Rank: h.rankOf(a.local), Stuck: true,
			Text: "has initialised " + l.name + " without meeting its launcher, and is a world of its own, while other ranks have met it and wait for this one"})
	}
	if a.timed == len(looksAt) {
		a.pid = 0
	}
}

// ofOthers tells whether a process below a rank is a rank of another launcher,
// which the rank has started: its environment leads to another server.
func (h *Host) ofOthers(pid int) bool {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	own := map[string]string{"GORUN_JOB": h.spec.Job, "PMI_FD": strconv.Itoa(pmiFD), "PMI_PORT": h.port.name()}
	if h.spec.PMIx != nil {
		own["PMIX_NAMESPACE"] = h.spec.PMIx.Name
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
		p := strconv.Itoa(pid)
		children, _ := os.ReadFile("/proc/" + p + "/task/" + p + "/children")
		for i, f := range strings.Fields(string(children)) {
			child, err := strconv.Atoi(f)
			if err != nil || i == looksWidth {
				break
			}
			if l, below, there := lookAt(child, depth-1); there && (!ok || l.sure) {
				found, at, ok = l, below, true
			}
		}
	}
	return found, at, ok
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
func (h *Host) whySingleton(local, pid int) string {
	proc := "/proc/" + strconv.Itoa(pid)
	env, err := os.ReadFile(proc + "/environ")
	if err != nil {
		return "why cannot be seen: " + reason(err).Error()
	}
	has := func(name string) bool {
		return bytes.Contains(append([]byte{0}, env...), []byte("\x00"+name+"="))
	}
	pmi1, name := has("PMI_FD"), "PMI_FD"
	if h.dials(local) {
		pmi1, name = has("PMI_PORT"), "PMI_PORT"
	}
	switch {
	case !has("GORUN_JOB"):
		return "its environment is not the one that gorun gave the rank (env -i, sudo, ssh or a container between gorun and the program?)"
	case !pmi1 && !has("PMIX_NAMESPACE"):
		return "something between gorun and the program has taken " + name + " and PMIX_NAMESPACE out of its environment"
	case h.spec.PMIx == nil:
		return "this launcher has no gorun-pmix, which programs of Open MPI need"
	case !has("PMIX_NAMESPACE"):
		return "something between gorun and the program has taken PMIX_NAMESPACE out of its environment"
	case !pmi1:
		return "something between gorun and the program has taken " + name + " out of its environment"
	}
	if to, err := os.Readlink(proc + "/fd/" + strconv.Itoa(pmiFD)); !h.dials(local) && (err != nil || !strings.HasPrefix(to, "socket:")) {
		return fmt.Sprintf("descriptor %d, the socket to its launcher (PMI_FD), is not open in it", pmiFD)
	}
	return "it knows neither PMI-1 (" + name + ") nor PMIx (PMIX_NAMESPACE); gorun-info pmi tells what gorun can serve"
}

// endedSingleton looks back at a rank that has ended well, has written, and joined
// nobody.
func (h *Host) endedSingleton(local int) {
	r := &h.ranks[local]
	if !r.spoken || !h.mayBeSingleton(local) {
		return
	}
	if r.linked == "" {
		r.linked = h.linkedWith(h.spec.Ranks[local].App).name
	}
	if r.linked != "" {
		h.tellSingleton(local, fmt.Sprintf("is linked with %s but has not met its launcher; if it called MPI_Init, each rank was a world of its own (rank 0 of 1)", r.linked))
	}
}

// linkedWith is the MPI library that a program is linked with, looked up once.
func (h *Host) linkedWith(app int) mpiLibrary {
	if h.linked == nil {
		h.linked = make(map[int]mpiLibrary)
	}
	found, known := h.linked[app]
	if known {
		return found
	}
	if file := h.starter.files[app]; file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(h.spec.Apps[app].Dir, file)
		}
		if f, err := os.Open(file); err == nil {
			found, _ = findMPI(slices.Values(mpilib.Read(f).Needed))
			_ = f.Close()
		}
	}
	h.linked[app] = found
	return found
}

func (h *Host) tellSingleton(local int, text string) {
	h.singletons.told = true
	h.emit(Event{Kind: Singleton, Rank: h.rankOf(local), Text: text})
}
