//go:build cgo

package pmix

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/cgo"
	"strconv"
	"strings"
	"sync"
	"unsafe"
)

// Cgo tells whether this program can call a libpmix.
const Cgo = true

// Server is the PMIx server of this process.
type Server struct {
	handler Handler

	mu    sync.Mutex
	next  uint64
	modex map[uint64]func(Status, []byte)
}

// NotFound says that nobody has what was asked for.
func NotFound() Status { return Status(C.gorun_pmix_status_not_found()) }

// NotSupported says that this launcher does not do that.
func NotSupported() Status { return Status(C.gorun_pmix_status_not_supported()) }

// Partial says that some of what was asked for was found.
func Partial() Status { return Status(C.gorun_pmix_status_partial()) }

// Failed says that it went wrong.
func Failed() Status { return Status(C.gorun_pmix_status_failed()) }

// Duplicate says that the name is taken.
func Duplicate() Status { return Status(C.gorun_pmix_status_duplicate()) }

// TimedOut says that it took longer than the process wants to wait.
func TimedOut() Status { return Status(C.gorun_pmix_status_timeout()) }

// String is a status in libpmix's words.
func (s Status) String() string { return C.GoString(C.gorun_pmix_error(C.int(s))) }

// libraries are the names under which libpmix is looked for: what the loader
// knows, and where Debian has put the versions that it keeps apart.
var libraries = [...]string{
	"libpmix.so.2",
	"/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2",
	"/usr/lib/aarch64-linux-gnu/pmix2/lib/libpmix.so.2",
}

// Probe finds libpmix and all functions that are needed of it. It starts nothing.
func Probe() (Library, error) {
	var l Library
	var first string
	var text [512]C.char
	for _, path := range libraries {
		name := C.CString(path)
		rc := C.gorun_pmix_open(name, &text[0], C.size_t(len(text)))
		C.free(unsafe.Pointer(name))
		if rc == 0 {
			l.Path = path
			break
		}
		if first == "" {
			first = C.GoString(&text[0])
		}
	}
	if l.Path == "" {
		return l, unavailable("%s", first)
	}
	said := C.GoString(C.gorun_pmix_library_version())
	l.Version, _ = versionOf(said)
	if err := supported(said); err != nil {
		return l, err
	}
	if C.gorun_pmix_find(&text[0], C.size_t(len(text))) != 0 {
		return l, unavailable("%s", C.GoString(&text[0]))
	}
	return l, nil
}

// TryMPI is a rank of the MPI whose library is at a path, and ends the process as one. It
// returns what went wrong, where the library has not ended the process itself.
func TryMPI(path string) error {
	runtime.LockOSThread()
	var text [512]C.char
	name := C.CString(path)
	if rc := C.gorun_mpi_try(name, &text[0], C.size_t(len(text))); rc != 0 {
		return fmt.Errorf("MPI_Init or MPI_Finalize of %s: status %d %s", path, int(rc), C.GoString(&text[0]))
	}
	return nil
}

// Start makes the server of this process, which must have none yet and keeps it
// to its end. tmpdir is an existing directory for what libpmix writes.
func Start(tmpdir, host string, h Handler) (*Server, error) {
	if _, err := Probe(); err != nil {
		return nil, err
	}
	s := &Server{handler: h, modex: make(map[uint64]func(Status, []byte))}
	dir, name := C.CString(tmpdir), C.CString(host) // libpmix may keep them
	if rc := C.gorun_pmix_start(C.uintptr_t(cgo.NewHandle(s)), dir, name); rc != 0 {
		return nil, fmt.Errorf("PMIx_server_init in %s: %v", tmpdir, Status(rc))
	}
	return s, nil
}

// words are strings in C's memory, all freed at once.
type words struct{ all []unsafe.Pointer }

func (w *words) add(s string) *C.char {
	p := C.CString(s)
	w.all = append(w.all, unsafe.Pointer(p))
	return p
}

func (w *words) keep(p unsafe.Pointer) unsafe.Pointer {
	w.all = append(w.all, p)
	return p
}

func (w *words) free() {
	for _, p := range w.all {
		C.free(p)
	}
}

// numbers copies a list into C's memory.
func (w *words) numbers(list []uint32) *C.uint32_t {
	p := w.keep(C.calloc(C.size_t(len(list)+1), 4))
	copy(unsafe.Slice((*uint32)(p), len(list)), list)
	return (*C.uint32_t)(p)
}

func (w *words) strings(list []string) **C.char {
	p := (**C.char)(w.keep(C.calloc(C.size_t(len(list)+1), C.size_t(unsafe.Sizeof(uintptr(0))))))
	array := unsafe.Slice(p, len(list))
	for i, s := range list {
		array[i] = w.add(s)
	}
	return p
}

