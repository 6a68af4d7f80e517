package layers

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

const module = "github.com/gorun-mpi/gorun/"

// A layer is a part of the module: the packages at and below a path, except those
// that are layers themselves.
type layer struct {
	path string
	what string
	may  string // the layers that its non-test files may import
}

// layers is the table in ARCHITECTURE.md. Imports point down; launcher and rank meet
// on the PMI wire only.
var layers = []layer{
	{"cmd/gorun", "the command line becomes a launcher.Job, its result the exit status", "launcher launcher/hostfile launcher/profile cmd/internal internal/envvar internal/ports internal/prelude internal/self internal/topo internal/version internal/visit"},
	{"cmd/gorun-agent", "the ranks of one host, for a gorun elsewhere", "launcher/agent internal/version"},
	{"cmd/gorun-offload", "the daemon that steps started collectives of a host's ranks", "coll rdma/soft internal/endsignal internal/shm internal/version"},
	{"cmd/gorun-pmix", "the PMIx server of a host, for programs of Open MPI", "internal/endsignal internal/pmix internal/pmix/link internal/peer"},
	{"cmd/gorun-info", "the machine's abilities, and what stands in a job's way; internal/doctor: checks, pure functions of a View", "rdma rdma/soft rdma/verbs launcher/hostfile cmd/internal internal/envvar internal/meet internal/mpilib internal/pmix/link internal/ports internal/reach internal/self internal/topo internal/version internal/visit"},
	{"cmd/gorun-verbs", "a verbs program becomes one on software devices", "cmd/internal internal/ports internal/self internal/version rdma/comch rdma/dropin"},
	{"cmd/a2a", "the all-to-all application", "rank coll rdma rdma/soft rdma/soft/softtls rdma/dpa rdma/verbs cmd/internal internal/self internal/version"},
	{"cmd/pingpong", "a tutorial of verbs between two processes, and their measurement", "rank rdma rdma/soft rdma/soft/softtls rdma/verbs pmi cmd/internal internal/shm internal/version internal/wait"},
	{"cmd/secure-channel", "DOCA's secure channel: messages between a host and its DPU", "rank rdma rdma/soft rdma/verbs rdma/comch pmi cmd/internal internal/envvar internal/pack internal/topo internal/version"},
	{"cmd/allreduce", "DOCA's all-reduce: daemons that work while their clients compute; internal/group: how members meet, and their part in a world of package rank", "rank coll rdma/comch rdma/soft/softtls cmd/internal internal/envvar internal/kernel internal/pack internal/peer internal/ports internal/version"},
	{"cmd/gorun-bench", "measures gorun, and MPIs beside it, with ranks of itself", "launcher rank coll rdma rdma/soft/softtls rdma/dpa rdma/verbs cmd/internal internal/endsignal internal/mpilib internal/topo internal/version internal/yardstick testdata"},
	{"cmd/gorun-bench-init", "the smallest rank, with which gorun-bench times Init and Finalize", "rank"},
	{"cmd/internal", "what commands share: DOCA's conventions, log lines, manual pages", "internal/endsignal internal/version"},
	{"launcher", "Job, Run, Result; internal: place, host, guard, agent, hub, sidecar, stdio, orphan", "pmi launcher/hostfile launcher/profile internal/calls internal/endsignal internal/envvar internal/lines internal/mpilib internal/peer internal/pmix/link internal/ports internal/proc internal/reach internal/self internal/shm internal/topo internal/version"},
	{"launcher/agent", "an agent's program", "launcher internal/endsignal internal/gossip internal/meet"},
	{"launcher/profile", "where a job's time went: what ranks have recorded, matched and judged; a summary, a page, a trace", "internal/calls"},
	{"launcher/hostfile", "lists and files of hosts, pure", ""},
	{"rank", "Init, World, Comm, messages, collectives, windows, Run; internal: meeting, peers, p2p, match, rma, and pure datatype, group, topology", "coll rdma rdma/soft pmi internal/arch internal/calls internal/endsignal internal/envvar internal/kernel internal/pack internal/peer internal/ports internal/proc internal/reach internal/sendq internal/shm internal/topo internal/version internal/wait"},
	{"rank/ranktest", "ranks as goroutines, in tests", "rank rdma/soft"},
	{"coll", "plans and the machine that runs them", "rdma internal/arch internal/kernel internal/sendq internal/shm internal/wait"},
	{"coll/sim", "collectives of many thousand ranks on a fabric with a virtual clock", "coll"},
	{"pmi", "PMI-1 and PMI-2: wires, engine, Store; PMI-1: client", "internal/envvar internal/pack"},
	{"pmi/pmitest", "fences between hosts of one process, in tests", ""},
	{"rdma", "the verbs object model and its rules", ""},
	{"rdma/soft", "the software device", "rdma internal/arch internal/ports internal/proc internal/shm"},
	{"rdma/soft/softtls", "TLS 1.3 for its connections between hosts", "rdma/soft internal/tlskey"},
	{"rdma/verbs", "the devices of libibverbs, found at run time (cgo)", "rdma"},
	{"rdma/dropin", "a libibverbs.so.1 with software devices and a librdmacm.so.1 over it: shim, cm and loader (C), library (cgo) of handles over rdma/soft, meet: how processes of a user find each other", "rdma rdma/comch rdma/soft rdma/soft/softtls internal/ports internal/proc internal/reach internal/shm"},
	{"abi", "a libmpi_abi.so.1 on package rank, for C programs: tables of the standard ABI, the C side (generated but for a few functions), library (cgo) of handles and conversions; mpich: the same functions for programs of MPICH's ABI (C, generated); profile: what programs of any MPI load to record their calls (C)", "rank"},
	{"rdma/comch", "a message channel between two programs: rings within a host, TLS between hosts", "internal/arch internal/pack internal/shm internal/tlskey internal/wait"},
	{"rdma/dpa", "device threads that run kernels, post and poll: DOCA's DPA", "rdma internal/arch internal/sendq internal/topo internal/wait"},
	{"rdma/rdmatest", "one conformance suite for every provider", "rdma internal/proc internal/testenv"},
	{"internal/gossip", "the Store across hosts: a tree of connections, membership by memberlist", "pmi internal/tlskey"},
	{"internal/pmix", "libpmix, found at run time, behind Go types (cgo)", "internal/pmix/link"},
	{"internal/pmix/link", "the frames between a host and its gorun-pmix", ""},
	{"internal/mpilib", "the MPI libraries of a machine, and what programs are linked with", "internal/envvar internal/self"},
	{"internal/kernel", "reductions, element by element", "internal/arch"},
	{"internal/sendq", "a queue pair with the account of its send queue: what is posted, signalled and done", "rdma"},
	{"internal/shm", "the job segment and its bells", "internal/arch"},
	{"internal/wait", "how a rank waits", "internal/arch"},
	{"internal/arch", "PAUSE, release stores, sched_yield, membarrier", ""},
	{"internal/topo", "the machine: cores, caches, NUMA nodes, packages, and what affinity and control groups leave of it", ""},
	{"internal/topo/topotest", "recorded machines, for tests", "internal/topo testdata"},
	{"internal/proc", "what the kernel says of a process in /proc/PID/stat", ""},
	{"internal/calls", "the record of a rank's calls: a file that it writes, and its host reads", "internal/arch"},
	{"internal/lines", "the lines of sources that addresses of programs come from", ""},
	{"internal/ports", "ranges of ports, out of which those that listen take theirs", ""},
	{"internal/peer", "the owner of the other end of a local connection, and doors that let in one user's", ""},
	{"internal/prelude", "a look at the limits of a process before Go's runtime begins", ""},
	{"internal/endsignal", "what the parts of a job make of the signals INT and TERM", ""},
	{"internal/envvar", "variables of an environment of the form of os.Environ", ""},
	{"internal/self", "the file of this program, beside which its helpers are", ""},
	{"internal/reach", "the address at which other hosts reach this one, and the names that are its own", ""},
	{"internal/pack", "bounded msgpack for cards and fences", ""},
	{"internal/visit", "how gorun-info top looks at a job that runs", "internal/proc"},
	{"internal/meet", "whether hosts reach each other, for gorun-info doctor", "internal/ports internal/tlskey"},
	{"internal/tlskey", "TLS 1.3 between two ends that know one key", ""},
	{"internal/yardstick", "what a machine charges for a system call, a page, a hand-over, a process", ""},
	{"internal/version", "which gorun this is", ""},
	{"internal/rxevm", "for tests: a virtual machine with Soft-RoCE devices, and `scripts/rxe`", "internal/proc"},
	{"internal/testbed", "for tests: hosts with sshd, made of namespaces", "internal/proc internal/testenv"},
	{"internal/testenv", "for tests: what they may expect of a machine, leaks, generated pages", "internal/yardstick"},
	{"internal/layers", "tests of this table and of the sources' words", ""},
	{"testdata", "programs and files that gorun-bench carries with it", ""},
	{"e2e", "tests of the commands as processes, from scripts", ""},
	{"scripts/_dist", "packs what `make dist` has built, by nfpm and cyclonedx-go; a module of its own", ""},
	{"examples", "programs of 40 to 80 lines, which tests run", "rank rdma rdma/soft"},
	{"e2e/results", "`make results`: what the guides of DOCA's applications measured, beside the MPIs", ""},
	{"e2e/hosts/rank", "what runs on the hosts of e2e/hosts", "rank"},
	{"e2e/attack", "`make attack`: random kills, deaths across hosts, floods; a rank itself", "rank internal/proc"},
}

