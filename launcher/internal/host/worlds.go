package host

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/mpilib"
	"github.com/gorun-mpi/gorun/pmi"
)

// A rank may be a script that runs several MPI programs, one after the other. All
// ranks' first programs are a world, and so are their second ones: each world has
// an engine, with fences and a key-value space of its own, since ranks need not
// go on at the same time. A program's world is known by its connection: the n-th
// of a rank belongs to the n-th world, and is let in when the rank has finalized
// in the one before.
//
// So it takes a port: MPICH shuts down the socket that it has inherited, for all
// who hold it. Programs that are linked with MPI, or of Go, run alone: their ranks
// inherit a socket, as every client of PMI-1 knows it, and so do those of programs
// that run another where the port cannot be reached. Others are given the port.

// server is the PMI server of the ranks.
type server struct {
	*base
	daemon    *daemon       // which ranks may ask for
	worlds    []*pmi.Engine // see engine
	fences    uint64        // that were emitted, of all worlds
	holds     int           // sockets that ended before their rank
	port      port
	dialers   []bool  // by program: its ranks connect to the port
	alone     []bool  // by program: it is the one of its rank that speaks PMI
	cgo       []bool  // by program: it is one of Go that was built with cgo
	verbs     []bool  // by program: it is linked with libibverbs
	denied    [2]bool // a rank's program was not let in there, or somebody else, and that was told
	libraries libraries
}

// engine serves the world that a rank is in.
func (s *server) engine(local int) *pmi.Engine { return s.worlds[s.ranks[local].world] }

// spaceName is the key-value space of a job's first world; "" of none.
func spaceName(job string) string {
	if job == "" {
		return ""
	}
	return "gorun_" + job
}

// openWorld makes one more world. Ranks that have ended are not part of it.
func (s *server) openWorld() {
	n := len(s.worlds)
	name := spaceName(s.spec.Job)
	if n > 0 {
		name += "." + strconv.Itoa(n+1)
	}
	ranks, apps := make([]int, len(s.spec.Ranks)), make([]int, len(s.spec.Ranks))
	for i, r := range s.spec.Ranks {
		ranks[i], apps[i] = r.Rank, r.App
	}
	e := pmi.NewEngine(pmi.EngineConfig{
		KVSName:  name,
		World:    n,
		Size:     s.spec.NP,
		Ranks:    ranks,
		AppNum:   apps,
		Universe: s.spec.Universe,
		Mapping:  s.spec.Mapping,
		Preset:   s.spec.Preset,
		Spawner:  spaceName(s.spec.Spawner),
		Secure:   s.spec.Secure,
	})
	s.worlds = append(s.worlds, e)
	for i, r := range s.up() {
		if r.gone {
			s.apply(e, e.Disconnect(s.rankOf(i)))
		}
	}
}

// afterUnfinished is said of a rank whose programs before are not in order.
const afterUnfinished = "it began an MPI program after one that ended without MPI_Finalize"

// nextWorld takes a rank, which has connected anew, to its next world; false when
// it is not through with the one it is in.
func (s *server) nextWorld(local int) bool {
	r, rank := &s.ranks[local], s.rankOf(local)
	for s.receive(local) {
	}
	s.part(local)
	e := s.engine(local)
	switch {
	case r.gone:
		return false
	case e.Finalized(rank):
	case r.socket < 0:
		s.emit(Event{Kind: Violated, Rank: rank, Text: afterUnfinished, Stuck: true})
		return false
	default:
		s.refused(rank, "began an MPI program while another is between MPI_Init and MPI_Finalize, and it was not let in: a rank runs one at a time (in a script without &; in Python's multiprocessing children by fork, which do not import mpi4py again), or starts it as a job of its own with gorun")
		return false
	}
	s.unwatch(&r.socket)
	s.unhold(r)
	r.send, r.stuck = nil, false
	s.apply(e, e.Disconnect(rank))
	if r.world++; r.world == len(s.worlds) {
		s.openWorld()
	}
	s.forgetWorlds()
	return true
}

// forgetWorlds frees those that all ranks are through with, or will never be in.
func (s *server) forgetWorlds() {
	least := len(s.worlds) - 1
	for i := range s.ranks { // also those that have yet to be entered
		if r := &s.ranks[i]; !r.gone {
			least = min(least, r.world)
		}
	}
	for i := least - 1; i >= 0 && s.worlds[i] != nil; i-- {
		s.worlds[i] = nil
	}
}

// leaveWorlds notes that the process of a rank has ended, in its world and the
// later ones.
func (s *server) leaveWorlds(local int) {
	for _, e := range s.worlds[s.ranks[local].world:] {
		s.apply(e, e.Disconnect(s.rankOf(local)))
	}
}

