package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gorun-mpi/gorun/internal/mpilib"
)

// The test's own program is the child of Reach's trial too.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ReachWord {
		os.Exit(Reach(os.Args[2:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// machine is a View that tests make: files, limits, programs.
type machine struct {
	elf mpilib.ELF // of every program
	*View
	files      fstest.MapFS
	limits     map[int][2]uint64
	limitError error
	space      map[string]Space
	says       map[string]string // what a command line prints
	ran        map[string]int    // how often
	fails      map[string]error
	verbs      int           // devices that libibverbs knows
	took       time.Duration // what a look into the name service takes
	mu         sync.Mutex
	clock      time.Time
}

func addrs(texts ...string) []netip.Addr {
	var list []netip.Addr
	for _, t := range texts {
		list = append(list, netip.MustParseAddr(t))
	}
	return list
}

const everyday = 0o644

// tryMPICH is how the MPI of a healthy machine is tried.
const tryMPICH = "/opt/gorun/gorun --strict-pmi -np 2 /opt/gorun/gorun-pmix --try-mpi /usr/lib/libmpich.so.12"

// healthy is a machine on which all is well: a user's, with four CPUs, both MPIs
// and a job of four ranks.
func healthy() *machine {
	m := &machine{
		files:  fstest.MapFS{},
		limits: map[int][2]uint64{},
		space:  map[string]Space{"/dev/shm": {Total: 8 << 30, Free: 8 << 30}, "/tmp": {Total: 100 << 30, Free: 50 << 30}},
		says:   map[string]string{},
		ran:    map[string]int{},
		fails:  map[string]error{},
		verbs:  1,
		clock:  time.Unix(1_800_000_000, 0),
	}
	m.put("proc/self/status", "Name:\tgorun-info\nSeccomp:\t0\nCpus_allowed_list:\t0-3\n")
	m.put("proc/self/maps", "7f00-7f01 r--p 00000000 00:00 0 /usr/bin/gorun-info\n")
	m.put("proc/self/cgroup", "0::/user.slice/job\n")
	m.put("proc/17/comm", "bash\n")
	m.put("proc/17/maps", "")
	m.put("proc/17/environ", "HOME=/home/ada\x00")
	m.put("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
	m.put("proc/sys/kernel/core_pattern", "core\n")
	m.put("proc/sys/kernel/yama/ptrace_scope", "1\n")
	m.put("proc/sys/kernel/pid_max", "4194304\n")
	m.put("proc/sys/vm/overcommit_memory", "0\n")
	m.put("proc/meminfo", "MemTotal: 1 kB\nCommitLimit:    4096 kB\n")
	m.put("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")
	m.put("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n")
	m.put("sys/fs/cgroup/user.slice/job/cgroup.procs", "1\n")
	m.put("sys/devices/system/cpu/online", "0-3\n")
	m.put("dev/shm/.keep", "")
	m.put("tmp/.keep", "")
	for file, text := range map[string]string{
		"opt/gorun/gorun":             "gorun 0.1.0 abc, go1.26\n",
		"opt/gorun/gorun-agent":       "gorun-agent of gorun 0.1.0 abc, go1.26\n",
		"usr/bin/mpirun":              "mpirun (Open MPI) 4.1.4\n\nReport bugs to ...\n",
		"usr/bin/mpiexec":             "mpiexec (OpenRTE) 4.1.4\n",
		"usr/bin/mpiexec.mpich":       "HYDRA build details:\n    Version:                                 4.0.2\n    Release Date: ...\n",
		"usr/bin/mpicc":               "gcc -I/usr/lib/x86_64-linux-gnu/openmpi/include -lmpi\n",
		"usr/lib64/mpich/bin/mpiexec": "HYDRA build details:\n    Version:   3.4\n",
	} {
		m.program(file, text)
	}
	m.says["/opt/gorun/gorun -np 2 true"] = ""
	m.says[tryMPICH] = ""
	m.View = &View{
		Root:    m.files,
		Environ: []string{"PATH=/opt/gorun:relative:/usr/local/bin:/usr/bin", "HOME=/home/ada"},
		UID:     1000,
		Ranks:   4,
		Beside:  "/opt/gorun",
		Version: "0.1.0 abc",
		Now: func() time.Time {
			m.mu.Lock()
			defer m.mu.Unlock()
			now := m.clock
			m.clock = m.clock.Add(m.took)
			return now
		},
		Limit: func(resource int) (uint64, uint64, error) {
			if l, set := m.limits[resource]; set {
				return l[0], l[1], m.limitError
			}
			return unlimited, unlimited, m.limitError
		},
		Space: func(dir string) (Space, error) {
			s, known := m.space[dir]
			if !known {
				return s, fs.ErrNotExist
			}
			return s, nil
		},
		TryFile:     func(dir string) error { return m.fails["file "+dir] },
		TryGroup:    func(dir string) error { return m.fails["group "+dir] },
		TryMemfd:    func() error { return m.fails["memfd"] },
		TryReach:    func(context.Context) error { return m.fails["reach"] },
		TryLoopback: func(context.Context) error { return m.fails["loopback"] },
		TryOpen:     func(name string) error { return m.fails["open "+name] },
		Verbs:       func() (int, error) { return m.verbs, m.fails["verbs"] },
		Membarrier:  func() (uint64, error) { return 0xff, m.fails["membarrier"] },
		PMIx: func(context.Context) PMIxSupport {
			return PMIxSupport{Helper: "/opt/gorun/gorun-pmix", Exists: true, Cgo: true, Library: "libpmix.so.2", Version: "4.2.2"}
		},
		Libraries: func() []mpilib.Library {
			return []mpilib.Library{{Path: "/usr/lib/libmpich.so.12", MPI: mpilib.MPICH, Soname: "libmpich.so.12"}}
		},
		ReadELF: func(file string) (mpilib.ELF, error) { return m.elf, m.fails["elf "+file] },
		Run: func(_ context.Context, argv ...string) (string, string, error) {
			line := strings.Join(argv, " ")
			if argv[0] == "ssh" {
				line = "ssh " + argv[len(argv)-2]
			}
			m.mu.Lock()
			m.ran[line]++
			m.mu.Unlock()
			text, known := m.says[line]
			if err := m.fails[line]; err != nil {
				return "", text, err
			}
			if !known {
				return "", "", errors.New("no such program in this test: " + line)
			}
			return text, "", nil
		},
		Hostname: func() (string, error) { return "node01", m.fails["hostname"] },
		IsOwn:    func(name string) bool { return name == "node01" },
		Resolve: func(_ context.Context, name string) ([]netip.Addr, error) {
			if name == "node01" {
				return addrs("10.0.0.1"), m.fails["resolve node01"]
			}
			return addrs("10.0.0.2"), m.fails["resolve "+name]
		},
		Reverse: func(_ context.Context, a netip.Addr) ([]string, error) {
			if a.Is4In6() {
				return nil, nil
			}
			return []string{"node01."}, m.fails["reverse"]
		},
		Interfaces: func() ([]Interface, error) { return twoInterfaces(), m.fails["interfaces"] },
	}
	return m
}

func twoInterfaces() []Interface {
	return []Interface{{"lo", addrs("127.0.0.1", "::1")}, {"eth0", addrs("10.0.0.1", "fe80::1")}}
}

func (m *machine) put(name, text string) {
	m.files[name] = &fstest.MapFile{Data: []byte(text), Mode: everyday}
}

// own makes a file of a user's that is an hour old.
func (m *machine) own(name, text string, uid uint32) {
	m.files[name] = &fstest.MapFile{Data: []byte(text), Mode: everyday, ModTime: m.clock.Add(-time.Hour), Sys: &syscall.Stat_t{Uid: uid}}
}

// program makes an executable that says the same whatever it is asked.
func (m *machine) program(file, says string) {
	m.files[file] = &fstest.MapFile{Mode: 0o755}
	m.says["/"+file+" --version"], m.says["/"+file+" -show"] = says, says
}

func (m *machine) variable(name, value string) { m.Environ = append(m.Environ, name+"="+value) }

// look runs one check.
func (m *machine) look(t *testing.T, name string) Finding {
	t.Helper()
	for _, c := range checks() {
		if c.name == name {
			return c.look(t.Context(), m.View)
		}
	}
	t.Fatalf("there is no check %s", name)
	return Finding{}
}