// inner has the order inside of rank/internal and launcher/internal: which package
// may import which others of them. rank and launcher may import all of theirs.
var inner = map[string]string{
	"rank/internal/agree":        "rank/internal/group",
	"rank/internal/datatype":     "",
	"rank/internal/group":        "",
	"rank/internal/meeting":      "rank/internal/peers/wireup",
	"rank/internal/match":        "",
	"rank/internal/p2p":          "rank/internal/match rank/internal/peers rank/internal/peers/dc",
	"rank/internal/peers":        "rank/internal/peers/dc rank/internal/peers/mail rank/internal/peers/wireup",
	"rank/internal/peers/dc":     "rank/internal/peers/wireup",
	"rank/internal/peers/mail":   "",
	"rank/internal/peers/wireup": "rank/internal/peers/mail",
	"rank/internal/rma":          "rank/internal/datatype rank/internal/peers rank/internal/peers/dc",
	"rank/internal/topology":     "",
	"launcher/internal/agent":    "launcher/internal/host launcher/internal/orphan launcher/internal/stdio",
	"launcher/internal/guard":    "",
	"launcher/internal/host":     "launcher/hosting launcher/internal/guard launcher/internal/orphan launcher/internal/sidecar launcher/internal/stdio",
	"launcher/internal/hub":      "",
	"launcher/internal/orphan":   "",
	"launcher/internal/place":    "",
	"launcher/internal/sidecar":  "launcher/internal/stdio",
	"launcher/internal/stdio":    "",
}