// closeWorlds tells the other hosts that no rank here will be in one more world,
// in which theirs may wait, whether or not ranks connect to a port here too.
func (s *server) closeWorlds() {
	if s.cfg.Store != nil {
		s.openWorld()
	}
}

// met tells whether a rank has ever said init, and whether it then said finalize.
func (s *server) met(local int) (joined, finalized bool) {
	r, rank := &s.ranks[local], s.rankOf(local)
	if r.gone {
		return r.joined, r.finalized
	}
	e := s.engine(local)
	if r.world > 0 && !e.Joined(rank) {
		return true, true // in the world before
	}
	return e.Joined(rank), e.Finalized(rank)
}

// part has a rank finalize whose program was through MPI_Finalize, though it has not said so: see [pmi.Engine.Part].
func (s *server) part(local int) {
	file := filepath.Base(s.libraries.of[s.spec.Ranks[local].App])
	if strings.HasPrefix(file, "libmpich.so") || strings.HasPrefix(file, "libmpi_abi_mpich.so") || strings.HasPrefix(file, "libmpi.so.12.") {
		e := s.engine(local)
		s.apply(e, e.Part(s.rankOf(local)))
	}
}

// waiting are the ranks in a fence that is not complete.
func (s *server) waiting() []int {
	var ranks []int
	for i, r := range s.up() {
		if rank := s.rankOf(i); !r.gone && s.engine(i).InFence(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// chooseDialers decides which programs' ranks connect to a port, and opens it if
// there are some. files are the programs.
func (s *server) chooseDialers(files []string) error {
	s.dialers, s.alone, s.cgo, s.verbs = make([]bool, len(files)), make([]bool, len(files)), make([]bool, len(files)), make([]bool, len(files))
	some := false
	for i, file := range files {
		program := readProgram(s.spec.Apps[i].Dir, file)
		s.alone[i], s.cgo[i] = runsAlone(&program)
		s.verbs[i] = slices.Contains(program.Needed, verbsLibrary) || slices.Contains(program.Needed, "librdmacm.so.1")
		s.alone[i] = s.alone[i] || file == ""
		if file != "" {
			s.dialers[i] = s.dial(i, file)
			some = some || s.dialers[i]
		}
	}
	if !some {
		return nil
	}
	err := s.openPort()
	if err == nil {
		return nil
	}
	s.closePort()
	if s.spec.Hosting.PMIPort {
		return fmt.Errorf("a port for PMI: %w", err)
	}
	// As where the loopback device is down: one program a rank works still.
	s.log("no port for PMI: %v", err)
	clear(s.dialers)
	return nil
}

// dial decides it for one program.
func (s *server) dial(app int, file string) bool {
	switch {
	case s.spec.Hosting.PMIFD:
		return false
	case s.spec.Hosting.PMIPort:
		return true
	}
	return !runsElsewhere(file) && !s.alone[app]
}

// runsElsewhere tells whether a program runs another in a network of its own, which
// has no way to the port, or as another user, who would not be let in. What they
// inherit is open there too, but not with sudo, which closes it.
func runsElsewhere(file string) bool {
	switch filepath.Base(file) {
	case "unshare", "nsenter", "ip", "bwrap", "setpriv", "runuser", "su", "chroot", "gosu", "su-exec", "chpst":
		return true
	}
	return false
}

// readProgram reads what a program is linked with; nothing of one that can only be executed.
func readProgram(dir, file string) mpilib.ELF {
	if dir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return mpilib.ELF{}
	}
	defer f.Close()
	return mpilib.Read(f)
}

// runsAlone tells whether a program is the one that speaks PMI, so that no other
// program of its rank does, and whether it is one of Go that was built with cgo.
func runsAlone(program *mpilib.ELF) (alone, cgo bool) {
	if program.Go {
		return true, len(program.Needed) > 0
	}
	for _, name := range program.Needed {
		if strings.HasPrefix(name, "libpmi") || strings.HasPrefix(name, "libflux") {
			return true, false
		}
	}
	_, alone = findMPI(slices.Values(program.Needed))
	return alone, false
}

// dials tells whether a rank connects to the port.
func (s *server) dials(local int) bool { return s.dialers[s.spec.Ranks[local].App] }

// ports are where ranks connect, by program; "" for those that inherit a socket.
func (s *server) ports() []string {
	ports := make([]string, len(s.dialers))
	for i, dials := range s.dialers {
		if dials {
			ports[i] = s.port.name()
		}
	}
	return ports
}
