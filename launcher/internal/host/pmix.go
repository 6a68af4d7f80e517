package host

import (
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/sidecar"
	"github.com/gorun-mpi/gorun/pmi/pmix/link"
)

// openPMIx opens the port for programs of Open MPI that the environment of the
// ranks names.
func (h *Host) openPMIx() error {
	spec := &h.spec
	if spec.PMIx == nil {
		return nil
	}
	dir := directory(spec)
	if err := h.guard.Remove(dir); err != nil {
		return err
	}
	// What ranks do is told on the server's goroutine, with its lock held.
	server, err := sidecar.Listen(sidecar.Config{
		Program: spec.Helper,
		Env:     func() []string { return append(Scrub(spec.users()), Marker(spec), "PMIX_MCA_gds=hash") },
		Host:    spec.Host,
		Dir:     dir,
		Joined:  func(p link.Proc) { h.emit(Event{Kind: Joined, Rank: int(p.Rank)}) },
		Left:    func(p link.Proc) { h.emit(Event{Kind: Left, Rank: int(p.Rank)}) },
		Abort: func(p link.Proc, status int, text string) {
			h.emit(Event{Kind: Aborted, Rank: int(p.Rank), Status: status, Text: plain(text)})
		},
		Failed: func(text string) { h.emit(Event{Kind: Failed, Text: text}) },
		Ask:    func(data []byte) { h.emit(Event{Kind: ToHub, Data: data}) },
		Log:    h.log,
	})
	if err != nil {
		return err
	}
	h.pmix = server
	server.Add(*spec.PMIx)
	return h.watch(server.FD(), unix.EPOLLIN, sourcePMIx, 0)
}

// beginPMIx hands the port, to which a rank connects, to the helper.
func (h *Host) beginPMIx() {
	if err := unix.EpollCtl(h.poll, unix.EPOLL_CTL_DEL, h.pmix.FD(), nil); err != nil {
		h.log("epoll_ctl: %v", err)
	}
	h.pmix.Begin()
}

// users is the environment of the first program that runs here.
func (s *Spec) users() []string {
	if len(s.Ranks) == 0 {
		return nil
	}
	return s.Apps[s.Ranks[0].App].Env
}

// plain is an abort's message without what Open MPI says in every one.
func plain(text string) string {
	text = strings.TrimSpace(text)
	if text == "N/A" {
		return ""
	}
	return text
}

// directoryPrefix begins the name of every job directory.
const directoryPrefix = "gorun-job-"

// directory is where Open MPI and libpmix may leave files: shared memory, if the
// machine has a place for it, since segments are among them.
func directory(spec *Spec) string {
	base := "/dev/shm"
	if unix.Access(base, unix.W_OK|unix.X_OK) != nil {
		base = "/tmp"
		for _, e := range spec.users() {
			if v, ok := strings.CutPrefix(e, "TMPDIR="); ok && filepath.IsAbs(v) {
				base = filepath.Clean(v)
			}
		}
	}
	return filepath.Join(base, directoryPrefix+spec.Job+"-"+strconv.Itoa(spec.Index))
}

// outerDirectory tells whether a setting leads into the directory of another job,
// in which this one runs.
func outerDirectory(name, value string) bool {
	return strings.HasPrefix(name, "OMPI_MCA_") && strings.Contains(value, "/"+directoryPrefix)
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

// openMPISettings are settings of Open MPI (4 and 5) that its users may override:
// where it keeps its files, so that they can be removed.
func openMPISettings(spec *Spec, server *sidecar.Server, users []string) []string {
	if spec.PMIx == nil || server == nil {
		return nil
	}
	settings := []string{
		"OMPI_MCA_btl_vader_backing_directory=" + server.Dir(),
		"OMPI_MCA_btl_sm_backing_directory=" + server.Dir(),
		"OMPI_MCA_osc_sm_backing_directory=" + server.Dir(),
		"OMPI_MCA_osc_rdma_backing_directory=" + server.Dir(),
		"OMPI_MCA_orte_tmpdir_base=" + server.Dir(),
	}
	free := settings[:0]
	for _, s := range settings {
		name, _, _ := strings.Cut(s, "=")
		if !sets(users, name) {
			free = append(free, s)
		}
	}
	return free
}

// sets tells whether an environment has a variable with a value.
func sets(env []string, name string) bool {
	for _, e := range env {
		if len(e) > len(name)+1 && e[len(name)] == '=' && e[:len(name)] == name {
			return true
		}
	}
	return false
}

// pmixCount is what a rank has told the PMIx server.
func (h *Host) pmixCount(rank int) sidecar.Count {
	if h.pmix == nil {
		return sidecar.Count{}
	}
	return h.pmix.State(link.Proc{Space: h.spec.PMIx.Name, Rank: uint32(rank)})
}

// addPMIx adds what a rank has told the PMIx server to what is said of its end.
func (h *Host) addPMIx(e *Event, r *rank) {
	c := h.pmixCount(e.Rank)
	if c.Joined > 0 {
		e.Finalized = c.Left >= c.Joined && (!e.Joined || e.Finalized)
		e.Joined = true
	}
	if c.Aborted {
		r.bad = true
	}
}