// mayInside has the imports of each such package by its path.
var mayInside = func() map[string][]string {
	m := map[string][]string{}
	for p, list := range inner {
		m[p] = strings.Fields(list)
	}
	return m
}()

// may has the imports of each layer by its path.
var may = func() map[string][]string {
	m := map[string][]string{}
	for _, l := range layers {
		m[l.path] = strings.Fields(l.may)
	}
	return m
}()

var update = flag.Bool("update", false, "write the table in ARCHITECTURE.md anew")

func TestArchitectureHasTheTable(t *testing.T) {
	var b strings.Builder
	b.WriteString("| part | what it is | may import |\n|---|---|---|\n")
	for _, l := range layers {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", l.path, l.what, strings.Join(strings.Fields(l.may), ", "))
	}
	testenv.Page(t, filepath.Join(root, "ARCHITECTURE.md"), "imports", b.String(), *update)
}

// only names the sole part that may import a package from outside the module.
var only = map[string][]string{
	"github.com/hashicorp/memberlist":   {"internal/gossip"},
	"github.com/hashicorp/yamux":        {"launcher"},
	"github.com/sirupsen/logrus":        {"cmd/gorun", "cmd/a2a", "cmd/pingpong", "cmd/secure-channel", "cmd/allreduce", "cmd/gorun-bench", "cmd/internal"},
	"github.com/spf13/pflag":            {"cmd/gorun", "cmd/gorun-info", "cmd/gorun-verbs", "cmd/gorun-offload", "cmd/a2a", "cmd/internal"},
	"github.com/tailscale/hujson":       {"cmd/internal"},
	"github.com/vmihailenco/msgpack/v5": {"internal/calls", "internal/pack", "launcher", "internal/pmix/link"},
	"github.com/rogpeppe/go-internal":   {"e2e"},
	"net/http":                          {"e2e/attack"},
	"C":                                 {"internal/pmix", "rdma/verbs", "rdma/dropin", "abi"},
}

