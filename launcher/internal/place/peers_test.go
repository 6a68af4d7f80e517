package place

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/topo"
)

// synthetic is a machine as hwloc makes one up: two packages of two NUMA nodes of
// two cores of two threads, numbered one after the other.
const synthetic = "pack:2 numa:2 l3:1 core:2 pu:2"

func syntheticMachine() *topo.Machine {
	files := fstest.MapFS{}
	put := func(name, text string) { files["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(text)} }
	put("cpu/online", "0-15")
	put("node/online", "0-3")
	for cpu := range 16 {
		among := func(n int) string { return fmt.Sprintf("%d-%d", cpu/n*n, cpu/n*n+n-1) }
		dir := fmt.Sprintf("cpu/cpu%d/", cpu)
		put(dir+"topology/core_cpus_list", among(2))
		put(dir+"topology/package_cpus_list", among(8))
		put(dir+"cache/index0/level", "3")
		put(dir+"cache/index0/type", "Unified")
		put(dir+"cache/index0/shared_cpu_list", among(4))
		put(fmt.Sprintf("node/node%d/cpulist", cpu/4), among(4))
	}
	m := topo.Read(files)
	return &m
}

// bindings runs a launcher on that machine and reads from what it prints which
// CPUs each rank would be bound to.
func bindings(t *testing.T, line *regexp.Regexp, command string, args ...string) string {
	t.Helper()
	this := "HWLOC_THISSYSTEM=1"
	if command == "mpiexec.mpich" {
		this = "HWLOC_THISSYSTEM=0" // else Hydra of MPICH 5 fails where it cannot bind to a CPU that is not there
	}
	var out []byte
	for range 3 { // on a busy machine mpiexec may end without what its proxy has written
		cmd := exec.CommandContext(testenv.Deadline(t, 30*time.Second), testenv.Need(t, command), args...)
		cmd.Env = append(os.Environ(), "HWLOC_SYNTHETIC="+synthetic, this, "HYDRA_TOPO_DEBUG=1")
		cmd.WaitDelay = time.Second
		if out, _ = cmd.CombinedOutput(); len(out) > 0 { // mpirun tells that it was not to launch as a failure
			break
		}
	}
	var ranks []string
	for _, found := range line.FindAllStringSubmatch(string(out), -1) {
		rank, _ := strconv.Atoi(found[1])
		for len(ranks) <= rank {
			ranks = append(ranks, "")
		}
		ranks[rank] = drawn(t, strings.Join(found[2:], "")).String()
	}
	if len(ranks) == 0 {
		t.Fatalf("%s %v wrote %s", command, args, out)
	}
	return strings.Join(ranks, " | ")
}

// drawn reads the CPUs of a rank: a character each, B or 1 for those it may use, or as
// Open MPI 5 has it, package[0][core:0-1] or package[0][hwt:3]; 6 has [core:L0-1].
func drawn(t *testing.T, text string) (s topo.Set) {
	t.Helper()
	if _, list, named := strings.Cut(strings.TrimSuffix(text, "]"), ":"); named {
		threads := 1
		if strings.Contains(text, "[core:") {
			threads = 2
		}
		objects, err := topo.ParseSet(strings.ReplaceAll(list, "L", ""))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, object := range objects.List() {
			for i := range threads {
				s.Add(object*threads + i)
			}
		}
		return s
	}
	for i, c := range strings.NewReplacer("[", "", "]", "", "/", "").Replace(text) {
		if c == 'B' || c == '1' {
			s.Add(i)
		}
	}
	return s
}

// ours is what Place makes of the same words.
func ours(t *testing.T, np int, words string) string {
	t.Helper()
	p, err := policyOf(words)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Place([]Host{{Name: "a", Slots: 8, Machine: syntheticMachine()}}, []App{{NP: np}}, p)
	if err != nil {
		t.Fatalf("%s: %v", words, err)
	}
	return bound(r)
}

// The same words place ranks as Open MPI's mpirun does.
func TestOpenMPIPlacesAlike(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	version := testenv.Version(t, "mpirun.openmpi")
	line := regexp.MustCompile(`Process rank: (\d+) Bound: (?:.*:([\[\]B./]+)|(package\[\d+\]\[\w+:[L\d,-]+\]))`)
	for _, c := range []struct {
		np          int
		theirs, own string
		otherwise   string // why Open MPI 5 does it in another way, with version 5.0.7
	}{
		{2, "", "bind=openmpi", ""},
		{4, "", "bind=openmpi", "it maps by core, whatever the number of ranks"},
		{4, "--bind-to core", "map=openmpi bind=core", "it maps by core, whatever the number of ranks"},
		{4, "--map-by socket", "map=socket bind=openmpi", "it fills an object before the next"},
		{4, "--map-by core", "map=core bind=openmpi", ""},
		{6, "--map-by numa --bind-to core", "map=numa bind=core", "it fills an object before the next"},
		{4, "--map-by l3cache", "map=l3cache", ""},
		{8, "--map-by hwthread", "map=hwthread", ""},
		{4, "--map-by socket --rank-by core", "map=socket rank=core", "it has no such word for --rank-by"},
		{4, "--map-by socket --rank-by socket --bind-to core", "map=socket rank=socket bind=core", "it has no such word for --rank-by"},
		{4, "--map-by ppr:2:socket --bind-to core", "map=ppr:2:socket bind=core", ""},
		{4, "--map-by ppr:2:socket --rank-by socket --bind-to core", "map=ppr:2:socket rank=socket bind=core", "it has no such word for --rank-by"},
		{8, "--map-by ppr:2:numa --rank-by slot --bind-to core", "map=ppr:2:numa rank=slot bind=core", ""},
		{4, "--map-by slot:pe=2", "map=slot:pe=2", ""},
		{4, "--map-by socket:pe=2", "map=socket:pe=2", "it fills an object before the next"},
		{4, "--map-by node --bind-to hwthread", "map=node bind=hwthread", "it finds no CPU"},
		{4, "--map-by slot --bind-to socket", "map=slot bind=socket", "it binds all to the first object that the slots are on"},
	} {
		t.Run(c.theirs, func(t *testing.T) {
			if c.otherwise != "" && !strings.HasPrefix(version, "4.") {
				testenv.Foreign(t, "mpirun.openmpi "+version+": "+c.otherwise)
			}
			args := append([]string{"--allow-run-as-root", "-H", host + ":8", "--display-map", "--do-not-launch", "--report-bindings", "-np", strconv.Itoa(c.np)}, strings.Fields(c.theirs)...)
			want := bindings(t, line, "mpirun.openmpi", append(args, "true")...)
			if got := ours(t, c.np, c.own); got != want {
				t.Errorf("np %d %s: got %s, mpirun has %s", c.np, c.own, got, want)
			}
		})
	}
}

// The same words bind ranks as Hydra's mpiexec does.
func TestHydraPlacesAlike(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	line := regexp.MustCompile(`(?m)^process (\d+) binding: ([01]+)`)
	for _, c := range []struct {
		np          int
		theirs, own string
	}{
		{6, "-bind-to core", "bind=core"},
		{6, "-bind-to hwthread", "bind=hwthread"},
		{6, "-bind-to core -map-by numa", "bind=core map=numa"},
		{6, "-bind-to hwthread -map-by socket", "bind=hwthread map=socket"},
		{6, "-bind-to numa -map-by socket", "bind=numa map=socket"},
		{6, "-bind-to core:2", "bind=core:2:overload-allowed"},
		{4, "-bind-to numa", "bind=numa"},
		{6, "-bind-to l3cache", "bind=l3cache"},
		{6, "-bind-to socket", "bind=socket"},
		{20, "-bind-to hwthread", "bind=hwthread:overload-allowed"},
		{6, "-bind-to rr", "bind=rr"},
		{2, "-bind-to user:0+2,1", "bind=user:0+2,1"},
	} {
		t.Run(c.theirs, func(t *testing.T) {
			want := bindings(t, line, "mpiexec.mpich", append(append([]string{"-n", strconv.Itoa(c.np)}, strings.Fields(c.theirs)...), "true")...)
			if got := ours(t, c.np, c.own); got != want {
				t.Errorf("np %d %s: got %s, mpiexec has %s", c.np, c.own, got, want)
			}
		})
	}
}
