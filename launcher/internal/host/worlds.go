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

// engine serves the world that a rank is in.
func (h *Host) engine(local int) *pmi.Engine { return h.worlds[h.ranks[local].world] }

// spaceName is the key-value space of a job's first world; "" of none.
func spaceName(job string) string {
	if job == "" {
		return ""
	}
	return "gorun_" + job
}

// openWorld makes one more world. Ranks that have ended are not part of it.
func (h *Host) openWorld() {
	n := len(h.worlds)
	name := spaceName(h.spec.Job)
	if n > 0 {
		name += "." + strconv.Itoa(n+1)
	}
	ranks, apps := make([]int, len(h.spec.Ranks)), make([]int, len(h.spec.Ranks))
	for i, r := range h.spec.Ranks {
		ranks[i], apps[i] = r.Rank, r.App
	}
	e := pmi.NewEngine(pmi.EngineConfig{
		KVSName:  name,
		World:    n,
		Size:     h.spec.NP,
		Ranks:    ranks,
		AppNum:   apps,
		Universe: h.spec.Universe,
		Mapping:  h.spec.Mapping,
		Preset:   h.spec.Preset,
		Spawner:  spaceName(h.spec.Spawner),
		Secure:   h.spec.Secure,
	})
	h.worlds = append(h.worlds, e)
	for i, r := range h.up() {
		if r.gone {
			h.apply(e, e.Disconnect(h.rankOf(i)))
		}
	}
}

// afterUnfinished is said of a rank whose programs before are not in order.
const afterUnfinished = "it began an MPI program after one that ended without MPI_Finalize"

// nextWorld takes a rank, which has connected anew, to its next world; false when
// it is not through with the one it is in.
func (h *Host) nextWorld(local int) bool {
	r, rank := &h.ranks[local], h.rankOf(local)
	for h.receive(local) {
	}
	h.part(local)
	e := h.engine(local)
	switch {
	case r.gone:
		return false
	case e.Finalized(rank):
	case r.socket < 0:
		h.emit(Event{Kind: Violated, Rank: rank, Text: afterUnfinished, Stuck: true})
		return false
	default:
		h.refused(rank, "began an MPI program while another is between MPI_Init and MPI_Finalize, and it was not let in: a rank runs one at a time (in a script without &; in Python's multiprocessing children by fork, which do not import mpi4py again), or starts it as a job of its own with gorun")
		return false
	}
	h.unwatch(&r.socket)
	h.unhold(r)
	r.send, r.stuck = nil, false
	h.apply(e, e.Disconnect(rank))
	if r.world++; r.world == len(h.worlds) {
		h.openWorld()
	}
	h.forgetWorlds()
	return true
}

// forgetWorlds frees those that all ranks are through with, or will never be in.
func (h *Host) forgetWorlds() {
	least := len(h.worlds) - 1
	for i := range h.ranks { // also those that have yet to be entered
		if r := &h.ranks[i]; !r.gone {
			least = min(least, r.world)
		}
	}
	for i := least - 1; i >= 0 && h.worlds[i] != nil; i-- {
		h.worlds[i] = nil
	}
}

// leaveWorlds notes that the process of a rank has ended, in its world and the
// later ones.
func (h *Host) leaveWorlds(local int) {
	for _, e := range h.worlds[h.ranks[local].world:] {
		h.apply(e, e.Disconnect(h.rankOf(local)))
	}
}

// closeWorlds tells the other hosts that no rank here will be in one more world,
// in which theirs may wait, whether or not ranks connect to a port here too.
func (h *Host) closeWorlds() {
	if h.cfg.Store != nil {
		h.openWorld()
	}
}

// met tells whether a rank has ever said init, and whether it then said finalize.
func (h *Host) met(local int) (joined, finalized bool) {
	r, rank := &h.ranks[local], h.rankOf(local)
	if r.gone {
		return r.joined, r.finalized
	}
	e := h.engine(local)
	if r.world > 0 && !e.Joined(rank) {
		return true, true // in the world before
	}
	return e.Joined(rank), e.Finalized(rank)
}

// part has a rank finalize whose program was through MPI_Finalize, though it has not said so: see [pmi.Engine.Part].
func (h *Host) part(local int) {
	file := filepath.Base(h.libraries.of[h.spec.Ranks[local].App])
	if strings.HasPrefix(file, "libmpich.so") || strings.HasPrefix(file, "libmpi_abi_mpich.so") || strings.HasPrefix(file, "libmpi.so.12.") {
		e := h.engine(local)
		h.apply(e, e.Part(h.rankOf(local)))
	}
}

// waiting are the ranks in a fence that is not complete.
func (h *Host) waiting() []int {
	var ranks []int
	for i, r := range h.up() {
		if rank := h.rankOf(i); !r.gone && h.engine(i).InFence(rank) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// chooseDialers decides which programs' ranks connect to a port, and opens it if
// there are some. files are the programs.
func (h *Host) chooseDialers(files []string) error {
	h.dialers, h.alone, h.cgo = make([]bool, len(files)), make([]bool, len(files)), make([]bool, len(files))
	some := false
	for i, file := range files {
		h.alone[i], h.cgo[i] = runsAlone(h.spec.Apps[i].Dir, file)
		h.alone[i] = h.alone[i] || file == ""
		if file != "" {
			h.dialers[i] = h.dial(i, file)
			some = some || h.dialers[i]
		}
	}
	if !some {
		return nil
	}
	err := h.openPort()
	if err == nil {
		return nil
	}
	h.closePort()
	if h.spec.PMIPort {
		return fmt.Errorf("a port for PMI: %w", err)
	}
	// As where the loopback device is down: one program a rank works still.
	h.log("no port for PMI: %v", err)
	clear(h.dialers)
	return nil
}

// dial decides it for one program.
func (h *Host) dial(app int, file string) bool {
	switch {
	case h.spec.PMIFD:
		return false
	case h.spec.PMIPort:
		return true
	}
	return !runsElsewhere(file) && !h.alone[app]
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

// runsAlone tells whether a program is the one that speaks PMI, so that no other
// program of its rank does, and whether it is one of Go that was built with cgo.
func runsAlone(dir, file string) (alone, cgo bool) {
	if dir != "" && !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	f, err := os.Open(file)
	if err != nil {
		return false, false // to be executed it need not be readable
	}
	defer f.Close()
	program := mpilib.Read(f)
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
func (h *Host) dials(local int) bool { return h.dialers[h.spec.Ranks[local].App] }

// ports are where ranks connect, by program; "" for those that inherit a socket.
func (h *Host) ports() []string {
	ports := make([]string, len(h.dialers))
	for i, dials := range h.dialers {
		if dials {
			ports[i] = h.port.name()
		}
	}
	return ports
}