type file struct {
	path string // from the module's root
	part string // its entry in may
	pkg  string // its directory
	test bool
	ast  *ast.File
}

var root = filepath.Join("..", "..")

// sources gives every Go file of the module, which is parsed once.
func sources(t *testing.T) (*token.FileSet, []file) {
	t.Helper()
	p := parsed()
	if p.err != nil {
		t.Fatal(p.err)
	}
	if len(p.files) < 20 {
		t.Fatalf("found only %d Go files below %s: the walk misses the module", len(p.files), root)
	}
	return p.fset, p.files
}

type tree struct {
	fset  *token.FileSet
	files []file
	err   error
}

var parsed = sync.OnceValue(func() tree {
	fset := token.NewFileSet()
	var files []file
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if p == filepath.Join(root, "testdata") {
			return nil // its own files are a package
		}
		if d.IsDir() && (filepath.Dir(p) == filepath.Join(root, "testdata") || d.Name() == "testdata" || d.Name() == "bin" || strings.HasPrefix(d.Name(), ".") && d.Name() != "..") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(p, ".go") {
			return nil
		}
		parsed, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		pkg := path.Dir(rel)
		files = append(files, file{path: rel, part: part(pkg), pkg: pkg, test: strings.HasSuffix(rel, "_test.go"), ast: parsed})
		return nil
	})
	return tree{fset, files, err}
})

func part(pkg string) string {
	for p := pkg; p != "."; p = path.Dir(p) {
		if _, ok := may[p]; ok {
			return p
		}
	}
	return ""
}

func imports(f file) []string {
	var list []string
	for _, spec := range f.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			list = append(list, p)
		}
	}
	return list
}

func within(p, tree string) bool { return p == tree || strings.HasPrefix(p, tree+"/") }

func contains(list []string, s string) bool {
	for _, e := range list {
		if e == s {
			return true
		}
	}
	return false
}

func TestImportsPointDown(t *testing.T) {
	_, files := sources(t)
	for _, f := range files {
		if f.part == "" {
			t.Errorf("%s: package %s stands in no line of the table", f.path, f.pkg)
			continue
		}
		if f.test {
			continue
		}
		for _, imp := range imports(f) {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			target := part(strings.TrimPrefix(imp, module))
			if target != f.part && !contains(may[f.part], target) {
				t.Errorf("%s imports %s: %s may import only %s", f.path, imp, f.part, strings.Join(may[f.part], ", "))
			}
		}
	}
}

func TestImportsPointDownInsideRankAndLauncher(t *testing.T) {
	_, files := sources(t)
	for _, f := range files {
		internal := f.part + "/internal"
		if f.part != "rank" && f.part != "launcher" || !within(f.pkg, internal) || f.test {
			continue
		}
		allowed, known := mayInside[f.pkg]
		if !known {
			t.Errorf("%s: package %s stands in no line of the table of packages inside of %s", f.path, f.pkg, f.part)
			continue
		}
		for _, imp := range imports(f) {
			target := strings.TrimPrefix(imp, module)
			if target != imp && part(target) == f.part && !contains(allowed, target) {
				t.Errorf("%s imports %s: of %s, %s may import only %q", f.path, imp, f.part, f.pkg, allowed)
			}
		}
	}
}

