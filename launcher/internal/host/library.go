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
func (s *server) loaded(local int, pmix bool) {
	seen, app := &s.libraries, s.spec.Ranks[local].App
	if seen.looks == librariesMost || seen.apps[app] || s.ranks[local].gone {
		return
	}
	if seen.apps == nil {
		seen.apps, seen.of, seen.told = map[int]bool{}, map[int]string{}, map[string]bool{}
	}
	seen.apps[app] = app < len(s.alone) && s.alone[app]
	seen.looks++
	file := libraryOf(s.ranks[local].pid, looksDepth)
	if file == "" {
		return
	}
	if seen.of[app] = file; seen.told[file] {
		return
	}
	seen.told[file] = true
	e := Event{Kind: Loaded, Rank: s.rankOf(local), Text: file}
	if pmix {
		e.N = 1
	}
	s.emit(e)
	if !pmix {
		return
	}
	if why := s.spec.apart(s.spec.Apps[app].Env, file, textOf); why != "" {
		s.emit(Event{Kind: Apart, Rank: e.Rank, Text: why})
	}
}

// libraryOf is the file of the MPI that a process, or one below it, has mapped; "": none, or more than one.
func libraryOf(pid, depth int) string {
	maps, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps") // one that is gone has none
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
	for _, child := range childrenOf(pid) {
		if found = libraryOf(child, depth-1); found != "" {
			return found
		}
	}
	return ""
}
