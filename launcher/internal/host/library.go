package host

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Ranks of one world that load different libraries of MPI, because a rank's script or a host's loader leads
// each to another, do not understand each other and hang or crash. So a rank's library is looked up when it joins: for a
// program that runs alone one rank stands for all of the host, behind a wrapper each does, up to librariesMost. A host tells
// of each file once; the controller compares.
const librariesMost = 16

// libraries is the state of that search.
type libraries struct {
	looks int
	apps  map[int]bool    // that run alone and were looked at
	of    map[int]string  // the last file of each program's ranks
	told  map[string]bool // files
}

// MPILibrary is the file of a library of MPI: what it is called, and the numbers of the series of versions that it is of.
var MPILibrary = regexp.MustCompile(`^(libmpi|libmpich|libmpi_abi[a-z_]*)\.so\.([0-9]+\.[0-9]+)`)

// loaded looks up what library a rank has that has joined its first world, of PMIx or of PMI.
func (h *Host) loaded(local int, pmix bool) {
	s, app := &h.libraries, h.spec.Ranks[local].App
	if s.looks == librariesMost || s.apps[app] || h.ranks[local].gone {
		return
	}
	if s.apps == nil {
		s.apps, s.of, s.told = map[int]bool{}, map[int]string{}, map[string]bool{}
	}
	s.apps[app] = app < len(h.alone) && h.alone[app]
	s.looks++
	file := libraryOf(h.ranks[local].pid, looksDepth)
	if file == "" {
		return
	}
	if s.of[app] = file; s.told[file] {
		return
	}
	s.told[file] = true
	e := Event{Kind: Loaded, Rank: h.rankOf(local), Text: file}
	if pmix {
		e.N = 1
	}
	h.emit(e)
	if !pmix {
		return
	}
	if why := h.spec.apart(h.spec.Apps[app].Env, file, textOf); why != "" {
		h.emit(Event{Kind: Apart, Rank: e.Rank, Text: why})
	}
}

// libraryOf is the file of the MPI that a process, or one below it, has mapped; "": none, or more than one.
func libraryOf(pid, depth int) string {
	p := "/proc/" + strconv.Itoa(pid)
	maps, _ := os.ReadFile(p + "/maps") // one that is gone has none
	found := ""
	for line := range strings.Lines(string(maps)) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		file := strings.TrimSuffix(line[at:], "\n")
		if file == found || !MPILibrary.MatchString(filepath.Base(file)) {
			continue
		}
		if found != "" {
			return ""
		}
		found = file
	}
	if found != "" || depth == 1 {
		return found
	}
	children, _ := os.ReadFile(p + "/task/" + strconv.Itoa(pid) + "/children")
	for i, f := range strings.Fields(string(children)) {
		child, err := strconv.Atoi(f)
		if err != nil || i == looksWidth {
			break
		}
		if found = libraryOf(child, depth-1); found != "" {
			return found
		}
	}
	return ""
}