func TestOutsideImportsStayWhereTheyBelong(t *testing.T) {
	_, files := sources(t)
	for _, f := range files {
		for _, imp := range imports(f) {
			for outside, parts := range only {
				if within(imp, outside) && !contains(parts, f.part) && !(f.test && imp != "C" && outside != "github.com/hashicorp/memberlist") {
					t.Errorf("%s imports %s, which belongs to %q", f.path, imp, parts)
				}
			}
		}
	}
}

func TestUnsafeOnlyInFilesNamedForIt(t *testing.T) {
	_, files := sources(t)
	for _, f := range files {
		base := strings.TrimSuffix(strings.TrimSuffix(path.Base(f.path), ".go"), "_test")
		named := base == "unsafe" || strings.HasSuffix(base, "_unsafe") || strings.Contains(base, "_unsafe_")
		if contains(imports(f), "unsafe") && !named {
			t.Errorf("%s imports unsafe; such files are named *_unsafe.go", f.path)
		}
	}
}

// The environment is read at the edge: by the commands, by pmi's callers in
// Main and Init, and by tests.
func TestEnvironmentReadOnlyAtTheEdge(t *testing.T) {
	fset, files := sources(t)
	edge := []string{"cmd/gorun", "cmd/gorun-verbs", "cmd/gorun-agent", "cmd/gorun-info", "cmd/a2a", "cmd/pingpong", "cmd/secure-channel", "cmd/allreduce", "cmd/gorun-bench", "cmd/gorun-bench-init", "cmd/internal", "internal/testenv", "e2e", "e2e/hosts/rank", "e2e/attack", "rdma/dropin"}
	// One function each: the documented defaults of the two public APIs.
	// launcher/agent: what the remote shell has told the agent of its way.
	exempt := map[string]string{"rank/config.go": "Environ", "launcher/check.go": "Environ", "launcher/agent/agent.go": "Getenv"}
	for _, f := range files {
		if f.test || contains(edge, f.part) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := sel.X.(*ast.Ident)
			if !ok || x.Name != "os" && x.Name != "syscall" && x.Name != "unix" {
				return true
			}
			if contains([]string{"Getenv", "LookupEnv", "Environ", "ExpandEnv"}, sel.Sel.Name) && exempt[f.path] != sel.Sel.Name {
				t.Errorf("%s: %s.%s: the environment is read only at the edge (%s)", fset.Position(sel.Pos()), x.Name, sel.Sel.Name, strings.Join(edge, ", "))
			}
			return true
		})
	}
}

// A skip goes through testenv, which fails it in a part of make test-all where CI=true. testing.Short may
// shorten a test but end none.
func TestSkipsGoThroughTestenv(t *testing.T) {
	fset, files := sources(t)
	for _, f := range files {
		tests := slices.ContainsFunc(f.ast.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing"` })
		if f.part == "internal/testenv" || !tests {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) {
				t.Errorf("%s: %s: use testenv.Need, testenv.Unsupported or testenv.Part", fset.Position(call.Pos()), sel.Sel.Name)
			}
			return true
		})
	}
}

// A reading order that names a file which was renamed leads nowhere.
func TestPackageDocsNameFilesThatExist(t *testing.T) {
	_, files := sources(t)
	exists := map[string]bool{}
	for _, f := range files {
		exists[f.path] = true
	}
	names := regexp.MustCompile(`[\w/.-]*\w\.go\b`)
	for _, f := range files {
		for _, name := range names.FindAllString(f.ast.Doc.Text(), -1) {
			if !exists[path.Join(f.pkg, name)] && !exists[name] {
				t.Errorf("%s: the package doc names %s, which is not there", f.path, name)
			}
		}
	}
}

// A table that names what is no more is a table nobody reads.
func TestTableNamesOnlyWhatExists(t *testing.T) {
	_, files := sources(t)
	seen := map[string]bool{}
	for _, f := range files {
		for p := f.pkg; p != "."; p = path.Dir(p) {
			seen[p] = true
		}
	}
	var gone []string
	for _, p := range slices.Concat(slices.Collect(maps.Keys(may)), slices.Collect(maps.Keys(inner))) {
		if !seen[p] {
			gone = append(gone, p)
		}
	}
	sort.Strings(gone)
	if gone != nil {
		t.Errorf("the table names packages that do not exist: %s", strings.Join(gone, ", "))
	}
}