// Register makes a namespace and its ranks of this node known: from then on these
// may connect. They must belong to this process's user.
func (s *Server) Register(ns Namespace) error {
	if err := ns.check(); err != nil {
		return err
	}
	var w words
	defer w.free()
	nodes, procs := ns.procs()
	local, peers := ns.locals()
	apps := ns.AppOf
	if apps == nil {
		apps = make([]uint32, len(ns.NodeOf))
	}
	count := uint32(1)
	for _, a := range apps {
		count = max(count, a+1)
	}
	universe := cmp.Or(ns.Universe, len(ns.NodeOf))
	parent := Proc{}
	if ns.Parent != nil {
		parent = *ns.Parent
	}
	used := map[uint32]bool{}
	for _, n := range ns.NodeOf {
		used[n] = true
	}
	counts, firsts := ns.programs()
	dirs := make([]string, len(ns.NodeOf))
	own := filepath.Join(ns.Session, ns.Name)
	for r, n := range ns.NodeOf {
		if ns.Session != "" && int(n) == ns.Node {
			dirs[r] = filepath.Join(own, strconv.Itoa(r))
		}
	}
	lines, wdirs := make([]string, count), make([]string, count)
	for i, p := range ns.Programs[:min(len(ns.Programs), int(count))] {
		lines[i], wdirs[i] = strings.Join(p.Argv, " "), p.Dir
	}
	c := C.gorun_namespace{
		app_lines: w.strings(lines), app_dirs: w.strings(wdirs),
		dir: w.add(ns.Session), own_dir: w.add(own), rank_dirs: w.strings(dirs), restarts: C.uint32_t(ns.Restarts),
		program_counts: w.add(counts), program_firsts: w.add(firsts),
		nspace: w.add(ns.Name), nodes: w.add(nodes), procs: w.add(procs), peers: w.add(strings.Join(peers, ",")),
		parent: w.add(parent.Space), parent_rank: C.uint32_t(parent.Rank),
		size: C.uint32_t(len(ns.NodeOf)), universe: C.uint32_t(universe), node: C.uint32_t(ns.Node),
		node_count: C.uint32_t(len(used)), app_count: C.uint32_t(count), local_count: C.uint32_t(len(peers)),
		node_of: w.numbers(ns.NodeOf), local_rank: w.numbers(local), app_of: w.numbers(apps),
		node_names: w.strings(ns.Nodes),
	}
	if rc := C.gorun_pmix_register(&c, C.uint32_t(os.Geteuid()), C.uint32_t(os.Getegid())); rc != 0 {
		return fmt.Errorf("PMIx server: register namespace %s of %d ranks: %v", ns.Name, len(ns.NodeOf), Status(rc))
	}
	return nil
}

// Deregister forgets a namespace whose ranks have ended.
func (s *Server) Deregister(namespace string) {
	name := C.CString(namespace)
	defer C.free(unsafe.Pointer(name))
	C.gorun_pmix_deregister(name)
}

// Address is where the server listens, as host:port; namespace is a registered one.
func (s *Server) Address(namespace string) (string, error) {
	var text [256]C.char
	name := C.CString(namespace)
	defer C.free(unsafe.Pointer(name))
	if rc := C.gorun_pmix_uri(name, &text[0], C.size_t(len(text))); rc != 0 {
		return "", fmt.Errorf("PMIx_server_setup_fork: %v", Status(rc))
	}
	uri := C.GoString(&text[0])
	_, address, ok := strings.Cut(uri, ";tcp4://")
	if !ok {
		return "", fmt.Errorf("libpmix listens at %q: want NAME;tcp4://HOST:PORT", uri)
	}
	return address, nil
}

// Modex asks for what a process of this node has put; answer gets it, now or when
// the process has.
func (s *Server) Modex(p Proc, answer func(Status, []byte)) {
	s.mu.Lock()
	s.next++
	id := s.next
	s.modex[id] = answer
	s.mu.Unlock()
	name := C.CString(p.Space)
	defer C.free(unsafe.Pointer(name))
	if rc := C.gorun_pmix_modex(name, C.uint32_t(p.Rank), C.uint64_t(id)); rc != 0 {
		s.modexDone(id, Status(rc), nil)
	}
}

func (s *Server) modexDone(id uint64, status Status, data []byte) {
	s.mu.Lock()
	answer := s.modex[id]
	delete(s.modex, id)
	s.mu.Unlock()
	if answer != nil {
		answer(status, data)
	}
}

// Deliver gives the local processes an event that Handler.Notify of another node
// was given.
func (s *Server) Deliver(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	if rc := C.gorun_pmix_deliver(unsafe.Pointer(&data[0]), C.size_t(len(data))); rc != 0 {
		return fmt.Errorf("deliver an event of %d bytes: %v", len(data), Status(rc))
	}
	return nil
}

// Ping returns when libpmix's thread has answered.
func (s *Server) Ping() error {
	if rc := C.gorun_pmix_ping(); rc != 0 {
		return fmt.Errorf("PMIx server: ping: %v", Status(rc))
	}
	return nil
}
